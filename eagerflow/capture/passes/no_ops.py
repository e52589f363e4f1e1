"""No-ops: nodes that give back one of their inputs, bit for bit and laid out alike.

How a value lies in memory decides the order in which a reduction or a product adds, so a copy is
left out only where its input is known to lie as the copy does. ``x + 0`` stays: it makes 0 of -0.
"""

from __future__ import annotations

import math

import numpy as np

from eagerflow.capture.passes.rewriting import (
    Input,
    Rewrite,
    Rules,
    Sweep,
    fits,
    is_float,
    rule,
    swept,
)
from eagerflow.dtypes import BOOL, FLOATS, INTEGERS, DType, is_complex
from eagerflow.graph.ir import Graph, Node, Value
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.elementwise.arithmetic import (
    add,
    divide,
    multiply,
    multiply_no_nan,
    negative,
    positive,
    subtract,
)
from eagerflow.ops.elementwise.bitwise import bitwise_and, bitwise_invert, bitwise_or
from eagerflow.ops.elementwise.comparison import logical_and, logical_not, logical_or
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.selection import maximum, minimum
from eagerflow.ops.indexing.indexing import getitem
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, permute_dims, reshape, squeeze
from eagerflow.spec import normalize_axes

__all__ = ["order_of", "without_no_ops", "without_stop_gradients"]

NO_OPS: Rules = {}
STOP_GRADIENTS: Rules = {}


def without_no_ops(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without what changes nothing: neither the bits nor how they lie in memory.

    That is views that show the whole, casts to the dtype that is there, chains of transposes
    and of broadcasts, double negation, multiplication by 1 and the like.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x[:]) * 1, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['getitem', 'tanh', 'multiply']
    >>> [node.op.name for node in ef.capture.passes.no_ops(graph).nodes]
    ['tanh']
    """
    return swept("no_ops", graph, NO_OPS)


# Views -------------------------------------------------------------------------------------------


@rule(NO_OPS, reshape, broadcast_to, squeeze, expand_dims, words="a view of the same shape -> x")
def _same_shape(sweep: Sweep, node: Node) -> Value | None:
    x = node.inputs[0]
    return x if x.shape == node.outputs[0].shape else None


@rule(NO_OPS, squeeze, expand_dims, words="axes of size 1 added and removed -> x")
def _back_and_forth(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], expand_dims, squeeze)
    return x if x is not None and x.shape == node.outputs[0].shape else None


@rule(NO_OPS, broadcast_to, words="broadcast_to(broadcast_to(x)) -> broadcast_to(x)")
def _broadcast_twice(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], broadcast_to)
    return None if x is None else sweep.make(broadcast_to, x, shape=node.outputs[0].shape)


def order_of(node: Node) -> tuple[int, ...]:
    """The order of axes that a permute_dims gives, counted from the front."""
    rank = len(node.outputs[0].shape)
    axes = node.attributes["axes"]
    return tuple(range(rank))[::-1] if axes is None else normalize_axes(axes, rank)


@rule(NO_OPS, permute_dims, words="axes permuted into the order that they have -> x")
def _in_order(sweep: Sweep, node: Node) -> Value | None:
    order = order_of(node)
    return node.inputs[0] if order == tuple(range(len(order))) else None


@rule(NO_OPS, permute_dims, words="permute_dims(permute_dims(x)) -> permute_dims(x), or x")
def _permuted_twice(sweep: Sweep, node: Node) -> Value | None:
    inner = sweep.maker(node.inputs[0], permute_dims)
    if inner is None:
        return None
    first = order_of(inner)
    order = tuple([first[i] for i in order_of(node)])
    x = inner.inputs[0]
    in_order = order == tuple(range(len(order)))
    return x if in_order else sweep.make(permute_dims, x, axes=order)


@rule(NO_OPS, getitem, words="an index that takes all -> x")
def _takes_all(sweep: Sweep, node: Node) -> Value | None:
    x, index = node.inputs[0], node.attributes["index"]
    items = index if type(index) is tuple else (index,)
    if len(node.inputs) > 1 or node.outputs[0].shape != x.shape:
        return None
    whole = [item for item in items if item is not Ellipsis]
    ok = all(type(i) is slice and i.step in (None, 1) and i.start in (None, 0) for i in whole)
    return x if ok else None  # from the start, in steps of 1, and as long as before


# Casts -------------------------------------------------------------------------------------------


@rule(NO_OPS, astype, words="astype(x) to the dtype of x -> x")
def _same_dtype(sweep: Sweep, node: Node) -> Value | None:
    x = node.inputs[0]
    return x if x.dtype == node.outputs[0].dtype else None


@rule(NO_OPS, astype, words="astype(astype(x)), the first without loss -> astype(x), or x")
def _cast_twice(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], astype)
    wanted = node.outputs[0].dtype
    if x is None or not _keeps(x.dtype, node.inputs[0].dtype):
        return None
    if x.dtype == wanted:
        return x if sweep.dense(x) else None
    same_kind = wanted in FLOATS if x.dtype in FLOATS else wanted in INTEGERS
    return sweep.make(astype, x, dtype=wanted) if same_kind else None


def _keeps(narrow: DType, wide: DType) -> bool:
    """Whether a dtype holds every value of another of its kind."""
    floats = narrow in FLOATS and wide in FLOATS
    integers = narrow in INTEGERS | BOOL and wide in INTEGERS
    return (floats or integers) and np.can_cast(narrow, wide)


# Arithmetic --------------------------------------------------------------------------------------


def _kept(sweep: Sweep, node: Node, x: Input) -> Value | None:
    """``x`` if it can stand for the node's result."""
    return x if fits(x, node) and sweep.dense(x) else None


def _thin(sweep: Sweep, x: Input) -> bool:
    """Whether an operand has no say in how the result lies in memory: it has no strides."""
    if type(x) is not Value:
        return True
    spread = sweep.argument(x, broadcast_to)
    return bool((x if spread is None else spread).size == 1)


@rule(NO_OPS, multiply, multiply_no_nan, words="x * 1 -> x")
def _times_one(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    if sweep.is_one(b) and _thin(sweep, b):
        return _kept(sweep, node, a)
    if sweep.is_one(a) and _thin(sweep, a):
        return _kept(sweep, node, b)
    return None


@rule(NO_OPS, divide, words="x / 1 -> x")
def _over_one(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    return _kept(sweep, node, a) if sweep.is_one(b) and _thin(sweep, b) else None


@rule(NO_OPS, subtract, words="x - 0 -> x")
def _minus_zero(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    if not sweep.is_zero(b) or not _thin(sweep, b):
        return None
    if is_float(a) and math.copysign(1, sweep.uniform(b)) < 0:
        return None  # -0 - -0 is 0
    return None if is_complex(node.outputs[0].dtype) else _kept(sweep, node, a)


@rule(NO_OPS, add, words="x + -0.0 -> x, and x + 0 -> x of integers")
def _plus_nothing(sweep: Sweep, node: Node) -> Value | None:
    for x, zero in (node.inputs, node.inputs[::-1]):
        if sweep.is_zero(zero) and _thin(sweep, zero):
            dtype = node.outputs[0].dtype
            if dtype in INTEGERS or dtype in BOOL:
                return _kept(sweep, node, x)
            if dtype in FLOATS and math.copysign(1, sweep.uniform(zero)) < 0:
                return _kept(sweep, node, x)
    return None


@rule(NO_OPS, negative, words="-(-x) -> x")
@rule(NO_OPS, logical_not, words="not not x -> x")
@rule(NO_OPS, bitwise_invert, words="~~x -> x")
def _twice(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], node.op.call)
    return None if x is None else _kept(sweep, node, x)


@rule(NO_OPS, positive, words="+x -> x")
def _positive(sweep: Sweep, node: Node) -> Value | None:
    return _kept(sweep, node, node.inputs[0])


@rule(NO_OPS, conj, words="conj(x) -> x of real numbers")
def _conjugate(sweep: Sweep, node: Node) -> Value | None:
    x = node.inputs[0]
    return None if is_complex(x.dtype) else _kept(sweep, node, x)


@rule(
    NO_OPS, maximum, minimum, logical_and, logical_or, bitwise_and, bitwise_or, words="x and x -> x"
)
def _with_itself(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    return _kept(sweep, node, a) if a is b else None


# Gradients ---------------------------------------------------------------------------------------


def without_stop_gradients(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without stop_gradient: it runs alike, and its gradients are others.

    >>> f = lambda x: ef.tanh(ef.stop_gradient(x))
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['stop_gradient', 'tanh']
    >>> [node.op.name for node in ef.capture.passes.stop_gradients(graph).nodes]
    ['tanh']
    """
    return swept("stop_gradients", graph, STOP_GRADIENTS)


@rule(STOP_GRADIENTS, stop_gradient, words="stop_gradient(x) -> x")
def _stopped(sweep: Sweep, node: Node) -> Value | None:
    return node.inputs[0]
