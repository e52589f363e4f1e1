"""Algebra: forms that are faster and no less accurate than the ops' stated bounds allow.

The results may round otherwise than eager calls do, by no more than the units in the last place
that the ops state for themselves. The sign of a zero, and that of a NaN, may change: ``x + 0`` is
``x``. Divisions become multiplications only where that is exact, by powers of two, so that
``x / 49 * 49`` is what it was; sums of constants are not merged, since that would undo rounding
that was meant.
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
    takes_numbers,
)
from eagerflow.dims import product, symbolic
from eagerflow.dtypes import FLOATS, INTEGERS, DType
from eagerflow.fusion.lowering import SMALL_POWERS, small_power
from eagerflow.graph.ir import Graph, Node, Value
from eagerflow.op import ops
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.arithmetic import (
    add,
    divide,
    multiply,
    multiply_no_nan,
    negative,
    reciprocal,
    subtract,
)
from eagerflow.ops.elementwise.powers import power, rsqrt, sqrt
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.reductions import sums
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, reshape, squeeze
from eagerflow.spec import normalize_axes

__all__ = ["simplified"]

ALGEBRA: Rules = {}
MAX_CONSTANT_ELEMENTS = 4096  # of a result that becomes a constant


def simplified(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph in simpler terms: cheap powers, merged factors, signs, sums and reshapes.

    >>> graph = ef.capture.trace(lambda x: x**3 / 4, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['power', 'divide']
    >>> [node.op.name for node in ef.capture.passes.algebra(graph).nodes]
    ['square', 'multiply', 'multiply']
    """
    return swept("algebra", graph, ALGEBRA)


def _number(sweep: Sweep, node: Node, x: Input) -> bool | int | float | None:
    """The Python number that can stand for an operand of a node that gives ``takes_numbers``."""
    found = sweep.uniform(x)
    if found is None or type(found) is complex or not takes_numbers(node.outputs[0].dtype):
        return None
    return found


# Powers ------------------------------------------------------------------------------------------


@rule(ALGEBRA, power, words="x ** n of a small integer n -> products")
def _small_power(sweep: Sweep, node: Node) -> Value | None:
    x, exponent = node.inputs
    n = sweep.uniform(exponent)
    if n not in (0, *SMALL_POWERS) or not fits(x, node):
        return None
    if n != 2 and not is_float(x) and (x.dtype not in INTEGERS or n < 0):
        return None
    return sweep.make(ones_like, x) if n == 0 else small_power(sweep.make, x, n)


@rule(ALGEBRA, divide, reciprocal, words="1 / sqrt(x) -> rsqrt(x)")
def _rsqrt(sweep: Sweep, node: Node) -> Value | None:
    if node.op.call is divide and not sweep.is_one(node.inputs[0]):
        return None
    root = node.inputs[-1]
    x = sweep.argument(root, sqrt)
    if not is_float(x) or not fits(root, node) or not sweep.used_once(root):
        return None
    return sweep.make(rsqrt, x)


# Factors -----------------------------------------------------------------------------------------


@rule(ALGEBRA, divide, words="x / 1 -> x")
def _over_one(sweep: Sweep, node: Node) -> Value | None:
    x, one = node.inputs
    return x if sweep.is_one(one) and fits(x, node) else None


@rule(ALGEBRA, divide, words="x / c -> x * (1 / c) of a power of two")
def _over_power_of_two(sweep: Sweep, node: Node) -> Value | None:
    x, divisor = node.inputs
    c = _number(sweep, node, divisor)
    if c is None or not is_float(x) or not fits(x, node) or not math.isfinite(c) or c == 0:
        return None
    exact = math.frexp(c)[0] in (0.5, -0.5) and _is_normal(1 / c, x.dtype)
    return sweep.make(multiply, x, 1 / c) if exact else None


def _is_normal(c: float, dtype: DType) -> bool:
    """Whether a number is neither too large for a dtype nor so small that it loses digits."""
    facts = np.finfo(dtype)
    return float(facts.tiny) <= abs(c) <= float(facts.max)


@rule(ALGEBRA, multiply, words="(x * a) * b -> x * (a * b) of numbers")
def _two_factors(sweep: Sweep, node: Node) -> Value | None:
    for inner, factor in (node.inputs, node.inputs[::-1]):
        b = _number(sweep, node, factor)
        pair = sweep.maker(inner, multiply)
        if b is None or pair is None or not fits(inner, node) or not is_float(inner):
            continue
        for x, other in (pair.inputs, pair.inputs[::-1]):
            a = _number(sweep, node, other)
            if a is None or not fits(x, node) or not sweep.used_once(inner):
                continue
            if _is_normal(a, x.dtype) and _is_normal(b, x.dtype) and _is_normal(a * b, x.dtype):
                return sweep.make(multiply, x, a * b)
    return None


@rule(ALGEBRA, multiply, multiply_no_nan, words="x * 1 -> x")
def _times_one(sweep: Sweep, node: Node) -> Value | None:
    for x, one in (node.inputs, node.inputs[::-1]):
        if sweep.is_one(one) and fits(x, node):
            return x
    return None


@rule(ALGEBRA, multiply_no_nan, words="multiply_no_nan by a number that is not 0 -> multiply")
def _plain_product(sweep: Sweep, node: Node) -> Value | None:
    for x, factor in (node.inputs, node.inputs[::-1]):
        c = _number(sweep, node, factor)
        if c is not None and c != 0 and math.isfinite(c) and fits(x, node) and is_float(x):
            return sweep.make(multiply, x, c)
    return None


@rule(ALGEBRA, multiply, words="x * (1 / y) -> x / y")
def _times_reciprocal(sweep: Sweep, node: Node) -> Value | None:
    for x, over in (node.inputs, node.inputs[::-1]):
        y = sweep.argument(over, reciprocal)
        if y is not None and sweep.used_once(over) and is_float(y):
            return sweep.make(divide, x, y)
    return None


# Signs and zeros ---------------------------------------------------------------------------------


@rule(ALGEBRA, multiply, words="x * -1 -> -x")
def _times_minus_one(sweep: Sweep, node: Node) -> Value | None:
    for x, factor in (node.inputs, node.inputs[::-1]):
        if sweep.uniform(factor) == -1 and fits(x, node):
            return sweep.make(negative, x)
    return None


@rule(ALGEBRA, add, words="x + 0 -> x")
def _plus_zero(sweep: Sweep, node: Node) -> Value | None:
    for x, zero in (node.inputs, node.inputs[::-1]):
        if sweep.is_zero(zero) and fits(x, node):
            return x
    return None


@rule(ALGEBRA, subtract, words="x - 0 -> x, 0 - x -> -x")
def _difference_to_zero(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    if sweep.is_zero(b) and fits(a, node):
        return a
    return sweep.make(negative, b) if sweep.is_zero(a) and fits(b, node) else None


@rule(ALGEBRA, add, words="a + (-b) -> a - b")
def _plus_negative(sweep: Sweep, node: Node) -> Value | None:
    for a, minus in (node.inputs, node.inputs[::-1]):
        b = sweep.argument(minus, negative)
        if b is not None:
            return sweep.make(subtract, a, b)
    return None


@rule(ALGEBRA, subtract, words="a - (-b) -> a + b")
def _minus_negative(sweep: Sweep, node: Node) -> Value | None:
    b = sweep.argument(node.inputs[1], negative)
    return None if b is None else sweep.make(add, node.inputs[0], b)


@rule(ALGEBRA, multiply, multiply_no_nan, divide, words="(-a) * (-b) -> a * b, and of quotients")
def _two_signs(sweep: Sweep, node: Node) -> Value | None:
    a, b = (sweep.argument(x, negative) for x in node.inputs)
    return None if a is None or b is None else sweep.make(node.op.call, a, b)


@rule(ALGEBRA, negative, words="-(a - b) -> b - a")
def _turned(sweep: Sweep, node: Node) -> Value | None:
    inner = sweep.maker(node.inputs[0], subtract)
    if inner is None or not sweep.used_once(node.inputs[0]):
        return None
    return sweep.make(subtract, *inner.inputs[::-1])


@rule(ALGEBRA, negative, words="-(-x) -> x")
def _two_negations(sweep: Sweep, node: Node) -> Value | None:
    return sweep.argument(node.inputs[0], negative)


# Choices -----------------------------------------------------------------------------------------


@rule(ALGEBRA, where, words="where(c, x, x) -> x, and of conditions that are known")
def _known_choice(sweep: Sweep, node: Node) -> Value | None:
    condition, a, b = node.inputs
    known = sweep.uniform(condition)
    chosen = a if a is b or known not in (None, False, 0) else b if known is not None else None
    return chosen if fits(chosen, node) else None


# Shapes ------------------------------------------------------------------------------------------


@rule(ALGEBRA, reshape, words="reshape(reshape(x)) -> reshape(x), or x")
def _reshaped_twice(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], reshape, expand_dims, squeeze)
    if x is None:
        return None
    shape = node.outputs[0].shape
    return x if x.shape == shape else sweep.make(reshape, x, shape=shape)


@rule(ALGEBRA, concat, words="concat of one -> x")
def _single(sweep: Sweep, node: Node) -> Value | None:
    return node.inputs[0] if len(node.inputs) == 1 and fits(node.inputs[0], node) else None


@rule(ALGEBRA, ops["pad"].call, words="pad by nothing -> x")
def _unpadded(sweep: Sweep, node: Node) -> Value | None:
    return node.inputs[0] if fits(node.inputs[0], node) and _all_zero(node) else None


def _all_zero(node: Node) -> bool:
    widths = node.attributes["pad_width"]
    return bool(np.all(np.asarray(widths, object) == 0))


@rule(
    ALGEBRA,
    add,
    subtract,
    multiply,
    divide,
    maximum,
    minimum,
    multiply_no_nan,
    words="broadcast_to(x) op y -> x op y",
)
def _spread_anyway(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    shape = node.outputs[0].shape
    for i, (spread, other) in enumerate(((a, b), (b, a))):
        x = sweep.argument(spread, broadcast_to)
        if x is not None and type(other) is Value and other.shape == shape:
            return sweep.make(node.op.call, *((x, other) if i == 0 else (other, x)))
    return None


# Sums --------------------------------------------------------------------------------------------


@rule(
    ALGEBRA,
    sums.sum,
    mean,
    sums.max,
    sums.min,
    words="reduction(broadcast_to(x)) -> reduction(x), times the count",
)
def _of_repeated(sweep: Sweep, node: Node) -> Value | None:
    spread = node.inputs[0]
    x = sweep.argument(spread, broadcast_to)
    if x is None or (not is_float(x) and node.op.call in (sums.sum, mean)):
        return None
    if node.attributes.get("dtype") is not None:
        return None
    own = x
    if len(x.shape) < len(spread.shape):
        shape = (1,) * (len(spread.shape) - len(x.shape)) + x.shape
        x = sweep.make(reshape, x, shape=shape)
    axes = normalize_axes(node.attributes["axis"], len(spread.shape))
    repeated = tuple(i for i in axes if x.shape[i] != spread.shape[i])
    count = product(spread.shape[i] for i in repeated)
    if not repeated or symbolic((count,)) or count == 0 or not takes_numbers(own.dtype):
        return None
    if any(x.shape[i] != spread.shape[i] and i not in axes for i in range(len(x.shape))):
        return None  # some of the repetition stays
    kept = {"axis": axes, "keepdims": node.attributes["keepdims"]}
    reduced = sweep.make(node.op.call, x, **kept)
    return sweep.make(multiply, reduced, int(count)) if node.op.call is sums.sum else reduced


@rule(
    ALGEBRA,
    sums.sum,
    mean,
    sums.max,
    sums.min,
    sums.any,
    sums.all,
    words="reduction(reduction(x)) -> reduction(x)",
)
def _reduced_twice(sweep: Sweep, node: Node) -> Value | None:
    inner = sweep.maker(node.inputs[0], node.op.call)
    if inner is None or not sweep.used_once(node.inputs[0]):
        return None
    keepdims = inner.attributes["keepdims"]
    if inner.attributes.get("dtype") is not None or node.attributes.get("dtype") is not None:
        return None
    if keepdims != node.attributes["keepdims"] or inner.inputs[0].dtype != node.outputs[0].dtype:
        return None
    x = inner.inputs[0]
    rank = len(x.shape)
    first = normalize_axes(inner.attributes["axis"], rank)
    left = range(rank) if keepdims else [i for i in range(rank) if i not in first]
    second = [left[i] for i in normalize_axes(node.attributes["axis"], len(left))]
    if node.op.call is mean and set(first) & set(second):
        return None
    axes = tuple(sorted({*first, *second}))
    return sweep.make(node.op.call, x, axis=axes, keepdims=keepdims)


@rule(ALGEBRA, sums.sum, words="sum of equal numbers -> the number times their count")
def _sum_of_equal(sweep: Sweep, node: Node) -> Value | None:
    x = node.inputs[0]
    c = _number(sweep, node, x)
    total = node.outputs[0]
    if c is None or symbolic(x.shape) or x.dtype not in FLOATS or x.dtype != total.dtype:
        return None
    axes = normalize_axes(node.attributes["axis"], len(x.shape))
    result = c * int(product(x.shape[i] for i in axes))
    if not abs(result) <= float(np.finfo(total.dtype).max) or total.size > MAX_CONSTANT_ELEMENTS:
        return None
    return sweep.constant(float(result), total)
