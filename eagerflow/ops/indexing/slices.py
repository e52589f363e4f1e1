"""Gradients of tables with few looked-up rows: these rows, and their indices.

A look-up with such a gradient passes it to the tape itself. The tape sums them with ``+``: slices
plus slices are slices, slices plus a tensor are a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.customs import custom_call
from eagerflow.dims import product
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, negative
from eagerflow.ops.elementwise.comparison import less
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.indexing.updating import index_add
from eagerflow.ops.reductions.sorting import searchsorted, sort
from eagerflow.ops.reductions.unique import unique
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.recorder import recorder_state
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["IndexedSlices"]

_ROWS = ("array",)


class IndexedSlices:
    """Some slices of a tensor along its first axis; all others are 0.

    ``values`` has the shape ``(n, *dense_shape[1:])``, ``indices`` are n integers from 0 to below
    ``dense_shape[0]``. Slices with equal indices are summed. Tapes return them as gradients of
    Variables for look-ups that request it (``ef.embedding_lookup``, ``ef.nn.Embedding``), and
    optimizers accept them. ``+`` concatenates two of them, or gives a Tensor with a tensor; ``*``
    and ``/`` take a number. Raises DTypeError for noninteger indices, ShapeError for
    shapes that do not fit.

    >>> g = ef.IndexedSlices([[1.0, 2.0], [3.0, 4.0]], [2, 2], (3, 2))
    >>> g
    IndexedSlices(2 slices of shape (3, 2), float32, cpu:0)
    >>> g.to_dense()
    Tensor([[0., 0.],
            [0., 0.],
            [4., 6.]], shape=(3, 2), float32, cpu:0)
    """

    __slots__ = ("dense_shape", "indices", "values")

    __array_ufunc__ = None  # NumPy's arrays defer operators to this class

    def __init__(self, values: Any, indices: Any, dense_shape: Any) -> None:
        self.values: Tensor = as_tensor(values)
        self.indices: Tensor = as_tensor(indices)
        self.dense_shape: tuple[Any, ...] = tuple(dense_shape)
        if self.indices.dtype not in INTEGERS:
            raise DTypeError(
                f"{self.indices.dtype.name} values cannot be indices",
                op="IndexedSlices",
                argument="indices",
                received=summary(self.indices),
                expected="integers",
            )
        wanted = (*self.indices.shape, *self.dense_shape[1:])
        if self.indices.ndim != 1 or not self.dense_shape or self.values.shape != wanted:
            raise ShapeError(
                f"the slices do not fit indices of shape {self.indices.shape}",
                op="IndexedSlices",
                argument="values",
                received=summary(self.values),
                expected=f"(n, *{self.dense_shape[1:]}), and n indices",
            )

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the whole tensor."""
        return self.dense_shape

    @property
    def ndim(self) -> int:
        """Number of axes of the whole tensor."""
        return len(self.dense_shape)

    @property
    def dtype(self) -> Any:
        """Type of the elements."""
        return self.values.dtype

    @property
    def device(self) -> Any:
        """Where the values are."""
        return self.values.device

    def __repr__(self) -> str:
        return (
            f"IndexedSlices({self.indices.shape[0]} slices of shape {self.dense_shape}, "
            f"{self.dtype.name}, {self.device})"
        )

    def with_values(self, values: Tensor) -> IndexedSlices:
        """Other values at the same indices."""
        return IndexedSlices(values, self.indices, self.dense_shape)

    def to_dense(self) -> Tensor:
        """The whole tensor.

        >>> ef.IndexedSlices([1.0, 2.0], [0, 3], (4,)).to_dense()
        Tensor([1., 0., 0., 2.], float32, cpu:0)
        """
        found: Tensor = index_scatter(
            self.values, self.indices, shape=self.dense_shape, index=_ROWS
        )
        return found

    def deduplicated(self) -> IndexedSlices:
        """Each index once, in ascending order, with the sum of its slices.

        Raises CaptureError while a graph is captured, as their number depends on values; ``summed``
        and ``totals`` do not.

        >>> g = ef.IndexedSlices([1.0, 2.0, 4.0], [3, 0, 3], (4,)).deduplicated()
        >>> g.indices.tolist(), g.values.tolist()
        ([0, 3], [2.0, 5.0])
        """
        rows, number = unique(self.indices, return_inverse=True)
        shape = (rows.shape[0], *self.dense_shape[1:])
        sums = index_scatter(self.values, number, shape=shape, index=_ROWS)
        return IndexedSlices(sums, rows, self.dense_shape)

    def summed(self) -> IndexedSlices:
        """The same number of slices, sorted; the first of equal indices has the sum, others 0.

        >>> g = ef.IndexedSlices([1.0, 2.0, 4.0], [3, 0, 3], (4,)).summed()
        >>> g.indices.tolist(), g.values.tolist()
        ([0, 3, 3], [2.0, 5.0, 0.0])
        """
        line = sort(self.indices)
        return IndexedSlices(self._sums(searchsorted(line, self.indices)), line, self.dense_shape)

    def totals(self) -> Tensor:
        """For each slice the sum of all with its index: the dense tensor's value there.

        >>> ef.IndexedSlices([1.0, 2.0, 4.0], [3, 0, 3], (4,)).totals()
        Tensor([5., 2., 5.], float32, cpu:0)
        """
        first = searchsorted(sort(self.indices), self.indices)
        found: Tensor = take(self._sums(first), first, axis=0)
        return found

    def _sums(self, places: Tensor) -> Tensor:
        """Slices added at these indices among as many zeros."""
        found: Tensor = index_scatter(self.values, places, shape=self.values.shape, index=_ROWS)
        return found

    def __add__(self, other: Any) -> Any:
        if type(other) is IndexedSlices:
            if other.dense_shape != self.dense_shape:
                raise ShapeError(
                    f"slices of {self.dense_shape} and {other.dense_shape} are not of one tensor",
                    op="IndexedSlices",
                    expected="equal shapes",
                )
            values = concat([self.values, other.values])
            return IndexedSlices(values, concat([self.indices, other.indices]), self.dense_shape)
        if isinstance(other, Tensor | Variable) and other.shape == self.dense_shape:
            return index_add(other, self.values, self.indices, index=_ROWS)
        return add(self.to_dense(), other)

    __radd__ = __add__

    def __mul__(self, number: Any) -> IndexedSlices:
        return self.with_values(multiply(self.values, number))

    __rmul__ = __mul__

    def __truediv__(self, number: Any) -> IndexedSlices:
        return self.with_values(divide(self.values, number))

    def __neg__(self) -> IndexedSlices:
        return self.with_values(negative(self.values))


tree.register(
    IndexedSlices,
    lambda g: (("values", "indices", g.dense_shape), (g.values, g.indices)),
    lambda keys, items: _rebuilt(items, keys[-1]),
)


def _rebuilt(items: Any, shape: Any) -> IndexedSlices:
    """Slices with placeholders for values and indices, possibly not tensors."""
    found = IndexedSlices.__new__(IndexedSlices)
    found.values, found.indices = items
    found.dense_shape = shape
    return found


# Look-ups ----------------------------------------------------------------------------------------


def looked_up(find: Callable[[Any, Any], Tensor], table: Any, ids: Any) -> Tensor:
    """``find(table, ids)``, slices of a table along its first axis, with slices as gradient.

    That is only the case for a Variable, as gradients of computed values have to be tensors; and
    only on a tape within other tapes and a trace at most.
    """
    recorder = recorder_state()[1]
    while recorder is not None and recorder.derives is not None:
        recorder = recorder.outer
    if recorder is not None or not isinstance(table, Variable):
        return find(table, ids)

    def with_rule(value: Tensor, ids: Tensor) -> Any:
        shape = value.shape

        def back(g: Tensor) -> Any:
            return slices_back(g, shape, ids), None

        back.takes_none = True  # type: ignore[attr-defined]  # a trace writes down the look-up
        return find(value, ids), back

    found: Tensor = custom_call(with_rule, (table.value, as_tensor(ids)))
    return found


def slices_back(g: Any, shape: tuple[Any, ...], ids: Any) -> Any:
    """The gradient of a table of this shape: slices, or a tensor where derivatives may follow."""
    n = product(ids.shape)
    rows = reshape(ids, (n,)).astype("int64")
    rows = where(less(rows, 0), add(rows, shape[0]), rows)
    found = IndexedSlices(reshape(g, (n, *shape[1:])), rows, shape)
    recorder = recorder_state()[1]
    return found if recorder is None or recorder.derives is False else found.to_dense()
