"""Variables updated in place: all of a step's, in one call that nothing can come between.

Everything that can fail, or that other code may look at, comes first: a plan runs to its end, and
the kernels that are to write over Variables' values are only made ready. Then one call asks whether
these values still belong to the run alone, runs the kernels, and gives all Variables their new
values. For a signal handler, a finalizer, another thread or a forked child, that is one moment.
From the first write on nothing needs memory, so nothing can break it off.

A run writes over a value only if it belongs to its Variable alone: if it was made for this
Variable by an earlier commit, or copied into it, has not been read since (``Variable._owner``), and
no other run uses it. Any other value is copied, and the copy is written over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import ArgumentError
from threading import get_ident
from typing import Any, cast

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.llvm.jobs import LayoutError
from eagerflow.dtypes import as_dtype
from eagerflow.fusion.kernels import FusedCall, FusedKernel, Step
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.locks import writing
from eagerflow.op import spec_of
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.plan.owners import taken
from eagerflow.runtime import threads
from eagerflow.runtime.buffers import empty
from eagerflow.tensor import Tensor
from eagerflow.variable import MIN_OWNED_BYTES, Variable, replace_values


class Update:
    """A step that computes new values of Variables from the old ones, place by place.

    It is called with a ``Commit`` and the step's inputs, and gives the arrays in which its
    outputs will stand when that is made. ``pairs`` are numbers of outputs and inputs that are
    one array, ``places`` for each of them the Variable's numbers, among those that the graph
    reads and among those that it assigns.
    """

    __slots__ = ("number", "pairs", "places", "step")

    def __init__(self, graph: Graph, step: Step, pairs: dict[int, int]) -> None:
        self.step, self.pairs = step, pairs
        old = [cell.value for cell in graph.cells]
        new = [cell.assigned for cell in graph.cells if cell.assigned is not None]
        self.places = [
            (old.index(cast("Value", step.inputs[i])), new.index(step.outputs[k]))
            for k, i in pairs.items()
        ]
        self.number = -1

    def __call__(self, commit: Commit, inputs: Sequence[Any]) -> list[Any]:
        """The outputs' arrays, which are filled later."""
        return commit.ready(self, list(inputs))

    def new_job(self) -> Any:
        """What one run at a time needs."""
        raise NotImplementedError


class KernelUpdate(Update):
    """A region whose outputs lie in place of some inputs."""

    __slots__ = ("call", "made")

    def __init__(
        self, graph: Graph, fused: FusedKernel, pairs: dict[int, int], call: FusedCall
    ) -> None:
        super().__init__(graph, fused, pairs)
        self.call = call
        self.made = [(v.shape, v.dtype) for v in fused.outputs]

    def new_job(self) -> _KernelJob:
        """A kernel that is made ready for each run."""
        return _KernelJob(self, self.call.deferred().new_job())

    def source(self) -> str:
        """The region as text."""
        return str(self.call.source())


class PartUpdate(Update):
    """An op that writes over a part of its first argument; see ``Op.writes``."""

    __slots__ = ("write",)

    def __init__(self, graph: Graph, node: Node, write: Any) -> None:
        super().__init__(graph, node, {0: 0})
        self.write = write

    def new_job(self) -> _PartJob:
        """A call that is made ready for each run."""
        return _PartJob(self)


class _KernelJob:
    """A kernel made ready for one run: its arrays, of which it writes over some inputs."""

    def __init__(self, update: KernelUpdate, job: Any) -> None:
        self.update = update
        self.job = job

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Take the inputs; gives the outputs' arrays, some of which are inputs."""
        pairs = self.update.pairs
        made = {
            k: empty(shape, dtype)
            for k, (shape, dtype) in enumerate(self.update.made)
            if k not in pairs
        }

        def outputs() -> list[Any]:
            count = len(self.update.made)
            return [inputs[pairs[k]] if k in pairs else made[k] for k in range(count)]

        try:
            self.job.fill([*inputs, *outputs()])
        except LayoutError:  # the kernel expects arrays that are contiguous, of the usual dtypes
            usual = [np.asarray(x, as_dtype(x.dtype)) for x in inputs]
            inputs = [np.array(x, order="C", subok=False) for x in usual]
            self.job.fill([*inputs, *outputs()])
        return outputs()

    def copy(self) -> list[Any]:
        """Write over copies of the inputs instead; gives them, in the order of ``places``."""
        arrays = list(self.job.arrays)
        count = len(arrays) - len(self.update.made)
        made = []
        for k, i in self.update.pairs.items():
            arrays[i] = arrays[count + k] = _copy(arrays[i])
            made.append(arrays[i])
        self.job.fill(arrays)
        return made


class _PartJob:
    """A part of an array made ready for one run, and what is written there."""

    def __init__(self, update: PartUpdate) -> None:
        self.update = update
        self.job = kernel.part_job()

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Take the array, and what the inputs, which are looked at, tell; gives the array."""
        array = np.asarray(inputs[0], order="C")
        self.job.ready(array, *self.update.write(*inputs))
        return [array]

    def copy(self) -> list[Any]:
        """Write over a copy of the array instead; gives it."""
        array, places, values = self.job.arrays
        made = _copy(array)
        self.job.ready(made, places, values)
        return [made]


def _copy(array: Any) -> Any:
    """A copy in C's order, in memory of the pool."""
    made = empty(array.shape, array.dtype)
    np.copyto(made, array)
    return made


class Commit:
    """The end of one run at a time: what is ready, and the Variables that it updates."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.updates = updates
        self._places = [place for update in updates for place in update.places]
        self._jobs = [update.new_job() for update in updates]
        own = [job.job for job in self._jobs]
        self._team = kernel.team(own)
        self._helpers = max([job.pieces for job in own], default=1) - 1
        self.owned: Sequence[bool] = ()
        """Which of the values that the graph reads the run may write over; () for none."""

    def ready(self, update: Update, inputs: list[Any]) -> list[Any]:
        """Make an update's job ready, which holds its inputs; gives its outputs' arrays."""
        for i, (n, _) in zip(update.pairs.values(), update.places, strict=True):
            if not (self.owned and self.owned[n]):
                inputs[i] = _copy(inputs[i])
        found: list[Any] = self._jobs[update.number].ready(inputs)
        return found

    def run(self) -> None:
        """Do the jobs on copies: no Variable has a new value."""
        self._team.run(min(self._helpers, threads.helpers()))
        self.clear()

    def replace(
        self,
        variables: Sequence[Variable],
        old: Sequence[Tensor],
        new: Sequence[Tensor],
        reads: frozenset[int],
    ) -> None:
        """Do the jobs and give Variables their new Tensors, in one moment for all others.

        ``old`` are the Tensors that the run began with, of all Variables that it ``reads``; ``new``
        stand around the arrays that will hold the new values of ``variables``.
        """
        if self._helpers > 0:
            self._team.invite(min(self._helpers, threads.helpers()))
        owners: list[Tensor | None] = [None] * len(new)
        for _, k in self._places:
            owners[k] = new[k]
        over = [(variables[k], old[n]) for n, k in self._places if new[k]._array is old[n]._array]
        cells, values = zip(*over, strict=True) if over else ((), ())
        while write_over(
            variables, new, taken(cells, values, reads) if cells else bool, self._team.work, owners
        ):
            if writing.thread:
                writing.wait()
                continue
            for job in self._jobs:  # a value was read or replaced, or another run uses it
                for (_, k), array in zip(job.update.places, job.copy(), strict=True):
                    new[k]._array = array
            cells = ()
        self.clear()

    def clear(self) -> None:
        """Let go of arrays."""
        for job in self._jobs:
            job.job.clear()


def write_over(
    variables: Sequence[Variable],
    tensors: Sequence[Tensor],
    held: Callable[[], Any],
    work: Callable[[], Any],
    owners: Sequence[Tensor | None] | None = None,
) -> bool:
    """Do ``work``, which writes over values, and give Variables Tensors; whether it was refused.

    It is all done in one moment for all others; refused, and nothing done, if ``held()`` says that
    there are other references to what would be written over, or if another thread writes.
    """
    before = held, writing.begin(), work
    try:
        return replace_values(variables, tensors, before, (writing.end,), owners)
    except raised_here(ArgumentError) as error:  # what ctypes makes of it
        raise MemoryError from error
    finally:
        if writing.thread == get_ident():  # there was no memory to call ``work`` with
            writing.end()


def arrange(graph: Graph, steps: Sequence[Step]) -> tuple[list[Step], dict[Step, Update]]:
    """The steps with those at the end that update Variables in place, and how they are called.

    A step may if nothing else reads its results or, after it, the old values, and if these do not
    leave the plan.
    """
    found = {step: pairs for step in steps if (pairs := _pairs(graph, step))}
    used = {v for step in steps for v in step.inputs if type(v) is Value}
    late = {step: pairs for step, pairs in found.items() if used.isdisjoint(step.outputs)}
    order = [*(s for s in steps if s not in late), *late]
    lifetimes = Lifetimes(order, graph.all_inputs(), graph.all_outputs())
    updates: dict[Step, Update] = {}
    for step, pairs in late.items():
        free = {
            k: i
            for k, i in pairs.items()
            if (root := lifetimes.root(step.inputs[i])) not in lifetimes.leaving
            # Only this step reads it at the end, and no view of it besides.
            and sum(lifetimes.root(v) is root for s in late for v in s.inputs) == 1
        }
        if free and (update := _update(graph, step, free)) is not None:
            updates[step] = update
    return [*(s for s in steps if s not in updates), *updates], updates


def _update(graph: Graph, step: Step, pairs: dict[int, int]) -> Update | None:
    """How a step writes over these inputs; None where it cannot."""
    if isinstance(step, Node):
        write = write_of(step) if kernel.can_defer() else None
        return None if write is None else PartUpdate(graph, step, write)
    call = step.prepare(inplace=list(pairs.items()))
    return KernelUpdate(graph, step, pairs, call) if call.deferred() is not None else None


def write_of(node: Node) -> Any:
    """What tells the part of the first input that a node writes over; see ``Op.writes``."""
    write: Any = node.op.writes
    return write(*[spec_of(x) for x in node.inputs], **node.attributes)


def _pairs(graph: Graph, step: Step) -> dict[int, int]:
    """Outputs that are new values of Variables, and the inputs that are the old ones."""
    could = _places(step)
    finals = Counter(graph.all_outputs())  # a new value that is a result too stays as it is
    made = {v: k for k, v in enumerate(step.outputs) if finals[v] == 1}
    found = {}
    for cell in graph.cells:
        k = None if cell.assigned is None else made.get(cell.assigned)
        if k is None or cell.value not in step.inputs:
            continue
        i = step.inputs.index(cell.value)
        if (k, i) in could and nbytes(cell.value) >= MIN_OWNED_BYTES:
            found[k] = i
    return found


def _places(step: Step) -> Sequence[tuple[int, int]]:
    """Outputs and inputs that may be one array."""
    if isinstance(step, Node):
        return [] if step.op.writes is None else [(0, 0)]
    # What may be refused must be so before anything is written.
    return () if any(node.op.fails for node in step.nodes) else step.inplace
