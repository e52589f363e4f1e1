"""A deep convolutional generative adversarial network: two networks, each with its optimizer.

The generator makes digits of random numbers with transposed convolutions; the critic gives a logit
for how real a digit is (Radford and others, 2015). A step trains both.
"""

from itertools import islice

import numpy as np

import eagerflow as ef

BATCH, NOISE = 64, 16


def load_digits():
    """Images of shape (number, 8, 8, 1), with values from -1 to 1."""
    from sklearn.datasets import load_digits

    return (load_digits().data / 8 - 1).reshape(-1, 8, 8, 1).astype("float32")


def make_models():
    """Generator and critic, with weights that are the same in each run."""
    ef.random.seed(0)
    generator = ef.nn.Sequential(
        [
            ef.nn.Input((NOISE,)),
            ef.nn.Dense(2 * 2 * 32, use_bias=False),
            ef.nn.BatchNormalization(),
            ef.nn.ReLU(),
            ef.nn.Reshape((2, 2, 32)),
            ef.nn.Conv2DTranspose(16, 4, strides=2, padding="same", use_bias=False),
            ef.nn.BatchNormalization(),
            ef.nn.ReLU(),
            ef.nn.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
        ],
        name="generator",
    )
    critic = ef.nn.Sequential(
        [
            ef.nn.Input((8, 8, 1)),
            ef.nn.Conv2D(16, 4, strides=2, padding="same"),
            ef.nn.LeakyReLU(0.2),
            ef.nn.Conv2D(32, 4, strides=2, padding="same", use_bias=False),
            ef.nn.BatchNormalization(),
            ef.nn.LeakyReLU(0.2),
            ef.nn.Flatten(),
            ef.nn.Dense(1),
        ],
        name="critic",
    )
    return generator, critic


def batches(images):
    """Batches for ever, each epoch in another order."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(images))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            yield images[chosen]


def training(generator, critic, images, captured=True):
    """Train for ever; yields the losses of critic and generator of each step."""
    critic_optimizer = ef.nn.optimizers.Adam(1e-3, beta_1=0.5)
    generator_optimizer = ef.nn.optimizers.Adam(1e-3, beta_1=0.5)
    ef.random.seed(1)

    def step(real):
        made = generator(ef.random.normal((len(real), NOISE)), training=True)
        with ef.GradientTape() as tape:
            on_real, on_made = critic(real, training=True), critic(made, training=True)
            real_loss = ef.sigmoid_cross_entropy(on_real, ef.ones_like(on_real)).mean()
            made_loss = ef.sigmoid_cross_entropy(on_made, ef.zeros_like(on_made)).mean()
            critic_loss = real_loss + made_loss
        weights = critic.trainable_weights
        critic_optimizer.apply(tape.gradient(critic_loss, weights), weights)

        noise = ef.random.normal((len(real), NOISE))
        with ef.GradientTape() as tape:
            judged = critic(generator(noise, training=True), training=True)
            generator_loss = ef.sigmoid_cross_entropy(judged, ef.ones_like(judged)).mean()
        weights = generator.trainable_weights
        generator_optimizer.apply(tape.gradient(generator_loss, weights), weights)
        return critic_loss, generator_loss

    if captured:
        step = ef.function(step)
    for real in batches(images):
        yield step(real)


def draw(images):
    """Images side by side, as lines of text."""
    pixels = np.concatenate(list(images[..., 0]), axis=1) / 2 + 0.5
    shades = np.array(list(" .:-=+*#%@"))[(pixels * 9.99).astype(int)]
    return "\n".join("".join(2 * shade for shade in line) for line in shades)


def main(steps=1000, captured=True, verbose=False):
    """The losses of critic and generator, one pair for each step."""
    images = load_digits()
    generator, critic = make_models()
    losses = []
    for pair in islice(training(generator, critic, images, captured), steps):
        losses.append([float(loss) for loss in pair])
        if verbose and len(losses) % 200 == 0:
            of_critic, of_generator = np.mean(losses[-200:], axis=0)
            print(f"step {len(losses)}: critic {of_critic:.3f}, generator {of_generator:.3f}")
    if verbose:
        print(draw(generator.predict(ef.random.normal((6, NOISE)), verbose=0)))
    return losses


if __name__ == "__main__":
    main(verbose=True)
