"""Layers that merge a list of tensors, and functions that call them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.masks import spread
from eagerflow.ops.nn.similarity import unit
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "Add",
    "Average",
    "Concatenate",
    "Dot",
    "Maximum",
    "Minimum",
    "Multiply",
    "Subtract",
    "add",
    "average",
    "concatenate",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "subtract",
]

Masks = Sequence[Tensor | None] | None


class _Merge(Layer):
    """Base of layers of a list of tensors: a subclass defines ``merge``."""

    number: int | None = None  # of tensors, if it is fixed

    def call(self, inputs: Sequence[Tensor], mask: Masks = None) -> Tensor:
        listed = isinstance(inputs, list | tuple)
        if not listed or not inputs or self.number not in (None, len(inputs)):
            received = f"{len(inputs)} tensors" if listed else summary(inputs)
            expected = f"a list of {self.number or 'at least one'}"
            raise self._misfit("the layer takes a list of tensors", received, expected)
        masks: list[Tensor | None] = [None] * len(inputs) if mask is None else list(mask)
        try:
            return self.merge(list(inputs), masks)
        except raised_here(ShapeError) as error:
            received = ", ".join(str(tuple(x.shape)) for x in inputs)
            words = f"the tensors do not fit together: {error.problem}"
            raise self._misfit(words, received, error.expected) from error

    def merge(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        """The merged tensor; a mask is None for a tensor without one."""
        raise ArgumentError("the class does not define merge", op=type(self).__name__)

    def compute_mask(self, inputs: Sequence[Tensor], previous_mask: Any) -> Any:
        """True where any of the inputs is valid; None if one of them is valid everywhere."""
        found = None
        for mask in previous_mask or ():
            if mask is None:
                return None
            found = mask if found is None else ops.logical_or(found, mask)
        return found


class _Elementwise(_Merge):
    """Base of layers of broadcasting tensors; missing axes are inserted after the first."""

    def merge(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        rank = max(len(x.shape) for x in inputs)

        def raised(x: Tensor) -> Tensor:
            missing = (1,) * (rank - len(x.shape))
            return ops.reshape(x, (*x.shape[:1], *missing, *x.shape[1:])) if missing else x

        pairs = zip(inputs, masks, strict=True)
        wide = [None if mask is None else raised(spread(mask, x.ndim)) for x, mask in pairs]
        return self.combine([raised(x) for x in inputs], wide)

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        """The merged tensor from tensors of one rank, and their masks, which broadcast to them."""
        raise ArgumentError("the class does not define combine", op=type(self).__name__)


def _wide(x: Tensor) -> Tensor:
    """Integers of 8 and 16 bits as int64, where their sums and products are right."""
    return ops.astype(x, "int64") if x.dtype in INTEGERS and x.dtype.itemsize < 4 else x


class Add(_Elementwise):
    """The sum of a list of tensors, which broadcast; of integers of 8 and 16 bits an int64.

    If one has fewer axes, axes of size 1 are inserted after its first. Raises ShapeError for inputs
    that are not a list, or do not broadcast.

    >>> ef.nn.Add()([ef.ones((1, 2)), ef.ones((1, 2))])
    Tensor([[2., 2.]], shape=(1, 2), float32, cpu:0)
    """

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        total = _wide(inputs[0])
        for x in inputs[1:]:
            total = ops.add(total, _wide(x))
        return total


class Average(Add):
    """The mean of a list of tensors, which broadcast as those of ``Add``.

    >>> ef.nn.Average()([ef.ones((1, 2)), ef.zeros((1, 2))])
    Tensor([[0.5, 0.5]], shape=(1, 2), float32, cpu:0)
    """

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        wide = [ops.astype(x, "float32") if x.dtype in BOOL | INTEGERS else x for x in inputs]
        return ops.divide(super().combine(wide, masks), len(inputs))


class Subtract(_Elementwise):
    """The first of two tensors less the second; they broadcast as those of ``Add``.

    Raises ShapeError for a list of another length.

    >>> ef.nn.Subtract()([ef.ones((1, 2)), ef.ones((1, 2))])
    Tensor([[0., 0.]], shape=(1, 2), float32, cpu:0)
    """

    number = 2

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        return ops.subtract(_wide(inputs[0]), _wide(inputs[1]))


class Multiply(_Elementwise):
    """The product of a list of tensors, which broadcast as those of ``Add``.

    Masked elements count as 1; elements masked in all inputs become 0.

    >>> ef.nn.Multiply()([ef.full((1, 2), 2.0), ef.full((1, 2), 3.0)])
    Tensor([[6., 6.]], shape=(1, 2), float32, cpu:0)
    """

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        product: Any = None
        for x, mask in zip(inputs, masks, strict=True):
            wide = _wide(x)
            factor = wide if mask is None else ops.where(mask, wide, 1.0)
            product = factor if product is None else ops.multiply(product, factor)
        known = super().compute_mask(inputs, masks)
        return product if known is None else ops.where(known, product, 0.0)


class _Extreme(_Elementwise):
    """Base of layers that select one value at each position, if possible an unmasked one."""

    def choose(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The selected value at each position."""
        raise ArgumentError("the class does not define choose", op=type(self).__name__)

    def combine(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        found, known = inputs[0], masks[0]
        for x, mask in zip(inputs[1:], masks[1:], strict=True):
            other = x if mask is None else ops.where(mask, x, found)
            own = found if known is None else ops.where(known, found, other)
            both = known is not None and mask is not None
            known = ops.logical_or(known, mask) if both else None
            found = self.choose(own, other)
        return found


class Maximum(_Extreme):
    """The elementwise maximum of a list of tensors, which broadcast as those of ``Add``.

    Masked elements are only used if they are masked in all inputs.

    >>> ef.nn.Maximum()([ef.tensor([[1.0, 5.0]]), ef.tensor([[3.0, 2.0]])])
    Tensor([[3., 5.]], shape=(1, 2), float32, cpu:0)
    """

    def choose(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.maximum(x1, x2)


class Minimum(_Extreme):
    """The elementwise minimum of a list of tensors, which broadcast as those of ``Add``.

    Masked elements are only used if they are masked in all inputs.

    >>> ef.nn.Minimum()([ef.tensor([[1.0, 5.0]]), ef.tensor([[3.0, 2.0]])])
    Tensor([[1., 2.]], shape=(1, 2), float32, cpu:0)
    """

    def choose(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.minimum(x1, x2)


class Concatenate(_Merge):
    """A list of tensors joined along ``axis``.

    All other sizes are equal; raises ShapeError otherwise. If one has a mask, a step of the result
    is valid if any of its values is.

    >>> ef.nn.Concatenate()([ef.ones((1, 2)), ef.zeros((1, 1))])
    Tensor([[1., 1., 0.]], shape=(1, 3), float32, cpu:0)
    """

    axis: int

    @arguments
    def __init__(self, axis: int = -1, **options: Unpack[LayerOptions]) -> None: ...

    def merge(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        return ops.concat(inputs, axis=self.axis)

    def compute_mask(self, inputs: Sequence[Tensor], previous_mask: Any) -> Any:
        """The masks joined like the inputs, then whether any feature counts."""
        if previous_mask is None:
            return None
        whole = [
            ops.ones_like(x, dtype="bool")
            if mask is None
            else ops.broadcast_to(spread(mask, x.ndim), x.shape)
            for x, mask in zip(inputs, previous_mask, strict=True)
        ]
        return ops.any(ops.concat(whole, axis=self.axis), axis=-1)


def _two_axes(value: Any) -> tuple[int, int]:
    axes = tuple(value) if isinstance(value, tuple | list) else (value, value)
    whole = len(axes) == 2 and all(isinstance(a, int) and not isinstance(a, bool) for a in axes)
    require(whole, value, "not an axis", expected="an integer, or one for each of two tensors")
    return axes[0], axes[1]


class Dot(_Merge):
    """For each example, the products of two tensors summed along an axis of each.

    ``axes`` is an integer or a pair; axis 0 is that of examples. The remaining axes of the first
    tensor precede those of the second. ``normalize`` divides vectors along the axes by their
    lengths first, so that the products are cosines. Raises ShapeError where the sizes differ,
    ArgumentError for axis 0.

    >>> ef.nn.Dot(axes=1)([ef.tensor([[1.0, 2.0]]), ef.tensor([[3.0, 4.0]])])
    Tensor([[11.]], shape=(1, 1), float32, cpu:0)
    """

    axes: tuple[int, int]
    normalize: bool
    number = 2

    @arguments
    def __init__(
        self,
        axes: Annotated[int | Sequence[int], _two_axes],
        normalize: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def merge(self, inputs: list[Tensor], masks: list[Tensor | None]) -> Tensor:
        axes = [normalize_axis(a, len(x.shape)) for a, x in zip(self.axes, inputs, strict=True)]
        require(0 not in axes, self.axes, "not free", self._label, "axes", "no axis of examples")
        if self.normalize:
            inputs = [unit(x, axis) for x, axis in zip(inputs, axes, strict=True)]
        inputs = [_wide(x) for x in inputs]
        letters = iter(string.ascii_letters[2:])
        labels = [["a", *(next(letters) for _ in x.shape[1:])] for x in inputs]
        for label, axis in zip(labels, axes, strict=True):
            label[axis] = "b"
        left = ["a"] + [name for label in labels for name in label if name not in "ab"]
        words = ["".join(names) for names in (*labels, left)]
        found = ops.einsum(f"{words[0]},{words[1]}->{words[2]}", *inputs)
        return found if len(left) > 1 else ops.expand_dims(found, -1)

    def compute_mask(self, inputs: Sequence[Tensor], previous_mask: Any) -> Any:
        """None: the axis of steps is contracted."""
        return None


# As functions -------------------------------------------------------------------------------------


def add(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The sum of a list of tensors, by a new ``Add`` layer with these options.

    >>> ef.nn.add([ef.ones((1, 2)), ef.ones((1, 2))])
    Tensor([[2., 2.]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Add(**options)(inputs)
    return found


def average(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The mean of a list of tensors, by a new ``Average`` layer with these options.

    >>> ef.nn.average([ef.ones((1, 2)), ef.zeros((1, 2))])
    Tensor([[0.5, 0.5]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Average(**options)(inputs)
    return found


def subtract(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The first of two tensors less the second, by a new ``Subtract`` layer with these options.

    >>> ef.nn.subtract([ef.ones((1, 2)), ef.ones((1, 2))])
    Tensor([[0., 0.]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Subtract(**options)(inputs)
    return found


def multiply(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The product of a list of tensors, by a new ``Multiply`` layer with these options.

    >>> ef.nn.multiply([ef.full((1, 2), 2.0), ef.full((1, 2), 3.0)])
    Tensor([[6., 6.]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Multiply(**options)(inputs)
    return found


def maximum(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The elementwise maximum, by a new ``Maximum`` layer with these options.

    >>> ef.nn.maximum([ef.tensor([[1.0, 5.0]]), ef.tensor([[3.0, 2.0]])])
    Tensor([[3., 5.]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Maximum(**options)(inputs)
    return found


def minimum(inputs: Sequence[Tensor], **options: Unpack[LayerOptions]) -> Tensor:
    """The elementwise minimum, by a new ``Minimum`` layer with these options.

    >>> ef.nn.minimum([ef.tensor([[1.0, 5.0]]), ef.tensor([[3.0, 2.0]])])
    Tensor([[1., 2.]], shape=(1, 2), float32, cpu:0)
    """
    found: Tensor = Minimum(**options)(inputs)
    return found


def concatenate(
    inputs: Sequence[Tensor], axis: int = -1, **options: Unpack[LayerOptions]
) -> Tensor:
    """A list of tensors joined along ``axis``, by a new ``Concatenate`` layer with these options.

    >>> ef.nn.concatenate([ef.ones((1, 2)), ef.zeros((1, 1))])
    Tensor([[1., 1., 0.]], shape=(1, 3), float32, cpu:0)
    """
    found: Tensor = Concatenate(axis, **options)(inputs)
    return found


def dot(
    inputs: Sequence[Tensor],
    axes: int | Sequence[int] = -1,
    normalize: bool = False,
    **options: Unpack[LayerOptions],
) -> Tensor:
    """Products summed along an axis of each of two tensors, by a new ``Dot`` layer.

    >>> ef.nn.dot([ef.tensor([[1.0, 2.0]]), ef.tensor([[3.0, 4.0]])])
    Tensor([[11.]], shape=(1, 1), float32, cpu:0)
    """
    found: Tensor = Dot(axes, normalize, **options)(inputs)
    return found
