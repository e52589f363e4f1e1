"""Python expressions: their text with variables in it, and their precedence.

Nothing from a graph is copied as text: names become ASCII identifiers, all other words literals.
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.ops.late import load_all
from eagerflow.tensor import Operators

MAX_NAME = 40  # characters

# Precedence of operators, lowest first.
TUPLE, COMPARISON, OR, XOR, AND, SHIFT, SUM, PRODUCT, SIGN, POWER, ATOM = range(11)

_LEVELS = {
    SUM: {"add": "+", "sub": "-"},
    PRODUCT: {"mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "matmul": "@"},
    POWER: {"pow": "**"},
    SHIFT: {"lshift": "<<", "rshift": ">>"},
    AND: {"and": "&"},
    XOR: {"xor": "^"},
    OR: {"or": "|"},
    COMPARISON: {"lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    SIGN: {"neg": "-", "invert": "~"},
}
_QUESTIONS = {"equal": "==", "not_equal": "!="}  # methods of Tensors that differ from the op


def _operators() -> dict[str, tuple[str, int]]:
    """The symbols of ops and their precedence, from Tensor's methods for Python's operators."""
    load_all()
    found = {name: (symbol, COMPARISON) for name, symbol in _QUESTIONS.items()}
    for level, symbols in _LEVELS.items():
        for name, symbol in symbols.items():
            found[getattr(Operators, f"__{name}__").op.name] = symbol, level
    return found


OPERATORS = _operators()

RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "np", "math", "Path"})
"""Names that are reserved: no variable and no function gets them."""


class Variable:
    """A variable of a function; its name is chosen when the whole function is known.

    ``base`` is its preferred name; it takes over the name of the first of ``heir_of`` that is no
    longer used, unless that is ``fixed``: a size, weights, or a variable named by the user. If
    ``says`` is set, the name is descriptive, and only variables with the same base take it over.
    """

    __slots__ = ("base", "fixed", "heir_of", "says")

    def __init__(
        self,
        base: str,
        heir_of: Iterable[Variable] = (),
        fixed: bool = False,
        says: bool = False,
    ) -> None:
        self.base, self.heir_of, self.fixed, self.says = base, tuple(heir_of), fixed, says


class Reference(str):
    """The name of a function of the program."""

    __slots__ = ()


Piece = str | Variable


class Expression(NamedTuple):
    """The text of an expression, in pieces, and the precedence of its outermost operator."""

    pieces: tuple[Piece, ...]
    level: int = ATOM

    def at(self, level: int) -> tuple[Piece, ...]:
        """The pieces, in parentheses where the context has a higher precedence."""
        return self.pieces if self.level >= level else ("(", *self.pieces, ")")

    @property
    def width(self) -> int:
        """The approximate number of characters."""
        return sum(len(x.base) + 1 if isinstance(x, Variable) else len(x) for x in self.pieces)

    @property
    def is_plain(self) -> bool:
        """Whether it is a name or a number, which can be repeated anywhere."""
        return len(self.pieces) == 1 and self.level >= SIGN

    def variables(self) -> list[Variable]:
        """The variables in it."""
        return [x for x in self.pieces if isinstance(x, Variable)]


def text(*parts: Any, level: int = ATOM) -> Expression:
    """The concatenation of pieces, variables and expressions."""
    pieces: list[Piece] = []
    for part in parts:
        pieces += part.pieces if isinstance(part, Expression) else (part,)
    return Expression(tuple(pieces), level)


def listed(items: Iterable[Any]) -> list[Any]:
    """Items with commas between them."""
    found: list[Any] = []
    for item in items:
        found += (", ", item) if found else (item,)
    return found


def call(function: str | Expression, *args: Any, **named: Any) -> Expression:
    """A function call; arguments that are None are left out."""
    given = [text(f"{name}=", x) for name, x in named.items() if x is not None]
    return text(function, "(", *listed([*args, *given]), ")")


def method(x: Expression, name: str, *args: Any, **named: Any) -> Expression:
    """A method call."""
    return text(*x.at(ATOM), call(f".{name}", *args, **named))


def unary(symbol: str, x: Expression) -> Expression:
    """A unary operator before an expression."""
    return text(symbol, *x.at(SIGN), level=SIGN)


def binary(symbol: str, level: int, a: Expression, b: Expression) -> Expression:
    """Two expressions with an operator between them, in order of evaluation."""
    if level == POWER:
        narrow = a.is_plain and a.level == ATOM and b.is_plain
        return text(*a.at(ATOM), "**" if narrow else " ** ", *b.at(SIGN), level=level)
    left = level + 1 if level == COMPARISON else level
    return text(*a.at(left), f" {symbol} ", *b.at(level + 1), level=level)


def bundle(items: Iterable[Any], brackets: str = "()") -> Expression:
    """A tuple, or with other brackets a list."""
    found = list(items)
    comma = "," if len(found) == 1 and brackets == "()" else ""
    return text(brackets[0], *listed(found), comma, brackets[1])


# Literals and names ------------------------------------------------------------------------------


def literal(value: Any) -> Expression:
    """A number, a string, a dtype, None, or a nest of them."""
    if isinstance(value, np.dtype):
        return text("bool" if value == np.bool_ else f"np.{value.name}")
    if isinstance(value, tuple | list):
        return bundle([literal(x) for x in value], "()" if isinstance(value, tuple) else "[]")
    if isinstance(value, str):
        return text(quoted(value))
    if isinstance(value, complex):
        return call("complex", literal(value.real), literal(value.imag))
    if isinstance(value, float) and not math.isfinite(value):
        found = "np.nan" if value != value else "np.inf"
        return unary("-", text(found)) if value < 0 else text(found)
    if value is not None and not isinstance(value, bool | int | float):
        raise TypeError(f"{type(value).__name__} has no literal")
    found = repr(value)
    return text(found, level=SIGN if found.startswith("-") else ATOM)


def quoted(value: str) -> str:
    """A string as an ASCII literal."""
    found = ascii(value)
    return f'"{found[1:-1]}"' if found[0] == "'" and '"' not in found else found


def identifier(name: str, otherwise: str = "value") -> str:
    """A name as an ASCII identifier."""
    found = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:MAX_NAME].strip("_")
    if not found:
        return otherwise
    if found[0].isdigit():
        found = f"{otherwise}_{found}"
    return f"{found}_" if found in RESERVED else found


def layer(name: str) -> str:
    """The name of a layer without its distinguishing number."""
    return re.sub(r"_\d+$", "", identifier(name, "layer"))


def remark(words: str) -> str:
    """Text as a part of a comment: in one line, and without invisible characters."""
    return "".join(c if c.isprintable() else " " for c in words).strip()


def sentence(words: str) -> str:
    """Text as a part of a docstring."""
    plain = remark(words).replace("\\", "/").replace('"', "'").replace("``", "")
    return " ".join(plain.split())
