"""Variables updated in place: all of a step's, in one call that nothing can come between.

Everything that can fail, or that anybody may look at, comes first: a plan runs to its end, and
the kernels that are to write over Variables' values are only made ready. Then one call asks whether
nobody else holds these values, runs the kernels, and gives all Variables their new values. For
whoever looks, from a signal handler, a finalizer, another thread or a forked child, that is one
moment. A value that somebody holds is copied first, and the copy is written over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.fusion.kernels import FusedCall, FusedKernel, Step
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.locks import writing
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.runtime import threads
from eagerflow.runtime.buffers import empty
from eagerflow.variable import Variable, replace_values

MIN_IN_PLACE_BYTES = 1 << 14
"""Bytes of a Variable from which new memory costs more than to ask who else holds the old one."""

# References to an updated value at the moment of the question, if nobody else has any:
TENSOR_REFERENCES = 4
"""The Variable, and the lists and the table of old values in the calls on the way."""
ARRAY_REFERENCES = 5
"""Its Tensor, the arguments of the run, those of the kernel, the results, and the new Tensor."""


class Update:
    """A step that computes new values of Variables from the old ones, place by place.

    It is called with a ``Commit`` and the step's inputs, and gives the arrays in which its
    outputs will stand when that is made. ``pairs`` are numbers of outputs and inputs that are
    one array.
    """

    __slots__ = ("_call", "_made", "number", "pairs")

    def __init__(self, fused: FusedKernel, pairs: dict[int, int], call: FusedCall) -> None:
        self.pairs = pairs
        self.number = -1
        self._call = call
        self._made = [(v.shape, v.dtype) for v in fused.outputs]

    def __call__(self, commit: Commit, inputs: Sequence[Any]) -> list[Any]:
        """The outputs' arrays, which are filled later."""
        return commit.ready(self, list(inputs))

    def new_job(self) -> Any:
        """What one run at a time needs."""
        return self._call.deferred().new_job()

    def fill(self, job: Any, inputs: list[Any]) -> list[Any]:
        """Make a job ready for these inputs; gives the outputs' arrays."""
        outputs = [
            inputs[self.pairs[k]] if k in self.pairs else empty(shape, dtype)
            for k, (shape, dtype) in enumerate(self._made)
        ]
        return [] if job.fill([*inputs, *outputs]) else outputs

    def source(self) -> str:
        """The region as text."""
        return str(self._call.source())


class Commit:
    """The end of one run at a time: kernels that are ready, and the Variables that they update."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = updates
        self._jobs = [update.new_job() for update in updates]
        self._team, self._holders = kernel.team(
            self._jobs, sum(len(u.pairs) for u in updates), TENSOR_REFERENCES, ARRAY_REFERENCES
        )
        self._helpers = max([job.pieces for job in self._jobs]) - 1
        self._inputs: list[list[Any]] = [[] for _ in updates]
        self.copies = False  # whether all values are copied first, as without Variables

    def ready(self, update: Update, inputs: list[Any]) -> list[Any]:
        """Make an update's kernel ready, and hold its inputs."""
        replaced = update.pairs.values()
        for i in replaced:
            if self.copies or not inputs[i].flags.writeable:
                inputs[i] = inputs[i].copy()
        outputs = update.fill(self._jobs[update.number], inputs)
        if not outputs:  # some lie otherwise in memory than the kernel expects
            inputs = [np.array(x, order="C", subok=False) for x in inputs]
            outputs = update.fill(self._jobs[update.number], inputs)
        self._inputs[update.number] = inputs
        return outputs

    def run(self) -> None:
        """Run the kernels on copies: no Variable has a new value."""
        self._team.run(min(self._helpers, threads.helpers()))
        self.clear()

    def replace(self, old: dict[Variable, Any], new: dict[Variable, Any]) -> None:
        """Run the kernels and give Variables their new Tensors, in one moment for all others.

        ``old`` are the Tensors that the run began with, ``new`` stand around the arrays that
        will hold the new values.
        """
        self._ask(old, new)
        self._team.invite(min(self._helpers, threads.helpers()))
        begin = (self._holders.ask, writing.begin(), self._team.work)
        while replace_values(new, begin, (writing.end,)):
            if writing.thread:
                writing.wait()
            else:
                self._copy(new)
                self._ask({}, {})
        self.clear()

    def _ask(self, old: dict[Variable, Any], new: dict[Variable, Any]) -> None:
        """Let the question be about the values that are written over where they are."""
        pairs = [(t, v) for v, t in old.items() if v in new and new[v]._array is t._array]
        self._holders.look_at([t for t, _ in pairs], [t._array for t, _ in pairs])

    def _copy(self, new: dict[Variable, Any]) -> None:
        """Write over copies: somebody has taken hold of a value since the run began."""
        places = {id(t._array): t for t in new.values()}
        for update in self._updates:
            inputs = self._inputs[update.number]
            for i in update.pairs.values():
                tensor = places[id(inputs[i])]
                inputs[i] = tensor._array = inputs[i].copy()
            update.fill(self._jobs[update.number], inputs)

    def clear(self) -> None:
        """Let go of arrays."""
        self._inputs = [[] for _ in self._updates]


def arrange(graph: Graph, steps: Sequence[Step]) -> tuple[list[Step], dict[Step, Update]]:
    """The steps with those at the end that update Variables in place, and how they are called.

    A step may if nothing else reads its results or, after it, the old values, and if these do not
    leave the plan.
    """
    found = {
        step: pairs
        for step in steps
        if not isinstance(step, Node) and (pairs := _pairs(graph, step))
    }
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
        call = step.prepare(inplace=list(free.items())) if free else None
        if call is not None and call.deferred() is not None:
            updates[step] = Update(step, free, call)
    return [*(s for s in steps if s not in updates), *updates], updates


def _pairs(graph: Graph, fused: FusedKernel) -> dict[int, int]:
    """Outputs that are new values of Variables, and the inputs that are the old ones."""
    if any(node.op.fails for node in fused.nodes):
        return {}  # what may be refused must be so before anything is written
    finals = Counter(graph.all_outputs())  # a new value that is a result too stays as it is
    made = {v: k for k, v in enumerate(fused.outputs) if finals[v] == 1}
    found = {}
    for cell in graph.cells:
        k = None if cell.assigned is None else made.get(cell.assigned)
        if k is None or cell.value not in fused.inputs:
            continue
        i = fused.inputs.index(cell.value)
        if (k, i) in fused.inplace and nbytes(cell.value) >= MIN_IN_PLACE_BYTES:
            found[k] = i
    return found
