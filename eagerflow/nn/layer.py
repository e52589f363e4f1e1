"""Layer: a named tree of Variables with a ``call``.

Sublayers and weights are found by walking the attributes (also through lists, tuples and
dicts) when they are asked for, so nothing has to be registered and plain attributes stay plain.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, TypedDict

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.dims import DimLike
from eagerflow.display import summary
from eagerflow.dtypes import as_dtype, is_floating
from eagerflow.errors import ArgumentError, ShapeError, printable
from eagerflow.guard import call_with
from eagerflow.nn import initializers
from eagerflow.nn.arguments import Nest, TensorLike, require
from eagerflow.nn.configured import Configured, snake_case
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.recorder import recording, scope, unrecorded
from eagerflow.tensor import Operators, Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Layer", "LayerOptions", "layer_classes", "only_numbers"]

layer_classes: dict[str, type[Layer]] = {}
"""Every class of layers, by the name under which configurations know it."""

_counters: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

_training = ContextVar("eagerflow_training", default=False)  # what the call around was told


def _unique(name: str) -> str:
    number = next(_counters[name])
    return f"{name}_{number}" if number else name


def _is_nest(shapes: Any) -> bool:
    """Whether these are shapes of several tensors."""
    return not isinstance(shapes, tuple) or not all(isinstance(size, int) for size in shapes)


class LayerOptions(TypedDict, total=False):
    """The arguments that every layer takes, for the signatures of its subclasses."""

    name: str | None
    dtype: DTypeLike
    trainable: bool


class Layer(Configured):
    """A piece of a network: weights, made when the first input shows its shape, and a ``call``.

    A subclass gives ``call(self, inputs)`` and, if it has weights, ``build(self, input_shape)``
    with ``add_weight``. A ``call`` that takes ``training`` is told whether the model is being
    trained. ``name`` defaults to the class's, numbered; ``dtype`` is that of weights and
    computation; ``trainable=False`` freezes the weights.

    >>> class Scale(ef.nn.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight((input_shape[-1],), "ones", name="factor")
    ...     def call(self, inputs):
    ...         return inputs * self.factor
    >>> layer = Scale(name="scale")
    >>> layer(ef.ones((2, 3))).shape, [w.name for w in layer.weights]
    ((2, 3), ['scale/factor'])
    """

    _takes_training = False

    def __init__(
        self, *, name: str | None = None, dtype: DTypeLike = "float32", trainable: bool = True
    ) -> None:
        known = name is None or isinstance(name, str)
        require(known, name, "not a name", type(self).__name__, "name", "a string")
        self.name = name or _unique(snake_case(type(self).__name__))
        self.dtype = as_dtype(dtype)
        self.built = False
        self.output_shape: Any = None
        self._trainable = bool(trainable)
        self._weights: list[Variable] = []
        self._frozen: list[Variable] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__module__.startswith("eagerflow.")
        layer_classes[cls.__name__ if own else f"{cls.__module__}>{cls.__qualname__}"] = cls
        code = getattr(cls.call, "__code__", None)
        if code is not None:
            arguments = code.co_argcount + code.co_kwonlyargcount
            cls._takes_training = "training" in code.co_varnames[:arguments]

    # Computing ---------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of this shape; called once, before the first ``call``."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the layer; every subclass has its own."""
        raise ArgumentError(
            "the class has no call", op=type(self).__name__, hint="def call(self, inputs): ..."
        )

    def __call__(
        self, inputs: Nest, *args: Any, training: bool | None = None, **kwargs: Any
    ) -> Any:
        inputs = self._as_input(inputs)
        first = not self.built
        if first:
            unrecorded(f"weights of {self.name!r}", self._build_for, _shapes(inputs))
        before = _training.get()
        now = before if training is None else bool(training)
        if self._takes_training:
            kwargs["training"] = now
        call = self.call if now is before else partial(call_with, _training, now, self.call)
        try:
            if recording():
                with scope(self.name):
                    outputs = call(inputs, *args, **kwargs)
            else:
                outputs = call(inputs, *args, **kwargs)
        except Exception as error:
            if not getattr(error, "__notes__", None):
                error.add_note(f"in layer {self.name!r} ({type(self).__name__})")
            raise
        if first:
            self.output_shape = _shapes(outputs)
        return outputs

    def _as_input(self, inputs: Nest) -> Any:
        """Tensors of the layer's dtype; integers and bools stay what they are."""
        if type(inputs) is Tensor:
            if inputs._kind.dtype is self.dtype or not is_floating(inputs.dtype):
                return inputs
            return inputs if inputs.dtype == self.dtype else inputs.astype(self.dtype)
        if isinstance(inputs, Operators | np.ndarray | int | float) or only_numbers(inputs):
            return self._as_input(as_tensor(inputs))
        if isinstance(inputs, list | tuple | dict):
            return tree.map_leaves(self._as_input, inputs)
        return inputs if inputs is None else self._as_input(as_tensor(inputs))

    def _build_for(self, shapes: Any) -> None:
        try:
            self.build(shapes)
        except (AttributeError, IndexError, KeyError, TypeError, ShapeError) as error:
            ours = type(self).build.__module__.startswith(f"{__package__}.")
            if not ours or not _is_nest(shapes):
                raise
            raise self._misfit(
                "the layer takes one tensor",
                f"a {type(shapes).__name__} of shapes {shapes}",
                hint="take the parts in the model's call; batches are pairs (x, y), so "
                "(batch['x'], batch['y']) of a dict",
            ) from error
        self.built = True
        if not self._trainable:
            self.trainable = False

    def add_weight(
        self,
        shape: Sizes,
        initializer: Any = "glorot_uniform",
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike = None,
    ) -> Variable:
        """A new Variable of this layer.

        ``shape`` is a tuple of sizes, ``initializer`` a name or an object of
        ``ef.nn.initializers``. Raises ArgumentError for an unknown initializer, ShapeError
        for sizes that are not known.
        """
        if any(not isinstance(size, int) for size in shape):
            raise ShapeError(
                f"the shape {tuple(shape)} of a weight is not known",
                op=self.name,
                argument=name,
                expected="integers",
            )
        values = initializers.get(initializer)(tuple(shape), as_dtype(dtype or self.dtype))
        label = f"{self.name}/{name or f'weight_{len(self._weights)}'}"
        variable = Variable(values, label, trainable=trainable)
        self._weights.append(variable)
        return variable

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

    # The tree ------------------------------------------------------------------------------

    def _parts(self) -> list[Any]:
        """The Variables and layers that this layer holds itself, each once."""
        return tree.instances(vars(self), (Layer, Variable))

    @property
    def sublayers(self) -> list[Layer]:
        """The layers that are attributes of this one, or in lists, tuples or dicts of it."""
        return [part for part in self._parts() if isinstance(part, Layer)]

    def _below(self) -> tuple[dict[int, Layer], dict[int, Variable]]:
        """This layer and those below it, parents first, and their Variables; each once."""
        layers: dict[int, Layer] = {}
        variables: dict[int, Variable] = {}
        waiting = [self]
        while waiting:
            layer = waiting.pop()
            if id(layer) not in layers:
                layers[id(layer)] = layer
                parts = layer._parts()
                variables |= {id(part): part for part in parts if isinstance(part, Variable)}
                waiting += [part for part in reversed(parts) if isinstance(part, Layer)]
        return layers, variables

    def walk(self) -> Iterator[Layer]:
        """This layer and all below it, parents first, each once."""
        return iter(self._below()[0].values())

    @property
    def weights(self) -> list[Variable]:
        """All Variables of this layer and of those below it."""
        return list(self._below()[1].values())

    @property
    def trainable_weights(self) -> list[Variable]:
        """The Variables that training changes."""
        return [w for w in self.weights if w.trainable]

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The Variables that training leaves to the layers: running means, frozen weights."""
        return [w for w in self.weights if not w.trainable]

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights; setting it freezes or frees all layers below."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self.walk():
            layer._trainable = bool(value)
            if value:
                for variable in layer._frozen:
                    variable.trainable = True
                layer._frozen = []
            else:
                own = [p for p in layer._parts() if isinstance(p, Variable) and p.trainable]
                layer._frozen += own
                for variable in own:
                    variable.trainable = False

    def count_params(self) -> int:
        """Number of elements of all weights."""
        return sum(w.size for w in self.weights)

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """The values of all weights as NumPy arrays of their own."""
        return [np.array(w.numpy()) for w in self.weights]

    def set_weights(self, values: Iterable[TensorLike]) -> None:
        """Give all weights new values, in the order of ``weights``; ShapeError if they misfit."""
        values = list(values)
        own = self.weights
        if len(values) != len(own):
            raise ShapeError(
                f"{len(values)} arrays for {len(own)} weights",
                op=self.name,
                argument="values",
                expected=", ".join(f"{w.name}{w.shape}" for w in own) or "none: build it first",
            )
        for variable, value in zip(own, values, strict=True):
            array = as_tensor(value, copy=True)
            if array.shape != variable.shape:
                raise ShapeError(
                    "the value has another shape than the weight",
                    op=self.name,
                    argument=variable.name,
                    received=summary(array),
                    expected=summary(variable),
                )
        assign_together(dict(zip(own, values, strict=True)))

    # Configuration ----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {"name": self.name} | config | {"name": self.name}

    def __repr__(self) -> str:
        shown = [
            f"{key}={value!r}"
            for key, value in self.get_config().items()
            if key not in ("name", "dtype", "trainable") and not isinstance(value, list | dict)
        ][:3]
        state = f", {self.count_params()} parameters" if self.built else ""
        options = ", ".join(shown) or "no options"
        return printable(f"<{type(self).__name__} {self.name}: {options}{state}>")


def only_numbers(inputs: Nest) -> bool:
    """Whether a nest holds nothing but Python numbers, which makes it one array."""
    if isinstance(inputs, list | tuple):
        return bool(inputs) and all(only_numbers(item) for item in inputs)
    return isinstance(inputs, int | float)


def _shapes(nest: Nest) -> Any:
    if isinstance(nest, Operators):
        return nest.shape
    return tree.map_leaves(lambda x: getattr(x, "shape", None), nest)
