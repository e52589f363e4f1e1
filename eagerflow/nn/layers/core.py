"""The layers that most networks have: Dense, Flatten, Reshape, Input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, printable
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count, number
from eagerflow.nn.configured import Untracked, arguments, unique
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.spatial import DataFormat
from eagerflow.nn.nests import shapes_of
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.nn.symbols import symbol
from eagerflow.ops.attributes import DTypeLike
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Dense", "Flatten", "Input", "InputLayer", "Reshape"]


ShapeLike = Annotated[Sequence[DimLike | None], tuple]
"""The sizes of one example, without the batch axis."""
Rate = Annotated[
    float, number(lambda x: 0 <= x < 1, "not a rate", "a number from 0 up to, not including, 1")
]


class KernelOptions(LayerOptions, total=False):
    """The common arguments of layers with a kernel, besides ``activation`` and ``use_bias``."""

    kernel_initializer: InitializerLike
    bias_initializer: InitializerLike
    kernel_regularizer: RegularizerLike
    bias_regularizer: RegularizerLike
    kernel_constraint: ConstraintLike
    bias_constraint: ConstraintLike


class _Affine(Layer):
    """Base of layers that multiply by weights, add a bias and apply an activation."""

    activation: Callable[..., Tensor]
    use_bias: bool
    kernel_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Callable[..., Any] | None
    bias_regularizer: Callable[..., Any] | None
    kernel_constraint: Callable[..., Any] | None
    bias_constraint: Callable[..., Any] | None
    bias: Variable | None

    def add_kernel(self, shape: Sequence[Any], initializer: InitializerLike | None = None) -> Any:
        """A new kernel, initialized by ``initializer`` or, by default, by the layer's own."""
        first = self.kernel_initializer if initializer is None else initializer
        cost, constraint = self.kernel_regularizer, self.kernel_constraint
        return self.add_weight(
            tuple(shape), first, "kernel", regularizer=cost, constraint=constraint
        )

    def add_bias(self, shape: Sequence[Any]) -> Variable:
        """A new bias of this shape."""
        first, cost = self.bias_initializer, self.bias_regularizer
        return self.add_weight(
            tuple(shape), first, "bias", regularizer=cost, constraint=self.bias_constraint
        )

    def make_bias(self, outputs: DimLike) -> None:
        """Create the bias, if there is one, with a number for each output."""
        self.bias = self.add_bias((outputs,)) if self.use_bias else None

    def finish(self, outputs: Tensor) -> Tensor:
        """The product with the weights, plus the bias, activated."""
        if self.bias is not None:
            outputs = ops.add(outputs, self.value(self.bias))
        return self.activation(outputs)


class KernelBase(_Affine):
    """Base of layers with several kernels and biases: how these begin, cost, and may be."""

    @arguments
    def __init__(
        self,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...


class BiasLayer(_Affine):
    """Base of layers that multiply by other weights than one kernel: bias and activation."""

    @arguments
    def __init__(
        self,
        activation: ActivationLike = None,
        use_bias: bool = True,
        bias_initializer: InitializerLike = "zeros",
        bias_regularizer: RegularizerLike = None,
        bias_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...


class KernelLayer(BiasLayer):
    """Base of layers that multiply by one kernel, add a bias and are activated."""

    kernel: Variable

    @arguments
    def __init__(
        self,
        activation: ActivationLike = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def make_kernel(self, *shape: DimLike, outputs: DimLike | None = None) -> None:
        """Create the kernel, and the bias if there is one, with a number for each output.

        The outputs correspond to the kernel's last axis unless ``outputs`` is given.
        """
        self.kernel = self.add_kernel(shape)
        self.make_bias(shape[-1] if outputs is None else outputs)


class Dense(KernelLayer):
    """Every output sees every input: ``activation(inputs @ kernel + bias)``.

    ``units`` is the number of outputs; inputs have shape (batch, ..., features), outputs
    (batch, ..., units). ``activation`` is a name or a function. Raises ShapeError for inputs
    without a feature axis or of another width than before.

    >>> layer = ef.nn.Dense(3, kernel_initializer="ones")
    >>> layer(ef.ones((2, 4)))
    Tensor([[4., 4., 4.],
            [4., 4., 4.]], shape=(2, 3), float32, cpu:0)
    """

    units: int

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            received = f"shape {tuple(input_shape)}"
            expected = "shape (batch, ..., features)"
            raise self._misfit("the input has no feature axis", received, expected)
        self.width = input_shape[-1]
        self.make_kernel(self.width, self.units)

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, min_rank=2, last=self.width)
        return self.finish(ops.matmul(inputs, self.value(self.kernel)))


class Flatten(Layer):
    """All axes but the first in one.

    >>> ef.nn.Flatten()(ef.ones((2, 3, 4))).shape
    (2, 12)
    """

    supports_masking = False
    data_format: str

    @arguments
    def __init__(self, data_format: DataFormat = None, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, min_rank=1)
        return ops.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))


class Reshape(Layer):
    """Every example in another shape; one size may be -1.

    >>> ef.nn.Reshape((2, -1))(ef.ones((5, 6))).shape
    (5, 2, 3)
    """

    supports_masking = False
    target_shape: tuple[int, ...]

    @arguments
    def __init__(self, target_shape: ShapeLike, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, min_rank=1)
        return ops.reshape(inputs, (inputs.shape[0], *self._known(inputs)))

    def _known(self, inputs: Tensor) -> tuple[Any, ...]:
        # The batch may be empty or known by name only, so -1 is worked out without it.
        whole = math.prod(inputs.shape[1:])
        given = math.prod(length for length in self.target_shape if length != -1)
        if given == 0 or whole % given:
            return self.target_shape
        return tuple(whole // given if length == -1 else length for length in self.target_shape)


class InputLayer(Layer):
    """Declares the shape of one example at the head of a model; ``Input`` returns its ``output``.

    ``shape`` is that of one example, without the batch axis; None is any size. ``batch_size`` may
    be fixed.

    >>> ef.nn.InputLayer((4,)).output.shape
    (batch, 4)
    """

    shape: tuple[DimLike | None, ...]

    @arguments
    def __init__(
        self, shape: ShapeLike, batch_size: int | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        self.built, self.output_shape = True, (batch_size, *self.shape)
        self._make_symbol()

    def _make_symbol(self) -> None:
        self.symbol = Untracked(symbol(self.output_shape, self.dtype, self.name))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"symbol": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_symbol()  # a copy is the head of a model of its own

    @property
    def output(self) -> Tensor:
        """The symbolic tensor of the inputs."""
        return self.symbol.held

    def call(self, inputs: Tensor) -> Tensor:
        if isinstance(inputs, list | tuple | dict):
            raise self._several(shapes_of(inputs))
        sizes = tuple(inputs.shape[1:])
        pairs = zip(sizes, self.shape, strict=False)
        unlike = [a for a, b in pairs if isinstance(b, int) and a != b]  # others are any size
        if len(sizes) != len(self.shape) or unlike:
            is_flat = sizes == self.shape[:-1] and self.shape[-1] == 1
            if not is_flat:
                self.expect(inputs, rank=len(self.shape) + 1)
            raise self._misfit(
                "the input has another shape than the model was made for",
                f"shape {tuple(inputs.shape)}",
                f"(batch, {', '.join(map(str, self.shape))})",
                "x[..., None] adds the axis of one channel" if is_flat else self._turned(sizes),
            )
        return inputs

    def _turned(self, sizes: tuple[DimLike, ...]) -> str:
        """The remedy for examples of this size, such as images with their channels first."""
        axes = 0, *range(2, len(sizes) + 1), 1
        if len(sizes) > 1 and (*sizes[1:], sizes[0]) == self.shape:
            return f"channels come last: ef.permute_dims(x, {axes})"
        return f"ef.nn.Input({sizes}) at the head of a model for such examples"

    def __repr__(self) -> str:
        return printable(f"<InputLayer {self.name}: {summary(self.output)}>")


def input_layer(x: Tensor) -> InputLayer:
    """The layer with this symbolic tensor as its output, which no node computes."""
    batch, *shape = (n if isinstance(n, int) else None for n in x.shape)
    layer = InputLayer(shape, batch, dtype=x.dtype, name=x._array.name)
    layer.symbol = Untracked(x)
    return layer


def Input(
    shape: ShapeLike | None = None,
    batch_size: int | None = None,
    dtype: DTypeLike = None,
    name: str | None = None,
    batch_shape: ShapeLike | None = None,
) -> Tensor:
    """A symbolic tensor for the inputs of a model, to be passed to layers and ops.

    ``shape`` is that of one example, without the batch axis; None is any size. ``batch_shape`` is
    an alternative with the batch axis. Raises ArgumentError unless one of them is given.

    >>> x = ef.nn.Input((4,))
    >>> model = ef.nn.Model(x, ef.nn.Dense(2)(x))
    >>> model.count_params()
    10
    """
    if (shape is None) == (batch_shape is None):
        raise ArgumentError(
            "the shape of an example is not given" if shape is None else "two shapes are given",
            op="Input",
            argument="shape",
            expected="shape, without the batch axis, or batch_shape, with it",
            hint="ef.nn.Input((4,)), or ef.nn.Input(batch_shape=(None, 4))",
        )
    whole: Any = batch_shape if shape is None else (batch_size, *shape)
    return InputLayer(whole[1:], whole[0], name=name or unique("input"), dtype=dtype).output
