"""Dtypes of results, small and large integers, division, NaN in bounds, and rounding once."""

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import WAYS, array, check, compare, floats, refused


def pytorch_198081():
    """Compiled, ``any`` of bytes had another dtype, so that arithmetic with it did not wrap."""
    x = ef.tensor(np.array([[0, 3], [0, 0]], "u1"))
    check(
        lambda x: (ef.any(x), ef.all(x), ef.any(x, axis=0)),
        x,
        expect=(np.array(True), np.array(False), np.array([False, True])),
    )
    check(
        lambda x: ef.astype(ef.any(x, axis=0), "uint8") * 200 + 100,
        x,
        expect=np.array([100, 44], "u1"),
    )


def pytorch_191308():
    """Compiled, the product of two int8 matrices was int64."""
    rng = np.random.default_rng(0)
    for dtype in ("i1", "u1", "i2", "i4", "i8"):
        a, b = (rng.integers(0, 100, s).astype(dtype) for s in ((3, 4, 5), (3, 5, 6)))
        check(ef.matmul, ef.tensor(a), ef.tensor(b), expect=a @ b)


def pytorch_105264():
    """Compiled, a sum of bytes was widened before it could wrap."""
    x = np.array([128, 200, 3], "u1")
    check(lambda x: ef.astype(x + x, "int16"), ef.tensor(x), expect=(x + x).astype("i2"))
    check(lambda x: ef.astype(x * x, "float32"), ef.tensor(x), expect=(x * x).astype("f4"))
    check(lambda x: (x - 5) // 2, ef.tensor(x), expect=(x - np.uint8(5)) // np.uint8(2))
    check(lambda x: (x + x) > 100, ef.tensor(x), expect=(x + x) > 100)


def pytorch_187018():
    """Compiled, the negative of a byte was a negative number where it was used twice."""
    x = np.array([200, 200, 1], "u1")
    y = np.negative(np.abs(x))
    expected = np.concatenate([y, y]).sum(dtype="u8")

    def f(x):
        y = ef.negative(ef.abs(x))
        return ef.sum(ef.concat([y, y]))

    check(f, ef.tensor(x), expect=expected)
    check(lambda x: ef.sum(ef.negative(ef.abs(x))), ef.tensor(x), expect=y.sum(dtype="u8"))


def pytorch_197091():
    """Compiled, the dtype of ldexp was that of the first argument alone, or float32."""
    exponent = ef.tensor(np.array([1, 2, 3]))
    for dtype in ("float16", "float32", "float64", "bfloat16"):
        x = ef.tensor([1.0, 1.5, 2.0], dtype=dtype)
        for apply in WAYS.values():
            found = apply(ef.ldexp)(x, exponent)
            assert found.dtype == ef.as_dtype(dtype)
            compare(found, np.array([2.0, 6.0, 16.0]))


def pytorch_156788():
    """Compiled, negative floats became other bytes than eagerly."""
    x = ef.tensor(np.array([1.54, -0.29, -2.18, 0.57, -1.08, 250.9], "f4"))
    for size in (1, 40):
        values = ef.tile(x, size)
        for dtype in ("uint8", "int8", "uint16", "uint32", "uint64"):

            def f(x):
                return ef.astype(x * 1, dtype)

            expected = f(values).numpy()
            inside = array(values) >= 0
            if dtype == "int8":
                inside &= array(values) < 128
            np.testing.assert_array_equal(expected[inside], array(values)[inside].astype(dtype))
            check(f, values, expect=expected)


def pytorch_44858():
    """Floor division of integers rounded to zero."""
    a, b = np.array([1, -1, -7, 7, -8], "i4"), np.array([2, 2, 2, -2, 3], "i4")
    check(ef.floor_divide, ef.tensor(a), ef.tensor(b), expect=a // b)
    check(lambda a: a // 2, ef.tensor(a), expect=a // 2)
    check(lambda a: a // -4, ef.tensor(a), expect=a // -4)
    wide = np.arange(-40, 40)
    check(
        lambda a: (a // 8, a % 8, a // -8),
        ef.tensor(wide),
        expect=(wide // 8, wide % 8, wide // -8),
    )


def pytorch_1164():
    """The remainder of integers had the sign of the dividend."""
    n = 3
    x = np.arange(n)[:, None] - np.arange(n)
    for dtype in ("i8", "i4", "i1", "f4"):
        y = x.astype(dtype)
        check(lambda x: (ef.remainder(x, n), x % -n), ef.tensor(y), expect=(y % n, y % -n))
        check(lambda x: ef.fmod(x, n), ef.tensor(y), expect=np.fmod(y, n).astype(dtype))


def pytorch_47779():
    """An integer's remainder by 1.5 was that by 1."""
    x = np.array([2, 5, -4])
    for f, g in ((ef.fmod, np.fmod), (ef.remainder, np.remainder)):
        check(lambda x: f(x, 1.5), ef.tensor(x), expect=g(x, 1.5))
        check(lambda x, y: f(x, y), ef.tensor(x), ef.tensor(1.5), expect=g(x, 1.5))


def pytorch_86074():
    """A remainder of int32 by int16 was computed in 16 bits."""
    a, b = np.array(1693446850, "i4"), np.array([7285], "i2")
    for f, g in (
        (ef.fmod, np.fmod),
        (ef.remainder, np.remainder),
        (ef.floor_divide, np.floor_divide),
    ):
        check(f, ef.tensor(a), ef.tensor(b), expect=g(a, b))
        check(lambda x: f(x, ef.tensor(b)), ef.tensor(a[None]), expect=g(a[None], b))

    for dtype in ("i4", "i8", "i2"):
        x = np.full(3, np.iinfo(dtype).min, dtype)
        y = np.full(3, -1, dtype)
        zeros = np.zeros(3, dtype)
        check(
            lambda x, y: (ef.fmod(x, y), ef.remainder(x, y)),
            *(ef.tensor(x), ef.tensor(y)),
            expect=(zeros, zeros),
        )
        check(lambda x: ef.remainder(x, -1), ef.tensor(x), expect=zeros)


def pytorch_40118():
    """Whole numbers at even steps over all of int32 jumped in the middle."""
    expected = np.linspace(-2147483647, 2147483647, 10, dtype="i4")
    check(lambda: ef.linspace(-2147483647, 2147483647, 10, dtype="int32"), expect=expected)


def pytorch_4419():
    """Number 4,095 of even numbers at even steps was not whole."""
    for n in (4100, 9000):
        expected = np.arange(n) * 2.0
        check(lambda: ef.linspace(0, 2 * (n - 1), n), expect=expected, rtol=0, atol=0)


def pytorch_4877():
    """A range of integers was made in float32 and stopped growing at 2**24."""
    start, stop = 2**24 - 3, 2**24 + 5
    check(lambda: ef.arange(start, stop), expect=np.arange(start, stop))
    high = 2**53
    check(lambda: ef.arange(high - 2, high + 3), expect=np.arange(high - 2, high + 3))
    check(lambda: ef.arange(2**62, 2**62 + 9, 4), expect=np.arange(2**62, 2**62 + 9, 4))


def pytorch_195675():
    """Compiled, a bound beyond the dtype was no bound; eagerly it was refused."""
    x = np.array([-200, 5, 100], "i2").astype("i1")
    for f in (lambda x: ef.clip(x, -1000, 1000), lambda x: ef.clip(x, 300, None)):
        outcomes = set()
        for apply in WAYS.values():
            try:
                outcomes.add(tuple(apply(f)(ef.tensor(x)).tolist()))
            except ef.errors.EagerflowError:
                outcomes.add("refused")
        assert len(outcomes) == 1, outcomes
        assert outcomes & {"refused", tuple(x.tolist())}, outcomes
    y = floats(4)
    found = {
        tuple(array(apply(lambda x: ef.clip(x, -3e38, 3e38))(ef.tensor(y))))
        for apply in WAYS.values()
    }
    assert found == {tuple(y)}


def pytorch_76795():
    """NaN in a bound was ignored by a clip, and propagated by a maximum."""
    x, low = np.zeros(40, "f4"), np.ones(40, "f4")
    x[16:], low[:15] = np.nan, np.nan
    expected = np.maximum(x, low)
    check(ef.maximum, ef.tensor(x), ef.tensor(low), expect=expected)
    check(lambda x, low: ef.clip(x, low, None), ef.tensor(x), ef.tensor(low), expect=expected)
    check(
        lambda x, low: ef.clip(x * 1, None, low),
        ef.tensor(x),
        ef.tensor(low),
        expect=np.minimum(x, low),
    )
    check(ef.relu, ef.tensor(x), expect=x)


def pytorch_73504():
    """A number beyond the dtype was refused in comparisons of bytes, and wrapped in other ops."""
    x = np.array([0, 3, 255], "u1")
    for number in (2110, 256, -1, 62 + 256):
        check(
            lambda x: (x >= number, x == number, x < number),
            ef.tensor(x),
            expect=(x >= number, x == number, x < number),
        )
        check(
            lambda x, n: (x >= n, x == n, x < n),
            *(ef.tensor(x), number),
            expect=(x >= number, x == number, x < number),
        )
        refused(lambda x: x + number, ef.tensor(x))
        refused(lambda x, n: x // n, ef.tensor(x), number)


def pytorch_175966():
    """Compiled, a range of int64 times 1e9 wrapped at 32 bits."""
    check(
        lambda: ef.arange(0, 11, dtype="int64") * ef.tensor([10**9]),
        expect=np.arange(11) * 10**9,
    )
    check(lambda x: ef.arange(0, 11) * x, ef.tensor([10**9]), expect=np.arange(11) * 10**9)
    check(lambda x: ef.arange(0, 11) * x, 10**9, expect=np.arange(11) * 10**9)


def pytorch_193811():
    """Compiled, integers were resized by a method that eagerly refuses them."""
    x = ef.tensor(np.arange(24, dtype="i4").reshape(1, 2, 4, 3))
    for method in ("bilinear", "bicubic"):
        outcomes = []
        for apply in WAYS.values():
            try:
                outcomes.append(apply(lambda x: ef.resize(x, (5, 7), method))(x))
            except ef.errors.EagerflowError:
                outcomes.append(None)
        assert len({o is None for o in outcomes}) == 1
        if outcomes[0] is not None:
            expected = ef.resize(ef.astype(x, "float64"), (5, 7), method).numpy()
            for found in outcomes:
                np.testing.assert_allclose(found.numpy(), expected, atol=0.51)


def jax_28603():
    """A power of a matrix of booleans was a float that counts paths."""
    x = np.array([[True, True], [False, True]])
    try:
        found = ef.matrix_power(ef.tensor(x), 2)
    except ef.errors.EagerflowError:
        refused(lambda x: ef.matrix_power(x, 2), ef.tensor(x))
    else:
        compare(found, np.linalg.matrix_power(x, 2))
    whole = np.array([[1, 1], [0, 1]])
    check(
        lambda x: ef.matrix_power(x, 5), ef.tensor(whole), expect=np.linalg.matrix_power(whole, 5)
    )


def jax_18507():
    """Compiled, a * b - a * b was 1: one of the products was not rounded."""
    a, b = np.full(3, 2396747.0, "f4"), np.full(3, 7.0, "f4")

    def f(a1, a2, b1, b2):
        return a1 * b2 - a2 * b1

    for n in (1, 4000):
        x, y = ef.tensor(np.tile(a, n)), ef.tensor(np.tile(b, n))
        check(f, x, x, y, y, expect=np.zeros(3 * n), atol=0)
        other = ef.tensor(np.tile(a, n))
        check(f, x, other, y, ef.tensor(np.tile(b, n)), expect=np.zeros(3 * n), atol=0)
    check(lambda a, b: ef.cross(a, b), ef.tensor(a), ef.tensor(b), expect=np.zeros(3), atol=0)


def jax_145():
    """A range of floats with a step below one had a single element."""
    for args in ((0.0, 1.0, 0.1), (1.0, 0.0, -0.25), (0.0, 0.35, 0.1), (5.0, 5.0, 0.5)):
        check(lambda: ef.arange(*args), expect=np.arange(*args), rtol=1e-6)


def tensorflow_60656():
    """The sign of large complex numbers was -0, as their squares overflow."""
    for x in (
        np.array([-3e307 + 0j, -6e307 + 0j, 3e307 - 4e307j, 0j, 1e-310 + 0j]),
        np.array([-3e37 + 0j, 3e37 + 4e37j], "c8"),
    ):
        expected = np.sign(x)
        check(ef.sign, ef.tensor(x), expect=expected)
        check(ef.abs, ef.tensor(x), expect=np.abs(x))


def tinygrad_3133():
    """1 / 2 of integers was 0."""
    a, b = np.array([1, 7, -3]), np.array([2, 2, 4])
    check(ef.divide, ef.tensor(a), ef.tensor(b), expect=a / b)
    check(lambda a: a / 2, ef.tensor(a.astype("i4")), expect=a / 2)
    check(lambda a: a / 2, ef.tensor(a.astype("u1")[:2]), expect=a[:2] / 2)


def tinygrad_10321():
    """110 // 55 was 1: integers were divided by a reciprocal in floating point."""
    b = np.arange(1, 300)
    for k in (1, 2, 3, 1001):
        a = b * k
        zeros = np.zeros_like(b)
        check(lambda a, b: (a // b, a % b), ef.tensor(a), ef.tensor(b), expect=(zeros + k, zeros))
    for d in (3, 7, 49, 55):
        a = np.arange(0, 60 * d, d, dtype="i4")
        check(lambda a: (a // d, a % d), ef.tensor(a), expect=(a // np.int32(d), a % np.int32(d)))


@cases("dtypes", globals())
def test_case(case):
    case()
