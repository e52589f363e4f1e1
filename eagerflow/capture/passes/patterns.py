"""Patterns: rules that are their own words, such as ``log(1 + exp(x)) -> softplus(x)``.

Both sides are expressions of ops by their names, the signs ``+ - * / ~`` and ``²``, integers and
variables. A number stands for a number or for a value whose elements all are that number; what
it meets has the shape and dtype of the result. A variable that comes twice is the same value
each time. Sums and products are found in either order, and so are other ops for the same: ``y²``
as ``y * y``, ``1 / y`` as a reciprocal, ``y - 1`` as ``y + -1``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow.capture.passes.rewriting import (
    Input,
    OpFunction,
    Rules,
    Sweep,
    fits,
    is_float,
    rule,
)
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

Form = str | int | dict[OpFunction, tuple[Any, ...]]
"""A variable, a number, or an op's operands; where several ops give the same, the first is made."""
Found = dict[str, Input]
"""What the variables of a form stand for."""

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


def pattern(rules: Rules, words: str, *, floats: bool = True, once: bool = False) -> None:
    """Add the rule that these words are; several are joined by commas.

    It is for real floats alone, unless ``floats`` is False. With ``once``, the last operand of
    the result must serve nothing else, since it would be computed in any case.
    """
    for sides in re.split(", (?=[^,]*->)", words):
        left, right = map(_parsed, sides.split(" -> "))
        assert isinstance(left, dict)
        rule(rules, *left, words=words)(partial(_apply, left, right, floats, once))


def operand(words: str) -> Callable[[Sweep, Input], Any]:
    """A function that gives the y of floats that have this form, such as ``1 + y``, else None."""
    form = _parsed(words)
    return lambda sweep, x: (_found(sweep, form, x, {}) or {}).get("y") if is_float(x) else None


def _apply(
    left: Form, right: Form, floats: bool, once: bool, sweep: Sweep, node: Node
) -> Value | None:
    result = node.outputs[0]
    if (floats and not is_float(result)) or (once and not sweep.used_once(node.inputs[-1])):
        return None
    found = _found(sweep, left, result, {})
    if found is None:
        return None
    made = _made(sweep, right, found)
    if type(right) is str:  # a value that is there already
        others = [y for y in node.inputs if y is not made] if made in node.inputs else []
        return made if sweep.stands_for(made, node, *others) else None
    return made  # type: ignore[return-value]


def _found(sweep: Sweep, form: Form, x: Input, known: Found) -> Found | None:
    """What the variables stand for if ``x`` has this form and some are ``known``; else None."""
    if type(form) is str:
        return known | {form: x} if known.get(form, x) is x else None
    if type(form) is int:
        return known if sweep.uniform(x) == form else None
    assert type(form) is dict
    node = sweep.maker(x, *form)
    if node is None:
        return None
    inputs, operands = node.inputs, form[node.op.call]
    orders = (inputs, inputs[::-1]) if node.op.call in _COMMUTATIVE else (inputs,)
    for given in orders:
        found: Found | None = known
        for part, y in zip(operands, given, strict=True):
            if int in map(type, operands) and type(part) is not int and not fits(y, node):
                found = None
            found = None if found is None else _found(sweep, part, y, found)
        if found is not None:
            return found
    return None


def _made(sweep: Sweep, form: Form, found: Found) -> Input:
    """A value of this form."""
    if type(form) is not dict:
        return found[form] if type(form) is str else form  # type: ignore[return-value]
    function, operands = next(iter(form.items()))
    return sweep.make(function, *[_made(sweep, part, found) for part in operands])


# Words to forms ----------------------------------------------------------------------------------


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
            return {_SIGNS[type(sign)]: (_form(inner),)}
        case ast.BinOp(inner, ast.Pow(), ast.Constant(2)):
            y = _form(inner)
            return {square: (y,), multiply: (y, y), power: (y, 2)}
        case ast.BinOp(one, sign, other):
            return _binary(_SIGNS[type(sign)], _form(one), _form(other))
        case ast.Call(ast.Name(name), operands):
            return {ops[name].call: tuple(map(_form, operands))}
    raise ValueError(f"this is no form of values: {ast.unparse(words)}")


def _binary(function: OpFunction, one: Form, other: Form) -> Form:
    form: dict[OpFunction, tuple[Form, ...]] = {function: (one, other)}
    if function is divide and one == 1:
        return {reciprocal: (other,)} | form
    if function is multiply and type(other) is int:
        form[multiply_no_nan] = one, other
    if function is subtract and type(other) is int and other:
        form[add] = one, -other
    return form
