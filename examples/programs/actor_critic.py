"""An actor-critic that balances a pole on a cart.

One network gives the logits of two actions and the expected return. After each episode one step
moves it: actions that led to more than was expected become more probable. Episodes have many
lengths, and the captured step takes them all.
"""

from itertools import islice

import numpy as np

import eagerflow as ef

LONGEST, DISCOUNT, RATE = 200, 0.99, 0.01


class CartPole:
    """A pole on a cart that is pushed to the left or to the right fifty times a second."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        """Begin upright; returns position, speed, angle (radians) and angular speed."""
        self.state, self.age = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype("float32")

    def step(self, action):
        """Push by 10 N for 0.02 s; returns the state, and whether the episode is over."""
        _, speed, angle, turning = self.state
        sine, cosine = np.sin(angle), np.cos(angle)
        push = ((10.0 if action == 1 else -10.0) + 0.05 * turning**2 * sine) / 1.1
        falling = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        change = np.array([speed, push - 0.05 * falling * cosine / 1.1, turning, falling])
        self.state = self.state + 0.02 * change
        self.age += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype("float32"), bool(fell or self.age == LONGEST)


class ActorCritic(ef.nn.Model):
    """Logits of the actions, and the expected return, of a batch of states."""

    def __init__(self):
        super().__init__()
        self.hidden = ef.nn.Dense(64, "relu")
        self.actor, self.critic = ef.nn.Dense(2), ef.nn.Dense(1)

    def call(self, states):
        hidden = self.hidden(states)
        return self.actor(hidden), self.critic(hidden)[:, 0]


def make_model():
    """The network, with weights that are the same in each run."""
    ef.random.seed(0)
    model = ActorCritic()
    model(np.zeros((1, 4), "float32"))
    return model


def play(environment, policy, rng):
    """One episode: the states, and the action taken in each."""
    states, actions, state, over = [], [], environment.reset(), False
    while not over:
        states.append(state)
        actions.append(int(rng.random() < policy(state[None])))
        state, over = environment.step(actions[-1])
    return np.array(states), np.array(actions)


def discounted_returns(length):
    """What is still to come after each of ``length`` pushes, with a reward of 1 for each."""
    _, returns = ef.scan(
        lambda later, reward: (reward + DISCOUNT * later, reward + DISCOUNT * later),
        0.0,
        ef.ones(length),
        reverse=True,
    )
    return returns


def training(model, captured=True):
    """Play and learn for ever; yields the length and the loss of each episode."""
    optimizer = ef.nn.optimizers.Adam(RATE)

    def policy(states):
        """The probability of a push to the right."""
        logits, _ = model(states)
        return ef.softmax(logits)[0, 1]

    def step(states, actions):
        returns = discounted_returns(states.shape[0])
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        with ef.GradientTape() as tape:
            logits, expected = model(states)
            advantage = ef.stop_gradient(returns - expected)
            costs = ef.cross_entropy(logits, actions, reduction="none")
            errors = ef.huber_loss(expected, returns, reduction="sum")
            loss = ef.sum(costs * advantage) + errors
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)
        return loss

    if captured:
        policy, step = ef.function(policy), ef.function(step)
    rng = np.random.default_rng(0)
    environment = CartPole(rng)
    while True:
        states, actions = play(environment, policy, rng)
        yield len(states), step(states, actions)


def main(steps=150, captured=True, verbose=False):
    """The length and the loss of each episode."""
    curve = []
    for length, loss in islice(training(make_model(), captured), steps):
        curve.append([length, float(loss)])
        if verbose and len(curve) % 25 == 0:
            lengths = [length for length, _ in curve[-25:]]
            print(f"episode {len(curve)}: {np.mean(lengths):.0f} pushes in the mean")
    return curve


if __name__ == "__main__":
    main(verbose=True)
