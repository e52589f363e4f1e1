"""Wrappers of layers: both directions of a sequence, and each step separately."""

from __future__ import annotations

import copy
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Nest, require
from eagerflow.nn.configured import Untracked, arguments, from_config
from eagerflow.nn.layer import Layer, LayerOptions, layer_classes
from eagerflow.nn.layers.cells import build_part
from eagerflow.nn.layers.recurrent import scan
from eagerflow.tensor import Tensor

__all__ = ["Bidirectional", "TimeDistributed", "Wrapper"]


def _layer(value: Any) -> Layer:
    """A layer from itself or its configuration; ArgumentError for other values."""
    known = isinstance(value, Layer | dict)
    require(known, value, "not a layer", expected="a Layer, or its configuration")
    found: Layer = from_config("layer", value, layer_classes, callable)
    return found


LayerLike = Annotated[Any, _layer]
"""A layer, or its configuration."""


class Wrapper(Layer):
    """Base of wrappers of another ``layer``, whose weights are theirs.

    >>> class Twice(ef.nn.Wrapper):
    ...     def call(self, inputs):
    ...         return self.layer(self.layer(inputs))
    >>> len(Twice(ef.nn.Dense(3))(ef.ones((1, 3)))[0])
    3
    """

    layer: Layer

    @arguments
    def __init__(self, layer: LayerLike, **options: Unpack[LayerOptions]) -> None: ...


def _again(layer: Any, prefix: str, **changes: Any) -> Any:
    """A new layer like one, from the same arguments; its weights are its own."""
    given = copy.deepcopy(layer._config.held)
    name = f"{prefix}_{layer.name.removeprefix(f'{prefix}_')}"
    return type(layer)(**given | changes | {"name": name})


class Bidirectional(Layer):
    """A recurrent layer in both directions, each with its own weights.

    ``layer`` runs forward, and a copy, or ``backward_layer``, runs backwards; both are
    reconstructed from their arguments, so that nothing is shared with ``layer``. ``merge_mode`` is
    the combination of outputs: ``"concat"``, ``"sum"``, ``"mul"``, ``"ave"`` (the mean), or None
    for a pair. With ``return_state`` the states of both follow. ``initial_state`` are those of the
    one and then of the other; ``weights`` are values of all weights to begin with. Outputs of all
    steps are zeros where a mask is False. Raises ArgumentError for layers that do not fit together.
    Source: Schuster and Paliwal, 1997.

    >>> layer = ef.nn.Bidirectional(ef.nn.LSTM(4, return_sequences=True))
    >>> layer(ef.ones((2, 5, 3))).shape
    (2, 5, 8)
    """

    merge_mode: str | None
    stateful: bool
    return_sequences: bool
    return_state: bool

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        modes = ("concat", "sum", "mul", "ave", None)
        expected = "one of " + ", ".join(map(repr, modes))
        known = merge_mode in modes
        require(known, merge_mode, "not a way to join", self._label, "merge_mode", expected)
        given: Any = self._part("layer", layer)
        self.forward_layer = _again(given, "forward")
        if backward_layer is None:
            self.backward_layer = _again(given, "backward", go_backwards=True)
        else:
            self.backward_layer = self._part("backward_layer", backward_layer)
        self.merge_mode = merge_mode
        self._given = Untracked(weights)
        if self.forward_layer.go_backwards == self.backward_layer.go_backwards:
            raise self._unlike("go_backwards", "one that goes backwards and one that does not")
        for name in ("stateful", "return_sequences", "return_state"):
            if getattr(self.forward_layer, name) != getattr(self.backward_layer, name):
                raise self._unlike(name, "the same for both")
            setattr(self, name, getattr(self.forward_layer, name))
        for part in (self.forward_layer, self.backward_layer):
            if hasattr(part, "zero_output_for_mask"):
                part.zero_output_for_mask = part.return_sequences

    def _part(self, argument: str, value: Any) -> Any:
        try:
            found: Any = _layer(value)
        except ArgumentError as error:
            error.op, error.argument = self._label, argument
            raise
        wanted = ("go_backwards", "return_sequences", "return_state", "stateful")
        lacking = [name for name in wanted if not hasattr(found, name)]
        if lacking:
            raise ArgumentError(
                f"a {type(found).__name__} has no {lacking[0]}, so it is not a recurrent layer",
                op=self._label,
                argument=argument,
                hint="ef.nn.TimeDistributed(layer) for one that sees each step by itself",
            )
        return found

    def _unlike(self, name: str, expected: str) -> ArgumentError:
        both = [getattr(x, name) for x in (self.forward_layer, self.backward_layer)]
        return ArgumentError(
            f"{name} does not fit",
            op=self._label,
            argument="backward_layer",
            received=f"{both[0]} for the forward layer, {both[1]} for the backward layer",
            expected=expected,
        )

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"weights": None}  # they are weights, not arguments

    @property
    def states(self) -> Any:
        """The Variables of both layers' states; None if they keep none."""
        parts = [part.states for part in (self.forward_layer, self.backward_layer)]
        return None if None in parts else [*parts[0], *parts[1]]

    def reset_state(self) -> None:
        """Reset the states of stateful layers to zeros."""
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    reset_states = reset_state

    def build(self, sequences_shape: Shape, initial_state_shape: Any = None) -> None:
        for part in (self.forward_layer, self.backward_layer):
            build_part(part, sequences_shape, self.name)
        if self._given.held is not None:
            self.set_weights(self._given.held)

    def call(
        self,
        sequences: Tensor,
        initial_state: Nest = None,
        mask: Tensor | None = None,
    ) -> Any:
        named: dict[str, Any] = {"mask": mask} if "mask" in self.forward_layer._takes else {}
        states: tuple[Any, Any] = (None, None)
        if initial_state is not None:
            half = len(initial_state) // 2
            states = initial_state[:half], initial_state[half:]
        found = []
        for part, state in zip((self.forward_layer, self.backward_layer), states, strict=True):
            more = named if state is None else named | {"initial_state": state}
            y = part(sequences, **more)
            found.append(list(y) if self.return_state else [y])
        (y, *after), (back, *back_after) = found
        if self.return_sequences:
            back = ops.flip(back, axis=1)
        joined = self._joined(y, back)
        if not self.return_state:
            return joined
        return (*(joined if self.merge_mode is None else (joined,)), *after, *back_after)

    def _joined(self, y: Tensor, back: Tensor) -> Any:
        if self.merge_mode is None:
            return y, back
        if self.merge_mode == "concat":
            return ops.concat([y, back], axis=-1)
        if self.merge_mode == "mul":
            return ops.multiply(y, back)
        total = ops.add(y, back)
        return total if self.merge_mode == "sum" else ops.divide(total, 2)

    def compute_mask(self, inputs: Nest, previous_mask: Any) -> Any:
        """The inputs' mask for the outputs of all steps; states have none."""
        if not self.return_sequences:
            return None
        return (previous_mask, previous_mask) if self.merge_mode is None else previous_mask


class TimeDistributed(Wrapper):
    """A layer that is given each step of sequences by itself.

    Inputs have shape (batch, steps, ...), and ``layer`` gets (batch, ...). Steps are treated as
    examples for a layer with only trained weights; one that keeps state, such as
    BatchNormalization, is called step by step. Raises ShapeError for inputs without steps and for
    masks of another shape.

    >>> ef.nn.TimeDistributed(ef.nn.Dense(4))(ef.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 3:
            received = f"shape {tuple(input_shape)}"
            raise self._misfit("there are no steps", received, "shape (batch, steps, ...)")
        build_part(self.layer, (input_shape[0], *input_shape[2:]), self.name)

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        self.expect(inputs, min_rank=3)
        if mask is not None and (mask.ndim < 2 or mask.shape[:2] != inputs.shape[:2]):
            received, expected = f"shape {mask.shape}", f"shape {inputs.shape[:2]}"
            raise self._misfit("the mask does not fit the inputs", received, expected)
        given = [inputs] if mask is None or "mask" not in self.layer._takes else [inputs, mask]

        def step(x: Tensor, *masks: Tensor) -> Tensor:
            found: Tensor = self.layer(x, mask=masks[0]) if masks else self.layer(x)
            return found

        if self.layer.non_trainable_weights:
            rows = [ops.swapaxes(x, 0, 1) for x in given]
            outputs = scan(lambda carry, row: (carry, step(*row)), (), rows)[1]
            return ops.swapaxes(outputs, 0, 1)
        batch, steps = inputs.shape[:2]
        outputs = step(*(ops.reshape(x, (batch * steps, *x.shape[2:])) for x in given))
        return ops.reshape(outputs, (batch, steps, *outputs.shape[1:]))
