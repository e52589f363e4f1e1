"""Helpers of the tests of control flow: running as a graph, unrolled loops, comparing bits."""

import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.graph.run import evaluate


def graph_of(f, *args, specs=None):
    """The graph of ``f`` for arguments like these."""
    specs = specs or [ef.TensorSpec(x.shape, x.dtype) for x in args]
    return ef.capture.trace(f, *specs)


def captured(f, *args, specs=None):
    """The results of ``f`` when its graph is run; assigned Variables have their new values then."""
    graph = graph_of(f, *args, specs=specs)
    cells = [cell.variable.value for cell in graph.cells]
    outputs, assigned = evaluate(graph, [*args, *cells])
    changed = [cell for cell in graph.cells if cell.assigned is not None]
    for cell, value in zip(changed, assigned, strict=True):
        cell.variable.assign(value)
    return graph.nest(outputs)


def leaves(nest):
    """All tensors of a nest as arrays."""
    return [x.numpy() for x in tree.flatten(nest)[0] if x is not None]


def check_same(actual, expected):
    """The same structure, dtypes, shapes and bits."""
    assert tree.flatten(actual)[1] == tree.flatten(expected)[1]
    for a, b in zip(leaves(actual), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{a} instead of {b}"
        assert a.tobytes() == b.tobytes(), f"{a} instead of {b}"


def check_close(actual, expected, rtol=1e-12):
    """The same structure and shapes, and values that are equal up to rounding."""
    for a, b in zip(leaves(actual), leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13)


def check_both(f, *args, specs=None):
    """``f`` gives the same bits eagerly, under a tape, as a graph, and replayed; its result."""
    eager = f(*args)
    check_same(captured(f, *args, specs=specs), eager)
    with ef.GradientTape() as tape:
        tape.watch([x for x in args if ef.dtypes.is_inexact(x.dtype)])
        check_same(f(*args), eager)
    check_same(ef.function(f, numerics="exact")(*args), eager)
    check_close(ef.function(f)(*args), eager)
    return eager


def t(value, dtype="float64"):
    """A tensor of double precision."""
    return ef.tensor(value, dtype=dtype)


def loop_scan(f, init, xs, reverse=False):
    """``scan`` over one tensor, written as a Python loop."""
    carry, ys = init, {}
    steps = list(range(xs.shape[0]))
    for i in reversed(steps) if reverse else steps:
        carry, ys[i] = f(carry, xs[i])
    return carry, ef.stack([ys[i] for i in steps])


def grads(f, *args):
    """Gradients of the sum of all inexact results."""
    with ef.GradientTape() as tape:
        tape.watch(list(args))
        total = sum((y.sum() for y in tree.flatten(f(*args))[0]), start=t(0.0))
    return tape.gradient(total, list(args))
