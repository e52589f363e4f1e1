"""Shared parts of passes: one sweep over a graph that replaces values by better ones.

A pass never changes a graph. Nodes behind a replaced value are made anew, with
their names, places and pins; everything else is shared with the input graph. Rules look at
a node and at the nodes that made its inputs, so a sweep takes time proportional to the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from eagerflow.capture.passes.shared_constants import is_lent
from eagerflow.dtypes import FLOATS, INTEGERS, DType
from eagerflow.errors import CaptureError, printable
from eagerflow.fusion.access import Number
from eagerflow.fusion.lowering import fill_value
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import bodies_of, inside_out, is_closed, renewed, with_bodies
from eagerflow.op import Op, ops, spec_of
from eagerflow.ops.family import op_of
from eagerflow.recorder import with_recorder
from eagerflow.tensor import Tensor


class Rewrite(NamedTuple):
    """One rewrite of a pass: its description, and the node it was applied to."""

    name: str
    words: str
    node: Node

    def __str__(self) -> str:
        source = self.node.source
        at = "" if source is None else f", {source[0].rpartition('/')[2]}:{source[1]}"
        return printable(f"{self.name}: {self.words}{at}")


Input = Value | Number | None
"""A possible input of a node."""
Rule = Callable[["Sweep", Node], Value | None]
Rules = dict[Op, list[tuple[str, Rule]]]
"""The rules of a pass, in order, with their descriptions, by the op of the nodes they match."""
OpFunction = Callable[..., Any]
"""The public function of an op, such as ``ef.exp``."""

MAX_COMPARED_ELEMENTS = 4096  # limit for constants checked for being one number everywhere
_ABSENT = object()


def rule(rules: Rules, *functions: OpFunction, words: str) -> Callable[[Rule], Rule]:
    """The decorator that adds a rule for the nodes of these ops to those of a pass.

    A rule takes the sweep and a node and returns the Value that replaces the node's result, or
    None if it does not apply. ``words`` describe it in reports.
    """

    def decorate(function: Rule) -> Rule:
        for op in (op_of(x) for x in functions):
            rules.setdefault(op, []).append((words, function))
        return function

    return decorate


class Sweep:
    """One walk of a pass through a graph: the nodes made so far, and replaced values."""

    def __init__(self, name: str, graph: Graph, rules: Rules, bodies: dict[int, Graph]) -> None:
        self.name = name
        self.graph = graph
        self.rules = rules
        self.bodies = bodies
        self.new: dict[Value, Value] = {}  # replacements of values
        self.nodes: list[Node] = []
        self.rewrites: list[Rewrite] = []
        self.root: Node = None  # type: ignore[assignment]
        self._names: FreeNames | None = None
        self._counts: Counter[Value] | None = None
        self._uniform: dict[Value, Any] = {}
        self._old: dict[Value, Value] = {}  # by remade value: the one in the graph

    # Queries of rules --------------------------------------------------------------------------

    def maker(self, x: Input, *functions: OpFunction) -> Node | None:
        """The node that makes ``x``, if its op is one of these and it runs on the root's device."""
        if type(x) is not Value or x.node is None:
            return None
        node = x.node
        if node.op.call in functions and node.device == self.root.device:
            return node
        return None

    def argument(self, x: Input, *functions: OpFunction) -> Any:
        """The first input of the node that makes ``x``, if its op is one of these, else None."""
        node = self.maker(x, *functions)
        return None if node is None else node.inputs[0]

    def used_once(self, value: Value) -> bool:
        """Whether a value is used by one input of one node only."""
        if self._counts is None:
            self._counts = Counter(x for node in self.graph.nodes for x in node.values())
            self._counts.update(self.graph.all_outputs())
        return self._counts[self._old.get(value, value)] == 1

    def uniform(self, x: Input) -> Any:
        """The number that all elements of ``x`` equal, if known, else None."""
        if type(x) is not Value:
            return x
        found = self._uniform.get(x, _ABSENT)
        if found is _ABSENT:
            found = self._uniform[x] = self._filled(x)
        return found

    def _filled(self, value: Value) -> Number | None:
        x: Any = value
        while type(x) is Value:
            if x.constant is not None:
                return _element(x.constant)
            node = x.node
            if node is None:
                return None
            if not node.op.views:
                return _held_number(fill_value(node), x.dtype) if node.op.fills else None
            x = node.inputs[0]
        return x

    def is_one(self, x: Input) -> bool:
        """Whether all elements of ``x`` are known to be 1."""
        return bool(self.uniform(x) == 1)

    def is_zero(self, x: Input) -> bool:
        """Whether all elements of ``x`` are known to be 0, of either sign."""
        return bool(self.uniform(x) == 0)

    def stands_for(self, x: Input, node: Node, *others: Input) -> TypeGuard[Value]:
        """Whether ``x`` can replace the result of a node with operands that change nothing."""
        return fits(x, node)

    # New values --------------------------------------------------------------------------------

    def make(self, function: OpFunction, *inputs: Input, **attributes: Any) -> Value:
        """The result of a new node, with the place and pin of the root."""
        op = op_of(function)
        specs = [spec_of(x) if type(x) is Value else x for x in inputs]
        attributes = op.attributes | attributes
        spec = op.infer(*specs, **attributes)
        node = Node(op, inputs, attributes, self.unique(op), self.root.origin, self.root.device)
        value = Value(node.name, tuple(spec.shape), spec.dtype, self.root.outputs[0].owner, node)
        node.outputs = (value,)
        self.nodes.append(node)
        return value

    def constant(self, number: float, like: Value) -> Value:
        """A new constant of this shape and dtype, all elements of which are ``number``."""
        facts = {"shape": like.shape, "fill_value": number, "dtype": like.dtype}
        full = ops["full"]  # ef.full also takes tensors, and is no op itself
        tensor = with_recorder(None, full.call, **facts)
        return Value(self.unique(full), like.shape, like.dtype, like.owner, constant=tensor)

    def unique(self, op: Op) -> str:
        """A name for a new node that belongs to the root."""
        return self.free_name(op.name)

    def free_name(self, base: str) -> str:
        """A name for a new object that belongs to the root."""
        if self._names is None:
            given = (*self.graph.all_inputs(), *self.graph.constants)
            self._names = FreeNames([n.name for n in self.graph.nodes] + [v.name for v in given])
        return self._names.take(f"{self.root.name}/{base}")

    # The walk ----------------------------------------------------------------------------------

    def run(self) -> Graph:
        """The graph after the walk; the input graph if nothing was replaced."""
        new, look, nodes = self.new, self.look, self.nodes
        holders: dict[Op, bool] = {}
        for node in self.graph.nodes:
            op = node.op
            holds = holders.get(op)
            if holds is None:
                holds = holders[op] = bool(bodies_of(node.attributes))
            if new or holds:
                node = self.current(node, holds)
            if not look(node):
                nodes.append(node)
        if not new:
            return self.graph
        return self.graph.like(nodes, new)

    def current(self, node: Node, holds: bool = False) -> Node:
        """The node with replacements of its inputs and bodies."""
        holds = holds and not is_closed(node)
        made = renewed(node, self.new, self.attributes(node) if holds else None)
        if made is not node:
            for before, after in zip(node.outputs, made.outputs, strict=True):
                self._old[after] = before
        return made

    def attributes(self, node: Node) -> dict[str, Any]:
        """The attributes of a node, with replacements of the bodies in them."""
        return with_bodies(node.attributes, lambda body: self.bodies.get(id(body), body))

    def look(self, node: Node) -> bool:
        """Whether the results of this node have been replaced, here by a rule."""
        rules = self.rules.get(node.op)
        if rules is None or node.outputs[0].device is not None:
            return False
        self.root = node
        before = len(self.nodes)
        for words, function in rules:
            found = function(self, node)
            if found is None:
                del self.nodes[before:]
                continue
            (value,) = node.outputs
            if found.shape != value.shape or found.dtype != value.dtype:
                raise CaptureError(
                    f"the pass {self.name} replaces {value.name} by something else: {words}",
                    received=f"{found.spec}",
                    expected=f"{value.spec}",
                    hint=f"graph.optimized(without=({self.name!r},))",
                )
            if len(self.nodes) > before and found.node is self.nodes[-1]:
                found.node.name = found.name = node.name
            self.replace(value, found)
            self.note(words, node)
            return True
        return False

    def replace(self, value: Value, found: Value) -> None:
        """Replace a value of the graph by ``found`` from now on."""
        self.new[value] = found
        before = self._old.get(value)
        if before is not None:
            self.new[before] = found

    def note(self, words: str, node: Node) -> None:
        """Add a rewrite of a node to the report."""
        self.rewrites.append(Rewrite(self.name, words, node))


def _held_number(number: Number, dtype: DType) -> Number | None:
    """A number rounded to a dtype; None if unknown."""
    if dtype in FLOATS and type(number) in (int, float):
        return float(np.asarray(number, dtype))
    known = number in (0, 1) or (dtype in INTEGERS and type(number) is int)
    return number if known else None


def _element(constant: Tensor) -> Number | None:
    """The common number of all elements of a constant, of one sign, else None."""
    if not 0 < constant.size <= MAX_COMPARED_ELEMENTS or is_lent(constant):
        return None
    array = constant.numpy()
    first = array.ravel()[0]
    if not bool((array == first).all()):
        return None
    if first == 0 and array.dtype.kind not in "biuc":
        signs = np.signbit(array.astype(np.float64))
        if signs.any() != signs.all():
            return None
    return first.item()


def swept(
    name: str, graph: Graph, rules: Rules, kind: type[Sweep] | None = None
) -> tuple[Graph, list[Rewrite]]:
    """The graph and its bodies after a sweep with these rules, and the rewrites."""
    rewrites: list[Rewrite] = []

    def sweep(graph: Graph, bodies: dict[int, Graph]) -> Graph:
        walk = (kind or Sweep)(name, graph, rules, bodies)
        found = walk.run()
        rewrites.extend(walk.rewrites)
        return found

    return inside_out(graph, sweep, closed=False), rewrites


def fits(x: Input, node: Node) -> TypeGuard[Value]:
    """Whether ``x`` has the shape and dtype of the node's result."""
    value = node.outputs[0]
    return type(x) is Value and x.shape == value.shape and x.dtype == value.dtype


def is_float(value: Input) -> TypeGuard[Value]:
    """Whether a value holds real floats."""
    return type(value) is Value and value.dtype in FLOATS


def takes_numbers(dtype: DType) -> bool:
    """Whether Python numbers keep their type next to this dtype, as in eager calls."""
    return dtype.isbuiltin == 1
