"""Algebra: forms that are faster and no less accurate than the ops' stated bounds allow.

The results may round differently from eager calls, by no more than the units in the last place
that the ops state for themselves. The sign of a zero, and that of a NaN, may change: ``x + 0`` is
``x``. Divisions become multiplications only if that is exact, by powers of two, so that
``x / 49 * 49`` is unchanged; sums of constants are not merged, since that could undo intended
rounding.

The pass ``no_ops`` is its exact part: it removes nodes that return one of their inputs,
bit for bit and with the same layout. The layout of a value decides the summation order of a
reduction or product, so a copy is removed only if its input is known to have the same layout.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeGuard

import numpy as np

from eagerflow.capture.passes.patterns import pattern
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
from eagerflow.dtypes import BOOL, FLOATS, INTEGERS, DType, is_complex
from eagerflow.fusion.lowering import SMALL_POWERS, small_power
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import ops
from eagerflow.ops.creation.cast import astype, stop_gradient
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
from eagerflow.ops.elementwise.bitwise import bitwise_and, bitwise_or
from eagerflow.ops.elementwise.comparison import logical_and, logical_or
from eagerflow.ops.elementwise.complexes import conj, imag, real
from eagerflow.ops.elementwise.powers import power
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.indexing.indexing import getitem, index_scatter
from eagerflow.ops.reductions import sums
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, permute_dims, reshape, squeeze
from eagerflow.spec import normalize_axes

NO_OPS: Rules = {}
ALGEBRA: Rules = {}
STOP_GRADIENTS: Rules = {}
_STRIDED = (conj, real, imag)  # results that may be parts of their argument, with gaps between
MAX_CONSTANT_ELEMENTS = 4096  # limit for results that become constants


def without_no_ops(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without no-ops, which change neither bits nor memory layout.

    Examples are views of the whole, casts to the same dtype, chains of transposes
    and of broadcasts, double negation, multiplication by 1 and the like.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x[:]) * 1, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['getitem', 'tanh', 'multiply']
    >>> [node.op.name for node in ef.capture.passes.no_ops(graph).nodes]
    ['tanh']
    """
    return swept("no_ops", graph, NO_OPS, _ExactSweep)


def simplified(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph in simpler terms: cheap powers, merged factors, signs, sums and reshapes.

    >>> graph = ef.capture.trace(lambda x: x**3 / 4, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['power', 'divide']
    >>> [node.op.name for node in ef.capture.passes.algebra(graph).nodes]
    ['square', 'multiply', 'multiply']
    """
    return swept("algebra", graph, ALGEBRA)


def without_stop_gradients(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph without stop_gradient: it runs the same, and its gradients differ.

    >>> f = lambda x: ef.tanh(ef.stop_gradient(x))
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['stop_gradient', 'tanh']
    >>> [node.op.name for node in ef.capture.passes.stop_gradients(graph).nodes]
    ['tanh']
    """
    return swept("stop_gradients", graph, STOP_GRADIENTS)


class _ExactSweep(Sweep):
    """A sweep that also preserves the memory layout of values."""

    def stands_for(self, x: Input, node: Node, *others: Input) -> TypeGuard[Value]:
        return fits(x, node) and self._dense(x) and all(self._has_no_strides(y) for y in others)

    def _dense(self, x: Input) -> bool:
        """Whether ``x`` is contiguous, so that a copy has the same layout."""
        while type(x) is Value and x.node is not None:
            op, size = x.node.op, x.size
            if op.family == "elementwise":
                return op.call not in _STRIDED
            x = x.node.inputs[0] if op.views else None
            if type(x) is not Value or x.size != size:
                break
        return False

    def _has_no_strides(self, x: Input) -> bool:
        """Whether an operand has no influence on the layout of the result."""
        if type(x) is not Value:
            return True
        spread = self.argument(x, broadcast_to)
        return bool((x if spread is None else spread).size == 1)


def _number(sweep: Sweep, node: Node, x: Input) -> bool | int | float | None:
    """The Python number to replace an operand of a node of a ``takes_numbers`` dtype."""
    found = sweep.uniform(x)
    if found is None or type(found) is complex or not takes_numbers(node.outputs[0].dtype):
        return None
    return found


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
        return x if sweep.stands_for(x, node) else None
    same_kind = wanted in FLOATS if x.dtype in FLOATS else wanted in INTEGERS
    return sweep.make(astype, x, dtype=wanted) if same_kind else None


def _keeps(narrow: DType, wide: DType) -> bool:
    """Whether a dtype holds every value of another of its kind."""
    floats = narrow in FLOATS and wide in FLOATS
    integers = narrow in INTEGERS | BOOL and wide in INTEGERS
    return (floats or integers) and np.can_cast(narrow, wide)


# Neutral operands --------------------------------------------------------------------------------


for _rules in (NO_OPS, ALGEBRA):
    pattern(_rules, "x * 1 -> x", floats=False)
    pattern(_rules, "x / 1 -> x", floats=False)
    pattern(_rules, "-(-x) -> x", floats=False)
pattern(NO_OPS, "~~x -> x", floats=False)
pattern(NO_OPS, "not not x -> x", floats=False)
pattern(NO_OPS, "+x -> x", floats=False)


@rule(NO_OPS, subtract, words="x - 0 -> x")
@rule(NO_OPS, add, words="x + -0.0 -> x, and x + 0 -> x of integers")
def _zero_without_effect(sweep: Sweep, node: Node) -> Value | None:
    """Signs of float zeros are kept next to one of the two: 0 + -0 is 0, as is -0 - -0."""
    dtype = node.outputs[0].dtype
    added = node.op.call is add
    for x, zero in (node.inputs, node.inputs[::-1]) if added else (node.inputs,):
        if is_complex(dtype) or not sweep.is_zero(zero) or not sweep.stands_for(x, node, zero):
            continue
        if dtype not in FLOATS or (math.copysign(1, sweep.uniform(zero)) < 0) == added:
            return x
    return None


@rule(NO_OPS, conj, words="conj(x) -> x of real numbers")
def _conjugate(sweep: Sweep, node: Node) -> Value | None:
    x = node.inputs[0]
    return x if not is_complex(x.dtype) and sweep.stands_for(x, node) else None


@rule(
    NO_OPS, maximum, minimum, logical_and, logical_or, bitwise_and, bitwise_or, words="x and x -> x"
)
def _with_itself(sweep: Sweep, node: Node) -> Value | None:
    a, b = node.inputs
    return a if a is b and sweep.stands_for(a, node) else None


# Powers ------------------------------------------------------------------------------------------


@rule(ALGEBRA, power, words="x ** n of a small integer n -> products")
def _small_power(sweep: Sweep, node: Node) -> Value | None:
    x, exponent = node.inputs
    n = sweep.uniform(exponent)
    if type(n) is complex or n not in (0, *SMALL_POWERS) or not fits(x, node):
        return None
    if n != 2 and not is_float(x) and (x.dtype not in INTEGERS or n < 0):
        return None
    return sweep.make(ones_like, x) if n == 0 else small_power(sweep.make, x, n)


pattern(ALGEBRA, "1 / sqrt(x) -> rsqrt(x)", once=True)


# Factors -----------------------------------------------------------------------------------------


@rule(ALGEBRA, divide, words="x / c -> x * (1 / c) of a power of two")
def _over_power_of_two(sweep: Sweep, node: Node) -> Value | None:
    x, divisor = node.inputs
    c = _number(sweep, node, divisor)
    if c is None or not is_float(x) or not fits(x, node) or not math.isfinite(c) or c == 0:
        return None
    exact = math.frexp(c)[0] in (0.5, -0.5) and _is_normal(1 / c, x.dtype)
    return sweep.make(multiply, x, 1 / c) if exact else None


def _is_normal(c: float, dtype: DType) -> bool:
    """Whether a number is in the normal range of a dtype."""
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


pattern(ALGEBRA, "x * -1 -> -x", floats=False)
pattern(ALGEBRA, "x + 0 -> x", floats=False)
pattern(ALGEBRA, "x - 0 -> x, 0 - x -> -x", floats=False)
pattern(ALGEBRA, "a + (-b) -> a - b", floats=False)
pattern(ALGEBRA, "a - (-b) -> a + b", floats=False)


@rule(ALGEBRA, multiply, multiply_no_nan, divide, words="(-a) * (-b) -> a * b, and of quotients")
def _two_signs(sweep: Sweep, node: Node) -> Value | None:
    a, b = (sweep.argument(x, negative) for x in node.inputs)
    return None if a is None or b is None else sweep.make(node.op.call, a, b)


pattern(ALGEBRA, "-(a - b) -> b - a", floats=False, once=True)


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
        return None  # some of the repetition remains
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


# Gradients ---------------------------------------------------------------------------------------


@rule(STOP_GRADIENTS, stop_gradient, words="stop_gradient(x) -> x")
def _stopped(sweep: Sweep, node: Node) -> Value | None:
    return node.inputs[0]


# Sums of parts ------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A value scattered to a range of an axis; as a single slice of it if ``one`` is set."""

    axis: int
    start: int
    stop: int
    one: bool
    values: Value


@rule(ALGEBRA, add, words="sum of arrays scattered side by side -> concat")
def _side_by_side(sweep: Sweep, node: Node) -> Value | None:
    """Sums of gradients of adjacent slices of a value, as for queries and keys."""
    parts: list[_Part] = []
    waiting = list(node.inputs)
    while waiting:
        x = waiting.pop()
        inner = sweep.maker(x, add, index_scatter)
        if inner is None or not sweep.used_once(x) or not fits(x, node):
            return None
        if inner.op.call is add:
            waiting += inner.inputs
        elif (part := _part_of(inner)) is not None:
            parts.append(part)
        else:
            return None
    parts.sort(key=lambda part: part.start)
    axis, shape = parts[0].axis, node.outputs[0].shape
    ends = [0, *(part.stop for part in parts)]
    if any(p.axis != axis or p.start != end for p, end in zip(parts, ends, strict=False)):
        return None
    if ends[-1] != shape[axis]:
        return None
    arrays = [sweep.make(expand_dims, p.values, axis=axis) if p.one else p.values for p in parts]
    return sweep.make(concat, *arrays, axis=axis)


def _part_of(node: Node) -> _Part | None:
    """The target of a scatter; None unless it is a whole range of one axis."""
    shape, index = node.attributes["shape"], node.attributes["index"]
    index = index if type(index) is tuple else (index,)
    if len(node.inputs) > 1 or symbolic(shape) or None in index or index.count(Ellipsis) > 1:
        return None
    if Ellipsis in index:
        at, missing = index.index(Ellipsis), len(shape) - len(index) + 1
        index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    index = (*index, *[slice(None)] * (len(shape) - len(index)))
    found: list[tuple[int, int, int, bool]] = []
    for axis, (item, size) in enumerate(zip(index, shape, strict=True)):
        if type(item) is int:
            found.append((axis, item % size, item % size + 1, True))
        elif type(item) is not slice or item.step not in (None, 1):
            return None
        elif (span := item.indices(size)[:2]) != (0, size):
            found.append((axis, *span, False))
    (values,) = node.inputs
    if len(found) != 1:
        return None
    axis, start, stop, one = found[0]
    whole = (*shape[:axis], *([] if one else [stop - start]), *shape[axis + 1 :])
    return _Part(axis, start, stop, one, values) if values.shape == whole else None
