"""What a captured function prints, logs or warns of is an effect of tracing, and has no guard."""

import contextlib
import io
import logging
import sys
import warnings

import pytest

import eagerflow as ef


class Tee:
    """A stream that counts and passes on, as many programs have one."""

    def __init__(self, *streams):
        self.streams = list(streams)
        self.count = 0
        self.lines = []

    def write(self, text):
        self.count += 1
        self.lines.append(text)
        for stream in self.streams:
            stream.write(text)
        return len(text)

    def flush(self):
        self.count += 1


class Buffered(io.TextIOBase):
    """A stream like those of notebooks: it keeps a buffer, a parent and a number of messages."""

    def __init__(self):
        self._buffer = io.StringIO()
        self._pending = False
        self.messages = 0
        self.parent = {}
        self.lines = []

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(text)
        self.parent = {"id": self.messages}
        self._buffer.write(text)
        self._schedule()
        return len(text)

    def _schedule(self):
        self._pending = not self._pending
        self.messages += 1
        self.lines.append(self._buffer.getvalue())

    def flush(self):
        self.messages += 1


class Counting(logging.Handler):
    """A handler with state of its own."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


LOG = logging.getLogger("eagerflow.tests.output")
TEE = Tee()


def printing(x):
    print("scale", x.shape)
    sys.stdout.write("written")
    sys.stdout.flush()
    print("error", file=sys.stderr)
    return x * 2.0


def printing_to_its_own_stream(x):
    print("scale", x.shape, file=TEE)
    TEE.write("more")
    return x * 2.0


def warning(x):
    warnings.warn("beware", stacklevel=1)
    return x * 2.0


def logging_itself(x):
    LOG.warning("shape %s of %r", x.shape, LOG)
    logging.getLogger("eagerflow.tests.output.inner").error("inner")
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("never")
    return x * 2.0


FUNCTIONS = [printing, printing_to_its_own_stream, warning, logging_itself]


@contextlib.contextmanager
def streams(made):
    """Streams of a class in place of the standard ones; what is written, logged and warned of."""
    out, error, shown = made(), made(), []
    handlers = [logging.StreamHandler(error), Counting()]
    for handler in handlers:
        LOG.addHandler(handler)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            # A warning that a program shows in its own way.
            warnings.showwarning = lambda *args, **more: shown.append(args)
            yield out.lines, error.lines, handlers[1].lines, shown
    finally:
        for handler in handlers:
            LOG.removeHandler(handler)


@pytest.mark.parametrize("made", [Tee, Buffered])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_output_has_no_guard(function, made):
    before = len(TEE.lines)
    step = ef.function(function)
    x = ef.ones((3,))
    with streams(made) as (out, error, logged, shown):
        for _ in range(3):
            assert step(x).tolist() == [2.0, 2.0, 2.0]
    assert step.explain().startswith(f"{function.__name__} was traced 1 time")
    own = {printing: out and error, warning: shown, logging_itself: logged}
    assert own.get(function, TEE.lines[before:])


@pytest.mark.parametrize("made", [Tee, Buffered])
def test_a_model_that_prints_can_be_trained(made):
    class Net(ef.nn.Model):
        def __init__(self):
            super().__init__()
            self.dense = ef.nn.Dense(1)

        def call(self, inputs):
            print("call", inputs.shape)
            LOG.warning("call")
            warnings.warn("call", stacklevel=1)
            return self.dense(inputs)

    model = Net()
    model.compile("sgd", "mse")
    with streams(made) as (out, _, logged, shown):
        model.fit(ef.ones((8, 2)), ef.ones((8, 1)), epochs=2, verbose=0)
        assert model.predict(ef.ones((8, 2))).shape == (8, 1)
    assert out and logged and shown


def test_stream_attribute_is_guarded_if_read():
    def f(x):
        print("a", file=TEE)
        return x * TEE.count

    step = ef.function(f)
    x = ef.ones(())
    assert step(x).item() == TEE.count == step(x).item()
    TEE.write("more")
    assert step(x).item() == TEE.count


def test_a_progress_bar_shows_the_trace():
    tqdm = pytest.importorskip("tqdm")
    step = ef.function(lambda x: sum((x * n for n in tqdm.tqdm([1.0, 2.0], file=io.StringIO())), x))
    for _ in range(2):
        assert step(ef.ones(2)).tolist() == [4.0, 4.0]


class Results:
    """Something with the methods of a stream, which computes by a captured function."""

    def __init__(self):
        self.rate = 2.0
        self.step = ef.function(lambda x: x * self.rate)
        self.rows = []

    def write(self, x):
        self.rows.append(float(self.step(x)))

    def flush(self):
        self.rows.clear()


def test_output_around_a_trace_hides_nothing_in_it():
    results = Results()
    results.write(ef.tensor(3.0))
    results.rate = 5.0
    results.write(ef.tensor(3.0))
    assert results.rows == [6.0, 15.0]
