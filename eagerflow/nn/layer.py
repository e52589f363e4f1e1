"""Layer: a Module with a ``call``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, TypedDict

import numpy as np

from eagerflow import tree
from eagerflow.added import add_loss, losses_so_far
from eagerflow.convert import as_tensor
from eagerflow.devices import Kind
from eagerflow.dims import DimLike
from eagerflow.display import summary
from eagerflow.dtypes import DType, as_dtype, is_floating
from eagerflow.errors import ArgumentError, ShapeError, printable
from eagerflow.guard import call_with
from eagerflow.nn import constraints, initializers, policy, regularizers
from eagerflow.nn.arguments import Nest, require
from eagerflow.nn.configured import Untracked, snake_case, unique
from eagerflow.nn.layer_graph import call_layer
from eagerflow.nn.masks import give_masks, known_masks, masks_of, with_masks
from eagerflow.nn.module import Module
from eagerflow.nn.nests import any_symbolic, is_nest, only_numbers, shapes_of, symbols_of
from eagerflow.nn.symbols import infer
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.recorder import recording, scope, unrecorded
from eagerflow.tensor import Operators, Tensor
from eagerflow.variable import Variable

__all__ = ["Layer", "LayerOptions", "layer_classes", "weights_asked"]

layer_classes: dict[str, type[Layer]] = {}
"""Every class of layers, by the name under which configurations know it."""

_OPTIONS = {"name": "name", "dtype": "dtype_policy", "trainable": "trainable"}

_NAMED: Any = object()  # stands for inputs that are given by another name, as ``query=x``
_training = ContextVar("eagerflow_training", default=False)  # what the call around was told

weights_asked: ContextVar[Callable[[tuple[int, ...], str], None] | None] = ContextVar(
    "eagerflow_weights_asked", default=None
)
"""What is told shape and name of each weight before it is made, and may refuse it."""


def _names(function: Any) -> tuple[str, ...]:
    """The names of a method's arguments, without the first."""
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


class LayerOptions(TypedDict, total=False):
    """The arguments that every layer takes, for the signatures of its subclasses."""

    name: str | None
    dtype: Any
    trainable: bool
    activity_regularizer: Any


class Layer(Module):
    """A piece of a network: weights, made when the first input shows its shape, and a ``call``.

    A subclass gives ``call(self, inputs)`` and, if it has weights, ``build(self, input_shape)``
    with ``add_weight``. A ``call`` that takes ``training`` is told whether the model is being
    trained, one that takes ``mask`` gets the mask of its inputs. ``name`` defaults to the class's,
    numbered; ``dtype`` is that of weights and computation, or a policy such as
    ``"mixed_bfloat16"``; ``trainable=False`` freezes the weights; ``activity_regularizer`` adds to
    the loss what it makes of the outputs.

    >>> class Scale(ef.nn.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight((input_shape[-1],), "ones", name="factor")
    ...     def call(self, inputs):
    ...         return inputs * self.factor
    >>> layer = Scale(name="scale")
    >>> layer(ef.ones((2, 3))).shape, [w.name for w in layer.weights]
    ((2, 3), ['scale/factor'])
    """

    supports_masking = True
    _makes_masks = False
    _takes: frozenset[str] = frozenset()
    _call_names: tuple[str, ...] = ()
    _build_names: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        activity_regularizer: Any = None,
    ) -> None:
        known = name is None or isinstance(name, str)
        require(known, name, "not a name", type(self).__name__, "name", "a string")
        self.name = name or unique(snake_case(type(self).__name__))
        self.dtype_policy = policy.get(dtype)
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.built = False
        self.output_shape: Any = None
        self._trainable = bool(trainable)
        self._weights: list[Variable] = []
        self._regularized = Untracked([])  # pairs of a Variable and what it costs
        self._ends = Untracked(())  # inputs and outputs of the last call on symbolic tensors

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__module__.startswith("eagerflow.")
        layer_classes[cls.__name__ if own else f"{cls.__module__}>{cls.__qualname__}"] = cls
        cls._call_names, cls._build_names = _names(cls.call), _names(cls.build)
        cls._takes = frozenset(cls._call_names)
        cls._makes_masks = cls.compute_mask is not Layer.compute_mask

    @property
    def dtype(self) -> DType:
        """The dtype of the weights."""
        return self.dtype_policy.variable_dtype

    @property
    def compute_dtype(self) -> DType:
        """The dtype that inputs get, and that is computed in."""
        return self.dtype_policy.compute_dtype

    # Computing ---------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of this shape; called once, before the first ``call``."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the layer; every subclass has its own."""
        raise ArgumentError(
            "the class has no call", op=type(self).__name__, hint="def call(self, inputs): ..."
        )

    def compute_mask(self, inputs: Nest, previous_mask: Any) -> Any:
        """The mask of the outputs, from those of the inputs: one mask is passed on."""
        return previous_mask if isinstance(previous_mask, Operators) else None

    def __call__(
        self, inputs: Nest = _NAMED, *args: Any, training: bool | None = None, **kwargs: Any
    ) -> Any:
        plain = type(inputs) is Tensor and type(inputs._kind) is Kind
        if not plain or args or kwargs or known_masks or self._makes_masks or not self.built:
            return self._call_in_general(inputs, args, kwargs, training)
        return self._compute(self._as_input(inputs), (), kwargs, training)

    def _call_in_general(
        self, inputs: Nest, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool | None
    ) -> Any:
        """A call with masks, symbolic tensors, several arguments, or the first one."""
        if inputs is _NAMED:
            inputs = self._named_inputs(kwargs)
        if known_masks:
            kwargs = with_masks(self._call_names, (inputs, *args), kwargs)
        masks = kwargs.get("mask") if "mask" in self._takes else masks_of(inputs)
        inputs = self._as_input(inputs)
        if args or kwargs:
            args = tuple(map(self._as_argument, args))
            kwargs = {key: self._as_argument(value) for key, value in kwargs.items()}
        first = not self.built
        if first:
            unrecorded(f"weights of {self.name!r}", self._build_for, inputs, args, kwargs)
        if any_symbolic(inputs, *args, *kwargs.values()):
            outputs = self._call_on_symbols(inputs, args, kwargs, training)
        else:
            outputs = self._compute(inputs, args, kwargs, training)
            if self.supports_masking and (masks is not None or self._makes_masks):
                give_masks(outputs, self.compute_mask(inputs, masks))
        if first:
            self.output_shape = shapes_of(outputs)
        return outputs

    def _compute(self, inputs: Any, args: Any, kwargs: Any, training: bool | None) -> Any:
        before = _training.get()
        now = before if training is None else bool(training)
        if "training" in self._takes:
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
        if self.activity_regularizer is not None:
            for leaf in tree.flatten(outputs)[0]:
                self.add_loss(self.activity_regularizer(leaf) / max(leaf.shape[0], 1))
        return outputs

    def _call_on_symbols(self, inputs: Any, args: Any, kwargs: Any, training: bool | None) -> Any:
        told = {} if training is None else {"training": bool(training)}
        taken = told if "training" in self._takes else {}
        outputs = infer(self.call, (inputs, *args), kwargs | taken)
        outputs = call_layer(self, (inputs, *args), kwargs | told, outputs)
        self._remember_ends(inputs, outputs)
        return outputs

    def _remember_ends(self, inputs: Any, outputs: Any) -> None:
        self._ends = Untracked((inputs, outputs))

    def _as_input(self, inputs: Nest) -> Any:
        """Tensors of the layer's dtype; integers and bools stay what they are."""
        if type(inputs) is Tensor:
            wanted = self.dtype_policy.compute_dtype
            if inputs._kind.dtype is wanted or not is_floating(inputs.dtype):
                return inputs
            return inputs if inputs.dtype == wanted else inputs.astype(wanted)
        if isinstance(inputs, Operators | np.ndarray | int | float) or only_numbers(inputs):
            return self._as_input(as_tensor(inputs))
        if isinstance(inputs, list | tuple | dict):
            return tree.map_leaves(self._as_input, inputs)
        return inputs if inputs is None else self._as_input(as_tensor(inputs))

    def _as_argument(self, value: Any) -> Any:
        """What stands beside the inputs: tensors, also in nests, get the layer's dtype."""
        if isinstance(value, Operators | np.ndarray):
            return self._as_input(value)
        if isinstance(value, list | tuple | dict):
            return tree.map_leaves(self._as_argument, value)
        return value

    def value(self, weight: Variable | None) -> Any:
        """The value of a weight in the dtype that is computed in; None stays None."""
        if weight is None:
            return None
        found = weight.value
        mixed = self.dtype_policy.mixed and is_floating(found.dtype)
        return found.astype(self.dtype_policy.compute_dtype) if mixed else found

    def compute_output_shape(self, *input_shape: Any) -> Any:
        """The shape of the outputs for inputs of this shape, in which None is any size.

        >>> ef.nn.Dense(3).compute_output_shape((None, 4))
        (None, 3)
        """
        given = [symbols_of(shape, self.compute_dtype) for shape in input_shape]
        return shapes_of(self.compute_output_spec(*given))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Symbolic tensors like the outputs for such inputs; weights are made, nothing computed."""
        if not self.built:
            unrecorded(f"weights of {self.name!r}", self._build_for, args[0], args[1:], kwargs)
        return infer(self.call, args, kwargs)

    def _named_inputs(self, kwargs: dict[str, Any]) -> Any:
        """What is given by the name that ``call`` has for the inputs, taken out of ``kwargs``."""
        first = self._call_names[0] if self._call_names else "inputs"
        if first not in kwargs:
            raise TypeError(f"{type(self).__name__}() misses its argument {first!r}")
        return kwargs.pop(first)

    def _build_for(self, inputs: Any, args: Any, kwargs: Any) -> None:
        shapes = shapes_of(inputs)
        try:
            if len(self._build_names) > 1:
                self.build(**self._named_shapes(inputs, args, kwargs))
            else:
                self.build(shapes)
        except (AttributeError, IndexError, KeyError, TypeError, ShapeError) as error:
            ours = type(self).build.__module__.startswith(f"{__package__}.")
            if not ours or not is_nest(shapes):
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

    def _named_shapes(self, inputs: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """The shapes that ``build`` asks for: ``query_shape`` is that of the argument ``query``."""
        given = dict(zip(self._call_names, (inputs, *args), strict=False)) | kwargs
        named = {f"{name}_shape": shapes_of(value) for name, value in given.items()}
        return {name: named[name] for name in self._build_names if named.get(name) is not None}

    # Weights and losses --------------------------------------------------------------------

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
        ``ef.nn.initializers``; ``regularizer`` makes of it a part of the loss, and ``constraint``
        is applied to it after each step of an optimizer. Raises ArgumentError for an unknown
        initializer, ShapeError for sizes that are not known.
        """
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
        variable = Variable(values, label, trainable=trainable)
        self._weights.append(variable)
        found = regularizers.get(regularizer)
        if found is not None:
            self._regularized.held.append((variable, found))
        variable.constraint = constraints.get(constraint)
        return variable

    def add_loss(self, loss: Any) -> None:
        """Add a number to the loss that training makes small, from within ``call``."""
        add_loss(loss)

    @property
    def losses(self) -> list[Any]:
        """What the regularizers of all weights give now, and what the call under way has added.

        ``Model.fit`` adds these to the loss; a step of one's own does so within
        ``ef.nn.added_losses``.
        """
        own = [
            regularizer(variable)
            for layer in self.walk()
            if isinstance(layer, Layer)
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

    # The tree ------------------------------------------------------------------------------

    @property
    def sublayers(self) -> list[Layer]:
        """The layers that are attributes of this one, or in lists, tuples or dicts of it."""
        return [part for part in self._parts() if isinstance(part, Layer)]

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
        return vars(self) | {"_ends": Untracked(())}  # copies stand in graphs of their own

    # Configuration ----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return self._as_it_is({"name": self.name} | super().get_config())

    def _as_it_is(self, config: dict[str, Any]) -> dict[str, Any]:
        """A configuration with what has changed since, or was left to the usual policy."""
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
        state = f", {self.count_params()} parameters" if self.built else ""
        options = ", ".join(shown) or "no options"
        return printable(f"<{type(self).__name__} {self.name}: {options}{state}>")
