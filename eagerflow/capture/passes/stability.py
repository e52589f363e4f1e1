"""Stability: forms that lose digits, overflow or give NaN become their stable equals.

In exact arithmetic nothing changes; in floating point the results are more accurate, and finite
where the form as written is not. This is more than a change of rounding, so ``numerics="exact"``
skips it, and the report has a line for each rewrite. Forms that deliberately differ from the plain
form, such as ``log(p + epsilon)``, are left alone.

Gradients have rules of their own. Where a program takes the logarithm of a softmax, the gradient
divides by the softmax again; with probabilities that underflow this gives NaN. The gradient that
the tape makes of an unstable form becomes the gradient of the stable one.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.capture.passes.patterns import operand, pattern
from eagerflow.capture.passes.rewriting import (
    Input,
    Rewrite,
    Rules,
    Sweep,
    is_float,
    rule,
    swept,
    takes_numbers,
)
from eagerflow.dims import product, symbolic
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import (
    log_sigmoid,
    log_sigmoid_gradient,
    sigmoid,
    sigmoid_gradient,
    softplus_gradient,
)
from eagerflow.ops.elementwise.arithmetic import (
    add,
    divide,
    multiply,
    multiply_no_nan,
    negative,
    reciprocal,
    subtract,
)
from eagerflow.ops.elementwise.comparison import greater, isfinite
from eagerflow.ops.elementwise.exponential import exp, expm1, log, log1p
from eagerflow.ops.elementwise.powers import square
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import cos, sin
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.indexing.indexing import getitem
from eagerflow.ops.reductions.softmax import (
    log_softmax,
    log_softmax_gradient,
    logsumexp,
    softmax,
    softmax_gradient,
)
from eagerflow.ops.reductions.statistics import mean, var
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, permute_dims, reshape, squeeze
from eagerflow.spec import normalize_axes

STABILITY: Rules = {}


def stabilized(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with stable forms in place of unstable ones, also in gradients.

    >>> graph = ef.capture.trace(lambda x: ef.log(1 + ef.exp(x)), ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['exp', 'add', 'log']
    >>> [node.op.name for node in ef.capture.passes.stability(graph).nodes]
    ['exp', 'add', 'softplus']
    """
    return swept("stability", graph, STABILITY)


# The parts of forms -------------------------------------------------------------------------------


_plus_one, _one_minus, _square_of = [operand(x) for x in ("1 + y", "1 - y", "y²")]
_mirrored = operand("sigmoid(-y)")


def _is_complement(sweep: Sweep, y: Value, other: Input) -> bool:
    """Whether ``other`` is 1 - y, where y is a sigmoid."""
    if _one_minus(sweep, other) is y:
        return True
    x = sweep.argument(y, sigmoid)
    return x is not None and _mirrored(sweep, other) is x


def _over(sweep: Sweep, x: Input) -> tuple[Input, Value] | None:
    """The (g, y) of x = g / y in any of its forms, g perhaps the number 1; else None."""
    node = sweep.maker(x, reciprocal, divide, multiply, multiply_no_nan)
    if node is None or not is_float(x):
        return None
    if node.op.call is reciprocal:
        return 1, node.inputs[0]
    if node.op.call is divide:
        g, y = node.inputs
        return (g, y) if type(y) is Value else None
    for g, part in (node.inputs, node.inputs[::-1]):
        y = sweep.argument(part, reciprocal)
        if y is not None:
            return g, y
    return None


def _exponential_sum(sweep: Sweep, x: Input) -> tuple[Value, Node] | None:
    """The z of x = sum(exp(z)), and the node of the sum; else None."""
    node = sweep.maker(x, sum)
    if node is None or node.attributes["dtype"] is not None:
        return None
    z = sweep.argument(node.inputs[0], exp)
    return None if z is None or not is_float(z) else (z, node)


def _chain(sweep: Sweep, x: Any) -> tuple[Any, list[Node]]:
    """The source of ``x``, through reshapes and repetition, and the nodes of these from the end."""
    views: list[Node] = []
    while (node := sweep.maker(x, reshape, broadcast_to, expand_dims, squeeze)) is not None:
        views.append(node)
        x = node.inputs[0]
    return x, views


def _lines_up(x: Value, axes: tuple[int, ...], views: list[Node], total: Value) -> bool:
    """Whether ``total``, a reduction of ``x`` over ``axes`` seen through views, lines up with x.

    It does where its shape is that of x with 1 for the axes, before it is repeated.
    """
    spread = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    shapes = [*(view.outputs[0].shape for view in views), total.shape]
    if shapes[0] == spread or len(axes) == len(x.shape):
        return True
    return shapes[0] == x.shape and len(shapes) > 1 and shapes[1] == spread


# Logarithms --------------------------------------------------------------------------------------


@rule(STABILITY, log, words="log(softmax(x)) -> log_softmax(x)")
def _log_of_softmax(sweep: Sweep, node: Node) -> Value | None:
    inner = sweep.maker(node.inputs[0], softmax)
    if inner is None:
        return None
    return sweep.make(log_softmax, inner.inputs[0], axis=inner.attributes["axis"])


pattern(STABILITY, "log(sigmoid(x)) -> log_sigmoid(x)")


_LOG_OF = {softmax: log_softmax, sigmoid: log_sigmoid}
_PARTS = (getitem, take_along_axis, take, reshape, permute_dims, expand_dims, squeeze)


@rule(STABILITY, log, words="log(softmax(x)[i]) -> log_softmax(x)[i], and of sigmoid")
def _log_of_part(sweep: Sweep, node: Node) -> Value | None:
    part = sweep.maker(node.inputs[0], *_PARTS)
    inner = None if part is None else sweep.maker(part.inputs[0], *_LOG_OF)
    if part is None or inner is None:
        return None
    whole = sweep.make(_LOG_OF[inner.op.call], inner.inputs[0], **inner.attributes)
    return sweep.make(part.op.call, whole, *part.inputs[1:], **part.attributes)


pattern(STABILITY, "log(1 + exp(x)) -> softplus(x)")


@rule(STABILITY, log, words="log(1 - exp(x)) -> log(expm1(-x)) + x or log1p(-exp(x)), by size")
def _log_of_one_minus_exp(sweep: Sweep, node: Node) -> Value | None:
    """The choice follows Maechler, Accurately computing log(1 - exp(-|a|)), 2012."""
    x = sweep.argument(_one_minus(sweep, node.inputs[0]), exp)
    if x is None:  # handled by another rule
        x = sweep.argument(sweep.argument(node.inputs[0], negative), expm1)
    if x is None or not is_float(x) or not takes_numbers(x.dtype):
        return None
    near = sweep.make(log, sweep.make(expm1, sweep.make(negative, x)))
    far = sweep.make(log1p, sweep.make(negative, sweep.make(exp, x)))
    is_near = sweep.make(greater, x, -math.log(2))
    return sweep.make(where, is_near, sweep.make(add, near, x), far)


pattern(STABILITY, "log(1 + x) -> log1p(x)")
pattern(STABILITY, "log(1 - x) -> log1p(-x)")
pattern(STABILITY, "log1p(exp(x)) -> softplus(x)")


@rule(STABILITY, log, words="log(sum(exp(x))) -> logsumexp(x)")
def _log_of_sum_of_exp(sweep: Sweep, node: Node) -> Value | None:
    found = _exponential_sum(sweep, node.inputs[0])
    if found is None:
        return None
    x, inner = found
    kept = {name: inner.attributes[name] for name in ("axis", "keepdims")}
    return sweep.make(logsumexp, x, **kept)


@rule(STABILITY, log, words="log(mean(exp(x))) -> logsumexp(x) - log(count)")
def _log_of_mean_of_exp(sweep: Sweep, node: Node) -> Value | None:
    inner = sweep.maker(node.inputs[0], mean)
    x = None if inner is None else sweep.argument(inner.inputs[0], exp)
    if inner is None or x is None or not is_float(x) or not takes_numbers(x.dtype):
        return None
    axes = normalize_axes(inner.attributes["axis"], len(x.shape))
    count = product(x.shape[i] for i in axes)
    if symbolic((count,)) or count == 0:
        return None
    total = sweep.make(logsumexp, x, **inner.attributes)
    return sweep.make(subtract, total, math.log(count))


pattern(STABILITY, "log(exp(a) + exp(b)) -> logaddexp(a, b)")
pattern(STABILITY, "log(exp(x)) -> x")


# Differences -------------------------------------------------------------------------------------


pattern(STABILITY, "exp(x) - 1 -> expm1(x)")
pattern(STABILITY, "1 - exp(x) -> -expm1(x)")
pattern(STABILITY, "1 - sigmoid(x) -> sigmoid(-x)")
pattern(STABILITY, "1 - erf(x) -> erfc(x)")
pattern(STABILITY, "1 - tanh(x)² -> (1 / cosh(x))²")


@rule(STABILITY, subtract, words="1 - cos(x) -> 2 sin(x / 2)²")
def _one_less_cos(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(_one_minus(sweep, node.outputs[0]), cos)
    if x is None or not takes_numbers(x.dtype):
        return None
    half = sweep.make(sin, sweep.make(multiply, x, 0.5))
    return sweep.make(multiply, sweep.make(square, half), 2.0)


@rule(STABILITY, subtract, words="mean(x²) - mean(x)² -> var(x)")
def _moments(sweep: Sweep, node: Node) -> Value | None:
    squares = sweep.maker(node.inputs[0], mean)
    means = sweep.maker(_square_of(sweep, node.inputs[1]), mean)
    if squares is None or means is None:
        return None
    x = _square_of(sweep, squares.inputs[0])
    if x is None or x is not means.inputs[0]:
        return None
    one, other = (
        (normalize_axes(n.attributes["axis"], len(x.shape)), n.attributes["keepdims"])
        for n in (squares, means)
    )
    return sweep.make(var, x, **squares.attributes) if one == other else None


# Quotients ---------------------------------------------------------------------------------------


@rule(STABILITY, divide, words="exp(x) / sum(exp(x)) -> softmax(x)")
def _softmax(sweep: Sweep, node: Node) -> Value | None:
    x = sweep.argument(node.inputs[0], exp)
    shown, views = _chain(sweep, node.inputs[1])
    found = _exponential_sum(sweep, shown)
    if found is None or found[0] is not x:
        return None
    axes = normalize_axes(found[1].attributes["axis"], len(x.shape))
    aligned = len(axes) == 1 and _lines_up(x, axes, views, shown)
    return sweep.make(softmax, x, axis=axes[0]) if aligned else None


@rule(STABILITY, divide, reciprocal, words="1 / (1 + exp(-x)) -> sigmoid(x)")
def _sigmoid(sweep: Sweep, node: Node) -> Value | None:
    if node.op.call is divide and not sweep.is_one(node.inputs[0]):
        return None
    below = node.inputs[-1]
    if type(below) is not Value or below.shape != node.outputs[0].shape:
        return None
    x = sweep.argument(_plus_one(sweep, below), exp)
    if x is None:
        return None
    positive = sweep.argument(x, negative)
    return sweep.make(sigmoid, sweep.make(negative, x) if positive is None else positive)


pattern(STABILITY, "exp(x) / (1 + exp(x)) -> sigmoid(x)")
pattern(STABILITY, "(exp(x) - exp(-x)) / (exp(x) + exp(-x)) -> tanh(x)")


# Roots -------------------------------------------------------------------------------------------


pattern(STABILITY, "sqrt(x²) -> abs(x)")
pattern(STABILITY, "sqrt(a² + b²) -> hypot(a, b)")


# Gradients ----------------------------------------------------------------------------------------


def _share(sweep: Sweep, x: Input, like: Value) -> Value | None:
    """The g of a quotient as a value like another one: itself, or repeated."""
    if type(x) is Value and x.shape == like.shape:
        return x
    if type(x) is Value:
        return sweep.make(broadcast_to, x, shape=like.shape)
    return sweep.make(ones_like, like) if x == 1 else None


_GRADIENT_OF = {softmax_gradient: softmax, sigmoid_gradient: sigmoid}


@rule(
    STABILITY, softmax_gradient, words="the gradient of log(softmax(x)) -> that of log_softmax(x)"
)
@rule(
    STABILITY, sigmoid_gradient, words="the gradient of log(sigmoid(x)) -> that of log_sigmoid(x)"
)
def _of_logarithm(sweep: Sweep, node: Node) -> Value | None:
    y, pulled = node.inputs
    inner, found = sweep.maker(y, _GRADIENT_OF[node.op.call]), _over(sweep, pulled)
    if inner is None or found is None or found[1] is not y or pulled.shape != y.shape:
        return None
    x = inner.inputs[0]
    g = _share(sweep, found[0], x)
    if g is None or inner.op.call is sigmoid:
        return None if g is None else sweep.make(log_sigmoid_gradient, x, g)
    logarithm = sweep.make(log_softmax, x, axis=inner.attributes["axis"])
    return sweep.make(log_softmax_gradient, logarithm, g, axis=node.attributes["axis"])


@rule(
    STABILITY,
    sigmoid_gradient,
    words="the gradient of log(1 - sigmoid(x)) -> that of log_sigmoid(-x)",
)
def _of_log_complement(sweep: Sweep, node: Node) -> Value | None:
    y, pulled = node.inputs
    x, quotient = sweep.argument(y, sigmoid), sweep.argument(pulled, negative)
    turned = quotient is not None
    found = _over(sweep, quotient if turned else pulled)
    if x is None or found is None or pulled.shape != y.shape:
        return None
    if not _is_complement(sweep, y, found[1]):
        return None
    g = _share(sweep, found[0], x)
    if g is None:
        return None
    slope = sweep.make(softplus_gradient, x, g)
    return sweep.make(negative, slope) if turned else slope


@rule(
    STABILITY,
    multiply,
    multiply_no_nan,
    words="the gradient of log(1 + exp(x)) -> that of softplus(x)",
)
def _of_softplus(sweep: Sweep, node: Node) -> Value | None:
    for exponential, quotient in (node.inputs, node.inputs[::-1]):
        x = sweep.argument(exponential, exp)
        if not is_float(x) or x.shape != node.outputs[0].shape:
            continue
        g = _over_one_plus(sweep, quotient, x, exponential)
        if g is not None and (g := _share(sweep, g, x)) is not None:
            return sweep.make(softplus_gradient, x, g)
    return None


def _over_one_plus(sweep: Sweep, quotient: Input, x: Value, exponential: Value) -> Input:
    """The g of g / (1 + exp(x)), which may have become g * sigmoid(-x); else None."""
    found = _over(sweep, quotient)
    if found is not None:
        return found[0] if _plus_one(sweep, found[1]) is exponential else None
    if _mirrored(sweep, quotient) is x:
        return 1
    node = sweep.maker(quotient, multiply, multiply_no_nan)
    for g, share in (node.inputs, node.inputs[::-1]) if node is not None else ():
        if _mirrored(sweep, share) is x:
            return g
    return None


@rule(
    STABILITY,
    multiply,
    multiply_no_nan,
    words="the gradient of log(sum(exp(x))) -> that of logsumexp(x)",
)
def _of_logsumexp(sweep: Sweep, node: Node) -> Value | None:
    for exponential, spread in (node.inputs, node.inputs[::-1]):
        x = sweep.argument(exponential, exp)
        if not is_float(x) or not takes_numbers(x.dtype) or x.shape != node.outputs[0].shape:
            continue
        shown, views = _chain(sweep, spread)
        found = _over(sweep, shown)
        total = None if found is None else _exponential_sum(sweep, found[1])
        if found is None or total is None or total[0] is not x:
            continue
        if shown.shape != found[1].shape:
            continue
        axes = normalize_axes(total[1].attributes["axis"], len(x.shape))
        if not _lines_up(x, axes, views, found[1]):
            continue
        whole = sweep.make(logsumexp, x, axis=axes, keepdims=True)
        # Where it is -inf, all of x is -inf, and exp(x) is the correct share: 0.
        finite = sweep.make(where, sweep.make(isfinite, whole), whole, 0.0)
        share = sweep.make(exp, sweep.make(subtract, x, finite))
        if type(found[0]) is not Value:
            return share if found[0] == 1 else sweep.make(multiply, share, found[0])
        g = found[0]
        if g.shape != shown.shape:
            g = sweep.make(broadcast_to, g, shape=shown.shape)
        for view in reversed(views):
            g = sweep.make(view.op.call, g, **view.attributes)
        return sweep.make(multiply, share, g)
    return None
