"""Groups of variables with a learning rate and a weight decay of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import number, require
from eagerflow.nn.module import Module
from eagerflow.variable import Variable

__all__ = ["Group", "Groups"]

_multiplier = number(
    lambda x: 0 < x < math.inf,
    "not a multiplier",
    "a positive number; layer.trainable = False freezes",
)
_decay = number(lambda x: 0 <= x < math.inf, "not a weight decay", "a number of at least 0")


class Group(NamedTuple):
    """What differs from the optimizer's own numbers; None: nothing."""

    multiplier: float | None = None
    weight_decay: float | None = None


class Groups:
    """The groups of an optimizer, in order; where they overlap, the last one counts."""

    def __init__(self) -> None:
        self.given: list[tuple[list[Any], Group]] = []
        self.known: dict[Variable, Group] = {}  # of the variables with state
        self.multipliers: dict[Variable, float] = {}  # likewise, if they have one

    def add(
        self, op: str, parts: Any, multiplier: float | None, weight_decay: float | None
    ) -> None:
        """Add a group; ArgumentError for unsupported parts and numbers."""
        several = isinstance(parts, Iterable) and not isinstance(parts, _PARTS)
        listed = list(parts) if several else [parts]
        for part in listed:
            require(
                isinstance(part, _PARTS),
                part,
                "not a part of a model",
                op,
                "parts",
                "layers, Variables, and regular expressions of names",
            )
        given = {"multiplier": multiplier, "weight_decay": weight_decay}
        require(given != _NONE._asdict(), None, "not a group", op, None, " or ".join(given))
        for argument, check in (("multiplier", _multiplier), ("weight_decay", _decay)):
            try:
                given[argument] = None if given[argument] is None else check(given[argument])
            except ArgumentError as error:
                error.op, error.argument = op, argument
                raise
        self.given.append((listed, Group(**given)))

    def fix(self, variables: Iterable[Variable]) -> None:
        """Resolve the groups of variables, which later changes of layers leave as they are."""
        if self.given:
            found = self._resolved(variables)
            self.known |= found
            self.multipliers |= {v: g.multiplier for v, g in found.items() if g.multiplier}

    def of(self, variable: Variable) -> Group:
        """The numbers of a variable."""
        if not self.given:
            return _NONE
        return self.known.get(variable) or self._resolved([variable])[variable]

    def _resolved(self, variables: Iterable[Variable]) -> dict[Variable, Group]:
        groups = [(_members(parts), _names(parts), numbers) for parts, numbers in self.given]
        found = {}
        for variable in variables:
            multiplier, weight_decay = None, None
            for members, names, numbers in groups:
                if variable in members or any(re.search(x, variable.name) for x in names):
                    multiplier = _later(multiplier, numbers.multiplier)
                    weight_decay = _later(weight_decay, numbers.weight_decay)
            found[variable] = Group(multiplier, weight_decay)
        return found


_NONE = Group()
_PARTS = str | Module | Variable


def _members(parts: list[Any]) -> set[Variable]:
    modules = [part for part in parts if isinstance(part, Module)]
    own = {part for part in parts if isinstance(part, Variable)}
    return own.union(*(module.weights for module in modules))


def _names(parts: list[Any]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]


def _later(before: float | None, now: float | None) -> float | None:
    return before if now is None else now
