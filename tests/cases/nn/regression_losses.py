"""Cases of eagerflow/ops/nn/regression_losses.py."""

import math

from tests.cases.nn.loss_reduction import of_loss


def _huber_of(x, t, delta):
    far = abs(x - t)
    return far * far / 2 if far < delta else delta * (far - delta / 2)


def _kl_of(x, t, log_target):
    return math.exp(t) * (t - x) if log_target else t * (math.log(t) - x) if t else 0.0


def _poisson_of(x, t, log_input, full, eps):
    rare = t * math.log(t) - t + math.log(2 * math.pi * t) / 2 if full and t > 1 else 0.0
    return rare + (math.exp(x) - t * x if log_input else x - t * math.log(x + eps))


def _gaussian_of(x, t, var, full, eps):
    width = max(var, eps)
    rest = math.log(2 * math.pi) / 2 if full else 0.0
    return (math.log(width) + (x - t) ** 2 / width) / 2 + rest


_NUMBERS = (-2, 2), (-2, 2)
CASES = {
    "l1_loss": of_loss(lambda x, t: abs(x - t), *_NUMBERS),
    "mse_loss": of_loss(lambda x, t: (x - t) ** 2, *_NUMBERS),
    "huber_loss": of_loss(_huber_of, *_NUMBERS, delta=0.7),
    "smooth_l1_loss": of_loss(lambda x, t, beta: _huber_of(x, t, beta) / beta, *_NUMBERS, beta=0.7),
    "kl_div": of_loss(_kl_of, (-3, -0.1), (0.1, 1), log_target=True),
    "poisson_nll_loss": of_loss(_poisson_of, (0.1, 2), (0.1, 4), log_input=False, full=True),
    "gaussian_nll_loss": of_loss(_gaussian_of, *_NUMBERS, (0.3, 2), full=True),
}
