"""Layers that pass their inputs on: as they are, masked, or through a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.errors import ArgumentError, printable
from eagerflow.handlers import raised_here
from eagerflow.nn import configured
from eagerflow.nn.arguments import Float, Nest, require
from eagerflow.nn.configured import Untracked
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.tensor import Tensor

__all__ = ["Identity", "Lambda", "Masking"]


class Identity(Layer):
    """The inputs as they are.

    >>> ef.nn.Identity()(ef.tensor([[1.0]]))
    Tensor([[1.]], shape=(1, 1), float32, cpu:0)
    """

    def call(self, inputs: Nest) -> Nest:
        return inputs


class Masking(Layer):
    """Masks the steps whose features all equal ``mask_value``, and sets them to 0.

    Inputs have shape (batch, steps, ..., features); later layers get a mask of shape (batch, steps,
    ...), which is true for valid steps.

    >>> from eagerflow.nn.masks import mask_of
    >>> mask_of(ef.nn.Masking()(ef.tensor([[[1.0, 0.0], [0.0, 0.0]]])))
    Tensor([[ True, False]], shape=(1, 2), bool, cpu:0)
    """

    mask_value: float

    @configured.arguments
    def __init__(self, mask_value: Float = 0.0, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return ops.where(ops.expand_dims(self.compute_mask(inputs, None), -1), inputs, 0.0)

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> Tensor:
        return ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)


def _op(name: str) -> Any:
    """The public function of this name in ``ef``; None if there is none."""
    return getattr(ops, name) if name in ops.__all__ or name in ops.LATE else None


def _function(value: Any) -> Callable[..., Any]:
    found: Any = _op(value.removeprefix("ef.")) if isinstance(value, str) else value
    require(
        callable(found), value, "not a function", expected="a function, or the name of one of ef"
    )
    function: Callable[..., Any] = found
    return function


class Lambda(Layer):
    """Applies a function to the inputs.

    ``function`` takes the inputs, ``arguments`` by name, and ``mask`` and ``training`` if it has
    such parameters. ``mask`` is the mask of the outputs, or a function of the inputs and their
    mask. ``output_shape`` is that of one example, or a function of the inputs' shape, for functions
    that cannot be traced. Use a subclass of ``Layer`` for a function with weights. Raises
    ArgumentError if a configuration is requested, unless ``function`` is one of ``ef``, or its
    name.

    >>> ef.nn.Lambda(lambda x, by: x * by, arguments={"by": 3.0})(ef.tensor([[1.0]]))
    Tensor([[3.]], shape=(1, 1), float32, cpu:0)
    >>> ef.nn.Lambda(ef.square).get_config()["function"]
    'ef.square'
    """

    function: Callable[..., Any]
    mask: Any
    arguments: dict[str, Any]

    @configured.arguments
    def __init__(
        self,
        function: Annotated[Callable[..., Any] | str, _function],
        output_shape: Any = None,
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.arguments = dict(arguments or {})
        self._shape = Untracked(output_shape)
        self.supports_masking = mask is not None
        self._wanted = {"mask", "training"} & _parameters(self.function)

    def call(self, inputs: Nest, mask: Any = None, training: bool = False) -> Nest:
        given = {"mask": mask, "training": training}
        return self.function(inputs, **self.arguments, **{k: given[k] for k in self._wanted})

    def compute_mask(self, inputs: Nest, previous_mask: Any) -> Any:
        return self.mask(inputs, previous_mask) if callable(self.mask) else self.mask

    def compute_output_shape(self, *input_shape: Any) -> Any:
        shape = self._shape.held
        if shape is None:
            return super().compute_output_shape(*input_shape)
        return shape(*input_shape) if callable(shape) else (input_shape[0][0], *shape)

    def get_config(self) -> dict[str, Any]:
        name = getattr(self.function, "__name__", "")
        if _op(name) is not self.function or callable(self.mask) or callable(self._shape.held):
            raise ArgumentError(
                "a configuration cannot hold a Python function",
                op=f"{self._label}.get_config",
                expected="a function of ef",
                hint="a subclass of ef.nn.Layer that does this in its call",
            )
        return super().get_config() | {"function": f"ef.{name}"}

    def __repr__(self) -> str:
        return printable(f"<Lambda {self.name}: function={self.function!r}>")


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except raised_here(ValueError):  # some functions written in C
        return set()
