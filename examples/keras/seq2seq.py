"""Keras's sequence to sequence: an encoder and a decoder of recurrent units learn to add.

From the letters of "27+541" to those of "568"; the decoder is given what it should have written
so far, and attends to the encoder's outputs.
"""

import keras
import numpy as np
from keras import layers

LETTERS = "0123456789+ "
QUESTION, ANSWER = 7, 4
START = len(LETTERS)


def encoded(texts, length):
    """Texts as numbers of letters, filled up with blanks."""
    return np.array([[LETTERS.index(c) for c in text.ljust(length)] for text in texts], "int32")


def sums(count=6000):
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 10 ** rng.integers(1, 4, (count, 2)))
    questions = encoded([f"{a}+{b}" for a, b in pairs], QUESTION)
    answers = encoded([str(a + b) for a, b in pairs], ANSWER)
    given = np.concatenate([np.full((count, 1), START, "int32"), answers[:, :-1]], axis=1)
    return questions, given, answers


def model_of(units=96):
    question = keras.Input((QUESTION,), dtype="int32", name="question")
    given = keras.Input((ANSWER,), dtype="int32", name="given")
    x = layers.Embedding(len(LETTERS), 32)(question)
    encoder = layers.Bidirectional(layers.GRU(units // 2, return_sequences=True))(x)
    state = layers.Dense(units, activation="tanh")(encoder[:, -1])
    y = layers.Embedding(len(LETTERS) + 1, 32)(given)
    y = layers.GRU(units, return_sequences=True)(y, initial_state=state)
    seen = layers.Attention(use_scale=True)([y, encoder])
    y = layers.Dense(units, activation="relu")(layers.concatenate([y, seen]))
    letters = layers.Dense(len(LETTERS))(y)
    return keras.Model({"question": question, "given": given}, letters, name="adding")


def main(epochs=8, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    questions, given, answers = sums()
    model = model_of()
    model.compile(
        keras.optimizers.Adam(5e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model.fit(
        {"question": questions, "given": given},
        answers,
        batch_size=64,
        epochs=epochs,
        validation_split=0.1,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
