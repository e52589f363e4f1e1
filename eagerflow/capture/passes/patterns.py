"""Patterns: rules given as text, such as ``log(1 + exp(x)) -> softplus(x)``.

Both sides are expressions of ops by their names, the signs ``+ - * / ~ not`` and ``²``, integers
and variables. A number matches a number or a value with that number in all its elements;
the other operand has the shape and dtype of the result. A repeated variable is the same value
each time. Sums and products are found in either order. Equivalent ops are found as well:
``y * y`` for ``y²``, a reciprocal for ``1 / y``, ``y + -1`` for ``y - 1``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow.capture.passes.rewriting import Input, OpFunction, Rules, Sweep, fits, is_float, rule
from eagerflow.graph.ir import Node, Value
from eagerflow.op import ops
from eagerflow.ops.elementwise.arithmetic import (
    add,
    divide,
    multiply,
    multiply_no_nan,
    negative,
    positive,
    reciprocal,
    subtract,
)
from eagerflow.ops.elementwise.bitwise import bitwise_invert
from eagerflow.ops.elementwise.comparison import logical_not
from eagerflow.ops.elementwise.powers import power, square

Found = dict[str, Input]
"""The values matched by the variables of a form."""

_SIGNS: dict[type[ast.AST], OpFunction] = {
    ast.Add: add,
    ast.Sub: subtract,
    ast.Mult: multiply,
    ast.Div: divide,
    ast.UAdd: positive,
    ast.USub: negative,
    ast.Invert: bitwise_invert,
    ast.Not: logical_not,
}
_COMMUTATIVE = (add, multiply, multiply_no_nan)


class _Operands:
    """The forms of an op's operands, and the orders in which they are matched: by place.

    In each order numbers come first, and variables, which match anything, last.
    """

    def __init__(self, function: OpFunction, *forms: Form) -> None:
        self.forms = forms
        ranked = sorted(enumerate(forms), key=lambda item: (int, dict, str).index(type(item[1])))
        self.orders = [ranked]
        if function in _COMMUTATIVE:
            self.orders.append([(1 - place, form) for place, form in ranked])


Form = str | int | dict[OpFunction, _Operands]
"""A variable, a number, or an op and its operands; the first of several ops is built."""


def pattern(rules: Rules, words: str, *, floats: bool = True, once: bool = False) -> None:
    """Add the rule given by these words; several are separated by commas.

    It is for real floats only, unless ``floats`` is False. With ``once``, the last operand of
    the node must have no other use, since it would be computed in any case.
    """
    for sides in re.split(", (?=[^,]*->)", words):
        left, right = [_parsed(x) for x in sides.split(" -> ")]
        assert isinstance(left, dict)
        for function, operands in left.items():
            rule(rules, function, words=words)(partial(_apply, operands, right, floats, once))


def operand(words: str) -> Callable[[Sweep, Input], Any]:
    """A function that returns the y of floats of this form, such as ``1 + y``, else None."""
    form = _parsed(words)
    return lambda sweep, x: (_found(sweep, form, x, {}) or {}).get("y") if is_float(x) else None


def _apply(
    operands: _Operands, right: Form, floats: bool, once: bool, sweep: Sweep, node: Node
) -> Value | None:
    found = _found_in(sweep, operands, node, {})
    if found is None or (floats and not is_float(node.outputs[0])):
        return None
    if node.outputs[0].dtype.kind == "u" and any(type(x) is int and x < 0 for x in node.inputs):
        return None  # not supported by the op
    if once and not sweep.used_once(node.inputs[-1]):
        return None
    made = _made(sweep, right, found)
    if type(right) is str:  # an existing value
        others = [y for y in node.inputs if y is not made] if made in node.inputs else []
        return made if sweep.stands_for(made, node, *others) else None
    return made  # type: ignore[return-value]


def _found(sweep: Sweep, form: Form, x: Input, known: Found) -> Found | None:
    """The values of the variables if ``x`` has this form, given ``known`` ones; else None."""
    if type(form) is str:
        return known | {form: x} if known.get(form, x) is x else None
    assert type(form) is dict
    node = x.node if type(x) is Value else None
    if node is None or node.op.call not in form or node.device != sweep.root.device:
        return None
    return _found_in(sweep, form[node.op.call], node, known)


def _found_in(sweep: Sweep, operands: _Operands, node: Node, known: Found) -> Found | None:
    inputs = node.inputs
    for order in operands.orders:
        found = known
        for place, form in order:
            if type(form) is int:
                if sweep.uniform(inputs[place]) != form or not fits(inputs[1 - place], node):
                    break
            elif (more := _found(sweep, form, inputs[place], found)) is not None:
                found = more
            else:
                break
        else:
            return found
    return None


def _made(sweep: Sweep, form: Form, found: Found) -> Input:
    """A value of this form."""
    if type(form) is not dict:
        return found[form] if type(form) is str else form  # type: ignore[return-value]
    function, operands = next(iter(form.items()))
    return sweep.make(function, *[_made(sweep, part, found) for part in operands.forms])


# Parsing -----------------------------------------------------------------------------------------


def _parsed(words: str) -> Form:
    return _form(ast.parse(words.replace("²", "**2"), mode="eval").body)


def _form(words: ast.expr) -> Form:
    match words:
        case ast.Name(name):
            return name
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
        case ast.UnaryOp(sign, inner):
            return _calls((_SIGNS[type(sign)], _form(inner)))
        case ast.BinOp(inner, ast.Pow(), ast.Constant(2)):
            y = _form(inner)
            return _calls((square, y), (multiply, y, y), (power, y, 2))
        case ast.BinOp(one, sign, other):
            return _binary(_SIGNS[type(sign)], _form(one), _form(other))
        case ast.Call(ast.Name(name), operands):
            return _calls((ops[name].call, *[_form(x) for x in operands]))
    raise ValueError(f"this is not a pattern of values: {ast.unparse(words)}")


def _binary(function: OpFunction, one: Form, other: Form) -> Form:
    call = function, one, other
    if function is divide and one == 1:
        return _calls((reciprocal, other), call)
    if function is multiply and type(other) is int:
        return _calls(call, (multiply_no_nan, one, other))
    if function is subtract and type(other) is int and other:
        return _calls(call, (add, one, -other))
    return _calls(call)


def _calls(*calls: tuple[Any, ...]) -> Form:
    return {function: _Operands(function, *forms) for function, *forms in calls}
