"""Facts about a tensor without its values: shape, dtype and device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from eagerflow.dims import Dim, DimLike, Shape, product
from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import AxisError, ShapeError, short_repr
from eagerflow.handlers import raised_here

Array = Any
"""An array of the backend's library; its class is only known at run time."""
Namespace = Any
"""NumPy, CuPy, or another library by the names of the Array API standard."""

# No array library addresses more; the product of sizes is limited before any cast.
MAX_ELEMENTS = 2**62
MAX_RANK = 64


class TensorSpec:
    """Shape, dtype and device of a tensor, with an optional name for inputs of graphs.

    ``shape`` holds integers, names (``"batch"``), ``Dim`` or, for a free size, ``None``.
    ``device`` is a device, its name, or None if it does not matter.

    >>> ef.TensorSpec(("batch", 784), "float32", name="x")
    TensorSpec((batch, 784), float32, name='x')
    """

    __slots__ = ("device", "dtype", "name", "shape")

    def __init__(
        self, shape: Iterable[Any], dtype: Any, name: str | None = None, device: Any = None
    ) -> None:
        self.shape: tuple[Any, ...] = tuple(
            Dim(dim) if isinstance(dim, str) else dim if dim is None else _dimension(dim)
            for dim in shape
        )
        self.dtype: DType = as_dtype(dtype)
        self.name = name
        self.device = device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> DimLike:
        """Number of elements."""
        return product(self.shape)

    def like(self, shape: Iterable[Any] | None = None, dtype: Any = None) -> TensorSpec:
        """This spec with another shape or dtype, unnamed."""
        new_shape = self.shape if shape is None else shape
        return TensorSpec(new_shape, self.dtype if dtype is None else dtype, None, self.device)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.device == other.device
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.device))

    def __repr__(self) -> str:
        extra = f", name={self.name!r}" if self.name else ""
        place = f", device={str(self.device)!r}" if self.device is not None else ""
        return f"TensorSpec({_text(self.shape)}, {self.dtype.name}{extra}{place})"

    def __str__(self) -> str:
        place = f" on {self.device}" if self.device is not None else ""
        return f"{self.dtype.name}{_text(self.shape)}{place}"


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _dimension(dim: Any) -> DimLike:
    if isinstance(dim, Dim):
        return dim
    try:
        size = index(dim)
    except raised_here(TypeError):
        raise ShapeError(
            f"{short_repr(dim)} is not a size", expected="integers, or names in a TensorSpec"
        ) from None
    if size < 0:
        raise ShapeError(f"size {size} is negative", expected="sizes of at least 0")
    return size


def as_shape(shape: Any) -> Shape:
    """A shape from an integer or a sequence of sizes, bounded in rank and elements."""
    dims = (shape,) if isinstance(shape, int | Dim) or hasattr(shape, "__index__") else shape
    if isinstance(dims, str) or not isinstance(dims, Iterable):
        raise ShapeError(
            f"{short_repr(shape)} is not a shape", expected="an integer or a tuple of integers"
        )
    result = tuple(_dimension(dim) for dim in dims)
    bounded = 1
    for dim in result:
        bounded *= dim if isinstance(dim, int) and dim else 1
    if bounded > MAX_ELEMENTS or len(result) > MAX_RANK:
        raise ShapeError(
            f"shape {result} is too large",
            expected=f"at most {MAX_RANK} axes and {MAX_ELEMENTS} elements",
        )
    return result


def _unlike(shapes: tuple[Shape, ...], sizes: set[DimLike]) -> ShapeError:
    error = ShapeError(
        "the shapes do not broadcast: " + " and ".join([_text(x) for x in shapes]),
        expected="sizes that are equal or 1, counted from the last axis",
        hint="x[:, None] gives the shorter one an axis of size 1 at its end"
        if any(x[:1] == y and len(x) == 2 for x in shapes for y in shapes)
        else None,
    )
    error.unlike = tuple(dim for dim in sizes if isinstance(dim, Dim))
    return error


def broadcast(*shapes: Shape) -> Shape:
    """The broadcast shape of ``shapes`` by NumPy's rule; ShapeError if there is none."""
    rank = max(map(len, shapes), default=0)
    result: list[DimLike] = []
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        sizes = {dim for dim in column if dim != 1}
        if len(sizes) > 1:
            raise _unlike(shapes, sizes)  # not stored in a name, which would make a cycle
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def known_spec(shape: tuple[Any, ...], dtype: DType, device: Any) -> TensorSpec:
    """A spec of valid parts, such as those of a tensor."""
    spec = object.__new__(TensorSpec)
    spec.shape = shape
    spec.dtype = dtype
    spec.name = None
    spec.device = device
    return spec


_NO_AXIS = -(1 << 31)


def passed_on(axis: Any) -> Any:
    """An axis for a function of NumPy's that checks it, but takes the least int32 for None."""
    if axis == _NO_AXIS:
        raise ValueError(axis)
    return axis


def normalize_axis(axis: Any, rank: int, argument: str = "axis") -> int:
    """``axis`` counted from the front; AxisError if there is no such axis."""
    try:
        number = index(axis)
    except raised_here(TypeError):
        raise ShapeError(
            f"{short_repr(axis)} is not an axis", argument=argument, expected="an integer"
        ) from None
    if not -rank <= number < rank:
        raise AxisError(
            f"axis {number} does not exist",
            argument=argument,
            expected=f"an axis from {-rank} to {rank - 1}" if rank else "no axis: the rank is 0",
        )
    return number % rank


def normalize_axes(
    axes: int | Sequence[int] | None, rank: int, argument: str = "axis"
) -> tuple[int, ...]:
    """All of ``axes`` counted from the front, in order and without repeats; None means all."""
    if axes is None:
        return tuple(range(rank))
    if axes.__class__ is int and -rank <= axes < rank:
        return (axes % rank,)
    listed = axes if isinstance(axes, list | tuple) else (axes,)
    result = tuple(normalize_axis(axis, rank, argument) for axis in listed)
    if len(set(result)) < len(result):
        raise ShapeError(f"axes {tuple(listed)} repeat", argument=argument)
    return result


def reduced_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """The axes removed by a reduction, counted from the front.

    As in NumPy, 0 and -1 mean none if there are no axes.
    """
    if rank == 0 and axes.__class__ is int and axes in (0, -1):
        return ()
    return normalize_axes(axes, rank)
