"""Weighted means, covariances and correlations."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dtypes import INEXACT, NUMERIC, REAL, is_complex
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.elementwise.complexes import conj, real
from eagerflow.ops.elementwise.powers import sqrt
from eagerflow.ops.elementwise.selection import maximum
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.operands import floating, wide
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.diagonals import diagonal
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import reduced_axes
from eagerflow.tensor import Tensor

__all__ = ["average", "corrcoef", "cov", "ptp"]


@composed(dtypes=REAL)
def ptp(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """From the smallest to the largest element over axes: their difference.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Raises ShapeError where a reduced axis has size 0.

    >>> ef.ptp(ef.tensor([[1.0, 4.0], [3.0, 5.0]]), axis=1)
    Tensor([3., 2.], float32, cpu:0)
    """
    high = largest(x, axis=axis, keepdims=keepdims)
    return subtract(high, smallest(x, axis=axis, keepdims=keepdims))


# Means --------------------------------------------------------------------------------------------


def _average(x: Any, weights: Any, axis: Any, keepdims: bool) -> Any:
    weight = total(weights, axis=axis, keepdims=keepdims)
    return divide(total(multiply(x, weights), axis=axis, keepdims=keepdims), weight), weight


@composed(dtypes=NUMERIC)
def average(
    x: Any,
    weights: Any = None,
    /,
    axis: Any = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """Mean of the elements over axes, each with its weight.

    ``x`` is a numeric tensor; ``weights`` has its shape, or that of ``axis`` alone: an integer, a
    tuple of integers or None for all axes; ``keepdims`` keeps reduced axes with size 1. With
    ``returned`` the sum of the weights is returned, too. Raises ShapeError for weights that do not
    fit.

    >>> ef.average(ef.tensor([1.0, 4.0]), ef.tensor([3.0, 1.0]))
    Tensor(1.75, float32, cpu:0)
    """
    x = floating(x, "x", INEXACT)
    axes = reduced_axes(axis, x.ndim)
    if weights is None:
        found = mean(x, axis=axis, keepdims=keepdims)
        weights = broadcast_to(as_tensor(1, x.dtype, x.device), x.shape)
        return (found, total(weights, axis=axis, keepdims=keepdims)) if returned else found
    weights = astype(weights, x.dtype) if not is_complex(weights.dtype) else weights
    if weights.shape != x.shape:
        if weights.shape != tuple(x.shape[i] for i in axes) or axis is None:
            raise ShapeError(
                "weights do not fit",
                argument="weights",
                expected="the shape of x, or the sizes along axis",
            )
        weights = reshape(weights, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
        weights = broadcast_to(weights, x.shape)
    found, weight = wide(_average, x, weights, axis=axis, keepdims=keepdims)
    return (found, weight) if returned else found


# Covariances --------------------------------------------------------------------------------------


def _observed(x: Any, y: Any, rowvar: bool) -> Any:
    """Variables as rows, observations as columns."""
    parts = []
    for name, part in (("x", x), ("y", y)):
        if part is None:
            continue
        if part.ndim > 2:
            raise ShapeError(f"{part.ndim} axes are too many", argument=name)
        part = floating(part, name, INEXACT)
        rows = reshape(part, (1, -1)) if part.ndim < 2 else part
        parts.append(rows.T if not rowvar and part.ndim == 2 else rows)
    if len(parts) == 2:
        dtype = multiply(parts[0][:1, :1], parts[1][:1, :1]).dtype
        parts = [astype(part, dtype) for part in parts]
    return parts[0] if len(parts) == 1 else concat(parts, axis=0)


def _covariance(x: Any, weights: Any, ddof: Any, reliable: Any) -> Any:
    """Of rows; ``reliable`` are the reliability weights of columns."""
    if weights is None:
        middle = mean(x, axis=1, keepdims=True)
        far, count = subtract(x, middle), float(x.shape[1])
        return divide(
            matmul(far, conj(far.T) if is_complex(far.dtype) else far.T), max(count - ddof, 0)
        )
    weight = total(weights)
    middle = divide(total(multiply(x, weights), axis=1, keepdims=True), weight)
    far = subtract(x, middle)
    lost = ddof
    if reliable is not None and ddof:
        lost = multiply(divide(total(multiply(weights, reliable)), weight), ddof)
    spread = multiply(far, weights)
    turned = conj(spread.T) if is_complex(spread.dtype) else spread.T
    free = subtract(weight, lost)
    return divide(matmul(far, turned), maximum(real(free) if is_complex(free.dtype) else free, 0))


def _checked_ddof(bias: bool, ddof: Any) -> Any:
    if ddof is None:
        return 0 if bias else 1
    if isinstance(ddof, bool) or not isinstance(ddof, int):
        raise ArgumentError(f"{ddof!r} is not an integer", argument="ddof", expected="an integer")
    return ddof


@composed(dtypes=NUMERIC, sizes=Missing("observations have to be counted"))
def cov(
    x: Any,
    y: Any = None,
    /,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Tensor:
    """Covariances of variables with several observations each.

    ``x`` has a variable in each row, and an observation in each column; with ``rowvar=False`` it is
    the other way around; ``y`` has additional variables. The sums are divided by the number of
    observations less ``ddof``: 1, or 0 with ``bias``. ``fweights`` are the repetition counts of
    observations, ``aweights`` their weights. The result has shape (variables, variables), or none
    for one variable. Raises ShapeError for more than two axes.

    >>> ef.cov(ef.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), float32, cpu:0)
    """
    rows, lost = _observed(x, y, rowvar), _checked_ddof(bias, ddof)
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            more = as_tensor(given, rows.dtype, rows.device)
            weights = more if weights is None else multiply(weights, more)
    reliable = None if aweights is None else as_tensor(aweights, rows.dtype, rows.device)
    found = wide(_covariance, rows, weights, ddof=lost, reliable=reliable)
    return reshape(found, ()) if found.shape == (1, 1) else found


@composed(dtypes=NUMERIC, sizes=Missing("observations have to be counted"))
def corrcoef(x: Any, y: Any = None, /, rowvar: bool = True) -> Tensor:
    """Pearson's correlation coefficients of variables with several observations each.

    ``x``, ``y`` and ``rowvar`` are those of ``ef.cov``. The result has shape (variables,
    variables), or none for one variable; NaN if a variable is constant. Raises ShapeError for more
    than two axes.

    >>> ef.corrcoef(ef.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), float32, cpu:0)
    """
    found = wide(_covariance, _observed(x, y, rowvar), None, ddof=1, reliable=None)
    spread = sqrt(real(diagonal(found)) if is_complex(found.dtype) else diagonal(found))
    scaled = divide(divide(found, reshape(spread, (-1, 1))), spread)
    return reshape(scaled, ()) if scaled.shape == (1, 1) else scaled
