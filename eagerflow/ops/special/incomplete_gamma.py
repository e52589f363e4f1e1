"""The regularized incomplete gamma functions."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import GradientError
from eagerflow.ops.elementwise.arithmetic import multiply_no_nan
from eagerflow.ops.elementwise.exponential import log
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.special import digamma
from eagerflow.ops.special.family import MANY_TERMS, special
from eagerflow.primitives.special import incomplete_gamma as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["gammainc", "gammaincc"]


def _by_shape(a: Any, x: Any) -> Any:
    return multiply_no_nan(gamma_sample_gradient(a, x), gamma_density(a, x))


@special(
    kernels.gammainc,
    partials=(
        in_float32(lambda y, a, x: -_by_shape(a, x)),
        in_float32(lambda y, a, x: gamma_density(a, x)),
    ),
    saves="a x",
    singular=True,
    onnx=MANY_TERMS,
)
def gammainc(xp: Namespace, a: Array, x: Array, /) -> Array:
    """Regularized lower incomplete gamma function: the integral of t^(a-1) exp(-t) / gamma(a) to x.

    ``a``, the shape, and ``x`` are real tensors, arrays or numbers of shapes that broadcast, of
    values from 0 on; elsewhere the result is NaN. Computed in float64: by the power series, the
    continued fraction, and from shape 20 on N. M. Temme's uniform expansion (DLMF 8.11, 8.9,
    8.12). Both arguments have a gradient, of the shape a first one. Raises ShapeError where the
    shapes do not broadcast, DTypeError for complex.

    >>> ef.gammainc(1.0, ef.tensor([0.5, 3.0])), 1 - np.exp([-0.5, -3.0])
    (Tensor([0.3935, 0.9502], float32, cpu:0), array([0.39346934, 0.95021293]))
    """
    return in_double(kernels.gammainc)(xp, a, x)


@special(
    kernels.gammaincc,
    partials=(
        in_float32(lambda y, a, x: _by_shape(a, x)),
        in_float32(lambda y, a, x: -gamma_density(a, x)),
    ),
    saves="a x",
    singular=True,
    onnx=MANY_TERMS,
    ulp=40,  # of the reference, which is a difference
)
def gammaincc(xp: Namespace, a: Array, x: Array, /) -> Array:
    """Regularized upper incomplete gamma function, 1 - gammainc(a, x), accurate also where it is
    tiny.

    ``a``, the shape, and ``x`` are real tensors, arrays or numbers of shapes that broadcast, of
    values from 0 on; elsewhere the result is NaN. Computed in float64, as ``gammainc``. Both
    arguments have a gradient, of the shape a first one. Raises ShapeError where the shapes do
    not broadcast, DTypeError for complex.

    >>> ef.gammaincc(1.0, ef.tensor([0.5, 30.0])), np.exp([-0.5, -30.0])
    (Tensor([6.0653e-01, 9.3576e-14], float32, cpu:0), array([6.06530660e-01, 9.35762297e-14]))
    """
    return in_double(kernels.gammaincc)(xp, a, x)


@special(
    kernels.gamma_density,
    partials=(
        in_float32(lambda y, a, x: y * (log(x) - digamma(a))),
        in_float32(lambda y, a, x: y * ((a - 1) / x - 1)),
    ),
    saves="y a x",
    singular=True,
    onnx=MANY_TERMS,
)
def gamma_density(xp: Namespace, a: Array, x: Array, /) -> Array:
    """Density of the gamma distribution of shape ``a`` and scale 1 at ``x``.

    ``a`` and ``x`` are real tensors, arrays or numbers of shapes that broadcast, of values from 0
    on; elsewhere the result is NaN. It is the derivative of ``gammainc`` by ``x``. Raises
    ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.grad(lambda x: ef.gammainc(2.0, x))(ef.tensor(1.0)), np.exp(-1)
    (Tensor(0.3679, float32, cpu:0), np.float64(0.36787944117144233))
    """
    return in_double(kernels.gamma_density)(xp, a, x)


def _no_second(y: Any, a: Any, x: Any) -> Any:
    raise GradientError(
        "second derivatives by the shape of a gamma distribution are not offered",
        op="gamma_sample_gradient",
        argument="a",
        expected="first derivatives by a, or any by x",
    )


@special(
    kernels.gamma_sample_gradient,
    partials=(
        _no_second,
        in_float32(lambda y, a, x: digamma(a) - log(x) - y * ((a - 1) / x - 1)),
    ),
    saves="y a x",
    singular=True,
    onnx=MANY_TERMS,
)
def gamma_sample_gradient(xp: Namespace, a: Array, x: Array, /) -> Array:
    """Derivative by the shape ``a`` of a number ``x`` from a gamma distribution of scale 1.

    The number moves so that ``gammainc(a, x)`` stays. ``a`` and ``x`` are real tensors, arrays
    or numbers of shapes that broadcast, of values from 0 on; elsewhere the result is NaN.
    M. Figurnov, S. Mohamed and A. Mnih, Implicit Reparameterization Gradients (2018). Second
    derivatives by the shape raise GradientError. Raises ShapeError where the shapes do not
    broadcast, DTypeError for complex.

    >>> from eagerflow.ops.special.incomplete_gamma import gamma_sample_gradient
    >>> gamma_sample_gradient(1.0, ef.tensor([0.1, 1.0]))
    Tensor([0.2893, 1.1736], float32, cpu:0)
    """
    return in_double(kernels.gamma_sample_gradient)(xp, a, x)
