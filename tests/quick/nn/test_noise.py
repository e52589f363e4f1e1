"""Layers that draw numbers in training: means, variances, which values share their fate, seeds."""

import numpy as np
import pytest

import eagerflow as ef

X = np.random.default_rng(0).normal(size=(200, 100)).astype("float32")


def disturbed(layer, x=X):
    return layer(ef.tensor(x), training=True).numpy()


def test_dropout_keeps_the_mean():
    layer, x = ef.nn.Dropout(0.3, seed=0), ef.tensor(X)
    assert layer(x) is x
    y = disturbed(layer)
    lost = y == 0
    assert lost.mean() == pytest.approx(0.3, abs=0.01)
    np.testing.assert_allclose(y[~lost], (X / 0.7)[~lost], rtol=1e-5)


def test_alpha_dropout_keeps_mean_and_variance():
    y = disturbed(ef.nn.AlphaDropout(0.3, seed=0))
    assert y.mean() == pytest.approx(0, abs=0.02)
    assert y.std() == pytest.approx(1, abs=0.02)
    values, counts = np.unique(y, return_counts=True)
    low = values[counts.argmax()]
    assert (y == low).mean() == pytest.approx(0.3, abs=0.01)
    rows = disturbed(ef.nn.AlphaDropout(0.5, noise_shape=(None, 1), seed=0)) == low
    assert all(row.all() or not row.any() for row in rows)


def test_gaussian_dropout_multiplies_and_gaussian_noise_adds():
    factors = disturbed(ef.nn.GaussianDropout(0.2, seed=0), np.ones_like(X))
    assert factors.mean() == pytest.approx(1, abs=0.01)
    assert factors.std() == pytest.approx(0.5, abs=0.01)
    added = disturbed(ef.nn.GaussianNoise(0.2, seed=0)) - X
    assert added.mean() == pytest.approx(0, abs=0.01)
    assert added.std() == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("layer", "shape", "space"),
    [
        (ef.nn.SpatialDropout1D(0.5, seed=0), (20, 5, 10), (1,)),
        (ef.nn.SpatialDropout2D(0.5, seed=0), (20, 5, 4, 10), (1, 2)),
        (ef.nn.SpatialDropout2D(0.5, "channels_first", 0), (20, 10, 5, 4), (2, 3)),
        (ef.nn.SpatialDropout3D(0.5, seed=0), (20, 3, 5, 4, 10), (1, 2, 3)),
        (ef.nn.SpatialDropout3D(0.5, "channels_first", 0), (20, 10, 3, 5, 4), (2, 3, 4)),
    ],
)
def test_spatial_dropout_drops_whole_channels(layer, shape, space):
    y = disturbed(layer, np.ones(shape, "float32"))
    assert set(np.unique(y)) == {0.0, 2.0}
    np.testing.assert_array_equal(y.min(space), y.max(space))
    assert (y.min(space) == 0).mean() == pytest.approx(0.5, abs=0.1)


NOISES = "Dropout AlphaDropout GaussianDropout GaussianNoise SpatialDropout1D".split()


@pytest.mark.parametrize("name", NOISES)
def test_seeds(name):
    """The same numbers with the same seed, others in the next call, and none outside training."""
    make = getattr(ef.nn, name)
    x = X.reshape(20, 10, 100)
    one, same = make(0.5, seed=1), make(0.5, seed=1)
    first = disturbed(one, x)
    np.testing.assert_array_equal(first, disturbed(same, x))
    assert (first != disturbed(one, x)).any()
    np.testing.assert_array_equal(one(ef.tensor(x)), x)
    np.testing.assert_array_equal(disturbed(make(0.0), x), x)
    step = ef.function(lambda x: same(x, training=True))
    assert (step(ef.tensor(x)) != step(ef.tensor(x))).any()


@pytest.mark.parametrize("name", NOISES)
def test_half_precision(name):
    layer = getattr(ef.nn, name)(0.5, dtype="mixed_bfloat16")
    assert layer(ef.ones((2, 3, 4)), training=True).dtype == ef.bfloat16


def test_activity_regularization_counts_for_each_example():
    layer = ef.nn.ActivityRegularization(l1=0.5, l2=0.25)
    with ef.nn.added_losses() as losses:
        layer(ef.tensor([[1.0, -2.0], [3.0, 0.0]]))
    assert losses[0].item() == pytest.approx((0.5 * 6 + 0.25 * 14) / 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ef.nn.Dropout(1.0), "1.0 is not a rate"),
        (lambda: ef.nn.AlphaDropout(-0.1), "-0.1 is not a rate"),
        (lambda: ef.nn.GaussianDropout("half"), "'half' is not a rate"),
        (lambda: ef.nn.GaussianNoise(1.5), "1.5 is not a spread"),
        (lambda: ef.nn.SpatialDropout2D(0.5, "channels"), "'channels' is not a format"),
        (lambda: ef.nn.ActivityRegularization(l1=-1.0), "-1.0 is not a factor"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        make()


def test_inputs_of_another_rank():
    with pytest.raises(ef.errors.ShapeError, match="SpatialDropout1D"):
        ef.nn.SpatialDropout1D(0.5)(ef.ones((2, 3)), training=True)
