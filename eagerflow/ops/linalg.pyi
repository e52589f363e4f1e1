# Written by tests/structure/stubs.py: do not edit.

from typing import Any

from eagerflow.ops import (
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    matmul,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
    vecdot,
    vector_norm,
)
from eagerflow.ops.linear_algebra.contraction import outer, tensordot
from eagerflow.ops.linear_algebra.eigenvalues import EigResult
from eagerflow.ops.linear_algebra.elimination import LUFactors, lu, lu_solve
from eagerflow.ops.linear_algebra.least_squares import (
    cond,
    lstsq,
    multi_dot,
    tensorinv,
    tensorsolve,
)
from eagerflow.ops.linear_algebra.matrices import cross, matrix_power, matrix_rank, trace
from eagerflow.ops.linear_algebra.triangles import cholesky_inverse, cholesky_solve
from eagerflow.ops.reductions.norms import matrix_norm, norm
from eagerflow.ops.shapes.diagonals import diagonal
from eagerflow.ops.shapes.reshaping import matrix_transpose
from eagerflow.tensor import Tensor

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "logm",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

def eig(x: Any, /) -> EigResult: ...
def eigvals(x: Any, /) -> Tensor: ...
def expm(x: Any, /) -> Tensor: ...
def logm(x: Any, /) -> Tensor: ...
def lu_factor(x: Any, /) -> LUFactors: ...
def solve_triangular(
    x1: Any,
    x2: Any,
    /,
    lower: bool = False,
    trans: int = 0,
    unit_diagonal: bool = False,
) -> Tensor: ...
def sqrtm(x: Any, /) -> Tensor: ...
