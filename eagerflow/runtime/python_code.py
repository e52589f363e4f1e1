"""Compiles the text of a plan or a kernel after checking that it only has known constructs.

The text contains names made by lowering, numbers, and the few forms below: calls, assignments,
branches and loops. Anything else in it is a bug of eagerflow; then it does not run.

Most lines of a plan are similar except for names and numbers, and parsing all of them takes
several times as long as compiling them. So every word must be a known name or keyword, each
line is independent, and a line is only parsed if none of its form was parsed before: with one
name in place of all names, and one number in place of all numbers, its tree has the same parts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from typing import Any

from eagerflow.errors import CaptureError
from eagerflow.handlers import raised_here

_KEYWORDS = frozenset(
    "False None True break def del elif else for if in not pass return while".split()
)
_CHARACTERS = re.compile(r"[A-Za-z0-9_ \n()\[\],.=:+*-]*")
_WORD = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)
_NAME = re.compile(rf"\b(?!(?:{'|'.join(sorted(_KEYWORDS))})\b)[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?(?![\w.])", re.ASCII)
MAX_KNOWN_FORMS = 10_000  # maximum number of cached forms of lines

_CONSTANTS = frozenset({bool, float, int, type(None), type(Ellipsis)})
_NODE_TYPES = frozenset(
    """Assign Break Call Compare Constant Del Delete Eq Expr For FunctionDef If Load Module Name Not
    Pass Return Starred Store Subscript Tuple USub UnaryOp While arg arguments keyword""".split()
)
_EMPTY_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {  # fields of these that must be empty
    ast.For: ("orelse",),
    ast.FunctionDef: ("decorator_list", "returns", "type_params"),
    ast.While: ("orelse",),
    ast.arg: ("annotation",),
    ast.arguments: ("posonlyargs", "vararg", "kwonlyargs", "kw_defaults", "kwarg", "defaults"),
}

_seen: set[str] = set()  # forms of lines that passed the check


def compiled(text: str, file: str, names: Set[str]) -> Any:
    """The code of a plan's text; ``names`` are all names that may occur in it.

    Raises CaptureError if the text contains other constructs.

    >>> from eagerflow.runtime.python_code import compiled
    >>> compiled("a = _f(b, 2.0)", "<plan>", {"a", "b", "_f"})
    <code object <module> at ..., file "<plan>", line 1>
    >>> compiled("a = b.real", "<plan>", {"a", "b", "real"})
    Traceback (most recent call last):
    ...
    eagerflow.errors.CaptureError: the program of a plan has unexpected parts: x = x.x
    ...
    """
    if not _CHARACTERS.fullmatch(text):
        raise _fault("letters")
    strange = set(_WORD.findall(text)) - names - _KEYWORDS
    if strange:
        raise _fault(", ".join(sorted(strange)))
    forms = set(_NAME.sub("x", _NUMBER.sub("0", text)).split("\n"))
    if not forms <= _seen:
        if len(_seen) > MAX_KNOWN_FORMS:
            _seen.clear()
        for form in forms - _seen:
            _check(form.lstrip(" "))
            _seen.add(form)
    try:
        return compile(text, file, "exec", dont_inherit=True)
    except raised_here(SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _fault(str(error)) from error


def _check(line: str) -> None:
    """Raise CaptureError if a line has parts that lines of plans never have."""
    whole = f"{line}\n pass" if line.endswith(":") else line
    try:
        tree = ast.parse(f"if x:\n pass\n{whole}" if line.startswith("el") else whole)
    except raised_here(SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _fault(line) from error
    if len(tree.body) > 1:
        raise _fault(line)
    for part in ast.walk(tree):
        form = type(part)
        if form.__name__ not in _NODE_TYPES or any(
            getattr(part, field, None) for field in _EMPTY_FIELDS.get(form, ())
        ):
            raise _fault(line)
        if _spreads_otherwise(part):
            raise _fault(line)
        if isinstance(part, ast.Constant) and type(part.value) not in _CONSTANTS:
            raise _fault(line)


def _spreads_otherwise(part: ast.AST) -> bool:
    """Whether a part has stars, except names of tuples that are parts of another one."""
    match part:
        case ast.Call(args=args):
            return any(isinstance(x, ast.Starred) for x in args)
        case ast.Starred(value=value, ctx=context):
            return not (isinstance(value, ast.Name) and isinstance(context, ast.Load))
        case ast.keyword(arg=name):
            return name is None
    return False


def _fault(what: str) -> CaptureError:
    return CaptureError(
        f"the program of a plan has unexpected parts: {what[:80]}",
        hint="this is a fault of eagerflow; please report it",
    )
