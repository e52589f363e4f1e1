"""Attention layers: masks, caches, dropout, mixed dtypes, and what they refuse."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.masks import mask_of

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 6, 8)).astype("float32")
KINDS = {
    "MultiHeadAttention": lambda **more: ef.nn.MultiHeadAttention(4, 3, **more),
    "GroupQueryAttention": lambda **more: ef.nn.GroupQueryAttention(3, 4, 2, **more),
}
by_kind = pytest.mark.parametrize("kind", KINDS)


def close(a, b, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# Caches -------------------------------------------------------------------------------------------


def grown(step, x, parts, cache):
    """Outputs of the tokens of ``x``, given in parts of these lengths."""
    found, start = [], 0
    for length in parts:
        token = ef.tensor(x[:, start : start + length])
        found.append(np.asarray(step(token, ef.tensor(start), cache)))
        start += length
    return np.concatenate(found, axis=1)


@by_kind
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("more", [{}, {"sliding_window": 3}, {"use_gate": True}])
def test_token_by_token(kind, captured, more):
    """A cache gives what the whole sequence gives, by one graph for all positions."""
    layer = KINDS[kind](**more)
    right = layer(X, X, use_causal_mask=True)

    def step(token, position, cache):
        return layer(token, token, cache=cache, position=position)

    run = ef.function(step) if captured else step
    cache = layer.make_cache(2, 9)
    close(grown(run, X, [1] * 6, cache), right)
    assert not captured or len(run.graphs) == 1
    # A new sequence begins in the same room, first with several tokens at once.
    right = layer(X[:, ::-1], X[:, ::-1], use_causal_mask=True)
    close(grown(run, X[:, ::-1], [3, 1, 2], cache), right)


@by_kind
def test_positions_without_a_cache(kind):
    """They are for subclasses; which keys a query sees does not depend on them."""
    layer = KINDS[kind](sliding_window=2)
    close(layer(X, X, use_causal_mask=True, position=3), layer(X, X, use_causal_mask=True))


@by_kind
def test_scores_with_a_cache(kind):
    layer = KINDS[kind]()
    right, whole = layer(X, X, use_causal_mask=True, return_attention_scores=True)
    cache = layer.make_cache(2, 6)
    layer(X[:, :5], X[:, :5], cache=cache)
    more = {"position": 5, "return_attention_scores": True}
    outputs, scores = layer(X[:, 5:], X[:, 5:], cache=cache, **more)
    close(outputs, right[:, 5:])
    close(scores, whole[:, :, 5:])


def test_a_cache_remembers_which_tokens_count():
    """Sequences that are padded on the left go on as if nothing stood there."""
    layer = KINDS["MultiHeadAttention"]()
    cache = layer.make_cache(2, 8)
    counted = np.array([[False, False, True, True], [True] * 4])
    layer(X[:, :4], X[:, :4], value_mask=counted, cache=cache)
    last = layer(X[:, 4:5], X[:, 4:5], cache=cache, position=4)
    alone = layer(X[:1, 2:5], X[:1, 2:5], use_causal_mask=True)
    close(last[:1], alone[:, 2:])


@pytest.mark.parametrize("captured", [False, True])
def test_generation_in_one_scan(captured):
    """Text that a scan writes with a cache is what it would write reading all of it each time."""
    ef.random.seed(0)
    more = {"tie_weights": False, "embeddings_initializer": "glorot_normal"}
    embedding = ef.nn.ReversibleEmbedding(11, 8, **more)
    layer = ef.nn.GroupQueryAttention(4, 4, 2, kernel_initializer="he_normal")

    def following(words, **call):
        x = embedding(words)
        x = x + 3.0 * layer(x, x, **call)
        return ef.argmax(embedding(x, reverse=True)[:, -1], axis=-1)

    words = np.array([[1], [7]])
    for _ in range(6):
        last = following(ef.tensor(words), use_causal_mask=True)
        words = np.concatenate([words, np.asarray(last)[:, None]], axis=1)

    cache = layer.make_cache(2, 6)

    def write(first):
        def step(word, position):
            found = following(word[:, None], cache=cache, position=position)
            return found, found

        return ef.scan(step, first, ef.arange(6))[1]

    run = ef.function(write) if captured else write
    np.testing.assert_array_equal(np.asarray(run(ef.tensor(words[:, 0]))).T, words[:, 1:])


def test_a_cache_is_no_weight_and_has_an_end():
    layer = KINDS["MultiHeadAttention"]()
    layer(X, X)
    cache = layer.make_cache(2, 4)
    assert len(layer.weights) == 8
    assert not cache.trainable_weights
    assert [w.shape for w in cache.weights] == [(2, 4, 4, 3), (2, 4, 4, 3), (2, 4)]
    with pytest.raises(ef.errors.IndexRangeError, match="index 4 is out of range"):
        layer(X[:, :1], X[:, :1], cache=cache, position=4)


# Masks --------------------------------------------------------------------------------------------


@by_kind
def test_masks_travel_to_attention(kind):
    """What ``Embedding(mask_zero=True)`` hides is as if it were not there."""
    words = np.array([[3, 1, 2, 0, 0, 0], [1, 2, 3, 4, 1, 2]])
    embedding, layer = ef.nn.Embedding(5, 8, mask_zero=True), KINDS[kind]()
    x = embedding(words)
    found = layer(x, x)
    close(mask_of(found), words != 0)
    plain = ef.tensor(np.asarray(x))
    close(found[:1, :3], layer(plain[:1, :3], plain[:1, :3]))
    symbol = ef.nn.Input((None,), dtype="int64")
    vectors = embedding(symbol)
    model = ef.nn.Model(symbol, layer(vectors, vectors))
    close(model(words), found)
    close(ef.function(model)(words), found)


@by_kind
@pytest.mark.parametrize("scored", [False, True])
def test_a_query_that_sees_nothing_gives_zeros(kind, scored):
    layer = KINDS[kind]()
    mask = np.ones((2, 6, 6), bool)
    mask[0, 2] = False
    found = layer(X, X, attention_mask=mask, return_attention_scores=scored)
    outputs = found[0] if scored else found
    close(outputs[0, 2], layer.output_dense.bias)
    close(outputs[1], layer(X, X)[1])


@by_kind
def test_a_query_mask_is_the_mask_of_the_outputs(kind):
    layer = KINDS[kind]()
    mask = np.array([[True] * 4 + [False] * 2, [True] * 6])
    right = layer(X, X)
    found = layer(X, X, query_mask=mask)
    close(found[mask], np.asarray(right)[mask])
    close(found[0, 4:], np.zeros((2, 8)))


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("cls", ["Attention", "AdditiveAttention"])
def test_masks_of_lists(cls, scored):
    layer = getattr(ef.nn, cls)()
    query_mask = np.array([[True, False, True], [True] * 3])
    value_mask = np.array([[True] * 4 + [False] * 2, [True] * 6])
    call = {"mask": [query_mask, value_mask], "return_attention_scores": scored}
    found = layer([X[:, :3], X], **call)
    outputs = found[0] if scored else found
    right = np.array(layer([X[:1, :3], X[:1, :4]]))
    right[0, 1] = 0
    close(outputs[:1], right)
    close(outputs[1:], layer([X[1:, :3], X[1:]]))
    causal = layer([X, X], mask=[None, value_mask], use_causal_mask=True)
    close(causal[0, 5], layer([X[:1, 5:], X[:1, :4]])[0, 0])
    close(causal[0, 2], layer([X[:1, 2:3], X[:1, :3]])[0, 0])


def test_masks_travel_in_lists():
    words = np.array([[3, 1, 0], [1, 2, 3]])
    x = ef.nn.Embedding(5, 8, mask_zero=True)(words)
    found = ef.nn.Attention()([x, x])
    close(mask_of(found), words != 0)
    close(found[0, 2], np.zeros(8))


def test_masks_of_several_axes():
    """Steps of inputs with further axes: what is hidden is as if it were not there."""
    x = RNG.normal(size=(2, 3, 4, 5)).astype("float32")
    mask = np.ones((2, 3, 4), bool)
    mask[:, :, 3] = False
    for axes, cut in (((2,), x[:, :, :3]), (None, x[:, :, :3])):
        layer = ef.nn.MultiHeadAttention(2, 3, attention_axes=axes)
        close(layer(x, x, value_mask=mask)[:, :, :3], layer(cut, cut))
        both = layer(x, x, query_mask=mask, value_mask=mask)
        close(both[:, :, :3], layer(cut, cut))
    layer = ef.nn.MultiHeadAttention(2, 3, attention_axes=2)
    pairs = np.tril(np.ones((4, 4), bool))
    close(layer(x, x, attention_mask=pairs), layer(x, x, use_causal_mask=True))
    own = np.broadcast_to(pairs, (2, 3, 4, 4))
    close(layer(x, x, attention_mask=own), layer(x, x, use_causal_mask=True))


# Other options ------------------------------------------------------------------------------------


@by_kind
def test_inputs_by_name(kind):
    layer = KINDS[kind]()
    close(layer(query=X, value=X, key=X), layer(X, X))
    with pytest.raises(TypeError, match=f"{kind}\\(\\) misses its argument 'query'"):
        layer(value=X)


@by_kind
def test_free_lengths(kind):
    """Symbolic tensors whose lengths are not known, with every kind of mask."""
    layer = KINDS[kind](sliding_window=4)
    x = ef.nn.Input((None, 8))
    model = ef.nn.Model(x, layer(x, x, use_causal_mask=True))
    close(model(X), layer(X, X, use_causal_mask=True))
    close(model(X[:, :3]), layer(X[:, :3], X[:, :3], use_causal_mask=True))


@by_kind
def test_free_axes(kind):
    """``vmap`` over examples, and an empty batch."""
    layer = KINDS[kind]()
    right = layer(X, X, use_causal_mask=True)
    close(ef.vmap(lambda x: layer(x[None], x[None], use_causal_mask=True)[0])(ef.tensor(X)), right)
    assert layer(X[:0], X[:0], use_causal_mask=True).shape == (0, 6, 8)
    assert layer(X[:0], X[:0], return_attention_scores=True)[1].shape == (0, 4, 6, 6)


@by_kind
def test_mixed_dtypes(kind):
    layer = KINDS[kind](dtype="mixed_bfloat16")
    found = layer(X, X, use_causal_mask=True)
    assert found.dtype.name == "bfloat16"
    assert {w.dtype.name for w in layer.weights} == {"float32"}
    plain = KINDS[kind]()
    plain(X, X)
    plain.set_weights(layer.get_weights())
    close(found.astype("float32"), plain(X, X, use_causal_mask=True), 0.05)
    cache = layer.make_cache(2, 6)
    assert cache.keys.dtype.name == "bfloat16"
    close(layer(X, X, cache=cache).astype("float32"), found.astype("float32"), 0.02)


@by_kind
def test_dropout_hides_weights_in_training(kind):
    def trained():
        layer = KINDS[kind](dropout=0.5, seed=7, kernel_initializer="ones")
        return layer(X, X, training=True, return_attention_scores=True)

    (first, weights), (second, _) = trained(), trained()
    close(first, second)
    close(ef.sum(weights, axis=-1), np.ones((2, 4, 6)))  # those returned are whole
    layer = KINDS[kind](dropout=0.5)
    assert float(ef.max(ef.abs(layer(X, X) - layer(X, X)))) == 0.0
    assert float(ef.max(ef.abs(layer(X, X, training=True) - layer(X, X, training=True)))) > 0.0


def test_frozen_and_regularized():
    layer = ef.nn.MultiHeadAttention(2, 3, trainable=False, kernel_regularizer="l2")
    layer(X, X)
    assert not layer.trainable_weights
    assert not layer.losses
    layer.trainable = True
    assert len(layer.trainable_weights) == 8
    assert len(layer.losses) == 4
    assert layer.weights[0].name == f"{layer.name}/query/kernel"


def test_activities_of_projections_are_regularized():
    layer = ef.nn.MultiHeadAttention(2, 3, activity_regularizer="l2")
    with ef.nn.added_losses() as losses:
        layer(X, X)
    assert len(losses) == 4


def test_kernels_begin_as_matrices_do():
    """The deviation of first values is that of a dense layer with as many inputs and outputs."""
    layer = ef.nn.MultiHeadAttention(16, 16, kernel_initializer="glorot_normal")
    x = ef.ones((1, 2, 128))
    layer(x, x)
    for weight in layer.weights[::2]:
        assert abs(np.std(weight.numpy()) / np.sqrt(2 / (128 + 256)) - 1) < 0.05


def test_training_with_a_head_on_top():
    """A classifier of sequences learns, in a loop that is captured."""
    ef.random.seed(0)
    words = RNG.integers(1, 6, (64, 7))
    right = (words == 3).any(axis=1).astype("float32")[:, None]
    symbol = ef.nn.Input((7,), dtype="int64")
    x = ef.nn.Embedding(6, 8)(symbol)
    x = ef.nn.MultiHeadAttention(2, 4)(x, x)
    model = ef.nn.Model(symbol, ef.nn.Dense(1)(ef.max(x, axis=1)))
    model.compile("adam", ef.nn.losses.BinaryCrossentropy(from_logits=True))
    model.optimizer.learning_rate = 0.02
    model.fit(words, right, epochs=30, batch_size=16, verbose=0)
    accuracy = np.mean((np.asarray(model(words)) > 0) == right)
    assert accuracy > 0.95


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ef.nn.MultiHeadAttention(0, 3), "num_heads.*0 is out of range"),
    (lambda: ef.nn.MultiHeadAttention(2, 2.5), "key_dim.*2.5 is out of range"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, dropout=1.0), "dropout.*1.0 is not a rate"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, output_shape=(2, 0)), "output_shape.*0 is out of"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, attention_axes="x"), "attention_axes.*not axes"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, sliding_window=0), "sliding_window.*0 is out of"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, dropout=0.1, flash_attention=True),
     "flash attention has no dropout"),
    (lambda: ef.nn.GroupQueryAttention(3, 4, 3), "4 heads of queries cannot share 3"),
    (lambda: ef.nn.Attention(score_mode="sum"), "'sum' is not a score mode"),
    (lambda: ef.nn.Attention()(ef.ones((2, 3))), "not what this layer takes"),
    (lambda: ef.nn.Attention()([X]), "not what this layer takes"),
    (lambda: ef.nn.Attention()([X, X], mask=[None]), "mask.*not what this layer takes"),
    (lambda: ef.nn.Attention().build((None, 6, 8)), "not what this layer takes"),
    (
        lambda: ef.nn.MultiHeadAttention(2, 3, flash_attention=True)(
            X, X, return_attention_scores=True
        ),
        "flash attention has no return_attention_scores",
    ),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X, X, cache={}), "cache.*not a cache"),
])  # fmt: skip
def test_bad_arguments(make, words):
    with pytest.raises(ef.errors.ArgumentError, match=f"(?s){words}"):
        make()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X), "there are no values.*layer\\(x, x\\)"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X[0], X[0]), "queries, values and keys do not fit"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X, X, X[:, :3]), "a value for each key"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, attention_axes=5)(X, X), "axis 5"),
    (lambda: ef.nn.MultiHeadAttention(2, 3, attention_axes=(1, 2))(X, X), "attention_axes"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X, X, value_mask=X > 0),
     "the mask does not fit.*2 axes"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X, X, attention_mask=X[0, 0] > 0),
     "the mask does not fit.*2 to 4 axes"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X, X, attention_mask=X > 0),
     "does not broadcast to \\(2, 2, 6, 6\\)"),
    (lambda: ef.nn.MultiHeadAttention(2, 3)(X[None], X[None], cache=CACHE),
     "a cache needs inputs of one sequence"),
])  # fmt: skip
def test_bad_shapes(make, words):
    with pytest.raises(ef.errors.ShapeError, match=f"(?s){words}"):
        make()


CACHE = ef.nn.KeyValueCache(1, 2, 4, 3, 3)
