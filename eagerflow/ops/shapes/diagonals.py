"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ShapeError
from eagerflow.op import Split
from eagerflow.ops.creation.filled import ones
from eagerflow.ops.family import stacked
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.indexing.indices import ALL
from eagerflow.ops.shapes.reshaping import permute_dims, reshape, shape_op
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["diag", "diagonal", "tri", "tril", "triu"]


# Triangles ----------------------------------------------------------------------------------------


def _triangle_spec(x: TensorSpec, k: int = 0) -> TensorSpec:
    if x.ndim < 2:
        raise ShapeError(
            f"a tensor with {x.ndim} ax{'i' if x.ndim == 1 else 'e'}s is not a matrix",
            argument="x",
            expected="at least 2 axes",
        )
    if isinstance(k, bool) or not isinstance(k, int):
        raise ShapeError(
            f"{k!r} is not the number of a diagonal",
            argument="k",
            received=repr(k),
            expected="an integer, counted upwards from the main diagonal",
        )
    return x.like()


def _triangle(gradient: Any, upper: int) -> Any:
    """An op that keeps the elements on one side of a diagonal."""
    return shape_op(
        infer=_triangle_spec,
        vjp=(gradient,),
        batch=stacked,
        split=lambda x, k: [Split((i,), i) for i in range(x.ndim - 2)],
        onnx=lambda w, x, *, k: w.Trilu(
            w.computable(x), w.constant(_offset(k, x), "int64"), upper=upper
        ),
        method=True,
    )


def _offset(k: int, x: Any) -> int:
    """``k`` clipped to int64; all diagonals outside of the matrix are equivalent."""
    return max(-x.shape[-2] - 1, min(x.shape[-1] + 1, k))


@_triangle(lambda g, y, x, k: tril(g, k), 0)
def tril(xp: Namespace, x: Array, /, k: int = 0) -> Array:
    """Matrices with zeros above a diagonal.

    ``x`` has at least two axes, the last two of which are rows and columns; ``k`` counts the
    diagonals upwards from the main one. Raises ShapeError for fewer axes.

    >>> ef.tril(ef.ones((2, 3)))
    Tensor([[1., 0., 0.],
            [1., 1., 0.]], shape=(2, 3), float32, cpu:0)
    """
    return xp.tril(x, k=_offset(k, x))


@_triangle(lambda g, y, x, k: triu(g, k), 1)
def triu(xp: Namespace, x: Array, /, k: int = 0) -> Array:
    """Matrices with zeros below a diagonal.

    ``x`` has at least two axes, the last two of which are rows and columns; ``k`` counts the
    diagonals upwards from the main one. Raises ShapeError for fewer axes.

    >>> ef.triu(ef.ones((2, 3)))
    Tensor([[1., 1., 1.],
            [0., 1., 1.]], shape=(2, 3), float32, cpu:0)
    """
    return xp.triu(x, k=_offset(k, x))


def tri(n_rows: Any, n_cols: Any = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones on and below a diagonal, and zeros above it.

    ``n_rows`` and ``n_cols`` (default: the same) are sizes, ``k`` counts the diagonals upwards
    from the main one; ``dtype`` defaults to float32. Raises ShapeError for invalid sizes.

    >>> ef.tri(2, 3)
    Tensor([[1., 0., 0.],
            [1., 1., 0.]], shape=(2, 3), float32, cpu:0)
    """
    return tril(ones((n_rows, n_rows if n_cols is None else n_cols), dtype), k)


# Diagonals ----------------------------------------------------------------------------------------


def _matrix_axes(x: Any, axis1: int, axis2: int) -> tuple[int, int]:
    a, b = normalize_axis(axis1, x.ndim, "axis1"), normalize_axis(axis2, x.ndim, "axis2")
    if a == b:
        raise ShapeError(
            f"axis {a} cannot be rows and columns at once",
            op="diagonal",
            argument="axis2",
            received=f"axis1={axis1}, axis2={axis2}",
            expected="two different axes",
        )
    return a, b


def _diagonal_steps(rows: int, columns: int, offset: int) -> slice:
    """Where the elements of a diagonal are in a flattened matrix."""
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = offset if offset >= 0 else -offset * columns
    if count == 0:
        return slice(0, 0, 1)
    return slice(start, start + (count - 1) * (columns + 1) + 1, columns + 1)


def diagonal(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The diagonals of matrices, along a new last axis.

    ``x`` has at least two axes; ``axis1`` and ``axis2`` are those of rows and columns, and
    ``offset`` counts the diagonals upwards from the main one. Raises ShapeError for axes
    that do not exist.

    >>> ef.diagonal(ef.tensor([[1, 2], [3, 4]]))
    Tensor([1, 4], int64, cpu:0)
    """
    x = as_tensor(x)
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ShapeError(
            f"{offset!r} is not the number of a diagonal",
            op="diagonal",
            argument="offset",
            received=summary(offset),
            expected="an integer",
        )
    a, b = _matrix_axes(x, axis1, axis2)
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    if (*rest, a, b) != tuple(range(x.ndim)):
        x = permute_dims(x, (*rest, a, b))
    rows, columns = x.shape[-2:]
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    return flat[(*(ALL,) * len(rest), _diagonal_steps(rows, columns, offset))]


def diag(x: Any, k: int = 0) -> Tensor:
    """A square matrix with a vector on a diagonal, or the diagonal of a matrix.

    ``x`` has one or two axes; ``k`` counts the diagonals upwards from the main one. Raises
    ShapeError for other numbers of axes and for sizes beyond memory.

    >>> ef.diag(ef.tensor([1, 2]))
    Tensor([[1, 0],
            [0, 2]], shape=(2, 2), int64, cpu:0)
    """
    x = as_tensor(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1 or isinstance(k, bool) or not isinstance(k, int):
        raise ShapeError(
            "diag takes a vector or a matrix, and the number of a diagonal",
            op="diag",
            received=f"{summary(x)}, k={k!r}",
            expected="one or two axes, and an integer",
        )
    size = x.shape[0] + abs(k)
    if size == 0:
        return reshape(x, (0, 0))
    if x.shape[0] == 0:
        return index_scatter(x, shape=(size, size), index=(slice(0, 0), 0))
    steps = _diagonal_steps(size, size, k)
    return reshape(index_scatter(x, shape=(size * size,), index=(steps,)), (size, size))
