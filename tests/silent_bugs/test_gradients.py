"""Derivatives: at zeros and ties, of higher order, of complex values, and in half precision."""

import functools

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import check, compare, differences, floats


def grad(f, **options):
    return ef.grad(lambda *args: ef.sum(f(*args)), **options)


def pytorch_136662():
    """Compiled, the gradient of a column that is added into another was that of neither."""
    x = floats(2, 3)

    def f(x):
        y = ef.ones_like(x)
        y = y.at[:, 0].add(ef.abs(x[:, 2]))
        y = y.at[:, 1].multiply(y[:, 0])
        return ef.sum(y * y)

    def reference(x):
        y = np.ones_like(x)
        y[:, 0] += np.abs(x[:, 2])
        y[:, 1] *= y[:, 0]
        return np.sum(y * y)

    check(ef.grad(f), ef.tensor(x), expect=differences(reference, x), rtol=1e-4)


def pytorch_100794():
    """Compiled, the filter's gradient was wrong where its image is resized to one pixel."""
    x, w = np.ones((1, 4, 4, 1), "f4"), floats(4, 4, 1, 1)
    large, filters = floats(1, 7, 8, 2), floats(4, 4, 2, 3)
    for method in ("nearest", "bilinear", "bicubic"):

        def f(w, x):
            return ef.sum(ef.resize(ef.conv(x, w, padding="valid"), (1, 1), method) ** 2)

        expected = 2 * w.sum(dtype="f8") * np.ones((4, 4, 1, 1))
        check(ef.grad(f), ef.tensor(w), ef.tensor(x), expect=expected, rtol=1e-4, atol=1e-4)
        wide = ef.tensor(large.astype("f8"))
        numeric = differences(lambda w: f(ef.tensor(w), wide).item(), filters, step=1e-5)
        check(
            ef.grad(f), ef.tensor(filters), ef.tensor(large), expect=numeric, rtol=1e-3, atol=1e-3
        )


def pytorch_76185():
    """Second derivatives were wrong where a custom rule uses an intermediate of the forward."""

    @ef.custom_gradient
    def f(x):
        middle = x * 2
        return middle * 3, lambda g: g * 3 * middle / x

    x = floats(10, dtype="f8") + 3
    check(grad(f), ef.tensor(x), expect=np.full(10, 6.0))
    check(grad(grad(f)), ef.tensor(x), expect=np.zeros(10), atol=1e-12)

    @ef.custom_gradient
    def squares(x):
        y = ef.exp(x)
        return y * y, lambda g: g * 2 * y * y

    check(grad(grad(squares)), ef.tensor(x), expect=4 * np.exp(2 * x))


def pytorch_106789():
    """Second derivatives of a product with two zeros were all zero."""
    x = np.array([2.0, 3.0, 0.0, 0.0])
    expected = np.zeros((4, 4))
    expected[2, 3] = expected[3, 2] = 6
    check(lambda x: ef.hessian(ef.prod)(x), ef.tensor(x), expect=expected)
    rows = np.array([[2.0, 0.0, 3.0], [1.0, 2.0, 3.0]])
    expected = [[0, 6, 0], [6, 3, 2]]
    check(grad(lambda x: ef.prod(x, axis=1)), ef.tensor(rows), expect=np.array(expected, "f8"))


def pytorch_773():
    """The gradient of a product with a zero among the factors was NaN or infinite."""
    for zeros, expected in (
        ([0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0], [6.0, 3.0, 2.0]),
    ):
        check(ef.grad(ef.prod), ef.tensor(zeros), expect=np.array(expected))


def pytorch_181581():
    """Compiled, a gradient could not be differentiated again: its history was dropped."""
    x = floats(5, dtype="f8")

    def penalty(x):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = ef.sum(ef.sin(x) * x)
        return ef.sum(tape.gradient(y, x) ** 2)

    def reference(x):
        return np.sum((np.cos(x) * x + np.sin(x)) ** 2)

    check(ef.grad(penalty), ef.tensor(x), expect=differences(reference, x), rtol=1e-6)
    inner = ef.function(grad(lambda x: ef.sin(x) * x))
    check(
        ef.grad(lambda x: ef.sum(inner(x) ** 2)),
        ef.tensor(x),
        expect=differences(reference, x),
        rtol=1e-6,
    )


def third(norm, reference):
    """The third derivative along a direction, against differences of the second by jvp."""
    x, v, w = (ef.tensor(floats(6, 4, seed=s, dtype="f8")) for s in (0, 1, 2))

    def along(f, t):
        return ef.jvp(f, (t,), (ef.ones_like(t),))[1]

    def value(f, t):
        return ef.sum(f(x + t * v) * w)

    def derivative(f):
        third = ef.grad(ef.grad(ef.grad(functools.partial(value, f))))
        return third(ef.tensor(np.array(0.3)))

    def numeric(t):
        second = ef.grad(ef.grad(functools.partial(value, reference)))
        return second(ef.tensor(np.array(t))).item()

    expected = (numeric(0.3 + 1e-5) - numeric(0.3 - 1e-5)) / 2e-5
    compare(derivative(norm), expected, rtol=1e-5)
    compare(derivative(reference), expected, rtol=1e-5)
    forward = along(
        lambda t: along(lambda t: along(lambda t: value(norm, t), t), t),
        0.3 * ef.ones((), dtype="float64"),
    )
    compare(forward, expected, rtol=1e-5)


def pytorch_186256():
    """Third derivatives of batch normalization took the batch's mean for a constant."""

    def reference(x):
        centred = x - ef.mean(x, axis=0)
        return centred / ef.sqrt(ef.mean(centred**2, axis=0) + 1e-5)

    third(lambda x: ef.batch_norm(x)[0], reference)


def pytorch_175754():
    """Third derivatives of layer normalization took the row's mean for a constant."""

    def reference(x):
        centred = x - ef.mean(x, axis=-1, keepdims=True)
        return centred / ef.sqrt(ef.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    third(ef.layer_norm, reference)


def pytorch_18619():
    """The second derivative of a custom rule was right once and zero the second time."""

    @ef.custom_gradient
    def product(x):
        y = ef.prod(x)
        return y, lambda g: g * y / x

    x = ef.tensor(np.array([1.0, 2.0, 4.0]))
    expected = np.array([0.0, 4.0, 2.0])
    second = ef.grad(lambda x: ef.grad(product)(x)[0])
    for _ in range(3):
        compare(second(x), expected)
    check(second, x, expect=expected)
    with ef.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with ef.GradientTape() as inner:
            inner.watch(x)
            y = product(x)
        first = inner.gradient(y, x)[0]
    for _ in range(3):
        compare(outer.gradient(first, x), expected)


def pytorch_2421():
    """The gradient of a norm that is zero was NaN."""
    zero = np.zeros(4)
    for f in (ef.norm, ef.vector_norm, functools.partial(ef.vector_norm, ord=1)):
        check(ef.grad(lambda x: f(x)), ef.tensor(zero), expect=zero)
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    expected = np.array([[0.6, 0.8], [0.0, 0.0]])
    check(grad(lambda x: ef.vector_norm(x, axis=1)), ef.tensor(rows), expect=expected)


def pytorch_4320():
    """The gradient of the deviation of equal numbers was NaN."""
    for value in (0.0, 1.0):
        x = np.full((16, 3), value)
        check(grad(lambda x: ef.std(x, axis=0)), ef.tensor(x), expect=np.zeros((16, 3)))


def pytorch_65599():
    """The gradient of a zero matrix's norm was NaN or zero, as the norm was called."""
    x = ef.tensor(np.zeros((3, 3)))
    for f in (ef.matrix_norm, ef.linalg.norm, lambda x: ef.linalg.norm(x, ord="fro")):
        check(ef.grad(lambda x: f(x)), x, expect=np.zeros((3, 3)))


def pytorch_3264():
    """The gradient of a row scaled by its sum of sizes was NaN at zeros."""
    x = np.array([[0.0, 0.0, 0.5, 0.1996]])

    def f(x):
        return x / ef.maximum(ef.vector_norm(x, ord=1, axis=1, keepdims=True), 1e-12)

    total = 0.6996
    expected = np.array([[1 / total, 1 / total, 0.0, 0.0]])
    check(grad(f), ef.tensor(x), expect=expected, atol=1e-6)


def pytorch_46144():
    """The gradient of the angle of complex numbers pointed elsewhere."""
    x = floats(5, dtype="f8") + 1j * floats(5, seed=1, dtype="f8")
    a, b = x.real, x.imag
    expected = (-b + 1j * a) / (a * a + b * b)
    check(grad(ef.angle), ef.tensor(x), expect=expected)
    check(grad(lambda z: ef.atan2(ef.imag(z), ef.real(z))), ef.tensor(x), expect=expected)


def pytorch_80928():
    """Forward over reverse, the second derivative of a size had one part's sign wrong."""
    x = np.array([-3.4118 + 4.8582j, 1.4920 - 0.7004j])
    t = np.array([0.3 + 0.5j, -0.2 + 0.7j])

    def gradient(x):
        return x / np.abs(x)

    expected = (gradient(x + 1e-6 * t) - gradient(x - 1e-6 * t)) / 2e-6
    check(grad(ef.abs), ef.tensor(x), expect=gradient(x))
    check(
        lambda x, t: ef.jvp(grad(ef.abs), (x,), (t,))[1],
        *(ef.tensor(x), ef.tensor(t)),
        expect=expected,
        rtol=1e-5,
    )


def pytorch_96543():
    """The gradient of the size of tiny complex numbers was NaN."""
    x = np.array([0j, -1.0568e-23 + 0j, 3e-23 - 4e-23j, 1e-30j], "c8")
    expected = np.array([0, -1, 0.6 - 0.8j, 1j])
    check(grad(ef.abs), ef.tensor(x), expect=expected, rtol=1e-4)


def pytorch_98276():
    """The gradient of the angle of small complex numbers was NaN."""
    x = np.array([5.6843e-14 + 1e-13j], "c8")
    wide = x.astype("c16")
    expected = 1j * wide / np.abs(wide) ** 2
    check(grad(ef.angle), ef.tensor(x), expect=expected, rtol=1e-4)


def jax_764():
    """The gradient of tanh was NaN for large arguments."""
    x = np.array([190.0, 193.3, 1e30, -400.0, 0.5], "f4")
    expected = 1 - np.tanh(x.astype("f8")) ** 2
    for f in (ef.tanh, lambda x: 2 * ef.sigmoid(2 * x) - 1):
        check(grad(f), ef.tensor(x), expect=expected, rtol=1e-4)


def jax_8128():
    """The gradient of a deviation without NaN was NaN everywhere."""
    x = np.arange(5.0)
    x[0] = np.nan
    rest = x[1:]
    expected = np.concatenate([[0.0], (rest - rest.mean()) / (4 * rest.std())])
    check(ef.grad(ef.nanstd), ef.tensor(x), expect=expected)
    check(ef.grad(ef.nanmean), ef.tensor(x), expect=np.array([0, 0.25, 0.25, 0.25, 0.25]))
    expected = np.concatenate([[0.0], 2 * (rest - rest.mean()) / 4])
    check(ef.grad(ef.nanvar), ef.tensor(x), expect=expected)


def jax_13600():
    """The gradient of a maximum was NaN where those of all its elements are numbers."""
    x = np.array([0.5, -0.5, 2.0])

    def f(x):
        y = ef.where(x > 0, ef.sqrt(ef.where(x > 0, x, 1.0)), 0.0)
        return ef.max(ef.stack([ef.sum(y), ef.sum(y * y)]))

    check(ef.grad(f), ef.tensor(x), expect=np.array([1.0, 0.0, 1.0]), rtol=1e-5)


def jax_939():
    """Compiled, a gradient was NaN at a point where it is a number eagerly."""

    def f(loc, scale):
        x = loc + scale * ef.tensor(np.array([-1.5, 0.0], "f4"))
        term1 = 0.5 * ((ef.norm(x) - 2) / 0.4) ** 2
        term2 = -0.5 * ((x[:1] + ef.tensor(np.array([-2.0, 2.0], "f4"))) / 0.6) ** 2
        return term1 - ef.logsumexp(term2, axis=-1)

    def reference(loc, scale):
        x = loc + scale * np.array([-1.5, 0.0])
        term1 = 0.5 * ((np.linalg.norm(x) - 2) / 0.4) ** 2
        term2 = -0.5 * ((x[:1] + np.array([-2.0, 2.0])) / 0.6) ** 2
        return term1 - np.log(np.sum(np.exp(term2)))

    at = np.zeros(2, "f4"), np.ones(2, "f4")
    expected = tuple(differences(reference, *at, argnum=k) for k in (0, 1))
    check(ef.grad(f, argnums=(0, 1)), *map(ef.tensor, at), expect=expected, rtol=1e-4, atol=1e-4)


def jax_2863():
    """The tangent of R of a QR decomposition was right in its last column only."""
    x, dx = floats(3, 3, dtype="f8"), floats(3, 3, seed=1, dtype="f8")
    step = 1e-6
    signs = np.sign(np.diag(ef.qr(ef.tensor(x))[1].numpy()))

    def qr(x):
        q, r = np.linalg.qr(x)
        turn = np.sign(np.diag(r)) * signs
        return q * turn, r * turn[:, None]

    ends = qr(x + step * dx), qr(x - step * dx)
    expected = tuple((a - b) / (2 * step) for a, b in zip(*ends, strict=True))
    check(
        lambda x, dx: tuple(ef.jvp(lambda x: tuple(ef.qr(x)), (x,), (dx,))[1]),
        *(ef.tensor(x), ef.tensor(dx)),
        expect=expected,
        rtol=1e-4,
        atol=1e-6,
    )


def jax_10877():
    """Gradients through eigenvectors were others than those of a symmetric change."""
    a = floats(5, 5, dtype="f8")
    a = a + a.T

    def f(x):
        values, vectors = ef.eigh(x)
        return ef.sum(ef.abs(vectors) * values)

    def reference(x):
        values, vectors = np.linalg.eigh((x + x.T) / 2)
        return np.sum(np.abs(vectors) * values)

    found = ef.grad(f)(ef.tensor(a)).numpy()
    expected = differences(reference, a)
    compare((found + found.T) / 2, expected, rtol=1e-4, atol=1e-6)
    captured = ef.function(ef.grad(f))(ef.tensor(a)).numpy()
    compare((captured + captured.T) / 2, expected, rtol=1e-4, atol=1e-6)


def jax_8732():
    """The gradient by equal singular values was NaN, though what is asked for has one."""
    a = np.diag([1.0, 1.0, 2.0, 3.0])
    expected = a / np.linalg.norm(a)
    check(ef.grad(lambda x: ef.vector_norm(ef.svdvals(x))), ef.tensor(a), expect=expected)


def jax_3058():
    """The gradient of lengths between points was NaN where two points meet."""
    x = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]])

    def f(x):
        return ef.sum(ef.vector_norm(x[1:] - x[:-1], axis=-1))

    expected = np.array([[0.0, 0.0], [-0.6, -0.8], [0.6, 0.8]])
    check(ef.grad(f), ef.tensor(x), expect=expected)


def tinygrad_12296():
    """The gradient of the maximum of 70,000 equal halves was zero."""
    x = ef.ones(70_000, dtype="float16")
    expected = np.full(70_000, 1 / 70_000)
    check(ef.grad(ef.max), x, expect=expected, rtol=0.02)
    check(ef.grad(lambda x: ef.min(x * 1)), x, expect=expected, rtol=0.02)


def pytorch_59477():
    """Second derivatives of a summed cross entropy were those of the mean."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, (3, 3))
    y = np.random.default_rng(1).uniform(0, 1, (3, 3))
    for reduction, divisor in (("sum", 1), ("mean", 9)):

        def f(x):
            return ef.binary_cross_entropy(x, ef.tensor(y), reduction=reduction)

        first = (-y / x + (1 - y) / (1 - x)) / divisor
        second = (y / x**2 + (1 - y) / (1 - x) ** 2) / divisor
        check(ef.grad(f), ef.tensor(x), expect=first)
        check(grad(ef.grad(f)), ef.tensor(x), expect=second)


def pytorch_190758():
    """Recomputed for the gradient, dropout drew another mask than in the forward pass."""
    x = ef.ones((50, 40))

    def masked(x):
        return ef.dropout(x, 0.5) * x

    def both(f, x):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return y, tape.gradient(y, x)

    for f in (ef.checkpoint(masked), masked):
        for run in (both, ef.function(both, static=("f",))):
            for _ in range(2):
                y, gradient = run(f, x)
                compare(gradient, 2 * y.numpy())
                assert 300 < np.count_nonzero(y.numpy()) < 1700


def pytorch_47870():
    """A loss of a gradient times a direction was trained by wrong gradients."""
    w1, w2 = floats(2, 10, dtype="f8"), floats(10, 1, seed=1, dtype="f8")
    x, dx = floats(2, 2, seed=2, dtype="f8"), floats(2, 2, seed=3, dtype="f8")
    y = np.array([7.0, -12.0])

    def loss(w1, w2):
        def net(x):
            return ef.sum(ef.relu(x @ w1) @ w2)

        g = ef.grad(net)(ef.tensor(x))
        return ef.sum((ef.sum(g * ef.tensor(dx), axis=1) - ef.tensor(y)) ** 2)

    def reference(w1, w2):
        g = ((x @ w1 > 0) * w2[:, 0]) @ w1.T
        return np.sum((np.sum(g * dx, axis=1) - y) ** 2)

    args = ef.tensor(w1), ef.tensor(w2)
    check(loss, *args, expect=reference(w1, w2))
    expected = tuple(differences(reference, w1, w2, argnum=k) for k in (0, 1))
    check(ef.grad(loss, argnums=(0, 1)), *args, expect=expected, rtol=1e-5, atol=1e-6)


def tensorflow_20116():
    """The derivative of a product of powers missed the terms of those made by ``math.pow``."""
    x = np.array(3.0)

    def f(x):
        return 64 * x * (1 - x) * (1 - 2 * x) ** 2 * (1 - 8 * x + 8 * x * x) ** 2

    check(ef.grad(f), ef.tensor(x), expect=differences(f, x), rtol=1e-6)
    check(
        ef.grad(lambda x: 64 * x * (1 - x) * pow(1 - 2 * x, 2) * ef.pow(1 - 8 * x + 8 * x * x, 2)),
        ef.tensor(x),
        expect=differences(f, x),
        rtol=1e-6,
    )


def pytorch_159750():
    """The gradient of a distance of equal rows was not zero, of others not the sign."""
    a, b = np.array([[1.0, 2.0], [5.0, 5.0]]), np.array([[1.0, 2.0], [2.0, 9.0]])
    check(
        grad(lambda a, b: ef.vector_norm(a - b, axis=1, ord=1)),
        *(ef.tensor(a), ef.tensor(b)),
        expect=np.sign(a - b),
    )
    expected = np.array([[0.0, 0.0], [0.6, -0.8]])
    check(
        grad(lambda a, b: ef.vector_norm(a - b, axis=1)),
        *(ef.tensor(a), ef.tensor(b)),
        expect=expected,
    )


@cases("gradients", globals())
def test_case(case):
    case()
