"""A neural ordinary differential equation: a network is the velocity, and a spiral is learned.

Gradients come from the adjoint equation, which is integrated backwards in time together with the
path, so the memory does not grow with the number of steps (Chen and others, 2018).
"""

from itertools import islice

import numpy as np

import eagerflow as ef

POINTS, SPAN, STEPS, BATCH = 200, 10, 20, 16  # a stretch has SPAN points and STEPS solver steps
MATRIX = np.array([[-0.1, 2.0], [-2.0, -0.1]])


def make_spiral():
    """Times and states of dy/dt = y³ A, shapes (POINTS,) and (POINTS, 2)."""
    times = np.linspace(0, 10, POINTS)
    path, between = [np.array([2.0, 0.0])], 20
    h = (times[1] - times[0]) / between
    for _ in times[1:]:
        y = path[-1]
        for _ in range(between):
            middle = y + 0.5 * h * (y**3 @ MATRIX)
            y = y + h * (middle**3 @ MATRIX)
        path.append(y)
    return times.astype("float32"), np.array(path, "float32")


def runge_kutta(velocity, state, h):
    """One step of the classical method, for a nest of tensors."""

    def moved(factor, slope):
        return [a + factor * b for a, b in zip(state, slope, strict=True)]

    k1 = velocity(state)
    k2 = velocity(moved(h / 2, k1))
    k3 = velocity(moved(h / 2, k2))
    k4 = velocity(moved(h, k3))
    return [
        a + h / 6 * (p + 2 * q + 2 * r + s)
        for a, p, q, r, s in zip(state, k1, k2, k3, k4, strict=True)
    ]


def velocity(y, weights):
    """The network: cubes, a hidden layer, a velocity in the plane."""
    w1, b1, w2, b2 = weights
    return ef.tanh(y**3 @ w1 + b1) @ w2 + b2


@ef.custom_gradient
def integrate(y, weights, h):
    """The state after STEPS steps of size h."""
    (end,) = ef.fori_loop(
        0, STEPS, lambda _, state: runge_kutta(lambda s: [velocity(s[0], weights)], state, h), [y]
    )

    def backward(gradient):
        def derivative(state):
            y, adjoint, *_ = state
            slope, pull = ef.vjp(velocity, y, weights)
            by_y, by_weights = pull(adjoint)
            return [slope, -by_y, *(-g for g in by_weights)]

        start = [end, gradient, *map(ef.zeros_like, weights)]
        _, adjoint, *by_weights = ef.fori_loop(
            0, STEPS, lambda _, state: runge_kutta(derivative, state, -h), start
        )
        return adjoint, by_weights, None

    return end, backward


def make_weights():
    """Variables of the network, the same in each run."""
    rng = np.random.default_rng(0)
    shapes = (2, 50), (50,), (50, 2), (2,)
    return [ef.Variable(rng.normal(0, 0.1, shape).astype("float32")) for shape in shapes]


def batches(path):
    """Starts of stretches of the spiral, and their ends."""
    rng = np.random.default_rng(0)
    while True:
        starts = rng.integers(0, POINTS - SPAN, BATCH)
        yield path[starts], path[starts + SPAN]


def training(weights, times, path, captured=True):
    """Train for ever; yields the loss of each step."""
    optimizer = ef.nn.optimizers.Adam(5e-3)
    h = (times[SPAN] - times[0]) / STEPS

    def step(start, end):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.abs(integrate(start, weights, h) - end))
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    if captured:
        step = ef.function(step)
    for start, end in batches(path):
        yield step(start, end)


def main(steps=600, captured=True, verbose=False):
    """The loss of each step: the mean distance of coordinates at the ends of stretches."""
    times, path = make_spiral()
    weights = make_weights()
    losses = []
    for loss in islice(training(weights, times, path, captured), steps):
        losses.append(float(loss))
        if verbose and len(losses) % 100 == 0:
            print(f"step {len(losses)}: loss {np.mean(losses[-100:]):.4f}")
    return losses


if __name__ == "__main__":
    main(verbose=True)
