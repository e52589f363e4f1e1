"""The principal square root and logarithm of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import matrix_functions as on_numpy
from eagerflow.op import Missing
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.draws import host
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.linear_algebra.contraction import adjoint
from eagerflow.ops.linear_algebra.systems import cubic, factorization, square
from eagerflow.ops.reductions.sums import max as largest
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
        onnx=Missing("how it is computed depends on the values"),
        fails=False,
        ulp=2048,
        **facts,
    )


@_function(lambda: sqrtm)
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


@_function(lambda: logm)
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
