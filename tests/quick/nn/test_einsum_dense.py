"""EinsumDense: free sizes, first values, and what it refuses."""

import numpy as np
import pytest

import eagerflow as ef


def test_like_dense():
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    dense, other = ef.nn.Dense(3), ef.nn.EinsumDense("ab,bc->ac", 3, bias_axes="c")
    dense(x), other(x)
    assert [w.shape for w in dense.weights] == [w.shape for w in other.weights]
    other.set_weights(dense.get_weights())
    np.testing.assert_allclose(other(x), dense(x), rtol=1e-6)


def test_free_lengths():
    layer = ef.nn.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d")
    symbol = ef.nn.Input((None, 4))
    model = ef.nn.Model(symbol, layer(symbol))
    for length in (2, 5):
        x = np.ones((2, length, 4), "float32")
        np.testing.assert_allclose(model(x), layer(x), rtol=1e-6)
    assert layer.compute_output_shape((None, 7, 4)) == (None, 7, 3)


def test_kernels_over_several_axes_begin_as_matrices():
    """Axes of inputs count as inputs and those of outputs as outputs, wherever they stand."""
    layer = ef.nn.EinsumDense("abc,dbc->ad", 40, kernel_initializer="he_normal")
    layer(ef.ones((1, 20, 30)))
    assert abs(np.std(layer.kernel.numpy()) / np.sqrt(2 / 600) - 1) < 0.03
    ones = lambda shape, dtype: ef.ones(shape)
    other = ef.nn.EinsumDense("ab,bc->ac", 3, kernel_initializer=ones)
    other(ef.ones((1, 2)))
    np.testing.assert_array_equal(other.kernel, np.ones((2, 3)))


@pytest.mark.parametrize(
    "equation", ["ab,bc", "ab,bc->", "a b,bc->ac", "...ab,bc->ac", "...ab...,bc->...ac...", 3]
)
def test_other_equations(equation):
    with pytest.raises(ef.errors.ArgumentError, match=r"(?s)equation.*is not an equation"):
        ef.nn.EinsumDense(equation, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ab,bc->ad", 3), "equation.*the axis 'd' from nowhere"),
        (("ab,bcd->ac", 3), "equation.*the axis 'd' from nowhere"),
        (("ab,bc->ac", 3, None, "b"), "bias_axes.*the axis 'b' from nowhere"),
        (("ab,bc->ac", (0,)), "output_shape.*not a shape"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(ef.errors.ArgumentError, match=f"(?s){words}"):
        ef.nn.EinsumDense(*arguments)


@pytest.mark.parametrize(
    ("arguments", "shape", "words"),
    [
        (("ab,bc->ac", 3), (2, 4, 5), "'ab,bc->ac' does not fit.*2 axes"),
        (("...abc,cd->...abd", 3), (2, 5), "at least 3 axes"),
        (("abc,cd->abd", 3), (2, 5, 4), "a size for each of the axes b, d"),
        (("abc,cd->abd", (6, 3)), (2, 5, 4), "axis 'b' has size 5 in inputs, 6 in output_shape"),
        (("ab,bc->ac", (None,)), (2, 4), "of a weight is not known"),
    ],
)
def test_bad_shapes(arguments, shape, words):
    with pytest.raises(ef.errors.ShapeError, match=f"(?s){words}"):
        ef.nn.EinsumDense(*arguments)(ef.ones(shape))


def test_inputs_of_another_rank():
    layer = ef.nn.EinsumDense("...x,xy->...y", 3)
    layer(ef.ones((2, 5, 4)))
    with pytest.raises(ef.errors.ShapeError, match="3 axes"):
        layer(ef.ones((2, 4)))
