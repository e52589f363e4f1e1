"""Eigenvalues and eigenvectors of square matrices of any kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow.dtypes import DType, as_dtype, is_complex
from eagerflow.op import Missing
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.complexes import real
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul, vecdot
from eagerflow.ops.linear_algebra.decompositions import (
    as_row,
    phase_rule,
    safe_reciprocal,
    with_positive_tops,
)
from eagerflow.ops.linear_algebra.systems import (
    as_column,
    cubic,
    factorization,
    gives,
    identity_like,
    not_converged,
    solve,
    square,
)
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["eig", "eigvals"]


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _complex(dtype: DType) -> DType:
    return (
        dtype
        if is_complex(dtype)
        else as_dtype("complex128" if dtype.itemsize == 8 else "complex64")
    )


def _moved_back(x: Any, vectors: Any, inner: Any) -> Any:
    """The gradient of the matrix, from that in the basis of its eigenvectors."""
    found = solve(adjoint(vectors), matmul(inner, adjoint(vectors)))
    return found if is_complex(x.dtype) else astype(real(found), x.dtype)


def _diagonal(vectors: Any, g: Any) -> Any:
    return multiply(identity_like(vectors), as_row(g))


def _eig_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    """The first-order perturbation of eigenvectors, transposed; see Giles.

    Vectors keep their length, and the largest element of each stays real.
    """
    (g_values, g_vectors), (values, vectors) = g, y
    g_vectors = phase_rule(g_vectors, vectors, vecdot(g_vectors, vectors, axis=-2))
    along = vecdot(vectors, g_vectors, axis=-2)
    along = multiply(add(along, conjugate(along)), 0.5)
    g_vectors = subtract(g_vectors, multiply(vectors, as_row(along)))
    gap = conjugate(safe_reciprocal(subtract(as_row(values), as_column(values))))
    inner = multiply(matmul(adjoint(vectors), g_vectors), gap)
    return (_moved_back(x, vectors, add(inner, _diagonal(vectors, g_values))),)


def _eigvals_vjp(g: Any, y: Any, x: Any) -> Any:
    _, vectors = eig(x)
    return _moved_back(x, vectors, _diagonal(vectors, g))


def _found(xp: Namespace, x: Any, vectors: bool) -> Any:
    try:
        found = (xp.linalg.eig if vectors else xp.linalg.eigvals)(square(x))
    except np.linalg.LinAlgError as error:
        raise not_converged() from error
    if x.size and not xp.all(xp.isfinite(found[0] if vectors else found)):
        raise not_converged()
    return found


def _values_spec(x: TensorSpec) -> TensorSpec:
    return square(x).like(x.shape[:-1], _complex(x.dtype))


@gives(EigResult)
@factorization(
    infer=lambda x: (_values_spec(x), x.like(x.shape, _complex(x.dtype))),
    vjp=_eig_vjp,
    saves="x y",
    outputs=2,
    cost=lambda x: cubic(x, flops=25),
    onnx=Missing("there are no operators for complex numbers"),
    ulp=1024,
)
def eig(xp: Namespace, x: Array, /) -> Any:
    """Eigenvalues and eigenvectors of square matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n). The result is a named tuple
    of complex tensors: ``eigenvalues`` of shape (..., n), in LAPACK's order, and ``eigenvectors``
    of shape (..., n, n), columns of length 1 whose largest element is real and positive. The
    gradient needs a matrix whose eigenvalues differ. Raises ShapeError for matrices that are not
    square, EagerflowError for values that are not finite.

    >>> ef.linalg.eig(ef.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    Tensor([0.+1.j, 0.-1.j], complex64, cpu:0)
    """
    values, vectors = _found(xp, x, vectors=True)
    dtype = _complex(x.dtype)
    wide = with_positive_tops(xp, vectors.astype(dtype))[0]
    return values.astype(dtype), wide


@factorization(
    infer=_values_spec,
    vjp=(_eigvals_vjp,),
    saves="x",
    cost=lambda x: cubic(x, flops=10),
    onnx=Missing("there are no operators for complex numbers"),
    ulp=1024,
)
def eigvals(xp: Namespace, x: Array, /) -> Array:
    """Eigenvalues of square matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n); the result is complex, of
    shape (..., n), in LAPACK's order. The gradient needs a matrix that has n independent
    eigenvectors. Raises ShapeError for matrices that are not square, EagerflowError for values
    that are not finite.

    >>> ef.linalg.eigvals(ef.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    Tensor([0.+1.j, 0.-1.j], complex64, cpu:0)
    """
    return _found(xp, x, vectors=False).astype(_complex(x.dtype))
