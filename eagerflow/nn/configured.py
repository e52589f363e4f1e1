"""Objects that record their constructor arguments, and can be reconstructed from them.

A class writes the signature of its constructor, and ``arguments`` supplies the body:

    class Dropout(Layer):
        @arguments
        def __init__(self, rate: Rate, **options: Unpack[LayerOptions]) -> None: ...

The attributes, the configuration and the call of the base's constructor follow from it. A class
with an ordinary constructor has the same configuration: the arguments that it was called with.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial, wraps
from inspect import Parameter, Signature
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from eagerflow.errors import ArgumentError, KeywordError, short_repr
from eagerflow.guard import call_with
from eagerflow.handlers import raised_here
from eagerflow.op import LateSignature

__all__ = [
    "Untracked",
    "Configured",
    "Unsaved",
    "arguments",
    "find",
    "from_config",
    "named_classes",
    "plain",
    "snake_case",
    "unique",
    "with_custom_objects",
]


def snake_case(name: str) -> str:
    """``Conv2D`` as ``conv2d``, ``MaxPooling2D`` as ``max_pooling2d``."""
    spaced = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", spaced).lower()


_counters: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def unique(name: str) -> str:
    """``name``, ``name_1``, ``name_2`` ... in turn."""
    number = next(_counters[name])
    return f"{name}_{number}" if number else name


class Untracked:
    """Wraps an attribute that is not a part of the object: it is not searched for layers or
    weights.

    >>> from eagerflow.nn.configured import Untracked
    >>> Untracked([1, 2]).held
    [1, 2]
    """

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


# Arguments of constructors --------------------------------------------------------------------


Init = TypeVar("Init", bound=Callable[..., None])
_VAR_KEYWORD, _VAR_POSITIONAL = Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL


def arguments(init: Init) -> Init:
    """Decorator of ``__init__``: the arguments become attributes, checked by their types.

    First the constructor of the base is called with the arguments that it takes; ``**options``
    are those that are not listed here. Each other argument becomes the attribute of its name. Its
    type may carry a check, as in ``Annotated[int, count]``: a function of the value that returns
    the attribute, or raises ArgumentError, which then names the object and the argument; None is
    not checked if the type is ``Count | None``. Arguments with the name of a read-only property
    are left to the body, which runs last, with the original arguments.

    >>> from typing import Annotated, Unpack
    >>> from eagerflow.nn.configured import arguments
    >>> from eagerflow.nn.layer import LayerOptions
    >>> class Power(ef.nn.Layer):
    ...     @arguments
    ...     def __init__(
    ...         self, exponent: Annotated[float, float] = 2.0, **options: Unpack[LayerOptions]
    ...     ) -> None: ...
    ...     def call(self, inputs):
    ...         return inputs**self.exponent
    >>> Power(3, name="cube").get_config()["exponent"], Power(3).exponent
    (3, 3.0)
    """
    decorated: Any = _Decorated(init)
    return decorated


class _Decorated:
    """A constructor before the definition of its class, which completes it with the base."""

    def __init__(self, init: Callable[..., None]) -> None:
        self.init = init

    def __set_name__(self, cls: type, name: str) -> None:
        setattr(cls, name, _constructor(cls, self.init))


class _Facts(NamedTuple):
    """The parameters of a constructor, and their handling."""

    signature: Signature
    own: list[str]
    """The arguments that the base's constructor does not take."""
    checks: dict[str, Any]
    """The attributes that it sets, with the check of each or None."""


def _facts(cls: Any, init: Callable[..., None]) -> _Facts:
    """The facts of the constructor that ``arguments`` makes from the ``__init__`` of ``cls``."""
    written = inspect.signature(init)
    stated = {p.name: p for p in written.parameters.values() if p.kind is not _VAR_KEYWORD}
    inherited = inspect.signature(super(cls, cls).__init__).parameters
    takes_options = len(stated) < len(written.parameters)
    options = [p for name, p in _others(inherited) if takes_options and name not in stated]
    parameters = sorted([*stated.values(), *options], key=lambda p: p.kind)  # by position first
    own = [name for name, _ in _others(stated) if name not in inherited]
    plain = [name for name in own if getattr(getattr(cls, name, None), "fset", True)]
    return _Facts(written.replace(parameters=parameters), own, _checks(init, plain))


def _constructor(cls: Any, init: Callable[..., None]) -> Callable[..., None]:
    """The constructor that ``arguments`` makes from the ``__init__`` of ``cls``."""
    facts = cache(partial(_facts, cls, init))  # on first use: classes are many

    @wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        signature, own, checks = facts()
        try:
            given = _by_name(signature, self, *args, **kwargs)
        except raised_here(TypeError) as error:
            raise _refusal(type(self).__name__, signature, kwargs, error) from None
        super(cls, self).__init__(**{key: given[key] for key in given if key not in own})
        for name, check in checks.items():
            try:
                setattr(self, name, given[name] if check is None else check(given[name]))
            except ArgumentError as error:
                if error.op is None:
                    error.op, error.argument = self._label, name
                raise
        init(self, **given)
        plain_names = [name for name in checks if not hasattr(type(self), name)]  # no properties
        self._made.held.update([(name, getattr(self, name)) for name in plain_names])

    signature = LateSignature(lambda: facts().signature)
    construct.__signature__ = signature  # type: ignore[attr-defined]
    construct.sets_attributes = True  # type: ignore[attr-defined]
    return construct


_OLD_NAMES = {
    "batch_input_shape": "ef.nn.Input(batch_shape=...) at the head of the model",
    "batch_first": "nothing: the first axis holds the examples",
    "bias": "use_bias",
    "betas": "beta_1=..., beta_2=...",
    "bidirectional": "ef.nn.Bidirectional(layer)",
    "dilation": "dilation_rate",
    "dim": "axis",
    "embedding_dim": "output_dim",
    "eps": "epsilon",
    "hidden_size": "units",
    "in_channels": "nothing: the first input shows it",
    "in_features": "nothing: the first input shows it",
    "inplace": "nothing: tensors do not change",
    "input_dim": "ef.nn.Input((features,)) at the head of the model",
    "num_embeddings": "input_dim",
    "num_features": "nothing: the first input shows it",
    "num_layers": "several layers, one after the other",
    "out_channels": "filters",
    "out_features": "units",
    "p": "rate",
    "params": "optimizer.apply(gradients, variables)",
    "stride": "strides",
    "input_shape": "ef.nn.Input(shape) at the head of the model",
    "lr": "learning_rate",
    "decay": "a schedule of ef.nn.schedules as learning_rate",
}
"""Arguments of earlier versions of Keras, and of PyTorch."""


def _refusal(
    cls: str, signature: Signature, given: Mapping[str, Any], error: TypeError
) -> TypeError:
    """The error of arguments that a constructor does not take."""
    known = [name for name, _ in _others(signature.parameters)]
    unknown = [key for key in given if key not in known]
    if not unknown:
        return TypeError(f"{cls}() {error}")
    close = difflib.get_close_matches(unknown[0], known, 1)
    return KeywordError(
        f"there is no argument {unknown[0]!r}",
        op=cls,
        expected="one of " + ", ".join(known),
        hint=_OLD_NAMES.get(unknown[0]) or (close[0] if close else None),
    )


def _others(parameters: Mapping[str, Parameter]) -> Iterable[tuple[str, Parameter]]:
    """Parameters of a method and their names, without ``self``."""
    return list(parameters.items())[1:]


def _checks(init: Callable[..., None], names: Iterable[str]) -> dict[str, Any]:
    """The check of each argument of these names, or None, from the type hints."""
    hints = get_type_hints(init, include_extras=True)
    return {name: _check_in(hints.get(name)) for name in names}


def _check_in(hint: Any) -> Callable[[Any], Any] | None:
    if get_origin(hint) is Annotated:
        return next(filter(callable, hint.__metadata__), None)
    parts = get_args(hint)
    check = next(filter(None, [_check_in(x) for x in parts]), None) if NoneType in parts else None
    return check and (lambda value: None if value is None else check(value))


def _by_name(signature: Signature, made: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a constructor, with defaults; TypeError if they do not match."""
    bound = signature.bind(made, *args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    del given[next(iter(given))]  # the object itself
    for name, parameter in signature.parameters.items():
        kind = parameter.kind
        if kind is _VAR_KEYWORD:
            given |= given.pop(name, {})
        elif kind is _VAR_POSITIONAL:
            given.pop(name, None)
    return given


class _ClassSignature:
    """The signature that ``inspect.signature`` and ``help`` show for a class."""

    def __get__(self, made: Any, cls: Any) -> Signature:
        if made is not None:
            raise AttributeError("__signature__")  # of an object it is that of its __call__
        whole = inspect.signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class Configured:
    """Base of objects that can be reconstructed from their configuration.

    The arguments of the constructor are the configuration; nothing has to be written twice. An
    attribute with the name of an argument that is set afterwards counts instead of it, where
    ``arguments`` has made the constructor.
    """

    __signature__ = _ClassSignature()
    _is_leaf = True  # of nests, also where a subclass is a dataclass
    _config: Untracked
    _made: Untracked
    """The attributes with the names of arguments, as the constructors have left them."""
    _renewed: ClassVar[frozenset[str]] = frozenset()
    """Arguments with an alternative name."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_made", Untracked({}))
        try:
            config = _by_name(inspect.signature(cls.__init__), made, *args, **kwargs)
        except raised_here(TypeError):
            return made  # __init__ is about to raise the same
        object.__setattr__(made, "_config", Untracked(config))
        return made

    def __init__(self) -> None:
        """No arguments, unless a class has some."""

    @property
    def _label(self) -> str:
        """The object as errors name it."""
        return getattr(self, "name", None) or type(self).__name__

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, in a form that JSON can hold."""
        own, changed = vars(self), {}
        if hasattr(type(self).__init__, "sets_attributes"):
            changed = {
                name: own[name]
                for name, before in self._made.held.items()
                if name in own and name not in self._renewed and not _is_same(own[name], before)
            }
        return {name: plain(changed.get(name, x)) for name, x in self._config.held.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A new object made with the arguments in ``config``."""
        make: Callable[..., Self] = cls
        return make(**config)


def _is_same(now: Any, before: Any) -> bool:
    """Whether an attribute is unchanged; other arrays and objects count as changed."""
    plain_value = isinstance(now, int | float | str | tuple) and type(now) is type(before)
    return now is before or (plain_value and now == before)


class Unsaved(str):
    """The text that represents an unserializable value in a configuration, for display."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """A value in JSON-compatible form, or its text as Unsaved if it has none."""
    if isinstance(value, Configured):
        return {"class_name": type(value).__name__, "config": value.get_config()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array, a tensor, or a number of NumPy's
        return value.tolist()
    if isinstance(value, np.dtype):
        return value.name
    if callable(value) and getattr(value, "__name__", "").isidentifier():
        # An op may have defaults other than those of its public name.
        return f"ef.{value.__name__}" if hasattr(value, "op") else value.__name__
    return value if isinstance(value, int | float | str | None) else Unsaved(short_repr(value))


# From names and configurations to objects -----------------------------------------------------


def named_classes(base: type, **aliases: type) -> dict[str, type]:
    """The public classes made from ``base`` in its own module, by their names in snake case.

    >>> from eagerflow.nn.configured import named_classes
    >>> named_classes(ef.nn.initializers.Ones)
    {}
    """
    found: dict[str, type] = {}
    classes: list[type] = base.__subclasses__()
    for cls in classes:
        if cls.__module__ == base.__module__:
            if not cls.__name__.startswith("_"):
                found[snake_case(cls.__name__)] = cls
            found |= named_classes(cls)
    return found | aliases


_NONE: Mapping[str, Any] = MappingProxyType({})
_custom = ContextVar("eagerflow_custom_objects", default=_NONE)


def with_custom_objects(objects: Mapping[str, Any], f: Callable[..., Any], *args: Any) -> Any:
    """``f(*args)`` with these classes and functions available to ``find`` by name."""
    return call_with(_custom, {**_custom.get(), **objects}, f, *args)


def find(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    """The entry called ``name``; ArgumentError, with a suggestion, if there is none.

    Classes of users are known by their modules too, as ``module>Name``; the bare name finds them
    among the custom objects.
    """
    custom, bare = _custom.get(), name.rpartition(">")[2]
    for key in (name, bare):
        if key in custom:
            return custom[key]
    for key in (name, snake_case(name), name.removeprefix("ef.")):
        if key in table:
            return table[key]
    public = sorted(key for key in table if not key.startswith("_"))
    close = difflib.get_close_matches(snake_case(name), public, 1) if bare == name else []
    unknown = f"for one of your own: custom_objects={{{bare!r}: {bare}}}"
    raise ArgumentError(
        f"there is no {name!r}",
        op=kind,
        expected="one of " + ", ".join(map(repr, public)),
        hint=repr(close[0]) if close else unknown,
    )


def from_config(
    kind: str, identifier: Any, table: Mapping[str, Any], accepts: Callable[[Any], bool]
) -> Any:
    """An object from itself, its name, or its configuration ``{"class_name", "config"}``."""
    if isinstance(identifier, str):
        found = find(kind, identifier, table)
        return found() if isinstance(found, type) else found
    if isinstance(identifier, Mapping) and set(identifier) == {"class_name", "config"}:
        return find(kind, identifier["class_name"], table).from_config(identifier["config"])
    if isinstance(identifier, type) and issubclass(identifier, Configured):
        return identifier()
    if accepts(identifier):
        return identifier
    raise ArgumentError(
        f"{'an' if isinstance(identifier, int) else 'a'} {type(identifier).__name__} is not "
        "understood",
        op=kind,
        expected="a name, an object of that kind, or its configuration",
        hint="no number of inputs is given to a layer: its first input shows it"
        if isinstance(identifier, int)
        else None,
    )
