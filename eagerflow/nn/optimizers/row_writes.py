"""Rows of Variables, written where they are if nobody else holds the old values.

Copies of tables cost more than steps of few rows. So the step waits for the moment in which all
Variables get their values, asks in the same moment who holds the old ones, and writes over them;
where somebody does, it is a copy after all. All of it are calls of C functions, between which no
other thread, signal handler or finalizer runs, as with plans that write in place.
"""

from __future__ import annotations

from functools import partial
from operator import gt
from sys import getrefcount
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.locks import writing
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable, assign_together, replace_values

__all__ = ["RowWrite", "assign_with_rows", "copied"]

# References to a value at the moment of the question, if nobody else has any:
TENSOR_REFERENCES = 5
"""The Variable, three lists on the way, and the question."""
ARRAY_REFERENCES = 6
"""Its Tensor, the new one, the call that writes, two lists on the way, and the question."""


class RowWrite(NamedTuple):
    """New rows of a Variable, at the places ``indices``."""

    variable: Variable
    indices: Tensor
    rows: Tensor

    def copied(self) -> Tensor:
        """The next value, as a copy."""
        found: Tensor = ops.index_set(
            self.variable.value, self.rows, self.indices, index=("array",)
        )
        return found

    def fits(self) -> bool:
        """Whether the rows may be written into the value's own array."""
        array = self.variable.current._array
        return (
            type(array) is np.ndarray
            and array.flags.writeable
            and not isinstance(array.base, np.ndarray)  # whose other views nobody counts
            and type(self.rows._array) is np.ndarray
            and self.rows._array.dtype == array.dtype
        )


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
    if all(w.fits() for w in writes) and not _written(cells, made, writes):
        return
    made += [w.variable.own(w.copied()) for w in writes]
    while replace_values(cells, made):
        writing.wait()


def _written(cells: list[Variable], made: list[Tensor], writes: list[RowWrite]) -> bool:
    """Write rows where they are; whether it was refused."""
    old = [w.variable.current for w in writes]
    arrays = [tensor._array for tensor in old]
    new = [new_tensor(tensor._array, tensor._kind) for tensor in old]
    put: list[Any] = [
        partial(np.ndarray.__setitem__, x._array, w.indices._array, w.rows._array)
        for x, w in zip(old, writes, strict=True)
    ]
    limits = [TENSOR_REFERENCES] * len(old) + [ARRAY_REFERENCES] * len(old)
    held = partial(any, map(gt, map(getrefcount, [*old, *arrays]), limits))
    try:
        return replace_values(cells, [*made, *new], (held, writing.begin(), *put), (writing.end,))
    finally:
        if writing.thread == get_ident():  # a call has failed, for lack of memory
            writing.end()
