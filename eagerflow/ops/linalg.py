"""Linear algebra under one name: ``ef.linalg``, as the Array API standard lists it, and more."""

from __future__ import annotations

from eagerflow.ops.late import LINALG
from eagerflow.ops.linear_algebra.contraction import matmul, outer, tensordot, vecdot
from eagerflow.ops.linear_algebra.decompositions import cholesky, eigh, eigvalsh, qr, svd, svdvals
from eagerflow.ops.linear_algebra.matrices import cross, matrix_power, matrix_rank, trace
from eagerflow.ops.linear_algebra.systems import det, inv, pinv, slogdet, solve
from eagerflow.ops.other_names import members
from eagerflow.ops.reductions.norms import matrix_norm, norm, vector_norm
from eagerflow.ops.shapes.diagonals import diagonal
from eagerflow.ops.shapes.reshaping import matrix_transpose

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
__all__ = sorted([*__all__, *LINALG])

__getattr__, __dir__ = members(__name__, __all__, LINALG)
