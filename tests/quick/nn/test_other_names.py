"""Second names, as Keras has them: the same objects, and texts that stand for them."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import constraints, initializers, losses, metrics, regularizers
from eagerflow.nn.layers import aliases


def full(name):
    """``AvgPool2D`` as ``AveragePooling2D``."""
    for short, long in (("Convolution", "Conv"), ("Pool", "Pooling"), ("Avg", "Average")):
        name = name.replace(short, long)
    return name


NAMES = [
    *((ef.nn, name, full(name)) for name in aliases.__all__),
    (regularizers, "l1 l2 l1_l2 orthogonal_regularizer", "L1 L2 L1L2 OrthogonalRegularizer"),
    (constraints, "max_norm min_max_norm non_neg unit_norm", "MaxNorm MinMaxNorm NonNeg UnitNorm"),
    (initializers, "zeros ones he_normal glorot_uniform", "Zeros Ones HeNormal GlorotUniform"),
    (initializers, "stft variance_scaling orthogonal", "STFT VarianceScaling Orthogonal"),
]


@pytest.mark.parametrize(("module", "other", "own"), NAMES)
def test_a_second_name_is_the_same_class(module, other, own):
    for a, b in zip(other.split(), own.split(), strict=True):
        assert getattr(module, a) is getattr(module, b)
        assert a in module.__all__


def test_losses_among_metrics():
    functions = [name for name in metrics.__all__ if name.islower() and name in losses.__all__]
    assert len(functions) > 15
    for name in set(functions) - {"get"}:
        assert getattr(metrics, name) is getattr(losses, name)


def test_variables_are_the_weights():
    layer = ef.nn.BatchNormalization()
    layer.build((None, 2))
    for kind in ("", "trainable_", "non_trainable_"):
        own, other = (getattr(layer, f"{kind}{word}") for word in ("weights", "variables"))
        assert list(map(id, own)) == list(map(id, other)) != []


P = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], np.float32)


@pytest.mark.parametrize("name", ["crossentropy", "ce"])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "loss"),
    [
        ([1, 0], P, "sparse_categorical_crossentropy"),
        ([[1], [0]], P, "sparse_categorical_crossentropy"),
        ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], P, "categorical_crossentropy"),
        ([1.0, 0.0], P[:, :1], "binary_crossentropy"),
    ],
)
def test_the_crossentropy_is_that_of_the_shapes(name, y_true, y_pred, loss):
    found = losses.get(name)(ef.tensor(y_true), ef.tensor(y_pred))
    assert float(found) == float(losses.get(loss)(ef.tensor(y_true), ef.tensor(y_pred)))


def test_inputs_with_the_batch_axis():
    assert ef.nn.Input(batch_shape=(3, 4)).shape == (3, 4)
    x = ef.nn.Input(batch_shape=(None, None, 2))
    assert [isinstance(size, int) for size in x.shape] == [False, False, True]
    with pytest.raises(ef.errors.ArgumentError, match="Input: shape: two shapes"):
        ef.nn.Input((4,), batch_shape=(None, 4))
