"""Weights and random numbers of ours in PyTorch, so that both programs compute the same."""

import numpy as np
import torch

import eagerflow as ef


def in_torch(value):
    """A tensor, Variable or array of ours as a tensor of PyTorch of its own memory."""
    return torch.from_numpy(np.array(value))


def normal(generator, shape, dtype="float32"):
    """Normal numbers of one of our generators."""
    return in_torch(generator.normal(shape, dtype=dtype))


def random_generator(seed):
    """The generator that ``ef.random.seed(seed)`` makes the global one."""
    return ef.random.Generator(seed)


class _OurEpsilon:
    """Adds epsilon where ours does: to the root of squares before their bias is corrected."""

    def __init__(self, parameters, *rest, **options):
        super().__init__(parameters, *rest, **options)
        self.steps = 0

    def step(self):
        self.steps += 1
        for group in self.param_groups:
            group["eps"] = 1e-7 / (1 - group["betas"][1] ** self.steps) ** 0.5
        super().step()


class Adam(_OurEpsilon, torch.optim.Adam):
    """PyTorch's Adam, with epsilon as in Keras."""


class AdamW(_OurEpsilon, torch.optim.AdamW):
    """PyTorch's AdamW, with epsilon as in Keras."""


def arrays_for(layer, take):
    """The arrays of a layer's parameters, by their names in PyTorch; ``take`` gives the next."""
    match layer:
        case torch.nn.Linear():
            found = {"weight": take().T}
        case torch.nn.Conv2d() | torch.nn.ConvTranspose2d():  # HWIO; transposed: HWOI
            found = {"weight": take().transpose(3, 2, 0, 1)}
        case torch.nn.LSTM():
            found = {"weight_ih_l0": take().T, "weight_hh_l0": take().T, "bias_ih_l0": take()}
            layer.bias_hh_l0.requires_grad_(False).zero_()  # ours has one bias
            return found
        case _:
            found = {"weight": take()}
    if getattr(layer, "bias", None) is not None:
        found["bias"] = take()
    return found


def copy_weights(network, weights):
    """Give the layers of a module the weights of ours, which has them in the same order."""
    left = iter(weights)
    with torch.no_grad():
        for layer in network.modules():
            if next(layer.children(), None) is None and next(layer.parameters(), None) is not None:
                arrays = arrays_for(layer, lambda: np.array(next(left)))
                for name, array in arrays.items():
                    getattr(layer, name).copy_(torch.from_numpy(np.ascontiguousarray(array)))
    if (extra := next(left, None)) is not None:
        raise ValueError(f"no layer takes {extra.name}")
    return network


def trained(network):
    """The parameters that an optimizer moves."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
