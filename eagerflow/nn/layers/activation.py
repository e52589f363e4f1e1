"""Activation functions as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.nn import activations
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Float, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.masks import hidden_score
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.ops.attributes import Axes
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["ELU", "Activation", "LeakyReLU", "PReLU", "ReLU", "Softmax"]

NotNegative = Annotated[float, number(lambda x: x >= 0, "negative", "a number of at least 0")]


def _axes(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


class Activation(Layer):
    """A function of each element, by name or as it is.

    >>> ef.nn.Activation("relu")(ef.tensor([[1.0, -1.0]]))
    Tensor([[1., 0.]], shape=(1, 2), float32, cpu:0)
    """

    activation: Callable[..., Tensor]

    @arguments
    def __init__(self, activation: ActivationLike, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return self.activation(inputs)


class ReLU(Layer):
    """Each element that is above ``threshold``, up to ``max_value``, and 0 for other elements.

    Elements up to the threshold become ``negative_slope`` times their distance to it. Raises
    ArgumentError for negative arguments.

    >>> ef.nn.ReLU(max_value=6.0)(ef.tensor([[-1.0, 2.0, 8.0]]))
    Tensor([[0., 2., 6.]], shape=(1, 3), float32, cpu:0)
    """

    max_value: float | None
    negative_slope: float
    threshold: float

    @arguments
    def __init__(
        self,
        max_value: NotNegative | None = None,
        negative_slope: NotNegative = 0.0,
        threshold: NotNegative = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """Rectified linear unit with a small slope for negative numbers.

    Raises ArgumentError for a negative slope. Source: Maas and others, "Rectifier nonlinearities
    improve neural network acoustic models", 2013.

    >>> ef.nn.LeakyReLU()(ef.tensor([[-1.0, 2.0]]))
    Tensor([[-0.3,  2. ]], shape=(1, 2), float32, cpu:0)
    """

    negative_slope: float

    @arguments
    def __init__(
        self, negative_slope: NotNegative = 0.3, **options: Unpack[LayerOptions]
    ) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return activations.leaky_relu(inputs, self.negative_slope)


class ELU(Layer):
    """Exponential linear unit: x where it is positive, alpha·(exp(x) - 1) elsewhere.

    Source: Clevert and others, arXiv:1511.07289.

    >>> ef.nn.ELU()(ef.tensor([[-1.0, 2.0]]))
    Tensor([[-0.6321,  2.    ]], shape=(1, 2), float32, cpu:0)
    """

    alpha: float

    @arguments
    def __init__(self, alpha: Float = 1.0, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return activations.elu(inputs, self.alpha)


class PReLU(Layer):
    """Rectified linear unit with a learned slope for negative numbers, for each feature.

    The slope is shared along ``shared_axes`` (spatial axes, for example); axis 0 is the batch's.
    Source: He and others, arXiv:1502.01852.

    >>> ef.nn.PReLU(alpha_initializer="ones")(ef.tensor([[-1.0, 2.0]]))
    Tensor([[-1.,  2.]], shape=(1, 2), float32, cpu:0)
    """

    alpha_initializer: Initializer
    alpha_regularizer: Callable[..., Any] | None
    alpha_constraint: Callable[..., Any] | None
    shared_axes: tuple[int, ...] | None

    @arguments
    def __init__(
        self,
        alpha_initializer: InitializerLike = "zeros",
        alpha_regularizer: RegularizerLike = None,
        alpha_constraint: ConstraintLike = None,
        shared_axes: Annotated[int | Sequence[int], _axes] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        shared = normalize_axes(self.shared_axes or (), self.rank)
        self.alpha = self.add_weight(
            [1 if i in shared else n for i, n in enumerate(input_shape)][1:],
            self.alpha_initializer,
            "alpha",
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        below = ops.relu(ops.negative(inputs))
        return ops.subtract(ops.relu(inputs), self.value(self.alpha) * below)


class Softmax(Layer):
    """The exponentials along ``axis``, divided by their sum.

    ``axis`` is an integer or several. A ``mask``, bools that broadcast to the inputs, leaves
    elements out, which become 0.

    >>> ef.nn.Softmax()(ef.tensor([[1.0, 1.0, 1.0]]), mask=ef.tensor([True, True, False]))
    Tensor([[0.5, 0.5, 0. ]], shape=(1, 3), float32, cpu:0)
    """

    axis: Axes

    @arguments
    def __init__(self, axis: Axes = -1, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return self._softmax(inputs)
        keep = mask.astype("bool")
        scores = ops.where(keep, inputs, hidden_score(inputs.dtype))
        return ops.where(keep, self._softmax(scores), 0.0)

    def _softmax(self, x: Tensor) -> Tensor:
        axes = _axes(self.axis)
        if len(axes) == 1:
            return ops.softmax(x, axis=axes[0])
        return ops.exp(x - ops.logsumexp(x, axis=axes, keepdims=True))
