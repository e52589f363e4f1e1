"""Staging: results of workers for a step are kept aside until it is known which of them count.

A worker's gradients, and the new values of its separate state (counts of metrics, running
means, random states), go into Variables of the servers that only a push reads. One push makes all
of it valid for the workers that count, or nothing. So a part that comes too late changes nothing,
and a repeated one counts once.

The push is one graph for any set of workers: each has a share of the mean as an input, which is
zero if it does not count. No node of the graph is on a worker, so it waits for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from eagerflow.cluster.pushing import Compute, Push
from eagerflow.cluster.replication import Replicated, Replication, Shadow
from eagerflow.dtypes import DType, as_dtype
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import add, multiply
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.selection import where
from eagerflow.runtime.properties import cached_property
from eagerflow.variable import Variable

__all__ = ["StagedCompute", "joint_push"]


class _OnServers(Replication):
    """Separate state of a worker is on a server, where a push can change it."""

    def _cell(self, cell: Cell, r: int) -> Cell:
        found = super()._cell(cell, r)
        if cell in self.local:
            found.value.device = self.devices[self.default]
        return found


class StagedCompute(_OnServers, Compute):
    """The local computation of a worker, with new values of its own in ``staged`` Variables."""

    @cached_property
    def staged(self) -> dict[Variable, Variable]:
        """The Variables with new values, by those that a push assigns them to."""
        return {}

    def _keeps(self, like: Value) -> int:
        return self.home.get(like, self.default)

    def _assign(self, cell: Cell, r: int) -> Value:
        new = cell.assigned
        assert new is not None
        self._cell(cell, r)  # assigned by a push, even if nothing reads it here
        value: Value = self._at(r, new)
        self.staged[cell.variable] = self.keep(cell.value, cell.name, value).variable
        return value


def joint_push(
    computed: Mapping[int, StagedCompute],
    devices: Sequence[str],
    shadow: Shadow,
    homes: Sequence[int],
) -> Replicated:
    """The servers' update from the gradients of these workers, by their indices.

    Its inputs are the shares of the workers in the means, zero if one does not count. Staged values
    of those that count become valid. Raises ArgumentError if the workers' graphs differ
    other than in sizes.
    """
    return _JointPush(computed, devices, shadow, homes).made()


class _JointPush(_OnServers, Push):
    def __init__(
        self,
        computed: Mapping[int, StagedCompute],
        devices: Sequence[str],
        shadow: Shadow,
        homes: Sequence[int],
    ) -> None:
        graphs = [
            computed[r].first if r in computed else None for r in range(len(devices) - len(homes))
        ]
        super().__init__(graphs, devices, shadow, homes, {})
        self._computed = computed
        self._shares = {r: self._share(r) for r in self.workers}
        self._known: dict[tuple[Any, ...], Value] = {}
        """Values that depend on shares only."""

    def _share(self, r: int) -> Value:
        name = self.names.take(f"replica_{r}/share")
        return Value(name, (), as_dtype("float64"), device=self.devices[self.default])

    def made(self) -> Replicated:
        """The graph, with the shares as its inputs."""
        found = super().made()
        own = found.graph
        inputs = Values(self._shares.values())
        found.graph = Graph(own.name, inputs, own.nodes, own.outputs, own.cells)
        return found

    def _sum(self, i: int, node: Node) -> None:
        """The mean over those that count, added in the order of the workers."""
        (mean,) = node.outputs
        home = self.home[mean]
        terms = [self._term(i, mean, r, home) for r in self.workers]
        self.shared[mean] = reduce(lambda x, y: self._call(mean, add, (x, y), home), terms)

    def _term(self, i: int, mean: Value, r: int, home: int) -> Value:
        """A worker's term: -0.0 if it does not count, which leaves every sum unchanged."""
        own = self._computed[r]
        (name,) = own.first.nodes[i].outputs
        value = self.read_kept(mean, own.gradients[name], home)
        scaled = self._call(mean, multiply, (value, self._share_as(mean, r, home)), home)
        nothing = complex(-0.0, -0.0) if mean.dtype.kind == "c" else -0.0
        return self._call(mean, where, (self._counts(r, home), scaled, nothing), home)

    def _share_as(self, mean: Value, r: int, home: int) -> Value:
        """A worker's share as a factor of its gradient."""
        to = {"dtype": mean.dtype}
        return self._follows(astype, (self._shares[r],), to, mean.dtype, r, home)

    def _counts(self, r: int, home: int) -> Value:
        """Whether a worker counts."""
        return self._follows(greater, (self._shares[r], 0.0), {}, as_dtype("bool"), r, home)

    def _follows(
        self,
        op: Any,
        inputs: tuple[Any, ...],
        attributes: dict[str, Any],
        dtype: DType,
        r: int,
        home: int,
    ) -> Value:
        """A number computed from a worker's share, once on each device."""
        key = op, dtype, r, home
        found = self._known.get(key)
        if found is None:
            name = self.names.take(f"replica_{r}/{op.op.name}")
            node = Node(op.op, inputs, attributes, name, None, self.devices[home])
            found = self._known[key] = Value(name, (), dtype, node=node)
            node.outputs = (found,)
            self.nodes.append(node)
        return found

    def _cells(self, asked: Iterable[Value]) -> tuple[list[Cell], list[Node]]:
        own = [self._own(c, r) for c in self.first.cells for r in self.workers if self._is_own(c)]
        return super()._cells([*asked, *own])

    def _is_own(self, cell: Cell) -> bool:
        """Whether workers change a Variable separately."""
        return cell in self.local and cell.assigned is not None

    def _own(self, cell: Cell, r: int) -> Value:
        """A worker's separate state: its staged value, if it counts."""
        home, new = self.default, cell.assigned
        assert new is not None
        staged = self.read_kept(cell.value, self._computed[r].staged[cell.variable], home)
        own, name = self._cell(cell, r), f"replica_{r}/{cell.name}/counted"
        inputs = self._counts(r, home), staged, own.value
        found: Value = self.call(new, where, inputs, home, name)
        own.assigned = found
        return found
