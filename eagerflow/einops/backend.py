"""What einops asks of arrays, answered for tensors: its own recipes are calls of these ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from einops._backends import AbstractBackend

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import DimLike
from eagerflow.dtypes import INEXACT
from eagerflow.tensor import Operators, Tensor


class Backend(AbstractBackend):
    """Tensors and Variables for einops, which finds this class among its subclasses."""

    framework_name = "eagerflow"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether it is a Tensor or a Variable."""
        return isinstance(tensor, Operators)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        """A tensor of an array's values."""
        return as_tensor(x, copy=True)

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        """A tensor's values."""
        return np.asarray(x)

    def arange(self, start: int, stop: int) -> Tensor:
        """The integers from ``start`` to below ``stop``."""
        return ops.arange(start, stop)

    def reshape(self, x: Tensor, shape: Sequence[DimLike]) -> Tensor:
        """The same elements in another shape."""
        return ops.reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return ops.permute_dims(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        """The sum, mean, product, least, largest, any or all along axes."""
        reduced: Tensor = getattr(ops, operation)(x, axis=tuple(axes))
        return reduced

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """Tensors of one shape along a new first axis."""
        return ops.stack(tensors)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, DimLike]) -> Tensor:
        """Repeated along new axes at these positions of the result."""
        for position in sorted(pos2len):
            x = ops.expand_dims(x, axis=position)
        shape = [pos2len.get(i, size) for i, size in enumerate(x.shape)]
        return ops.broadcast_to(x, tuple(shape))

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """With a new axis of size 1."""
        return ops.expand_dims(x, axis=new_position)

    def tile(self, x: Tensor, repeats: Sequence[DimLike]) -> Tensor:
        """Repeated along each axis."""
        return ops.tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors joined along an axis."""
        return ops.concat(list(tensors), axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Whether means are defined."""
        return x.dtype in INEXACT

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """Sums of products by a pattern of letters."""
        return ops.einsum(pattern, *x)
