"""Shadows: Variables that stand for others on the devices of replicas.

A weight is the same on all replicas, and so are its shadows. What each replica changes for itself
(counts of metrics, running means, random states) begins there with a part of its own: a sum with
nothing, a mean with the same value, a random state with another key. ``merge`` makes one value of
all parts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from eagerflow.dtypes import is_inexact
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Shadows", "Whole", "is_owned", "owned"]

_KEYS = 0x9E3779B97F4A7C15  # steps between the keys of replicas: odd, so that all differ


_owned: WeakValueDictionary[int, Variable] = WeakValueDictionary()


def owned(variable: Variable) -> Variable:
    """The Variable, which is a strategy's own: it is not needed outside of the cluster."""
    _owned[id(variable)] = variable
    return variable


def is_owned(variable: Variable) -> bool:
    """Whether a Variable is a strategy's own."""
    return id(variable) in _owned


class Whole(NamedTuple):
    """A value of which other Variables have parts, and what makes it of theirs.

    ``replicas`` are those that can go on with these parts, in their order.
    """

    parts: Sequence[Variable]
    join: Callable[[Sequence[Any]], Any]
    replicas: Sequence[int] = ()


class Shadows:
    """The shadows of all Variables that a strategy's steps use, by replica.

    ``devices`` are the devices of the replicas.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._of: dict[Variable, dict[int, Variable]] = {}
        self._known: dict[Variable, Tensor] = {}
        """What the users' Variables held when their shadows were made to fit."""
        self._new: set[Variable] = set()
        """Shadows that have not been made to fit yet."""
        self._begins: dict[Variable, tuple[Tensor, Mapping[int, Any]]] = {}
        """The parts that replicas are to begin with, while Variables hold these values."""

    def __call__(self, variable: Variable, r: int) -> Variable:
        """The Variable that stands for one on a replica."""
        own = self._of.setdefault(variable, {})
        found = own.get(r)
        if found is None:
            name = f"{variable.name}@{r}"
            made = Variable(variable.current, name, False, device=self._devices[r])
            found = own[r] = owned(made)
            found.is_random_state = variable.is_random_state
            self._new.add(found)
        return found

    def begin_with(self, parts: Mapping[Variable, Mapping[int, Any]]) -> None:
        """Let replicas go on with parts of their own of Variables that hold the merged values."""
        self._begins = {v: (v.current, own) for v, own in parts.items()}

    def push(self, local: Iterable[Variable], mirrored: Iterable[Variable]) -> None:
        """Let shadows follow those Variables that were changed by others than runs."""
        new: dict[Variable, Any] = {}
        for variables, make in ((mirrored, _same), (local, _part)):
            for variable in variables:
                own = self._of.get(variable, {})
                changed = self._known.get(variable) is not variable.current
                begins = self._parts_of(variable, own) if changed else {}
                for r, shadow in own.items():
                    if changed or shadow in self._new:
                        new[shadow] = begins[r] if r in begins else make(variable, r)
                if begins:
                    new[variable] = begins[0]
        assign_together(new)
        self._new.difference_update(new)
        self.note(local)
        self.note(mirrored)

    def _parts_of(self, variable: Variable, own: Mapping[int, Variable]) -> Mapping[int, Any]:
        """The parts to begin with, where there is a shadow for each: else some would be lost."""
        merged, parts = self._begins.pop(variable, (None, {}))
        return parts if merged is variable.current and {0, *own} >= set(parts) else {}

    def note(self, variables: Iterable[Variable]) -> None:
        """A run has changed these Variables together with their shadows."""
        self._known.update((v, v.current) for v in variables)

    def unchanged(self, variables: Iterable[Variable]) -> list[Variable]:
        """Those, each once, that nothing but runs has changed since they were noted."""
        return [v for v in dict.fromkeys(variables) if self._known.get(v) is v.current]

    def all_of(self, variables: Iterable[Variable]) -> list[Variable]:
        """These Variables, and their shadows."""
        return [x for v in variables for x in (v, *self._of.get(v, {}).values())]

    def unmerged(
        self, local: Iterable[Variable], steps: Sequence[int] | None = None
    ) -> dict[Variable, Whole]:
        """Those that replicas have changed each for itself since they were merged, as wholes.

        ``steps`` is how many steps each has made since they had one; None for equally many.
        """
        found = {}
        for variable in local:
            shadows = self._of.get(variable)
            if shadows and variable in self._known:  # else it has been merged already
                made = [1 if steps is None else steps[r] for r in (0, *shadows)]
                join = partial(_merged, variable, made)
                parts = [variable, *shadows.values()]
                # Parts that weigh differently would not be merged as before when they go on.
                found[variable] = Whole(parts, join, [0, *shadows] if steps is None else ())
        return found

    def merge(self, local: Iterable[Variable], steps: Sequence[int] | None = None) -> None:
        """Make one value of what the replicas have made of these Variables; as ``unmerged``."""
        new = {
            variable: whole.join([np.asarray(v.current) for v in whole.parts])
            for variable, whole in self.unmerged(local, steps).items()
        }
        assign_together(new)
        for variable in new:
            self._known.pop(variable, None)  # the parts are to be made anew


def _same(variable: Variable, r: int) -> Any:
    return np.asarray(variable.current)


def _part(variable: Variable, r: int) -> Any:
    """What a replica that is not the first begins with."""
    value = np.asarray(variable.current)
    if variable.is_random_state:
        words = value.copy()
        words[0] = np.uint64((int(words[0]) + r * _KEYS) % (1 << 64))
        return words
    return np.zeros_like(value) if variable.aggregation == "sum" else value


def _merged(variable: Variable, steps: Sequence[int], parts: Sequence[Any]) -> Any:
    """One value of a Variable of those of all replicas, which have made so many steps each."""
    if variable.aggregation == "sum":
        return sum(parts[1:], parts[0])
    most = parts[steps.index(max(steps))]
    if variable.is_random_state:
        words = most.copy()  # as far as any has drawn, so that no numbers come again
        words[0] = parts[0][0]
        return words
    if not is_inexact(variable.dtype):
        return most
    wide = [
        part.astype(np.result_type(part.dtype, np.float64)) * n
        for part, n in zip(parts, steps, strict=True)
    ]
    return (sum(wide[1:], wide[0]) / sum(steps)).astype(variable.dtype)
