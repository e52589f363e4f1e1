"""Products with few columns or rows: against float64, for all layouts, and with any threads."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import generated, kernel
from eagerflow.plan.segments import Segment, SegmentStep
from eagerflow.primitives import matrix_product
from eagerflow.primitives.thin_product import MAX_COLUMNS, thin
from eagerflow.runtime import threads

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="there is no machine code here")

LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "part": lambda x: np.pad(x, ((1, 2), (0, 3)))[1:-2, :-3],
    "part of columns": lambda x: np.asfortranarray(np.pad(x, ((0, 5), (2, 0))))[:-5, 2:],
}
layouts = st.sampled_from(sorted(LAYOUTS))
few = st.integers(1, MAX_COLUMNS)
many = st.one_of(st.integers(MAX_COLUMNS + 1, 40), st.integers(100, 700))


def drawn(seed, shape, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@given(
    st.sampled_from(["float32", "float64"]),
    *(many, st.integers(16, 300), few, st.booleans()),
    *(layouts, layouts, st.sampled_from(["rows", "part"]), st.integers(0, 99)),
)
@settings(max_examples=150)
def test_products(dtype, rows, terms, columns, turned, of_a, of_b, of_out, seed):
    if turned:
        rows, columns = columns, rows
    a = LAYOUTS[of_a](drawn(seed, (rows, terms), dtype))
    b = LAYOUTS[of_b](drawn(seed + 1, (terms, columns), dtype))
    out = LAYOUTS[of_out](np.full((rows, columns), np.nan, dtype))
    around = out.base
    before = None if around is None else np.isnan(around).sum()
    matrix_product.multiply(a, b, out)
    bound = np.abs(a).astype("float64") @ np.abs(b).astype("float64")
    error = np.abs(out - a.astype("float64") @ b.astype("float64"))
    assert (error <= terms * np.finfo(dtype).eps * bound).all()
    if of_out == "part":  # nothing else was written
        assert before - out.size == np.isnan(around).sum()


@pytest.mark.parametrize("shape", [(3000, 200, 1), (300, 2000, 3), (2, 900, 700)])
@pytest.mark.parametrize("order", "CF")
def test_bits_do_not_depend_on_threads(shape, order):
    rows, terms, columns = shape
    a = np.asarray(drawn(0, (rows, terms), "float32"), order=order)
    b = drawn(1, (columns, terms), "float32").T
    found = []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            out = np.empty((rows, columns), "float32")
            matrix_product.multiply(a, b, out)
            found.append(out.tobytes())
    finally:
        threads.set_thread_count(None)
    assert len(set(found)) == 1


@pytest.mark.parametrize("order", "CF")
def test_nonfinite_values_stay_in_their_row(order):
    a = np.asarray(drawn(0, (37, 45), "float32"), order=order)
    a[5, 7], a[20, 44] = np.nan, np.inf
    b = np.abs(drawn(1, (45, 2), "float32"))
    out = np.empty((37, 2), "float32")
    matrix_product.multiply(a, b, out)
    assert np.isnan(out[5]).all() and np.isposinf(out[20]).all()
    assert np.isfinite(np.delete(out, (5, 20), 0)).all()


def test_which_products_are_thin():
    def found(a, b, dtype="float32"):
        out = np.empty((*a[:-1], b[-1]), dtype)
        return thin(np.empty(a, dtype), np.empty(b, dtype), out)

    assert found((50, 30), (30, 1)) and found((8, 50, 30), (30, 4))
    assert not found((50, 30), (30, 5))  # a block of columns is quicker
    assert not found((50, 8), (8, 1))
    assert not found((1, 30), (30, 50))  # columns side by side
    assert not found((50, 30), (30, 1), "int32")


@pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")
def test_a_network_with_one_output():
    w = [drawn(i, s, "float32") / 8 for i, s in enumerate([(40, 64), (64, 1)])]
    x, y = (ef.tensor(drawn(9, (300, n), "float32")) for n in (40, 1))

    def gradients(x, y, *weights):
        with ef.GradientTape() as tape:
            tape.watch(weights)
            loss = ef.mean((ef.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
        return loss, *tape.gradient(loss, list(weights))

    given_ = [ef.tensor(v) for v in w]
    captured = ef.function(gradients)
    for _ in range(2):
        for one, other in zip(captured(x, y, *given_), gradients(x, y, *given_), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


# Vectors in plans --------------------------------------------------------------------------------

VECTORS = [((40, 30), (30,)), ((30,), (30, 40)), ((30,), (30,)), ((2, 5, 40), (40,))]
VECTORS += [((40,), (2, 40, 3)), ((9, 4), (4,)), ((4,), (4, 9)), ((3,), (3,)), ((1, 1), (1,))]
has_segments = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")


def otherwise(x):
    """The same numbers with gaps between them, or another order of the last axes."""
    return np.repeat(x, 2)[::2] if x.ndim == 1 else np.ascontiguousarray(x.mT).mT


def segment_of(a, b, out):
    """A segment that multiplies, which may do so in machine code alone."""
    native = matrix_product.fixed(a, b, out)
    assert native is not None
    call = partial(pytest.fail, "multiplied in Python")
    return Segment([SegmentStep(None, 2, call, lambda inputs, outputs: native)])


@pytest.mark.sampled(2)
@has_segments
@pytest.mark.parametrize("shapes", VECTORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_are_factors_of_segments(shapes, dtype):
    plain = [drawn(i, shape, dtype) for i, shape in enumerate(shapes)]
    wanted = plain[0].astype("float64") @ plain[1].astype("float64")
    bound = 100 * np.finfo(dtype).eps * np.abs(plain[0]) @ np.abs(plain[1])
    for a, b in (plain, map(otherwise, plain)):
        out = np.empty(wanted.shape, dtype)
        multiply = segment_of(a, b, out)
        for _ in range(2):
            out[...] = np.nan
            multiply(((a, b, out),))
            assert (np.abs(out - wanted) <= bound).all()


@has_segments
def test_a_vector_by_itself():
    x, other = drawn(0, (50,), "float32"), drawn(1, (50,), "float32")
    out = np.empty((), "float32")
    multiply = segment_of(x, x, out)
    for a, b in ((x, x), (x, other), (other, x)):  # which arrays they are is seen in each call
        multiply(((a, b, out),))
        np.testing.assert_allclose(out, a @ b, rtol=1e-5)


@pytest.mark.parametrize("shapes", VECTORS)
def test_exact_plans_multiply_vectors_as_eager_code_does(shapes):
    a, b = (ef.tensor(drawn(i, shape, "float32")) for i, shape in enumerate(shapes))
    captured = ef.function(lambda a, b: ef.sin(a @ b), numerics="exact")
    assert captured(a, b).numpy().tobytes() == ef.sin(a @ b).numpy().tobytes()
