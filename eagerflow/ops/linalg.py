"""Linear algebra under one name: ``ef.linalg``, as the Array API standard lists it, and more."""

from __future__ import annotations

from eagerflow.ops.contraction import matmul, outer, tensordot, vecdot
from eagerflow.ops.decompositions import cholesky, eigh, eigvalsh, qr
from eagerflow.ops.diagonals import diagonal
from eagerflow.ops.matrices import cross, matrix_power, matrix_rank, trace
from eagerflow.ops.norms import matrix_norm, norm, vector_norm
from eagerflow.ops.other_names import members
from eagerflow.ops.shape import matrix_transpose
from eagerflow.ops.singular_values import svd, svdvals
from eagerflow.ops.systems import det, inv, pinv, slogdet, solve

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

__getattr__, __dir__ = members(__name__, __all__)
