"""A physics-informed network: the heat equation, solved by making its residual small.

The network is u(t, x). No values inside are given: the loss asks that du/dt = k d²u/dx² at random
points, and that u is right at the beginning and at both ends (Raissi and others, 2019). The
solution is known, exp(-k π² t) sin(π x), so the error can be told.
"""

from itertools import islice

import numpy as np

import eagerflow as ef

CONDUCTIVITY, INSIDE, BORDER = 0.3, 128, 32


def make_model():
    """The network, with weights that are the same in each run."""
    ef.random.seed(0)
    return ef.nn.Sequential(
        [ef.nn.Input((2,)), *(ef.nn.Dense(32, "tanh") for _ in range(3)), ef.nn.Dense(1)]
    )


def solution(points):
    """The right values, shape (number, 1), at points (t, x)."""
    t, x = points[:, :1], points[:, 1:]
    return np.exp(-CONDUCTIVITY * np.pi**2 * t) * np.sin(np.pi * x)


def batches():
    """Points inside, points on the borders, and the values there."""
    rng = np.random.default_rng(0)
    while True:
        inside = rng.random((INSIDE, 2))
        beginning, ends = rng.random((BORDER, 2)), rng.random((BORDER, 2))
        beginning[:, 0] = 0
        ends[:, 1] = np.arange(BORDER) % 2
        borders = np.concatenate([beginning, ends])
        yield tuple(ef.tensor(a, "float32") for a in (inside, borders, solution(borders)))


def residual(model, points):
    """du/dt - k d²u/dx² at each point."""
    with ef.GradientTape() as outer:
        outer.watch(points)
        with ef.GradientTape() as inner:
            inner.watch(points)
            total = model(points).sum()
        slopes = inner.gradient(total, points)  # of each point, as no point depends on another
        along_x = slopes[:, 1].sum()
    curvature = outer.gradient(along_x, points)[:, 1]
    return slopes[:, 0] - CONDUCTIVITY * curvature


def training(model, captured=True):
    """Train for ever; yields the loss of each step."""
    optimizer = ef.nn.optimizers.Adam(ef.nn.schedules.CosineDecay(3e-3, 1500, alpha=0.03))

    def step(inside, borders, values):
        with ef.GradientTape() as tape:
            physics = ef.mean(residual(model, inside) ** 2)
            loss = physics + 10 * ef.mean((model(borders) - values) ** 2)
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    if captured:
        step = ef.function(step)
    for batch in batches():
        yield step(*batch)


def error(model):
    """The largest difference to the solution on a grid."""
    ticks = np.linspace(0, 1, 21, dtype="float32")
    points = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    return float(abs(model(points).numpy() - solution(points)).max())


def main(steps=1500, captured=True, verbose=False):
    """The loss of each step."""
    model = make_model()
    losses = []
    for loss in islice(training(model, captured), steps):
        losses.append(float(loss))
        if verbose and len(losses) % 300 == 0:
            print(f"step {len(losses)}: loss {losses[-1]:.5f}, largest error {error(model):.3f}")
    return losses


if __name__ == "__main__":
    main(verbose=True)
