"""The exponential of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen.numpy import matrices as on_numpy
from eagerflow.op import Missing
from eagerflow.ops.creation.draws import host
from eagerflow.ops.elementwise.arithmetic import subtract
from eagerflow.ops.linear_algebra.contraction import adjoint
from eagerflow.ops.linear_algebra.systems import cubic, factorization, square
from eagerflow.ops.shapes.joining import concat
from eagerflow.spec import Array, Namespace

__all__ = ["expm"]


def _expm_vjp(g: Any, y: Any, x: Any) -> Any:
    """A block of the exponential of a matrix of twice the size.

    R. Mathias, "A chain rule for matrix functions and applications", 1996.
    """
    n, star = x.shape[-1], adjoint(x)
    top = concat((star, g), axis=-1)
    bottom = concat((subtract(star, star), star), axis=-1)
    return expm(concat((top, bottom), axis=-2))[..., :n, n:]


@factorization(
    infer=lambda x: square(x).like(),
    vjp=(_expm_vjp,),
    saves="x",
    cost=lambda x: cubic(x, flops=30),
    onnx=Missing("how often it is squared depends on the values"),
    fails=False,
    ulp=2048,
)
def expm(xp: Namespace, x: Array, /) -> Array:
    """The exponential of square matrices: the sum of all powers over factorials.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n). Matrices with values that are
    not finite give NaN. Raises ShapeError for matrices that are not square. Source: Al-Mohy and
    Higham, "A new scaling and squaring algorithm for the matrix exponential", 2009.

    >>> ef.linalg.expm(ef.tensor([[0.0, 1.0], [0.0, 0.0]]))
    Tensor([[1., 1.],
            [0., 1.]], shape=(2, 2), float32, cpu:0)
    """
    found = on_numpy.exponential(host(square(x)))
    return found if xp is np else xp.asarray(found)
