"""The network of ``examples/programs/resnet.py`` beside the same in PyTorch, by autocast."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import resnet as program
from examples.programs.resnet import RATE, WIDTHS
from examples.torch_twins.shared import copy_weights


def convolution(width_in, width, size, strides=1):
    """A convolution that pads like ours: where it strides, behind the image alone."""
    padding = nn.ZeroPad2d((0, 1, 0, 1)) if strides == 2 and size == 3 else nn.Identity()
    around = 0 if strides == 2 else size // 2
    return nn.Sequential(padding, nn.Conv2d(width_in, width, size, strides, around, bias=False))


def norm(width):
    """A norm of channels with our epsilon."""
    return nn.BatchNorm2d(width, eps=1e-3)


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, width_in, width, strides):
        super().__init__()
        self.first = nn.Sequential(convolution(width_in, width, 3, strides), norm(width), nn.ReLU())
        self.is_plain = (width_in, strides) == (width, 1)
        if not self.is_plain:  # in the order of our weights, which goes by depth
            self.shortcut = convolution(width_in, width, 1, strides)
        self.second = convolution(width, width, 3)
        if not self.is_plain:
            self.shortcut_norm = norm(width)
        self.second_norm = norm(width)

    def forward(self, x):
        y = self.second_norm(self.second(self.first(x)))
        return F.relu(y + (x if self.is_plain else self.shortcut_norm(self.shortcut(x))))


class ResNet(nn.Module):
    """Logits of the digits."""

    def __init__(self):
        super().__init__()
        narrow, wide = WIDTHS
        self.first = nn.Sequential(convolution(1, narrow, 3), norm(narrow), nn.ReLU())
        sizes = (narrow, narrow, 1), (narrow, narrow, 1), (narrow, wide, 2), (wide, wide, 1)
        self.blocks = nn.Sequential(*(Block(*size) for size in sizes))
        self.logits = nn.Linear(wide, 10)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            x = self.blocks(self.first(x)).mean((2, 3))
        return self.logits(x.float())


def ours(captured=True):
    """Train ours; yields losses."""
    return program.training(program.make_model(), program.load_digits()[0], captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    network = copy_weights(ResNet(), program.make_model().trainable_weights)
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9, nesterov=True)
    logits_of = torch.compile(network) if compiled else network
    for images, digits in program.batches(*program.load_digits()[0]):
        optimizer.zero_grad()
        x = torch.from_numpy(images).permute(0, 3, 1, 2)
        loss = F.cross_entropy(logits_of(x), torch.from_numpy(digits))
        loss.backward()
        optimizer.step()
        yield loss
