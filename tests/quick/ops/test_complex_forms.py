"""Ops of floats that take complex numbers, too, against SciPy, NumPy and what they consist of."""

import numpy as np
import pytest
from scipy import special

import eagerflow as ef

RNG = np.random.default_rng(14)
X = RNG.standard_normal((6, 40)) * 3 + RNG.standard_normal((6, 40)) * 3j
LARGE = RNG.standard_normal((64, 64)) + RNG.standard_normal((64, 64)) * 1j


@pytest.mark.parametrize("x", [X, LARGE], ids=["few", "many"])
@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (ef.var, lambda x: np.var(x, axis=1)),
        (ef.std, lambda x: np.std(x, axis=1)),
        (ef.logsumexp, lambda x: special.logsumexp(x, axis=1)),
        (ef.softmax, lambda x: special.softmax(x, axis=1)),
    ],
)
def test_rows(function, reference, x):
    for call in (lambda x: function(x, axis=1), ef.function(lambda x: function(x, axis=1))):
        found = call(ef.tensor(x))
        assert found.dtype == reference(x).dtype
        np.testing.assert_allclose(np.asarray(found), reference(x), rtol=1e-12, atol=1e-14)


def test_nothing_overflows():
    far = ef.tensor([-1000 + 1j, 1000 + 1j, -1000 - 2j, 1000.0 + 3j])
    np.testing.assert_allclose(np.asarray(ef.sigmoid(far)), [0, 1, 0, 1], atol=1e-6)
    found = np.asarray(ef.softmax(ef.tensor([1000 + 1j, 1000 + 2j])))
    np.testing.assert_allclose(found, special.softmax(np.array([1j, 2j])), rtol=1e-6)
    assert np.asarray(ef.logsumexp(far)).real == pytest.approx(1000, abs=1)
    found = np.asarray(ef.log_softmax(ef.tensor([1000 + 1j, -1000 + 1j])))
    np.testing.assert_allclose(found, [0, -2000], atol=1e-6)
    found = np.asarray(ef.logaddexp(far[:2], far[2:]))
    expected = [-1000 + np.log(np.exp(1j) + np.exp(-2j)), 1000 + np.log(np.exp(1j) + np.exp(3j))]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    gradient = ef.grad(lambda x: ef.real(ef.logaddexp(x, -x)).sum())(far)
    np.testing.assert_allclose(np.asarray(gradient), [-1, 1, -1, 1], atol=1e-6)


def test_powers_of_two_are_exact_and_have_limits():
    powers = np.asarray(ef.exp2(ef.tensor(np.array([3, -4, 900], "complex128"))))
    np.testing.assert_array_equal(powers, [8, 2.0**-4, 2.0**900])
    ends = np.asarray(ef.exp2(ef.tensor([complex(-np.inf, 0), complex(np.inf, 0)])))
    np.testing.assert_array_equal(ends, [0, complex(np.inf, 0)])


def test_the_logarithm_of_a_sum_is_the_principal_one():
    x = np.array([0.3 + 9j, -0.2 - 7j])
    found = complex(np.asarray(ef.logsumexp(ef.tensor(x))))
    assert abs(found - np.log(np.exp(x).sum())) < 1e-12
    pair = complex(np.asarray(ef.logaddexp(ef.tensor(x[0]), ef.tensor(x[1]))))
    assert abs(found - pair) < 1e-12


def test_convolution_is_that_of_its_parts():
    def drawn(*shape):
        return RNG.standard_normal(shape) + RNG.standard_normal(shape) * 1j

    x, w = drawn(2, 17, 16, 16), drawn(3, 3, 16, 32)
    of_parts = [
        [np.asarray(ef.conv(ef.tensor(a), ef.tensor(b))) for b in (w.real, w.imag)]
        for a in (x.real, x.imag)
    ]
    expected = of_parts[0][0] - of_parts[1][1] + (of_parts[0][1] + of_parts[1][0]) * 1j
    for call in (ef.conv, ef.function(lambda x, w: ef.conv(x, w))):
        found = call(ef.tensor(x), ef.tensor(w))
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-9)
    # What leads back is the transpose, without a conjugate.
    g = drawn(2, 17, 16, 32)
    back = np.asarray(ef.conv_transpose(ef.tensor(g), ef.tensor(w)))
    assert abs((back * x).sum() - (g * expected).sum()) < 1e-8


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_nanvar_and_nanstd_ignore_nan(dtype):
    x = X.astype(dtype)
    x[:, 3] = np.nan
    kept = np.delete(x, 3, axis=1)
    found = ef.nanvar(ef.tensor(x), axis=1, correction=1)
    np.testing.assert_allclose(np.asarray(found), np.var(kept, axis=1, ddof=1), rtol=1e-5)
    found = ef.nanstd(ef.tensor(x), axis=1)
    np.testing.assert_allclose(np.asarray(found), np.std(kept, axis=1), rtol=1e-5)
