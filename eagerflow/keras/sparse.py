"""Sparse tensors for Keras: the nonzero elements of a tensor, and their positions.

This module is independent of Keras. A *rule* extends a function of dense tensors to sparse ones:
``rule(function, *arguments)`` calls it with values only, or with dense tensors. Keras's functions
and the operators of the class share the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.spec import normalize_axes

__all__ = [
    "Rule",
    "SparseTensor",
    "also_sparse",
    "as_sparse",
    "at_places",
    "averaged",
    "concatenated",
    "dense",
    "is_concrete",
    "is_sparse",
    "linear",
    "matrix_product",
    "on_values",
    "quotient",
    "reshaped",
    "scaled",
    "summed",
    "transposed",
    "union",
]


def is_concrete(x: ef.Tensor) -> bool:
    """Whether values are known: not a placeholder of a trace, nor a batch of ``vmap``."""
    return type(x._array) is x._kind.array_type and x._key is None


class SparseTensor:
    """A tensor with some stored elements, or whole slices; all others are 0.

    ``indices`` are integers of the shape ``(n, k)``: each row is a position along the first ``k``
    axes. ``values`` has the shape ``(n, *shape[k:])``: numbers if ``k`` is the number of axes,
    slices if it is less. Values at equal positions are summed. ``+``, ``-``, ``*``, ``/`` and ``@``
    take tensors, numbers and sparse tensors; comparisons and slices are dense tensors. It is
    immutable; tapes differentiate with respect to ``values``. Raises DTypeError for indices that
    are not integers, ShapeError for mismatched shapes, and IndexRangeError for positions outside of
    ``shape``.

    >>> x = SparseTensor([1.0, 2.0], [[0, 0], [1, 2]], (2, 3))
    >>> x
    SparseTensor(2 values, shape=(2, 3), float32, cpu:0)
    >>> (x + x).to_dense()
    Tensor([[2., 0., 0.],
            [0., 0., 4.]], shape=(2, 3), float32, cpu:0)
    """

    __slots__ = ("shape", "slices")

    __array_ufunc__ = None  # NumPy's arrays defer operators to this class

    slices: ef.IndexedSlices
    """The values, and their positions along the sparse axes, flattened to one axis."""

    shape: tuple[Any, ...]

    def __init__(self, values: Any, indices: Any, shape: Any) -> None:
        self.shape = tuple(shape)
        values, indices = as_tensor(values), as_tensor(indices)
        if indices.dtype not in INTEGERS:
            raise DTypeError(
                f"{indices.dtype.name} values cannot be indices",
                op="SparseTensor",
                argument="indices",
                received=summary(indices),
                expected="integers",
            )
        k = indices.shape[1] if indices.ndim == 2 else len(self.shape) + 1
        lead, rest = self.shape[:k], self.shape[k:]
        if k > len(self.shape) or values.shape != (indices.shape[0], *rest):
            raise ShapeError(
                f"they do not fit a tensor of shape {self.shape}",
                op="SparseTensor",
                argument="values and indices",
                received=f"{summary(values)} and {summary(indices)}",
                expected="values of the shape (n, *shape[k:]), and indices of the shape (n, k)",
            )
        columns = [indices[:, i] for i in range(k)]
        places = ef.ravel_multi_index(columns, lead) if k else ef.sum(indices, axis=1)
        self.slices = ef.IndexedSlices(values, places, (product(lead), *rest))

    @classmethod
    def from_dense(cls, x: Any) -> SparseTensor:
        """The nonzero elements of a tensor; all elements while a graph is captured.

        >>> SparseTensor.from_dense(ef.tensor([0.0, 3.0])).indices.tolist()
        [[1]]
        """
        x = as_tensor(x)
        flat = ef.reshape(x, (-1,))
        places = ef.nonzero(flat)[0] if is_concrete(x) else ef.arange(flat.shape[0], dtype="int64")
        return at_places(ef.take(flat, places, axis=0), places, x.shape)

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseTensor:
        """A matrix or an array of ``scipy.sparse``.

        >>> import scipy.sparse
        >>> SparseTensor.from_scipy(scipy.sparse.eye_array(3, dtype="float32"))
        SparseTensor(3 values, shape=(3, 3), float32, cpu:0)
        """
        found = matrix.tocoo()
        places = np.ravel_multi_index(found.coords, found.shape)
        return at_places(as_tensor(found.data), as_tensor(places.astype("int64")), found.shape)

    @property
    def values(self) -> ef.Tensor:
        """The stored values."""
        return self.slices.values

    @property
    def indices(self) -> ef.Tensor:
        """The positions: one row for each value, with its indices along the first axes."""
        lead = self.shape[: self.ndim + 1 - self.values.ndim]
        if not lead:
            return ef.zeros((self.slices.indices.shape[0], 0), dtype="int64")
        found: ef.Tensor = ef.stack(ef.unravel_index(self.slices.indices, lead), axis=1)
        return found

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Type of the elements."""
        return self.slices.dtype

    @property
    def device(self) -> Any:
        """The device of the values."""
        return self.slices.device

    def __repr__(self) -> str:
        return (
            f"SparseTensor({self.slices.indices.shape[0]} values, shape={self.shape}, "
            f"{self.dtype.name}, {self.device})"
        )

    def __getitem__(self, index: Any) -> ef.Tensor:
        found: ef.Tensor = self.to_dense()[index]
        return found

    def with_values(self, values: ef.Tensor) -> SparseTensor:
        """A sparse tensor with other values at the same positions."""
        return at_places(values, self.slices.indices, self.shape)

    def to_dense(self) -> ef.Tensor:
        """The dense tensor.

        >>> SparseTensor([1.0, 2.0], [[1], [1]], (3,)).to_dense()
        Tensor([0., 3., 0.], float32, cpu:0)
        """
        found: ef.Tensor = ef.reshape(self.slices.to_dense(), self.shape)
        return found

    def coalesced(self) -> SparseTensor:
        """Unique positions in ascending order, with summed values.

        While a graph is captured, where the number of positions is unknown, the number of values is
        unchanged, and surplus values are 0.

        >>> SparseTensor([1.0, 2.0], [[1], [1]], (3,)).coalesced().values
        Tensor([3.], float32, cpu:0)
        """
        slices = self.slices
        known = is_concrete(slices.indices)
        return _wrapped(slices.deduplicated() if known else slices.summed(), self.shape)

    def elements(self) -> SparseTensor:
        """The same tensor with single numbers for values: slices are split."""
        values, first = self.values, self.slices.indices
        if values.ndim == 1:
            return self
        size = product(values.shape[1:])
        places = ef.expand_dims(first * size, axis=1) + ef.arange(size, dtype=first.dtype)
        return at_places(ef.reshape(values, (-1,)), ef.reshape(places, (-1,)), self.shape)

    def columns(self) -> list[ef.Tensor]:
        """The positions of single numbers, one tensor for each axis."""
        return list(ef.unravel_index(self.slices.indices, self.shape))

    def __neg__(self) -> SparseTensor:
        return self.with_values(ef.negative(self.values))

    def __add__(self, other: Any) -> Any:
        return union(ef.add, self, _sparse_or_same(other))

    def __radd__(self, other: Any) -> Any:
        return union(ef.add, _sparse_or_same(other), self)

    def __sub__(self, other: Any) -> Any:
        return union(ef.subtract, self, _sparse_or_same(other))

    def __rsub__(self, other: Any) -> Any:
        return union(ef.subtract, _sparse_or_same(other), self)

    def __mul__(self, other: Any) -> SparseTensor:
        return scaled(ef.multiply, self, _sparse_or_same(other))

    def __rmul__(self, other: Any) -> SparseTensor:
        return scaled(ef.multiply, _sparse_or_same(other), self)

    def __truediv__(self, other: Any) -> Any:
        return quotient(ef.divide, self, _sparse_or_same(other))

    def __rtruediv__(self, other: Any) -> Any:
        return quotient(ef.divide, _sparse_or_same(other), self)

    def __pow__(self, power: Any) -> Any:
        keeps = isinstance(power, int | float) and power > 0
        return on_values(ef.pow, self, power) if keeps else ef.pow(self.to_dense(), dense(power))

    def __gt__(self, other: Any) -> Any:
        return ef.greater(self.to_dense(), dense(other))

    def __ge__(self, other: Any) -> Any:
        return ef.greater_equal(self.to_dense(), dense(other))

    def __lt__(self, other: Any) -> Any:
        return ef.less(self.to_dense(), dense(other))

    def __le__(self, other: Any) -> Any:
        return ef.less_equal(self.to_dense(), dense(other))

    def __matmul__(self, other: Any) -> Any:
        return matrix_product(self, _sparse_or_same(other))

    def __rmatmul__(self, other: Any) -> Any:
        return matrix_product(_sparse_or_same(other), self)


tree.register(
    SparseTensor,
    lambda x: (("slices", x.shape), (x.slices,)),
    lambda keys, items: _wrapped(items[0], keys[-1]),
)


def as_sparse(x: Any) -> SparseTensor | None:
    """A sparse tensor from one, ``ef.IndexedSlices`` or ``scipy.sparse``; None for other values."""
    if type(x) is SparseTensor:
        return x
    if type(x) is ef.IndexedSlices:
        return _wrapped(x, x.dense_shape)
    if type(x).__module__.startswith("scipy.sparse") and hasattr(x, "tocoo"):
        return SparseTensor.from_scipy(x)
    return None


# Places -------------------------------------------------------------------------------------------


def _wrapped(slices: Any, shape: tuple[Any, ...]) -> SparseTensor:
    found = SparseTensor.__new__(SparseTensor)
    found.slices, found.shape = slices, shape
    return found


def at_places(values: ef.Tensor, places: ef.Tensor, shape: Any) -> SparseTensor:
    """A tensor of values at flat positions of elements, or slices, in memory order."""
    rest = values.shape[1:]
    lead = product(shape[: len(shape) - len(rest)])
    return _wrapped(ef.IndexedSlices(values, places, (lead, *rest)), tuple(shape))


def _joined(columns: Sequence[ef.Tensor], sizes: Sequence[Any]) -> ef.Tensor:
    """Flat positions from positions along several axes, within these sizes."""
    found: ef.Tensor = ef.ravel_multi_index(tuple(columns), tuple(sizes), "clip")
    return found


# Rules --------------------------------------------------------------------------------------------

Rule = Callable[..., Any]

_SPARSE = frozenset({SparseTensor, ef.IndexedSlices})


def is_sparse(x: Any) -> bool:
    """Whether a value is sparse, so that rules apply."""
    return type(x) in _SPARSE


def also_sparse(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function that also takes sparse tensors, by a rule."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            if _SPARSE.isdisjoint(map(type, args)):
                return function(*args, **kwargs)
            return rule(function, *[_sparse_or_same(x) for x in args], **kwargs)

        return either

    return decorated


def _sparse_or_same(x: Any) -> Any:
    return as_sparse(x) if is_sparse(x) else x


def dense(x: Any) -> Any:
    """A sparse tensor as a dense one; other values unchanged."""
    return x.to_dense() if is_sparse(x) else x


def linear(function: Callable[..., Any], x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    """The rule of functions that are linear in each element."""
    return x.with_values(function(x.values, *args, **kwargs))


def on_values(function: Callable[..., Any], x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    """The rule of elementwise functions that map 0 to 0."""
    return linear(function, x.coalesced(), *args, **kwargs)


def union(function: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """The rule of binary functions that map two zeros to 0: sparse for two sparse operands."""
    if not (is_sparse(x1) and is_sparse(x2)):
        return function(dense(x1), dense(x2))
    x1, x2 = _alike(x1, x2)
    x1, x2 = _with_places(x1, x2.slices), _with_places(x2, x1.slices)
    x1, x2 = x1.coalesced(), x2.coalesced()
    return x1.with_values(function(x1.values, x2.values))


def scaled(function: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """The rule of elementwise products: sparse if one of the two is."""
    if is_sparse(x1) and is_sparse(x2):
        return union(function, x1, x2)
    if is_sparse(x1):
        x, other = _beside(x1, x2)
        return x.with_values(function(x.values, other))
    x, other = _beside(x2, x1)
    return x.with_values(function(other, x.values))


def quotient(function: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """The rule of divisions: sparse if only the dividend is.

    0 / 0 is NaN, so positions with a divisor of 0 or NaN are added. While a graph is captured these
    are unknown: such elements then stay 0, as in JAX.
    """
    if is_sparse(x2):
        return function(dense(x1), dense(x2))
    if _has_axes(x2):
        x2 = as_tensor(x2)
        x1 = _broadcast(x1, x2).elements()
        if is_concrete(x2) and is_concrete(x1.values):
            missing = ef.logical_or(ef.equal(x2, 0), ef.not_equal(x2, x2))
            added = SparseTensor.from_dense(ef.broadcast_to(missing, x1.shape))
            x1 = _with_places(x1, added.slices).coalesced()
    x, other = _beside(x1, x2)
    return x.with_values(function(x.values, other))


def summed(
    function: Callable[..., Any], x: SparseTensor, axis: Any = None, keepdims: bool = False
) -> Any:
    """The rule of sums along axes: positions lose these axes, and values are summed."""
    x = linear(function, x, axis=())
    axes = normalize_axes(axis, x.ndim)
    if not axes:
        return x
    x = x.elements()
    columns = [ef.zeros_like(c) if i in axes else c for i, c in enumerate(x.columns())]
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keepdims else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return at_places(x.values, _joined(columns, kept), shape)


def averaged(
    function: Callable[..., Any], x: SparseTensor, axis: Any = None, keepdims: bool = False
) -> Any:
    """The rule of means along axes."""
    count = product(x.shape[a] for a in normalize_axes(axis, x.ndim))
    return summed(function, x, axis, keepdims) / count


def reshaped(function: Callable[..., Any], x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    """The rule of reshapes, by the NumPy function of this name."""
    hollow = np.broadcast_to(np.int8(0), x.shape)  # a single byte in memory
    shape = getattr(np, function.__name__)(hollow, *args, **kwargs).shape
    x = x.elements()
    return at_places(x.values, x.slices.indices, shape)


def transposed(function: Callable[..., Any], x: SparseTensor, axes: Any = None) -> Any:
    """The rule of transpositions, which calls no function."""
    return _permuted(x, range(x.ndim)[::-1] if axes is None else normalize_axes(axes, x.ndim))


def _permuted(x: SparseTensor, order: Sequence[int]) -> SparseTensor:
    x = x.elements()
    shape, columns = tuple(x.shape[a] for a in order), x.columns()
    return at_places(x.values, _joined([columns[a] for a in order], shape), shape)


def concatenated(function: Callable[..., Any], xs: Sequence[Any], axis: int) -> SparseTensor:
    """The rule of concatenations along an axis, for sparse operands only."""
    parts = [x.elements() for x in (as_sparse(x) for x in xs) if x is not None]
    axis = range(parts[0].ndim)[axis]
    shapes = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise ShapeError(
            f"the parts differ in other axes than {axis}",
            op="concatenate",
            received=" and ".join(str(x.shape) for x in parts),
        )
    ends = list(accumulate(x.shape[axis] for x in parts))
    shape = (*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :])
    places = []
    for part, end in zip(parts, ends, strict=True):
        columns = part.columns()
        columns[axis] = columns[axis] + (end - part.shape[axis])
        places.append(_joined(columns, shape))
    return at_places(function([x.values for x in parts], 0), ef.concat(places), shape)


def matrix_product(x1: Any, x2: Any) -> Any:
    """``x1 @ x2`` with at least one sparse operand: dense, or sparse if both are.

    Each value of a sparse matrix scales a row of the other one, and rows of equal positions are
    summed. Of two sparse matrices, the second becomes dense, and so does the product before it is
    converted back. Batches are those of the sparse one; others use dense tensors.
    """
    if is_sparse(x1) and is_sparse(x2):
        return SparseTensor.from_dense(matrix_product(x1, x2.to_dense()))
    if is_sparse(x2):
        x1, rank = as_tensor(x1), x2.ndim
        if x1.ndim < 2 or rank < 2:
            return ef.matmul(x1, x2.to_dense())
        turned = _permuted(x2, (*range(rank - 2), rank - 1, rank - 2))
        return ef.matrix_transpose(matrix_product(turned, ef.matrix_transpose(x1)))
    x2 = as_tensor(x2)
    if x2.ndim == 1:
        return matrix_product(x1, ef.expand_dims(x2, axis=1))[..., 0]
    if x1.ndim < 2 or x1.shape[-1] != x2.shape[-2] or x2.shape[:-2] not in ((), x1.shape[:-2]):
        return ef.matmul(x1.to_dense(), x2)
    *lead, height, depth = x1.shape
    x1 = x1.elements()
    row, column = ef.unravel_index(x1.slices.indices, (product(lead) * height, depth))
    if x2.ndim > 2:
        column = row // height * depth + column
    width = x2.shape[-1]
    rows = ef.take(ef.reshape(x2, (-1, width)), column, axis=0)
    products = ef.multiply(ef.expand_dims(x1.values, axis=1), rows)
    sums = ef.segment_sum(products, row, product(lead) * height)
    return ef.reshape(sums, (*lead, height, width))


# Two tensors --------------------------------------------------------------------------------------


def _has_axes(x: Any) -> bool:
    """Whether it has axes: neither a number nor a scalar tensor."""
    return bool(getattr(x, "shape", isinstance(x, list | tuple)))


def _alike(x1: SparseTensor, x2: SparseTensor) -> tuple[SparseTensor, SparseTensor]:
    """Two tensors of one shape, with values that are numbers, or slices of one form."""
    x1, x2 = _broadcast(x1, x2), _broadcast(x2, x1)
    if x1.slices.dense_shape != x2.slices.dense_shape:
        x1, x2 = x1.elements(), x2.elements()
    return x1, x2


def _broadcast(x: SparseTensor, other: Any) -> SparseTensor:
    """The tensor broadcast along axes in which the other one is larger."""
    shape = ef.broadcast_shapes(x.shape, other.shape)
    if shape == x.shape:
        return x
    return SparseTensor.from_dense(ef.broadcast_to(x.to_dense(), shape))


def _with_places(x: SparseTensor, added: ef.IndexedSlices) -> SparseTensor:
    """The same tensor with explicit zeros at more positions."""
    zeros = ef.zeros_like(added.values, dtype=x.dtype)
    places = ef.concat([x.slices.indices, added.indices])
    return at_places(ef.concat([x.values, zeros]), places, x.shape)


def _beside(x: SparseTensor, other: Any) -> tuple[SparseTensor, Any]:
    """A sparse tensor; of a number or a dense tensor, the elements at its positions."""
    if not _has_axes(other):
        return x, other
    other = as_tensor(other)
    x = _broadcast(x, other)
    if other.shape == x.shape:
        whole = ef.reshape(other, x.slices.dense_shape)
        return x, ef.take(whole, x.slices.indices, axis=0)
    x = x.elements()
    columns = x.columns()[x.ndim - other.ndim :]
    pairs = zip(columns, other.shape, strict=True)
    columns = [ef.zeros_like(column) if n == 1 else column for column, n in pairs]
    return x, ef.take(ef.reshape(other, (-1,)), _joined(columns, other.shape), axis=0)
