"""Activations, cross-entropies and dropout of large arrays, with generated kernels and without."""

import math

import numpy as np
import pytest
from scipy import special

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.elementwise import activation
from eagerflow.ops.nn import losses

SIZE = generated.MIN_COMPILED_ELEMENTS + 37  # for a generated kernel; no whole number of vectors
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -1e-30, 1e30, -1e30, 90.0, -90.0, 710.0]


@pytest.fixture(params=["generated", "numpy"])
def way(request, monkeypatch):
    """Both kinds of kernels; the first is left out where there is no compiler."""
    if request.param == "generated" and not generated.enabled():
        pytest.skip("there is no compiler")
    calls = []
    for name in ("ready", "run", "compute"):
        call = getattr(generated, name)
        spied = lambda *args, call=call, **more: (calls.append(call), call(*args, **more))[1]
        monkeypatch.setattr(generated, name, spied)
    monkeypatch.setattr(generated, "enabled", lambda: request.param == "generated")
    yield request.param
    assert bool(calls) == (request.param == "generated"), "the other kind of kernel has run"


def numbers(dtype, size=SIZE, seed=0):
    """Numbers of all sizes, and those that are special."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size) * rng.choice([0.01, 1, 4, 30], size)
    x[: len(SPECIAL)] = SPECIAL
    return x.astype(dtype)


def sigma(x):
    return special.expit(x)


def tanh_share(x):
    return special.expit(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def tanh_derivative(x):
    x = np.clip(x, -100, 100)
    share = tanh_share(x)
    inner = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return share + x * share * tanh_share(-x) * inner


def exact_derivative(x):
    x = np.clip(x, -100, 100)
    return special.ndtr(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def silu_derivative(x):
    x = np.clip(x, -1000, 1000)
    return sigma(x) * (1 + x * sigma(-x))


def mish_derivative(x):
    x = np.clip(x, -1000, 1000)
    share = np.tanh(np.logaddexp(0, x))
    return share + x * (1 - share**2) * sigma(x)


SELU = 1.0507009873554805, 1.6732632423543772


def elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


FORWARD = {
    "sigmoid": (ef.sigmoid, sigma),
    "softplus": (ef.softplus, lambda x: np.logaddexp(0, x)),
    "log_sigmoid": (ef.log_sigmoid, lambda x: -np.logaddexp(0, -x)),
    "silu": (ef.silu, lambda x: x * sigma(x)),
    "mish": (ef.mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "gelu, tanh": (ef.gelu, lambda x: x * tanh_share(x)),
    "gelu, exact": (lambda x: ef.gelu(x, approximate=False), lambda x: x * special.ndtr(x)),
    "leaky_relu": (lambda x: ef.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": (lambda x: ef.elu(x, 0.5), lambda x: elu(x, 0.5)),
    "selu": (ef.selu, lambda x: SELU[0] * elu(x, SELU[1])),
}
GRADIENTS = {
    "softplus": (ef.softplus, sigma),
    "log_sigmoid": (ef.log_sigmoid, lambda x: sigma(-x)),
    "sigmoid": (ef.sigmoid, lambda x: sigma(x) * sigma(-x)),
    "silu": (ef.silu, silu_derivative),
    "mish": (ef.mish, mish_derivative),
    "gelu, tanh": (ef.gelu, tanh_derivative),
    "gelu, exact": (lambda x: ef.gelu(x, approximate=False), exact_derivative),
    "relu": (ef.relu, lambda x: np.where(x > 0, 1.0, 0.0)),
    "leaky_relu": (lambda x: ef.leaky_relu(x, 0.2), lambda x: np.where(x > 0, 1.0, 0.2)),
    "elu": (lambda x: ef.elu(x, 0.5), lambda x: np.where(x > 0, 1, 0.5 * np.exp(np.minimum(x, 0)))),
    "selu": (ef.selu, lambda x: SELU[0] * np.where(x > 0, 1, SELU[1] * np.exp(np.minimum(x, 0)))),
}


def check_close(actual, expected, dtype, scale=1.0):
    """Equal but for rounding, relative to numbers of a size of 1 or more; NaN where it is."""
    tolerance = 16 * np.finfo(dtype).eps
    assert actual.dtype == dtype
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype)
    np.testing.assert_allclose(actual, rounded, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORWARD)
def test_activations_are_right(name, dtype, way):
    call, expected = FORWARD[name]
    x = numbers(dtype)
    with np.errstate(all="ignore"):
        wanted = expected(x.astype("float64"))
    low = x == -math.inf  # -inf times 0 is NaN here, whatever the formula
    if name.startswith(("silu", "mish", "gelu")):
        wanted[low] = math.nan
        wanted[x == -1e30] = 0
    check_close(call(ef.tensor(x)).numpy(), wanted, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_of_a_few_roundings_would_be_seen(dtype):
    x = np.linspace(-3, 3, 100)
    wrong = tanh_derivative(x) * (1 + 40 * np.finfo(dtype).eps)
    with pytest.raises(AssertionError, match="Mismatched"):
        check_close(wrong.astype(dtype), tanh_derivative(x), dtype)
    saturated = np.where(x < 2.9, tanh_derivative(x), 1)
    with pytest.raises(AssertionError, match="Mismatched"):
        check_close(saturated.astype(dtype), tanh_derivative(x), dtype, scale=8)


def pulled(call, x, g):
    """The gradient by x, where g is that of the result."""
    _, pull = ef.vjp(call, ef.tensor(x))
    (found,) = pull(ef.tensor(g))
    return found.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_right(name, dtype, way):
    call, derivative = GRADIENTS[name]
    x, g = numbers(dtype), np.random.default_rng(1).uniform(-2, 2, SIZE).astype(dtype)
    found = pulled(call, x, g)
    with np.errstate(all="ignore"):
        wanted = derivative(x.astype("float64"))
    # 1 - tanh is a difference, which x and the slope of the tanh form's polynomial multiply.
    check_close(found, wanted * g, dtype, scale=8)


@pytest.mark.parametrize("call", [ef.gelu, ef.silu, ef.mish, ef.elu, ef.relu, ef.sigmoid])
def test_a_gradient_of_zero_stays_zero(call, way):
    x = numbers("float32")
    assert not np.any(pulled(call, x, np.zeros_like(x)))


def test_memory_orders_and_forward_mode(way):
    base = numbers("float32", 2 * SIZE).reshape(2, SIZE)
    for x in (base.T, base[:, ::-1], base[::2], np.asfortranarray(base)):
        g = np.random.default_rng(2).uniform(-2, 2, x.shape).astype("float32")
        wanted = tanh_derivative(x.astype("float64")) * g
        _, moved = ef.jvp(ef.gelu, (ef.tensor(x),), (ef.tensor(g),))
        check_close(moved.numpy(), wanted, "float32", scale=8)
        check_close(pulled(ef.gelu, x, g), wanted, "float32", scale=8)


def test_gradients_broadcast():
    x, g = ef.tensor(numbers("float64", 24).reshape(4, 6)[:, 2:]), ef.tensor([1.0, 2.0, 0.0, -1.0])
    for gradient, derivative in (
        (activation.tanh_gelu_gradient, tanh_derivative),
        (activation.silu_gradient, silu_derivative),
        (activation.relu_gradient, lambda x: np.where(x > 0, 1.0, 0.0)),
    ):
        with np.errstate(invalid="ignore"):
            wanted = np.where(g.numpy() == 0, 0, derivative(x.numpy()) * g.numpy())
        check_close(gradient(x, g.astype("float64")).numpy(), wanted, "float64")
        check_close(gradient(x, 1.0).numpy(), derivative(x.numpy()), "float64")


# Cross-entropies ---------------------------------------------------------------------------------

SHAPES = [
    ((300, 77), -1), ((9000, 2), 1), ((2, 9000), 0), ((5, 33, 129), 1), ((1, 20011), -1),
    ((20011,), 0), ((17000, 1), 1), ((3, 40, 13, 11), -3),
]  # fmt: skip


def logits_and_labels(shape, axis, dtype):
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(shape) * 5).astype(dtype)
    rows = np.moveaxis(x, axis, -1)
    labels = rng.integers(0, shape[axis], rows.shape[:-1])
    if shape[axis] > 2:  # classes that are impossible, and are not the ones that happen
        rows[..., 0] = -math.inf
        labels = np.maximum(labels, 1)
    return x, labels, rng.uniform(-2, 2, labels.shape).astype(dtype)


def one_hot(x, labels, axis):
    hot = np.arange(x.shape[axis]) == labels[..., None]
    return np.moveaxis(hot, -1, axis).astype(float)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_sparse_cross_entropy(shape, axis, dtype, way):
    x, labels, g = logits_and_labels(shape, axis, dtype)
    wide = x.astype("float64")
    at = np.expand_dims(labels, axis)
    chosen = np.take_along_axis(wide, at, axis).squeeze(axis)
    wanted = special.logsumexp(wide, axis=axis) - chosen
    for kind in ("int64", "uint16"):
        loss = ef.sparse_softmax_cross_entropy(ef.tensor(x), labels.astype(kind), axis)
        check_close(loss.numpy(), wanted, dtype)
    gradient = losses.sparse_softmax_cross_entropy_gradient(ef.tensor(x), labels, g, axis=axis)
    wanted = (special.softmax(wide, axis) - one_hot(x, labels, axis)) * np.expand_dims(g, axis)
    check_close(gradient.numpy(), wanted, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_dense_cross_entropy(shape, axis, dtype, way):
    x, _, g = logits_and_labels(shape, axis, dtype)
    p = np.random.default_rng(4).uniform(0.1, 1, shape)
    p[x == -math.inf] = 0
    p = (p / p.sum(axis, keepdims=True)).astype(dtype)
    wide = x.astype("float64")
    lost = np.expand_dims(special.logsumexp(wide, axis=axis), axis) - wide
    with np.errstate(invalid="ignore"):
        wanted = np.where(p == 0, 0, p * lost).sum(axis)
    check_close(ef.softmax_cross_entropy(ef.tensor(x), p, axis).numpy(), wanted, dtype)
    gradient = losses.softmax_cross_entropy_gradient(ef.tensor(x), p, g, axis=axis)
    total = p.astype("float64").sum(axis, keepdims=True)
    wanted = (special.softmax(wide, axis) * total - p) * np.expand_dims(g, axis)
    check_close(gradient.numpy(), wanted, dtype)


def test_rows_of_cross_entropies_keep_their_faults_to_themselves(way):
    x, labels, _ = logits_and_labels((300, 77), -1, "float32")
    x[7, 5], x[9, 6] = math.nan, math.inf
    x[11, labels[11]] = -math.inf
    loss = ef.sparse_softmax_cross_entropy(ef.tensor(x), labels).numpy()
    assert np.flatnonzero(np.isnan(loss)).tolist() == [7, 9]
    assert np.flatnonzero(np.isinf(loss)).tolist() == [11]


def test_labels_are_checked_before():
    x = ef.zeros((300, 77))
    for wrong in (77, -1):
        labels = np.zeros(300, int)
        labels[299] = wrong
        with pytest.raises(ef.errors.IndexRangeError, match=f"class {wrong} is out of range"):
            ef.sparse_softmax_cross_entropy(x, labels)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoid_cross_entropy(dtype, way):
    x = numbers(dtype)
    z = np.random.default_rng(5).uniform(0, 1, SIZE).astype(dtype)
    wide = np.where(np.isfinite(x), x, 0).astype("float64")
    wanted = np.logaddexp(0, wide) - wide * z
    wanted = np.where(np.isinf(x), math.inf, np.where(np.isnan(x), math.nan, wanted))
    found = ef.sigmoid_cross_entropy(ef.tensor(x), z).numpy()
    check_close(found, wanted, dtype)
    number = ef.sigmoid_cross_entropy(ef.tensor(x), 0.25).numpy()
    same = ef.sigmoid_cross_entropy(ef.tensor(x), np.full_like(z, 0.25)).numpy()
    np.testing.assert_array_equal(number, same)


# Dropout -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_factors_of_dropout_are_those_of_uniform_numbers(dtype, rate, way):
    state = np.array([2**64 - 3, 5, 7], np.uint64)
    drawn = ef.random.Generator(ef.tensor(state)).uniform((SIZE,)).numpy()
    wide = np.dtype("float64" if dtype == "float64" else "float32")
    factor = wide.type(1 / (1 - rate))
    wanted = np.where(drawn >= np.float32(rate), factor, 0)
    found = random_keep(ef.tensor(state), SIZE, rate, dtype)
    np.testing.assert_array_equal(found.numpy(), wanted.astype(found.dtype))
