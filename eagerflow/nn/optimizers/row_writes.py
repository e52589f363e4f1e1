"""Rows of Variables, written where they are if nobody else holds the old values.

Copies of tables cost more than steps of few rows. So the step waits for the moment in which all
Variables get their values, asks in the same moment who holds the old ones, and writes over them;
where somebody does, it is a copy after all, and where there is no machine code. All of it are calls
of C functions, between which no other thread, signal handler or finalizer runs, and which need no
memory once the first row is written, as with plans that write in place.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.codegen import kernel
from eagerflow.locks import writing
from eagerflow.op import spec_of
from eagerflow.plan.in_place import write_over
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable, assign_together, replace_values

__all__ = ["RowWrite", "assign_with_rows", "copied"]

# References to a value at the moment of the question, if nobody else has any:
TENSOR_REFERENCES = 3
"""The Variable, and two lists on the way."""
ARRAY_REFERENCES = 2
"""Its Tensor, and the new one."""

_INDEX = ("array",)


class RowWrite(NamedTuple):
    """New rows of a Variable, at the places ``indices``."""

    variable: Variable
    indices: Tensor
    rows: Tensor

    def copied(self) -> Tensor:
        """The next value, as a copy."""
        found: Tensor = ops.index_set(self.variable.value, self.rows, self.indices, index=_INDEX)
        return found

    def fits(self) -> bool:
        """Whether the rows may be written into the value's own array."""
        array = self.variable.current._array
        return (
            type(array) is np.ndarray
            and array.flags.writeable
            and array.flags.c_contiguous
            and type(self.rows._array) is np.ndarray
        )

    def ready(self, job: Any, old: Tensor) -> Any:
        """Let a job write the rows over the old value; gives what it reads. IndexRangeError."""
        tell = _teller(spec_of(old), spec_of(self.rows), spec_of(self.indices))
        read = tell(old._array, self.rows._array, self.indices._array)
        job.ready(old._array, *read)
        return read


@lru_cache(maxsize=256)
def _teller(*specs: Any) -> Any:
    """What tells which elements are written; see ``Op.writes``."""
    return ops.index_set.op.writes(*specs, index=_INDEX)


def copied(values: dict[Variable, Any]) -> dict[Variable, Tensor]:
    """Next values with copies in place of new rows."""
    return {v: x.copied() if type(x) is RowWrite else x for v, x in values.items()}


def assign_with_rows(values: dict[Variable, Any]) -> None:
    """Give Variables new values, and some of them new rows, all in one moment."""
    writes = [x for x in values.values() if type(x) is RowWrite]
    if not writes:
        assign_together(values)
        return
    fitted = {v: v.fitted(x) for v, x in values.items() if type(x) is not RowWrite}
    cells = [*fitted, *(w.variable for w in writes)]
    made = [variable.own(tensor) for variable, tensor in fitted.items()]
    if kernel.can_ask() and all(w.fits() for w in writes) and not _written(cells, made, writes):
        return
    made += [w.variable.own(w.copied()) for w in writes]
    while replace_values(cells, made):
        writing.wait()


def _written(cells: list[Variable], made: list[Tensor], writes: list[RowWrite]) -> bool:
    """Write rows where they are; whether it was refused."""
    old = [w.variable.current for w in writes]
    new = [new_tensor(tensor._array, tensor._kind) for tensor in old]
    idle = _idle[len(writes)]
    try:
        jobs, team, holders = own = idle.pop()
    except IndexError:
        jobs, team, holders = own = _made(len(writes))
    read = [w.ready(job, tensor) for w, job, tensor in zip(writes, jobs, old, strict=True)]
    holders.look_at(old, [tensor._array for tensor in old])
    refused = write_over(cells, [*made, *new], holders.ask, team.work)
    del read  # which the jobs had the addresses of
    idle.append(own)
    return refused


_idle: defaultdict[int, list[Any]] = defaultdict(list)
"""By their number, what writes rows of several Variables and is at no work."""


def _made(count: int) -> Any:
    """Jobs, the team that does them, and what asks who holds the values that they write over."""
    jobs = [kernel.part_job() for _ in range(count)]
    return jobs, *kernel.team(jobs, count, TENSOR_REFERENCES, ARRAY_REFERENCES)
