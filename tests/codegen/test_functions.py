"""Elementary functions of generated code: errors against exact results, and special values.

float32 is judged by NumPy's or SciPy's float64 functions, float64 by long doubles or mpmath.
The soak run takes every float32 number there is.
"""

import math
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

import numpy as np
import pytest

from eagerflow.codegen.functions import exponential
from eagerflow.codegen.functions.table import BOUNDS, FUNCTIONS
from eagerflow.codegen.instructions import INSTRUCTIONS, NUMPY
from eagerflow.runtime.machine_code import available, host
from tests.codegen.function_errors import (
    LONG,
    compiled,
    exact,
    float32_range,
    float64_reference,
    hard_points,
    spread_points,
    ulps,
    wide_reference,
    worst,
)

pytestmark = pytest.mark.skipif(not available(), reason="machine code needs llvmlite")

UNARY = sorted(name for name in BOUNDS if INSTRUCTIONS[name].operands == 1)
BINARY = sorted(name for name in BOUNDS if INSTRUCTIONS[name].operands == 2)
CHUNK = 1 << 24
POINTS = 2_500  # four times as many are drawn
MANY = 2_500_000


@pytest.fixture(scope="module")
def measured():
    """Largest errors by function and type; printed in the end, which ``pytest -s`` shows."""
    table = {}
    yield table
    for (name, dtype), (error, where) in sorted(table.items()):
        bound = BOUNDS[name][dtype == "float64"]
        print(f"{name:12} {dtype}  {error:6.3f} of {bound} ulp  at {where!r}")


def check(measured, name, dtype, error, where):
    if error >= measured.get((name, dtype), (-1, None))[0]:
        measured[name, dtype] = error, where
    bound = BOUNDS[name][dtype == "float64"]
    assert error <= bound, f"{name} of {where!r}: {error} ulp, the bound is {bound}"


# One argument -------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", UNARY)
def test_float32_of_every_4099th_number(name, measured):
    check(measured, name, "float32", *float32_range(name, 0, 1 << 32, 4099))


@pytest.mark.parametrize("name", UNARY)
def test_float32_of_hard_points(name, measured):
    call, reference = compiled(FUNCTIONS[name], "float32"), wide_reference(name)
    x = hard_points(np.float32)
    found = worst(name, call, x, lambda x: reference(x.astype(np.float64)))
    check(measured, name, "float32", *found)


@pytest.mark.parametrize("name", UNARY)
def test_float64(name, measured):
    call = compiled(FUNCTIONS[name], "float64", lanes=8)
    x = spread_points(np.random.default_rng(7), POINTS // 10 if slow(name) else POINTS)
    x = np.concatenate([x, hard_points(np.float64)])
    check(measured, name, "float64", *worst(name, call, x, float64_reference(name)))


def slow(name):
    """Whether only mpmath can judge it."""
    return name in ("erf", "erfc", "lgamma")


@pytest.mark.soak
@pytest.mark.parametrize("name", UNARY)
def test_float32_of_all_numbers(name, measured):
    starts = range(0, 1 << 32, CHUNK)
    workers = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        ends = [start + CHUNK for start in starts]
        found = list(pool.map(float32_range, [name] * len(ends), starts, ends, chunksize=16))
    check(measured, name, "float32", *max(found, key=lambda pair: pair[0]))


@pytest.mark.soak
@pytest.mark.parametrize("name", UNARY)
def test_float64_of_many_numbers(name, measured):
    call = compiled(FUNCTIONS[name], "float64", lanes=8)
    count = MANY // (1000 if slow(name) else 1)
    for seed in range(10):
        x = spread_points(np.random.default_rng([11, seed]), count // 10)
        check(measured, name, "float64", *worst(name, call, x, float64_reference(name)))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalar_code_matches_vector_code(name, dtype):
    rng = np.random.default_rng(3)
    x = np.concatenate([spread_points(rng, 200), hard_points(np.float64)])
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    many, one = compiled(FUNCTIONS[name], dtype), compiled(FUNCTIONS[name], dtype, lanes=0)
    np.testing.assert_array_equal(many(x), one(x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_instructions_give_the_same_bits(name, dtype):
    # Of AVX-512 only one is used, which multiplies with a power of two.
    if not host().has_avx512:
        pytest.skip("this processor has no AVX-512")
    lanes = 16 if dtype == "float32" else 8
    x = np.concatenate([spread_points(np.random.default_rng(4), 20_000), hard_points(np.float64)])
    with np.errstate(all="ignore"):
        x = np.concatenate([x, np.linspace(-760, 720, 30_000)]).astype(dtype)
    special = compiled(FUNCTIONS[name], dtype, lanes=lanes, avx512=True)
    plain = compiled(FUNCTIONS[name], dtype, lanes=lanes, avx512=False)
    np.testing.assert_array_equal(special(x), plain(x))


@pytest.mark.parametrize("name", UNARY)
def test_references_agree_with_mpmath(name):
    # The judge of float32, judged where its results are neither 0, infinite nor undefined.
    x = np.random.default_rng(5).uniform(-6, 6, 60)
    with np.errstate(all="ignore"):
        given = np.asarray(wide_reference(name)(x))
    defined = np.isfinite(given)
    assert defined.any()
    wanted = np.array([exact(name, float(value)) for value in x[defined]], LONG)
    error = np.abs(given[defined] - wanted) / np.abs(wanted)
    assert error.max() < 2.0**-40


# The checks themselves ----------------------------------------------------------------------------


def test_a_wrong_last_digit_of_a_coefficient_is_found(monkeypatch):
    assert float32_range("exp", 0, 1 << 32, 4099)[0] <= BOUNDS["exp"][0]
    first, second, *rest = exponential.EXP["float32"]
    monkeypatch.setitem(exponential.EXP, "float32", (first, second * (1 + 1e-5), *rest))
    assert float32_range("exp", 0, 1 << 32, 4099)[0] > BOUNDS["exp"][0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, x: s.select(s.equal(x, 0), 0.0, s.tanh(x)),  # the sign of zero
        lambda s, x: s.select(s.isnan(x), 1.0, s.tanh(x)),  # NaN
        lambda s, x: s.select(s.less(s.abs(x), 2.0**-126), s.multiply(x, 0.0), s.tanh(x)),
        lambda s, x: s.multiply(s.tanh(x), 1 + 2.0**-22),
    ],
)
def test_errors_at_few_points_are_detected(wrong):
    x = hard_points(np.float32)
    found, _ = worst("tanh", compiled(wrong, "float32"), x, lambda x: np.tanh(x.astype(np.float64)))
    assert found > BOUNDS["tanh"][0]


def test_ulps_of_known_errors():
    one = np.float32(1)
    got = np.array([np.nextafter(one, np.float32(2)), 1e-45, np.inf, 0.0], np.float32)
    wanted = np.array([1.0, 0.0, 2.0**128, -0.0])
    np.testing.assert_array_equal(ulps(got, wanted), [1, 1, 0, np.inf])
    wide = np.array([1.0, 0.0, 2.0**-1074], np.float64)
    near = np.array([1 - 2.0**-53, 0, 2.0**-1073], LONG)
    np.testing.assert_array_equal(ulps(wide, near), [1, 0, 1])


# Two arguments ------------------------------------------------------------------------------------


def pairs(rng, count):
    """Pairs of float64 numbers, of all exponents and of sizes that leave powers finite."""
    x, y = spread_points(rng, count), rng.permutation(spread_points(rng, count))
    base = np.exp(rng.uniform(-20, 20, count)) * rng.choice([-1, 1], count, p=[0.2, 0.8])
    with np.errstate(all="ignore"):
        edge = rng.uniform(-750, 750, count) / np.log(np.abs(base))
    whole = rng.integers(-40, 40, count).astype(float)
    near = 1 + rng.uniform(-1, 1, count) * 2.0 ** -rng.integers(1, 30, count)
    long = rng.uniform(-1, 1, count) * 2.0 ** rng.integers(0, 40, count)
    return np.concatenate([x, base, base, near]), np.concatenate([y, edge, whole, long])


@pytest.mark.parametrize("name", BINARY)
def test_float32_of_random_pairs(name, measured):
    call = compiled(FUNCTIONS[name], "float32", 2)
    with np.errstate(all="ignore"):
        x, y = (part.astype(np.float32) for part in pairs(np.random.default_rng(13), 40_000))
        wanted = wide_reference(name)(x.astype(np.float64), y.astype(np.float64))
    error = ulps(call(x, y), wanted)
    at = int(np.argmax(error))
    check(measured, name, "float32", float(error[at]), (x[at], y[at]))


@pytest.mark.parametrize("name", BINARY)
def test_float64_of_random_pairs(name, measured):
    call = compiled(FUNCTIONS[name], "float64", 2, lanes=8)
    x, y = pairs(np.random.default_rng(17), POINTS)
    with np.errstate(all="ignore"):
        error = ulps(call(x, y), float64_reference(name)(x, y))
    at = int(np.argmax(error))
    check(measured, name, "float64", float(error[at]), (x[at], y[at]))


@pytest.mark.soak
@pytest.mark.parametrize("name", BINARY)
def test_many_random_pairs(name, measured):
    narrow, wide = compiled(FUNCTIONS[name], "float32", 2), compiled(FUNCTIONS[name], "float64", 2)
    for seed in range(20):
        x, y = pairs(np.random.default_rng([19, seed]), 500_000)
        with np.errstate(all="ignore"):
            error = ulps(wide(x, y), float64_reference(name)(x, y))
            at = int(np.argmax(error))
            check(measured, name, "float64", float(error[at]), (x[at], y[at]))
            x, y = x.astype(np.float32), y.astype(np.float32)
            error = ulps(narrow(x, y), wide_reference(name)(x.astype(float), y.astype(float)))
            at = int(np.argmax(error))
            check(measured, name, "float32", float(error[at]), (x[at], y[at]))


CORNERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 1e30, 2.0**24 + 2, 2.0**25, 1e-30, 1e-45]
CORNERS.append(math.inf)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_pairs_are_those_of_c99(name, dtype):
    numbers = [*CORNERS, *(-x for x in CORNERS), math.nan]
    x, y = np.array(list(product(numbers, repeat=2)), dtype).T
    got = compiled(FUNCTIONS[name], dtype, 2)(x, y)
    function = {"power": _pow}.get(name) or getattr(math, name)
    wanted = np.array([function(float(a), float(b)) for a, b in zip(x, y, strict=True)])
    error = ulps(got, wanted if dtype == "float32" else wanted.astype(LONG))
    at = int(np.argmax(error))
    # Python's own function may be a unit away in float64.
    allowed = BOUNDS[name][dtype == "float64"] + (dtype == "float64")
    assert error[at] <= allowed, (x[at], y[at], got[at], wanted[at])


def _pow(x, y):
    """C99's pow: Python raises errors where C gives infinity or NaN."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x == 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


# Exact functions ----------------------------------------------------------------------------------

NAMES = "floor_divide remainder nextafter fmod isfinite isinf isnan sign signbit square".split()
EXACT = {name: getattr(np, name) for name in NAMES}
TESTS = ("isfinite", "isinf", "isnan", "signbit")


@pytest.mark.parametrize("name", sorted(EXACT))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_numpys(name, dtype):
    operands = INSTRUCTIONS[name].operands
    rng = np.random.default_rng(23)
    corners = [*CORNERS, *(-x for x in CORNERS), math.nan, 2.0**-149, 0.1, -0.7]
    sets = [np.array(list(product(corners, repeat=operands))).T]
    if operands == 2:
        sets.append(np.stack(pairs(rng, 2_000)))
        divisor = rng.uniform(-3, 3, 2_000)
        sets.append(np.stack([divisor * rng.integers(-50, 50, 2_000), divisor]))
    with np.errstate(all="ignore"):
        given = np.concatenate(sets, axis=1).astype(dtype)
        wanted = EXACT[name](*given)
    result = "bool" if name in TESTS else dtype
    call = compiled(lambda s, *x: getattr(s, name)(*x), dtype, operands, result=result)
    got = call(*given)
    np.testing.assert_array_equal(got, wanted)
    if name not in TESTS:
        defined = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[defined]), np.signbit(wanted[defined]))


INTEGERS = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "quotient", "sign"])
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("lanes", [0, 16])
def test_integers_are_numpys(name, dtype, lanes):
    info = np.iinfo(dtype)
    corners = {info.min, info.min + 1, 0, 1, 2, 3, 7, info.max // 2, info.max - 1, info.max}
    corners |= {-1, -2, -7} if info.min else set()
    a, b = np.array(list(product(sorted(corners), repeat=2)), dtype).T
    rng = np.random.default_rng(29)
    a = np.concatenate([a, rng.integers(info.min, info.max, 300, dtype)])
    divisors = rng.integers(info.min, info.max, 300, dtype) >> rng.integers(0, 7, dtype=dtype)
    b = np.concatenate([b, divisors])
    operands = INSTRUCTIONS[name].operands
    call = compiled(lambda s, *x: getattr(s, name)(*x), dtype, operands, lanes=lanes)
    given = (a, b)[:operands]
    with np.errstate(all="ignore"):
        wanted = _truncated(a, b) if name == "quotient" else EXACT[name](*given)
    np.testing.assert_array_equal(call(*given), wanted)
    if name == "quotient":
        np.testing.assert_array_equal(NUMPY.quotient(a, b), wanted)


def _truncated(a, b):
    """C's division, which leaves by 0 undefined: 0 here; the range is exceeded by wrapping."""
    found = [abs(int(x)) // abs(int(y)) if y else 0 for x, y in zip(a, b, strict=True)]
    signs = [-1 if (x < 0) != (y < 0) else 1 for x, y in zip(a, b, strict=True)]
    wrapped = [s * q & 2 ** (8 * a.itemsize) - 1 for s, q in zip(signs, found, strict=True)]
    return np.array(wrapped, f"uint{8 * a.itemsize}").view(a.dtype)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_a_number_may_be_an_operand_of_remainder(dtype):
    x = np.arange(-9, 9).astype(dtype)
    found = compiled(lambda s, x: s.remainder(x, 5), dtype)(x)
    np.testing.assert_array_equal(found, x % 5)
    found = compiled(lambda s, x: s.floor_divide(7, x), dtype)(x[x != 0])
    np.testing.assert_array_equal(found, 7 // x[x != 0])
