"""A variational autoencoder: digits become points of a plane, and points become digits.

The encoder gives the mean and the variance of a normal distribution for each digit; a point drawn
from it has to be enough for the decoder to draw the digit again. The loss is the negative evidence
lower bound, in nats an image (Kingma and Welling, 2013).
"""

from itertools import islice

import numpy as np

import eagerflow as ef

BATCH, HIDDEN, PLANE = 64, 128, 2


def load_digits():
    """Images of shape (number, 64), with values from 0 to 1."""
    from sklearn.datasets import load_digits

    return (load_digits().data / 16).astype("float32")


class VAE(ef.nn.Model):
    """An encoder to the plane and a decoder from it."""

    def __init__(self):
        super().__init__()
        self.encoder = ef.nn.Sequential([ef.nn.Dense(HIDDEN, "relu"), ef.nn.Dense(2 * PLANE)])
        self.decoder = ef.nn.Sequential([ef.nn.Dense(HIDDEN, "relu"), ef.nn.Dense(64)])

    def call(self, x):
        mean, log_variance = ef.split(self.encoder(x), 2, axis=-1)
        point = mean + ef.exp(0.5 * log_variance) * ef.random.normal(mean.shape)
        return self.decoder(point), mean, log_variance


def loss_of(model, x):
    """Negative evidence lower bound: cost of the drawn image, and of the place in the plane."""
    logits, mean, log_variance = model(x)
    reconstruction = ef.sum(ef.sigmoid_cross_entropy(logits, x), axis=-1)
    divergence = 0.5 * ef.sum(ef.exp(log_variance) + mean**2 - 1 - log_variance, axis=-1)
    return ef.mean(reconstruction + divergence)


def make_model():
    """The network, with weights that are the same in each run."""
    ef.random.seed(0)
    model = VAE()
    model(np.zeros((1, 64), "float32"))
    return model


def batches(images):
    """Batches for ever, each epoch in another order."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(images))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            yield images[chosen]


def training(model, images, captured=True):
    """Train for ever; yields the loss of each step."""
    optimizer = ef.nn.optimizers.Adam(2e-3)
    ef.random.seed(1)

    def step(x):
        with ef.GradientTape() as tape:
            loss = loss_of(model, x)
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        return loss

    if captured:
        step = ef.function(step)
    for x in batches(images):
        yield step(x)


def draw(model, columns=4):
    """Images of a grid of points of the plane, as lines of text."""
    ticks = ef.linspace(-2.0, 2.0, columns)
    points = ef.stack(ef.meshgrid(ticks, ticks), axis=-1).reshape(-1, PLANE)
    images = ef.sigmoid(model.decoder(points)).reshape(columns, columns, 8, 8)
    pixels = ef.permute_dims(images, (0, 2, 1, 3)).reshape(columns * 8, columns * 8)
    shades = np.array(list(" .:-=+*#%@"))[(pixels * 9.99).numpy().astype(int)]
    return "\n".join("".join(2 * shade for shade in line) for line in shades)


def main(steps=1500, captured=True, verbose=False):
    """The loss of each step, in nats an image."""
    images = load_digits()
    model = make_model()
    losses = []
    for loss in islice(training(model, images, captured), steps):
        losses.append(float(loss))
        if verbose and len(losses) % 300 == 0:
            print(f"step {len(losses)}: loss {np.mean(losses[-300:]):.2f}")
    if verbose:
        print(draw(model))
    return losses


if __name__ == "__main__":
    main(verbose=True)
