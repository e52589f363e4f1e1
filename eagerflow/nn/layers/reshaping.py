"""Layers that move, repeat, crop or pad values: no weights, no arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, is_count
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.spatial import DataFormat, Margins, SpatialLayer
from eagerflow.tensor import Tensor

__all__ = [
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Permute",
    "RepeatVector",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]


def _order(value: Any) -> tuple[int, ...]:
    axes = tuple(value) if isinstance(value, tuple | list) else ()
    if not axes or not all(is_count(x) for x in axes) or sorted(axes) != [*range(1, len(axes) + 1)]:
        raise ArgumentError(
            f"{value!r} is not an order of axes",
            expected="the numbers from 1 on, each once; 0 is the batch axis, which stays",
        )
    return tuple(map(int, axes))


class Permute(Layer):
    """The axes of each example in another order.

    ``dims`` numbers the axes from 1 on, as the batch axis stays: (2, 1) swaps two. Raises
    ArgumentError for invalid permutations, ShapeError for inputs with another number of axes.

    >>> ef.nn.Permute((2, 1))(ef.ones((5, 3, 4))).shape
    (5, 4, 3)
    """

    supports_masking = False
    dims: tuple[int, ...]

    @arguments
    def __init__(
        self, dims: Annotated[Sequence[int], _order], **options: Unpack[LayerOptions]
    ) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=len(self.dims) + 1)
        return ops.permute_dims(inputs, (0, *self.dims))


class RepeatVector(Layer):
    """Each example ``n`` times, as the steps of a sequence.

    Inputs have shape (batch, features), outputs (batch, n, features). Raises ArgumentError for an
    ``n`` below 1, ShapeError for inputs with other axes.

    >>> ef.nn.RepeatVector(3)(ef.ones((2, 4))).shape
    (2, 3, 4)
    """

    supports_masking = False
    n: int

    @arguments
    def __init__(self, n: Count, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=2)
        return ops.repeat(ops.expand_dims(inputs, 1), self.n, axis=1)


class _Cropping(SpatialLayer):
    """Base of layers that cut off the ends of spatial axes."""

    cropping: tuple[tuple[int, int], ...]

    @arguments
    def __init__(
        self,
        cropping: Margins = 1,
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.margins("cropping")

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        sizes = zip(inputs.shape[1:-1], self.cropping, strict=True)
        if any(isinstance(size, int) and sum(pair) >= size for size, pair in sizes):
            raise self._misfit(
                "nothing is left of the input",
                f"shape {tuple(inputs.shape)}",
                f"sizes larger than the cropping {self.cropping}",
            )
        return ops.crop(inputs, ((0, 0), *self.cropping, (0, 0)))


class Cropping1D(_Cropping):
    """Signals without their first and last steps.

    Inputs have shape (batch, steps, channels); ``cropping`` is a number for both ends, or a pair
    (first, last). Raises ArgumentError for negative numbers, ShapeError if nothing is left.

    >>> ef.nn.Cropping1D((1, 2))(ef.ones((2, 6, 4))).shape
    (2, 3, 4)
    """

    rank = 1


class Cropping2D(_Cropping):
    """Images without their first and last rows and columns.

    Inputs have shape (batch, rows, columns, channels); ``cropping`` is a number for all ends, one
    for rows and one for columns, or two pairs ((top, bottom), (left, right)). Raises ArgumentError
    for negative numbers, ShapeError if nothing is left.

    >>> ef.nn.Cropping2D(((1, 2), (0, 1)))(ef.ones((2, 6, 6, 3))).shape
    (2, 3, 5, 3)
    """

    rank = 2

    @arguments
    def __init__(
        self,
        cropping: Margins = 0,
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...


class Cropping3D(_Cropping):
    """Volumes without their first and last planes, rows and columns.

    Inputs have shape (batch, planes, rows, columns, channels); ``cropping`` is a number for all
    ends, one for each axis, or a pair for each. Errors are those of ``Cropping2D``.

    >>> ef.nn.Cropping3D((1, 0, 2))(ef.ones((1, 6, 6, 6, 3))).shape
    (1, 4, 6, 2, 3)
    """

    rank = 3


class _ZeroPadding(SpatialLayer):
    """Base of layers that put zeros at the ends of spatial axes."""

    padding: tuple[tuple[int, int], ...]

    @arguments
    def __init__(
        self,
        padding: Margins = 1,
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.margins("padding")

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        return ops.pad(inputs, ((0, 0), *self.padding, (0, 0)))


class ZeroPadding1D(_ZeroPadding):
    """Signals padded with zeros before and after.

    Inputs have shape (batch, steps, channels); ``padding`` is a number for both ends, or a pair
    (first, last). Raises ArgumentError for negative numbers.

    >>> ef.nn.ZeroPadding1D((1, 2))(ef.ones((2, 3, 4))).shape
    (2, 6, 4)
    """

    rank = 1


class ZeroPadding2D(_ZeroPadding):
    """Images with rows and columns of zeros around them.

    Inputs have shape (batch, rows, columns, channels); ``padding`` is a number for all ends, one
    for rows and one for columns, or two pairs ((top, bottom), (left, right)). Raises ArgumentError
    for negative numbers.

    >>> ef.nn.ZeroPadding2D(((1, 2), (0, 1)))(ef.ones((2, 3, 5, 3))).shape
    (2, 6, 6, 3)
    """

    rank = 2


class ZeroPadding3D(_ZeroPadding):
    """Volumes with planes, rows and columns of zeros around them.

    Inputs have shape (batch, planes, rows, columns, channels); ``padding`` is a number for all
    ends, one for each axis, or a pair for each. Raises ArgumentError for negative numbers.

    >>> ef.nn.ZeroPadding3D((1, 0, 2))(ef.ones((1, 2, 2, 2, 3))).shape
    (1, 4, 2, 6, 3)
    """

    rank = 3
