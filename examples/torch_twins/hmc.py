"""The sampler of ``examples/programs/hmc.py`` beside the same in PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from examples.programs import hmc as program
from examples.programs.hmc import LEAPS, STEP_SIZE
from examples.torch_twins.shared import in_torch, normal, random_generator

START, SCALES = np.zeros(4), np.full(4, 0.5)


def ours(captured=True):
    """Sample with ours; yields log densities."""
    log_posterior = program.log_posterior_of(*program.make_data())
    for _, density, _ in program.sampling(log_posterior, START, SCALES, captured):
        yield density


def theirs(compiled=False):
    """Sample with PyTorch; yields log densities."""
    x, labels = map(in_torch, program.make_data())
    scales = in_torch(SCALES)

    def log_density(weights):
        costs = F.binary_cross_entropy_with_logits(x @ weights, labels, reduction="sum")
        return -costs - 0.5 * (weights**2).sum() / 25

    slope = torch.func.grad(log_density)

    def transition(position, momentum, uniform):
        before = log_density(position) - 0.5 * (momentum**2).sum()
        proposal = position
        for _ in range(LEAPS):
            momentum = momentum + 0.5 * STEP_SIZE * scales * slope(proposal)
            proposal = proposal + STEP_SIZE * scales * momentum
            momentum = momentum + 0.5 * STEP_SIZE * scales * slope(proposal)
        after = log_density(proposal) - 0.5 * (momentum**2).sum()
        position = torch.where(torch.log(uniform) < after - before, proposal, position)
        return position, log_density(position)

    if compiled:
        transition = torch.compile(transition)
    generator = random_generator(1)
    position = in_torch(START)
    while True:
        momentum = normal(generator, position.shape, "float64")
        uniform = in_torch(generator.uniform((), dtype="float64"))
        position, density = transition(position, momentum, uniform)
        yield density
