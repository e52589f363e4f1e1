"""Matrices with given diagonals or blocks on them, and where diagonals and triangles are."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.family import STANDARD, as_operands
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.operands import whole_number
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.diagonals import tri
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import moveaxis, reshape
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "block_diag",
    "diag_embed",
    "diag_indices",
    "diagflat",
    "tril_indices",
    "triu_indices",
]


@composed(dtypes=STANDARD)
def diag_embed(x: Any, /, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Square matrices with the vectors along the last axis on a diagonal.

    ``x`` has one axis or more; ``offset`` counts the diagonals upwards from the main one; rows and
    columns are the axes ``dim1`` and ``dim2`` of the result. Raises ShapeError for equal axes.

    >>> ef.diag_embed(ef.tensor([1, 2]))
    Tensor([[1, 0],
            [0, 2]], shape=(2, 2), int64, cpu:0)
    """
    if x.ndim == 0:
        raise ShapeError("there is no vector", argument="x", expected="at least one axis")
    down, right = max(-whole_number(offset, "offset"), 0), max(offset, 0)
    rows, columns = (normalize_axis(dim, x.ndim + 1) for dim in (dim1, dim2))
    if rows == columns:
        raise ShapeError(f"{dim1} and {dim2} are not two different axes", argument="dim2")
    *rest, count = x.shape
    size = count + down + right
    # Each element is followed by as many zeros as move the next one down and right by one.
    widths = ((0, 0),) * len(rest)
    spread = pad(reshape(x, (*rest, count, 1)), (*widths, (0, 0), (0, size)))
    flat = reshape(spread, (*rest, count * (size + 1)))
    first = down * size + right
    whole = pad(flat, (*widths, (first, size * size + size)))[..., : size * size]
    return moveaxis(reshape(whole, (*rest, size, size)), (-2, -1), (rows, columns))


@composed(dtypes=STANDARD)
def diagflat(x: Any, /, k: int = 0) -> Tensor:
    """A square matrix with all elements of a tensor, row by row, on a diagonal.

    ``x`` has any shape; ``k`` counts the diagonals upwards from the main one. Raises
    ArgumentError for a ``k`` that is not an integer.

    >>> ef.diagflat(ef.tensor([[1], [2]]))
    Tensor([[1, 0],
            [0, 2]], shape=(2, 2), int64, cpu:0)
    """
    return diag_embed(reshape(x, (-1,)), whole_number(k, "k"))


def block_diag(*arrays: Any) -> Tensor:
    """Matrices along the diagonal of a larger one, and zeros elsewhere.

    ``arrays`` are tensors with at most two axes; vectors are rows. Raises ShapeError for more axes.

    >>> ef.block_diag(ef.tensor([[1, 2]]), ef.tensor([[3]]))
    Tensor([[1, 2, 0],
            [0, 0, 3]], shape=(2, 3), int64, cpu:0)
    """
    parts = as_operands(*arrays) if arrays else [zeros((1, 0))]
    for i, x in enumerate(parts):
        if x.ndim > 2:
            raise ShapeError(
                f"{x.ndim} axes are too many", op="block_diag", argument=f"arrays[{i}]"
            )
    matrices = [reshape(x, ((1,) * (2 - x.ndim) + tuple(x.shape))) for x in parts]
    widths = [x.shape[1] for x in matrices]
    rows = [
        pad(x, ((0, 0), (sum(widths[:i]), sum(widths[i + 1 :])))) for i, x in enumerate(matrices)
    ]
    return concat(rows, axis=0)


# Where they are -----------------------------------------------------------------------------------


@plain
def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Indices of the main diagonal of a tensor of ``ndim`` axes of size ``n``: one tensor for each.

    >>> ef.eye(3)[ef.diag_indices(3)]
    Tensor([1., 1., 1.], float32, cpu:0)
    """
    return (arange(n),) * whole_number(ndim, "ndim", 1)


@plain
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and below a diagonal of a matrix of n rows and m columns.

    ``k`` counts the diagonals upwards from the main one; ``m`` defaults to ``n``. The results are
    int64.

    >>> ef.tril_indices(2)
    (Tensor([0, 1, 1], int64, cpu:0), Tensor([0, 0, 1], int64, cpu:0))
    """
    return nonzero(tri(n, m, k, "bool"))


@plain
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and above a diagonal of a matrix of n rows and m columns.

    ``k`` counts the diagonals upwards from the main one; ``m`` defaults to ``n``. The results are
    int64.

    >>> ef.triu_indices(2)
    (Tensor([0, 0, 1], int64, cpu:0), Tensor([0, 1, 1], int64, cpu:0))
    """
    return nonzero(equal(tri(n, m, k - 1, "int8"), 0))
