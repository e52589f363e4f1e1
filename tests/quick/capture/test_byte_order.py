"""Arrays of the other byte order as arguments, in every place that takes arrays."""

import numpy as np
import pytest

import eagerflow as ef

OTHER = ">" if np.dtype("=i4").newbyteorder("<").isnative else "<"
DTYPES = ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "c8")


def pair(dtype, shape=(50, 100)):
    """The same numbers in native byte order and in the other one."""
    native = (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)
    return native, native.astype(OTHER + dtype)


def assert_same(found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype.isnative
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def twice_and_total(x):
    return x * 2 + x * x - 1, ef.sum(x, axis=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("native_first", [False, True])
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_captured_functions(dtype, native_first, numerics):
    native, other = pair(dtype)
    wanted = ef.function(twice_and_total, numerics=numerics)(ef.tensor(native))
    f = ef.function(twice_and_total, numerics=numerics)
    for x in [native] * native_first + [other, native, other]:
        for a, b in zip(f(x), wanted, strict=True):
            assert_same(a, b)


PROGRAMS = {
    "identity": lambda x: x,
    "reshape": lambda x: ef.reshape(x, (-1,)),
    "slice": lambda x: x[1:, ::2],
    "transpose": lambda x: x.T,
    "view": lambda x: ef.view(x, "int32"),
    "product": lambda x: ef.tanh(x @ x.T),
    "gradient": ef.grad(lambda x: ef.sum(ef.tanh(x) * x)),
    "scan": lambda x: ef.scan(lambda c, row: (c + row, c * 2), ef.zeros(100), x),
    "constant": lambda x: x + pair("f4")[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    native, other = pair("f4")
    f = ef.function(PROGRAMS[name])
    found, wanted = f(other), f(ef.tensor(native))
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        assert_same(a, b)


def test_nested_and_named_arguments():
    native, other = pair("f4")
    assert_same(ef.function(lambda d: d["a"][0] * 2)({"a": [other]}), native * 2)
    assert_same(ef.function(lambda x, *, k: x + k)(native, k=other), native + native)


def test_indices():
    native, _ = pair("f4")
    rows = np.array([3, 1, 2] * 200, OTHER + "i8")
    for f in (lambda x, i: x[i] + 1, lambda x, i: ef.take(x, i, axis=0) + 1):
        assert_same(ef.function(f)(native, rows), native[rows] + 1)


def test_labels():
    native, _ = pair("f4")
    labels = np.arange(50)
    f = ef.function(lambda x, y: ef.sparse_softmax_cross_entropy(x, y))
    assert_same(f(native, labels.astype(OTHER + "i4")), f(native, labels.astype("i4")))


def test_fields_of_structured_arrays():
    table = np.zeros(5000, [("p", "i1"), ("x", "f4"), ("y", OTHER + "f4")])
    table["x"] = table["y"] = np.arange(5000)
    f = ef.function(lambda x: x * 2 + 1)
    for field in "xy":
        assert_same(f(table[field]), np.arange(5000, dtype="f4") * 2 + 1)


def test_variables_assigned_in_captured_functions():
    native, other = pair("f4")
    v = ef.Variable(np.zeros_like(native))
    ef.function(v.assign)(other)
    assert_same(v.numpy(), native)
    ef.function(v.assign_add)(other)
    assert_same(v.numpy(), native + native)


def test_graphs_sessions_and_eager_borders():
    native, other = pair("f4")
    graph = ef.function(lambda x: x * 2 + 1).graph(ef.tensor(native))
    wanted = graph(ef.tensor(native))
    assert_same(graph(other), wanted)
    fed = ef.capture.Session(graph).run(graph.outputs[0], {graph.inputs[0].name: other})
    assert_same(fed, wanted)
    for border in (ef.tensor, ef.asarray, ef.from_dlpack, ef.Variable):
        assert_same(border(other).numpy(), native)
