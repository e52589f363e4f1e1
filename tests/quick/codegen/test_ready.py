"""Calls that are kept ready: any layout of arrays, results that lie as NumPy's do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from eagerflow.codegen import generated, kernel, ready
from eagerflow.codegen.numpy.tiling import MIN_TILED_ELEMENTS
from tests.internals import generated_calls

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="there is no compiler")


def body(s, x, y):
    return s.add(s.multiply(x, 2.0), y)


def several(s, x, y):
    return s.add(x, y), s.subtract(x, y)


def total(s, x):
    return s.sum(x, "n")


def centered(s, x, m):
    return s.subtract(x, m)


def laid(array, order, steps):
    """The same values with axes in another order in memory, or with steps between them."""
    if not array.ndim:
        return array
    order = [i for i in order if i < array.ndim]
    turned = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    if not steps:
        return turned
    wide = np.zeros([2 * n for n in array.shape])
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def lies(array):
    """The axes of an array in the order of their steps in memory; those of one element aside."""
    return [
        axis
        for _, axis in sorted((-abs(s), i) for i, s in enumerate(array.strides))
        if array.shape[axis] > 1
    ]


@given(
    mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5),
    st.lists(st.permutations(range(4)), min_size=2, max_size=2),
    st.lists(st.booleans(), min_size=2, max_size=2),
)
def test_elements_of_any_layout(shapes, orders, steps):
    rng = np.random.default_rng(0)
    arrays = [
        laid(rng.standard_normal(shape), order, own)
        for shape, order, own in zip(shapes.input_shapes, orders, steps, strict=True)
    ]
    before = [a.copy() for a in arrays]
    call = ready.elements_of(body, arrays, ())
    for _ in range(2):  # the second time nothing is prepared
        out = call(arrays)
        wanted = arrays[0] * 2.0 + arrays[1]
        np.testing.assert_allclose(out, wanted, rtol=1e-12)
        assert out.shape == wanted.shape
        assert not any(np.may_share_memory(out, a) for a in arrays)
    if arrays[0].ndim == arrays[1].ndim and out.size:
        assert lies(out) == lies(np.asarray(np.multiply(arrays[0], arrays[1])))
    for a, same in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, same)


def test_a_planted_order_is_found(monkeypatch):
    monkeypatch.setattr(ready, "order_of", lambda walks, rank: [*range(rank)][::-1])
    x = np.ones((3, 4))
    assert lies(ready.elements_of(body, [x, x], ())([x, x])) != lies(x + x)


def test_several_outputs_and_repeated_operands():
    x = np.arange(6.0).reshape(2, 3)
    y = np.broadcast_to(np.array(2.0), (2, 3))
    plus, minus = ready.elements_of(several, [x, y], ())([x, y])
    np.testing.assert_array_equal(plus, x + 2)
    np.testing.assert_array_equal(minus, x - 2)
    (same,) = {id(a) for a in (x, x)}
    double, zero = ready.elements_of(several, [x, x], ())([x, x])
    assert same and (double == 2 * x).all() and not zero.any()


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.permutations(range(4)),
    st.integers(0, 3),
    st.booleans(),
)
def test_rows_along_any_axis(shape, order, axis, steps):
    axis %= len(shape)
    x = laid(np.random.default_rng(1).standard_normal(shape), order, steps)
    means = x.mean(axis=axis) if x.shape[axis] else np.zeros(np.delete(shape, axis))
    out = ready.rows_of(centered, axis, [x, means], ())([x, means])
    np.testing.assert_allclose(out, x - np.expand_dims(means, axis), atol=1e-12)


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.permutations(range(4)),
    st.data(),
    st.booleans(),
    st.booleans(),
)
def test_reductions_over_any_axes(shape, order, data, keepdims, steps):
    x = laid(np.random.default_rng(2).standard_normal(shape), order, steps)
    axes = data.draw(
        st.one_of(
            st.none(),
            st.lists(st.sampled_from(range(-len(shape), len(shape))), max_size=4)
            if shape
            else st.just([]),
        )
    )
    if axes is not None:
        axes = tuple({a % len(shape) for a in axes})
    wanted = x.sum(axis=axes, keepdims=keepdims)
    for instead in (None, np.add.reduce):
        if instead is None and axes == ():
            continue  # a body has rows to work on
        out = ready.reduced_of(total, axes, keepdims, x, instead, ())((x,))
        np.testing.assert_allclose(out, wanted, atol=1e-10)
        assert np.shape(out) == wanted.shape


@pytest.mark.parametrize("shape", [(2000, 600), (600, 2000), (1200, 1000, 1), (9, 400, 400)])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_large_reductions(shape, axis):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    out = ready.reduced_of(total, axis, False, x, np.add.reduce, ())((x,))
    np.testing.assert_allclose(out, x.astype(np.float64).sum(axis=axis), rtol=1e-4, atol=0.05)


def test_calls_are_made_once_for_arrays_that_lie_alike(monkeypatch):
    generated_calls().clear()
    made = []
    own = ready.elements_of
    monkeypatch.setattr(ready, "elements_of", lambda *given: made.append(given) or own(*given))
    x, y = np.ones((30, 50)), np.ones((30, 50))
    for a, b in ((x, y), (y, x), (x + 1, y), (x.T, y.T), (x, y[:1]), (x[:1], y)):
        np.testing.assert_array_equal(generated.elementwise(body, a, b), 2 * a + b)
    assert len(made) == 4


def test_few_calls_are_kept(monkeypatch):
    generated_calls().clear()
    monkeypatch.setattr(generated, "MAX_CALLS", 3)
    for n in range(1, 10):
        generated.elementwise(body, np.ones(n), np.ones(n))
        assert len(generated_calls()) <= 3


def test_watcher_sees_every_call():
    x = np.ones((40, 50))
    call = ready.elements_of(body, [x, x], ())
    call([x, x])
    listed = []
    kernel.watch(listed)
    try:
        call([x, x])
    finally:
        kernel.watch(None)
    assert len(listed) == 1


def test_arrays_that_need_a_copy_to_enter():
    """Rows that do not lie one after the other are copied in each call, and never kept."""
    x = np.random.default_rng(4).standard_normal((4, 6, 8))[:, ::2, ::2]
    call = ready.reduced_of(total, (0, 2), False, x, None, ())
    for factor in (1.0, 2.0):
        scaled = np.zeros((4, 6, 8))[:, ::2, ::2]
        scaled[...] = x * factor
        np.testing.assert_allclose(call((scaled,)), scaled.sum(axis=(0, 2)))


def test_no_size_has_two_ways():
    """Programs for few elements are asked for first: were some of their sizes also those of
    machine code, bits would depend on what was computed before."""
    assert MIN_TILED_ELEMENTS <= generated.MIN_COMPILED_ELEMENTS
