"""Loop-invariant products of scans: each becomes one product, before or after the scan.

A product of a row with a loop-invariant factor is one product of all rows. A carry that only
accumulates a term of each step, such as the gradient of such a factor, is one sum over all
rows: a product of a transposed row and another row becomes a product that sums over all steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from eagerflow.capture.control.bodies import Body
from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.capture.passes.sharing import new_node
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import is_closed, needed, renewed
from eagerflow.ops.elementwise.arithmetic import add
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.reshaping import permute_dims, reshape

Total = Callable[[], Value]
"""Builds the sum of a body's value over all steps."""


def with_products_outside(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with products of scans made once for all steps, if steps do not need them.

    >>> def f(x, w):
    ...     return ef.scan(lambda c, row: (ef.tanh(c + row @ w), None), ef.zeros((2, 4)), x)[0]
    >>> specs = ef.TensorSpec((5, 2, 3), "float32"), ef.TensorSpec((3, 4), "float32")
    >>> graph = ef.capture.trace(f, *specs)
    >>> [node.op.name for node in with_products_outside(graph)[0].nodes]
    ['zeros', 'matmul', 'scan']
    """
    return swept("recurrences", graph, {}, _Outside)


class _Outside(Sweep):
    """A sweep over scans of known sizes."""

    def look(self, node: Node) -> bool:
        if node.op.name != "scan" or is_closed(node):
            return False
        self.root = node
        scan = _Scan(self, node)
        if not scan.take_out():
            return False
        for words in scan.words:
            self.note(words, node)
        return True


class _Scan:
    """A scan while products are taken out of it."""

    def __init__(self, sweep: Sweep, node: Node) -> None:
        self.sweep, self.node = sweep, node
        more = node.attributes
        self.body: Graph = more["body"]
        self.carries, self.sequences = more["carries"], more["sequences"]
        end = self.carries + self.sequences
        self.given = dict(zip(self.body.inputs, node.inputs, strict=True))
        self.rows = self.body.inputs[self.carries : end]
        self.same = set(self.body.inputs[end:])
        self.uses = Counter(x for own in self.body.nodes for x in own.values())
        self.uses.update(self.body.outputs)
        steps = node.inputs[self.carries].shape[0] if self.sequences else more["length"]
        self.steps: Any = steps
        self.new_inputs: list[tuple[Value, Value]] = []
        """Additional rows: the value of the body, and the sequence."""
        self.left_out: set[Node] = set()
        self.kept: dict[Value, Value | None] = {}
        """Values of the body needed as rows, and their sequences once these exist."""
        self.words: list[str] = []

    def take_out(self) -> bool:
        """Take products out; False if there are none."""
        if not isinstance(self.steps, int) or self.steps < 2:
            return False
        for own in self.body.nodes:
            self._before(own)
        totals = {i: total for i in range(self.carries) if (total := self._after(i)) is not None}
        if not self.new_inputs and not totals:
            return False
        self._build(totals)
        return True

    # Before the scan ------------------------------------------------------------------------------

    def _before(self, own: Node) -> None:
        """Hoist a product of a row with a loop-invariant factor."""
        if own.op.call is not matmul or own.inputs[0] not in self.rows:
            return
        row, factor = own.inputs
        if factor not in self.same or len(row.shape) != 2 or len(factor.shape) != 2:
            return
        whole, by = self.given[row], self.given[factor]
        order: Any = None
        origin = self.sweep.maker(whole, permute_dims)
        if origin is not None and origin.attributes["axes"][-1] == len(whole.shape) - 1:
            whole, order = origin.inputs[0], origin.attributes["axes"]
        made = self.sweep.make(matmul, whole, by)
        if order is not None:  # the product's rows have the layout of its factor's rows
            made = self.sweep.make(permute_dims, made, axes=order)
        self.new_inputs.append((own.outputs[0], made))
        self.left_out.add(own)
        self.words.append(f"{own.name} is one product for all steps")

    # After the scan ------------------------------------------------------------------------------

    def _after(self, i: int) -> Total | None:
        """The term that a carry accumulates, if it does nothing else."""
        before, after = self.body.inputs[i], self.body.outputs[i]
        own = after.node
        if own is None or own.op.call is not add or own in self.left_out:
            return None
        if self.uses[before] != 1 or self.uses[after] != 1 or before not in own.inputs:
            return None
        (term,) = (x for x in own.inputs if x is not before) if before is not after else (None,)
        if type(term) is not Value or term.shape != after.shape:
            return None
        known = dict(self.kept)
        total = self._total(term)
        if total is None:
            self.kept = known
            return None
        self.words.append(f"{own.name} is summed up after all steps")
        return total

    def _total(self, value: Any) -> Total | None:
        """The sum of a value over all steps; None if that needs the value of each step."""
        own = value.node if type(value) is Value else None
        if own is None or own in self.left_out or self.uses[value] != 1:
            return None
        make, call, more = self.sweep.make, own.op.call, own.attributes
        if call is matmul:
            return self._product(*own.inputs)
        if call is sum:
            x = own.inputs[0]
            if more["axis"] is None or not self._keep(x):
                return None
            own_axes = more["axis"] if isinstance(more["axis"], tuple) else (more["axis"],)
            axes = (0, *(a % len(x.shape) + 1 for a in own_axes))
            shape = value.shape
            return lambda: make(
                reshape, make(sum, self._sequence(x), axis=axes, keepdims=False), shape=shape
            )
        if call is add:
            one, other = (self._total(x) for x in own.inputs)
            if one is None or other is None or own.inputs[0].shape != own.inputs[1].shape:
                return None
            return lambda: make(add, one(), other())
        if call in (index_scatter, reshape, permute_dims) and len(own.inputs) == 1:
            inner = self._total(own.inputs[0])
            if inner is None:
                return None
            return lambda: make(call, inner(), **more)
        return None

    def _product(self, a: Any, b: Any) -> Total | None:
        """The sum over all steps of products of a transposed matrix and another matrix."""
        turned = a.node if type(a) is Value else None
        if turned is None or turned.op.call is not permute_dims or type(b) is not Value:
            return None
        x = turned.inputs[0]
        if len(x.shape) != 2 or len(b.shape) != 2 or turned.attributes["axes"] != (1, 0):
            return None
        if not (self._keep(x) and self._keep(b)):
            return None
        make, rows = self.sweep.make, self.steps * x.shape[0]

        def total() -> Value:
            one, other = (
                make(reshape, self._sequence(y), shape=(rows, y.shape[1])) for y in (x, b)
            )
            return make(matmul, make(permute_dims, one, axes=(1, 0)), other)

        return total

    def _keep(self, x: Any) -> bool:
        """Whether all values of ``x`` are available after the scan; they are kept then."""
        if type(x) is not Value or x in self.same or x.constant is not None:
            return False
        self.kept.setdefault(x, self.given[x] if x in self.rows else None)
        return True

    def _sequence(self, x: Value) -> Value:
        found = self.kept[x]
        assert found is not None, "the scan that gives it has been made"
        return found

    # The new scan --------------------------------------------------------------------------------

    def _build(self, totals: dict[int, Total]) -> None:
        """The scan without the products taken out, and the values made of its results."""
        node, body, carries = self.node, self.body, self.carries
        staying = [i for i in range(carries) if i not in totals]
        results = body.outputs[carries:]
        known = dict(zip(results, range(len(results)), strict=True))
        further = [x for x, found in self.kept.items() if found is None and x not in known]
        for value, whole in self.new_inputs:
            self.given[value] = whole
        fresh = [value for value, _ in self.new_inputs]
        inputs = [
            *(body.inputs[i] for i in staying),
            *self.rows,
            *fresh,
            *body.inputs[carries + self.sequences :],
        ]
        outputs = [*(body.outputs[i] for i in staying), *results, *further]
        nodes = needed([own for own in body.nodes if own not in self.left_out], outputs)
        made = _parted(body, inputs, fresh, nodes, outputs)
        attributes = node.attributes | {
            "body": made,
            "carries": len(staying),
            "sequences": self.sequences + len(fresh),
        }
        new = new_node(
            node,
            tuple(self.given[x] for x in inputs),
            attributes,
            [
                *(node.outputs[i] for i in staying),
                *node.outputs[carries:],
                *(x.like(None, x.name, (self.steps, *x.shape)) for x in further),
            ],
        )
        self.sweep.nodes.append(new)
        rows = new.outputs[len(staying) :]
        for x in self.kept:
            if self.kept[x] is None:
                at = known[x] if x in known else len(results) + further.index(x)
                self.kept[x] = rows[at]
        for place, i in enumerate(staying):
            self.sweep.replace(node.outputs[i], new.outputs[place])
        for value, found in zip(node.outputs[carries:], rows, strict=False):
            self.sweep.replace(value, found)
        for i, total in totals.items():
            found, start = total(), node.inputs[i]
            if not self.sweep.is_zero(start):
                found = self.sweep.make(add, start, found)
            self.sweep.replace(node.outputs[i], found)


def _parted(
    body: Graph, inputs: list[Value], fresh: list[Value], nodes: list[Node], outputs: list[Value]
) -> Body:
    """A body with results of removed nodes as inputs."""
    new = {x: x.like(None, x.name) for x in fresh}
    made = [renewed(own, new) for own in nodes] if new else nodes
    return Body(body.name, [new.get(x, x) for x in inputs], made, [new.get(x, x) for x in outputs])
