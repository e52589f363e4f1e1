"""Keras's generative adversarial network: two models and two optimizers in one step.

The step is a function of the state, written with Keras's stateless calls: what takes gradients
and what compiles comes from the backend's library, the rest is the same.
"""

import keras
import numpy as np
from keras import layers, ops
from sklearn.datasets import load_digits

NOISE, BATCH = 16, 64


def library():
    """The library's value_and_grad, and what compiles a function."""
    if keras.config.backend() == "jax":
        import jax

        return jax.value_and_grad, jax.jit
    import eagerflow as ef

    return ef.value_and_grad, ef.function


def generator_of():
    return keras.Sequential(
        [
            keras.Input((NOISE,)),
            layers.Dense(2 * 2 * 64),
            layers.Reshape((2, 2, 64)),
            layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ],
        name="generator",
    )


def discriminator_of():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(64, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ],
        name="discriminator",
    )


class Trained:
    """A model with its optimizer, and its state as nests of tensors."""

    def __init__(self, model, rate):
        self.model = model
        self.optimizer = keras.optimizers.Adam(rate, beta_1=0.5)
        self.optimizer.build(model.trainable_variables)

    @property
    def state(self):
        variables = self.model.trainable_variables, self.optimizer.variables
        return tuple([v.value for v in group] for group in variables)

    @state.setter
    def state(self, values):
        for group, new in zip(
            (self.model.trainable_variables, self.optimizer.variables), values, strict=True
        ):
            for variable, value in zip(group, new, strict=True):
                variable.assign(value)

    def __call__(self, weights, inputs):
        return self.model.stateless_call(weights, [], inputs)[0]

    def stepped(self, state, gradients):
        weights, slots = state
        return self.optimizer.stateless_apply(slots, gradients, weights)


def main(epochs=20, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    value_and_grad, compiled = library()
    generator, discriminator = Trained(generator_of(), 1e-3), Trained(discriminator_of(), 1e-3)
    criterion = keras.losses.BinaryCrossentropy(from_logits=True)

    def d_loss(weights, g_weights, noise, real):
        mixed = ops.concatenate([generator(g_weights, noise), real])
        is_fake = ops.concatenate([ops.ones((len(noise), 1)), ops.zeros((len(real), 1))])
        return criterion(is_fake, discriminator(weights, mixed))

    def g_loss(weights, d_weights, noise):
        judged = discriminator(d_weights, generator(weights, noise))
        return criterion(ops.zeros((len(noise), 1)), judged)

    @compiled
    def step(g_state, d_state, real, noise, more_noise):
        d, gradients = value_and_grad(d_loss)(d_state[0], g_state[0], noise, real)
        d_state = discriminator.stepped(d_state, gradients)
        g, gradients = value_and_grad(g_loss)(g_state[0], d_state[0], more_noise)
        return generator.stepped(g_state, gradients), d_state, d, g

    pictures = (load_digits().data / 16).reshape(-1, 8, 8, 1).astype("float32")
    pictures = pictures[: len(pictures) // BATCH * BATCH].reshape(-1, BATCH, 8, 8, 1)
    rng = np.random.default_rng(0)
    g_state, d_state = generator.state, discriminator.state
    for epoch in range(epochs):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        for real in pictures:
            noise = rng.standard_normal((2, BATCH, NOISE), dtype="float32")
            g_state, d_state, d, g = step(g_state, d_state, real, *noise)
            for callback in callbacks:
                callback.on_train_batch_end(0, {"d_loss": d, "g_loss": g})
        logs = {"d_loss": float(d), "g_loss": float(g)}
        for callback in callbacks:
            callback.on_epoch_end(epoch, logs)
        if verbose:
            print(f"epoch {epoch + 1}: {logs}")
    generator.state, discriminator.state = g_state, d_state
    return {name: [value] for name, value in logs.items()}


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main(verbose=0).items()})
