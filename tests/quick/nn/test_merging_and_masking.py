"""Merging layers with masks, the functions of the same names, Masking, Lambda and Softmax."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.masks import mask_of, set_mask
from tests.nn.peers import keras_on_torch

rng = np.random.default_rng(0)
A, B, C = (rng.normal(size=(2, 3, 4)).astype("float32") for _ in range(3))
MASKS = [rng.random((2, 3)) < 0.5 for _ in range(3)]
EVERY = ["Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract", "Dot"]


def masked(x, mask):
    tensor = ef.tensor(x)
    set_mask(tensor, None if mask is None else ef.tensor(mask))
    return tensor


@pytest.mark.parametrize("masks", [MASKS, [MASKS[0], None, MASKS[2]], [None, MASKS[1], None]])
@pytest.mark.parametrize("name", EVERY)
def test_masks_are_those_of_keras(name, masks):
    keras = keras_on_torch()
    arrays = [A, B] if name in ("Subtract", "Dot") else [A, B, C]
    args = (2,) if name == "Dot" else ()
    ours, theirs = (getattr(n, name)(*args) for n in (ef.nn, keras.layers))
    given = [keras.ops.convert_to_tensor(x) for x in arrays]
    for x, mask in zip(given, masks, strict=False):
        if mask is not None:
            keras.src.backend.set_keras_mask(x, keras.ops.convert_to_tensor(mask))
    wanted = theirs(given)
    found = ours([masked(x, mask) for x, mask in zip(arrays, masks, strict=False)])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    mask = keras.src.backend.get_keras_mask(wanted)
    if mask is None:
        assert mask_of(found) is None
    else:
        np.testing.assert_array_equal(mask_of(found), mask)


def test_masked_values_are_ignored_in_maximum():
    x, y = masked([[[5.0], [5.0]]], [[True, False]]), masked([[[1.0], [1.0]]], [[True, True]])
    np.testing.assert_array_equal(ef.nn.Maximum()([x, y]), [[[5.0], [1.0]]])
    np.testing.assert_array_equal(ef.nn.Multiply()([x, y]), [[[5.0], [1.0]]])
    layer = ef.nn.Maximum()
    captured = ef.function(lambda x, y, mask: layer([x, y], mask=[mask, None]))
    mask = ef.tensor([[True, False]])
    np.testing.assert_array_equal(captured(ef.tensor(x), ef.tensor(y), mask), [[[5.0], [1.0]]])


def test_concatenated_steps_keep_their_masks():
    x, y = masked(A, MASKS[0]), masked(B, None)
    found = ef.nn.Concatenate(axis=1)([x, y])
    wanted = np.concatenate([MASKS[0], np.ones((2, 3), bool)], 1)
    np.testing.assert_array_equal(mask_of(found), wanted)


@pytest.mark.parametrize("name", EVERY)
def test_functions(name):
    arrays = [ef.tensor(x) for x in (A, B)]
    args = (2,) if name == "Dot" else ()
    layer, function = getattr(ef.nn, name)(*args), getattr(ef.nn, name.lower())
    np.testing.assert_array_equal(function(arrays, *args, name="merged"), layer(arrays))


def test_functions_make_models():
    x, y = ef.nn.Input((3,)), ef.nn.Input((3,))
    model = ef.nn.Model([x, y], ef.nn.concatenate([ef.nn.add([x, y]), ef.nn.dot([x, y], 1)]))
    np.testing.assert_array_equal(model([ef.ones((2, 3)), ef.ones((2, 3))]), [[2, 2, 2, 3]] * 2)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.nn.Add()(ef.ones((2, 3))), "Shape", "takes a list of tensors"),
    (lambda: ef.nn.Add()([]), "Shape", "takes a list of tensors"),
    (lambda: ef.nn.Subtract()([ef.ones((2, 3))]), "Shape", "a list of 2"),
    (lambda: ef.nn.Add()([ef.ones((2, 3)), ef.ones((2, 4))]), "Shape", "do not fit together"),
    (lambda: ef.nn.Concatenate()([ef.ones((2, 3)), ef.ones((3, 3))]),
     *("Shape", "do not fit together")),
    (lambda: ef.nn.Dot(1)([ef.ones((2, 3)), ef.ones((2, 4))]), "Shape", "do not fit together"),
    (lambda: ef.nn.Dot(0)([ef.ones((2, 3)), ef.ones((2, 3))]), "Argument", "axis of examples"),
    (lambda: ef.nn.Dot("last"), "Argument", "'last' is not an axis"),
    (lambda: ef.nn.Dot((1, 2, 3)), "Argument", "is not an axis"),
    (lambda: ef.nn.ReLU(max_value=-1.0), "Argument", "-1.0 is negative"),
    (lambda: ef.nn.LeakyReLU(-0.1), "Argument", "-0.1 is negative"),
    (lambda: ef.nn.Lambda("sqare"), "Argument", "'sqare' is not a function"),
    (lambda: ef.nn.Lambda(lambda x: x).get_config(), "Argument", "a Python function"),
])  # fmt: skip
def test_errors_state_the_expected_argument(call, error, words):
    with pytest.raises(getattr(ef.errors, f"{error}Error"), match=words):
        call()


# Masking and Lambda -------------------------------------------------------------------------------


def test_masking_masks_in_models_and_captured():
    x = np.array([[[1, 2], [-1, -1], [-1, 0]]], "float32")
    layer = ef.nn.Masking(-1.0)
    wanted = np.array([[True, False, True]])
    np.testing.assert_array_equal(mask_of(layer(ef.tensor(x))), wanted)
    np.testing.assert_array_equal(layer(ef.tensor(x)), x * wanted[..., None])

    class Count(ef.nn.Layer):
        def call(self, inputs, mask=None):
            return ef.sum(mask.astype("float32"), axis=-1)

    model = ef.nn.Sequential([layer, ef.nn.Identity(), ef.nn.Activation("tanh"), Count()])
    assert model(ef.tensor(x)).tolist() == [2]
    assert ef.function(model)(ef.tensor(x)).tolist() == [2]


def test_lambda_passes_the_arguments_the_function_accepts():
    def scaled(x, by, mask=None, training=False):
        return x * by + (0.0 if mask is None else 10.0) + (100.0 if training else 0.0)

    layer = ef.nn.Lambda(scaled, arguments={"by": 3.0})
    x = ef.ones((1, 2))
    assert layer(x).tolist() == [[3, 3]]
    assert layer(x, training=True).tolist() == [[103, 103]]
    assert layer(masked(np.ones((1, 2)), [True])).tolist() == [[13, 13]]
    assert "scaled" in repr(layer)


def test_masks_of_a_lambda():
    x = masked(A, MASKS[0])
    assert mask_of(ef.nn.Lambda(ef.square)(x)) is None
    turned = ef.nn.Lambda(ef.square, mask=lambda inputs, mask: ef.logical_not(mask))
    np.testing.assert_array_equal(mask_of(turned(x)), ~MASKS[0])
    fixed = ef.nn.Lambda(ef.square, mask=ef.tensor(MASKS[1]))
    np.testing.assert_array_equal(mask_of(fixed(ef.tensor(A))), MASKS[1])


def test_shape_of_a_lambda():
    assert ef.nn.Lambda(lambda x: x[:, :2]).compute_output_shape((None, 4)) == (None, 2)
    assert ef.nn.Lambda(len, output_shape=(7,)).compute_output_shape((None, 4)) == (None, 7)
    given = ef.nn.Lambda(len, output_shape=lambda shape: (*shape, 1))
    assert given.compute_output_shape((None, 4)) == (None, 4, 1)


def test_softmax_with_a_mask_in_half_precision():
    x = ef.tensor([[1.0, 2.0, 3.0]], dtype="float16")
    found = ef.nn.Softmax(dtype="float16")(x, mask=ef.tensor([[True, False, True]]))
    np.testing.assert_allclose(found, [[0.1192, 0, 0.8808]], atol=1e-3)
