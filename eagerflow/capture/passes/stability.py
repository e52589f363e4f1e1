"""Stability: forms that lose digits, overflow or give NaN become their stable equals.

In exact arithmetic nothing changes; in floating point the results are closer to it, and finite
where the form as written is not. This is more than a change of rounding, so ``numerics="exact"``
leaves it out, and the report has a line for each place. What is meant to differ from the plain
form, such as ``log(p + epsilon)``, is left alone.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.capture.passes import stable_gradients
from eagerflow.capture.passes.patterns import (
    chain,
    exponential_sum,
    less_one,
    lines_up,
    one_minus,
    plus_one,
    single_axis,
    square_of,
)
from eagerflow.capture.passes.rewriting import (
    Rewrite,
    Sweep,
    by_op,
    is_float,
    rule,
    swept,
    takes_numbers,
)
from eagerflow.dims import product, symbolic
from eagerflow.graph.ir import Graph, Node, Value
from eagerflow.spec import normalize_axes

__all__ = ["stabilized"]

NAME = stable_gradients.NAME


def stabilized(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with stable forms in place of unstable ones, also in gradients.

    >>> graph = ef.capture.trace(lambda x: ef.log(1 + ef.exp(x)), ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['exp', 'add', 'log']
    >>> [node.op.name for node in ef.capture.passes.stability(graph).nodes]
    ['exp', 'add', 'softplus']
    """
    return swept(NAME, graph, _RULES)


# Logarithms --------------------------------------------------------------------------------------


@rule(NAME, "log", "log(softmax(x)) -> log_softmax(x)")
def _log_of_softmax(sweep: Sweep, node: Node) -> Any:
    inner = sweep.maker(node.inputs[0], "softmax")
    if inner is None:
        return None
    return sweep.make("log_softmax", inner.inputs[0], axis=inner.attributes["axis"])


@rule(NAME, "log", "log(sigmoid(x)) -> log_sigmoid(x)")
def _log_of_sigmoid(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(node.inputs[0], "sigmoid")
    return None if x is None else sweep.make("log_sigmoid", x)


_LOG_OF = {"softmax": "log_softmax", "sigmoid": "log_sigmoid"}
_PLACES = (
    "getitem",
    "take_along_axis",
    "take",
    "reshape",
    "permute_dims",
    "expand_dims",
    "squeeze",
)


@rule(NAME, "log", "log(softmax(x)[i]) -> log_softmax(x)[i], and of sigmoid")
def _log_of_part(sweep: Sweep, node: Node) -> Any:
    part = sweep.maker(node.inputs[0], *_PLACES)
    inner = None if part is None else sweep.maker(part.inputs[0], *_LOG_OF)
    if part is None or inner is None:
        return None
    whole = sweep.make(_LOG_OF[inner.op.name], inner.inputs[0], **inner.attributes)
    return sweep.make(part.op.name, whole, *part.inputs[1:], **part.attributes)


@rule(NAME, "log", "log(1 + exp(x)) -> softplus(x)")
def _log_of_one_plus_exp(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(plus_one(sweep, node.inputs[0]), "exp")
    return None if x is None else sweep.make("softplus", x)


@rule(NAME, "log", "log(1 - exp(x)) -> log(expm1(-x)) + x or log1p(-exp(x)), by size")
def _log_of_one_minus_exp(sweep: Sweep, node: Node) -> Any:
    """As Maechler, Accurately computing log(1 - exp(-|a|)), 2012, chooses between the two."""
    x = sweep.argument(one_minus(sweep, node.inputs[0]), "exp")
    if x is None:  # what another rule makes of it
        x = sweep.argument(sweep.argument(node.inputs[0], "negative"), "expm1")
    if x is None or not is_float(x) or not takes_numbers(x.dtype):
        return None
    near = sweep.make("log", sweep.make("expm1", sweep.make("negative", x)))
    far = sweep.make("log1p", sweep.make("negative", sweep.make("exp", x)))
    is_near = sweep.make("greater", x, -math.log(2))
    return sweep.make("where", is_near, sweep.make("add", near, x), far)


@rule(NAME, "log", "log(1 + x) -> log1p(x)")
def _log_of_one_plus(sweep: Sweep, node: Node) -> Any:
    x = plus_one(sweep, node.inputs[0])
    return None if x is None else sweep.make("log1p", x)


@rule(NAME, "log", "log(1 - x) -> log1p(-x)")
def _log_of_one_minus(sweep: Sweep, node: Node) -> Any:
    x = one_minus(sweep, node.inputs[0])
    return None if x is None else sweep.make("log1p", sweep.make("negative", x))


@rule(NAME, "log1p", "log1p(exp(x)) -> softplus(x)")
def _log1p_of_exp(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(node.inputs[0], "exp")
    return sweep.make("softplus", x) if is_float(x) else None


@rule(NAME, "log", "log(sum(exp(x))) -> logsumexp(x)")
def _log_of_sum_of_exp(sweep: Sweep, node: Node) -> Any:
    found = exponential_sum(sweep, node.inputs[0])
    if found is None:
        return None
    x, inner = found
    kept = {name: inner.attributes[name] for name in ("axis", "keepdims")}
    return sweep.make("logsumexp", x, **kept)


@rule(NAME, "log", "log(mean(exp(x))) -> logsumexp(x) - log(count)")
def _log_of_mean_of_exp(sweep: Sweep, node: Node) -> Any:
    inner = sweep.maker(node.inputs[0], "mean")
    x = None if inner is None else sweep.argument(inner.inputs[0], "exp")
    if inner is None or x is None or not is_float(x) or not takes_numbers(x.dtype):
        return None
    axes = normalize_axes(inner.attributes["axis"], len(x.shape))
    count = product(x.shape[i] for i in axes)
    if symbolic((count,)) or count == 0:
        return None
    total = sweep.make("logsumexp", x, **inner.attributes)
    return sweep.make("subtract", total, math.log(count))


@rule(NAME, "log", "log(exp(a) + exp(b)) -> logaddexp(a, b)")
def _log_of_two_exps(sweep: Sweep, node: Node) -> Any:
    total = sweep.maker(node.inputs[0], "add")
    if total is None:
        return None
    a, b = (sweep.argument(x, "exp") for x in total.inputs)
    return sweep.make("logaddexp", a, b) if is_float(a) and is_float(b) else None


@rule(NAME, "log", "log(exp(x)) -> x")
def _log_of_exp(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(node.inputs[0], "exp")
    return x if is_float(x) else None


# Differences -------------------------------------------------------------------------------------


@rule(NAME, "subtract add", "exp(x) - 1 -> expm1(x)")
def _exp_less_one(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(less_one(sweep, node.outputs[0]), "exp")
    return None if x is None else sweep.make("expm1", x)


@rule(NAME, "subtract", "1 - exp(x) -> -expm1(x)")
def _one_less_exp(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(one_minus(sweep, node.outputs[0]), "exp")
    return None if x is None else sweep.make("negative", sweep.make("expm1", x))


@rule(NAME, "subtract", "1 - sigmoid(x) -> sigmoid(-x)")
def _one_less_sigmoid(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(one_minus(sweep, node.outputs[0]), "sigmoid")
    return None if x is None else sweep.make("sigmoid", sweep.make("negative", x))


@rule(NAME, "subtract", "1 - erf(x) -> erfc(x)")
def _one_less_erf(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(one_minus(sweep, node.outputs[0]), "erf")
    return None if x is None else sweep.make("erfc", x)


@rule(NAME, "subtract", "1 - tanh(x)² -> (1 / cosh(x))²")
def _one_less_squared_tanh(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(square_of(sweep, one_minus(sweep, node.outputs[0])), "tanh")
    if x is None:
        return None
    return sweep.make("square", sweep.make("reciprocal", sweep.make("cosh", x)))


@rule(NAME, "subtract", "1 - cos(x) -> 2 sin(x / 2)²")
def _one_less_cos(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(one_minus(sweep, node.outputs[0]), "cos")
    if x is None or not takes_numbers(x.dtype):
        return None
    half = sweep.make("sin", sweep.make("multiply", x, 0.5))
    return sweep.make("multiply", sweep.make("square", half), 2.0)


@rule(NAME, "subtract", "mean(x²) - mean(x)² -> var(x)")
def _moments(sweep: Sweep, node: Node) -> Any:
    squares = sweep.maker(node.inputs[0], "mean")
    means = sweep.maker(square_of(sweep, node.inputs[1]), "mean")
    if squares is None or means is None:
        return None
    x = square_of(sweep, squares.inputs[0])
    rank = len(squares.inputs[0].shape)
    same = (
        x is not None
        and x is means.inputs[0]
        and all(
            (normalize_axes(n.attributes["axis"], rank), n.attributes["keepdims"])
            == (normalize_axes(squares.attributes["axis"], rank), squares.attributes["keepdims"])
            for n in (squares, means)
        )
    )
    return sweep.make("var", x, **squares.attributes) if same else None


# Quotients ---------------------------------------------------------------------------------------


@rule(NAME, "divide", "exp(x) / sum(exp(x)) -> softmax(x)")
def _softmax(sweep: Sweep, node: Node) -> Any:
    x = sweep.argument(node.inputs[0], "exp")
    shown, views = chain(sweep, node.inputs[1])
    found = exponential_sum(sweep, shown)
    if found is None or found[0] is not x:
        return None
    rank = len(x.shape)
    axis = single_axis(found[1].attributes["axis"], rank)
    if axis is None:
        return None
    aligned = lines_up(x, (axis,), views, shown)
    return sweep.make("softmax", x, axis=axis) if aligned else None


@rule(NAME, "divide reciprocal", "1 / (1 + exp(-x)) -> sigmoid(x)")
def _sigmoid(sweep: Sweep, node: Node) -> Any:
    if node.op.name == "divide" and not sweep.is_one(node.inputs[0]):
        return None
    below = node.inputs[-1]
    if type(below) is not Value or below.shape != node.outputs[0].shape:
        return None
    x = sweep.argument(plus_one(sweep, below), "exp")
    if x is None:
        return None
    positive = sweep.argument(x, "negative")
    return sweep.make("sigmoid", sweep.make("negative", x) if positive is None else positive)


@rule(NAME, "divide", "exp(x) / (1 + exp(x)) -> sigmoid(x)")
def _sigmoid_of_exps(sweep: Sweep, node: Node) -> Any:
    above, below = node.inputs
    x = sweep.argument(above, "exp")
    return sweep.make("sigmoid", x) if x is not None and plus_one(sweep, below) is above else None


@rule(NAME, "divide", "(exp(x) - exp(-x)) / (exp(x) + exp(-x)) -> tanh(x)")
def _tanh(sweep: Sweep, node: Node) -> Any:
    above, below = sweep.maker(node.inputs[0], "subtract"), sweep.maker(node.inputs[1], "add")
    if above is None or below is None or set(above.inputs) != set(below.inputs):
        return None
    x, minus = (sweep.argument(e, "exp") for e in above.inputs)
    if not is_float(x) or sweep.argument(minus, "negative") is not x:
        return None
    return sweep.make("tanh", x)


# Roots -------------------------------------------------------------------------------------------


@rule(NAME, "sqrt", "sqrt(x²) -> abs(x)")
def _root_of_square(sweep: Sweep, node: Node) -> Any:
    x = square_of(sweep, node.inputs[0])
    return None if x is None else sweep.make("abs", x)


@rule(NAME, "sqrt", "sqrt(a² + b²) -> hypot(a, b)")
def _hypotenuse(sweep: Sweep, node: Node) -> Any:
    total = sweep.maker(node.inputs[0], "add")
    if total is None:
        return None
    a, b = (square_of(sweep, x) for x in total.inputs)
    return None if a is None or b is None else sweep.make("hypot", a, b)


_RULES = by_op(NAME)
