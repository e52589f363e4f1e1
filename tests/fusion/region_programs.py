"""Random programs of element-wise, broadcast, row-wise and other ops, and a runner of steps."""

import numpy as np

import eagerflow as ef
from eagerflow.fusion.kernels import FusedKernel
from eagerflow.graph.ir import Value

__all__ = ["SHAPES_MOST", "arrays_for", "graph_of", "program", "run_steps"]

SHAPES_MOST = 20_000  # elements of any value

UNARY = (
    ef.tanh,
    ef.sigmoid,
    ef.sin,
    ef.relu,
    ef.abs,
    ef.negative,
    ef.softplus,
    ef.gelu,
    ef.silu,
    ef.stop_gradient,
    lambda x: x * 0.5,
    lambda x: 1.5 - x,
    lambda x: ef.clip(x, -1, 1),
    lambda x: x**2 * 0.25,
    lambda x: ef.sqrt(ef.abs(x) + 0.5),
    lambda x: (ef.abs(x) + 0.5) ** -0.5,
    lambda x: ef.exp(ef.minimum(x, 1.0)),
    lambda x: ef.where(x > 0, x, 0.1 * x),
    lambda x: ef.astype(x, "float64").astype("float32") + True,
)
BINARY = (
    ef.add,
    ef.subtract,
    ef.multiply,
    ef.maximum,
    ef.minimum,
    ef.hypot,
    lambda a, b: a / (ef.abs(b) + 1),
    lambda a, b: ef.where(ef.greater(a, b), a, b),
)
REDUCTIONS = (ef.sum, ef.mean, ef.max, ef.min, ef.var, ef.logsumexp)


def program(seed, length):
    """A function of tensors, determined by the seed."""

    def f(*xs):
        rng = np.random.default_rng(seed)
        values = list(xs)
        for _ in range(length):
            x = values[-1 - min(int(rng.geometric(0.3)) - 1, len(values) - 1)]
            y = _next(rng, x, values)
            if y is None or y.ndim > 3:
                continue
            if rng.integers(3) == 0:
                y = ef.tanh(y)
            values.append(y)
        return [*values[-int(rng.integers(1, 5)) :], values[rng.integers(len(values))]]

    return f


def _next(rng, x, values):
    kind = rng.integers(20)
    if kind < 6:
        return UNARY[rng.integers(len(UNARY))](x)
    if kind < 11:
        return _joined(rng, x, values[rng.integers(len(values))])
    if kind < 17:
        return _along(rng, kind, x) if x.ndim else None
    return _moved(rng, x) if kind < 19 else _outside(rng, x)


def _joined(rng, x, z):
    try:
        shape = np.broadcast_shapes(x.shape, z.shape)
    except ValueError:
        return None
    if np.prod(shape) > SHAPES_MOST:
        return None
    return BINARY[rng.integers(len(BINARY))](x, z)


def _along(rng, kind, x):
    axis = int(rng.integers(x.ndim))
    if kind < 15:
        choices = (None, 0, -1, tuple(range(x.ndim - 1)) or 0, tuple(range(1, x.ndim)) or 0, axis)
        op = REDUCTIONS[rng.integers(len(REDUCTIONS))]
        y = op(x, axis=choices[rng.integers(6)], keepdims=bool(rng.integers(2)))
        return y * 0.0625 if op is ef.sum else y
    if kind < 16:
        return (ef.softmax, ef.log_softmax)[rng.integers(2)](x, axis)
    return ef.layer_norm(x, axis=axis, epsilon=0.1)


def _moved(rng, x):
    return (
        lambda: ef.expand_dims(x, int(rng.integers(x.ndim + 1))),
        lambda: ef.squeeze(x),
        lambda: ef.broadcast_to(x, (2, *x.shape) if x.size < SHAPES_MOST / 2 else x.shape),
        lambda: x.reshape((1, *x.shape)),
        lambda: x.reshape((-1,)),
    )[rng.integers(5)]()


def _outside(rng, x):
    """Ops that no region computes, and creations."""
    kind = rng.integers(5)
    if kind == 0:
        return x + ef.ones_like(x) * ef.zeros_like(x) + ef.full(x.shape, 0.5)
    if not x.ndim:
        return None
    return (
        lambda: ef.permute_dims(x),
        lambda: ef.sort(x),
        lambda: ef.softmax(ef.zeros_like(x), 0) + ef.softmax(x, 0),
        lambda: ef.cumulative_sum(x, axis=0) * 0.1,
    )[kind - 1]()


def graph_of(seed):
    """The graph of a random program."""
    rng = np.random.default_rng(seed)
    a, b, c = (int(n) for n in rng.choice([1, 2, 3, 5, 16, 17, 33, 64, 100], 3))
    shapes = [(a, b), (b,), (a, 1), (), (c, a, b), (1, b), (a,)]
    picked = [shapes[0], *(shapes[i] for i in rng.integers(len(shapes), size=3))]
    specs = [ef.TensorSpec(shape, "float32") for shape in picked]
    return ef.capture.trace(program(seed, int(rng.integers(3, 30))), *specs)


def arrays_for(graph, seed):
    """Arrays for a graph's inputs, some of them with unusual strides."""
    rng = np.random.default_rng(seed + 1)
    found = []
    for value in graph.inputs:
        array = rng.standard_normal(value.shape).astype(value.dtype)
        if array.ndim > 1 and rng.integers(3) == 0:
            array = np.asfortranarray(array)
        if array.ndim and rng.integers(4) == 0:
            array = np.repeat(array, 2, axis=-1)[..., ::2]
        found.append(array)
    return found


def run_steps(graph, steps, arrays, way=None, spoil=None, calls=None):
    """The finals of a graph from its steps; inputs of a step must be known by then.

    ``spoil`` changes a kernel's region before it runs, ``calls`` keeps the prepared calls.
    """
    known = dict(zip(graph.all_inputs(), arrays, strict=True))
    known.update((v, v.constant.numpy()) for v in graph.constants)
    for step in steps:
        if isinstance(step, FusedKernel):
            outputs = [np.full(v.shape, 7, v.dtype) for v in step.outputs]
            inputs = [known[v] for v in step.inputs]
            call = step.prepare(way=way)
            if calls is not None:
                calls.append(call)
            if spoil is not None:
                spoil(call)
            call(inputs, outputs)
            known.update(zip(step.outputs, outputs, strict=True))
        else:
            args = [ef.asarray(known[x]) if type(x) is Value else x for x in step.inputs]
            out = step.op.call(*args, **step.attributes)
            results = out if isinstance(out, tuple) else (out,)
            known.update((v, t.numpy()) for v, t in zip(step.outputs, results, strict=True))
    return [known[v] for v in graph.all_outputs()]
