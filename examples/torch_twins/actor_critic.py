"""The actor-critic of ``examples/programs/actor_critic.py`` beside the same in PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import actor_critic as program
from examples.programs.actor_critic import DISCOUNT, RATE
from examples.torch_twins.shared import Adam, copy_weights


class ActorCritic(nn.Module):
    """Logits of the actions, and the expected return."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 64)
        self.actor, self.critic = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, states):
        hidden = F.relu(self.hidden(states))
        return self.actor(hidden), self.critic(hidden)[:, 0]


def ours(captured=True):
    """Train ours; yields pairs of length and loss."""
    return program.training(program.make_model(), captured)


def theirs(compiled=False):
    """Train PyTorch's; yields pairs of length and loss."""
    network = copy_weights(ActorCritic(), program.make_model().weights)
    optimizer = Adam(network.parameters(), RATE)
    call = torch.compile(network, dynamic=True) if compiled else network

    @torch.no_grad()
    def policy(states):
        logits, _ = network(torch.from_numpy(states))
        return torch.softmax(logits, dim=-1)[0, 1]

    rng = np.random.default_rng(0)
    environment = program.CartPole(rng)
    while True:
        states, actions = program.play(environment, policy, rng)
        returns = torch.zeros(len(states) + 1)
        for i in reversed(range(len(states))):
            returns[i] = 1 + DISCOUNT * returns[i + 1]
        returns = returns[:-1]
        returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-6)
        logits, expected = call(torch.from_numpy(states))
        costs = F.cross_entropy(logits, torch.from_numpy(actions), reduction="none")
        advantage = (returns - expected).detach()
        loss = (costs * advantage).sum() + F.huber_loss(expected, returns, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield len(states), loss
