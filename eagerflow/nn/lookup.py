"""From names and configurations to objects: optimizers, losses, activations and so on."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from eagerflow.errors import ArgumentError

__all__ = ["Aside", "Configured", "find", "from_config", "require", "snake_case"]


def snake_case(name: str) -> str:
    """``Conv2D`` as ``conv2d``, ``MaxPooling2D`` as ``max_pooling2d``."""
    spaced = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", spaced).lower()


class Aside:
    """Holds what is no part of an object, though an attribute: no layer or weight is found in it.

    >>> from eagerflow.nn.lookup import Aside
    >>> Aside([1, 2]).held
    [1, 2]
    """

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Configured:
    """Base of objects that can say how they were made, and be made again from that.

    The arguments of the constructor are the configuration; nothing has to be written twice.
    """

    _config: Aside

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        signature = inspect.signature(cls.__init__)
        try:
            bound = signature.bind(made, *args, **kwargs)
        except TypeError:
            return made  # __init__ is about to raise the same
        bound.apply_defaults()
        config = dict(list(bound.arguments.items())[1:])
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                config |= config.pop(name, {})
            elif parameter.kind is parameter.VAR_POSITIONAL:
                config.pop(name, None)
        object.__setattr__(made, "_config", Aside(config))
        return made

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


def require(
    ok: bool, value: Any, wrong: str, op: str, argument: str, expected: str | None = None
) -> None:
    """Raise ArgumentError unless ``ok``: the value of an argument is, say, "not a padding"."""
    if not ok:
        raise ArgumentError(f"{value!r} is {wrong}", op=op, argument=argument, expected=expected)


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
