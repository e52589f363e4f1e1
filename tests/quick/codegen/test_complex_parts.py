"""Complex numbers in regions: their parts, read and written where they stand in the array."""

import numpy as np
import pytest

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from tests.codegen.guards import PATTERNS, Poisoned

DTYPES = {"complex64": ("float32", np.complex128), "complex128": ("float64", np.clongdouble)}
SHAPES = [(1, 1), (3, 17), (5, 64), (33, 100), (0, 4)]
LONG = (2, 70_001)  # threads share rows


def product(real, wrong=False):
    """The region of x * y, along n for each m; y is the same for all m."""
    b = Builder("product", "m n")
    xr, xi = (b.input(name, real, "m n") for name in ("xr", "xi"))
    yr, yi = (b.input(name, real, "n") for name in ("yr", "yi"))
    b.output("zr", b.add(xr * yr, xi * yi) if wrong else b.subtract(xr * yr, xi * yi))
    b.output("zi", xr * yi + xi * yr)
    return b.region()


def parts(array):
    """The parts as views; they have gaps as large as themselves."""
    return array.real, array.imag


def poisoned(rng, dtype, pattern, shape):
    """An array that lies in memory like a pattern, with numbers of many sizes in it."""
    found = Poisoned(shape, dtype, pattern)
    values = [rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9, shape) for _ in range(2)]
    found.array[...] = values[0] + 1j * values[1]
    return found


def check_product(dtype, shape, pattern, way, wrong=False):
    """Compute x * y and compare each part with NumPy's product of wider numbers."""
    real, wide = DTYPES[dtype]
    rng = np.random.default_rng([len(pattern), *shape])
    x = poisoned(rng, dtype, pattern, shape)
    y = poisoned(rng, dtype, pattern, shape[1:])
    z = Poisoned(shape, dtype, "contiguous" if pattern == "broadcast" else pattern)
    region = product(real, wrong)
    kernel.compute(region, (*parts(x.array), *parts(y.array)), parts(z.array), way=way)
    assert x.touched() == y.touched() == z.touched() == 0
    wanted = x.array.astype(wide) * y.array.astype(wide)
    # Two products, each rounded, and their sum: three halves of a unit of the largest of them.
    size = np.abs(x.array).astype(wide) * np.abs(y.array).astype(wide)
    allowed = 2 * np.finfo(real).eps * size.real
    for got, part in zip(parts(z.array), parts(wanted), strict=True):
        assert (np.abs(got - part) <= allowed).all()


@pytest.mark.parametrize("way", kernel.ways())
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_numpys_in_every_stride_pattern(dtype, pattern, way):
    for shape in SHAPES:
        check_product(dtype, shape, pattern, way)


@pytest.mark.parametrize("way", kernel.ways())
def test_products_of_long_rows(way):
    check_product("complex64", LONG, "contiguous", way)


@pytest.mark.parametrize("way", kernel.ways())
def test_a_wrong_sign_is_found(way):
    with pytest.raises(AssertionError):
        check_product("complex64", (3, 17), "contiguous", way, wrong=True)


@pytest.mark.parametrize("way", kernel.ways())
@pytest.mark.parametrize("dtype", DTYPES)
def test_writing_one_part_leaves_the_other(dtype, way):
    real, _ = DTYPES[dtype]
    b = Builder("conjugated", "m n")
    b.output("zi", -b.input("zi", real, "m n"), inplace="zi")
    rng = np.random.default_rng(3)
    z = (rng.normal(size=(40, 65)) + 1j * rng.normal(size=(40, 65))).astype(dtype)
    wanted = z[:, ::2].conj()
    kernel.run(b.region(), (z[:, ::2].imag,), way=way)
    np.testing.assert_array_equal(z[:, ::2], wanted)


@pytest.mark.parametrize("way", kernel.ways())
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_columns_are_reduced_by_part(dtype, way):
    real, _ = DTYPES[dtype]
    b = Builder("norms", "m n")
    xr, xi = (b.input(name, real, "m n") for name in ("xr", "xi"))
    b.output("norm", b.sqrt(b.sum(b.square(xr) + b.square(xi), "n")))
    b.output("columns", b.sum(xi, "m"))
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(130, 70)) + 1j * rng.normal(size=(130, 70))).astype(dtype).T
    norm, columns = kernel.run(b.region(), parts(x), way=way)
    close = {"rtol": 50 * np.finfo(real).eps, "atol": 50 * np.finfo(real).eps}
    np.testing.assert_allclose(norm, np.linalg.norm(x, axis=1), **close)
    np.testing.assert_allclose(columns, x.sum(axis=0).imag, **close)
