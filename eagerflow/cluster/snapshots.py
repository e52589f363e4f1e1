"""Snapshots: consistent values of Variables, wherever they are stored, for a checkpoint.

The thread that sends all messages to tasks takes it, between two messages: so it is the state
between two runs. A task keeps references to its values at that time, as runs give
Variables new arrays, and writes them into a file while later runs go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eagerflow.cluster.client import Client
from eagerflow.cluster.pending import Question
from eagerflow.cluster.shadows import Whole
from eagerflow.handlers import raised_here
from eagerflow.nn import state
from eagerflow.nn.files import Seal
from eagerflow.nn.shards import ShardFile
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, read_together

__all__ = ["Snapshot", "parts_in"]

FETCH_SECONDS = 60.0
_PARTS = "replicas/"  # prefix of the replica number and the name of the merged value


def parts_in(
    variables: Mapping[str, Variable], arrays: Mapping[str, Any], replicas: int
) -> dict[Variable, dict[int, Any]]:
    """The separate parts of each replica for Variables with these names in the checkpoint.

    Empty if the checkpoint has more ``replicas``, with parts of their own.
    """
    own = {name for name in arrays if name.startswith(_PARTS)}
    parts: dict[Variable, dict[int, Any]] = {}
    for r in range(replicas):
        wanted = {_part_name(r, name): v for name, v in variables.items()}
        own.difference_update(wanted)
        for variable, value in state.fitted(wanted, arrays)[0].items():
            parts.setdefault(variable, {})[r] = value
    return {} if own else parts


def _part_name(replica: int, name: str) -> str:
    return f"{_PARTS}{replica}/{name}"


class Snapshot:
    """The values of Variables at the time of its creation.

    ``variables`` have the names of the checkpoint; for those in ``wholes``, others hold
    the value. Values in ``here`` or with parts are copied to this process; the rest are written on
    their tasks, into files in ``folder`` with names that begin with ``prefix``. Without a
    ``client`` all are here. ``saved`` is called when the checkpoint is complete. Raises
    TaskLostError if a value was lost.
    """

    def __init__(
        self,
        client: Client | None,
        variables: Mapping[str, Variable],
        wholes: Mapping[Variable, Whole],
        here: Collection[str],
        folder: str,
        prefix: str,
        saved: Callable[[Path], None],
    ) -> None:
        self._client, self._variables, self._wholes = client, variables, wholes
        self._folder, self._prefix = folder, prefix
        self.saved = saved
        self._values: dict[Variable, Any] = {}
        """Values already here; references to Tensors, which so cannot be overwritten."""
        self._fetched: list[tuple[Question, list[Variable]]] = []
        self._written: dict[str, tuple[Question, str]] = {}
        self._there: set[str] = set()
        self._names: dict[Variable, list[str]] = {}
        """For Variables that tasks may write; layers may share a Variable."""
        for name, variable in variables.items():
            if name not in here and variable not in wholes:
                self._names.setdefault(variable, []).append(name)
        if client is None:
            self._values = self._current()
        else:
            client.wait(lambda: self._take(client))
            client.snapshots.add(self)

    def _current(self) -> dict[Variable, Tensor]:
        own = (
            self._wholes[v].parts if v in self._wholes else [v] for v in self._variables.values()
        )
        every = list(dict.fromkeys(v for parts in own for v in parts))
        return dict(zip(every, read_together(every), strict=True))

    def _take(self, client: Client) -> None:
        """Ask tasks to keep and write their values; for the sending thread."""
        writes: dict[str, list[tuple[int, str]]] = {}
        fetches: dict[tuple[str, str], dict[int, Variable]] = {}
        for variable, tensor in self._current().items():
            held = client.variables.get(variable)
            if held is None or not held.newer or held.known is not tensor:
                self._values[variable] = tensor
                continue
            held.check(tensor)
            source = held.source()
            if held.kept is not None or source is None:
                self._values[variable] = held.kept
                continue
            task, what, key = source
            if variable in self._names and what == "fetch":
                rows = [(key, name) for name in self._names[variable]]
                writes.setdefault(task, []).extend(rows)
            else:
                fetches.setdefault((task, what), {})[key] = variable
        for (task, what), asked in fetches.items():
            question = client.question(task)
            self._fetched.append((question, [*asked.values()]))
            question.send({"do": what, "variables": [*asked]})
        for i, (task, rows) in enumerate(writes.items()):
            question, file = client.question(task), f"{self._prefix}-{i:04}.shard"
            self._written[file] = question, task
            keys, names = map(list, zip(*rows, strict=True))
            self._there.update(names)
            to = {"folder": self._folder, "file": file}
            question.send({"do": "save", "variables": keys, "names": names, **to})

    def finish(self) -> tuple[dict[str, Any], list[ShardFile]]:
        """The values that are here, by name, and the files that tasks have written of the others.

        Separate state of replicas is included twice: merged, and the part of each.

        Returns when these are written; raises the first error of a task, when all have ended.
        """
        try:
            shards = self._answers()
        finally:
            if self._client is not None:
                self._client.snapshots.discard(self)
                self._client.note_change()
        names = [name for name in self._variables if name not in self._there]
        return {name: self._value(self._variables[name]) for name in names} | self._parts(), shards

    def _parts(self) -> dict[str, Any]:
        """The separate parts of each replica, beside the merged values."""
        return {
            _part_name(r, name): self._array(part)
            for name, variable in self._variables.items()
            if (whole := self._wholes.get(variable)) is not None
            for r, part in zip(whole.replicas, whole.parts, strict=False)
        }

    def _answers(self) -> list[ShardFile]:
        problem: Exception | None = None
        shards = []
        for question, variables in self._fetched:
            try:
                _, arrays = question.answer(FETCH_SECONDS)
                self._values.update(zip(variables, [x.copy() for x in arrays], strict=True))
            except raised_here(Exception) as error:
                problem = problem or error
        for file, (question, task) in self._written.items():
            try:
                seal = question.answer()[0]["seal"]
                shards.append(ShardFile(file, task, Seal(*seal)))
            except raised_here(Exception) as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return shards

    def _value(self, variable: Variable) -> Any:
        whole = self._wholes.get(variable)
        return (
            self._array(variable)
            if whole is None
            else whole.join([self._array(x) for x in whole.parts])
        )

    def _array(self, variable: Variable) -> Any:
        value = self._values[variable]
        return np.asarray(value.numpy() if isinstance(value, Tensor) else value)
