"""Losses of numbers and of probabilities, element by element: distances and likelihoods."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import FLOATS, INEXACT, is_complex
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.exponential import exp, log
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.nn.differences import absolute_difference, huber_difference, squared_difference
from eagerflow.ops.nn.loss_reduction import check_broadcast, check_same, reduced
from eagerflow.ops.shapes.reshaping import expand_dims
from eagerflow.tensor import Tensor

__all__ = [
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
]


@composed(dtypes=INEXACT, singular=True)
def l1_loss(x: Any, target: Any, /, reduction: str = "mean") -> Tensor:
    """Absolute differences of predictions and targets.

    ``x`` and ``target`` are tensors of one shape, of real or complex numbers; ``reduction`` is
    ``"mean"``, ``"sum"`` or ``"none"``. Raises ShapeError where the shapes differ, ArgumentError
    for another reduction.

    >>> ef.l1_loss(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(2., float32, cpu:0)
    """
    check_same(x, target)
    if is_complex(x.dtype) or is_complex(target.dtype):
        return reduced(magnitude(subtract(x, target)), reduction)
    return reduced(absolute_difference(x, target), reduction)


@composed(dtypes=FLOATS)
def mse_loss(x: Any, target: Any, /, reduction: str = "mean") -> Tensor:
    """Squared differences of predictions and targets.

    Arguments and errors are those of ``l1_loss``.

    >>> ef.mse_loss(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(5., float32, cpu:0)
    """
    check_same(x, target)
    return reduced(squared_difference(x, target), reduction)


@composed(dtypes=FLOATS)
def huber_loss(x: Any, target: Any, /, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Half the square of small differences, and linear beyond ``delta``.

    Other arguments and errors are those of ``l1_loss``. Source: Huber, 1964.

    >>> ef.huber_loss(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]), reduction="none")
    Tensor([0.5, 2.5], float32, cpu:0)
    """
    check_same(x, target)
    return reduced(huber_difference(x, target, delta=float(delta)), reduction)


@composed(dtypes=FLOATS)
def smooth_l1_loss(x: Any, target: Any, /, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Absolute differences, less half of ``beta``, and squares over twice of it up to there.

    It is ``huber_loss`` over ``beta``, and ``l1_loss`` if that is 0; other arguments and errors are
    those of ``l1_loss``. Source: Girshick, arXiv:1504.08083.

    >>> ef.smooth_l1_loss(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]), "none", beta=2.0)
    Tensor([0.25, 2.  ], float32, cpu:0)
    """
    if not beta:
        return l1_loss(x, target, reduction=reduction)
    return divide(huber_loss(x, target, reduction=reduction, delta=beta), beta)


@composed(dtypes=FLOATS)
def kl_div(x: Any, target: Any, /, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Terms of the divergence of a distribution from that which predicts it: t (log t - x).

    ``x`` holds logarithms of predicted probabilities, ``target`` probabilities, or their
    logarithms with ``log_target``. A ``reduction`` is also ``"batchmean"``, the sum over the
    size of the first axis, which is the divergence of an example. Errors are those of
    ``l1_loss``. Source: Kullback and Leibler, 1951.

    >>> ef.kl_div(ef.log(ef.tensor([0.25, 0.75])), ef.tensor([0.5, 0.5]), "sum")
    Tensor(0.1438, float32, cpu:0)
    """
    check_same(x, target)
    share = exp(target) if log_target else target
    given = target if log_target else log(where(greater(target, 0), target, 1))
    values = multiply(share, subtract(given, x))
    if not log_target:  # no share adds nothing, even if it is impossible
        values = where(greater(target, 0), values, 0)
    if reduction == "batchmean" and x.ndim:
        return divide(reduced(values, "sum"), x.shape[0])
    return reduced(values, reduction)


@composed(dtypes=FLOATS)
def poisson_nll_loss(
    x: Any,
    target: Any,
    /,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negative logarithm of the likelihood of counts at predicted rates.

    ``x`` holds logarithms of rates, or rates with ``log_input=False``, to which ``eps`` is added in
    the logarithm; ``target`` holds counts. ``full`` adds the terms that do not depend on ``x``, by
    Stirling's formula for counts above 1. Errors are those of ``l1_loss``.

    >>> ef.poisson_nll_loss(ef.tensor([1.0, 2.0]), ef.tensor([1.0, 0.0]), log_input=False)
    Tensor(1.5, float32, cpu:0)
    """
    check_same(x, target)
    if log_input:
        values = subtract(exp(x), multiply(target, x))
    else:
        values = subtract(x, multiply(target, log(add(x, eps))))
    if full:
        count = where(greater(target, 1), target, 1)
        rest = subtract(multiply(count, log(count)), count)
        rest = add(rest, multiply(log(multiply(count, 2 * math.pi)), 0.5))
        values = add(values, where(greater(target, 1), rest, 0))
    return reduced(values, reduction)


@composed(dtypes=FLOATS)
def gaussian_nll_loss(
    x: Any,
    target: Any,
    var: Any,
    /,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative logarithm of the likelihood of numbers under predicted normal distributions.

    ``x`` holds means and ``var`` variances, which count as ``eps`` at least; ``target`` broadcasts
    to the shape of ``x``, and so does ``var``, which may also lack the last axis, with one variance
    for all of its elements. ``full`` adds log(2π) / 2. Raises ShapeError where they do not
    broadcast, ArgumentError for another ``reduction``. Source: Nix and Weigend, 1994.

    >>> ef.gaussian_nll_loss(ef.tensor([1.0]), ef.tensor([3.0]), ef.tensor([1.0]))
    Tensor(2., float32, cpu:0)
    """
    check_broadcast(x, target)
    if var.ndim and var.shape == x.shape[:-1]:
        var = expand_dims(var, -1)
    check_broadcast(x, var, "var")
    width = maximum(var, eps)
    values = add(log(width), divide(squared_difference(x, target), width))
    return reduced(add(multiply(values, 0.5), math.log(2 * math.pi) / 2 if full else 0), reduction)
