"""Hamiltonian Monte Carlo: samples of the posterior of a logistic regression.

A sample is the end of a path of a ball that rolls through the landscape of -log p, started with a
random push; paths whose energy the integrator has changed are refused in proportion (Neal, 2011).
"""

from itertools import islice

import numpy as np

import eagerflow as ef

STEP_SIZE, LEAPS = 0.15, 12
TRUE_WEIGHTS = np.array([1.0, -2.0, 0.5, 0.0])


def make_data():
    """Features of shape (200, 4), the first one 1, and labels drawn from the model."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4))
    x[:, 0] = 1
    labels = rng.random(200) < 1 / (1 + np.exp(-x @ TRUE_WEIGHTS))
    return x, labels.astype(float)


def log_posterior_of(x, labels):
    """The logarithm of likelihood times prior, but for a constant, as a function of weights."""
    x, labels = ef.tensor(x), ef.tensor(labels)

    def log_posterior(weights):
        costs = ef.sigmoid_cross_entropy(x @ weights, labels)
        return -ef.sum(costs) - 0.5 * ef.sum(weights**2) / 25

    return log_posterior


def leapfrog(log_density, position, momentum, scales):
    """The end of the path: (position, momentum) after ``LEAPS`` leaps."""
    slope = ef.grad(log_density)

    def leap(_, state):
        position, momentum = state
        momentum = momentum + 0.5 * STEP_SIZE * scales * slope(position)
        position = position + STEP_SIZE * scales * momentum
        momentum = momentum + 0.5 * STEP_SIZE * scales * slope(position)
        return position, momentum

    return ef.fori_loop(0, LEAPS, leap, (position, momentum))


def sampling(log_density, start, scales, captured=True):
    """Sample for ever; yields (position, log density, whether the path was accepted)."""
    generator = ef.random.Generator(1)
    scales = ef.tensor(scales)

    def transition(position):
        momentum = generator.normal(position.shape, dtype=position.dtype)
        before = log_density(position) - 0.5 * ef.sum(momentum**2)
        proposal, final = leapfrog(log_density, position, momentum, scales)
        after = log_density(proposal) - 0.5 * ef.sum(final**2)
        accepted = ef.log(generator.uniform((), dtype=position.dtype)) < after - before
        position = ef.where(accepted, proposal, position)
        return position, log_density(position), accepted

    if captured:
        transition = ef.function(transition)
    position = ef.tensor(start)
    while True:
        position, density, accepted = transition(position)
        yield position, density, accepted


def main(steps=1000, captured=True, verbose=False):
    """The log posterior density of each sample."""
    log_posterior = log_posterior_of(*make_data())
    chain = sampling(log_posterior, np.zeros(4), np.full(4, 0.5), captured)
    positions, densities, accepted = [], [], []
    for position, density, was_accepted in islice(chain, steps):
        positions.append(position.numpy())
        densities.append(float(density))
        accepted.append(bool(was_accepted))
        if verbose and len(densities) % 200 == 0:
            print(f"sample {len(densities)}: {np.mean(accepted):.0%} accepted")
    if verbose:
        kept = np.array(positions[len(positions) // 5 :])  # the first fifth may be on its way
        for name, true, mean, deviation in zip(
            ("intercept", "first", "second", "third"),
            TRUE_WEIGHTS,
            kept.mean(axis=0),
            kept.std(axis=0),
            strict=True,
        ):
            print(f"{name:>9}: {mean:5.2f} ± {deviation:.2f}, drawn with {true:.1f}")
    return densities


if __name__ == "__main__":
    main(verbose=True)
