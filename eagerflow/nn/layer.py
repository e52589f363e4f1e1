"""Layer: built from the shape of its first inputs, and called."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import unwrap
from typing import Any, TypedDict
from weakref import WeakValueDictionary

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.devices import Kind
from eagerflow.dtypes import is_floating
from eagerflow.errors import ArgumentError, EagerflowError, ShapeError
from eagerflow.guard import call_with
from eagerflow.handlers import raised_here
from eagerflow.nn.argument_texts import documented
from eagerflow.nn.arguments import Nest
from eagerflow.nn.base_layer import BaseLayer, is_ours
from eagerflow.nn.configured import Untracked
from eagerflow.nn.hooks import Hook, add_hook
from eagerflow.nn.layer_graph import call_layer
from eagerflow.nn.masks import give_masks, known_masks, masks_of, with_masks
from eagerflow.nn.nests import any_symbolic, is_nest, only_numbers, shapes_of, symbols_of
from eagerflow.nn.symbols import infer
from eagerflow.recorder import recording, unrecorded
from eagerflow.scopes import scope
from eagerflow.tensor import Operators, Tensor

__all__ = ["Layer", "LayerOptions", "layer_classes"]

layer_classes: WeakValueDictionary[str, type[Layer]] = WeakValueDictionary()
"""Every class of layers that is alive, by the name under which configurations know it."""

_NAMED: Any = object()  # placeholder for inputs passed by keyword, such as ``query=x``
_training = ContextVar("eagerflow_training", default=False)
"""The argument ``training`` of the enclosing call."""


def _marking(build: Callable[..., None]) -> Callable[..., None]:
    """A ``build`` that marks the layer as built, however it is called."""

    @wraps(build)
    def built(self: Layer, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        self._mark_built()

    return built


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


class Layer(BaseLayer):
    """A piece of a network: weights, made when the first input shows its shape, and a ``call``.

    A subclass defines ``call(self, inputs)`` and, if it has weights, ``build(self, input_shape)``
    with ``add_weight``. A ``call`` with the parameter ``training`` receives whether the model is
    being trained, one with ``mask`` the mask of its inputs. ``name`` defaults to the class's,
    numbered; ``dtype`` is that of weights and computation, or a policy such as
    ``"mixed_bfloat16"``; ``trainable=False`` freezes the weights; ``activity_regularizer`` adds a
    function of the outputs to the loss.

    >>> class Scale(ef.nn.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight((input_shape[-1],), "ones", name="factor")
    ...     def call(self, inputs):
    ...         return inputs * self.factor
    >>> layer = Scale(name="scale")
    >>> layer(ef.ones((2, 3))).shape, [w.name for w in layer.weights]
    ((2, 3), ['scale/factor'])
    """

    supports_masking = False
    _documented = staticmethod(documented)
    _makes_masks = False
    _takes: frozenset[str] = frozenset()
    _call_names: tuple[str, ...] = ()
    _build_names: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = is_ours(cls)
        layer_classes[cls.__name__ if own else f"{cls.__module__}>{cls.__qualname__}"] = cls
        if "build" in vars(cls):
            cls.build = _marking(cls.build)  # type: ignore[method-assign]
        cls._call_names, cls._build_names = _names(cls.call), _names(unwrap(cls.build))
        cls._takes = frozenset(cls._call_names)
        cls._makes_masks = cls.compute_mask is not Layer.compute_mask
        if not any("supports_masking" in vars(base) for base in cls.__mro__ if base is not Layer):
            cls.supports_masking = own or cls._makes_masks  # by default, built-in layers do

    # Computing ---------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of this shape; called once, before the first ``call``."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the layer; every subclass has its own."""
        raise ArgumentError(
            "the class does not define call",
            op=type(self).__name__,
            hint="rename forward to call"
            if hasattr(self, "forward")
            else "def call(self, inputs): ...",
        )

    def add_hook(
        self,
        before: Callable[..., Any] | None = None,
        after: Callable[..., Any] | None = None,
    ) -> Hook:
        """Call functions before and after ``call``; ``remove`` of the result ends that.

        ``before(layer, args)`` gets the tuple of positional arguments, as ``call`` takes them, and
        returns None, or new ones: a tuple, or the only one. ``after(layer, args, outputs)`` returns
        None, or the new outputs. Hooks run in the order in which they were added; in captured code,
        such as ``fit`` and ``predict``, while it is traced, and a change of hooks is traced again.
        The result is also a context: ``with layer.add_hook(...)``. Copies and pickles have the
        hooks, ``clone_model`` and files have not. Raises ArgumentError for other objects.

        >>> layer = ef.nn.Dense(2)
        >>> shapes = []
        >>> with layer.add_hook(after=lambda layer, args, outputs: shapes.append(outputs.shape)):
        ...     y = layer(ef.ones((3, 4)))
        >>> shapes
        [(3, 2)]
        """
        return add_hook(self, before, after)

    def compute_mask(self, inputs: Nest, previous_mask: Any) -> Any:
        """The mask of the outputs, from those of the inputs: one mask is passed on."""
        return previous_mask if isinstance(previous_mask, Operators) else None

    def __call__(
        self, inputs: Nest = _NAMED, *args: Any, training: bool | None = None, **kwargs: Any
    ) -> Any:
        one = type(inputs) is Tensor and type(inputs._kind) is Kind and self.built
        if not one or args or kwargs or known_masks or self._makes_masks:
            return self._call_in_general(inputs, args, kwargs, training)
        if inputs._kind.dtype is not self.dtype_policy.compute_dtype:
            inputs = self._as_input(inputs)
        if training is not None or self.activity_regularizer is not None or recording():
            return self._compute(inputs, (), kwargs, training)
        try:  # the fast path of most eager calls
            if "training" in self._takes:
                return self.call(inputs, training=_training.get())
            return self.call(inputs)
        except raised_here(Exception) as error:
            self._note(error)
            raise

    def _call_in_general(
        self, inputs: Nest, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool | None
    ) -> Any:
        """A call with masks, symbolic tensors, several arguments, or the first one."""
        if not self.built:
            self._check_constructor()
        if inputs is _NAMED:
            inputs = self._named_inputs(kwargs)
        if known_masks:
            kwargs = with_masks(self._call_names, (inputs, *args), kwargs)
        masks = kwargs.get("mask") if "mask" in self._takes else masks_of(inputs)
        try:
            inputs = self._as_input(inputs)
            args = tuple([self._as_argument(x) for x in args])
            kwargs = {key: self._as_argument(value) for key, value in kwargs.items()}
        except EagerflowError as error:
            self._note(error)
            raise
        first = not self.built
        if first:
            unrecorded(f"weights of {self.name!r}", self._build_for, inputs, args, kwargs)
        if any_symbolic(inputs, *args, *kwargs.values()):
            outputs = self._call_on_symbols(inputs, args, kwargs, training)
        else:
            outputs = self._compute(inputs, args, kwargs, training)
            if self._hands_on(masks):
                give_masks(outputs, self.compute_mask(inputs, masks))
        if first:
            if masks is not None and not self.supports_masking and masks_of(outputs) is None:
                self._tell_of_lost_mask()
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
        except raised_here(Exception) as error:
            self._note(error)
            raise
        if self.activity_regularizer is not None:
            for leaf in tree.flatten(outputs)[0]:
                count = leaf.shape[0]
                examples = max(count, 1) if isinstance(count, int) else count
                self.add_loss(self.activity_regularizer(leaf) / examples)
        return outputs

    def _call_on_symbols(self, inputs: Any, args: Any, kwargs: Any, training: bool | None) -> Any:
        told = {} if training is None else {"training": bool(training)}
        taken = told if "training" in self._takes else {}
        given = with_masks(self._call_names, (inputs, *args), kwargs) | taken
        masks = given.get("mask") if "mask" in self._takes else masks_of(inputs)
        outputs = infer(self.call, (inputs, *args), given)
        after = masks_of(outputs)
        if self._hands_on(masks):
            after = infer(self.compute_mask, (inputs, masks), {})
        outputs = call_layer(self, (inputs, *args), kwargs | told, outputs)
        give_masks(outputs, after)
        self._remember_ends(inputs, outputs)
        return outputs

    def _hands_on(self, masks: Any) -> bool:
        """Whether the outputs have masks."""
        return self.supports_masking and (masks is not None or self._makes_masks)

    def _tell_of_lost_mask(self) -> None:
        if not is_ours(type(self)) and "mask" not in self._takes:
            warnings.warn(
                f"{self._label} was given a mask and passes none on: supports_masking = True in "
                "the class does so, or a compute_mask of its own",
                stacklevel=4,
            )

    def _remember_ends(self, inputs: Any, outputs: Any) -> None:
        self._ends = Untracked((inputs, outputs))

    def _as_input(self, inputs: Nest) -> Any:
        """Tensors of the layer's dtype; integers and bools are unchanged."""
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
        """Arguments besides the inputs: tensors, also in nests, are cast to the layer's dtype."""
        if isinstance(value, Operators | np.ndarray):
            return self._as_input(value)
        if isinstance(value, list | tuple | dict):
            return tree.map_leaves(self._as_argument, value)
        return value

    def compute_output_shape(self, *input_shape: Any) -> Any:
        """The shape of the outputs for inputs of this shape, in which None is any size.

        >>> ef.nn.Dense(3).compute_output_shape((None, 4))
        (None, 3)
        """
        given = [symbols_of(shape, self.compute_dtype) for shape in input_shape]
        return shapes_of(self.compute_output_spec(*given))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Symbolic tensors for the outputs on such inputs; creates weights, computes nothing."""
        if not self.built:
            unrecorded(f"weights of {self.name!r}", self._build_for, args[0], args[1:], kwargs)
        return infer(self.call, args, kwargs)

    def _named_inputs(self, kwargs: dict[str, Any]) -> Any:
        """The inputs passed by the name of ``call``'s first parameter, removed from ``kwargs``."""
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
        except raised_here(Exception) as error:
            unlike = isinstance(error, AttributeError | LookupError | TypeError | ShapeError)
            if not (is_ours(type(self).build) and unlike and is_nest(shapes)):
                self._note(error)
                raise
            raise self._several(shapes) from error
        self._mark_built()

    def _several(self, shapes: Any) -> ShapeError:
        """The error of inputs that are a nest, where the layer takes one tensor."""
        return self._misfit(
            "the layer takes one tensor",
            f"a {type(shapes).__name__} of shapes {shapes}",
            hint="fit(x, y) for inputs and targets, in batches (x, y), as in (batch['x'], "
            "batch['y']) of a dict; or take the parts in the model's call",
        )

    def _named_shapes(self, inputs: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """The shapes for ``build``: its ``query_shape`` is that of the argument ``query``."""
        given = dict(zip(self._call_names, (inputs, *args), strict=False)) | kwargs
        named = {f"{name}_shape": shapes_of(value) for name, value in given.items()}
        return {name: named[name] for name in self._build_names if named.get(name) is not None}
