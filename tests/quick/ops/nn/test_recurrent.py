"""Recurrent ops beyond their facts: what tapes and graphs record, large networks, small floats."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.ops.nn import recurrent
from eagerflow.primitives import compiled_recurrence
from tests.internals import recorded_in

CELLS = {"gru": 3, "lstm": 4, "simple_rnn": 1}
KEEPS = {"gru": "gru_training", "lstm": "lstm_training", "simple_rnn": "simple_rnn"}


def arguments(cell, batch=3, steps=4, width=2, units=3, dtype="float32"):
    rng = np.random.default_rng(4)
    wide = CELLS[cell] * units
    shapes = [(batch, steps, width), (width, wide), (units, wide)]
    shapes.append((2, wide) if cell == "gru" else (wide,))
    shapes += [(batch, units)] * (2 if cell == "lstm" else 1)
    # Gradients of long chains of wide products would grow beyond what can be compared.
    by = [0.5, 0.5, units**-0.5, *[0.5] * 3]
    values = [rng.standard_normal(s) * size for s, size in zip(shapes, by, strict=False)]
    return [ef.tensor(x).astype(dtype) for x in values]


def outputs(cell, *args, **more):
    found = getattr(ef, cell)(*args, **more)
    return found if isinstance(found, tuple) else (found,)


def loss(cell, *args, **more):
    """A number that depends on all results in another way."""
    return sum(((k + 1) * x * x).sum() for k, x in enumerate(outputs(cell, *args, **more)))


def names(graph):
    return [node.op.name for node in graph.nodes]


# Records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_a_tape_keeps_gates_only_where_it_watches(cell):
    args = arguments(cell)
    with ef.GradientTape(persistent=True) as tape:
        outputs(cell, *args)
        assert not recorded_in(tape)
        tape.watch(args[2])
        found = outputs(cell, *args)
    assert [entry[0].name for entry in recorded_in(tape)] == [KEEPS[cell]]
    assert len(found) == (2 if cell == "lstm" else 1)
    for a, b in zip(found, outputs(cell, *args), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("cell", CELLS)
def test_graphs_keep_gates_only_for_gradients(cell):
    args = arguments(cell)
    specs = [ef.TensorSpec(x.shape, x.dtype) for x in args]
    assert names(ef.capture.trace(lambda *args: outputs(cell, *args), *specs)) == [cell]
    gradient = ef.grad(lambda x, *rest: loss(cell, x, *rest))
    found = names(ef.capture.trace(gradient, *specs))
    assert KEEPS[cell] in found
    assert f"{cell}_gradient" in found
    assert cell == "simple_rnn" or cell not in found


@pytest.mark.parametrize("cell", CELLS)
def test_the_gradient_of_a_graph_that_kept_nothing(cell):
    args = arguments(cell)
    step = ef.function(lambda *args: loss(cell, *args))
    step(*args)
    right = ef.grad(lambda *args: loss(cell, *args), argnums=(0, 2))(*args)
    for a, b in zip(ef.grad(step, argnums=(0, 2))(*args), right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_a_tape_within_a_tape_and_a_batch():
    args = arguments("lstm")

    def second(x):
        with ef.GradientTape() as outer:
            outer.watch(x)
            with ef.GradientTape() as inner:
                inner.watch(x)
                y = loss("lstm", x, *args[1:])
            g = inner.gradient(y, x)
            y = (g * g).sum()
        return outer.gradient(y, x)

    xs = ef.stack([args[0], args[0] * 2])
    for a, b in zip(ef.vmap(second)(xs), xs, strict=True):
        np.testing.assert_allclose(a, second(b), rtol=1e-4, atol=1e-5)


def test_unused_result_gradients_are_not_computed():
    """Gradients by h alone: zeros by c and by the gates are not made."""
    args = arguments("lstm")
    seen = []
    op = recurrent.lstm_gradient.op
    kernel = op.kernel
    op.kernels.clear()
    op.kernel = lambda xp, *given, **more: seen.append(given) or kernel(xp, *given, **more)
    try:
        ef.grad(lambda x: ef.lstm(x, *args[1:])[0].sum())(args[0])
    finally:
        op.kernel = kernel
        op.kernels.clear()
    ((_, _, _, g, of_c, of_gates, _, mask),) = seen
    assert g is not None
    assert of_c is of_gates is mask is None


# Large networks -----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batch", [2, 9])
@pytest.mark.parametrize("cell", CELLS)
def test_machine_code_against_steps(cell, batch, reverse, monkeypatch):
    """Values, all gradients and a second one, of a network that is machine code."""
    args = arguments(cell, batch, 12, 24, 56, dtype="float64")
    mask = ef.tensor(np.random.default_rng(1).random((batch, 12)) < 0.7)
    calls = []
    for name in ("forward", "gradient"):
        own = getattr(compiled_recurrence, name)
        monkeypatch.setattr(
            compiled_recurrence,
            name,
            lambda *given, own=own, name=name: calls.append(name) or own(*given),
        )

    def of(*args):
        return loss(cell, *args, mask, reverse=reverse)

    def found():
        first = ef.value_and_grad(of, argnums=tuple(range(len(args))))(*args)
        inner = ef.grad(of)
        second = ef.grad(lambda r: (inner(*args[:2], r, *args[3:]) ** 2).sum())(args[2])
        return [first[0], *first[1], second]

    fast = found()
    assert {"forward", "gradient"} <= set(calls)
    calls.clear()
    monkeypatch.setattr(compiled_recurrence, "takes", lambda *_: False)
    for a, b in zip(fast, found(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    assert not calls


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cell", CELLS)
def test_small_floats_are_computed_in_float32(cell, dtype):
    args = arguments(cell, 8, 10, 16, 40, dtype)
    wide = [x.astype("float32") for x in args]
    for a, b in zip(outputs(cell, *args), outputs(cell, *wide), strict=True):
        assert a.dtype == args[0].dtype
        assert (a == b.astype(dtype)).all()
    g = ef.grad(lambda x: loss(cell, x, *args[1:]))(args[0]).astype("float32")
    right = ef.grad(lambda x: loss(cell, x, *wide[1:]))(wide[0])
    assert abs(g - right).max() < abs(right).max() * (0.01 if dtype == "float16" else 0.06)


def test_a_stack_of_networks():
    args = [ef.stack([x, x[..., ::-1]]) for x in arguments("gru", 4, 6, 10, 30)]
    whole, *_ = outputs("gru", *args)
    for k in range(2):
        np.testing.assert_allclose(
            whole[k], outputs("gru", *(x[k] for x in args))[0], rtol=1e-5, atol=1e-5
        )
