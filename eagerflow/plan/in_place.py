"""Variables updated in place: all of a step's, in one call that nothing can come between.

Everything that can fail, or that anybody may look at, comes first: a plan runs to its end, and
the kernels that are to write over Variables' values are only made ready. Then one call asks whether
nobody else holds these values, runs the kernels, and gives all Variables their new values. For
whoever looks, from a signal handler, a finalizer, another thread or a forked child, that is one
moment. From the first write on nothing needs memory, so nothing can break it off. A value that
somebody holds is copied first, and the copy is written over.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, cast

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.fusion.kernels import FusedCall, FusedKernel, Step
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.locks import writing
from eagerflow.op import spec_of
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.runtime import threads
from eagerflow.runtime.buffers import empty
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, replace_values

MIN_IN_PLACE_BYTES = 1 << 17
"""Bytes of a Variable from which new memory costs more than to ask who else holds the old one."""

# References to an updated value at the moment of the question, if nobody else has any:
TENSOR_REFERENCES = 3
"""The Variable, and the lists of old values in the calls on the way."""
ARRAY_REFERENCES = 5
"""Its Tensor, the arguments of the run, those of the kernel, the results, and the new Tensor."""


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
    """A kernel that is ready, with the arrays that it reads and writes over."""

    def __init__(self, update: KernelUpdate, job: Any) -> None:
        self.update = update
        self.job = job
        self._inputs: list[Any] = []

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Hold the inputs; gives the outputs' arrays."""
        outputs = self._filled(inputs)
        if not outputs:  # some lie otherwise in memory than the kernel expects
            inputs = [np.array(x, order="C", subok=False) for x in inputs]
            outputs = self._filled(inputs)
        self._inputs = inputs
        return outputs

    def _filled(self, inputs: list[Any]) -> list[Any]:
        pairs = self.update.pairs
        outputs = [
            inputs[pairs[k]] if k in pairs else empty(shape, dtype)
            for k, (shape, dtype) in enumerate(self.update.made)
        ]
        return [] if self.job.fill([*inputs, *outputs]) else outputs

    def copy(self, places: dict[int, Tensor]) -> None:
        """Write over copies, which the Tensors around these arrays get."""
        for i in self.update.pairs.values():
            tensor = places[id(self._inputs[i])]
            self._inputs[i] = tensor._array = self._inputs[i].copy()
        self._filled(self._inputs)

    def clear(self) -> None:
        """Let go of arrays."""
        self._inputs = []


class _PartJob:
    """A part that is ready to be written over, with its array and what is written there."""

    def __init__(self, update: PartUpdate) -> None:
        self.update = update
        self.job = kernel.part_job()
        self._arrays: tuple[Any, ...] = ()

    def ready(self, inputs: list[Any]) -> list[Any]:
        """Hold the array, and what the inputs, which are looked at, tell; gives the array."""
        array = np.asarray(inputs[0], order="C")
        self._hold(array, *self.update.write(*inputs))
        return [array]

    def _hold(self, *arrays: Any) -> None:
        self._arrays = arrays
        self.job.ready(*arrays)

    def copy(self, places: dict[int, Tensor]) -> None:
        """Write over a copy, which the Tensor around the array gets."""
        array, *rest = self._arrays
        tensor = places[id(array)]
        tensor._array = array.copy()
        self._hold(tensor._array, *rest)

    def clear(self) -> None:
        """Let go of arrays."""
        self._arrays = ()


class Commit:
    """The end of one run at a time: what is ready, and the Variables that it updates."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.updates = updates
        self._jobs = [update.new_job() for update in updates]
        own = [job.job for job in self._jobs]
        self._team, self._holders = kernel.team(
            own, sum(len(u.pairs) for u in updates), TENSOR_REFERENCES, ARRAY_REFERENCES
        )
        self._helpers = max([job.pieces for job in own], default=1) - 1
        self._places = [place for update in updates for place in update.places]
        self.copies = False  # whether all values are copied first, as without Variables

    def ready(self, update: Update, inputs: list[Any]) -> list[Any]:
        """Make an update's job ready, which holds its inputs; gives its outputs' arrays."""
        for i in update.pairs.values():
            if self.copies or not inputs[i].flags.writeable:
                inputs[i] = inputs[i].copy()
        found: list[Any] = self._jobs[update.number].ready(inputs)
        return found

    def run(self) -> None:
        """Do the jobs on copies: no Variable has a new value."""
        self._team.run(min(self._helpers, threads.helpers()))
        self.clear()

    def replace(
        self, variables: Sequence[Variable], old: Sequence[Tensor], new: Sequence[Tensor]
    ) -> None:
        """Do the jobs and give Variables their new Tensors, in one moment for all others.

        ``old`` are the Tensors that the run began with, of all Variables that it reads; ``new``
        stand around the arrays that will hold the new values of ``variables``.
        """
        self._ask(old, new)
        if self._helpers > 0:
            self._team.invite(min(self._helpers, threads.helpers()))
        while write_over(variables, new, self._holders.ask, self._team.work):
            if writing.thread:
                writing.wait()
            else:
                places = {id(t._array): t for t in new}
                for job in self._jobs:  # somebody has taken hold of a value since the run began
                    job.copy(places)
                self._holders.look_at((), ())
        self.clear()

    def _ask(self, old: Sequence[Tensor], new: Sequence[Tensor]) -> None:
        """Let the question be about the values that are written over where they are."""
        held = [old[i] for i, k in self._places if new[k]._array is old[i]._array]
        self._holders.look_at(held, [t._array for t in held])

    def clear(self) -> None:
        """Let go of arrays."""
        for job in self._jobs:
            job.clear()


def write_over(
    variables: Sequence[Variable],
    tensors: Sequence[Tensor],
    held: Callable[[], Any],
    work: Callable[[], Any],
) -> bool:
    """Do ``work``, which writes over values, and give Variables Tensors; whether it was refused.

    It is all done in one moment for all others; refused, and nothing done, if ``held()`` says that
    somebody holds what would be written over, or if another thread writes.
    """
    try:
        return replace_values(variables, tensors, (held, writing.begin(), work), (writing.end,))
    except ctypes.ArgumentError as error:  # what ctypes makes of it
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
        write = write_of(step) if kernel.can_ask() else None
        return None if write is None else PartUpdate(graph, step, write)
    call = step.prepare(inplace=list(pairs.items()))
    return KernelUpdate(graph, step, pairs, call) if call.deferred() is not None else None


def write_of(node: Node) -> Any:
    """What tells the part of the first input that a node writes over; see ``Op.writes``."""
    write: Any = node.op.writes
    return write(*map(spec_of, node.inputs), **node.attributes)


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
        if (k, i) in could and nbytes(cell.value) >= MIN_IN_PLACE_BYTES:
            found[k] = i
    return found


def _places(step: Step) -> Sequence[tuple[int, int]]:
    """Outputs and inputs that may be one array."""
    if isinstance(step, Node):
        return [] if step.op.writes is None else [(0, 0)]
    # What may be refused must be so before anything is written.
    return () if any(node.op.fails for node in step.nodes) else step.inplace
