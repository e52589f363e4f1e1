"""Keras's transfer learning: a network learns five digits, is frozen, and helps with five others.

First a new head is trained on the frozen features, then all of it with a small rate.
"""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits


def data(chosen):
    """Pictures of the chosen digits, twice as large."""
    pictures, digits = load_digits(return_X_y=True)
    kept = np.isin(digits, chosen)
    pictures = (pictures[kept] / 8 - 1).reshape(-1, 8, 8, 1).repeat(2, axis=1).repeat(2, axis=2)
    numbers = np.searchsorted(chosen, digits[kept])
    return pictures.astype("float32"), numbers.astype("int32")


def base_of():
    """Separable convolutions with normalisations, as in a small MobileNet."""
    base = keras.Sequential([keras.Input((16, 16, 1))], name="base")
    base.add(layers.Conv2D(32, 3, padding="same", use_bias=False))
    for filters in (32, 64, 64):
        base.add(layers.BatchNormalization())
        base.add(layers.ReLU(max_value=6))
        base.add(layers.SeparableConv2D(filters, 3, 2, padding="same", use_bias=False))
    base.add(layers.BatchNormalization())
    return base


def with_head(base, training, name):
    pictures = keras.Input((16, 16, 1))
    x = layers.RandomTranslation(0.05, 0.05, fill_mode="nearest")(pictures)
    x = layers.GlobalAveragePooling2D()(base(x, training=training))
    return keras.Model(pictures, layers.Dense(5)(layers.Dropout(0.1)(x)), name=name)


def fitted(model, rate, chosen, epochs, callbacks, verbose):
    model.compile(
        keras.optimizers.Adam(rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    pictures, digits = data(chosen)
    return model.fit(
        pictures,
        digits,
        batch_size=32,
        epochs=epochs,
        validation_split=0.2,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


def main(epochs=4, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    base = base_of()
    known, new = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
    fitted(with_head(base, None, "known"), 2e-3, known, 2 * epochs, callbacks, verbose)
    base.trainable = False
    model = with_head(base, False, "new")
    fitted(model, 1e-2, new, epochs, callbacks, verbose)
    base.trainable = True
    return fitted(model, 2e-4, new, epochs, callbacks, verbose)


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
