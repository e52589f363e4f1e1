"""Recurrent networks, masks, attention, transformers."""

import numpy as np

from tests.nn.programs import LABELS, ONE_HOT, SERIES, WORDS, X, Y, trained


@trained
def stacked_lstm(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((7, 3)),
            layers.LSTM(5, return_sequences=True),
            layers.LSTM(4, return_sequences=True, go_backwards=True),
            layers.GRU(4),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.RMSprop(0.01), "mse")
    return model, {"x": SERIES, "y": Y}


@trained
def bidirectional_with_masks(keras):
    layers = keras.layers
    ids = keras.Input((None,), dtype="int32")
    h = layers.Embedding(11, 4, mask_zero=True)(ids)
    h = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(h)
    h = layers.Bidirectional(layers.GRU(3), merge_mode="sum")(h)
    model = keras.Model(ids, layers.Dense(3, activation="softmax")(h))
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model, {"x": WORDS, "y": LABELS}


@trained
def tags_of_words(keras):
    """The mask of the words leaves padding out of the loss.

    There are no metrics: ours leave padding out as well, and those of Keras on JAX count it, as
    the mask is lost on its way to them.
    """
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Embedding(11, 4, mask_zero=True),
            layers.LSTM(5, return_sequences=True),
            layers.TimeDistributed(layers.Dense(3, activation="softmax")),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model, {"x": WORDS, "y": WORDS % 3}


@trained
def masked_series(keras):
    layers = keras.layers
    series = np.where(np.arange(7)[None, :, None] < LABELS[:, None, None] + 4, SERIES, -1.0)
    model = keras.Sequential(
        [
            keras.Input((7, 3)),
            layers.Masking(-1.0),
            layers.SimpleRNN(4, return_sequences=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse", weighted_metrics=["mae"])
    return model, {"x": series.astype("float32"), "y": Y}


@trained
def encoder_and_decoder(keras):
    layers = keras.layers
    source, target = keras.Input((None,), name="source"), keras.Input((None,), name="target")
    embedded = layers.Embedding(11, 4, mask_zero=True)(source)
    _, h, c = layers.LSTM(5, return_state=True)(embedded)
    decoded = layers.Embedding(11, 4)(target)  # Keras forgets masks beside an initial state
    decoded, _, _ = layers.LSTM(5, return_sequences=True, return_state=True)(
        decoded, initial_state=[h, c]
    )
    outputs = layers.Dense(11, activation="softmax")(decoded)
    model = keras.Model([source, target], outputs)
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    following = np.roll(WORDS, -1, axis=1)
    return model, {"x": [WORDS, WORDS[::-1].copy()], "y": following[::-1].copy()}


@trained
def attention_over_a_sentence(keras):
    layers = keras.layers
    question, answer = keras.Input((7,), name="question"), keras.Input((7,), name="answer")
    embedding = layers.Embedding(11, 4, mask_zero=True)
    q, a = embedding(question), embedding(answer)
    dot = layers.Attention(use_scale=True)([q, a])
    added = layers.AdditiveAttention()([q, a, a])
    h = layers.Concatenate()([layers.GlobalAveragePooling1D()(x) for x in (q, dot, added)])
    model = keras.Model([question, answer], layers.Dense(1, activation="sigmoid")(h))
    model.compile(
        keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")]
    )
    words = np.where(WORDS == 0, 1, WORDS)
    return model, {"x": [WORDS, words[::-1].copy()], "y": (Y > 0).astype("float32")}


def _encoder_block(keras, x, **call):
    layers = keras.layers
    # Without biases: that of the keys has no gradient but rounding, of which Adam makes steps.
    attention = layers.MultiHeadAttention(num_heads=2, key_dim=3, use_bias=False)
    attended = attention(x, x, **call)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, attended]))
    h = layers.Dense(8, activation="gelu")(x)
    return layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, layers.Dense(4)(h)]))


@trained
def text_transformer(keras):
    layers = keras.layers
    ids = keras.Input((7,), dtype="int32")
    positions = keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1
    x = layers.Embedding(11, 4)(ids) + layers.Embedding(7, 4)(positions)
    x = _encoder_block(keras, _encoder_block(keras, x))
    x = layers.Dropout(0.0)(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(ids, layers.Dense(3, activation="softmax")(x))
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model, {"x": WORDS, "y": LABELS}


@trained
def transformer_with_padding(keras):
    layers = keras.layers
    ids = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 4, mask_zero=True)(ids)
    x = _encoder_block(keras, x)
    model = keras.Model(ids, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model, {"x": WORDS, "y": Y}


@trained
def small_gpt(keras):
    layers = keras.layers
    ids = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 4)(ids)
    for _ in range(2):
        x = _encoder_block(keras, x, use_causal_mask=True)
    model = keras.Model(ids, layers.Dense(11)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.AdamW(0.01, global_clipnorm=1.0), loss)
    return model, {"x": WORDS, "y": np.roll(WORDS, -1, axis=1)}


@trained
def cross_attention(keras):
    layers = keras.layers
    source, target = keras.Input((7, 3), name="source"), keras.Input((6,), name="target")
    memory = layers.Dense(4)(source)
    query = layers.Reshape((3, 2))(target)
    query = layers.Dense(4)(query)
    attention = layers.MultiHeadAttention(2, 3, value_dim=2, output_shape=5, use_bias=False)
    h, scores = attention(query, memory, return_attention_scores=True)
    sharpest = keras.ops.max(scores, axis=(1, 3))
    h = layers.Concatenate()([layers.Flatten()(h), sharpest])
    model = keras.Model([source, target], layers.Dense(1)(h))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model, {"x": {"source": SERIES, "target": X}, "y": Y}


@trained
def grouped_queries(keras):
    layers = keras.layers
    x = keras.Input((7, 3))
    h = layers.Dense(8)(x)
    attention = layers.GroupQueryAttention(4, 4, 2, use_bias=False)
    h = h + attention(h, h)
    model = keras.Model(x, layers.EinsumDense("btd,dk->bk", output_shape=(3,), bias_axes="k")(h))
    loss = keras.losses.CategoricalFocalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Lion(0.003), loss)
    return model, {"x": SERIES, "y": ONE_HOT}


@trained
def own_recurrent_cell(keras):
    class Cell(keras.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units

        def build(self, input_shape):
            self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")
            self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")

        def call(self, inputs, states):
            found = keras.ops.tanh(
                keras.ops.matmul(inputs, self.kernel) + keras.ops.matmul(states[0], self.recurrent)
            )
            return found, [found]

    x = keras.Input((7, 3))
    h = keras.layers.RNN([Cell(4), Cell(3)], return_sequences=True)(x)
    h = keras.layers.RNN(keras.layers.GRUCell(3, reset_after=False))(h)
    model = keras.Model(x, keras.layers.Dense(1)(h))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": SERIES, "y": Y}


@trained
def forecast(keras):
    """The next steps of a series, from the state of the ones before."""
    layers = keras.layers
    x = keras.Input((7, 3))
    h = layers.LSTM(5)(x)
    h = layers.RepeatVector(2)(h)
    h = layers.LSTM(5, return_sequences=True)(h)
    model = keras.Model(x, layers.TimeDistributed(layers.Dense(3))(h))
    model.compile(
        keras.optimizers.Adam(0.01), "mse", metrics=[keras.metrics.RootMeanSquaredError()]
    )
    return model, {"x": SERIES, "y": SERIES[:, ::-1][:, :2].copy()}


@trained
def film(keras):
    layers = keras.layers
    movie = SERIES[:, :, :, None, None] * np.ones((1, 1, 1, 4, 2), "float32")
    model = keras.Sequential(
        [
            keras.Input((7, 3, 4, 2)),
            layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True),
            layers.BatchNormalization(),
            layers.TimeDistributed(layers.Conv2D(2, 2, activation="relu")),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": movie, "y": Y}


@trained
def convolutions_before_a_gru(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((7, 3)),
            layers.Conv1D(4, 3, activation="relu"),
            layers.MaxPooling1D(2),
            layers.GRU(4, return_sequences=True, reset_after=False),
            layers.Bidirectional(
                layers.SimpleRNN(2), backward_layer=layers.GRU(2, go_backwards=True)
            ),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adagrad(0.05), "mse")
    return model, {"x": SERIES, "y": Y}
