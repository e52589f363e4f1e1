"""Mean, variance and standard deviation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import RowInstructions
from eagerflow.codegen.numpy.rows import add_up
from eagerflow.dims import product
from eagerflow.dtypes import INEXACT, NARROW, float32
from eagerflow.errors import DTypeError
from eagerflow.ops.attributes import Axes
from eagerflow.ops.creation.filled import ones
from eagerflow.ops.elementwise.comparison import isfinite
from eagerflow.ops.elementwise.powers import sqrt, square
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.family import Rows, expand_reduced, numpy_kernel, reduction
from eagerflow.ops.formula import Formula, row_size
from eagerflow.ops.reductions.sums import sum, total
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import Array, Namespace, reduced_axes

__all__ = ["mean", "std", "var"]


def _reduced_sizes(x: Any, axis: Any) -> list[Any]:
    return [x.shape[i] for i in reduced_axes(axis, x.ndim)]


def reduced_count(x: Any, axis: Any) -> Any:
    """Number of elements in each reduced group: an integer, or a tensor if it is symbolic."""
    count = product(_reduced_sizes(x, axis))
    if isinstance(count, int):
        return count
    # Counts of 65,520 and more are infinite in float16, and bfloat16 rounds those above 256.
    return sum(ones((count,), float32 if x.dtype in NARROW else x.dtype, str(x.device)))


@in_float32
def share_of(g: Any, count: Any) -> Any:
    """A gradient divided by the number of elements; the count need not fit into narrow floats."""
    return g / count


# Mean --------------------------------------------------------------------------------------------


def _fast_mean(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    # np.mean does the same after several microseconds of preparations.
    whole = total(array, axis, keepdims)
    return whole / (array.size / (whole.size or 1))


def _mean_rule(g: Any, y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    share = share_of(expand_reduced(g, x, axis, keepdims), reduced_count(x, axis))
    return broadcast_to(share, x.shape)


def _mean_operator(w: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    """The rule of ONNX, where the mean of no elements is 0."""
    if 0 in _reduced_sizes(x, axis):
        return w.filled(math.nan)
    return w.reduce("ReduceMean", x, axis, keepdims)


@reduction(
    dtypes=INEXACT,
    scalar=Rows(lambda s, x: s.mean(x, "n"), columns=True),
    **numpy_kernel(_fast_mean),
    vjp=(_mean_rule,),
    jvp="linear",
    onnx=_mean_operator,
)
def mean(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Arithmetic mean of the elements over axes.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all
    axes; ``keepdims`` keeps reduced axes with size 1. Integers and bools give float32. The
    mean of nothing is NaN. Raises ShapeError for an axis that does not exist.

    >>> ef.mean(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([2., 3.], float32, cpu:0)
    """
    total = xp.sum(x, axis=axis, keepdims=keepdims)
    return total / (x.size / (total.size or 1))


# Variance and standard deviation -----------------------------------------------------------------


def _fast_var(array: Any, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Any:
    _check_correction(correction)
    if generated.takes(array):
        return generated.reduced(_var_body, axis, keepdims, array, correction=correction)
    center = add_up(array, axis, None, None, True)
    count = array.size / (center.size or 1)
    deviation = array - center / count
    squares = np.square(deviation, deviation if type(deviation) is np.ndarray else None)
    total = add_up(squares, axis, None, None, keepdims)
    # A Python float keeps float32; as an array operand it does not trip over 0.
    return total / np.asarray(max(count - correction, 0.0), total.dtype)


def _fast_std(array: Any, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Any:
    return np.sqrt(_fast_var(array, axis, keepdims, correction))


@Formula
def _var_body(x: Any, correction: float) -> Any:
    middle = x - mean(x, axis=-1, keepdims=True)
    # The mean is rounded: by the mean of the differences from it, the squares are corrected. Where
    # that is infinite, so are the squares.
    error = square(mean(middle, axis=-1, keepdims=True))
    error = where(isfinite(error), error, 0.0)
    variance = maximum(mean(square(middle), axis=-1, keepdims=True) - error, 0.0)
    if correction == 0:
        return variance
    free = maximum(row_size(x) - float(correction), 0.0)
    return variance * row_size(x) / free


@Formula
def _std_body(x: Any, correction: float) -> Any:
    return sqrt(_var_body.formula(x, correction))


def _by_formula(
    body: Formula, xp: Namespace, x: Any, axis: Any, keepdims: bool, correction: float
) -> Any:
    _check_correction(correction)
    axes = reduced_axes(axis, x.ndim)
    found = body(RowInstructions(xp, x, axes), x, correction=correction)
    return found if keepdims else xp.squeeze(found, axis=axes)


def _of_parts(xp: Namespace, x: Any, axis: Any, keepdims: bool, correction: float) -> Any:
    """The variance of complex numbers: that of the real parts and that of the imaginary ones."""
    parts = xp.real(x), xp.imag(x)
    real, imag = (_by_formula(_var_body, xp, part, axis, keepdims, correction) for part in parts)
    return real + imag


def _root_of_parts(xp: Namespace, x: Any, axis: Any, keepdims: bool, correction: float) -> Any:
    return xp.sqrt(_of_parts(xp, x, axis, keepdims, correction))


def _check_correction(correction: Any) -> None:
    if type(correction) not in (int, float):
        raise DTypeError(
            f"{correction!r} is not a number",
            argument="correction",
            expected="a Python number: 0 for a population, 1 for a sample",
        )


def _free(x: Any, axis: Any, correction: float) -> Any:
    """The divisor of a sum of squared deviations."""
    return reduced_count(x, axis) - correction


def _var_rule(g: Any, y: Any, x: Any, axis: Any, keepdims: bool, correction: float) -> Any:
    g = expand_reduced(g, x, axis, keepdims)
    return (x - mean(x, axis=axis, keepdims=True)) * (g * 2 / _free(x, axis, correction))


def _std_rule(g: Any, y: Any, x: Any, axis: Any, keepdims: bool, correction: float) -> Any:
    g, y = expand_reduced(g, x, axis, keepdims), expand_reduced(y, x, axis, keepdims)
    # For a constant, y and all deviations are 0, and any divisor makes the gradient 0.
    divisor = (y + (y == 0).astype(y.dtype)) * _free(x, axis, correction)
    return (x - mean(x, axis=axis, keepdims=True)) * (g / divisor)


def _spread(function: Callable[..., Any], **facts: Any) -> Any:
    """A measure of spread over axes; ``function`` computes it with NumPy."""
    return reduction(
        dtypes=INEXACT,
        result="real",
        scalar=Rows(_std_body if function is _fast_std else _var_body),
        **numpy_kernel(function, _root_of_parts if function is _fast_std else _of_parts),
        **facts,
    )


@_spread(
    _fast_var,
    vjp=(in_float32(_var_rule),),
    saves="x",
)
def var(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    correction: float = 0.0,
) -> Array:
    """Variance of the elements over axes.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. The sum of squared deviations is divided by the
    number of elements less ``correction``: 0 for a population, 1 for a sample. The result is
    real: of complex numbers, the squares are those of magnitudes. Integers and bools give
    float32. Raises ShapeError for an axis that does not exist.

    >>> ef.var(ef.tensor([[1.0, 3.0], [2.0, 6.0]]), axis=1)
    Tensor([1., 4.], float32, cpu:0)
    """
    return _by_formula(_var_body, xp, x, axis, keepdims, correction)


@_spread(
    _fast_std,
    vjp=(in_float32(_std_rule),),
    saves="x y",
)
def std(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    correction: float = 0.0,
) -> Array:
    """Standard deviation of the elements over axes: the square root of their variance.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1; ``correction`` is 0 for a population and 1 for a
    sample, as in ``var``. The result is real. Integers and bools give float32. The gradient is 0
    where all elements are equal. Raises ShapeError for an axis that does not exist.

    >>> ef.std(ef.tensor([[1.0, 3.0], [2.0, 6.0]]), axis=1)
    Tensor([1., 2.], float32, cpu:0)
    """
    return _by_formula(_std_body, xp, x, axis, keepdims, correction)
