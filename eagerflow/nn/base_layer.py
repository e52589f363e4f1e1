"""The base of layers without the computation: names, weights, losses, errors, configuration."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Self

import numpy as np

from eagerflow.dims import DimLike
from eagerflow.dispatch import internal
from eagerflow.display import summary
from eagerflow.dtypes import DType, as_dtype, is_floating
from eagerflow.errors import ArgumentError, ShapeError, printable
from eagerflow.layer_losses import add_loss, losses_so_far
from eagerflow.nn import constraints, initializers, policy, regularizers
from eagerflow.nn.arguments import require
from eagerflow.nn.configured import Untracked, snake_case, unique
from eagerflow.nn.module import Module
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.tensor import Tensor
from eagerflow.tracebacks import hide_internal_frames
from eagerflow.variable import Variable

__all__ = ["BaseLayer", "is_ours", "weights_asked"]

_OPTIONS = {"name": "name", "dtype": "dtype_policy", "trainable": "trainable"}

weights_asked: ContextVar[Callable[[tuple[int, ...], str], None] | None] = ContextVar(
    "eagerflow_weights_asked", default=None
)
"""Receives the shape and name of each weight before it is created, and may refuse it."""


def is_ours(definition: Any) -> bool:
    """Whether a class or function is of this library, and not of a user's."""
    found: bool = definition.__module__.startswith(f"{__package__}.")
    return found


def unknown_argument(error: Exception) -> str | None:
    """The argument that a ``call`` does not have, if the package has called it with one."""
    found = re.search(r"\bcall\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if found is None or type(error) is not TypeError or error.__traceback__ is None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return found[1] if internal[frame.f_code.co_filename] else None


class BaseLayer(Module):
    """Base of layers: how they are called, and their weights."""

    built = False

    def __init__(
        self,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        activity_regularizer: Any = None,
    ) -> None:
        """Arguments of all layers, by keyword; see the class."""
        known = name is None or isinstance(name, str)
        require(known, name, "not a name", type(self).__name__, "name", "a string")
        self.name = name or unique(snake_case(type(self).__name__))
        self.dtype_policy = policy.get(dtype)
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.output_shape: Any = None
        self._trainable = bool(trainable)
        self._weights: list[Variable] = []
        self._regularized = Untracked([])  # pairs of a Variable and its regularizer
        self._ends = Untracked(())  # inputs and outputs of the last call on symbolic tensors

    @property
    def dtype(self) -> DType:
        """The dtype of the weights."""
        return self.dtype_policy.variable_dtype

    @property
    def compute_dtype(self) -> DType:
        """The dtype that inputs get, and that is computed in."""
        return self.dtype_policy.compute_dtype

    def _check_constructor(self) -> None:
        """Raise ArgumentError where a subclass has forgotten to call the constructor."""
        if "_weights" not in vars(self):
            raise ArgumentError(
                "__init__ has not called super().__init__()",
                op=type(self).__name__,
                hint="super().__init__() as its first line",
            )

    def _mark_built(self) -> None:
        """Create no more weights; those of a frozen layer are frozen."""
        self.built = True
        if not self._trainable:
            self.trainable = False

    # Weights and costs ---------------------------------------------------------------------

    def value(self, weight: Variable | None) -> Any:
        """The value of a weight in the compute dtype; None stays None."""
        if weight is None:
            return None
        found = weight.value
        mixed = self.dtype_policy.mixed and is_floating(found.dtype)
        return found.astype(self.dtype_policy.compute_dtype) if mixed else found

    def add_weight(
        self,
        shape: Sizes = (),
        initializer: Any = "glorot_uniform",
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike = None,
        regularizer: Any = None,
        constraint: Any = None,
    ) -> Variable:
        """A new Variable of this layer.

        ``shape`` is a tuple of sizes, ``initializer`` a name or an object of
        ``ef.nn.initializers``; ``regularizer`` computes a term of the loss from it, and
        ``constraint`` is applied to it after each step of an optimizer. Raises ArgumentError for an
        unknown initializer, ShapeError for unknown sizes.
        """
        sizes = isinstance(shape, tuple | list) and not any(isinstance(n, str) for n in shape)
        expected = "a tuple of sizes: add_weight((4, 2), name='w')"
        require(sizes, shape, "not a shape", self.name, "shape", expected)
        if any(not isinstance(size, int) for size in shape):
            raise ShapeError(
                f"the shape {tuple(shape)} of a weight is not known",
                op=self.name,
                argument=name,
                expected="integers",
            )
        asked = weights_asked.get()
        if asked is not None:
            asked(tuple(shape), f"{self.name}/{name}")
        values = initializers.get(initializer)(tuple(shape), as_dtype(dtype or self.dtype))
        label = f"{self.name}/{name or f'weight_{len(self._weights)}'}"
        if type(values) is Tensor and type(values._array) is np.ndarray:
            # An initializer may return the same Tensor twice: the weight gets memory of its own.
            variable = Variable(values.numpy(), label, trainable, device=values.device)
        else:
            variable = Variable(values, label, trainable)
        self._weights.append(variable)
        found = regularizers.get(regularizer)
        if found is not None:
            self._regularized.held.append((variable, found))
        variable.constraint = constraints.get(constraint)
        return variable

    def add_loss(self, loss: Any) -> None:
        """Add a number to the training loss, from within ``call``."""
        add_loss(loss)

    @property
    def losses(self) -> list[Any]:
        """The regularization losses of all weights, and the losses added by the current call.

        ``Model.fit`` adds these to the loss; a step of one's own does so within
        ``ef.nn.added_losses``.
        """
        own = [
            regularizer(variable)
            for layer in self.walk()
            if isinstance(layer, BaseLayer)
            for variable, regularizer in layer._regularized.held
            if variable.trainable
        ]
        return own + losses_so_far()

    # Errors --------------------------------------------------------------------------------

    def expect(
        self,
        inputs: Tensor,
        rank: int | None = None,
        min_rank: int = 0,
        last: DimLike | None = None,
    ) -> None:
        """Raise a ShapeError that names this layer unless ``inputs`` has this rank and width."""
        shape = inputs.shape
        if rank is not None and len(shape) != rank:
            wanted = f"{rank} axes"
        elif len(shape) < min_rank:
            wanted = f"at least {min_rank} axes"
        elif last is not None and shape[-1] != last:
            wanted = f"size {last} along the last axis, as in the first input"
        else:
            return
        single = len(shape) == (rank or min_rank) - 1
        raise self._misfit(
            "the input does not fit this layer",
            summary(inputs),
            wanted,
            "the first axis holds the examples: x[None] for a single one" if single else None,
        )

    def _misfit(
        self, problem: str, received: str, expected: str | None = None, hint: str | None = None
    ) -> ShapeError:
        """The error of inputs that this layer does not take."""
        return ShapeError(
            problem,
            op=self._label,
            argument="inputs",
            received=received,
            expected=expected,
            hint=hint,
        )

    @property
    def _label(self) -> str:
        """The layer as errors name it."""
        return f"{type(self).__name__} {self.name!r}"

    def _note(self, error: Exception) -> None:
        """Record in an error the innermost layer that raised it, and leave the users' frames."""
        name = unknown_argument(error)
        if name is not None:
            names = dict.fromkeys([*getattr(self, "_call_names", ()), "training"])
            taken = ", ".join(names)
            told = f"there is no argument {name!r}; it takes {taken}"
            error.args = (f"{self._label}: call: {told}",)
        hide_internal_frames(error)
        if not getattr(error, "__notes__", None):
            error.add_note(f"in layer {self.name!r} ({type(self).__name__})")

    # The tree ------------------------------------------------------------------------------

    @property
    def sublayers(self) -> list[BaseLayer]:
        """The layers that are attributes of this one, or in lists, tuples or dicts of it."""
        return [part for part in self._parts() if isinstance(part, BaseLayer)]

    @property
    def input(self) -> Any:
        """The symbolic tensors that the layer was last called on."""
        return self._end(0)

    @property
    def output(self) -> Any:
        """The symbolic tensors that the layer last made, to go on from in another model."""
        return self._end(1)

    def _end(self, which: int) -> Any:
        if not self._ends.held:
            raise ArgumentError(
                "the layer is in no model of symbolic tensors",
                op=self._label,
                hint="x = ef.nn.Input(shape), y = layer(x)",
            )
        return self._ends.held[which]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_ends": Untracked(())}  # copies belong to graphs of their own

    # Configuration ----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return self._as_it_is({"name": self.name} | super().get_config())

    def _as_it_is(self, config: dict[str, Any]) -> dict[str, Any]:
        """A configuration with later changes, and without the default policy."""
        now = {"name": self.name, "dtype": self.dtype_policy.name, "trainable": self._trainable}
        usual = {"dtype": "float32", "trainable": True}
        return config | {k: v for k, v in now.items() if k in config or v != usual.get(k)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A new layer made with the arguments in ``config``.

        ``name``, ``dtype`` and ``trainable`` are set afterwards where the constructor does not take
        them, as those of most users' classes.
        """
        parameters = inspect.signature(cls.__init__).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        later = {key for key in _OPTIONS if not takes_any and key not in parameters}
        made = super().from_config({k: v for k, v in config.items() if k not in later})
        for key in later & set(config):
            setattr(made, _OPTIONS[key], policy.get(config[key]) if key == "dtype" else config[key])
        return made

    def __repr__(self) -> str:
        shown = [
            f"{key}={value!r}"
            for key, value in self.get_config().items()
            if key not in ("name", "dtype", "trainable") and not isinstance(value, list | dict)
        ][:3]
        state = f", {self.count_params():,} parameters" if self.built else ""
        options = ", ".join(shown) or "no options"
        return printable(f"<{type(self).__name__} {self.name}: {options}{state}>")
