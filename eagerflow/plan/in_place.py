"""Variables updated in place: all updates of a step in one atomic call.

Everything that can fail, or that other code may observe, comes first: a plan runs to its end, and
the kernels that overwrite Variables' values are only prepared. Then one call checks that
the run still owns these values, runs the kernels, and gives all Variables their new
values. To signal handlers, finalizers, other threads or forked children, this is atomic.
From the first write on no memory is allocated, so nothing can interrupt it.

A run overwrites a value only if its Variable is the only owner: if it was made for this
Variable by an earlier commit, or copied into it, has not been read since (``Variable._owner``), and
no other run uses it. Any other value is copied, and the copy is overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from eagerflow.graph.ir import Cell, Node, Value
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
    """A step that computes new values of Variables from the old ones, elementwise.

    It is called with a ``Commit`` and the step's inputs, and returns the arrays that will hold its
    outputs after the commit. ``pairs`` are indices of outputs and inputs that share
    one array, ``places`` for each of them the Variable's indices, among those that the graph
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
        """The outputs' arrays, to be filled later."""
        return commit.ready(self, list(inputs))

    def new_job(self) -> Any:
        """The state of one run at a time."""
        raise NotImplementedError


class KernelUpdate(Update):
    """A region with outputs in place of some inputs."""

    __slots__ = ("call", "made")

    def __init__(
        self, graph: Graph, fused: FusedKernel, pairs: dict[int, int], call: FusedCall
    ) -> None:
        super().__init__(graph, fused, pairs)
        self.call = call
        self.made = [(v.shape, v.dtype) for v in fused.outputs]

    def new_job(self) -> KernelJob:
        """A kernel to be prepared for each run."""
        return KernelJob(self, self.call.deferred().new_job())

    def source(self) -> str:
        """The region as text."""
        return str(self.call.source())


class PartUpdate(Update):
    """An op that overwrites a part of its first argument; see ``Op.writes``."""

    __slots__ = ("write",)

    def __init__(self, graph: Graph, node: Node, write: Any) -> None:
        super().__init__(graph, node, {0: 0})
        self.write = write

    def new_job(self) -> PartJob:
        """A call to be prepared for each run."""
        return PartJob(self)


class KernelJob:
    """A kernel prepared for one run: its arrays, including inputs to overwrite."""

    def __init__(self, update: KernelUpdate, job: Any) -> None:
        self.update = update
        self.job = job

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Take the inputs; returns the outputs' arrays, some of which are inputs."""
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
        except LayoutError:  # the kernel needs contiguous arrays of native dtypes
            usual = [np.asarray(x, as_dtype(x.dtype)) for x in inputs]
            inputs = [np.array(x, order="C", subok=False) for x in usual]
            self.job.fill([*inputs, *outputs()])
        return outputs()

    def copy(self) -> list[Any]:
        """Overwrite copies of the inputs instead; returns them, in the order of ``places``."""
        arrays = list(self.job.arrays)
        count = len(arrays) - len(self.update.made)
        made = []
        for k, i in self.update.pairs.items():
            arrays[i] = arrays[count + k] = copied(arrays[i])
            made.append(arrays[i])
        self.job.fill(arrays)
        return made


class PartJob:
    """A partial write prepared for one run: the part of an array, and its new values."""

    def __init__(self, update: PartUpdate) -> None:
        self.update = update
        self.job = kernel.part_job()

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Take the array, and compute the part from the inputs' contents; returns the array."""
        array = np.asarray(inputs[0], order="C")
        self.job.ready(array, *self.update.write(*inputs))
        return [array]

    def copy(self) -> list[Any]:
        """Overwrite a copy of the array instead; returns it."""
        array, places, values = self.job.arrays
        made = copied(array)
        self.job.ready(made, places, values)
        return [made]


def copied(array: Any) -> Any:
    """A copy in C's order, in memory of the pool."""
    made = empty(array.shape, array.dtype)
    np.copyto(made, array)
    return made


class Commit:
    """The end of one run at a time: prepared jobs, and the Variables that they update."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.updates = updates
        self._targets = [place for update in updates for place in update.places]
        self._jobs = [update.new_job() for update in updates]
        own = [job.job for job in self._jobs]
        self._team = kernel.team(own)
        self._helpers = max([job.pieces for job in own], default=1) - 1
        self.owned: Sequence[bool] = ()
        """Flags of the graph's Variables with values that the run may overwrite; () for none."""

    def ready(self, update: Update, inputs: list[Any]) -> list[Any]:
        """Prepare an update's job, which holds its inputs; returns its outputs' arrays."""
        for i, (n, _) in zip(update.pairs.values(), update.places, strict=True):
            if not (self.owned and self.owned[n]):
                inputs[i] = copied(inputs[i])
        found: list[Any] = self._jobs[update.number].ready(inputs)
        return found

    def run(self) -> None:
        """Run the jobs on copies: no Variable is changed."""
        self._team.run(min(self._helpers, threads.helpers()))
        self.clear()

    def replace(
        self,
        variables: Sequence[Variable],
        old: Sequence[Tensor],
        new: Sequence[Tensor],
        reads: frozenset[int],
    ) -> None:
        """Run the jobs and give Variables their new Tensors, atomically.

        ``old`` are the Tensors at the start of the run, of all Variables that it ``reads``; ``new``
        wrap the arrays that will hold the new values of ``variables``.
        """
        if self._helpers > 0:
            self._team.invite(min(self._helpers, threads.helpers()))
        owners: list[Tensor | None] = [None] * len(new)
        for _, k in self._targets:
            owners[k] = new[k]
        over = [(variables[k], old[n]) for n, k in self._targets if new[k]._array is old[n]._array]
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
        """Release the arrays."""
        for job in self._jobs:
            job.job.clear()


def write_over(
    variables: Sequence[Variable],
    tensors: Sequence[Tensor],
    held: Callable[[], Any],
    work: Callable[[], Any],
    owners: Sequence[Tensor | None] | None = None,
) -> bool:
    """Run ``work``, which overwrites values, and give Variables Tensors; True if rejected.

    All of it is atomic; it is rejected, with nothing changed, if ``held()`` reports
    other references to the values to overwrite, or if another thread is writing.
    """
    before = held, writing.begin(), work
    try:
        return replace_values(variables, tensors, before, (writing.end,), owners)
    except raised_here(ArgumentError) as error:  # raised by ctypes for an error in a callback
        raise MemoryError from error
    finally:
        if writing.thread == get_ident():  # there was no memory to call ``work``
            writing.end()


def arrange(graph: Graph, steps: Sequence[Step]) -> tuple[list[Step], dict[Step, Update]]:
    """The steps, with in-place updates of Variables last, and these updates.

    A step is one if nothing else reads its results or, after it, the old values, and if these do
    not leave the plan.
    """
    finals = Counter(graph.all_outputs())  # a new value that is also a result must not change
    cells = {c.assigned: c for c in graph.cells if c.assigned and finals[c.assigned] == 1}
    found = {step: pairs for step in steps if (pairs := _pairs(cells, step))}
    used = {v for step in steps for v in step.inputs if type(v) is Value}
    late = {step: pairs for step, pairs in found.items() if used.isdisjoint(step.outputs)}
    order = [*(s for s in steps if s not in late), *late]
    lifetimes = Lifetimes(order, graph.all_inputs(), graph.all_outputs())
    updates: dict[Step, Update] = {}
    readers = Counter(lifetimes.root(v) for s in late for v in s.inputs)
    for step, pairs in late.items():
        free = {
            k: i
            for k, i in pairs.items()
            if (root := lifetimes.root(step.inputs[i])) not in lifetimes.leaving
            and readers[root] == 1  # only this step reads it at the end, and no view of it does
        }
        if free and (update := _update(graph, step, free)) is not None:
            updates[step] = update
    return [*(s for s in steps if s not in updates), *updates], updates


def _update(graph: Graph, step: Step, pairs: dict[int, int]) -> Update | None:
    """The update of a step that overwrites these inputs; None if it cannot."""
    if isinstance(step, Node):
        write = write_of(step) if kernel.can_defer() else None
        return None if write is None else PartUpdate(graph, step, write)
    call = step.prepare(inplace=list(pairs.items()))
    return KernelUpdate(graph, step, pairs, call) if call.deferred() is not None else None


def write_of(node: Node) -> Any:
    """A function that returns the part of the first input that a node overwrites."""
    write: Any = node.op.writes
    return write(*[spec_of(x) for x in node.inputs], **node.attributes)


def _pairs(cells: Mapping[Value, Cell], step: Step) -> dict[int, int]:
    """Outputs that are new values of Variables, by the inputs that are the old ones.

    ``cells`` has the Variables of new values that nothing else takes.
    """
    could = _places(step)
    found = {}
    for k, made in enumerate(step.outputs):
        cell = cells.get(made)
        if cell is None or cell.value not in step.inputs:
            continue
        i = step.inputs.index(cell.value)
        if (k, i) in could and nbytes(cell.value) >= MIN_OWNED_BYTES:
            found[k] = i
    return found


def _places(step: Step) -> Sequence[tuple[int, int]]:
    """Outputs and inputs that may share one array."""
    if isinstance(step, Node):
        return [] if step.op.writes is None else [(0, 0)]
    # Errors must be raised before anything is written.
    return () if any(node.op.fails for node in step.nodes) else step.inplace
