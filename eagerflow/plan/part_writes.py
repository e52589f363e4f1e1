"""Partial writes to Variables' values, made when nothing can fail any more.

The result of a step of several plans, or of eager calls, for such a part is no new value but a
pending write of values to positions: everything that may be invalid is checked when it is made.
At the end the owner of the values performs the writes; until then readers see the old values, and
if the step fails, these stay. A value with other references is copied first, and the copy is
overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter, call, is_not
from typing import Any, NamedTuple

import numpy as np

from eagerflow.backends.numpy import is_foreign
from eagerflow.codegen import kernel
from eagerflow.codegen.llvm.reference_counts import Holders
from eagerflow.graph.graph import Graph
from eagerflow.handlers import raised_here
from eagerflow.plan.in_place import write_of, write_over
from eagerflow.plan.plan import error_of_step
from eagerflow.runtime.shared_memory import is_here
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable, read_together

__all__ = ["PartWrite", "copied", "part_write_of", "put_with_parts", "written"]

# Steps that are not captured read tables between their writes, so owners' marks do not apply, and
# references are counted instead. All expected references at that time are held by objects, none by
# an interpreter frame, and the same call checks that the Variables still hold their Tensors.
KEPT_REFERENCES = 3
"""Held by the container of an array, the PartWrite, and the checked list."""
TENSOR_REFERENCES = 3
"""Held by the Variable, the list of old values here, and that of ``replace_values``."""
ARRAY_REFERENCES = 4
"""Held by the Variable's Tensor, the new one, the PartWrite, and the writing job."""


class PartWrite(NamedTuple):
    """A pending write to a part of a value: start indices of runs of elements, and the elements."""

    array: Any
    places: Any
    values: Any

    @property
    def nbytes(self) -> int:
        """The bytes of the new elements and their positions."""
        return int(self.places.nbytes + self.values.nbytes)

    @property
    def fits(self) -> bool:
        """Whether the value may be overwritten in place, if there is no other reference."""
        array = self.array
        is_plain = type(array) is np.ndarray and array.flags.writeable and array.flags.c_contiguous
        return is_plain and not is_foreign(array) and not is_here(array)


def part_write_of(graph: Graph) -> Callable[[Sequence[Any]], list[PartWrite]] | None:
    """A function that makes a PartWrite from the inputs of a graph's only node.

    None if references cannot be counted.
    """
    if not kernel.can_count():
        return None
    (node,) = graph.nodes
    tell = write_of(node)
    known = [v for v in node.inputs if v.constant is not None]
    constants = [v.constant._array for v in known]
    order = [[*graph.inputs, *known].index(v) for v in node.inputs]

    def call(arrays: Sequence[Any]) -> list[PartWrite]:
        given = [*arrays, *constants]
        array, *rest = [given[i] for i in order]
        try:
            return [PartWrite(array, *tell(array, *rest))]
        except raised_here(Exception) as error:
            raise error_of_step(error, node) from error

    return call


def copied(value: Any) -> Any:
    """The value after the write, without a change to the original."""
    if type(value) is not PartWrite:
        return value
    made = value._replace(array=np.array(value.array, order="C"))
    _write([made])
    return made.array


def written(values: Sequence[Any]) -> list[Any]:
    """Values with all PartWrites performed, in place if there are no other references.

    The caller holds each of them once, and passes them to no other thread meanwhile.
    Raises MemoryError, with nothing written, if copies do not fit in memory.
    """
    writes = {i: x for i, x in enumerate(values) if type(x) is PartWrite}
    if not writes:
        return list(values)
    _, _, holders = _made(1, KEPT_REFERENCES, KEPT_REFERENCES)
    for i, one in writes.items():
        own = [one.array]
        holders.look_at(own, own)
        if not one.fits or holders.ask():
            writes[i] = one._replace(array=np.array(one.array, order="C"))
    _write([*writes.values()])
    return [writes[i].array if i in writes else x for i, x in enumerate(values)]


def put_with_parts(
    variables: Sequence[Variable], tensors: Sequence[Tensor], parts: Mapping[Variable, PartWrite]
) -> bool:
    """Give Variables Tensors, and write parts of the values of others, atomically.

    Returns True if it was rejected, with nothing changed: because of other references to the
    values, or because another thread is writing.
    """
    old = read_together([*parts])
    if not all(t._array is x.array and x.fits for t, x in zip(old, parts.values(), strict=True)):
        return True
    new = [new_tensor(t._array, t._kind) for t in old]
    idle = _idle[len(old)]
    try:
        jobs, team, holders = own = idle.pop()
    except raised_here(IndexError):
        jobs, team, holders = own = _made(len(old))
    for job, one in zip(jobs, parts.values(), strict=True):
        job.ready(*one)
    del one
    holders.look_at(old, [t._array for t in old])
    replaced = map(is_not, map(attrgetter("_current"), parts), old)
    held = partial(any, map(call, (holders.ask, partial(any, replaced))))
    refused = write_over([*variables, *parts], [*tensors, *new], held, team.work)
    for job in jobs:
        job.clear()
    idle.append(own)
    return refused


_idle: defaultdict[int, list[Any]] = defaultdict(list)
"""Idle teams for partial writes, by their number of values."""


def _made(count: int, tensors: int = TENSOR_REFERENCES, arrays: int = ARRAY_REFERENCES) -> Any:
    """Jobs, the team that runs them, and a check for references to the values they overwrite."""
    jobs = [kernel.part_job() for _ in range(count)]
    return jobs, kernel.team(jobs), Holders(count, tensors, arrays)


def _write(writes: Sequence[PartWrite]) -> None:
    """Perform all writes, in one call that allocates no memory."""
    jobs, team, _ = _made(len(writes))
    for job, one in zip(jobs, writes, strict=True):
        job.ready(*one)
    team.work()
