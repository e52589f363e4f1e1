"""Joining and splitting tensors along the first, second or third axis, as NumPy calls it."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.family import STANDARD, as_operands
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.joining import concat, split
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block",
    "column_stack",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "vsplit",
    "vstack",
]


# At least so many axes ----------------------------------------------------------------------------


def _flat(x: Any) -> Any:
    return reshape(x, (1,)) if x.ndim == 0 else x


def _rows(x: Any) -> Any:
    return reshape(x, (1, *_flat(x).shape)) if x.ndim < 2 else x


def _deep(x: Any) -> Any:
    return reshape(x, (*_rows(x).shape, 1)) if x.ndim < 3 else x


def _each(function: Any, arrays: tuple[Any, ...]) -> Any:
    found = [function(as_tensor(x)) for x in arrays]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_1d(*arrays: Any) -> Any:
    """Tensors with one axis at least.

    ``arrays`` are tensors, arrays or numbers; those without axes become vectors of one element.
    Several give a tuple.

    >>> ef.atleast_1d(ef.tensor(3.0))
    Tensor([3.], float32, cpu:0)
    """
    return _each(_flat, arrays)


def atleast_2d(*arrays: Any) -> Any:
    """Tensors with two axes at least: a vector becomes a row.

    ``arrays`` are tensors, arrays or numbers. Several give a tuple.

    >>> ef.atleast_2d(ef.tensor([1.0, 2.0])).shape
    (1, 2)
    """
    return _each(_rows, arrays)


def atleast_3d(*arrays: Any) -> Any:
    """Tensors with three axes at least: a vector becomes the second axis, a matrix the first two.

    ``arrays`` are tensors, arrays or numbers. Several give a tuple.

    >>> ef.atleast_3d(ef.tensor([1.0, 2.0])).shape
    (1, 2, 1)
    """
    return _each(_deep, arrays)


# Joining ------------------------------------------------------------------------------------------


def _operands(arrays: Any, op: str) -> list[Any]:
    items = list(arrays) if not hasattr(arrays, "ndim") else list(as_tensor(arrays))
    if not items:
        raise ShapeError("there is nothing to join", op=op, argument="arrays")
    return as_operands(*items)


@plain
def vstack(arrays: Any) -> Tensor:
    """Tensors one below the other, along the first axis; vectors are rows.

    ``arrays`` is a list or tuple of tensors. Raises ShapeError where sizes along the other axes
    differ.

    >>> ef.vstack([ef.tensor([1, 2]), ef.tensor([3, 4])]).shape
    (2, 2)
    """
    return concat([_rows(x) for x in _operands(arrays, "vstack")], axis=0)


@plain
def hstack(arrays: Any) -> Tensor:
    """Tensors concatenated: vectors along their only axis, others along the second.

    ``arrays`` is a list or tuple of tensors. Raises ShapeError where sizes along the other axes
    differ.

    >>> ef.hstack([ef.tensor([1, 2]), ef.tensor([3])])
    Tensor([1, 2, 3], int64, cpu:0)
    """
    parts = [_flat(x) for x in _operands(arrays, "hstack")]
    return concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@plain
def dstack(arrays: Any) -> Tensor:
    """Tensors concatenated along the third axis.

    ``arrays`` is a list or tuple of tensors. Raises ShapeError where sizes along the other axes
    differ.

    >>> ef.dstack([ef.tensor([1, 2]), ef.tensor([3, 4])]).shape
    (1, 2, 2)
    """
    return concat([_deep(x) for x in _operands(arrays, "dstack")], axis=2)


@plain
def column_stack(arrays: Any) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side.

    ``arrays`` is a list or tuple of tensors. Raises ShapeError where the numbers of rows differ.

    >>> ef.column_stack([ef.tensor([1, 2]), ef.tensor([3, 4])])
    Tensor([[1, 3],
            [2, 4]], shape=(2, 2), int64, cpu:0)
    """
    parts = _operands(arrays, "column_stack")
    columns = [reshape(x, (*_flat(x).shape, 1)) if x.ndim < 2 else x for x in parts]
    return concat(columns, axis=1)


@composed(dtypes=STANDARD)
def append(x: Any, values: Any, /, axis: Any = None) -> Tensor:
    """A tensor with another one appended along an axis; without an axis, both are flattened.

    ``x`` and ``values`` are tensors, arrays or numbers. Raises ShapeError where sizes along other
    axes differ.

    >>> ef.append(ef.tensor([1, 2]), [3])
    Tensor([1, 2, 3], int64, cpu:0)
    """
    if axis is None:
        return concat([reshape(x, (-1,)), reshape(values, (-1,))], axis=0)
    return concat([x, values], axis=axis)


@plain
def block(arrays: Any) -> Tensor:
    """One tensor of a nest of lists of blocks: the innermost lists are joined along the last axis.

    ``arrays`` is a tensor, or lists of lists of tensors, all nested equally deep; each level joins
    along the axis before. Raises ShapeError where sizes or depths differ.

    >>> ef.block([[ef.ones((1, 1)), ef.zeros((1, 2))], [ef.zeros((1, 3))]])
    Tensor([[1., 0., 0.],
            [0., 0., 0.]], shape=(2, 3), float32, cpu:0)
    """
    depth = _depth(arrays)
    leaves = as_operands(*_leaves(arrays))
    rank = max(depth, *(x.ndim for x in leaves))
    wide = iter([reshape(x, ((1,) * (rank - x.ndim) + tuple(x.shape))) for x in leaves])

    def joined(nest: Any, level: int) -> Any:
        if not isinstance(nest, list):
            return next(wide)
        return concat([joined(part, level - 1) for part in nest], axis=rank - level)

    return joined(arrays, depth)


def _depth(nest: Any) -> int:
    if not isinstance(nest, list):
        return 0
    depths = {_depth(part) for part in nest}
    if len(depths) != 1:
        problem = "the lists are nested unequally deep" if depths else "a list of blocks is empty"
        raise ShapeError(problem, op="block", argument="arrays")
    return 1 + depths.pop()


def _leaves(nest: Any) -> list[Any]:
    return [x for part in nest for x in _leaves(part)] if isinstance(nest, list) else [nest]


# Splitting ----------------------------------------------------------------------------------------


@plain
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Parts of a tensor along an axis; the first ones are longer where it does not divide evenly.

    ``indices_or_sections`` is a number of parts, or the starts of the second, third, ...; ``axis``
    is an integer. Parts that begin beyond the end are empty. Raises ShapeError for fewer than one
    part.

    >>> [part.shape for part in ef.array_split(ef.arange(5), 2)]
    [(3,), (2,)]
    """
    x = as_tensor(x)
    size = x.shape[normalize_axis(axis, x.ndim)]
    if isinstance(indices_or_sections, tuple | list) and isinstance(size, int):
        indices_or_sections = [min(at, size) for at in indices_or_sections]
    elif isinstance(indices_or_sections, int) and indices_or_sections > 0:
        each, more = divmod(size, indices_or_sections)
        lengths = [each + 1] * more + [each] * (indices_or_sections - more)
        indices_or_sections = np.cumsum(lengths)[:-1].tolist()
    return split(x, indices_or_sections, axis=axis)


def _split(op: str, x: Any, indices_or_sections: Any, axis: int, least: int) -> Any:
    x = as_tensor(x)
    if x.ndim < least:
        raise ShapeError(
            f"{x.ndim} axes are not enough", op=op, argument="x", expected=f"at least {least} axes"
        )
    return split(x, indices_or_sections, axis=axis)


@plain
def hsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts of a tensor along its second axis, or its only one.

    ``indices_or_sections`` is a number of equal parts, or the starts of the second, third, ....
    Raises ShapeError for unequal parts.

    >>> [part.shape for part in ef.hsplit(ef.zeros((2, 4)), 2)]
    [(2, 2), (2, 2)]
    """
    return _split("hsplit", x, indices_or_sections, min(as_tensor(x).ndim - 1, 1), 1)


@plain
def vsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts of a tensor of two axes or more along its first one.

    ``indices_or_sections`` is a number of equal parts, or the starts of the second, third, ....
    Raises ShapeError for unequal parts.

    >>> [part.shape for part in ef.vsplit(ef.zeros((4, 2)), [1])]
    [(1, 2), (3, 2)]
    """
    return _split("vsplit", x, indices_or_sections, 0, 2)


@plain
def dsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts of a tensor of three axes or more along its third one.

    ``indices_or_sections`` is a number of equal parts, or the starts of the second, third, ....
    Raises ShapeError for unequal parts.

    >>> [part.shape for part in ef.dsplit(ef.zeros((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", x, indices_or_sections, 2, 3)
