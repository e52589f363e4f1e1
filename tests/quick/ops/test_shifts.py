"""Functions of differences: a number that is added to all of a row changes no gradient.

Elements are small integers and the number is a power of two, so that every sum is exact. What a
formula loses beside a large number, such as the logarithm in a log-sum-exp, shows here.
"""

import numpy as np
import pytest

import eagerflow as ef

SHIFTS = [2.0**20, -(2.0**20)]
SIZES = [(3, 5), (4, 700)]
LABELS = np.array([2, 0, 4, 1])


def integers(*shape):
    return np.random.default_rng(3).integers(-4, 5, shape).astype("float32")


def shares(x):
    """Numbers that add up to 1 in each row."""
    powers = np.exp(integers(*x.shape) / 4)
    return (powers / powers.sum(-1, keepdims=True)).astype("float32")


FUNCTIONS = {
    "softmax": lambda x: ef.softmax(x, axis=-1),
    "log_softmax": lambda x: ef.log_softmax(x, axis=-1),
    "logsumexp": lambda x: ef.logsumexp(x, axis=-1) - x[:, 0],
    "logsumexp_of_columns": lambda x: ef.logsumexp(x, axis=0) - x[0],
    "logsumexp_of_all": lambda x: ef.logsumexp(x) - x[0, 0],
    "logaddexp": lambda x: ef.logaddexp(x, x[:, ::-1]) - x[:, :1],
    "log_of_sum_of_exponentials": lambda x: ef.log(ef.sum(ef.exp(x - ef.max(x)), axis=-1)),
    "cross_entropy": lambda x: ef.cross_entropy(x, LABELS[: x.shape[0]]),
    "sparse_softmax_cross_entropy": lambda x: ef.sparse_softmax_cross_entropy(
        x, LABELS[: x.shape[0]]
    ),
    "softmax_cross_entropy": lambda x: ef.softmax_cross_entropy(x, shares(x)),
    "diff": lambda x: ef.diff(x, axis=-1) ** 2,
    "sigmoid_of_differences": lambda x: ef.sigmoid(x - x[:, :1]),
}


def gradient(function, x, shift):
    """The gradient of a weighted sum of results at ``x + shift``."""
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = function(x + shift)
        weights = np.random.default_rng(5).normal(size=y.shape).astype("float32")
        loss = ef.sum(y * weights)
    return tape.gradient(loss, x)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_shift_changes_no_gradient(name, shape, captured):
    x = ef.tensor(integers(*shape))

    def function(x, shift):
        return gradient(FUNCTIONS[name], x, shift)

    function = ef.function(function) if captured else function
    expected = np.asarray(function(x, ef.tensor(0.0)))
    for shift in SHIFTS:
        found = np.asarray(function(x, ef.tensor(shift)))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * abs(expected).max())


def expected_gradients(q, k, v, g, bias, is_causal):
    """The definition in float64, from scores that are rounded once the bias is added."""
    seen = np.tri(q.shape[2], k.shape[2], dtype=bool) if is_causal else True
    scores = (q @ k.swapaxes(2, 3) + bias).astype(q.dtype).astype("float64")
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slopes = g.astype("float64") @ v.swapaxes(2, 3)
    slopes = weights * (slopes - (slopes * weights).sum(-1, keepdims=True))
    return slopes @ k, slopes.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ g


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("keys", ["of one example", "at the left", "by query"])
@pytest.mark.parametrize("shape", [(2, 1, 3, 4), (2, 2, 45, 20)], ids=str)
@pytest.mark.parametrize("bias", [2.0**14, -1e9, float(np.finfo("float32").min)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_queries_all_of_whose_keys_are_biased(dtype, bias, shape, keys, is_causal):
    rng = np.random.default_rng(7)
    arrays = [(rng.integers(-4, 5, shape) / 4).astype(dtype) for _ in range(4)]
    biases = np.zeros((shape[0], 1, shape[2], shape[2]), dtype)
    chosen = {
        "of one example": np.s_[:1],
        "at the left": np.s_[..., : shape[2] // 2],
        "by query": np.s_[:, :, 1::2],
    }
    biases[chosen[keys]] = bias
    expected = expected_gradients(*arrays, biases, is_causal)

    def gradients(q, k, v, g, mask):
        with ef.GradientTape() as tape:
            for x in (q, k, v):
                tape.watch(x)
            y = ef.dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=1.0)
            loss = ef.sum(y * g)
        return tape.gradient(loss, [q, k, v])

    given = [ef.tensor(a) for a in (*arrays, biases)]
    for function in (gradients, ef.function(gradients)):
        for a, b in zip(function(*given), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * abs(b).max())
