"""Variables of a cluster: which task holds the newest value of each, and which the client has.

A Variable is sent to its task with the first run that needs it, and stays there between runs.
The client's own value is updated on request. A value assigned at the client meanwhile
is sent to the task before the next run.

With copies, each value made by runs is stored twice: on its task and on another one that keeps
a copy, or holds a Variable with the same value from the same run. When one of the two is lost,
the client keeps the value of the other, until a run makes a new one.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eagerflow.devices import Device
from eagerflow.errors import TaskLostError
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable

__all__ = ["Held", "HeldVariables"]


class Held:
    """A Variable that a task holds.

    ``known`` is the value of the client's Variable when both were the same; ``newer`` says that
    runs have changed the task's value since, ``run`` is the last one; ``lost`` says that its task
    was lost with a newer value. ``holder`` is the task that keeps a copy of it, and ``copy_fits``
    says whether it equals the task's value; ``twin`` is a Variable elsewhere with the same
    value, if the same run was its last. ``kept`` is the value that the client has got from a
    copy, or at the end of the run; it is ``absent`` until the task's new process has it.
    """

    __slots__ = (
        "absent",
        "copy_fits",
        "holder",
        "kept",
        "key",
        "known",
        "lost",
        "name",
        "newer",
        "place",
        "run",
        "twin",
        "variable",
    )

    def __init__(
        self, key: int, variable: Variable, place: Device, died: Callable[[Any], None]
    ) -> None:
        self.key = key
        self.name = variable.name
        self.place = place
        self.variable = weakref.ref(variable, died)
        self.known: Tensor | None = None
        self.newer = False
        self.lost = False
        self.run = 0
        self.holder: str | None = None
        self.copy_fits = False
        self.twin: Held | None = None
        self.kept: Any = None
        self.absent = False

    def made(self, run: int) -> None:
        """Note a new value, made by a run in its task."""
        self.run, self.newer, self.kept, self.absent = run, True, None, False

    def stored(self, current: Tensor) -> None:
        """Note that the client's value, or the kept one, was sent to its task."""
        if self.known is not current:
            self.known, self.newer, self.lost, self.kept = current, False, False, None
            self.copy_fits = False
        self.absent = False

    def is_copied_by(self, task: str) -> bool:
        """Whether a task keeps an up-to-date copy of the value."""
        return self.holder == task and self.copy_fits

    def source(self) -> tuple[str, str, int] | None:
        """The source of its newest value: a task, a request, and a key; None if it is lost."""
        if self.lost:
            return None
        return self.copy() if self.absent else (self.place.task, "fetch", self.key)

    def copy(self) -> tuple[str, str, int] | None:
        """The source of its newest value other than its own task."""
        twin, seen = self.twin, {self}
        while twin is not None and twin.run == self.run and twin not in seen:
            if twin.is_there:
                return twin.place.task, "fetch", twin.key
            seen.add(twin)
            twin = twin.twin
        return (self.holder, "fetch copies", self.key) if self.holder else None

    @property
    def is_there(self) -> bool:
        """Whether its task has its value, and the Variable still exists."""
        return not (self.absent or self.lost) and self.variable() is not None

    def keep(self, run: int, array: Any) -> None:
        """Keep a value in case its task is lost, unless a later run has changed it."""
        if self.newer and self.run == run:
            self.kept = array
            if self.lost:  # the copy was lost too, meanwhile
                self.lost, self.absent = False, True

    def give_up(self) -> None:
        """Mark it as lost if its task needs the value, and there is none to send."""
        if self.absent and self.kept is None:
            self.lost, self.absent = True, False

    def is_lost(self, current: Tensor) -> bool:
        """Whether the newest value is lost, if the client holds this one."""
        return self.lost and self.known is current

    def check(self, current: Tensor) -> None:
        """Raise TaskLostError if the requested value has been lost."""
        if self.is_lost(current):
            raise self.loss()

    def loss(self) -> TaskLostError:
        """The error of a value that was lost with its task."""
        return TaskLostError(
            f"the newest value of the Variable {self.name!r} was lost with {self.place.task}",
            hint=f"give {self.name} a value first, such as that of a checkpoint "
            "(ef.nn.Checkpoint, ef.nn.callbacks.BackupAndRestore); with "
            "Cluster(..., redundant=True) two tasks keep each value",
        )

    def take(self, array: Any) -> None:
        """Assign the task's value to the client's Variable, unless that was changed meanwhile."""
        variable = self.variable()
        known = self.known
        if variable is None or known is None:
            return
        new = new_tensor(array, known._kind)
        while not variable.replace(known, new):
            if variable.current is not known:
                return
        # It must be sent to a new process of its task.
        self.known, self.newer = None if self.absent else new, False
        self.kept, self.absent = None, False


class HeldVariables:
    """The Variables that tasks hold, by identity."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._left: list[Held] = []  # values in tasks that are no longer needed
        self._dead: deque[int] = deque()  # ids of Variables, appended by their finalizers
        self._keys = itertools.count(1)

    def get(self, variable: Variable) -> Held | None:
        """The record of a Variable, if a task holds it."""
        found = self._held.get(id(variable))
        return found if found is not None and found.variable() is variable else None

    def add(self, variable: Variable, place: Device) -> Held:
        """Add a Variable to be held by a task."""
        old = self._held.get(id(variable))
        if old is not None:
            self._left.append(old)
        number = id(variable)
        made = Held(next(self._keys), variable, place, lambda _: self._dead.append(number))
        self._held[number] = made
        return made

    def of(self, variables: Iterable[Variable]) -> list[Held]:
        """Those of some Variables that tasks hold."""
        return [held for v in variables if (held := self.get(v)) is not None]

    def newer(self, variables: Iterable[Variable] | None = None) -> list[Held]:
        """Those of some Variables, or of all, with a newest value that a task has, or has lost."""
        known = list(self._held.values()) if variables is None else self.of(variables)
        return [held for held in known if held.newer]

    def held_by(self, task: str) -> list[Variable]:
        """The Variables that a task holds."""
        found = [h.variable() for h in self._held.values() if h.place.task == task]
        return [v for v in found if v is not None]

    def lost(self, variables: Iterable[Variable]) -> list[Held]:
        """Those of some Variables with a newest value that is lost."""
        current = [(held, held.variable()) for held in self.of(variables)]
        return [h for h, v in current if v is not None and h.is_lost(v.current)]

    def gone(self) -> list[Held]:
        """Values of Variables that moved elsewhere, or no longer exist."""
        found, self._left = self._left, []
        while self._dead:
            number = self._dead.popleft()
            held = self._held.get(number)
            if held is not None and held.variable() is None:
                found.append(self._held.pop(number))
        return found

    def lose(self, task: str) -> list[Held]:
        """Handle the loss of a task: the client has the newest value of a Variable, or it is lost.

        Returns the Variables with one copy of the newest value left of two.
        """
        newer = [held for held in self._held.values() if held.newer and held.kept is None]
        twice = [held for held in newer if held.absent or held.copy() is not None]
        for held in self._held.values():
            if held.holder == task:
                held.holder = None
            if held.place.task == task:
                if held.newer:
                    held.absent = True
                else:
                    held.known = None  # must be sent again
        for held in newer:
            if held.copy() is None:
                held.give_up()
        return [h for h in twice if not h.lost and (h.absent or h.copy() is None)]


def by_task(held: Sequence[Held]) -> dict[str, list[Held]]:
    """Some Variables, by the tasks that hold them."""
    found: dict[str, list[Held]] = {}
    for one in held:
        found.setdefault(one.place.task, []).append(one)
    return found
