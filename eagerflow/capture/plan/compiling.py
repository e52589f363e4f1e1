"""Compiling: the text of a plan as code, once each part of it is known to be one that plans use.

The text holds names that lowering has made, numbers, and the few forms below: calls, assignments,
branches and loops. Anything else in it would be a fault of ours; then it does not run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from eagerflow.errors import CaptureError

__all__ = ["METHOD_NAMES", "compiled"]

METHOD_NAMES = frozenset({"reshape"})  # of arrays
_NUMBERS = frozenset({bool, float, int, type(None), type(Ellipsis)})
_FORMS: dict[type[ast.AST], tuple[str, ...]] = {  # with the fields that hold more of the tree
    ast.Assign: ("targets", "value"),
    ast.Attribute: ("value",),
    ast.Break: (),
    ast.Call: ("func", "args", "keywords"),
    ast.Compare: ("left", "ops", "comparators"),
    ast.Constant: (),
    ast.Delete: ("targets",),
    ast.Eq: (),
    ast.Expr: ("value",),
    ast.For: ("target", "iter", "body"),
    ast.FunctionDef: ("args", "body"),
    ast.If: ("test", "body", "orelse"),
    ast.Module: ("body",),
    ast.Name: (),
    ast.Not: (),
    ast.Pass: (),
    ast.Return: ("value",),
    ast.Subscript: ("value", "slice"),
    ast.Tuple: ("elts",),
    ast.USub: (),
    ast.UnaryOp: ("op", "operand"),
    ast.While: ("test", "body"),
    ast.arg: (),
    ast.arguments: ("args",),
    ast.keyword: ("value",),
}
_EMPTY: dict[type[ast.AST], tuple[str, ...]] = {  # and those that hold nothing
    ast.For: ("orelse",),
    ast.FunctionDef: ("decorator_list", "returns"),
    ast.While: ("orelse",),
    ast.arg: ("annotation",),
    ast.arguments: ("posonlyargs", "vararg", "kwonlyargs", "kw_defaults", "kwarg", "defaults"),
}
_NAMED: dict[type[ast.AST], str] = {ast.Name: "id", ast.arg: "arg", ast.FunctionDef: "name"}


def compiled(text: str, file: str, names: Collection[str], keywords: Collection[str]) -> Any:
    """The code of a plan's text, which is exactly the tree that was looked through.

    ``names`` are the identifiers that may occur, ``keywords`` the names of arguments. Raises
    CaptureError where the text holds anything that plans do not use.

    >>> from eagerflow.capture.plan.compiling import compiled
    >>> compiled("a = _f(b, 2.0)", "<plan>", {"a", "b", "_f"}, ())
    <code object <module> at ..., file "<plan>", line 1>
    >>> compiled("a = b.__class__", "<plan>", {"a", "b"}, ())
    Traceback (most recent call last):
    ...
    eagerflow.errors.CaptureError: the program of a plan holds what no plan uses: line 1, Attribute
    ...
    """
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise _fault(f"cannot be parsed: {error}") from error
    waiting: list[Any] = [tree]
    for part in waiting:  # which grows meanwhile
        form = type(part)
        fields = _FORMS.get(form)
        if fields is None or not _is_known(part, form, names, keywords):
            line = getattr(part, "lineno", 0)
            raise _fault(f"holds what no plan uses: line {line}, {form.__name__}")
        for field in fields:
            inner = getattr(part, field)
            if type(inner) is list:
                waiting += inner
            elif inner is not None:
                waiting.append(inner)
    return compile(tree, file, "exec")


def _is_known(
    part: Any, form: type[ast.AST], names: Collection[str], keywords: Collection[str]
) -> bool:
    """Whether the words and numbers in a part are ours."""
    if form in _EMPTY and any(getattr(part, field) for field in _EMPTY[form]):
        return False
    if form in _NAMED:
        return getattr(part, _NAMED[form]) in names
    if form is ast.Constant:
        return type(part.value) in _NUMBERS
    if form is ast.Attribute:
        return part.attr in METHOD_NAMES
    return part.arg in keywords if form is ast.keyword else True


def _fault(how: str) -> CaptureError:
    return CaptureError(
        f"the program of a plan {how}",
        hint="this is a fault of eagerflow; numerics='exact', or a Session, may still work",
    )
