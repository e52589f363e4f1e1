"""The gamma and beta functions."""

from __future__ import annotations

from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.special import digamma
from eagerflow.ops.family import Missing
from eagerflow.ops.special.family import special
from eagerflow.primitives.special import gamma as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["beta", "betaln", "gamma"]

_PIECES = Missing("a choice among formulas by where its arguments lie")


@special(
    kernels.gamma,
    partials=(in_float32(lambda y, x: y * digamma(x)),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
)
def gamma(xp: Namespace, x: Array, /) -> Array:
    """Gamma function of each element: (x - 1)! of integers.

    ``x`` is a real tensor of any shape; integers are taken as float32. Infinite at 0, NaN at -1,
    -2 and so on. Computed in float64, with a relative error below 3e-15. Raises DTypeError for
    complex.

    >>> ef.gamma(ef.tensor([5.0, 0.5])), np.sqrt(np.pi)
    (Tensor([24.    ,  1.7725], float32, cpu:0), np.float64(1.7724538509055159))
    """
    return in_double(kernels.gamma)(xp, x)


@special(
    kernels.beta,
    partials=(
        in_float32(lambda y, a, b: y * (digamma(a) - digamma(a + b))),
        in_float32(lambda y, a, b: y * (digamma(b) - digamma(a + b))),
    ),
    saves="y a b",
    singular=True,
    onnx=_PIECES,
)
def beta(xp: Namespace, a: Array, b: Array, /) -> Array:
    """Beta function: gamma(a) gamma(b) / gamma(a + b).

    ``a`` and ``b`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Infinite where either is 0, -1, -2 and so on. Computed in float64, of
    positive numbers without intermediate overflow. Raises ShapeError where the shapes do not
    broadcast, DTypeError for complex.

    >>> ef.beta(ef.tensor([1.0, 2.0]), 3.0)
    Tensor([0.3333, 0.0833], float32, cpu:0)
    """
    return in_double(kernels.beta)(xp, a, b)


@special(
    kernels.betaln,
    partials=(
        in_float32(lambda y, a, b: digamma(a) - digamma(a + b)),
        in_float32(lambda y, a, b: digamma(b) - digamma(a + b)),
    ),
    saves="a b",
    singular=True,
    onnx=_PIECES,
    ulp=8,
)
def betaln(xp: Namespace, a: Array, b: Array, /) -> Array:
    """Logarithm of the absolute value of the beta function.

    ``a`` and ``b`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Computed in float64, of large positive numbers without the differences of
    their own logarithms; close to 0 the error is absolute, not relative. Raises ShapeError where
    the shapes do not broadcast, DTypeError for complex.

    >>> ef.betaln(ef.tensor([1.0, 1e6]), ef.tensor([3.0, 1e6]))
    Tensor([-1.0986e+00, -1.3863e+06], float32, cpu:0)
    """
    return in_double(kernels.betaln)(xp, a, b)
