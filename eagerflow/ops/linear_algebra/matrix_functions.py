"""The principal square root and logarithm of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import matrix_functions as on_numpy
from eagerflow.dtypes import DType
from eagerflow.op import Missing, Sample
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.draws import host
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.linear_algebra.contraction import adjoint
from eagerflow.ops.linear_algebra.systems import (
    cubic,
    factorization,
    on_each,
    square,
    square_samples,
)
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.joining import concat
from eagerflow.spec import Array, Namespace

__all__ = ["logm", "sqrtm"]


def _size(x: Any) -> Any:
    """The largest magnitude in each matrix, or 1."""
    size = largest(magnitude(x), axis=(-2, -1), keepdims=True)
    return astype(where(greater(size, 0), size, 1), x.dtype)


def _along(function: Callable[..., Any], x: Any, direction: Any) -> Any:
    """The derivative by a direction: a block of the function of a matrix of twice the size.

    R. Mathias, "A chain rule for matrix functions and applications", 1996. It is linear in the
    direction, which is scaled to the size of the matrix.
    """
    n = x.shape[-1]
    if n == 0:
        return direction
    scale = stop_gradient(divide(_size(direction), _size(x)))
    top = concat((x, divide(direction, scale)), axis=-1)
    bottom = concat((subtract(x, x), x), axis=-1)
    return multiply(function(concat((top, bottom), axis=-2))[..., :n, n:], scale)


def _drawn(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Random matrices with eigenvalues around 2."""
    return (make(rng, dtype, shape, -0.7, 0.7) + 2 * np.eye(shape[-1])).astype(dtype)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = square_samples(rng, dtype, _drawn)
    a = _drawn(rng, dtype, (3, 3))
    one_value = 2 * np.eye(3) + np.eye(3, k=1)
    almost = np.array([[2.0, 1.0], [1e-9, 2.0]])
    own = [(a + np.conj(a.T)) / 2, one_value, almost, np.eye(2), np.diag([1e3, 1.0])]
    return [*found, *(Sample((np.asarray(x).astype(dtype),)) for x in own)]


def _by_quadrature(integrand: Callable[..., Any]) -> Callable[..., Any]:
    """The trapezoidal rule in the logarithm of the variable, which converges exponentially."""

    def of_rows(rows: list[list[Any]]) -> Any:
        a = np.reshape(rows, (len(rows), len(rows)))
        eye, step = np.eye(len(rows)), 0.15
        return step * sum(integrand(a, eye, np.exp(u)) for u in np.arange(-45, 45, step))

    return on_each(of_rows)


def _function(
    itself: Callable[[], Callable[..., Any]], **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An op that is a function of square matrices; ``itself`` returns its public form."""
    along = in_float32(lambda direction, x: _along(itself(), x, direction))
    return factorization(
        vjp=(lambda g, y, x: adjoint(along(adjoint(g), x)),),
        jvp=lambda tangents, y, x: along(tangents[0], x),
        infer=lambda x: square(x).like(),
        saves="x",
        cost=lambda x: cubic(x, flops=60),
        samples=_samples,
        onnx=Missing("how it is computed depends on the values"),
        fails=False,
        ulp=2048,
        **facts,
    )


@_function(
    lambda: sqrtm,
    reference=_by_quadrature(
        lambda a, eye, t: 2 / np.pi * t * a @ np.linalg.inv(t * t * eye + a),
    ),
)
def sqrtm(xp: Namespace, x: Array, /) -> Array:
    """The principal square root of square matrices: eigenvalues have real parts from 0 on.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n), and so is the result. A
    matrix gives NaN if it has no root of its dtype: with negative eigenvalues among floats (as
    complex numbers they have one), with Jordan blocks at 0, with values that are not finite.
    Negative eigenvalues due to rounding count as 0 for floats. Computed in float64: of Hermitian
    matrices and of those with a good basis of eigenvectors by these, with errors of a few units; of
    others by an iteration, with errors of up to the condition number times the precision. The
    gradient needs a regular matrix. Raises ShapeError for matrices that are not square. Source:
    Higham, "Functions of Matrices", 2008.

    >>> ef.linalg.sqrtm(ef.tensor([[4.0, 1.0], [0.0, 4.0]]))
    Tensor([[2.  , 0.25],
            [0.  , 2.  ]], shape=(2, 2), float32, cpu:0)
    """
    found = on_numpy.sqrtm(host(square(x)))
    return found if xp is np else xp.asarray(found)


@_function(
    lambda: logm,
    reference=_by_quadrature(
        lambda a, eye, t: t / (1 + t) * (a - eye) @ np.linalg.inv(t * eye + a),
    ),
)
def logm(xp: Namespace, x: Array, /) -> Array:
    """The principal logarithm of square matrices: eigenvalues have imaginary parts to pi.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n), and so is the result. A
    matrix gives NaN if it has no logarithm of its dtype: with negative eigenvalues among floats (as
    complex numbers they have one), with the eigenvalue 0, with values that are not finite. Computed
    in float64: next to 1 by Padé's approximant, else by eigenvectors where they are a good basis,
    else by square roots until the matrix is next to 1; errors are up to the condition number times
    the precision. Raises ShapeError for matrices that are not square. Source: Higham, "Functions of
    Matrices", 2008.

    >>> ef.linalg.logm(ef.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    Tensor([[ 0.    ,  1.5708],
            [-1.5708,  0.    ]], shape=(2, 2), float32, cpu:0)
    """
    found = on_numpy.logm(host(square(x)))
    return found if xp is np else xp.asarray(found)
