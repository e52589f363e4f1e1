"""Cells with gates: SimpleRNNCell, LSTMCell, GRUCell, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count
from eagerflow.nn.configured import arguments
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.cells import Step
from eagerflow.nn.layers.core import Rate
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.ops import random
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.ops.nn.regularization import dropout
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["GRUCell", "LSTMCell", "SimpleRNNCell"]

Masks = Sequence[Tensor]
"""What dropout multiplies by: nothing, one tensor, or one for each gate."""


class CellOptions(LayerOptions, total=False):
    """The arguments that all cells with gates share, beside ``activation`` and ``use_bias``."""

    kernel_initializer: InitializerLike
    recurrent_initializer: InitializerLike
    bias_initializer: InitializerLike
    kernel_regularizer: RegularizerLike
    recurrent_regularizer: RegularizerLike
    bias_regularizer: RegularizerLike
    kernel_constraint: ConstraintLike
    recurrent_constraint: ConstraintLike
    bias_constraint: ConstraintLike
    dropout: Rate
    recurrent_dropout: Rate
    seed: int | None


class GatedCell(Layer):
    """Base of cells: gates see the inputs through one kernel and the output before through another.

    A subclass says how many ``gates`` and ``states`` it has, and gives ``step``.
    """

    gates = 1
    states = 1
    unit_forget_bias = False
    activation: Callable[..., Tensor]
    use_bias: bool
    kernel_initializer: Initializer
    recurrent_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Callable[..., Any] | None
    recurrent_regularizer: Callable[..., Any] | None
    bias_regularizer: Callable[..., Any] | None
    kernel_constraint: Callable[..., Any] | None
    recurrent_constraint: Callable[..., Any] | None
    bias_constraint: Callable[..., Any] | None
    dropout: float
    recurrent_dropout: float
    seed: int | None
    input_sizes: tuple[Any, ...]
    output_sizes: tuple[Any, ...]
    kernel: Variable
    recurrent_kernel: Variable
    bias: Variable | None

    @arguments
    def __init__(
        self,
        activation: ActivationLike = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        recurrent_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        recurrent_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        dropout: Rate = 0.0,
        recurrent_dropout: Rate = 0.0,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.generator = None if seed is None else random.Generator(seed)

    def make_weights(self, kernel: Sizes, recurrent: Sizes, bias: Sizes) -> None:
        """Make kernel, recurrent kernel and bias of these shapes."""
        self.kernel = self._weight("kernel", kernel, "kernel")
        self.recurrent_kernel = self._weight("recurrent_kernel", recurrent, "recurrent")
        self.bias = self._weight("bias", bias, "bias") if self.use_bias else None

    def _weight(self, name: str, shape: Sizes, kind: str) -> Variable:
        initializer, regularizer, constraint = (
            getattr(self, f"{kind}_{part}") for part in ("initializer", "regularizer", "constraint")
        )
        if name == "bias" and self.unit_forget_bias:
            initializer = self._forget_bias
        return self.add_weight(shape, initializer, name, True, None, regularizer, constraint)

    def _forget_bias(self, shape: Sizes, dtype: DTypeLike) -> Tensor:
        """First values of the bias of an LSTM's gates: 1 for the forget gate."""
        (size,) = tuple(shape)
        make = self.bias_initializer
        ones = ops.ones((size // 4,), dtype=dtype)
        return ops.concat([make((size // 4,), dtype), ones, make((size // 2,), dtype)])

    # Steps ---------------------------------------------------------------------------------

    def step(
        self, inputs: Tensor, states: list[Tensor], input_masks: Masks, output_masks: Masks
    ) -> list[Tensor]:
        """The states after a step, of which the first is the output."""
        raise ArgumentError("the class does not define step", op=type(self).__name__)

    def stepper(self, batch: DimLike, training: bool) -> Step:
        """A step with the dropout of this call drawn."""
        masks = self.draw(batch, training)

        def step(inputs: Tensor, states: Any) -> tuple[Tensor, Any]:
            several = isinstance(states, list | tuple)
            after = self.step(inputs, list(states) if several else [states], *masks)
            return after[0], after if several else after[0]

        return step

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> tuple[Any, Any]:
        return self.stepper(inputs.shape[0], training)(inputs, states)

    def total(self, a: Tensor, u: Tensor) -> Tensor:
        """What inputs and the output before bring to the gates, with the bias."""
        whole = ops.add(a, u)
        return whole if self.bias is None else ops.add(whole, self.value(self.bias))

    # Dropout -------------------------------------------------------------------------------

    def draw(self, batch: DimLike, training: bool) -> tuple[Masks, Masks]:
        """The masks of the inputs and of the output before."""
        per_gate = self.gates if self.recurrent_dropout else 1
        of_inputs = self.drawn(self.dropout, per_gate, (batch, *self.input_sizes), training)
        shape = (batch, *self.output_sizes)
        return of_inputs, self.drawn(self.recurrent_dropout, self.gates, shape, training)

    def drawn(self, rate: float, count: int, shape: Any, training: bool) -> Masks:
        """As many masks as ``count`` says; none where nothing is dropped."""
        if not training or not rate:
            return []
        ones = ops.ones(shape, dtype=self.compute_dtype)
        return [dropout(ones, rate, generator=self.generator) for _ in range(count)]

    def through(
        self, x: Tensor, kernel: Tensor, masks: Masks, product: Callable[..., Tensor] = ops.matmul
    ) -> Tensor:
        """The product of ``x``, with what the masks leave of it, and a kernel of all gates."""
        if not masks:
            return product(x, kernel)
        if len(masks) == 1:
            return product(ops.multiply(x, masks[0]), kernel)
        parts = ops.split(kernel, len(masks), axis=-1)
        return ops.concat(
            [product(ops.multiply(x, m), part) for m, part in zip(masks, parts, strict=True)],
            axis=-1,
        )


class UnitsCell(GatedCell):
    """Base of cells over vectors, whose states have a width of ``units``."""

    units: int
    op: Callable[..., Any]
    """What computes all steps at once, with the usual activations."""

    def build(self, input_shape: Shape) -> None:
        self.input_sizes = (input_shape[-1],)
        self.output_sizes = (self.units,)
        wide = self.gates * self.units
        self.make_weights((input_shape[-1], wide), (self.units, wide), self.bias_shape(wide))

    def bias_shape(self, wide: int) -> tuple[int, ...]:
        """The shape of the bias of gates that are so wide together."""
        return (wide,)

    @property
    def state_size(self) -> Any:
        """The width of the state, or a list for several states."""
        return self.units if self.states == 1 else [self.units] * self.states

    @property
    def output_size(self) -> int:
        """The width of the output."""
        return self.units

    def get_initial_state(self, batch_size: DimLike) -> list[Tensor]:
        """The states before the first step: zeros."""
        shape = (batch_size, self.units)
        return [ops.zeros(shape, dtype=self.compute_dtype) for _ in range(self.states)]

    def by_op(self, training: bool) -> bool:
        """Whether ``over_steps`` does what this cell does."""
        usual = self.activation is ops.tanh
        return usual and not (training and self.recurrent_dropout)

    def over_steps(
        self, inputs: Tensor, states: Any, mask: Any, reverse: bool, training: bool
    ) -> tuple[Tensor, ...]:
        """The states after each step of whole sequences, (batch, steps, units) each.

        ``states`` are those before the first step, or None for zeros.
        """
        states = [None] * self.states if states is None else states
        for drawn in self.draw(inputs.shape[0], training)[0]:
            inputs = ops.multiply(inputs, drawn[:, None])
        weights = [self.value(x) for x in (self.kernel, self.recurrent_kernel, self.bias)]
        found = self.op(inputs, *weights, *states, mask, reverse=reverse)
        return found if isinstance(found, tuple) else (found,)


class SimpleRNNCell(UnitsCell):
    """A step of a plain network: ``activation(inputs @ kernel + bias + h @ recurrent_kernel)``.

    ``units`` is the width of the output h, which is the state. In training ``dropout`` is the rate
    at which inputs are set to zero, ``recurrent_dropout`` that of h. Called with inputs (batch,
    features) and the state, in a list or not; gives the output and the state.

    >>> cell = ef.nn.SimpleRNNCell(2, kernel_initializer="ones")
    >>> cell(ef.ones((1, 3)), [ef.zeros((1, 2))])[0]
    Tensor([[0.9951, 0.9951]], shape=(1, 2), float32, cpu:0)
    """

    op = staticmethod(ops.simple_rnn)

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        use_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None: ...

    def step(
        self, inputs: Tensor, states: list[Tensor], input_masks: Masks, output_masks: Masks
    ) -> list[Tensor]:
        a = self.through(inputs, self.value(self.kernel), input_masks)
        u = self.through(states[0], self.value(self.recurrent_kernel), output_masks)
        return [self.activation(self.total(a, u))]


def lstm_step(cell: Any, gates: Tensor, c: Tensor) -> list[Tensor]:
    """The states h and c after a step, from the four gates before they are activated."""
    i, f, new, o = ops.split(gates, 4, axis=-1)
    c = cell.recurrent_activation(f) * c + cell.recurrent_activation(i) * cell.activation(new)
    return [cell.recurrent_activation(o) * cell.activation(c), c]


class LSTMCell(UnitsCell):
    """A step of a long short-term memory, with the states h, which is the output, and c.

    ``units`` is the width of each. The four gates lie side by side in the weights: input, forget,
    content, output; ``recurrent_activation`` is that of the gates, ``activation`` that of content
    and output. With ``unit_forget_bias`` the bias of the forget gate begins with 1. ``dropout`` and
    ``recurrent_dropout`` are the rates at which inputs and h are set to zero in training. Called
    with inputs (batch, features) and [h, c]; gives the output and [h, c]. Source: Hochreiter and
    Schmidhuber, "Long short-term memory", 1997.

    >>> cell = ef.nn.LSTMCell(2)
    >>> output, (h, c) = cell(ef.ones((1, 3)), cell.get_initial_state(1))
    >>> output.shape, c.shape
    ((1, 2), (1, 2))
    """

    gates = 4
    states = 2
    op = staticmethod(ops.lstm)
    recurrent_activation: Callable[..., Tensor]

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None: ...

    def by_op(self, training: bool) -> bool:
        usual = self.recurrent_activation is ops.sigmoid
        return usual and super().by_op(training)

    def step(
        self, inputs: Tensor, states: list[Tensor], input_masks: Masks, output_masks: Masks
    ) -> list[Tensor]:
        h, c = states
        a = self.through(inputs, self.value(self.kernel), input_masks)
        u = self.through(h, self.value(self.recurrent_kernel), output_masks)
        return lstm_step(self, self.total(a, u), c)


class GRUCell(UnitsCell):
    """A step of gated recurrent units: the output is the state.

    ``units`` is its width. The gates lie side by side in the weights: update, reset, content;
    ``recurrent_activation`` is that of the gates, ``activation`` that of the content. With
    ``reset_after`` the reset gate acts on the product of h and the recurrent kernel, which has a
    bias of its own (the bias has two rows), else on h itself. ``dropout`` and
    ``recurrent_dropout`` are the rates at which inputs and h are set to zero in training. Called
    with inputs (batch, features) and the state, in a list or not; gives the output and the state.
    Source: Cho and others, arXiv:1406.1078.

    >>> ef.nn.GRUCell(2)(ef.ones((1, 3)), ef.zeros((1, 2)))[0].shape
    (1, 2)
    """

    gates = 3
    op = staticmethod(ops.gru)
    recurrent_activation: Callable[..., Tensor]
    reset_after: bool

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        reset_after: bool = True,
        **options: Unpack[CellOptions],
    ) -> None: ...

    def bias_shape(self, wide: int) -> tuple[int, ...]:
        return (2, wide) if self.reset_after else (wide,)

    def by_op(self, training: bool) -> bool:
        usual = self.recurrent_activation is ops.sigmoid
        return usual and self.reset_after and super().by_op(training)

    def step(
        self, inputs: Tensor, states: list[Tensor], input_masks: Masks, output_masks: Masks
    ) -> list[Tensor]:
        h, bias, wide = states[0], self.value(self.bias), [2 * self.units]
        kernel = self.value(self.recurrent_kernel)
        a: Any = self.through(inputs, self.value(self.kernel), input_masks)
        if bias is not None:
            a = a + (bias[0] if self.reset_after else bias)
        a_gates, a_new = ops.split(a, wide, axis=-1)
        if self.reset_after:
            u = self.through(h, kernel, output_masks)
            u_gates, u_new = ops.split(
                u if bias is None else u + bias[1], [2 * self.units], axis=-1
            )
            z, r = ops.split(self.recurrent_activation(a_gates + u_gates), 2, axis=-1)
            u_new = r * u_new
        else:
            of_gates, of_new = ops.split(kernel, wide, axis=-1)
            u_gates = self.through(h, of_gates, output_masks[:2])
            z, r = ops.split(self.recurrent_activation(a_gates + u_gates), 2, axis=-1)
            u_new = self.through(r * h, of_new, output_masks[2:])
        return [z * h + (1 - z) * self.activation(a_new + u_new)]
