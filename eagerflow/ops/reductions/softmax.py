"""Softmax, its logarithm, and the logarithm of a sum of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import RowInstructions
from eagerflow.codegen.numpy.rows import add_up, maximum_of
from eagerflow.dtypes import INEXACT, NARROW, float32
from eagerflow.op import Onnx
from eagerflow.ops.attributes import Axes
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import reciprocal
from eagerflow.ops.elementwise.comparison import isfinite
from eagerflow.ops.elementwise.exponential import exp, log
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Cost, Rows, elements, expand_reduced, numpy_kernel, reduction
from eagerflow.ops.formula import Formula
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.reductions.sums import max, sum
from eagerflow.ops.row_formulas import by_row
from eagerflow.spec import Array, Namespace, reduced_axes

__all__ = ["log_softmax", "logsumexp", "softmax"]


def exponentials(*specs: Any, **attributes: Any) -> Cost:
    """An exponential counts as ten operations, and a few more go with it."""
    return elements(*specs, flops=14)


def _top(xp: Namespace, x: Any, axis: Any) -> Any:
    """The largest real part of complex numbers over axes, which are kept."""
    return xp.max(xp.real(x), axis=axis, keepdims=True)


# Softmax -----------------------------------------------------------------------------------------


def _complex_softmax(xp: Namespace, x: Any, axis: int) -> Any:
    if not x.size:
        return xp.zeros(x.shape, dtype=x.dtype)
    powers = xp.exp(x - _top(xp, x, axis))
    return powers / xp.sum(powers, axis=axis, keepdims=True)


@by_row(
    cost=exponentials,
    dtypes=INEXACT,
    on_complex=_complex_softmax,
    vjp=(lambda g, y, x, axis: softmax_gradient(conjugate(y), g, axis=axis),),
    saves="y",
    onnx=Onnx("Softmax"),
)
def softmax(x: Any, /, axis: int = -1) -> Any:
    """Positive numbers that sum to 1 along an axis, in proportion to exp(x).

    ``x`` is a tensor of any shape with at least one axis; of complex numbers the results are
    complex, too. The largest (real) element is subtracted first, so large values do not
    overflow; a row of which all elements are -inf gives NaN. Raises ShapeError for an axis that
    does not exist.

    >>> ef.softmax(ef.tensor([[0.0, 0.0], [1000.0, 0.0]]))
    Tensor([[0.5, 0.5],
            [1. , 0. ]], shape=(2, 2), float32, cpu:0)
    """
    powers = exp(x - max(x, axis=axis, keepdims=True))
    return powers * reciprocal(sum(powers, axis=axis, keepdims=True))


def _complex_softmax_gradient(xp: Namespace, y: Any, g: Any, axis: int) -> Any:
    return y * (g - xp.sum(y * g, axis=axis, keepdims=True))


def _softmax_gradient_rule(c: Any, _: Any, y: Any, g: Any, axis: int) -> Any:
    y, g = conjugate(y), conjugate(g)
    inner = sum(g * y, axis=axis, keepdims=True)
    return c * (g - inner) - g * sum(c * y, axis=axis, keepdims=True)


@by_row(
    ("mn", "mn"),
    cost=exponentials,
    dtypes=INEXACT,
    on_complex=_complex_softmax_gradient,
    vjp=(
        in_float32(_softmax_gradient_rule),
        lambda c, _, y, g, axis: softmax_gradient(conjugate(y), c, axis=axis),
    ),
    saves="y g",
)
def softmax_gradient(y: Any, g: Any, /, *, axis: int = -1) -> Any:
    """The gradient with respect to x of a softmax with result ``y``: y (g - sum(g y)).

    ``y`` and ``g`` are tensors of one shape, ``y`` conjugated where it is complex; the sum is
    along ``axis``. Raises ShapeError where the shapes differ.

    >>> ef.grad(lambda x: ef.softmax(x)[0])(ef.tensor([0.0, 0.0]))
    Tensor([ 0.25, -0.25], float32, cpu:0)
    """
    return y * (g - sum(y * g, axis=axis, keepdims=True))


# The logarithm of softmax ------------------------------------------------------------------------


def _complex_log_softmax(xp: Namespace, x: Any, axis: int) -> Any:
    if not x.size:
        return xp.zeros(x.shape, dtype=x.dtype)
    shifted = x - _top(xp, x, axis)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


@by_row(
    cost=exponentials,
    dtypes=INEXACT,
    on_complex=_complex_log_softmax,
    vjp=(lambda g, y, x, axis: log_softmax_gradient(conjugate(y), g, axis=axis),),
    saves="y",
    onnx=Onnx("LogSoftmax"),
)
def log_softmax(x: Any, /, axis: int = -1) -> Any:
    """The logarithm of softmax along an axis: x - logsumexp(x).

    ``x`` is a tensor of any shape with at least one axis. It neither overflows nor gives log(0),
    where ``log(softmax(x))`` would; of complex numbers the two differ by multiples of 2πi, since
    it is the logarithm of the sum that is the principal one. Raises ShapeError for an axis that
    does not exist.

    >>> ef.log_softmax(ef.tensor([1000.0, 0.0]))
    Tensor([    0., -1000.], float32, cpu:0)
    """
    shifted = x - max(x, axis=axis, keepdims=True)
    return shifted - log(sum(exp(shifted), axis=axis, keepdims=True))


def _complex_log_softmax_gradient(xp: Namespace, y: Any, g: Any, axis: int) -> Any:
    return g - xp.exp(y) * xp.sum(g, axis=axis, keepdims=True)


@in_float32
def _by_logarithm(c: Any, _: Any, y: Any, g: Any, axis: int) -> Any:
    return -c * exp(conjugate(y)) * sum(conjugate(g), axis=axis, keepdims=True)


@in_float32
def _by_gradient(c: Any, _: Any, y: Any, g: Any, axis: int) -> Any:
    return c - sum(c * exp(conjugate(y)), axis=axis, keepdims=True)


@by_row(
    ("mn", "mn"),
    cost=exponentials,
    dtypes=INEXACT,
    on_complex=_complex_log_softmax_gradient,
    vjp=(_by_logarithm, _by_gradient),
    saves="y g",
)
def log_softmax_gradient(y: Any, g: Any, /, *, axis: int = -1) -> Any:
    """The gradient with respect to x of a log_softmax with result ``y``: g - exp(y) sum(g).

    ``y`` and ``g`` are tensors of one shape, ``y`` conjugated where it is complex; the sum is
    along ``axis``. Raises ShapeError where the shapes differ.

    >>> ef.grad(lambda x: ef.log_softmax(x)[0])(ef.tensor([0.0, 0.0]))
    Tensor([ 0.5, -0.5], float32, cpu:0)
    """
    return g - exp(y) * sum(g, axis=axis, keepdims=True)


# The logarithm of a sum of exponentials ----------------------------------------------------------


@Formula
def _logsumexp_body(x: Any, axis: int = -1) -> Any:
    top = max(x, axis=axis, keepdims=True)
    # The differences would be NaN for only -inf, and for +inf.
    top = where(isfinite(top), top, 0.0)
    return log(sum(exp(x - top), axis=axis, keepdims=True)) + top


def _fast_logsumexp(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    if generated.pays(array.size) and array.dtype.char in "fd":
        return generated.reduced(_logsumexp_body, axis, keepdims, array)
    top = maximum_of(array, axis, None, None, True, -np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(array.dtype, copy=False)
    powers = array - top
    powers = np.exp(powers, powers if type(powers) is np.ndarray else None)
    result = np.log(add_up(powers, axis, None, None, True)) + top
    return result if keepdims else np.squeeze(result, axis)


def _logsumexp_rule(g: Any, y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    dtype = g.dtype
    if dtype in NARROW:
        g, y, x = (astype(a, float32) for a in (g, y, x))
    y, g = expand_reduced(y, x, axis, keepdims), expand_reduced(g, x, axis, keepdims)
    finite = isfinite(y)
    # Where y is -inf all of x is, and exp(x) is the right share: 0.
    shares = exp(x - where(finite, y, 0.0))
    # Beside a large maximum y has few digits of the logarithm: what is lost is common to all.
    shares = shares / where(finite, sum(shares, axis=axis, keepdims=True), 1.0)
    return astype(conjugate(shares) * g, dtype)


def _complex_logsumexp(xp: Namespace, x: Any, axis: Any, keepdims: bool) -> Any:
    if x.size:
        top = _top(xp, x, axis)
        top = xp.where(xp.isfinite(top), top, 0)
        result = xp.log(xp.sum(xp.exp(x - top), axis=axis, keepdims=True)) + top
    else:
        result = xp.log(xp.sum(x, axis=axis, keepdims=True))
    return result if keepdims else xp.reshape(result, xp.sum(x, axis=axis).shape)


@reduction(
    dtypes=INEXACT,
    scalar=Rows(_logsumexp_body),
    **numpy_kernel(_fast_logsumexp, _complex_logsumexp),
    combine="logaddexp",
    vjp=(_logsumexp_rule,),
    saves="x y",
    cost=exponentials,
    onnx=lambda w, x, *, axis, keepdims: w.reduce("ReduceLogSumExp", x, axis, keepdims),
)
def logsumexp(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The logarithm of the sum of exp(x) over axes, without overflow.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Integers give float32. It is -inf, with a gradient
    of 0, if there are no elements, or all are -inf. For complex numbers it is the principal
    logarithm. Raises ShapeError for an axis that does not exist.

    >>> ef.logsumexp(ef.tensor([[0.0, 0.0], [1000.0, -ef.inf]]), axis=1)
    Tensor([6.9315e-01, 1.0000e+03], float32, cpu:0)
    """
    if x.size:
        result = _logsumexp_body(RowInstructions(xp, x, reduced_axes(axis, x.ndim)), x)
    else:
        result = xp.log(xp.sum(x, axis=axis, keepdims=True))
    return result if keepdims else xp.reshape(result, xp.sum(x, axis=axis).shape)
