"""Copies that segments make: what concatenates, scatters and copies arrays of any layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerflow.codegen import kernel
from eagerflow.plan.segments import Segment, SegmentStep
from eagerflow.primitives import copies

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")


def run(make, sources, out):
    """Make copies of arrays into ``out`` by machine code, and by nothing else."""

    def fail(inputs, outputs):
        raise AssertionError("Python was asked")

    step = SegmentStep(None, len(sources), fail, lambda i, o: make(*i, *o))
    Segment([step])(((*sources, out),))
    return out


@st.composite
def arrays(draw, shape, dtype):
    """An array of a shape, somehow in memory."""
    order = draw(st.permutations(range(len(shape))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(-9, 9, [shape[i] for i in order]).astype(dtype)
    return x.transpose(np.argsort(order))


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
DTYPES = st.sampled_from(["float32", "float64", "int64", "bool"])


@given(st.data(), SHAPES, DTYPES)
def test_concatenated(data, shape, dtype):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    parts = []
    for size in sizes:
        own = list(shape)
        own[axis] = size
        parts.append(data.draw(arrays(tuple(own), dtype)))
    wanted = np.concatenate(parts, axis)
    found = run(lambda *given: copies.joined(*given, axis=axis), parts, np.ones_like(wanted))
    assert np.array_equal(found, wanted)


@given(st.data(), SHAPES, DTYPES)
def test_copied(data, shape, dtype):
    x = data.draw(arrays(tuple(shape), dtype))
    out = data.draw(arrays(tuple(shape), dtype))
    assert np.array_equal(run(copies.copied, [x], out), x)


@given(st.data(), SHAPES, DTYPES)
def test_scattered(data, shape, dtype):
    index = tuple(
        data.draw(st.one_of(st.integers(0, n - 1), st.slices(n), st.just(slice(None))))
        for n in shape
    )
    index = (*index[: data.draw(st.integers(0, len(shape)))], ...)
    wanted = np.zeros(shape, dtype)
    part = data.draw(arrays(wanted[index].shape, dtype))
    wanted[index] = part
    out = np.full(shape, 7, dtype)
    assert np.array_equal(run(lambda *g: copies.scattered(*g, index), [part], out), wanted)


def test_arrays_of_other_types_are_left_to_numpy():
    assert copies.copied(np.ones(3, "float64"), np.ones(3, "float32")) is None
