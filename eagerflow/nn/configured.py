"""Objects that are made from arguments, can say what these were, and can be made again from that.

A class states each argument of its constructor once, with its type, default and check:

    class Dropout(Layer):
        rate: float = argument(check=number(...))
        seed: int | None = argument(None)

The constructor, its signature, the attributes and the configuration follow from it. A class with
a constructor of its own has the same configuration: the arguments that it was called with.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, NamedTuple

from eagerflow.errors import ArgumentError

__all__ = [
    "Untracked",
    "Configured",
    "argument",
    "find",
    "from_config",
    "inherited",
    "named_classes",
    "snake_case",
]


def snake_case(name: str) -> str:
    """``Conv2D`` as ``conv2d``, ``MaxPooling2D`` as ``max_pooling2d``."""
    spaced = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", spaced).lower()


class Untracked:
    """Holds what is no part of an object, though an attribute: no layer or weight is found in it.

    >>> from eagerflow.nn.configured import Untracked
    >>> Untracked([1, 2]).held
    [1, 2]
    """

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


# Arguments of constructors --------------------------------------------------------------------


class _Argument(NamedTuple):
    """An argument of a constructor, as a class states it."""

    default: Any
    check: Callable[[Any], Any] | None


def argument(default: Any = Parameter.empty, check: Callable[[Any], Any] | None = None) -> Any:
    """An argument of the constructor, which becomes the attribute of this name.

    Without a ``default`` it is required. ``check`` is given the value and returns the attribute,
    or raises ArgumentError, which then names the object and the argument. The arguments of a
    class come before those of its base; one that the base has too changes its place and default.

    >>> from eagerflow.nn.configured import argument
    >>> class Power(ef.nn.Layer):
    ...     exponent: float = argument(2.0, float)
    ...     def call(self, inputs):
    ...         return inputs**self.exponent
    >>> Power(3, name="cube").get_config()["exponent"], Power(3).exponent
    (3, 3.0)
    """
    return _Argument(default, check)


_INHERITED = object()
inherited: Any = _Argument(_INHERITED, None)
"""An argument of the base, with the base's default, which comes at this place."""


def _constructor(cls: Any, own: dict[str, _Argument]) -> Any:
    """``__init__`` for the arguments that a class states and those of its base."""
    base = inspect.signature(super(cls, cls).__init__)
    receiver, *others = base.parameters.values()
    known = {parameter.name: parameter for parameter in others}
    hints = {name: parameter.annotation for name, parameter in known.items()} | cls.__annotations__
    stated = {
        name: known[name]
        if default is _INHERITED
        else receiver.replace(name=name, default=default, annotation=hints.get(name, Any))
        for name, (default, _) in own.items()
    }
    checks = {name: check for name, (_, check) in own.items() if name not in known}
    signature = base.replace(parameters=[receiver, *(stated | known | stated).values()])
    finish = vars(cls).get("__post_init__")

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = _by_name(signature, self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}() {error}") from None
        values = {name: given.pop(name) for name in checks}
        super(cls, self).__init__(**given)
        for name, check in checks.items():
            setattr(self, name, self._checked(name, values[name], check))
        if finish is not None:
            finish(self)

    construct.__name__, construct.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
    construct.__signature__ = signature  # type: ignore[attr-defined]
    return construct


def _by_name(signature: Signature, made: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a constructor is given, defaults included; TypeError where it does not fit."""
    bound = signature.bind(made, *args, **kwargs)
    bound.apply_defaults()
    given = dict(list(bound.arguments.items())[1:])
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
        elif parameter.kind is parameter.VAR_POSITIONAL:
            given.pop(name, None)
    return given


class _ClassSignature:
    """What ``inspect.signature`` and ``help`` say of a class: the arguments of its constructor."""

    def __get__(self, made: Any, cls: Any) -> Signature:
        if made is not None:
            raise AttributeError("__signature__")  # of an object it is that of its __call__
        whole = inspect.signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class Configured:
    """Base of objects that can say how they were made, and be made again from that.

    The arguments of the constructor are the configuration; nothing has to be written twice.
    A class that states its arguments may have a ``__post_init__``, called when they are set.
    """

    __signature__ = _ClassSignature()
    _config: Untracked

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {key: value for key, value in vars(cls).items() if isinstance(value, _Argument)}
        for name in own:
            delattr(cls, name)
        if own and "__init__" in vars(cls):
            raise TypeError(f"{cls.__name__} states arguments: __post_init__ instead of __init__")
        if own:
            cls.__init__ = _constructor(cls, own)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        try:
            config = _by_name(inspect.signature(cls.__init__), made, *args, **kwargs)
        except TypeError:
            return made  # __init__ is about to raise the same
        object.__setattr__(made, "_config", Untracked(config))
        return made

    if TYPE_CHECKING:  # a constructor is made together with its class

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    else:

        def __init__(self) -> None: ...

    @property
    def _label(self) -> str:
        """The object as errors name it."""
        return getattr(self, "name", None) or type(self).__name__

    def _checked(self, name: str, value: Any, check: Callable[[Any], Any] | None) -> Any:
        if check is None:
            return value
        try:
            return check(value)
        except ArgumentError as error:
            if error.op is None:
                error.op, error.argument = self._label, name
            raise

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, in a form that JSON can hold."""
        return {name: _plain(value) for name, value in self._config.held.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """A new object made with the arguments in ``config``."""
        return cls(**config)


def _plain(value: Any) -> Any:
    if isinstance(value, Configured):
        return {"class_name": type(value).__name__, "config": value.get_config()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if callable(value) and hasattr(value, "__name__"):
        # An op may have other defaults than what its bare name stands for.
        return f"ef.{value.__name__}" if hasattr(value, "op") else value.__name__
    return value if isinstance(value, int | float | str | None) else str(value)


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


def find(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    """The entry called ``name``; ArgumentError, with a guess, where there is none."""
    for key in (name, snake_case(name), name.removeprefix("ef.")):
        if key in table:
            return table[key]
    close = difflib.get_close_matches(snake_case(name), table, 1)
    raise ArgumentError(
        f"there is no {name!r}",
        op=kind,
        expected="one of " + ", ".join(repr(key) for key in sorted(table)),
        hint=repr(close[0]) if close else None,
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
        f"a {type(identifier).__name__} is not understood",
        op=kind,
        expected="a name, an object of that kind, or its configuration",
    )
