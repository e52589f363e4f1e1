"""Products of a device plan together with their epilogues: bias and activation.

A kernel that only applies such an epilogue to a product reads and writes it once more. A library
that applies it while writing the product saves both: then product and kernel are one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.fusion.kernels import FusedKernel, Step
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.elementwise.activation import gelu, relu, tanh_gelu_gradient
from eagerflow.ops.elementwise.arithmetic import add
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.reductions.sums import sum as sum_of


class Epilogue(NamedTuple):
    """An epilogue of a product, by its name in cuBLASLt, and its operands."""

    name: str
    result: Value
    vector: Value | None = None
    """A bias that is read, or sums of columns that are written."""
    matrix: Value | None = None
    """The argument of gelu, which is written, or read for its gradient."""


class FusedProduct:
    """A product and the kernel after it as one step."""

    checks = ()

    def __init__(self, product: Node, kernel: FusedKernel, epilogue: Epilogue) -> None:
        self.product, self.kernel, self.epilogue = product, kernel, epilogue
        self.nodes = (product, *kernel.nodes)
        self.name = f"matmul_{kernel.name}"
        own = product.outputs[0]
        self.inputs = (*product.inputs, *(x for x in kernel.inputs if x is not own))
        self.outputs = kernel.outputs


def with_epilogues(graph: Graph, steps: Sequence[Step]) -> list[Any]:
    """The steps, with products and their epilogue kernels merged."""
    uses = Counter(x for step in steps for x in step.inputs if type(x) is Value)
    uses.update(graph.all_outputs())
    products = {s.outputs[0]: s for s in steps if isinstance(s, Node) and s.op.call is matmul}
    found: dict[Step, FusedProduct] = {}
    for step in steps:
        if isinstance(step, FusedKernel) and not step.checks:
            read = [products[x] for x in dict.fromkeys(step.inputs) if x in products]
            for product in read:
                if uses[product.outputs[0]] == 1 and (epilogue := epilogue_of(product, step)):
                    found[step] = FusedProduct(product, step, epilogue)
                    break
    gone = {own.product for own in found.values()}
    return [found.get(step, step) for step in steps if step not in gone]


def epilogue_of(product: Node, kernel: FusedKernel) -> Epilogue | None:
    """A kernel, the only reader of a product, as an epilogue; None if it is none."""
    (made,) = last = product.outputs
    nodes = [node for node in kernel.nodes if node.op.views != "all"]
    x1, x2 = product.values()
    if len(x1.shape) < 2 or len(x2.shape) != 2:
        return None
    if nodes[0].op.call is tanh_gelu_gradient:
        return _backward(made, nodes, set(kernel.outputs))
    bias = _bias_in(nodes[0], made) if nodes[0].op.call is add else None
    if bias is not None:
        last = nodes.pop(0).outputs
    return _forward(bias, last[0], nodes, set(kernel.outputs))


def _forward(
    bias: Value | None, last: Value, nodes: list[Node], wanted: set[Value]
) -> Epilogue | None:
    """An optional bias, and an activation of ``last``."""
    tail = "" if bias is None else "_bias"
    if not nodes:
        return Epilogue("bias", last, bias) if wanted == {last} and bias is not None else None
    (node, *more), result = nodes, nodes[0].outputs[0]
    if more or node.inputs[0] is not last or result not in wanted:
        return None
    if node.op.call is relu and wanted == {result}:
        return Epilogue(f"relu{tail}", result, bias)
    if node.op.call is gelu and node.attributes["approximate"]:
        if wanted == {result}:
            return Epilogue(f"gelu{tail}", result, bias)
        return Epilogue(f"gelu_aux{tail}", result, bias, last)
    return None


def _bias_in(node: Node, made: Value) -> Value | None:
    """The value that an addition adds to each row of a product; None for other additions."""
    others = [x for x in node.inputs if x is not made]
    if len(others) != 1 or type(others[0]) is not Value:
        return None
    (bias,) = others
    return bias if (bias.shape, bias.dtype) == (made.shape[-1:], made.dtype) else None


def _backward(made: Value, nodes: list[Node], wanted: set[Value]) -> Epilogue | None:
    """The gradient of gelu with an argument of the product's layout, and sums of its columns."""
    (node, *more), result = nodes, nodes[0].outputs[0]
    x, g = node.inputs
    if g is not made or type(x) is not Value or (x.shape, x.dtype) != (made.shape, made.dtype):
        return None
    if not more:
        return Epilogue("dgelu", result, None, x)
    sums = more[0].outputs[0]
    columns = more[0].op.call is sum_of and more[0].inputs[0] is result
    if len(more) > 1 or not columns or (sums.shape, sums.dtype) != (made.shape[-1:], made.dtype):
        return None
    axes = {axis % len(made.shape) for axis in more[0].attributes["axis"] or ()}
    fits = axes == set(range(len(made.shape) - 1)) and wanted == {result, sums}
    return Epilogue("dgelu_bgrad", result, sums, x) if fits else None
