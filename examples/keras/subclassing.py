"""Keras's subclassed layers and models: layers with a state, weights and losses of their own.

Regression of how diabetes went on, from ten measurements of 442 patients.
"""

import keras
from keras import layers, ops
from sklearn.datasets import load_diabetes


class Standardized(layers.Layer):
    """Features less their running mean, over their running spread."""

    def build(self, shape):
        own = {"shape": (shape[-1],), "trainable": False}
        self.mean = self.add_weight(name="mean", initializer="zeros", **own)
        self.square = self.add_weight(name="square", initializer="ones", **own)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.95 * self.mean + 0.05 * ops.mean(x, axis=0))
            self.square.assign(0.95 * self.square + 0.05 * ops.mean(x * x, axis=0))
        spread = ops.sqrt(ops.maximum(self.square - self.mean * self.mean, 1e-8))
        return (x - self.mean) / spread


class Gated(layers.Layer):
    """A dense layer whose outputs are gated by another one; open gates cost a little."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], 2 * self.units),
            initializer="glorot_uniform",
            regularizer=keras.regularizers.L2(1e-4),
            name="kernel",
        )
        self.bias = self.add_weight(shape=(2 * self.units,), initializer="zeros", name="bias")

    def call(self, x):
        values, gates = ops.split(ops.matmul(x, self.kernel) + self.bias, 2, axis=-1)
        gates = ops.sigmoid(gates)
        self.add_loss(1e-4 * ops.mean(gates))
        return values * gates


class Regression(keras.Model):
    """Gated layers with residuals in between."""

    def __init__(self, units=64, depth=3, **kwargs):
        super().__init__(**kwargs)
        self.standardized = Standardized()
        self.first = layers.Dense(units)
        self.gated = [Gated(units) for _ in range(depth)]
        self.dropout = layers.Dropout(0.1)
        self.last = layers.Dense(1)

    def call(self, x, training=False):
        x = self.first(self.standardized(x, training=training))
        for layer in self.gated:
            x = x + self.dropout(layer(x), training=training)
        return self.last(x)


def main(epochs=30, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    x, y = load_diabetes(return_X_y=True, scaled=False)
    y = ((y - y.mean()) / y.std()).astype("float32")[:, None]
    model = Regression()
    model.compile(keras.optimizers.AdamW(2e-3), loss="huber", metrics=["mae"])
    return model.fit(
        x.astype("float32"),
        y,
        batch_size=16,
        epochs=epochs,
        validation_split=0.2,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(float(values[-1]), 4) for name, values in main().items()})
