"""Dense layers with sums described by an equation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import is_count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.initializers import Initializer, VarianceScaling
from eagerflow.nn.layers.core import KernelBase, KernelOptions
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["EinsumDense"]

_FORMS = "'ab,bc->ac', '...ab,bc->...ac' or 'ab...,bc->ac...', of any letters"
_EQUATION = re.compile(
    r"(?P<left>\.{3})?([a-zA-Z]+)(?P<right>\.{3})?,([a-zA-Z]+)->(?(left)\.{3})([a-zA-Z]+)"
    r"(?(right)\.{3})"
)


def _equation(value: Any) -> str:
    found = _EQUATION.fullmatch(value) if isinstance(value, str) else None
    whole = found is not None and not (found["left"] and found["right"])
    require(whole, value, "not an equation", expected=_FORMS)
    return str(value)


def _sizes(value: Any) -> tuple[int | None, ...]:
    sizes = tuple(value) if isinstance(value, Sequence) else (value,)
    ok = all(size is None or is_count(size) for size in sizes)
    require(ok, value, "not a shape", expected="an integer, or integers and None")
    return sizes


Equation = Annotated[str, _equation]
PartialShape = Annotated[int | Sequence[int | None], _sizes]
"""A size, or sizes, with None for any; without the batch and the axes of ``...``."""


class EinsumDense(KernelBase):
    """A kernel that an equation sums over: ``activation(einsum(equation, inputs, kernel) + bias)``.

    ``equation`` has one of the forms ``"ab,bc->ac"``, ``"...ab,bc->...ac"`` and
    ``"ab...,bc->ac..."``, the first axis of inputs being the batch. ``output_shape`` is the
    output's, without the batch and without the axes of ``...``; None is a size determined by the
    inputs. ``bias_axes`` are the bias's letters of the output. Raises ArgumentError for equations
    of other forms, ShapeError for mismatched inputs.

    >>> layer = ef.nn.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de")
    >>> layer(ef.ones((5, 7, 4))).shape, layer.kernel.shape, layer.bias.shape
    ((5, 7, 2, 3), (4, 2, 3), (2, 3))
    """

    _renewed = frozenset({"output_shape"})
    equation: str
    activation: Callable[..., Tensor]
    bias_axes: str | None
    kernel: Variable
    bias: Variable | None

    @arguments
    def __init__(
        self,
        equation: Equation,
        output_shape: PartialShape,
        activation: ActivationLike = None,
        bias_axes: str | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        # The attribute's name is that of the shape of the last outputs, in every layer.
        self.partial_output_shape, self.output_shape = self.output_shape, None
        parts = _EQUATION.fullmatch(self.equation)
        assert parts is not None
        self._left, self._right = bool(parts["left"]), bool(parts["right"])
        self._inputs, self._weights_of, self._outputs = parts[2], parts[4], parts[5]
        for axis in bias_axes or "":
            self._require_axis(axis, self._outputs, "bias_axes", bias_axes)
        for axis in self._outputs:
            self._require_axis(axis, self._inputs + self._weights_of, "equation", equation)
        for axis in self._weights_of:
            self._require_axis(axis, self._inputs + self._outputs, "equation", equation)

    def _require_axis(self, axis: str, axes: str, argument: str, value: Any) -> None:
        if axis not in axes:
            raise ArgumentError(
                f"{value!r} has the axis {axis!r} from nowhere",
                op=self._label,
                argument=argument,
                expected="each axis of the kernel in inputs or outputs, each axis of the outputs "
                "in inputs or kernel, each of the bias in outputs",
            )

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        sizes = self._sizes(tuple(input_shape))
        outer = [i for i, axis in enumerate(self._weights_of) if axis in self._outputs]
        first: Any = self.kernel_initializer
        if isinstance(first, VarianceScaling):
            first = _as_matrix(first, outer)
        self.kernel = self.add_kernel([sizes[axis] for axis in self._weights_of], first)
        self.bias = None
        if self.bias_axes:
            start = min(map(self._outputs.index, self.bias_axes))
            along = [sizes[a] if a in self.bias_axes else 1 for a in self._outputs[start:]]
            unnamed = self.rank - len(self._inputs) if self._right else 0
            self.bias = self.add_bias([*along, *[1] * unnamed])

    def _sizes(self, input_shape: tuple[Any, ...]) -> dict[str, Any]:
        """The size of each letter; None if inputs of any size fit."""
        unnamed = len(input_shape) - len(self._inputs)
        if unnamed < 0 or (unnamed and not (self._left or self._right)):
            axes = f"{'at least ' * (self._left or self._right)}{len(self._inputs)} axes"
            raise self._misfit(f"{self.equation!r} does not fit", f"shape {input_shape}", axes)
        own = input_shape[unnamed:] if self._left else input_shape
        sizes = dict(zip(self._inputs, own, strict=False))
        wanted = self._outputs if unnamed and self._left else self._outputs[1:]
        given = self.partial_output_shape
        if len(given) != len(wanted):
            raise self._misfit(
                f"output_shape {given} does not fit {self.equation!r}",
                f"shape {input_shape}",
                f"a size for each of the axes {', '.join(wanted)}",
            )
        for axis, size in zip(wanted, given, strict=True):
            known = sizes.get(axis)
            if known is not None and size not in (None, known):
                problem = f"axis {axis!r} has size {known} in inputs, {size} in output_shape"
                raise self._misfit(problem, f"shape {input_shape}")
            sizes[axis] = known if size is None else size
        return sizes

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        outputs = ops.einsum(self.equation, inputs, self.value(self.kernel))
        if self.bias is not None:
            outputs = ops.add(outputs, self.value(self.bias))
        return self.activation(outputs)


def _as_matrix(initializer: Initializer, outer: list[int]) -> Callable[..., Tensor]:
    """An initializer that sees a kernel as a matrix of inputs and outputs (axes ``outer``)."""

    def first_values(shape: tuple[int, ...], dtype: Any) -> Tensor:
        order = [i for i in range(len(shape)) if i not in outer] + outer
        sizes = [shape[i] for i in order]
        split = len(shape) - len(outer)
        values = initializer((math.prod(sizes[:split]), math.prod(sizes[split:])), dtype)
        back = sorted(range(len(order)), key=order.__getitem__)
        return ops.permute_dims(ops.reshape(values, sizes), back)

    return first_values
