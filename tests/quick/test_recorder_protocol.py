"""The recorder protocol carries capture: a Trace of a few lines, which knows specs only, records
a training step with its gradient and a vmap inside, and a loop replays it bit for bit."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dispatch import check
from eagerflow.errors import CaptureError
from eagerflow.recorder import Recorder, process, recorder_state
from eagerflow.tensor import Tensor, new_tensor, refuse_symbol
from tests.internals import array_of


class Symbol:
    """Stands in a Tensor for a value that is not computed while tracing."""

    __array_ufunc__ = None

    def __init__(self, shape, dtype, number):
        self.shape, self.dtype, self.number = shape, dtype, number

    @property
    def size(self):
        return int(np.prod(self.shape))

    def refuse(self, how):
        refuse_symbol(how, "it is not known while tracing")


class Trace(Recorder):
    """Writes down ops as (op, arguments, attributes, results), without computing any."""

    def __init__(self):
        self.nodes, self.values, self.variables, self.assigned = [], [], {}, {}

    def symbol(self, spec, device):
        tensor = new_tensor(
            Symbol(spec.shape, spec.dtype, len(self.values)), device.kind(spec.dtype)
        )
        self.values.append(tensor)
        return tensor

    def call(self, op, args, attributes):
        specs = check(op, args, attributes)
        device = ef.devices()[0]
        several = isinstance(specs, tuple)
        outs = tuple(self.symbol(spec, device) for spec in (specs if several else (specs,)))
        self.nodes.append((op, args, attributes, outs))
        return outs if several else outs[0]

    def read(self, variable):
        if id(variable) in self.assigned:
            return self.assigned[id(variable)][1]
        if id(variable) not in self.variables:
            self.variables[id(variable)] = (
                variable,
                self.symbol(variable.current, variable.device),
            )
        return self.variables[id(variable)][1]

    def assign(self, variable, value):
        self.assigned[id(variable)] = (variable, value)


def replay(trace, inputs, outputs):
    known = {array_of(x).number: value for x, value in inputs}
    known |= {array_of(symbol).number: v.current for v, symbol in trace.variables.values()}

    def value(x):
        symbolic = isinstance(x, Tensor) and isinstance(array_of(x), Symbol)
        return known[array_of(x).number] if symbolic else x

    for op, args, attributes, outs in trace.nodes:
        results = op.call(*map(value, args), **attributes)
        results = results if isinstance(results, tuple) else (results,)
        known |= {array_of(out).number: r for out, r in zip(outs, results, strict=True)}
    for variable, new in trace.assigned.values():
        variable.assign(value(new))
    return [value(x) for x in outputs]


def program():
    """A step of a small network: dropout, a per-example norm by vmap, a tape, an update."""
    generator = ef.random.Generator(7)
    rng = np.random.default_rng(0)
    w = ef.Variable(rng.standard_normal((5, 8)).astype("f4"), name="w")
    v = ef.Variable(rng.standard_normal((8, 3)).astype("f4"), name="v")
    optimizer = ef.nn.optimizers.Adam(learning_rate=0.1)

    def step(x, labels):
        with ef.GradientTape() as tape:
            h = ef.tanh(x @ w)
            h = ef.where(generator.uniform(h.shape) < 0.5, h * 2.0, 0.0)
            norms = ef.vmap(lambda row: (row * row).sum())(h)
            logits = ef.log_softmax(h @ v)
            picked = (logits * ef.one_hot(labels, 3)).sum(axis=-1)
            loss = ef.mean(norms) * 0.01 - ef.mean(picked)
        grads = tape.gradient(loss, [w, v])
        optimizer.apply(grads, [w, v])
        return loss, grads

    return step, (w, v)


DATA = [
    (
        np.random.default_rng(i).standard_normal((4, 5)).astype("f4"),
        np.random.default_rng(i).integers(0, 3, 4),
    )
    for i in range(4)
]


def test_trace_captures_a_training_step_and_replay_is_bit_equal():
    step, weights = program()
    eager = []
    for x, labels in DATA:
        loss, grads = step(ef.tensor(x), ef.tensor(labels))
        eager.append([loss.numpy(), *(g.numpy() for g in grads), *(w.numpy() for w in weights)])

    step, weights = program()
    step(*map(ef.tensor, DATA[0]))  # builds the optimizer's state, as a first call does
    with Trace() as trace:
        x = trace.symbol(ef.TensorSpec((4, 5), "float32"), ef.devices()[0])
        labels = trace.symbol(ef.TensorSpec((4,), "int64"), ef.devices()[0])
        loss, grads = step(x, labels)
    assert len(trace.nodes) > 30
    for (a, b), expected in zip(DATA[1:], eager[1:], strict=True):
        got = replay(trace, [(x, ef.tensor(a)), (labels, ef.tensor(b))], [loss, *grads])
        got = [t.numpy() for t in got] + [w.numpy() for w in weights]
        for value, wanted in zip(got, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)


def test_no_kernel_runs_while_tracing():
    with Trace() as trace:
        x = trace.symbol(ef.TensorSpec((2, 3), "float32"), ef.devices()[0])
        y = ef.vmap(lambda row: row.sum())(x * 2.0)
        assert y.shape == (2,)
        assert isinstance(array_of(y), Symbol)


@pytest.mark.parametrize(
    "use", [float, bool, np.asarray, lambda x: x.numpy(), lambda x: x.item(), lambda x: x.tolist()]
)
def test_values_are_refused_while_tracing(use):
    with Trace() as trace:
        x = trace.symbol(ef.TensorSpec((), "float32"), ef.devices()[0])
        with pytest.raises(CaptureError, match="not known while tracing"):
            use(x)


def test_leaked_symbols_are_refused_after_tracing():
    with Trace() as trace:
        x = trace.symbol(ef.TensorSpec((3,), "float32"), ef.devices()[0])
    for use in (lambda: x + 1.0, lambda: ef.sin(x), lambda: x.sum(), lambda: ef.tensor([1.0]) + x):
        with pytest.raises(CaptureError):
            use()
    assert recorder_state()[1] is None and not process.recorders


def test_hot_path_is_one_python_frame_over_the_kernel():
    import sys

    x, y = ef.tensor([1.0, 2.0]), ef.tensor([3.0, 4.0])
    for call in (lambda: x + y, lambda: ef.sin(x), lambda: x.reshape((2, 1)), lambda: x * 2.0):
        call()
        frames = []

        def profile(frame, event, arg, frames=frames):
            if event == "call":
                frames.append(frame.f_code.co_name)

        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
        assert len(frames) - 1 <= 2, frames  # the lambda itself is the user's
