"""The equation of ``examples/programs/neural_ode.py`` beside the same in PyTorch."""

import torch

from examples.programs import neural_ode as program
from examples.programs.neural_ode import SPAN, STEPS, runge_kutta
from examples.torch_twins.shared import Adam, in_torch


def velocity(y, w1, b1, w2, b2):
    """The network."""
    return torch.tanh(y**3 @ w1 + b1) @ w2 + b2


class Integrate(torch.autograd.Function):
    """The state after STEPS steps of size h, with gradients by the adjoint equation."""

    @staticmethod
    def forward(context, h, y, *weights):
        state = [y]
        for _ in range(STEPS):
            state = runge_kutta(lambda s: [velocity(s[0], *weights)], state, h)
        context.h = h
        context.save_for_backward(state[0], *weights)
        return state[0]

    @staticmethod
    def backward(context, gradient):
        end, *weights = context.saved_tensors
        weights = [w.detach().requires_grad_() for w in weights]

        def derivative(state):
            with torch.enable_grad():
                y = state[0].detach().requires_grad_()
                slope = velocity(y, *weights)
                found = torch.autograd.grad(slope, [y, *weights], state[1])
            return [slope.detach(), *(-g for g in found)]

        state = [end, gradient, *map(torch.zeros_like, weights)]
        for _ in range(STEPS):
            state = runge_kutta(derivative, state, -context.h)
        return None, *state[1:]


def ours(captured=True):
    """Train ours; yields losses."""
    return program.training(program.make_weights(), *program.make_spiral(), captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    times, path = program.make_spiral()
    weights = [torch.nn.Parameter(in_torch(w)) for w in program.make_weights()]
    optimizer = Adam(weights, 5e-3)
    h = float(times[SPAN] - times[0]) / STEPS
    integrate = torch.compile(Integrate.apply) if compiled else Integrate.apply
    for start, end in program.batches(path):
        optimizer.zero_grad()
        found = integrate(h, torch.from_numpy(start), *weights)
        loss = (found - torch.from_numpy(end)).abs().mean()
        loss.backward()
        optimizer.step()
        yield loss
