"""Inserting quantization into a graph: around operands of products, and in place of weights.

    matmul = matmul(x, w)

becomes

    quantize     = quantize(x, scale, zero_point, dtype=uint8)
    dequantize   = dequantize(quantize, scale, zero_point)
    dequantize_1 = dequantize(integers, scale_1)
    matmul       = matmul(dequantize, dequantize_1)

which expresses the computation in standard ops, in the form used by ONNX. They become products of
small integers when a plan is made (``passes/integers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow.capture.passes.rewriting import Sweep
from eagerflow.capture.quantization.scales import Range, Weights, of_filters, of_groups, of_matrix
from eagerflow.capture.trace import trace
from eagerflow.convert import as_tensor
from eagerflow.dtypes import as_dtype
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.graph.run import interpret
from eagerflow.graph.walk import renewed
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.nn.convolution import conv
from eagerflow.ops.nn.four_bits import pack_int4, unpack_int4
from eagerflow.ops.nn.quantization import dequantize, needed_scale, quantize, symmetric_scale
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.recorder import with_recorder
from eagerflow.spec import TensorSpec

_NUMBER = TensorSpec((), "float32")


class Target(NamedTuple):
    """A node to quantize: its operand, and its weights, which are known."""

    node: Node
    x: Value
    weights: Any

    @property
    def is_product(self) -> bool:
        """Whether it is a product of matrices; else it is a convolution."""
        return self.node.op.call is matmul


def frozen(graph: Graph) -> Graph:
    """The graph with constants in place of the Variables that it only reads."""
    new: dict[Value, Value] = {}
    held: list[Cell] = []
    for cell in graph.cells:
        if cell.assigned is None:
            held.append(cell)
            value = Value(cell.name, cell.value.shape, cell.value.dtype, cell.value.owner)
            value.constant = as_tensor(cell.variable.numpy(), copy=True)
            new[cell.value] = value
    nodes = [renewed(node, new) for node in graph.nodes]
    found = graph.like(nodes, new)
    found.cells = tuple(c for c in found.cells if c.assigned is not None)
    return found


def targets_of(graph: Graph, kept: Mapping[str, Any] | set[str]) -> list[Target]:
    """The float32 products and convolutions with a known second operand.

    Nodes in ``kept`` scopes, or with ``kept`` names, are left out.
    """
    found = []
    for node in graph.nodes:
        if node.op.call not in (matmul, conv) or _is_kept(node.name, kept):
            continue
        x, w = node.inputs
        known = _known(w)
        if type(x) is not Value or x.constant is not None or known is None:
            continue
        fits = len(x.shape) > 1 and (known.ndim == 2 or node.op.call is conv)
        if fits and x.dtype == known.dtype == np.float32 and known.size:
            found.append(Target(node, x, known))
    return found


def _is_kept(name: str, kept: Any) -> bool:
    return any(name == own or name.startswith(f"{own}/") for own in kept)


def _known(value: Any) -> Any:
    """The array of a constant, or of a view of one; else None."""
    if type(value) is not Value:
        return None
    if value.constant is not None:
        return value.constant.numpy()
    node = value.node
    if node is None or node.op.call not in (permute_dims, reshape):
        return None
    inner = _known(node.inputs[0])
    if inner is None:
        return None
    return with_recorder(None, node.op.call, as_tensor(inner), **node.attributes).numpy()


class Choices(NamedTuple):
    """Options of the quantization of targets; see ``quantize``."""

    mode: str
    bits: int
    per_channel: bool
    group_size: int


class Insertion(Sweep):
    """The sweep that puts quantization around targets."""

    def __init__(
        self, graph: Graph, targets: list[Target], ranges: dict[Value, Range], choices: Choices
    ) -> None:
        super().__init__("quantization", graph, {}, {})
        self.targets = {target.node.name: target for target in targets}
        self.ranges, self.choices = ranges, choices
        self._done: dict[Any, Value] = {}

    def look(self, node: Node) -> bool:
        target = self.targets.get(node.name)
        if target is None:
            return False
        self.root = node
        x, mode = node.inputs[0], self.choices.mode
        if mode == "static":
            x = self._quantized(x, self.ranges[target.x])
        elif mode == "dynamic":
            x = self._dynamic(x, target)
        found = self.make(node.op.call, x, self._weights(target), **node.attributes)
        self.replace(node.outputs[0], found)
        made: Any = found.node
        made.name = found.name = node.name
        self.note(f"{node.op.name} of quantized numbers", node)
        return True

    def held(self, array: Any, name: str) -> Value:
        """A new constant."""
        value = Value(self.free_name(name), array.shape, array.dtype, self.root.outputs[0].owner)
        value.constant = as_tensor(array, copy=True)
        return value

    def _quantized(self, x: Value, found: Range) -> Value:
        """A value quantized to uint8 and back; cached for values quantized before."""
        known = self._done.get((x, found))
        if known is None:
            scale = self.held(np.asarray(found.scale), "scale")
            zero = self.held(np.asarray(found.zero_point), "zero_point")
            small = self.make(quantize, x, scale, zero, dtype=as_dtype("uint8"))
            known = self._done[x, found] = self.make(dequantize, small, scale, zero)
        return known

    def _dynamic(self, x: Value, target: Target) -> Value:
        """The same with the range of the values at run time."""
        key = x, target.is_product
        if key not in self._done:
            limits = [self.make(f, x, axis=None, keepdims=False) for f in (smallest, largest)]
            rule = needed_scale if target.is_product else symmetric_scale
            scale, *more = self._computed(rule, *limits)
            zero = more[0] if more else None
            to = as_dtype("uint8" if more else "int8")
            small = self.make(quantize, x, scale, zero, dtype=to)
            self._done[key] = self.make(dequantize, small, scale, zero)
        return self._done[key]

    def _computed(self, rule: Callable[..., Any], *given: Value) -> list[Value]:
        """The nodes of a function of ops."""
        graph = trace(rule, *[_NUMBER] * len(given))

        def make(node: Node, inputs: list[Any]) -> Any:
            return self.make(node.op.call, *inputs, **node.attributes)

        found: list[Any] = interpret(graph, given, make)
        return found

    def _weights(self, target: Target) -> Value:
        """A node that reconstructs the weights of a target from small integers."""
        own, array = self.choices, target.weights
        if not target.is_product:
            return self._dequantized(of_filters(array, own.per_channel))
        if own.mode != "weights":
            return self._dequantized(of_matrix(array, own.per_channel))
        rows = len(array)
        size = own.group_size if rows % own.group_size == 0 else rows
        bits = own.bits if size % 2 == 0 else 8
        made = self._dequantized(of_groups(array, bits, size), bits)
        return self.make(reshape, made, shape=array.shape)

    def _dequantized(self, found: Weights, bits: int = 8) -> Value:
        array = found.integers
        if bits == 4:
            packed = with_recorder(None, pack_int4, as_tensor(array), axis=1).numpy()
            integers = self.make(unpack_int4, self.held(packed, "packed"), axis=1)
        else:
            integers = self.held(array, "integers")
        return self.make(dequantize, integers, self.held(found.scale, "scale"), None)
