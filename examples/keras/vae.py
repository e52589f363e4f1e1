"""Keras's variational autoencoder: a layer that draws, and a loss that the model itself makes.

Digits of 8 by 8 pixels become points of a plane, and pictures again.
"""

import keras
from keras import layers, ops
from sklearn.datasets import load_digits

PLANE = 2


class Sampling(layers.Layer):
    """A point near a mean; tells how far the means are from the middle."""

    def __init__(self, weight, **kwargs):
        super().__init__(**kwargs)
        self.weight = weight
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, log_variance = inputs
        divergence = ops.exp(log_variance) + ops.square(mean) - 1 - log_variance
        self.add_loss(self.weight * 0.5 * ops.mean(ops.sum(divergence, axis=-1)))
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * noise


def model_of():
    pictures = keras.Input((8, 8, 1))
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(pictures)
    x = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Dense(32, activation="relu")(layers.Flatten()(x))
    mean, log_variance = layers.Dense(PLANE)(x), layers.Dense(PLANE)(x)
    point = Sampling(0.02)([mean, log_variance])
    encoder = keras.Model(pictures, point, name="encoder")
    decoder = keras.Sequential(
        [
            keras.Input((PLANE,)),
            layers.Dense(2 * 2 * 64, activation="relu"),
            layers.Reshape((2, 2, 64)),
            layers.Conv2DTranspose(64, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ],
        name="decoder",
    )
    return keras.Model(pictures, decoder(encoder(pictures)), name="vae")


def main(epochs=15, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    pictures = (load_digits().data / 16).reshape(-1, 8, 8, 1).astype("float32")
    model = model_of()
    model.compile(keras.optimizers.Adam(3e-3), loss="binary_crossentropy")
    return model.fit(
        pictures,
        pictures,
        batch_size=64,
        epochs=epochs,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
