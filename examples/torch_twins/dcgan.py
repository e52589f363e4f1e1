"""The networks of ``examples/programs/dcgan.py`` beside the same in PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import dcgan as program
from examples.programs.dcgan import NOISE
from examples.torch_twins.shared import Adam, copy_weights, normal, random_generator


class Generator(nn.Module):
    """Images of random numbers."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(NOISE, 2 * 2 * 32, bias=False)
        self.norm_1 = nn.BatchNorm1d(2 * 2 * 32, eps=1e-3)
        self.up_1 = nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(16, eps=1e-3)
        self.up_2 = nn.ConvTranspose2d(16, 1, 4, 2, 1)

    def forward(self, noise):
        x = F.relu(self.norm_1(self.dense(noise)))
        x = x.unflatten(1, (2, 2, 32)).permute(0, 3, 1, 2)
        return torch.tanh(self.up_2(F.relu(self.norm_2(self.up_1(x)))))


class Critic(nn.Module):
    """Logits of images."""

    def __init__(self):
        super().__init__()
        self.down_1 = nn.Conv2d(1, 16, 4, 2, 1)
        self.down_2 = nn.Conv2d(16, 32, 4, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(32, eps=1e-3)
        self.logit = nn.Linear(2 * 2 * 32, 1)

    def forward(self, x):
        x = F.leaky_relu(self.down_1(x), 0.2)
        x = F.leaky_relu(self.norm(self.down_2(x)), 0.2)
        return self.logit(x.permute(0, 2, 3, 1).flatten(1))


def ours(captured=True):
    """Train ours; yields pairs of losses."""
    return program.training(*program.make_models(), program.load_digits(), captured)


def loss_of(logits, label):
    """The cross-entropy for images that are all real, or all made."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def theirs(compiled=False):
    """Train PyTorch's; yields pairs of losses."""
    models = zip((Generator(), Critic()), program.make_models(), strict=True)
    networks = [copy_weights(network, model.trainable_weights) for network, model in models]
    optimizers = [Adam(network.parameters(), 1e-3, (0.5, 0.999)) for network in networks]
    make, judge = map(torch.compile, networks) if compiled else networks
    numbers = random_generator(1)
    for images in program.batches(program.load_digits()):
        real = torch.from_numpy(images).permute(0, 3, 1, 2)
        with torch.no_grad():
            made = make(normal(numbers, (len(real), NOISE)))
        optimizers[1].zero_grad()
        critic_loss = loss_of(judge(real), 1.0) + loss_of(judge(made), 0.0)
        critic_loss.backward()
        optimizers[1].step()

        optimizers[0].zero_grad()
        generator_loss = loss_of(judge(make(normal(numbers, (len(real), NOISE)))), 1.0)
        generator_loss.backward()
        optimizers[0].step()
        yield critic_loss, generator_loss
