"""Parts of Variables' values that are written when a run of several plans is over.

What such a step gives is no new value but what is to be written where: all that may be refused is
looked at then. Once nothing can fail any more, whoever keeps the values lets them be written; until
then the old ones are there for all that reads them, and if the run fails they stay. A value that
somebody else still holds is copied first, and the copy is written over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.graph.graph import Graph
from eagerflow.plan.in_place import write_of
from eagerflow.plan.plan import error_of_step

__all__ = ["PartWrite", "copied", "part_write_of", "written"]

REFERENCES = 3
"""To a value that is written over, if nobody else has any: of who keeps it, the PartWrite, and the
list of values that the question is about."""


class PartWrite(NamedTuple):
    """A value of which a part is to be written over: where runs of elements begin, and these."""

    array: Any
    places: Any
    values: Any


def part_write_of(graph: Graph) -> Callable[[Sequence[Any]], list[PartWrite]] | None:
    """What makes a PartWrite of the inputs of a graph's only node; None where none can be asked."""
    if not kernel.can_ask():
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
        except Exception as error:
            raise error_of_step(error, node) from error

    return call


def copied(value: Any) -> Any:
    """A value as it will be, without a change to the one that is there."""
    if type(value) is not PartWrite:
        return value
    made = value._replace(array=np.array(value.array, order="C"))
    _write([made])
    return made.array


def written(values: Sequence[Any]) -> list[Any]:
    """Values of which those that are PartWrites are written now, where nobody else holds them.

    The caller is who keeps them, in one place each, and gives them to no other thread meanwhile.
    Raises MemoryError, with nothing written, if there is none for copies.
    """
    writes = {i: x for i, x in enumerate(values) if type(x) is PartWrite}
    if not writes:
        return list(values)
    holders = kernel.team([], 1, REFERENCES, REFERENCES)[1]
    for i, one in writes.items():
        own = [one.array]
        holders.look_at(own, own)
        fits = one.array.flags.writeable and one.array.flags.c_contiguous
        if not fits or holders.ask():
            writes[i] = one._replace(array=np.array(one.array, order="C"))
    _write([*writes.values()])
    return [writes[i].array if i in writes else x for i, x in enumerate(values)]


def _write(writes: Sequence[PartWrite]) -> None:
    """Write all, in one call that needs no memory."""
    jobs = [kernel.part_job() for _ in writes]
    team, _ = kernel.team(jobs, 1, REFERENCES, REFERENCES)
    for job, one in zip(jobs, writes, strict=True):
        job.ready(*one)
    team.work()
