"""Staging: what workers compute for a step waits until it is known which of them count.

A worker's gradients, and the new values of what it changes for itself (counts of metrics, running
means, random states), go into Variables that only a push reads. One push for those workers that
count makes all of it valid, or nothing. So a part that comes too late changes nothing, and one
that is made again counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce

from eagerflow.cluster.pushing import Compute, Push
from eagerflow.cluster.replication import Replicated, Shadow
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.ops.elementwise.arithmetic import add, multiply
from eagerflow.variable import Variable

__all__ = ["StagedCompute", "joint_push"]


class StagedCompute(Compute):
    """What a worker computes by itself, with new values of its own in ``staged`` Variables."""

    @cached_property
    def staged(self) -> dict[Variable, Variable]:
        """Those with the new values, by those that a push gives them to."""
        return {}

    def _assign(self, cell: Cell, r: int) -> Value:
        new = cell.assigned
        assert new is not None
        self._cell(cell, r)  # which a push gives the value, also where nothing reads it here
        value: Value = self._at(r, new)
        self.staged[cell.variable] = self.keep(cell.value, cell.name, value).variable
        return value


def joint_push(
    computed: Mapping[int, StagedCompute],
    shares: Mapping[int, float],
    devices: Sequence[str],
    shadow: Shadow,
    homes: Sequence[int],
) -> Replicated:
    """What servers make of the gradients that these workers have, by their places.

    ``shares`` are the weights of their gradients. What each of them has staged becomes valid.
    Raises ArgumentError where the workers' graphs differ otherwise than in sizes.
    """
    return _JointPush(computed, shares, devices, shadow, homes).made()


class _JointPush(Push):
    def __init__(
        self,
        computed: Mapping[int, StagedCompute],
        shares: Mapping[int, float],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
    ) -> None:
        graphs = [
            computed[r].first if r in computed else None for r in range(len(devices) - len(homes))
        ]
        super().__init__(graphs, devices, shadow, homes, {})
        self._computed, self._shares = computed, shares

    def _sum(self, i: int, node: Node) -> None:
        """The mean of those that count, added in the order of the workers."""
        (mean,) = node.outputs
        home = self.home[mean]
        terms = [self._term(i, mean, r, home) for r in self.workers]
        self.shared[mean] = reduce(lambda x, y: self._call(mean, add, (x, y), home), terms)

    def _term(self, i: int, mean: Value, r: int, home: int) -> Value:
        own = self._computed[r]
        (name,) = own.first.nodes[i].outputs
        value = self.read_kept(mean, own.gradients[name], r)
        share = self._shares[r]
        return value if share == 1.0 else self._call(mean, multiply, (value, share), home)

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        staged = []
        for cell in self.first.cells:
            for r in self.workers if cell in self.local and cell.assigned is not None else ():
                variable = self._computed[r].staged[cell.variable]
                own = self._cell(cell, r)
                own.assigned = self.read_kept(cell.value, variable, r)
                staged.append(own.assigned)
        return super()._cells([*asked, *staged])
