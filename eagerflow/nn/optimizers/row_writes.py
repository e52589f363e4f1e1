"""Rows of Variables, written in place if there are no other references to the old values.

Copies of tables cost more than steps of few rows. So the step waits for the commit, in which all
Variables get their values, checks at the same moment for references to the old ones, and overwrites
them; if there are some, or without machine code, it copies. All are calls of C functions, between
which no other thread, signal handler or finalizer runs, and which allocate no memory once the first
row is written, as in plans that write in place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.codegen import kernel
from eagerflow.locks import writing
from eagerflow.op import spec_of
from eagerflow.plan.part_writes import PartWrite, put_with_parts
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together, replace_values

__all__ = ["RowWrite", "assign_with_rows", "copied"]

_INDEX = ("array",)


class RowWrite(NamedTuple):
    """New rows of a Variable, at ``indices``."""

    variable: Variable
    indices: Tensor
    rows: Tensor

    def copied(self) -> Tensor:
        """The next value, as a copy."""
        found: Tensor = ops.index_set(self.variable.value, self.rows, self.indices, index=_INDEX)
        return found

    @property
    def is_on_host(self) -> bool:
        """Whether the value and its new rows are arrays of NumPy's."""
        return all(type(t._array) is np.ndarray for t in (self.variable.current, self.rows))

    def told(self) -> PartWrite:
        """The rows in the form for writing; IndexRangeError for invalid indices."""
        old, rows, indices = self.variable.current, self.rows, self.indices
        tell = _teller(spec_of(old), spec_of(rows), spec_of(indices))
        return PartWrite(old._array, *tell(old._array, rows._array, indices._array))


@lru_cache(maxsize=256)
def _teller(*specs: Any) -> Any:
    """The index of the written elements; see ``Op.writes``."""
    return ops.index_set.op.writes(*specs, index=_INDEX)  # type: ignore[attr-defined]


def copied(values: dict[Variable, Any]) -> dict[Variable, Tensor]:
    """Next values with copies in place of new rows."""
    return {v: x.copied() if type(x) is RowWrite else x for v, x in values.items()}


def assign_with_rows(values: dict[Variable, Any]) -> None:
    """Assign new values to Variables, and new rows to some of them, in one commit."""
    writes = [x for x in values.values() if type(x) is RowWrite]
    if not writes:
        assign_together(values)
        return
    fitted = {v: v.fitted(x) for v, x in values.items() if type(x) is not RowWrite}
    cells = [*fitted, *(w.variable for w in writes)]
    made = [variable.own(tensor) for variable, tensor in fitted.items()]
    if kernel.can_count() and all(w.is_on_host for w in writes):
        parts = {w.variable: w.told() for w in writes}
        if not put_with_parts([*fitted], made, parts):
            return
    made += [w.variable.own(w.copied()) for w in writes]
    while replace_values(cells, made):
        writing.wait()
