"""The autoencoder of ``examples/programs/vae.py`` beside the same in PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import vae as program
from examples.programs.vae import HIDDEN, PLANE
from examples.torch_twins.shared import Adam, copy_weights, normal, random_generator


class VAE(nn.Module):
    """An encoder to the plane and a decoder from it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * PLANE))
        self.decoder = nn.Sequential(nn.Linear(PLANE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 64))

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        logits = self.decoder(mean + torch.exp(0.5 * log_variance) * noise)
        costs = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
        divergence = 0.5 * (torch.exp(log_variance) + mean**2 - 1 - log_variance).sum(-1)
        return (costs + divergence).mean()


def ours(captured=True):
    """Train ours; yields losses."""
    return program.training(program.make_model(), program.load_digits(), captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    network = copy_weights(VAE(), program.make_model().weights)
    optimizer = Adam(network.parameters(), 2e-3)
    generator = random_generator(1)
    loss_of = torch.compile(network) if compiled else network
    for images in program.batches(program.load_digits()):
        optimizer.zero_grad()
        loss = loss_of(torch.from_numpy(images), normal(generator, (len(images), PLANE)))
        loss.backward()
        optimizer.step()
        yield loss
