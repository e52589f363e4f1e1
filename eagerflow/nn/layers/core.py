"""The layers that most networks have: Dense, Flatten, Activation, Dropout, Input."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.nn import activations, initializers
from eagerflow.nn.layer import Layer
from eagerflow.nn.lookup import require
from eagerflow.ops import random
from eagerflow.ops.attributes import Sizes
from eagerflow.ops.nn.regularization import dropout
from eagerflow.tensor import Tensor

__all__ = ["Activation", "Dense", "Dropout", "Flatten", "Input", "Reshape", "positive"]


def positive(layer: Layer, argument: str, value: Any) -> int:
    """``value`` as an integer from 1 on; ArgumentError that names the layer if it is none."""
    ok = not isinstance(value, bool) and hasattr(value, "__index__") and value.__index__() >= 1
    require(ok, value, "out of range", layer._label, argument, "an integer of at least 1")
    return int(value.__index__())


class Dense(Layer):
    """Every output sees every input: ``activation(inputs @ kernel + bias)``.

    ``units`` is the number of outputs; inputs have shape (batch, ..., features), outputs
    (batch, ..., units). ``activation`` is a name or a function. Raises ShapeError for inputs
    without a feature axis or of another width than before.

    >>> layer = ef.nn.Dense(3, kernel_initializer="ones")
    >>> layer(ef.ones((2, 4)))
    Tensor([[4., 4., 4.],
            [4., 4., 4.]], shape=(2, 3), float32, cpu:0)
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units = positive(self, "units", units)
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            received = f"shape {tuple(input_shape)}"
            expected = "shape (batch, ..., features)"
            raise self._misfit("the input has no feature axis", received, expected)
        self.width = input_shape[-1]
        self.kernel = self.add_weight((self.width, self.units), self.kernel_initializer, "kernel")
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.units,), self.bias_initializer, "bias")

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, min_rank=2, last=self.width)
        outputs = ops.matmul(inputs, self.kernel.value)
        if self.bias is not None:
            outputs = ops.add(outputs, self.bias.value)
        return self.activation(outputs)


class Flatten(Layer):
    """All axes but the first in one.

    >>> ef.nn.Flatten()(ef.ones((2, 3, 4))).shape
    (2, 12)
    """

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, min_rank=1)
        size = 1
        for length in inputs.shape[1:]:
            size = size * length
        return ops.reshape(inputs, (inputs.shape[0], size))


class Reshape(Layer):
    """Every example in another shape; one size may be -1.

    >>> ef.nn.Reshape((2, -1))(ef.ones((5, 6))).shape
    (5, 2, 3)
    """

    def __init__(self, target_shape: Sizes, **options: Any) -> None:
        super().__init__(**options)
        self.target_shape = tuple(target_shape)

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, min_rank=1)
        return ops.reshape(inputs, (inputs.shape[0], *self._known(inputs)))

    def _known(self, inputs: Tensor) -> tuple[Any, ...]:
        # The batch may be empty or known by name only, so -1 is worked out without it.
        whole = given = 1
        for length in inputs.shape[1:]:
            whole = whole * length
        for length in self.target_shape:
            given = given * (1 if length == -1 else length)
        if given == 0 or whole % given:
            return self.target_shape
        return tuple(whole // given if length == -1 else length for length in self.target_shape)


class Activation(Layer):
    """A function of each element, by name or as it is.

    >>> ef.nn.Activation("relu")(ef.tensor([[1.0, -1.0]]))
    Tensor([[1., 0.]], shape=(1, 2), float32, cpu:0)
    """

    def __init__(self, activation: Any, **options: Any) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Tensor) -> Any:
        return self.activation(inputs)


class Dropout(Layer):
    """In training, sets a random part of the values to zero and scales the others up.

    ``rate`` is the probability of a zero. Sizes of 1 in ``noise_shape`` let the values along
    an axis share their fate. With a ``seed`` the layer has a generator of its own.

    >>> ef.nn.Dropout(0.5, seed=0)(ef.ones((1, 4)), training=True)
    Tensor([[2., 0., 0., 2.]], shape=(1, 4), float32, cpu:0)
    >>> ef.nn.Dropout(0.5)(ef.ones((1, 4)))
    Tensor([[1., 1., 1., 1.]], shape=(1, 4), float32, cpu:0)
    """

    def __init__(
        self, rate: float, noise_shape: Sizes = None, seed: int | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        ok = isinstance(rate, int | float) and 0 <= rate < 1
        expected = "a number from 0 up to, not including, 1"
        require(ok, rate, "not a rate", self._label, "rate", expected)
        self.rate, self.noise_shape = float(rate), noise_shape
        self.generator = None if seed is None else random.Generator(seed)

    def call(self, inputs: Tensor, training: bool = False) -> Any:
        if not training or not self.rate:
            return inputs
        return dropout(inputs, self.rate, noise_shape=self.noise_shape, generator=self.generator)


class Input(Layer):
    """Says at the head of a ``Sequential`` what shape one example has, so that it is built.

    ``shape`` is that of one example, without the batch axis.

    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    >>> model.count_params()
    10
    """

    def __init__(self, shape: Sizes, **options: Any) -> None:
        super().__init__(**options)
        self.shape = tuple(shape)

    def call(self, inputs: Tensor) -> Any:
        if tuple(inputs.shape[1:]) != self.shape:
            self.expect(inputs, rank=len(self.shape) + 1)
            raise self._misfit(
                "the input has another shape than the model was made for",
                f"shape {tuple(inputs.shape)}",
                f"(batch, {', '.join(map(str, self.shape))})",
            )
        return inputs
