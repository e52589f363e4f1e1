"""Sums, extremes and running sums: narrow accumulators, ties, NaN, and axes that are permuted."""

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import check, compare, floats


def pytorch_5863():
    """The sum of bytes along an axis was a byte."""
    x = np.random.default_rng(0).integers(0, 256, (40, 500)).astype("u1")
    for axis in (0, 1, None, (0, 1)):
        expected = x.sum(axis=axis, dtype="u8")
        check(lambda x: ef.sum(x, axis=axis), ef.tensor(x), expect=expected)
    check(lambda x: ef.sum(ef.sum(x, axis=1)), ef.tensor(x), expect=x.sum(dtype="u8"))
    product = x[:3, :4].prod(axis=0, dtype="u8")
    check(lambda x: ef.prod(x, axis=0), ef.tensor(x[:3, :4]), expect=product)


def pytorch_3304():
    """A running sum of bytes wrapped at 256."""
    x = np.full((300, 2), 3, "u1")
    for axis in (0, 1):
        expected = np.cumsum(x, axis=axis, dtype="u8")
        check(lambda x: ef.cumulative_sum(x, axis=axis), ef.tensor(x), expect=expected)
    signed = np.full(300, -3, "i1")
    check(
        lambda x: ef.cumulative_sum(x),
        ef.tensor(signed),
        expect=np.cumsum(signed, dtype="i8"),
    )


def pytorch_756():
    """The number of equal elements was counted in a byte: 64 of 320."""
    x = floats(4, 16, 10)
    y = np.where(np.arange(10) < 5, x, x + 1)
    check(lambda x, y: ef.sum(x == y), ef.tensor(x), ef.tensor(y), expect=np.sum(x == y))
    check(
        lambda x, y: ef.sum(x == y, axis=(0, 1)),
        *(ef.tensor(x), ef.tensor(y)),
        expect=np.sum(x == y, axis=(0, 1)),
    )
    check(ef.count_nonzero, ef.tensor(np.ones((30, 30), bool)), expect=np.int64(900))


def pytorch_132107():
    """A running sum of infinities had NaN in it, by the way its blocks were joined."""
    for n in (100, 10, 5000):
        x = np.full((n,), np.inf)
        check(lambda x: ef.cumulative_sum(x), ef.tensor(x), expect=x)
        check(lambda x: ef.sum(ef.cumulative_sum(x)), ef.tensor(x), expect=np.array(np.inf))
        check(lambda x: ef.cumulative_prod(x), ef.tensor(x), expect=x)
        check(lambda x: ef.logcumsumexp(x), ef.tensor(-x), expect=-x)


def pytorch_172062():
    """Compiled, gradients of running products were wrong in each element."""
    x = floats(1, 100, dtype="f8") * 0.1 + 1
    x[0, 7] = 0.0
    g = floats(1, 100, seed=1, dtype="f8")
    expected = np.zeros(100)
    for k in range(100):
        rest = np.cumprod(np.where(np.arange(100) == k, 1.0, x[0]))
        expected[k] = np.sum((rest * g[0])[k:])
    f = ef.grad(lambda x: ef.sum(ef.cumulative_prod(x, axis=1) * ef.tensor(g)))
    check(f, ef.tensor(x), expect=expected[None], rtol=1e-9)


def pytorch_41998():
    """Of equal elements, the place of the last was given for stacked columns."""
    a, b = np.array([1, 2, 3]), np.array([5, 10, 3])
    expected = np.argmax(np.stack([a, b], axis=1), axis=1)
    check(
        lambda a, b: ef.argmax(ef.stack([a, b], axis=1), axis=1),
        *(ef.tensor(a), ef.tensor(b)),
        expect=expected,
    )


def pytorch_93630():
    """Compiled, the place of the last maximum along a leading axis was given."""
    x = np.random.default_rng(3).integers(1, 5, (64, 70))
    for dtype in ("i4", "f4", "f2", "u1"):
        y = x.astype(dtype)
        for axis in (0, 1, None):
            check(
                lambda y: (ef.argmax(y, axis=axis), ef.argmin(y, axis=axis)),
                ef.tensor(y),
                expect=(np.argmax(y, axis=axis), np.argmin(y, axis=axis)),
            )


def pytorch_17914():
    """The place of the last minimum of each column was given, not of the first."""
    x = np.triu(np.ones((40, 40), "f4"))
    check(
        lambda x: (ef.min(x, axis=0), ef.argmin(x, axis=0), ef.argsort(x, axis=0)[0]),
        ef.tensor(x),
        expect=(x.min(axis=0), x.argmin(axis=0), x.argmin(axis=0)),
    )


def pytorch_183082():
    """Compiled, the place of the maximum of a transposed result was that before transposing."""
    x = floats(5, 7)
    expected = np.argmax(np.sin(x.astype("f8")).T)
    assert expected != np.argmax(np.sin(x.astype("f8")))
    check(lambda x: ef.argmax(ef.sin(x).T), ef.tensor(x), expect=expected)
    large = floats(130, 70)
    expected = np.argmin(np.sin(large.astype("f8")).T)
    check(lambda x: ef.argmin(ef.sin(x).T), ef.tensor(large), expect=expected)


def pytorch_40022():
    """The place of the minimum along an axis of one element was not 0 beyond 32,767 rows."""
    x = ef.tensor(floats(40_000, 1))
    zeros = np.zeros(40_000, "i8")
    check(
        lambda x: (ef.argmin(x, axis=1), ef.argmax(x, axis=1)),
        x,
        expect=(zeros, zeros),
    )


def pytorch_193751():
    """Compiled, the place of the largest mean was counted in the memory's order of axes."""
    x = np.moveaxis(floats(4, 8, 8, 4), 3, 1)
    y = ef.asarray(x)
    assert not y.numpy().flags.c_contiguous
    wide = x.astype("f8")
    check(lambda x: ef.argmax(ef.mean(x, axis=-1)), y, expect=np.argmax(wide.mean(-1)))
    check(lambda x: ef.argmin(ef.max(x, axis=-1)), y, expect=np.argmin(x.max(-1)))
    check(lambda x: ef.argmax(ef.var(x, axis=1)), y, expect=np.argmax(wide.var(1)))
    check(lambda x: ef.argmax(ef.sum(x, axis=2) * 2), y, expect=np.argmax(wide.sum(2)))


def pytorch_118266():
    """Compiled, the place of a NaN was not that of the maximum."""
    x = np.array([[-2.0, 100.0, 3.0], [3.0, 4.0, -5.0]], "f4")
    with np.errstate(invalid="ignore"):
        expected = np.argmax(np.log1p(x), axis=1)
    check(lambda x: ef.argmax(ef.log1p(x), axis=1), ef.tensor(x), expect=expected)
    large = floats(50, 60)
    large[::7, 31] = np.nan
    for axis in (0, 1, None):
        check(
            lambda x: (ef.argmin(x, axis=axis), ef.max(x * 1, axis=axis)),
            ef.tensor(large),
            expect=(np.argmin(large, axis=axis), np.max(large, axis=axis)),
        )


def pytorch_180956():
    """Compiled, sums of what was pooled were wrong for channels that are no multiple of 16."""
    x = floats(3, 8, 8, 33, dtype="f8")

    def window(k):
        return slice(k * 8 // 7, -(-(k + 1) * 8 // 7))

    pooled = np.array(
        [[x[:, window(i), window(j)].mean(axis=(1, 2)) for j in range(7)] for i in range(7)]
    )
    check(
        lambda x: ef.sum(ef.reshape(ef.adaptive_avg_pool(x, 7), (3, -1)), axis=-1),
        ef.tensor(x),
        expect=pooled.sum(axis=(0, 1, 3)),
        rtol=1e-9,
    )


def pytorch_162410():
    """Compiled, a kernel wrote the flipped rows while it read them."""
    x, y = floats(20, 20), floats(20, 20, seed=1)
    total = y.sum(axis=1, dtype="f8") + y
    v = ef.Variable(x)

    def step(y):
        v.assign(ef.flip(v.value, axis=1))
        return v + (ef.sum(y, axis=1) + y)

    for apply in (ef.function, lambda f: f):
        run = apply(step)
        for flipped in (x[:, ::-1], x):
            compare(run(ef.tensor(y)), flipped + total)
            compare(v, flipped)


def pytorch_44350():
    """The mean of large halves was infinite, as their sum is."""
    x = np.full((3, 5), 40_000, "f2")
    check(lambda x: ef.mean(x), ef.tensor(x), expect=np.array(40_000.0), rtol=1e-3)
    check(lambda x: ef.mean(x, axis=0), ef.tensor(x), expect=np.full(5, 40_000.0), rtol=1e-3)
    check(lambda x: ef.var(x), ef.tensor(x), expect=np.array(0.0))
    check(lambda x: ef.mean(x * 1, axis=1), ef.tensor(x), expect=np.full(3, 40_000.0), rtol=1e-3)


def pytorch_91597():
    """The mean of 100,000 halves was NaN: the sum and the count were infinite."""
    x = ef.ones(100_000, dtype="float16")
    check(lambda x: ef.mean(x), x, expect=np.array(1.0))
    check(
        ef.grad(lambda x: ef.mean(x * x)), x[:70_000], expect=np.full(70_000, 2 / 70_000), rtol=0.02
    )


def pytorch_2391():
    """A sum of halves along an axis lost what a running sum cannot hold."""
    x = np.repeat(np.array([32_000.0, -32_000.0], "f2"), 4)
    check(lambda x: ef.sum(x, axis=0), ef.tensor(x), expect=np.array(0.0))
    both = np.stack([x, x], axis=1)
    check(lambda x: ef.sum(x, axis=0), ef.tensor(both), expect=np.zeros(2))
    check(lambda x: ef.sum(x * 1.0, axis=1), ef.tensor(both.T), expect=np.zeros(2))


def pytorch_59489():
    """The sum of whole numbers in half precision was further from the true one than rounding."""
    x = np.random.default_rng(0).integers(16, 100, (9, 8)).astype("f2")
    exact = np.float16(x.sum(dtype="f8"))
    check(lambda x: ef.sum(x), ef.tensor(x), expect=exact, rtol=0)
    rows = np.random.default_rng(1).integers(0, 3, (50, 700)).astype("f2")
    expected = rows.sum(axis=1, dtype="f8").astype("f2")
    check(lambda x: ef.sum(x, axis=1), ef.tensor(rows), expect=expected, rtol=0)


def jax_6431():
    """The median without NaN was NaN where a NaN had its sign set."""
    negative = np.array([0xFFC00000], "u4").view("f4")[0]
    x = np.array([negative, np.e, np.nan, 1.0, negative], "f4")
    expected = np.array((np.e + 1) / 2)
    check(ef.nanmedian, ef.tensor(x), expect=expected)
    check(lambda x: ef.sort(x)[:2], ef.tensor(x), expect=np.array([1.0, np.e]))
    check(lambda x: (ef.nanmax(x), ef.nanargmin(x)), ef.tensor(x), expect=(np.array(np.e), 3))


def tensorflow_102043():
    """Compiled, the mean of int32 was that of a sum that had wrapped."""
    x = np.array([-1259020531, -29136942, 600128499, 1295813448, 2**31 - 1, 2**31 - 1], "i4")
    check(lambda x: ef.mean(x), ef.tensor(x), expect=x.mean(dtype="f8"))


def tensorflow_125978():
    """Compiled, the mean of two largest integers was -1."""
    for dtype in ("i4", "u4", "i8", "u8", "i1"):
        x = np.full((2, 3), np.iinfo(dtype).max, dtype)
        expected = np.full(3, float(np.iinfo(dtype).max))
        check(lambda x: ef.mean(x, axis=0), ef.tensor(x), expect=expected)
        check(lambda x: ef.mean(x * 1, axis=0), ef.tensor(x), expect=expected)


def tinygrad_4999():
    """A running sum that was made late had the wrong rows: the last class was always drawn."""
    weights = np.ones((1, 27), "f4")

    def thresholds(w):
        running = ef.cumulative_sum(w, axis=1)
        return running / running[:, -1:]

    expected = np.cumsum(weights, axis=1) / 27
    check(thresholds, ef.tensor(weights), expect=expected)
    u = np.linspace(0.01, 0.99, 50)[:, None]
    check(
        lambda w, u: ef.sum(u >= thresholds(w), axis=1),
        *(ef.tensor(weights), ef.tensor(u)),
        expect=np.sum(u >= expected, axis=1),
    )


@cases("reductions", globals())
def test_case(case):
    case()
