"""Sums of many float32 numbers: the rounding error stays that of some hundred additions.

Equal numbers show it best: where each is added to the sum so far, all roundings go to one side, and
the sum of n numbers is off by up to n units in the last place.
"""

import functools

import numpy as np
import pytest

import eagerflow as ef

LIMIT = 1e-5  # relative; one float32 after the other is 1e-4 to 1e-2 off at these sizes

SUMS = {
    "all": lambda x: ef.sum(ef.tanh(x)),
    "all at once": lambda x: (ef.sum(ef.tanh(x)), ef.mean(x * x)),
    "axis 0": lambda x: ef.sum(x, axis=0),
    "axis 0 of a product": lambda x: ef.sum(ef.tanh(x) * x, axis=0),
    "last axis": lambda x: ef.sum(ef.tanh(x), axis=-1),
    "last axis, then all": lambda x: ef.mean(ef.sum(x * x, axis=-1)),
    "axis 0, then all": lambda x: ef.mean(ef.sum(x, axis=0)),
    "logsumexp, then all": lambda x: ef.mean(ef.logsumexp(x, axis=0)),
    "softmax, then axis 0": lambda x: ef.sum(ef.softmax(x, axis=-1), axis=0),
    "two sums": lambda x: (ef.mean(x * x, axis=0), ef.mean(x * x, axis=-1)),
}
SHAPES = [(600_000,), (2, 300_000), (300_000, 2), (100_000, 5), (40_000, 16), (6_000, 100)]


def results(function, x):
    found = function(x)
    return [np.asarray(v.numpy(), "f8") for v in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("way", ["eager", "captured"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_many_equal_numbers(name, shape, way):
    function = SUMS[name]
    x = np.full(shape, 0.2531, "f4")
    wanted = results(function, ef.tensor(x.astype("f8")))
    found = results(ef.function(function) if way == "captured" else function, ef.tensor(x))
    for one, right in zip(found, wanted, strict=True):
        assert one.shape == right.shape
        assert np.abs(one / right - 1).max() < LIMIT


@pytest.mark.parametrize("shape", [(4, 150_000, 3), (3, 7, 30_000), (64, 3_000, 4)], ids=str)
def test_sums_along_several_axes(shape):
    x = ef.tensor(np.full(shape, 0.2531, "f4"))
    for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2), None):
        mean = functools.partial(ef.mean, axis=axis)
        for found in (ef.function(lambda x, mean=mean: mean(ef.tanh(x)))(x), mean(ef.tanh(x))):
            assert np.abs(found.numpy() / np.tanh(np.float32(0.2531)) - 1).max() < LIMIT


@pytest.mark.parametrize("width", [5, 64, 1000, 4096, 70_000])
@pytest.mark.parametrize("value", [12345.678, 3.3e6, -255.0, 1e-3])
def test_rows_of_equal_numbers_have_no_variance(value, width):
    x = ef.tensor(np.full((3, width), value, "f4"))
    for function in (lambda x: ef.var(x, axis=-1), lambda x: ef.std(x, axis=1)):
        for found in (function(x), ef.function(function)(x)):
            assert np.abs(found.numpy()).max() <= 1e-6 * abs(value)


def test_variances_of_a_small_spread_around_a_large_mean():
    x = (1e4 + np.random.default_rng(3).standard_normal((4, 5000)) * 0.1).astype("f4")
    wanted = x.astype("f8").var(-1)
    for function in (lambda x: ef.var(x, axis=-1), lambda x: ef.std(x, axis=-1) ** 2):
        for found in (function(ef.tensor(x)), ef.function(function)(ef.tensor(x))):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", [(8, 4), (3, 300), (64, 128)])
def test_variances_beyond_the_largest_number_are_infinite(shape):
    """The correction for a rounded mean is infinite as well, and the difference would be NaN."""
    x = ef.tensor((np.random.default_rng(0).standard_normal(shape) * 1e31).astype("f4"))

    def scaled(x):
        return (x - x.mean(axis=-1, keepdims=True)) / ef.std(x, axis=-1, keepdims=True)

    for function, wanted in (
        (lambda x: ef.var(x, axis=-1) * 2.0, np.inf),
        (lambda x: ef.std(x, axis=-1) + 1.0, np.inf),
        (lambda x: scaled(x) * scaled(x[::-1]), 0.0),
    ):
        for found in (function(x), ef.function(function)(x)):
            np.testing.assert_array_equal(found, np.full(found.shape, wanted))
