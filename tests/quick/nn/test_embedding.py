"""Embeddings: first values, masks, dtypes, gradients, and what they refuse."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.masks import mask_of

TABLE = np.arange(10, dtype="float32").reshape(5, 2)


@pytest.mark.parametrize("weights", [TABLE, [TABLE], TABLE.tolist(), ef.tensor(TABLE)])
def test_first_values(weights):
    layer = ef.nn.Embedding(5, 2, weights=weights)
    np.testing.assert_array_equal(layer(np.array([[4, 0]])), [[TABLE[4], TABLE[0]]])
    assert "weights" not in layer.get_config()


def test_first_values_are_a_copy():
    table = TABLE.copy()
    layer = ef.nn.Embedding(5, 2, weights=table)
    layer(np.array([[0]]))
    layer.embeddings.assign(ef.zeros((5, 2)))
    np.testing.assert_array_equal(table, TABLE)


def test_first_values_of_both_kernels():
    layer = ef.nn.ReversibleEmbedding(5, 2, tie_weights=False, weights=TABLE)
    layer(np.array([[0]]))
    names = [w.name.rpartition("/")[2] for w in layer.weights]
    assert names == ["embeddings", "reverse_embeddings"]
    np.testing.assert_array_equal(layer.embeddings, TABLE)
    assert layer.reverse_embeddings.shape == (2, 5)


@pytest.mark.parametrize("cls", ["Embedding", "ReversibleEmbedding"])
def test_masks(cls):
    layer = getattr(ef.nn, cls)(5, 2, mask_zero=True)
    words = np.array([[1, 0, 2], [0, 0, 0]])
    np.testing.assert_array_equal(mask_of(layer(words)), words != 0)
    assert mask_of(getattr(ef.nn, cls)(5, 2)(words)) is None


def test_scores_have_no_mask():
    layer = ef.nn.ReversibleEmbedding(5, 2, mask_zero=True)
    vectors = layer(np.array([[1, 0, 2]]))
    assert mask_of(vectors) is not None
    assert mask_of(layer(vectors, reverse=True)) is None


def test_integers_of_any_kind_and_whole_floats():
    layer = ef.nn.Embedding(5, 2, weights=TABLE)
    for dtype in ("int8", "uint8", "int32", "int64", "float32"):
        np.testing.assert_array_equal(layer(np.array([3, 1], dtype)), TABLE[[3, 1]])
    assert layer(np.zeros((2, 3, 4), int)).shape == (2, 3, 4, 2)


def test_mixed_dtypes():
    layer = ef.nn.ReversibleEmbedding(5, 2, dtype="mixed_bfloat16", reverse_dtype="float32")
    vectors = layer(np.array([[1, 2]]))
    assert vectors.dtype.name == "bfloat16"
    assert layer(vectors, reverse=True).dtype.name == "float32"
    assert layer.embeddings.dtype.name == "float32"


def test_gradients_add_up_where_integers_repeat():
    layer = ef.nn.Embedding(5, 2, weights=TABLE)
    words = ef.tensor([[1, 1, 4]])

    def gradient(words):
        with ef.GradientTape() as tape:
            loss = ef.sum(layer(words))
        return tape.gradient(loss, layer.embeddings)

    right = np.array([[0, 0], [2, 2], [0, 0], [0, 0], [1, 1]], "float32")
    layer(words)
    np.testing.assert_array_equal(gradient(words), right)
    np.testing.assert_array_equal(ef.function(gradient)(words), right)


def test_logits_are_capped():
    layer = ef.nn.ReversibleEmbedding(5, 2, logit_soft_cap=3.0, weights=TABLE * 100)
    logits = layer(ef.ones((1, 2)), reverse=True)
    assert 2.9 < float(ef.max(logits)) <= 3.0


def test_invalid_arguments_and_indices_are_refused():
    with pytest.raises(ef.errors.ArgumentError, match=r"input_dim.*0 is out of range"):
        ef.nn.Embedding(0, 2)
    with pytest.raises(ef.errors.ArgumentError, match=r"output_dim.*True is out of range"):
        ef.nn.Embedding(2, True)
    with pytest.raises(ef.errors.ShapeError, match=r"(?s)weights.*shape \(5, 3\)"):
        ef.nn.Embedding(5, 3, weights=TABLE)
    with pytest.raises(ef.errors.IndexRangeError, match="index 5 is out of range"):
        ef.nn.Embedding(5, 2)(np.array([[5]]))
    layer = ef.nn.ReversibleEmbedding(5, 2)
    with pytest.raises(ef.errors.ShapeError, match="size 2 along the last axis"):
        layer(ef.ones((1, 3)), reverse=True)
