"""Products by generated kernels: any layout, size and type, the same bits with any threads."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerflow.codegen import generated
from eagerflow.primitives import matrix_product
from eagerflow.primitives.llvm import matrix_product as writers
from eagerflow.primitives.llvm import product_terms
from eagerflow.runtime import machine_code, threads

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="there is no llvmlite")

SIZES = (1, 2, 3, 5, 6, 7, 12, 13, 16, 31, 33, 64, 100, 257, 300)
LAYOUTS = ("straight", "transposed", "every second", "inside")
TYPES = (  # of the factors and of the product
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "bfloat16"),
    ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"),
    ("int8", "int8", "int8"),
    ("uint8", "uint8", "uint8"),
)


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def made(rng, shape, name):
    """Random numbers of a type; of integers all that there are."""
    if "int" in name:
        limits = np.iinfo(name)
        return rng.integers(limits.min, limits.max + 1, shape).astype(name)
    return rng.standard_normal(shape).astype(dtype_of(name))


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
    """Fail unless ``out`` holds the product, but for rounding; integers have no rounding."""
    if a.dtype.kind in "iu":
        exact = a.astype("int64") @ b.astype("int64")
        np.testing.assert_array_equal(out, exact.astype(out.dtype))
        return
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    exact = wide_a @ wide_b
    sums = a.dtype if a.dtype.char in "fd" else np.float32
    bound = (abs(wide_a) @ abs(wide_b)) * (a.shape[-1] + 2) * np.finfo(sums).eps
    if out.dtype.char not in "fd":  # rounded once: half a unit in the last place
        kind = ml_dtypes.finfo(out.dtype)
        bound += abs(exact) * float(kind.eps) / 2 * 1.01 + float(kind.smallest_subnormal)
    np.testing.assert_array_less(abs(out.astype("float64") - exact), bound + 1e-300)


@st.composite
def factors(draw):
    """Two stacks of matrices, and memory for the product."""
    seed, types = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(TYPES))
    rng = np.random.default_rng(seed)
    m, n = (draw(st.sampled_from(SIZES)) for _ in range(2))
    k = draw(st.sampled_from((*SIZES, 1030)))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))

    def matrices(shape, name):
        lead = tuple(draw(st.sampled_from([1, size])) for size in batch)
        lead = draw(st.sampled_from([lead, ()]))
        x = made(rng, (*lead, *shape), name)
        return laid_out(x, draw(st.sampled_from(LAYOUTS)))

    a, b = matrices((m, k), types[0]), matrices((k, n), types[1])
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
    wider = draw(st.sampled_from([0, 3]))
    kind = dtype_of(types[2])
    out = np.full((*shape[:-1], n + wider), 77 if kind.kind in "iu" else np.nan, kind)[..., :n]
    return a, b, out


@given(factors())
def test_products(given_):
    a, b, out = given_
    check(a, b, matrix_product.multiply(a, b, out))


def test_stacks_broadcast_along_any_of_three_axes():
    rng, lead = np.random.default_rng(0), (2, 3, 2)
    ways = list(itertools.product(*[(1, size) for size in lead]))
    for of_a, of_b in itertools.product(ways, ways):
        a, b = (rng.standard_normal((*way, 7, 7), np.float32) for way in (of_a, of_b))
        out = np.empty((*np.broadcast_shapes(of_a, of_b), 7, 7), np.float32)
        check(a, b, matrix_product.multiply(a, b, out))


SHAPES = [(300, 700, 90), (1, 2000, 300), (64, 300, 520), (2048, 9, 2048), (1030, 260, 70)]


def in_all_counts(a, b, name):
    """The product with one, two and three threads."""
    found = []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            out = np.zeros((a.shape[0], b.shape[1]), dtype_of(name))
            found.append(matrix_product.multiply(a, b, out))
    finally:
        threads.set_thread_count(None)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", [("straight", "straight"), ("transposed", "transposed")])
def test_bits_do_not_depend_on_threads(shape, layouts):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = laid_out(made(rng, (m, k), "float32"), layouts[0])
    b = laid_out(made(rng, (k, n), "float32"), layouts[1])
    found = in_all_counts(a, b, "float32")
    check(a, b, found[-1])
    assert len({out.tobytes() for out in found}) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_no_type_depends_on_threads(types):
    rng = np.random.default_rng(0)
    a, b = made(rng, (520, 1100), types[0]), made(rng, (1100, 70), types[1])
    found = in_all_counts(a, b, types[2])
    check(a, b, found[-1])
    assert len({out.tobytes() for out in found}) == 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_nonfinite_values_stay_in_their_row_and_column(wrong, name):
    a, b = np.ones((70, 80), dtype_of(name)), np.ones((80, 90), dtype_of(name))
    a[69, 79], b[0, 89] = wrong, 0.0
    out = matrix_product.multiply(a, b, np.empty((70, 90), dtype_of(name)))
    assert np.array_equal(out[:69, :89], np.full((69, 89), 80.0))
    assert not np.isfinite(out[69].astype("float32")).any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_nothing_is_written_beside_the_product(types):
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 30, 1), (7, 3, 50), (65, 1100, 17), (300, 30, 33)):
        whole = np.full((m + 2, n + 40), 7, dtype_of(types[2]))
        a, b = made(rng, (m, k), types[0]), made(rng, (k, n), types[1])
        matrix_product.multiply(a, b, whole[1:-1, 20:-20])
        check(a, b, whole[1:-1, 20:-20])
        whole[1:-1, 20:-20] = 7
        assert (whole == 7).all()


def test_nothing_to_add_up_gives_zeros():
    out = np.full((3, 4), np.nan, "float32")
    assert not matrix_product.multiply(np.ones((3, 0), "f"), np.ones((0, 4), "f"), out).any()
    assert matrix_product.multiply(np.ones((0, 3), "f"), np.ones((3, 4), "f"), out[:0]).size == 0


def test_sums_of_small_floats_are_rounded_once():
    # Sums of float16 would stay at 2048, as 2048 + 1 rounds to even.
    ones = np.ones((1, 4096), "float16")
    out = matrix_product.multiply(ones, ones.T.copy(), np.empty((1, 1), "float16"))
    assert out == 4096.0
    # 256 + 1 and 256 + 3 lie between two numbers of bfloat16: ties go to even.
    a = np.array([[256, 1], [256, 3]], dtype_of("bfloat16"))
    b = np.ones((2, 1), dtype_of("bfloat16"))
    out = matrix_product.multiply(a, b, np.empty((2, 1), dtype_of("bfloat16")))
    assert out.astype("float32").ravel().tolist() == [256.0, 260.0]


def test_integers_wrap_and_never_saturate():
    a, b = np.full((9, 140_000), -128, "int8"), np.full((140_000, 3), -128, "int8")
    out = matrix_product.multiply(a, b, np.empty((9, 3), "int32"))
    assert (out == np.int64(140_000 * 128 * 128).astype("int32")).all()
    assert np.iinfo("int32").max < 140_000 * 128 * 128
    pairs = np.full((9, 4), -128, "int8")  # two products are 32,768, beyond 16 bits
    out = matrix_product.multiply(pairs, pairs[:3].T.copy(), np.empty((9, 3), "int32"))
    assert (out == 65_536).all()


def test_types_that_no_kernel_takes():
    for name in ("int16", "complex64", "bool"):
        x = np.ones((2, 2), name)
        assert not matrix_product.takes(x, x)
    x = np.ones((2, 2), "float32")
    assert matrix_product.fixed(x, x, np.empty((2, 2), "float64")) is None


# Kernels that are wrong ---------------------------------------------------------------------------


def fails(types=TYPES[0], shape=(70, 1100, 90), layout="straight"):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = laid_out(made(rng, (m, k), types[0]), layout), made(rng, (k, n), types[1])
    out = matrix_product.multiply(a, b, np.zeros((m, n), dtype_of(types[2])))
    with pytest.raises(AssertionError):
        check(a, b, out)


@pytest.mark.parametrize("types", [TYPES[0], TYPES[2], TYPES[6]], ids="-".join)
def test_kernel_that_drops_partial_sums_is_detected(monkeypatch, compiled_anew, types):
    monkeypatch.setattr(writers.ProductWriter, "_with_parts_before", lambda self, sums, *_: sums)
    fails(types)


def test_a_kernel_that_sums_in_small_floats_is_found(monkeypatch, compiled_anew):
    def rounded(self, a, b, total):
        found = self.s.multiply_add(a, b, total)
        return self.s.bitcast(
            self.s.bitwise_and(self.s.bitcast(found, "uint32"), -65536), "float32"
        )

    monkeypatch.setattr(product_terms.UnitReader, "multiply_add", rounded)
    fails(("bfloat16",) * 3)


def test_bytes_whose_shift_is_forgotten_are_found(monkeypatch, compiled_anew):
    if not machine_code.host().has_byte_products:
        pytest.skip("bytes are not shifted here")
    writer = writers.ProductWriter
    monkeypatch.setattr(writer, "_no_sums", lambda self, panel: self.v.no_sums(self.block))
    fails(TYPES[6])


def test_a_last_unit_that_is_read_beyond_its_end_is_found(monkeypatch, compiled_anew):
    line = product_terms.UnitReader.line

    def whole(self, start, dtype, apart, mask="", left=""):
        return line(self, start, dtype, apart, mask)

    monkeypatch.setattr(product_terms.UnitReader, "line", whole)
    fails(TYPES[6], (70, 301, 90), "transposed")


# Other processors ---------------------------------------------------------------------------------

_OTHERS = """
import numpy as np
from eagerflow.runtime import machine_code
from tests.primitives.test_matrix_product import TYPES, check, dtype_of, laid_out, made
from eagerflow.primitives import matrix_product
assert machine_code.host().vector_bytes == BYTES, machine_code.host()
rng = np.random.default_rng(0)
for types in TYPES:
    for layout in ("straight", "transposed"):
        for m, k, n in ((5, 30, 7), (37, 1030, 70)):
            a = laid_out(made(rng, (m, k), types[0]), layout)
            b = laid_out(made(rng, (k, n), types[1]), layout)
            check(a, b, matrix_product.multiply(a, b, np.empty((m, n), dtype_of(types[2]))))
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("features", "size"), [("-avx512*", 32), ("-avx512* -avxvnni*", 32), ("-avx* -fma -f16c", 16)]
)
def test_other_processors(features, size):
    if (
        not machine_code.host().triple.startswith("x86_64")
        or machine_code.host().vector_bytes < size
    ):
        pytest.skip("this processor has no such features to leave out")
    own = os.environ | {"EAGERFLOW_LLVM_FEATURES": features}
    code = _OTHERS.replace("BYTES", str(size))
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env=own, timeout=300)
