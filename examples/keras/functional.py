"""Keras's functional models: two inputs, a branch with residuals, two outputs.

Digits of 8 by 8 pixels, and a number beside each picture; one output tells the digit, the other
whether digit and number add up to an even sum.
"""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits


def data():
    pictures, digits = load_digits(return_X_y=True)
    pictures = (pictures / 16).reshape(-1, 8, 8, 1).astype("float32")
    numbers = np.random.default_rng(0).integers(0, 10, len(digits))
    return pictures, numbers.astype("int32"), digits.astype("int32"), (digits + numbers) % 2


def model_of():
    picture = keras.Input((8, 8, 1), name="picture")
    number = keras.Input((), dtype="int32", name="number")
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(picture)
    for _ in range(2):
        branch = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
        branch = layers.BatchNormalization()(branch)
        branch = layers.Conv2D(32, 3, padding="same")(branch)
        x = layers.Activation("relu")(layers.add([x, branch]))
    x = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(x))
    digit = layers.Dense(10, activation="softmax", name="digit")(x)
    both = layers.concatenate([x, layers.Embedding(10, 16)(number)])
    both = layers.Dropout(0.1)(layers.Dense(64, activation="relu")(both))
    even = layers.Dense(1, activation="sigmoid", name="even")(both)
    return keras.Model([picture, number], {"digit": digit, "even": even}, name="digits")


def main(epochs=12, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    pictures, numbers, digits, even = data()
    model = model_of()
    model.compile(
        keras.optimizers.Adam(2e-3),
        loss={"digit": "sparse_categorical_crossentropy", "even": "binary_crossentropy"},
        loss_weights={"digit": 1.0, "even": 0.2},
        metrics={"digit": "accuracy", "even": "accuracy"},
    )
    return model.fit(
        {"picture": pictures, "number": numbers},
        {"digit": digits, "even": even.astype("float32")[:, None]},
        batch_size=64,
        epochs=epochs,
        validation_split=0.2,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
