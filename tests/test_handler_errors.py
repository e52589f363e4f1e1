"""Errors that a signal handler raises come out as they are, whatever they interrupt.

The handler is called at one place of eagerflow after the other, where Python looks for signals,
and raises errors of the kinds that functions take for answers: a missing key, an attribute that
is not there. Afterwards all is as before.
"""

import contextlib
import signal
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ShapeError
from eagerflow.handlers import raised_here, suppress
from tests.interrupts import at_bytecode, count_bytecodes


class OwnLookupError(LookupError):
    pass


KINDS = [
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    RuntimeError,
    TimeoutError,
    OwnLookupError,
    MemoryError,
    ZeroDivisionError,
    StopIteration,
    ShapeError,
]


class Raising:
    """A context in which a handler raises ``error``; ``dropped`` are errors in finalizers."""

    def __init__(self, error):
        self.error = error
        self.dropped = []

    def handle(self, number, frame):
        raise self.error

    def __enter__(self):
        self._hook, sys.unraisablehook = sys.unraisablehook, self._drop
        self._before = signal.signal(signal.SIGUSR1, self.handle)
        return self

    def _drop(self, found):
        self.dropped.append(found.exc_value)

    def __exit__(self, *error):
        signal.signal(signal.SIGUSR1, self._before)
        sys.unraisablehook = self._hook


def lost(call, at, kind):
    """What became of the error of a handler at this bytecode, None where it came out."""
    error, place, came = kind("of the handler"), [], []

    def act(where):
        place.append(where)
        signal.raise_signal(signal.SIGUSR1)

    def caught():  # here, since what counts bytecodes is a generator
        try:
            call()
        except BaseException as found:
            came.append(found)

    with Raising(error) as raising:
        at_bytecode(caught, at, act, for_signals=True)
    if came:
        found = came[0]
        if error in (found, made_by_generator(found)) and not getattr(found, "__notes__", None):
            return None
        return f"{found!r} in place of {error!r} at {place}"
    if not place or error in raising.dropped:
        return None
    return f"{error!r} is lost at {place}"


def made_by_generator(found):
    """The StopIteration in a generator of which Python has made a RuntimeError."""
    return found.__cause__ if type(found) is RuntimeError else None


def check(call, step, same, kinds=KINDS):
    """Every so many bytecodes an error of the next kind; all have to arrive."""
    count = count_bytecodes(call, for_signals=True)
    tried = range(1, count, step)
    assert len(tried) > 10
    for number, at in enumerate(tried):
        assert lost(call, at, kinds[number % len(kinds)]) is None
        if number % 10 == 0:
            same()


def near(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


X = ef.tensor(np.linspace(-1.0, 1.0, 12, dtype="f4").reshape(3, 4))


def eager():
    y = ef.sin(X) * 2.0 + X[1:, ::2].sum()
    parts = [y @ X.T, ef.add([1.0, 2.0], X[:, :2]), ef.concat([X, y], axis=0), ef.softmax(y)]
    parts += [ef.where(X > 0, X, 0.0), X.mean(axis=1), X[[0, 2]], ef.stack([X, y]), X**2]
    parts += [ef.einsum("ij,kj->ik", X, y), np.sin(X), y == X, ef.reshape(X, (4, 3)), X.sum((0, 1))]
    return [np.asarray(part) for part in parts]


def taped():
    v = ef.Variable(np.linspace(-1.0, 1.0, 20, dtype="f4").reshape(4, 5))
    with ef.GradientTape() as tape:
        h = ef.tanh(X @ v)
        for _ in range(2):
            h = h * ef.sigmoid(h) + ef.sum(h, axis=1, keepdims=True)
        loss = ef.mean(ef.softmax(h[:, :3])) + ef.sum(ef.where(h > 0.1, h, h * h), axis=(0, 1))
    return [np.asarray(tape.gradient(loss, v))]


def transformed():
    found = [ef.grad(lambda x: ef.sum(ef.sin(x) * x))(X), ef.vmap(lambda row: row @ row)(X)]
    return [np.asarray(part) for part in found]


def looped():
    """Eager control flow, in which handlers run as visitors."""
    last, ys = ef.scan(lambda total, row: (total + row, total * 2.0), X[0], X)
    found = [last, ys, ef.cond(ef.sum(X) > 0, lambda: X * 2.0, lambda: X - 1.0)]
    found += [ef.fori_loop(0, 3, lambda i, s: s * 0.5 + X, X), ef.map(lambda row: row @ row, X)]
    return [np.asarray(part) for part in found]


@pytest.mark.parametrize(
    ("call", "step"), [(eager, 47), (taped, 131), (transformed, 47), (looped, 37)]
)
def test_eager_code(call, step):
    wanted = call()
    check(call, step, lambda: near(call(), wanted))


@pytest.mark.soak
@pytest.mark.parametrize("call", [eager, taped, transformed, looped])
@pytest.mark.parametrize("kind", KINDS)
def test_eager_code_at_every_bytecode(call, kind):
    wanted = call()
    check(call, 3, lambda: near(call(), wanted), [kind])


def configured():
    """Losses and layers, whose arguments ``inspect`` finds; it takes AttributeError for an answer.

    An argument that is not found would not be given on, and the numbers be others.
    """
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    return [np.asarray(loss([1, 0, 1], X)), ef.nn.SimpleRNN(2, use_bias=False).cell.use_bias]


def test_arguments_of_constructors():
    wanted = configured()
    check(configured, 5, lambda: near(configured(), wanted), [AttributeError])


def stepping():
    """A training step, and a check that its Variables have values that some steps lead to."""
    w = ef.Variable(np.linspace(-1.0, 1.0, 20, dtype="f4").reshape(4, 5))
    b = ef.Variable(np.zeros(5, "f4"))
    optimizer = ef.nn.optimizers.SGD(0.1)

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.tanh(x @ w + b) ** 2)
        optimizer.apply(tape.gradient(loss, [w, b]), [w, b])
        return loss

    def same():
        before = w.numpy().copy(), b.numpy().copy()
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.tanh(X @ w + b) ** 2)
        slopes = tape.gradient(loss, [w, b])
        near([step(X)], [loss])
        near([w, b], [old - 0.1 * np.asarray(g) for old, g in zip(before, slopes, strict=True)])

    return step, same


def test_captured_calls():
    step, same = stepping()
    same()
    check(lambda: step(X), 11, same)


def test_stopiteration_of_a_handler_skips_no_value():
    step, same = stepping()
    same()
    count = count_bytecodes(lambda: step(X), for_signals=True)
    with Raising(StopIteration("of the handler")):
        for at in range(1, count):
            with contextlib.suppress(StopIteration, RuntimeError):
                at_bytecode(lambda: step(X), at, lambda _: interrupted(), for_signals=True)
            same()


@pytest.mark.soak
@pytest.mark.parametrize("step", [331, 3319])
def test_first_calls(step):
    def call():
        stepping()[0](X)

    def same():
        stepping()[1]()

    call()
    check(call, step, same)


def test_sessions_and_saved_graphs(tmp_path):
    function = ef.function(lambda x: ef.sum(ef.sin(x) @ x.T, axis=0))
    wanted, path = [np.asarray(function(X))], tmp_path / "graph.ef"
    graph = function.graph(X)

    def call():
        graph.save(path)
        with ef.capture.Session(ef.capture.load(path)) as session:
            return [np.asarray(session.run("output", {"x": X}))]

    call()
    check(call, 997, lambda: near(call(), wanted))


@pytest.mark.parametrize("workers", [0, 1])
def test_batches(workers):
    loader = ef.nn.Loader(np.arange(12.0), 4, workers=workers)
    assert len(list(loader)) == 3
    check(lambda: list(loader), 7, lambda: near(list(loader), np.arange(12.0).reshape(3, 4)))


def test_layers_of_a_model():
    model = ef.nn.Sequential([ef.nn.Dense(2), ef.nn.Dense(2), ef.nn.Dense(2)])
    for kind in (StopIteration, IndexError):
        for at in range(1, 1 + count_bytecodes(lambda: list(model), for_signals=True)):
            assert lost(lambda: list(model), at, kind) is None


@pytest.mark.soak
def test_fit():
    x = np.linspace(-1.0, 1.0, 32, dtype="f4").reshape(8, 4)
    model = ef.nn.Sequential([ef.nn.Dense(2)])
    model.compile("sgd", loss="mse")

    def call():
        model.fit(x, x[:, :2], batch_size=4, epochs=1, verbose=0)

    call()
    check(call, 131, lambda: near([model.predict(x, verbose=0)], [model(x)]))


# What tells them apart ----------------------------------------------------------------------------


def interrupted():
    signal.raise_signal(signal.SIGUSR1)


class Handlers:
    def __call__(self, *args):
        raise KeyError("of the handler")

    def method(self, number, frame):
        raise KeyError("of the handler")


def plain(number, frame):
    raise KeyError("of the handler")


def deep(number, frame):
    return plain(number, None)


@pytest.mark.parametrize(
    "handler",
    [plain, deep, Handlers(), Handlers().method, lambda *args: {}["of the handler"]],
)
def test_handlers_are_known_by_their_frames(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(KeyError, match="of the handler"):
            try:
                interrupted()
            except raised_here(KeyError, ValueError):
                pytest.fail("it was not raised here")
        with pytest.raises(KeyError, match="of the handler"), suppress(KeyError):
            interrupted()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_errors_are_taken():
    with suppress(KeyError):
        raise KeyError("own")
    try:
        {}["name"]
    except raised_here(ValueError, LookupError) as error:
        assert type(error) is KeyError
    with pytest.raises(TypeError):
        try:
            raise TypeError("own")
        except raised_here(KeyError):
            pytest.fail("another kind")


def test_runtimeerror_of_a_generator_is_not_taken_as_own():
    def stop(number, frame):
        raise StopIteration

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(RuntimeError, match="StopIteration"):
            try:
                tuple(interrupted() for _ in range(2))
            except raised_here(RuntimeError):
                pytest.fail("it was not raised here")
    finally:
        signal.signal(signal.SIGUSR1, before)
