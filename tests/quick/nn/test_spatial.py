"""Layers over signals, images and volumes: unknown sizes, mixed precision, masks, errors."""

import inspect
import re

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.masks import mask_of, set_mask
from tests.nn.cases import convolution, pooling, reshaping, resizing
from tests.nn.peers import keras_on_torch, torch

ROWS = [
    row
    for module in (convolution, pooling, reshaping, resizing)
    for row in module.CASES
    if not row.call and not row.kwargs.keys() & {"crop_to_aspect_ratio", "pad_to_aspect_ratio"}
]
DEPENDENT = (((8, 3, -1),), (8, 4), (9, 9))
by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
nn = ef.nn


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def agree(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def made(row, **more):
    return getattr(nn, row.cls)(*row.args, **row.kwargs, **more)


@pytest.mark.sampled(2)
@by_row
def test_sizes_that_are_not_known(row):
    """One graph for all sizes gives what the layer gives at once, and its gradient."""
    layer, (x,) = made(row), row.arrays()
    if row.cls in ("Reshape", "CenterCrop") and row.args in DEPENDENT:
        pytest.skip("what it does depends on the sizes")
    y = layer(x)
    free = [ef.Dim(f"n{i}") for i in range(x.ndim - 1)]
    spec = ef.TensorSpec((*free, x.shape[-1]), x.dtype.name)
    agree(ef.capture.trace(layer, spec)(ef.tensor(x)), y, 1e-5)
    assert layer.compute_output_shape(x.shape) == y.shape

    def gradient(x):
        with ef.GradientTape() as tape:
            tape.watch(x)
            loss = ef.sum(layer(x) ** 2)
        return tape.gradient(loss, x)

    if row.gradients:
        right = gradient(ef.tensor(x))
        agree(ef.capture.trace(gradient, spec)(ef.tensor(x)), right, 1e-4)


@by_row
def test_mixed_precision(row):
    """Weights in float32, all else in bfloat16; what comes out is what float32 gives, roughly."""
    layer, x = made(row, dtype="mixed_bfloat16"), ef.tensor(row.arrays()[0])
    right = made(row)
    y = layer(x)
    right(x)
    right.set_weights(layer.get_weights())
    assert {w.dtype.name for w in layer.weights} <= {"float32"}
    if row.arrays()[0].dtype.kind == "f":
        assert y.dtype.name == "bfloat16"
    error = np.abs(y.astype("float32").numpy() - right(x).astype("float32").numpy())
    assert error.max() <= 0.03 * max(1, np.abs(right(x).numpy()).max())


def test_masks_of_steps():
    x = ef.tensor(random(2, 4, 3))
    mask = np.array([[True, True, False, False], [True, False, True, True]])
    set_mask(x, ef.tensor(mask))
    for kept in (False, True):
        y = nn.GlobalAveragePooling1D(keepdims=kept)(x).numpy().reshape(2, 3)
        means = [row[keep].mean(0) for row, keep in zip(x.numpy(), mask, strict=True)]
        np.testing.assert_allclose(y, means, 1e-5, 1e-6)
    y = nn.GlobalAveragePooling1D()(x.numpy(), mask=mask.astype("int32"))
    np.testing.assert_allclose(y, means, 1e-5, 1e-6)
    for layer in (
        *(nn.Flatten(), nn.Reshape((12,)), nn.Permute((2, 1)), nn.Cropping1D(1)),
        *(nn.Conv1D(2, 2), nn.MaxPooling1D(2), nn.GlobalMaxPooling1D(), nn.UpSampling1D(2)),
    ):
        assert mask_of(layer(x)) is None
    assert mask_of(nn.Rescaling(2.0)(x)) is not None


def test_causal_convolution_does_not_see_the_future():
    layer, x = nn.Conv1D(2, 3, padding="causal", dilation_rate=2), random(1, 8, 3)
    before = layer(x).numpy()
    x[:, 5:] = 0
    np.testing.assert_array_equal(layer(x).numpy()[:, :5], before[:, :5])


def test_transposed_convolution_is_the_transpose():
    """<conv(x), y> = <x, transposed(y)> with the same kernel."""
    x, y = random(1, 6, 6, 2), random(1, 3, 3, 4)
    there = nn.Conv2D(4, 2, 2, use_bias=False)
    back = nn.Conv2DTranspose(2, 2, 2, use_bias=False)
    back(y)
    there(x)
    back.set_weights(there.get_weights())
    np.testing.assert_allclose((there(x).numpy() * y).sum(), (x * back(y).numpy()).sum(), 1e-4)


@pytest.mark.parametrize(("layer", "dtype"), [
    (nn.UpSampling2D(2), "int32"), (nn.UpSampling3D(2), "int8"), (nn.Resizing(3, 2), "uint8"),
    (nn.Resizing(3, 2, "bicubic"), "int64"), (nn.Resizing(3, 2, "nearest"), "bool"),
    (nn.Cropping2D(1), "int32"), (nn.ZeroPadding2D(1), "uint8"),
    (nn.Permute((3, 2, 1)), "int16"), (nn.RepeatVector(2), "int32"),
])  # fmt: skip
def test_integers_stay_integers(layer, dtype):
    rank = {"RepeatVector": 2, "UpSampling3D": 5}.get(type(layer).__name__, 4)
    x = ef.ones((2,) + (4,) * (rank - 1), dtype)
    assert layer(x).dtype.name == dtype


def test_resizing_integers_rounds_and_saturates():
    x = np.array([0, 0, 255, 255], "uint8").reshape(1, 4, 1, 1)
    y = nn.Resizing(8, 1, "bicubic")(x).numpy().ravel()
    exact = np.asarray(ef.resize(x.astype("float32"), (8, 1), "bicubic")).ravel()
    assert exact.min() < 0 and exact.max() > 255
    np.testing.assert_array_equal(y, exact.round().clip(0, 255))


def test_single_images():
    x = random(5, 6, 3)
    for layer in (nn.Resizing(3, 4), nn.CenterCrop(3, 4), nn.CenterCrop(7, 4)):
        np.testing.assert_array_equal(layer(x), layer(x[None])[0])


def test_arrays_of_factors_are_part_of_the_configuration():
    layer = nn.Rescaling(np.array([1.0, 2.0]), np.float32(0.5))
    again = nn.Rescaling.from_config(layer.get_config())
    np.testing.assert_array_equal(again(np.ones((1, 2))), [[1.5, 2.5]])


def test_the_mean_of_nothing_infinite_is_finite():
    """Elements with no weight do not count, even where they are infinite."""
    x = np.array([1.0, 2.0, np.inf, 4.0], "float32").reshape(1, 4, 1)
    y = nn.AdaptiveAveragePooling1D(2)(x).numpy().ravel()
    np.testing.assert_array_equal(y, [1.5, np.inf])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cells_are_those_of_pytorch(rank):
    """Of Keras with JAX some are too large, where single precision rounds their ends up."""
    for cells in [(7, 5, 3)[:rank], (2, 7, 4)[:rank]]:
        x = random(2, *(7, 6, 8)[:rank], 3)
        channels_first = torch.from_numpy(np.moveaxis(x, -1, 1).copy())
        for here, there in (("Average", "avg"), ("Max", "max")):
            y = getattr(nn, f"Adaptive{here}Pooling{rank}D")(cells)(x)
            pool = getattr(torch.nn.functional, f"adaptive_{there}_pool{rank}d")
            right = np.moveaxis(pool(channels_first, cells).numpy(), 1, -1)
            np.testing.assert_allclose(y, right, 1e-4, 1e-5)


def test_arguments_have_the_order_of_keras():
    keras = keras_on_torch()
    common = {"name", "dtype", "trainable", "activity_regularizer", "kwargs"}
    for name in {row.cls for row in ROWS}:
        ours = [p for p in inspect.signature(getattr(nn, name)).parameters if p not in common]
        theirs = inspect.signature(getattr(keras.layers, name)).parameters
        there = [p for p in theirs if p not in common]
        if "data_format" not in there and "data_format" in ours:
            ours.remove("data_format")
        assert ours == there, name


X = {rank: random(2, *(5,) * rank, 3) for rank in (1, 2, 3)}
BAD_ARGUMENTS = [
    (lambda: nn.Conv1D(2, (3, 3)), "kernel_size: (3, 3) is not 1 numbers"),
    (lambda: nn.Conv2D(2, (3, 0)), "kernel_size: (3, 0) is out of range"),
    (lambda: nn.Conv2D(2, 3, strides=(1, 1, 1)), "strides: (1, 1, 1) is not 2 numbers"),
    (lambda: nn.Conv3D(2, 3, dilation_rate=0), "dilation_rate: 0 is out of range"),
    (lambda: nn.Conv2D(2, 2.5), "kernel_size: 2.5 is out of range"),
    (lambda: nn.Conv2D(2, 3, padding="causal"), "padding: 'causal' is not a padding"),
    (lambda: nn.Conv1D(2, 3, padding=1), "'valid' or 'same' or 'causal'"),
    (lambda: nn.Conv2D(2, 3, data_format="channels_first"), "data_format: 'channels_first' is not"),
    (lambda: nn.Conv2D(3, 3, groups=2), "groups: 3 filters cannot be cut"),
    (lambda: nn.Conv2DTranspose(2, 3, 2, output_padding=2), "output_padding: (2, 2) is too much"),
    (lambda: nn.Conv1DTranspose(2, 3, output_padding=-1), "output_padding: -1 is out of range"),
    (lambda: nn.DepthwiseConv2D(3, depth_multiplier=0), "depth_multiplier: 0 is out of range"),
    (lambda: nn.SeparableConv2D(0, 3), "filters: 0 is out of range"),
    (lambda: nn.MaxPooling3D((2, 2)), "pool_size: (2, 2) is not 3 numbers"),
    (lambda: nn.AveragePooling2D(2, padding="full"), "padding: 'full' is not a padding"),
    (lambda: nn.AdaptiveMaxPooling2D(0), "output_size: 0 is out of range"),
    (lambda: nn.Permute((0, 1)), "dims: (0, 1) is not an order of axes"),
    (lambda: nn.Permute((1, 3)), "dims: (1, 3) is not an order of axes"),
    (lambda: nn.Permute(1), "dims: 1 is not an order of axes"),
    (lambda: nn.RepeatVector(0), "n: 0 is out of range"),
    (lambda: nn.Cropping2D(-1), "cropping: -1 is out of range"),
    (lambda: nn.Cropping2D((1, 2, 3)), "cropping: (1, 2, 3) is not for each spatial axis"),
    (lambda: nn.ZeroPadding1D((1, 2, 3)), "padding: (1, 2, 3) is not 2 numbers"),
    (lambda: nn.UpSampling1D(0.5), "size: 0.5 is out of range"),
    (lambda: nn.UpSampling2D(2, interpolation="cubic"), "interpolation: 'cubic' is not a method"),
    (lambda: nn.Resizing(0, 2), "height: 0 is out of range"),
    (lambda: nn.Resizing(2, 2, fill_mode="wrap"), "fill_mode: 'wrap' is not a way to fill"),
    (lambda: nn.Resizing(2, 2, "nearest", True, True), "expected: one of the two"),
]
BAD_INPUTS = [
    (lambda: nn.Conv1D(2, 3)(X[2]), "(batch, steps, channels)"),
    (lambda: nn.Conv2D(2, 3)(X[1]), "x[..., None] for one channel"),
    (lambda: nn.Conv3D(2, 3)(X[1]), "(batch, planes, rows, columns, channels)"),
    (lambda: nn.Conv2D(2, 3, groups=2)(X[2]), "channels a multiple of 2"),
    (lambda: nn.Conv2D(2, 6)(X[2]), "does not fit into 5"),
    (lambda: nn.Conv2D(2, 3)(nn.Input((5, 5, None))), "(batch, rows, columns, channels)"),
    (lambda: nn.DepthwiseConv2D(3)(X[1]), "(batch, rows, columns, channels)"),
    (lambda: nn.MaxPooling1D(2)(X[2]), "3 axes"),
    (lambda: nn.MaxPooling2D(6)(X[2]), "does not fit into 5"),
    (lambda: nn.GlobalMaxPooling3D()(X[2]), "5 axes"),
    (lambda: nn.AdaptiveAveragePooling1D(2)(X[2]), "3 axes"),
    (lambda: nn.Permute((2, 1))(X[2]), "3 axes"),
    (lambda: nn.RepeatVector(2)(X[1]), "2 axes"),
    (lambda: nn.Cropping1D((2, 3))(X[1]), "nothing is left of the input"),
    (lambda: nn.UpSampling2D()(X[1]), "4 axes"),
    (lambda: nn.Resizing(2, 2)(X[3]), "4 axes"),
    (lambda: nn.CenterCrop(2, 2)(random(4, 4)), "4 axes"),
]


@pytest.mark.parametrize(("call", "words"), BAD_ARGUMENTS, ids=lambda x: x if x is str(x) else "")
def test_arguments_that_are_refused(call, words):
    with pytest.raises(ef.errors.ArgumentError, match=re.escape(words)):
        call()


@pytest.mark.parametrize(("call", "words"), BAD_INPUTS, ids=lambda x: x if x is str(x) else "")
def test_inputs_that_are_refused(call, words):
    with pytest.raises(ef.errors.ShapeError, match=re.escape(words)):
        call()
