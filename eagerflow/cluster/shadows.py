"""Shadows: copies of Variables on the devices of replicas.

A weight is the same on all replicas, and so are its shadows. State that replicas change separately
(counts of metrics, running means, random states) starts there with a separate part: zero for a
sum, the same value for a mean, another key for a random state. ``merge`` combines
all parts into one value.
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

_KEYS = 0x9E3779B97F4A7C15  # difference between the keys of replicas: odd, so that all differ


_owned: WeakValueDictionary[int, Variable] = WeakValueDictionary()


def owned(variable: Variable) -> Variable:
    """The Variable, marked as owned by a strategy: it is not needed outside of the cluster."""
    _owned[id(variable)] = variable
    return variable


def is_owned(variable: Variable) -> bool:
    """Whether a Variable is owned by a strategy."""
    return id(variable) in _owned


class Whole(NamedTuple):
    """A value stored in parts by several Variables, with the function that joins them.

    ``replicas`` are those that can resume with these parts, in order.
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
        """The values of the users' Variables when their shadows were last updated."""
        self._new: set[Variable] = set()
        """Shadows that have not been updated yet."""
        self._begins: dict[Variable, tuple[Tensor, Mapping[int, Any]]] = {}
        """The initial parts of replicas, valid while Variables hold these values."""

    def __call__(self, variable: Variable, r: int) -> Variable:
        """The shadow of a Variable on a replica."""
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
        """Let replicas resume with separate parts of Variables that hold the merged values."""
        self._begins = {v: (v.current, own) for v, own in parts.items()}

    def push(self, local: Iterable[Variable], mirrored: Iterable[Variable]) -> None:
        """Update shadows of Variables that were changed outside of runs."""
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
        """The initial parts, if there is a shadow for each: otherwise some would be lost."""
        merged, parts = self._begins.pop(variable, (None, {}))
        return parts if merged is variable.current and {0, *own} >= set(parts) else {}

    def note(self, variables: Iterable[Variable]) -> None:
        """Note that a run has changed these Variables together with their shadows."""
        self._known.update((v, v.current) for v in variables)

    def unchanged(self, variables: Iterable[Variable]) -> list[Variable]:
        """The Variables, each once, changed only by runs since they were noted."""
        return [v for v in dict.fromkeys(variables) if self._known.get(v) is v.current]

    def all_of(self, variables: Iterable[Variable]) -> list[Variable]:
        """These Variables, and their shadows."""
        return [x for v in variables for x in (v, *self._of.get(v, {}).values())]

    def unmerged(
        self, local: Iterable[Variable], steps: Sequence[int] | None = None
    ) -> dict[Variable, Whole]:
        """Variables changed separately by replicas since they were merged, as wholes.

        ``steps`` is the number of steps of each since then; None for equally many.
        """
        found = {}
        for variable in local:
            shadows = self._of.get(variable)
            if shadows and variable in self._known:  # otherwise it has been merged already
                made = [1 if steps is None else steps[r] for r in (0, *shadows)]
                join = partial(_merged, variable, made)
                parts = [variable, *shadows.values()]
                # Parts of different weights cannot be merged as before when training resumes.
                found[variable] = Whole(parts, join, [0, *shadows] if steps is None else ())
        return found

    def merge(self, local: Iterable[Variable], steps: Sequence[int] | None = None) -> None:
        """Merge the replicas' values of these Variables; as ``unmerged``."""
        new = {
            variable: whole.join([np.asarray(v.current) for v in whole.parts])
            for variable, whole in self.unmerged(local, steps).items()
        }
        assign_together(new)
        for variable in new:
            self._known.pop(variable, None)  # parts are recreated


def _same(variable: Variable, r: int) -> Any:
    return np.asarray(variable.current)


def _part(variable: Variable, r: int) -> Any:
    """The initial part of a replica other than the first."""
    value = np.asarray(variable.current)
    if variable.is_random_state:
        words = value.copy()
        words[0] = np.uint64((int(words[0]) + r * _KEYS) % (1 << 64))
        return words
    return np.zeros_like(value) if variable.aggregation == "sum" else value


def _merged(variable: Variable, steps: Sequence[int], parts: Sequence[Any]) -> Any:
    """One value of a Variable merged from those of all replicas, weighted by their steps."""
    if variable.aggregation == "sum":
        return sum(parts[1:], parts[0])
    most = parts[steps.index(max(steps))]
    if variable.is_random_state:
        words = most.copy()  # the furthest state, so that no numbers repeat
        words[0] = parts[0][0]
        return words
    if not is_inexact(variable.dtype):
        return most
    wide = [
        part.astype(np.result_type(part.dtype, np.float64)) * n
        for part, n in zip(parts, steps, strict=True)
    ]
    return (sum(wide[1:], wide[0]) / sum(steps)).astype(variable.dtype)
