"""Products by generated kernels: any layout, any size, the same bits with any number of threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerflow.codegen import generated
from eagerflow.codegen.llvm import launch
from eagerflow.primitives import matrix_product
from eagerflow.primitives.llvm import matrix_product as writers
from eagerflow.runtime import machine_code, threads

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="there is no llvmlite")

SIZES = (1, 2, 3, 5, 6, 7, 12, 13, 16, 31, 33, 64, 100, 257, 300)
LAYOUTS = ("straight", "transposed", "every second", "inside")


def laid_out(x, layout):
    """The same values, otherwise in memory."""
    if layout == "transposed":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "every second":
        return np.repeat(x, 2, -1)[..., ::2]
    if layout == "inside":
        return np.concatenate([x, x], -1)[..., : x.shape[-1]]
    return x


def check(a, b, out):
    """Fail unless ``out`` holds the product, but for rounding."""
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    bound = (abs(wide_a) @ abs(wide_b)) * (a.shape[-1] + 2) * np.finfo(a.dtype).eps
    np.testing.assert_array_less(abs(out - wide_a @ wide_b), bound + 1e-300)


@st.composite
def factors(draw):
    """Two stacks of matrices, and memory for the product."""
    seed, dtype = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from("fd"))
    rng = np.random.default_rng(seed)
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))

    def matrices(shape):
        lead = tuple(draw(st.sampled_from([1, size])) for size in batch)
        lead = draw(st.sampled_from([lead, ()]))
        x = rng.standard_normal((*lead, *shape)).astype(dtype)
        return laid_out(x, draw(st.sampled_from(LAYOUTS)))

    a, b = matrices((m, k)), matrices((k, n))
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
    wider = draw(st.sampled_from([0, 3]))
    out = np.full((*shape[:-1], n + wider), np.nan, dtype)[..., :n]
    return a, b, out


@given(factors())
def test_products(given_):
    a, b, out = given_
    check(a, b, matrix_product.multiply(a, b, out))


@pytest.mark.parametrize("shape", [(300, 700, 90), (1, 2000, 300), (64, 300, 520), (2048, 9, 2048)])
@pytest.mark.parametrize("layouts", [("straight", "straight"), ("transposed", "transposed")])
def test_bits_do_not_depend_on_threads(shape, layouts):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = laid_out(rng.standard_normal((m, k)).astype("float32"), layouts[0])
    b = laid_out(rng.standard_normal((k, n)).astype("float32"), layouts[1])
    found = []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            out = np.full((m, n), np.nan, "float32")
            found.append(matrix_product.multiply(a, b, out).tobytes())
    finally:
        threads.set_thread_count(None)
    check(a, b, out)
    assert len({*found}) == 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_column(wrong):
    a, b = np.ones((70, 80), "float32"), np.ones((80, 90), "float32")
    a[69, 79], b[0, 89] = wrong, 0.0
    out = matrix_product.multiply(a, b, np.empty((70, 90), "float32"))
    assert np.array_equal(out[:69, :89], np.full((69, 89), 80.0))
    assert not np.isfinite(out[69]).any()


def test_nothing_is_written_beside_the_product():
    rng = np.random.default_rng(0)
    for m, n in ((1, 1), (7, 50), (65, 17), (300, 33)):
        whole = np.full((m + 2, n + 40), 7.0, "float32")
        a, b = (rng.standard_normal(s).astype("float32") for s in ((m, 30), (30, n)))
        matrix_product.multiply(a, b, whole[1:-1, 20:-20])
        check(a, b, whole[1:-1, 20:-20])
        whole[1:-1, 20:-20] = 7.0
        assert (whole == 7.0).all()


def test_nothing_to_add_up_gives_zeros():
    out = np.full((3, 4), np.nan, "float32")
    assert not matrix_product.multiply(np.ones((3, 0), "f"), np.ones((0, 4), "f"), out).any()
    assert matrix_product.multiply(np.ones((0, 3), "f"), np.ones((3, 4), "f"), out[:0]).size == 0


def test_a_kernel_that_forgets_what_it_summed_before_is_found(monkeypatch):
    def compiled(own, text, target):  # and nothing from the disk
        return machine_code.compile_object(text(), target)

    monkeypatch.setattr(writers.ProductWriter, "_with_parts_before", lambda self, sums, *_: sums)
    monkeypatch.setattr(matrix_product, "kernel", matrix_product.kernel.__wrapped__)
    monkeypatch.setattr(matrix_product, "prepared", matrix_product.prepared.__wrapped__)
    monkeypatch.setattr(launch, "compiled", compiled)
    a, b = np.ones((70, 500), "float32"), np.ones((500, 90), "float32")
    with pytest.raises(AssertionError):
        check(a, b, matrix_product.multiply(a, b, np.empty((70, 90), "float32")))
