"""Keras's text classification with a Transformer: who speaks, from the words of a sentence.

The sentences are made here, of four speakers' favourite words and of words that all of them use.
"""

import keras
import numpy as np
from keras import layers, ops

WORDS, LENGTH, SPEAKERS = 400, 40, 4


def sentences(count=3000):
    """Numbers of words, filled up with 0 at the end, and who said them."""
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(WORDS - 1, 0.3), SPEAKERS) * 0.35
    chances += 0.65 * rng.dirichlet(np.ones(WORDS - 1))
    speakers = rng.integers(0, SPEAKERS, count)
    texts = np.zeros((count, LENGTH), "int32")
    for row, speaker in zip(texts, speakers, strict=True):
        length = rng.integers(10, LENGTH + 1)
        row[:length] = 1 + rng.choice(WORDS - 1, length, p=chances[speaker])
    return texts, speakers.astype("int32")


class Positions(layers.Layer):
    """Embeddings of words and of their places."""

    def __init__(self, length, words, width, **kwargs):
        super().__init__(**kwargs)
        self.words = layers.Embedding(words, width, mask_zero=True)
        self.places = layers.Embedding(length, width)

    def call(self, numbers):
        return self.words(numbers) + self.places(ops.arange(numbers.shape[-1]))

    def compute_mask(self, *args, **kwargs):
        return self.words.compute_mask(*args, **kwargs)


class Block(layers.Layer):
    """Attention and a feed-forward part, each with a residual and a normalisation."""

    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.forward = keras.Sequential(
            [layers.Dense(2 * width, activation="gelu"), layers.Dense(width)]
        )
        self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.dropout = layers.Dropout(0.1)
        self.supports_masking = True

    def call(self, x, training=None):
        seen = self.dropout(self.attention(x, x), training=training)
        x = self.norms[0](x + seen)
        return self.norms[1](x + self.dropout(self.forward(x), training=training))


def main(epochs=5, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    texts, speakers = sentences()
    numbers = keras.Input((LENGTH,), dtype="int32")
    x = Block(64, 4)(Positions(LENGTH, WORDS, 64)(numbers))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(numbers, layers.Dense(SPEAKERS, activation="softmax")(x), name="speakers")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model.fit(
        texts,
        speakers,
        batch_size=32,
        epochs=epochs,
        validation_split=0.2,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
