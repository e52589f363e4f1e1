"""Exponentials and logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eagerflow.dtypes import is_complex
from eagerflow.ops.elementwise.arithmetic import over, reciprocal
from eagerflow.ops.elementwise.comparison import equal, isinf, logical_and
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import INEXACT, Onnx, Operand, ufunc
from eagerflow.spec import Array, Namespace

__all__ = ["exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "logaddexp"]

Call = Callable[..., Any]


def analytic(partial: Call, *, saves: str, **facts: Any) -> Callable[[Call], Call]:
    """A function of real and complex numbers, by its derivative."""
    return ufunc(partials=(partial,), saves=saves, dtypes=INEXACT, **facts)


@analytic(Operand(0), saves="y", compiled=True, onnx=Onnx("Exp"))
def exp(xp: Namespace, x: Array, /) -> Array:
    """E to the power of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.exp(ef.tensor([0.0, 1.0]))
    Tensor([1.    , 2.7183], float32, cpu:0)
    """
    return xp.exp(x)


def _complex_exp2(xp: Namespace, x: Any) -> Any:
    """A power of two turned by an angle, so that powers of whole numbers are exact."""
    length, angle = xp.exp2(xp.real(x)), xp.imag(x) * math.log(2)
    y = length * xp.exp(angle * 1j)
    finite = xp.isfinite(x)
    if xp.all(finite):
        return y
    # A product of complex numbers would turn infinite parts into NaN.
    parts = xp.stack((xp.real(x) * math.log(2), angle), axis=-1)
    return xp.where(finite, y, xp.exp(parts.view(x.dtype)[..., 0]))


@analytic(
    lambda y, x: y * math.log(2),
    saves="y",
    compiled=True,
    overrides={"complex": _complex_exp2},
    onnx=lambda w, x: w.Pow(w.constant(2, x.dtype), x),
)
def exp2(xp: Namespace, x: Array, /) -> Array:
    """2 to the power of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.exp2(ef.tensor([0.0, 3.0]))
    Tensor([1., 8.], float32, cpu:0)
    """
    return xp.exp2(x)


def _complex_expm1(xp: Namespace, x: Any) -> Any:
    """The standard's values: the exponential's for infinities and NaN, +0 + bj for zeros."""
    y, finite, zero = xp.expm1(x), xp.isfinite(x), x == 0
    y = y if xp.all(finite) else xp.where(finite, y, xp.exp(x) - 1)
    return xp.where(zero, xp.sqrt(x), y) if xp.any(zero) else y  # sqrt: -0 + bj becomes +0 + bj


@analytic(
    lambda y, x: y + 1,
    saves="y",
    compiled=True,
    overrides={"complex": _complex_expm1},
    onnx=lambda w, x: w.Mul(
        w.Add(w.Exp(x), w.constant(1, x.dtype)), w.Tanh(w.Mul(x, w.constant(0.5, x.dtype)))
    ),
)
def expm1(xp: Namespace, x: Array, /) -> Array:
    """E to the power of each element, minus 1, exact also where the power is close to 1.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.expm1(ef.tensor([0.0, 1e-10]))
    Tensor([0.e+00, 1.e-10], float32, cpu:0)
    """
    return xp.expm1(x)


@analytic(
    lambda y, x: over(x),
    saves="x",
    singular=True,
    compiled=True,
    onnx=Onnx("Log"),
)
def log(xp: Namespace, x: Array, /) -> Array:
    """Natural logarithm of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. 0 gives -infinity, negative
    real numbers NaN. Raises DTypeError for non-numeric dtypes.

    >>> ef.log(ef.tensor([1.0, ef.e]))
    Tensor([0., 1.], float32, cpu:0)
    """
    return xp.log(x)


def _log1p_operator(w: Any, x: Any) -> Any:
    """The quotient corrects the rounding error of 1 + x (Kahan)."""
    one = w.constant(1, x.dtype)
    near = w.Add(one, x)
    found = w.Mul(w.Log(near), w.Div(x, w.Sub(near, one)))
    same = w.Or(w.Equal(near, one, dtype=bool), w.Equal(near, x, dtype=bool))
    return w.Where(same, x, found, dtype=x.dtype)


@analytic(
    lambda y, x: over(x + 1),
    saves="x",
    singular=True,
    compiled=True,
    onnx=_log1p_operator,
)
def log1p(xp: Namespace, x: Array, /) -> Array:
    """Natural logarithm of 1 + each element, exact also close to 0.

    ``x`` is a tensor of any shape; integers are taken as float32. -1 gives -infinity. Raises
    DTypeError for non-numeric dtypes.

    >>> ef.log1p(ef.tensor([0.0, 1e-10]))
    Tensor([0.e+00, 1.e-10], float32, cpu:0)
    """
    return xp.log1p(x)


@analytic(
    lambda y, x: over(x * math.log(2)),
    saves="x",
    singular=True,
    onnx=lambda w, x: w.Mul(w.Log(x), w.constant(1 / math.log(2), x.dtype)),
)
def log2(xp: Namespace, x: Array, /) -> Array:
    """Logarithm to base 2 of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. 0 gives -infinity, negative
    real numbers NaN. Raises DTypeError for non-numeric dtypes.

    >>> ef.log2(ef.tensor([1.0, 8.0]))
    Tensor([0., 3.], float32, cpu:0)
    """
    return xp.log2(x)


@analytic(
    lambda y, x: over(x * math.log(10)),
    saves="x",
    singular=True,
    onnx=lambda w, x: w.Mul(w.Log(x), w.constant(1 / math.log(10), x.dtype)),
)
def log10(xp: Namespace, x: Array, /) -> Array:
    """Logarithm to base 10 of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. 0 gives -infinity, negative
    real numbers NaN. Raises DTypeError for non-numeric dtypes.

    >>> ef.log10(ef.tensor([1.0, 100.0]))
    Tensor([0., 2.], float32, cpu:0)
    """
    return xp.log10(x)


@in_float32
def _weight(_: Any, x: Any, other: Any) -> Any:
    """The share of exp(x) in the sum: 1 / (1 + exp(other - x)); 1/2 for two equal infinities."""
    if is_complex(x.dtype):  # their powers overflow to infinities without a reciprocal
        return exp(x - logaddexp(x, other))
    both_infinite = logical_and(equal(x, other), isinf(x))  # of other equals, the slope counts
    return reciprocal(exp(where(both_infinite, 0, other - x)) + 1)


def _logaddexp_body(s: Any, a: Any, b: Any) -> Any:
    distance = s.select(s.equal(a, b), 0, s.abs(s.subtract(a, b)))  # also of two infinities
    return s.add(s.maximum(a, b), s.log1p(s.exp(s.negative(distance))))


def complex_logaddexp(xp: Namespace, x1: Any, x2: Any) -> Any:
    """The principal logarithm of the sum of two complex exponentials, of arrays."""
    top = xp.maximum(xp.real(x1), xp.real(x2))
    top = xp.where(xp.isfinite(top), top, 0)
    return xp.log(xp.exp(x1 - top) + xp.exp(x2 - top)) + top


@ufunc(
    partials=(_weight, lambda y, a, b: _weight(y, b, a)),
    saves="x1 x2",
    singular=True,
    dtypes=INEXACT,
    overrides={"complex": complex_logaddexp},
    scalar=_logaddexp_body,
)
def logaddexp(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Logarithm of the sum of two exponentials, without intermediate overflow.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; integers are taken
    as float32. Of complex numbers it is the principal logarithm, with an imaginary part from -π
    to π. Close to 0 the error is absolute, not relative. Raises ShapeError where the shapes do
    not broadcast, DTypeError for non-numeric dtypes.

    >>> ef.logaddexp(ef.tensor([0.0, 1000.0]), ef.tensor([0.0, 1000.0]))
    Tensor([6.9315e-01, 1.0007e+03], float32, cpu:0)
    """
    return xp.logaddexp(x1, x2)
