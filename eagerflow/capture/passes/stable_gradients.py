"""Stability in gradients: what the tape makes of unstable forms, in terms of the stable ones.

Where a program takes the logarithm of a softmax, its gradient divides by the softmax again; with
probabilities that underflow this gives NaN. The forms here are the gradients of the stable forms.
"""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.patterns import (
    chain,
    exponential_sum,
    is_complement,
    lines_up,
    over,
    plus_one,
)
from eagerflow.capture.passes.rewriting import Sweep, is_float, rule, takes_numbers
from eagerflow.graph.ir import Node, Value
from eagerflow.spec import normalize_axes

NAME = "stability"


def _share(sweep: Sweep, x: Any, like: Value) -> Any:
    """The g of a quotient as a value like another: itself, or repeated."""
    if type(x) is Value and x.shape == like.shape:
        return x
    if type(x) is Value:
        return sweep.make("broadcast_to", x, shape=like.shape)
    return sweep.make("ones_like", like) if x == 1 else None


@rule(NAME, "softmax_gradient", "the gradient of log(softmax(x)) -> that of log_softmax(x)")
def _of_log_softmax(sweep: Sweep, node: Node) -> Any:
    y, pulled = node.inputs
    inner, found = sweep.maker(y, "softmax"), over(sweep, pulled)
    if inner is None or found is None or found[1] is not y or pulled.shape != y.shape:
        return None
    x, axis = inner.inputs[0], inner.attributes["axis"]
    g = _share(sweep, found[0], x)
    if g is None:
        return None
    logarithm = sweep.make("log_softmax", x, axis=axis)
    return sweep.make("log_softmax_gradient", logarithm, g, axis=node.attributes["axis"])


@rule(NAME, "sigmoid_gradient", "the gradient of log(sigmoid(x)) -> that of log_sigmoid(x)")
def _of_log_sigmoid(sweep: Sweep, node: Node) -> Any:
    y, pulled = node.inputs
    x, found = sweep.argument(y, "sigmoid"), over(sweep, pulled)
    if x is None or found is None or found[1] is not y or pulled.shape != y.shape:
        return None
    g = _share(sweep, found[0], x)
    return None if g is None else sweep.make("log_sigmoid_gradient", x, g)


@rule(NAME, "sigmoid_gradient", "the gradient of log(1 - sigmoid(x)) -> that of log_sigmoid(-x)")
def _of_log_complement(sweep: Sweep, node: Node) -> Any:
    y, pulled = node.inputs
    x, quotient = sweep.argument(y, "sigmoid"), sweep.argument(pulled, "negative")
    turned = quotient is not None
    found = over(sweep, quotient if turned else pulled)
    if x is None or found is None or pulled.shape != y.shape:
        return None
    if not is_complement(sweep, y, found[1]):
        return None
    g = _share(sweep, found[0], x)
    if g is None:
        return None
    slope = sweep.make("softplus_gradient", x, g)
    return sweep.make("negative", slope) if turned else slope


@rule(NAME, "multiply multiply_no_nan", "the gradient of log(1 + exp(x)) -> that of softplus(x)")
def _of_softplus(sweep: Sweep, node: Node) -> Any:
    for power, quotient in (node.inputs, node.inputs[::-1]):
        x = sweep.argument(power, "exp")
        if not is_float(x) or x.shape != node.outputs[0].shape:
            continue
        g = _over_one_plus(sweep, quotient, x, power)
        if g is not None and (g := _share(sweep, g, x)) is not None:
            return sweep.make("softplus_gradient", x, g)
    return None


def _over_one_plus(sweep: Sweep, quotient: Any, x: Value, power: Value) -> Any:
    """The g of g / (1 + exp(x)), which may have become g * sigmoid(-x); else None."""
    found = over(sweep, quotient)
    if found is not None:
        return found[0] if plus_one(sweep, found[1]) is power else None
    if _is_mirrored(sweep, quotient, x):
        return 1
    node = sweep.maker(quotient, "multiply", "multiply_no_nan")
    for g, share in (node.inputs, node.inputs[::-1]) if node is not None else ():
        if _is_mirrored(sweep, share, x):
            return g
    return None


def _is_mirrored(sweep: Sweep, share: Any, x: Value) -> bool:
    return sweep.argument(sweep.argument(share, "sigmoid"), "negative") is x


@rule(NAME, "multiply multiply_no_nan", "the gradient of log(sum(exp(x))) -> that of logsumexp(x)")
def _of_logsumexp(sweep: Sweep, node: Node) -> Any:
    for power, spread in (node.inputs, node.inputs[::-1]):
        x = sweep.argument(power, "exp")
        if not is_float(x) or not takes_numbers(x.dtype) or x.shape != node.outputs[0].shape:
            continue
        shown, views = chain(sweep, spread)
        found = over(sweep, shown)
        total = None if found is None else exponential_sum(sweep, found[1])
        if found is None or total is None or total[0] is not x:
            continue
        if shown.shape != found[1].shape:
            continue
        axes = normalize_axes(total[1].attributes["axis"], len(x.shape))
        if not lines_up(x, axes, views, found[1]):
            continue
        whole = sweep.make("logsumexp", x, axis=axes, keepdims=True)
        # Where it is -inf all of x is, and exp(x) is the right share: 0.
        finite = sweep.make("where", sweep.make("isfinite", whole), whole, 0.0)
        share = sweep.make("exp", sweep.make("subtract", x, finite))
        if type(found[0]) is not Value:
            return share if found[0] == 1 else sweep.make("multiply", share, found[0])
        g = found[0]
        if g.shape != shown.shape:
            g = sweep.make("broadcast_to", g, shape=shown.shape)
        for view in reversed(views):
            g = sweep.make(view.op.name, g, **view.attributes)
        return sweep.make("multiply", share, g)
    return None
