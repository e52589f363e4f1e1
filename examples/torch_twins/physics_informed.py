"""The network of ``examples/programs/physics_informed.py`` beside the same in PyTorch."""

from itertools import pairwise

import torch
from torch import nn

from examples.programs import physics_informed as program
from examples.programs.physics_informed import CONDUCTIVITY
from examples.torch_twins.shared import Adam, copy_weights, in_torch


def make_network():
    """The network u(t, x)."""
    widths = (2, 32, 32, 32)
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(32, 1))


def residual(network, points):
    """du/dt - k d²u/dx² at each point."""
    points.requires_grad_()
    (slopes,) = torch.autograd.grad(network(points).sum(), points, create_graph=True)
    (along_x,) = torch.autograd.grad(slopes[:, 1].sum(), points, create_graph=True)
    return slopes[:, 0] - CONDUCTIVITY * along_x[:, 1]


def ours(captured=True):
    """Train ours; yields losses."""
    return program.training(program.make_model(), captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    network = copy_weights(make_network(), program.make_model().weights)
    optimizer = Adam(network.parameters(), 3e-3)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500, 0.03 * 3e-3)
    call = torch.compile(network) if compiled else network
    for batch in program.batches():
        inside, borders, values = map(in_torch, batch)
        optimizer.zero_grad()
        physics = (residual(call, inside) ** 2).mean()
        loss = physics + 10 * ((call(borders) - values) ** 2).mean()
        loss.backward()
        optimizer.step()
        rates.step()
        yield loss
