"""Restoring: values lost with a task are replaced, and asynchronous training continues.

Values of a server are restored from the last checkpoint, while others keep theirs: steps of
asynchronous training mix weights of different ages anyway. Separate state of a worker
starts as after a merge, and the interrupted step is repeated.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.cluster.client import Client
from eagerflow.cluster.shadows import Shadows
from eagerflow.cluster.tables import Tables
from eagerflow.cluster.variables import Held, by_task
from eagerflow.errors import FileFormatError
from eagerflow.nn import shards, state
from eagerflow.variable import Variable, assign_together

__all__ = ["Restoring"]

MAX_NAMES = 3  # of Variables, in a warning


class _Saved(NamedTuple):
    """The last complete checkpoint, and the number of steps before it."""

    path: Path
    variables: Mapping[str, Variable]
    steps: int


class Restoring:
    """Replaces values of a strategy's Variables that were lost with their tasks.

    ``losses`` counts how often each task has lost a worker's separate state.
    """

    def __init__(self, shadows: Shadows, tables: Tables) -> None:
        self.losses: Counter[str] = Counter()
        self._shadows, self._tables = shadows, tables
        self._saved: _Saved | None = None

    def note(self, path: Path, variables: Mapping[str, Variable], steps: int) -> None:
        """Note a complete checkpoint: of these Variables by name, after ``steps`` steps."""
        self._saved = _Saved(path, variables, steps)

    def restore(
        self, client: Client, servers: Iterable[Variable], workers: Iterable[Variable], steps: int
    ) -> bool:
        """Replace lost values; False if there is no replacement for one of them.

        ``servers`` are the Variables on servers, ``workers`` the separate state of each worker;
        ``steps`` is the number of steps made so far.
        """
        lost = client.lost_of([*servers])
        values = self._from_checkpoint(
            {v: None for one in lost if (v := one.variable()) is not None}
        )
        if values is None:
            return False
        self._assign(values)
        lost += self.renew(client, workers)
        if lost:
            self._tell(lost, len(values), steps)
        return True

    def renew(self, client: Client, workers: Iterable[Variable]) -> list[Held]:
        """Reset the lost separate state of workers; returns the lost Variables."""
        lost = client.lost_of([*workers])
        self._assign({v: v.numpy() for one in lost if (v := one.variable()) is not None})
        self.losses.update(dict.fromkeys(by_task(lost), 1))
        return lost

    def tell_renewed(self, lost: Sequence[Held]) -> None:
        """Warn that synchronous training continues with state older than its weights."""
        for task, own in by_task(lost).items():
            names = ", ".join(one.name for one in own[:MAX_NAMES])
            more = f" and {len(own) - MAX_NAMES} more" if len(own) > MAX_NAMES else ""
            warnings.warn(
                f"{task} was lost, with data that no other task has: {names}{more} are as after "
                "the last merge (in fit: at the start of the epoch), and the step is repeated; "
                "Cluster(..., redundant=True) or ef.nn.callbacks.BackupAndRestore loses nothing",
                stacklevel=4,
            )

    def _from_checkpoint(self, variables: Mapping[Variable, None]) -> dict[Variable, Any] | None:
        """The values of Variables in the last checkpoint; None if it lacks some."""
        parts = {v: self._tables.part_of(v) for v in variables}
        tables = {table for table, _ in parts.values()}
        while variables:
            saved = self._saved
            if saved is None:
                return None
            wanted = {name: v for name, v in saved.variables.items() if v in tables}
            try:
                arrays = shards.read(saved.path, "ParameterServer").arrays
            except FileFormatError:
                if saved is not self._saved:  # a newer one has replaced it meanwhile
                    continue
                return None
            values = state.fitted(wanted, arrays)[0]
            if len(values) < len(tables):
                return None
            return {v: make(values[table]) for v, (table, make) in parts.items()}
        return {}

    def _assign(self, values: dict[Variable, Any]) -> None:
        followed = self._shadows.unchanged(values)
        assign_together(values)
        self._shadows.note(followed)  # separate changes of replicas are kept

    def _tell(self, lost: list[Held], restored: int, steps: int) -> None:
        if restored and self._saved is not None:
            ago = steps - self._saved.steps
            after = f"{restored} Variables are as in {self._saved.path.name}, {ago} steps ago"
        else:
            after = "its counts since the last merge are lost, and its step is repeated"
        warnings.warn(f"{', '.join(by_task(lost))} was lost: {after}", stacklevel=3)
