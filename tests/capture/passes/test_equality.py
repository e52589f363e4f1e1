"""Graphs compute the same before and after passes: for all ops and for programs.

``tests/capture/test_op_samples.py`` has the gradients of all ops.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.capture.passes import ALL
from eagerflow.errors import EagerflowError
from eagerflow.graph.ir import Value
from eagerflow.graph.sizes import concrete
from eagerflow.tensor import Tensor
from tests.contract.cases import (
    SOAK,
    about,
    check_all_close,
    check_same_bits,
    main_dtype,
    prepared,
    results,
    samples,
    shipped,
    spread,
    tolerance,
)

_BY_VALUE = ("nonzero",)  # their shapes depend on values: they are not traced
EXACT = [p.name for p in ALL.values() if p.numerics == "exact"]


def interpreted(graph, entries):
    """The outputs of a graph, and what it assigns, node by node."""
    known = dict(zip(graph.all_inputs(), entries, strict=True))

    def find(x):
        if type(x) is not Value:
            return x
        return x.constant if x.constant is not None else known[x]

    for node in graph.nodes:
        out = node.op.call(*map(find, node.inputs), **node.attributes)
        out = out if isinstance(out, tuple) else (out,)
        known.update(zip(node.outputs, out, strict=True))
    return [find(v) for v in graph.all_outputs()]


def computed(graph, entries):
    """The results as NumPy arrays."""
    return [array for y in interpreted(graph, entries) for array in results(y)]


def check_passes(graph, entries, what, factor=10.0):
    """All exact passes keep the bits; all passes together stay close; both graphs are sound."""
    wanted = computed(graph, entries)
    exact = graph.optimized("exact")
    exact.check()
    check_same_bits(computed(exact, entries), wanted, f"{what}, exact")
    fast = graph.optimized(final=True)
    fast.check()
    rtol = factor * max([tolerance(y.dtype) for y in wanted], default=0.0)
    check_all_close(computed(fast, entries), wanted, rtol, f"{what}, fast")
    return exact, fast


def traced(f, args):
    """The graph of ``f`` of tensors, which are its inputs, and of other arguments."""
    return ef.capture.trace(f, *args)


def noisy(x):
    """The same tensor after much that changes nothing."""
    if not isinstance(x, Tensor):
        return x
    y = ef.permute_dims(ef.permute_dims(ef.reshape(x, x.shape)))
    y = ef.squeeze(ef.expand_dims(ef.stop_gradient(y), 0), 0)
    y = ef.broadcast_to(y.astype(x.dtype), x.shape)
    return y[...]


def busy(x):
    """The same numbers after arithmetic that changes none of them."""
    if not isinstance(x, Tensor) or x.dtype == np.dtype(bool):
        return x
    y = ef.negative(-x) if x.dtype.kind != "u" else x
    return +(y * 1)


def with_tensors(sample, change):
    """A function of the sample's tensors alone: all of its arguments, changed."""
    where = [i for i, x in enumerate(sample) if isinstance(x, Tensor)]

    def arguments(tensors):
        args = list(sample)
        for i, x in zip(where, tensors, strict=True):
            args[i] = change(x)
        return args

    return [sample[i] for i in where], arguments


# The ops that hold graphs or move between devices have their own tests.
OPS = [op for op in shipped() if op.kernel.__module__.startswith("eagerflow.ops.")]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples(op):
    """Each op, of arguments with no-ops around them, twice: the bits stay, and nodes go."""
    removed = 0
    for sample in spread(samples(op, main_dtype(op)), 4):
        with about(op, sample):
            data, attributes, _ = prepared(op, sample)
            for change in (noisy, busy):
                tensors, arguments = with_tensors(data, change)

                def f(*xs, arguments=arguments, attributes=attributes):
                    return [op.call(*arguments(xs), **attributes) for _ in range(2)]

                try:
                    graph = traced(f, tensors)
                except EagerflowError:  # the shape depends on values, or a body cannot be traced
                    continue
                exact, _ = check_passes(graph, tensors, op.name)
                removed += len(graph.nodes) - len(exact.nodes)
    if op.data and any(True for _ in samples(op, main_dtype(op))):
        assert removed or op.name in _BY_VALUE, "no sample was made smaller"


# Random programs ---------------------------------------------------------------------------------

UNARY = {
    "negative": lambda x: -x,
    "twice negative": lambda x: ef.negative(-x),
    "times one": lambda x: x * 1,
    "plus zero": lambda x: 0.0 + x,
    "minus zero": lambda x: x - 0,
    "double": lambda x: x * 2.0,
    "half": lambda x: x / 2,
    "third": lambda x: x / 3.0,
    "factors": lambda x: (x * 0.25) * 3.0,
    "square": lambda x: x**2,
    "cube": lambda x: ef.tanh(x) ** 3,
    "first power": lambda x: x**1,
    "tanh": ef.tanh,
    "sigmoid": ef.sigmoid,
    "one over": lambda x: 1 / (1 + ef.exp(-ef.tanh(x))),
    "logarithm": lambda x: ef.log(1 + ef.square(x)),
    "exponential": lambda x: ef.exp(ef.tanh(x)) - 1,
    "root": lambda x: 1 / ef.sqrt(1.0 + x * x),
    "softmax": lambda x: ef.log(ef.softmax(ef.tanh(x), axis=-1)),
    "transposed": lambda x: ef.tanh(x.T + 0.5).T,
    "sum": lambda x: ef.broadcast_to(ef.sum(x, axis=0, keepdims=True) * 0.5, x.shape),
    "reshaped": lambda x: x.reshape((-1,)).reshape(x.shape),
    "slice": lambda x: x[:],
    "ones": lambda x: x * ef.ones_like(x),
    "zeros": lambda x: ef.zeros_like(x) + x,
    "constant": lambda x: x + ef.tensor([[1.0], [2.0], [3.0]], dtype=x.dtype) * 2.0,
    "stopped": lambda x: ef.stop_gradient(x),
    "cast": lambda x: x.astype("float64").astype(x.dtype),
    "mean": lambda x: x - ef.mean(ef.mean(x, axis=1, keepdims=True), axis=0, keepdims=True),
}
BINARY = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: ef.tanh(a) * b,
    "opposite": lambda a, b: a + (-b),
    "where": lambda a, b: ef.where(a > b, a, b),
    "maximum": ef.maximum,
    "quotient": lambda a, b: a * ef.reciprocal(1.0 + ef.square(b)),
    "product": lambda a, b: ef.tanh(a @ b.T) @ b,
}

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 4)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 4), st.integers(0, 4)),
    ),
    min_size=5,
    max_size=25,
)


def program(chosen):
    """A function of two tensors that takes these steps, each on results of earlier ones."""

    def f(x, y):
        found = [x, y]
        for name, *where in chosen:
            args = [found[-1 - i % len(found)] for i in where]
            found.append((UNARY if len(args) == 1 else BINARY)[name](*args))
        return {"last": found[-1], "before": found[-2], "sum": ef.sum(found[-1] + found[-3])}

    return f


def with_gradient(f):
    """Also the gradients of the sum, from a tape."""

    def g(x, y):
        with ef.GradientTape(persistent=True) as tape:
            tape.watch(x)
            tape.watch(y)
            found = f(x, y)
        names = {"x": x, "y": y}
        return found | {
            n: tape.gradient(found["sum"], v, unconnected="zero") for n, v in names.items()
        }

    return g


def inputs_of(seed, dtype="float32", order="C"):
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1.5, 1.5, (3, 4)).astype(dtype) for _ in range(2)]
    return [ef.asarray(np.asarray(a, order=order)) for a in arrays]


@settings(max_examples=2000 if SOAK else 80)
@given(steps, st.integers(0, 99), st.sampled_from("CF"), st.booleans())
def test_programs(chosen, seed, order, gradient):
    """Exact passes keep every bit of a random program; all of them are as close to the truth."""
    f = with_gradient(program(chosen)) if gradient else program(chosen)
    tensors = inputs_of(seed, order=order)
    graph = traced(f, tensors)
    wanted = computed(graph, tensors)
    exact = graph.optimized("exact")
    exact.check()
    check_same_bits(computed(exact, tensors), wanted, "exact")
    fast = graph.optimized(final=True)
    fast.check()
    wide = [t.astype("float64") for t in tensors]
    truth = computed(traced(f, wide), wide)
    for a, b, t in zip(computed(fast, tensors), wanted, truth, strict=True):
        scale = 1.0 + np.abs(t).max()
        allowed = 4 * np.abs(b - t).max() + 2e-6 * scale
        assert np.abs(a - t).max() <= allowed, f"{np.abs(a - t).max()} off, before {b - t}"


@settings(max_examples=15)
@given(steps, st.permutations(sorted(ALL)))
def test_every_pass_alone_and_in_any_order(chosen, order):
    """Passes do not depend on each other, and a graph that is done comes back as it is."""
    tensors = inputs_of(1)
    graph = traced(with_gradient(program(chosen)), tensors)
    wanted = computed(graph, tensors)
    found = graph
    for name in order:
        found = ALL[name](found)
        found.check()
        if name in EXACT:
            check_same_bits(computed(ALL[name](graph), tensors), wanted, name)
    scale = max(float(np.abs(y).max()) for y in wanted)
    check_all_close(computed(found, tensors), wanted, 2e-4 * (1 + scale), "all")
    done = found.optimized(final=True)
    assert done.optimized(final=True) is done


@settings(max_examples=20)
@given(steps, st.integers(1, 5))
def test_named_sizes(chosen, size):
    """What passes make of a graph with named sizes is right for each number."""
    free = [name for name, *_ in chosen if name == "constant"]
    spec = ef.TensorSpec((3 if free else "n", 4), "float32")
    graph = ef.capture.trace(program(chosen), spec, spec)
    rng = np.random.default_rng(size)
    rows = 3 if free else size
    tensors = [ef.asarray(rng.uniform(-1, 1, (rows, 4)).astype("float32")) for _ in range(2)]
    filled = concrete(graph, {"n": size})
    filled.check()
    wanted = computed(filled, tensors)
    for numerics in ("exact", "fast"):
        best = graph.optimized(numerics)
        best.check()
        last = concrete(best, {"n": size})
        last.check()
        found = computed(last, tensors)
        if numerics == "exact":
            check_same_bits(found, wanted, "exact")
        scale = max(float(np.abs(y).max()) for y in wanted)
        check_all_close(found, wanted, 2e-5 * (1 + scale), numerics)
