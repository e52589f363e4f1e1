"""Functions as text: names for their variables, lines of at most 99 characters, comments.

Lines are broken as ruff does: the last bracket is opened, and its contents get a line of their own,
or one for each item.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from eagerflow.graph.names import FreeNames
from eagerflow.standalone.expressions import RESERVED, Expression, Piece, Reference, Variable

WIDTH = 99
INDENT = "    "
MAX_TARGETS = 60  # characters of the targets of an assignment
_TARGETS = re.compile(r"(?P<word>(?:for )?)(?P<names>(?:\w+, )+\w+)(?P<rest> (?:=|in) .*)")


class Line(NamedTuple):
    """A statement, the variables that it assigns first, and the block below it."""

    pieces: tuple[Piece, ...]
    defines: tuple[Variable, ...] = ()
    comment: str = ""
    block: list[Line] | None = None

    def all_pieces(self) -> Iterator[Piece]:
        """The pieces of the statement and of its block."""
        yield from self.pieces
        for line in self.block or ():
            yield from line.all_pieces()


def assignment(
    targets: Sequence[Piece], value: Expression, new: Sequence[Variable], comment: str = ""
) -> Line:
    """An assignment of an expression to variables, some of which are ``new``."""
    left: list[Piece] = []
    for target in targets:
        left += (", ", target) if left else (target,)
    return Line((*left, " = ", *value.pieces), tuple(new), comment)


class Text(NamedTuple):
    """The text of a function: parameters, and the lines below the docstring."""

    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    remarks: dict[int, str]
    """Comments, by the number of the line below them."""

    def whole(self, name: str, words: Sequence[str], decorator: str = "") -> list[str]:
        """The lines of the function."""
        head = f"def {name}({', '.join(self.parameters)}):"
        found = [decorator] if decorator else []
        found += broken(head)
        found += [INDENT + line if line else "" for word in words for line in folded(word)]
        for i, line in enumerate(self.lines):
            if i in self.remarks:
                depth = len(line) - len(line.lstrip())
                words = f"{line[:depth]}# {self.remarks[i]}"
                found.append(words if len(words) <= WIDTH else f"{words[: WIDTH - 4]} ...")
            found.append(line)
        return found


def written(parameters: Sequence[Variable], lines: Sequence[Line]) -> Text:
    """The text of a function, with names for all of its variables."""
    names = _named(parameters, lines)
    found: list[str] = []
    remarks: dict[int, str] = {}

    def write(block: Iterable[Line], indent: str) -> None:
        for line in block:
            if line.comment:
                remarks[len(found)] = line.comment
            text = "".join(names[x] if isinstance(x, Variable) else x for x in line.pieces)
            found.extend(broken(indent + text))
            if line.block is not None:
                write(line.block, indent + INDENT)

    write(lines, INDENT)
    return Text(tuple(names[x] for x in parameters), tuple(found), remarks)


def _named(parameters: Sequence[Variable], lines: Sequence[Line]) -> dict[Variable, str]:
    """Names of variables: no two that are live at the same time share one."""
    last: dict[Variable, int] = {}
    called = set(RESERVED)
    for number, line in enumerate(lines):
        for piece in line.all_pieces():
            if isinstance(piece, Variable):
                last[piece] = number
            elif isinstance(piece, Reference):
                called.add(piece)
    take = FreeNames(called).take
    names = {x: take(x.base) for x in parameters}
    owners = {name: x for x, name in names.items()}

    def leaves(y: Variable, x: Variable, now: int) -> bool:
        """Whether ``x`` may take the name of ``y`` from now on."""
        dead = y in names and last.get(y, -1) <= now and owners[names[y]] is y
        if x.base == y.base:
            return dead and (not y.fixed or y in x.heir_of)
        return dead and not y.fixed and not (y.says and names[y].startswith(y.base))

    def name(block: Iterable[Line], number: int | None) -> None:
        for at, line in enumerate(block):
            now = at if number is None else number
            for x in line.defines:
                known = [*x.heir_of, *filter(None, [owners.get(x.base)])]
                heirs = [y for y in known if leaves(y, x, now) and y not in line.defines]
                heirs = heirs if number is None else []  # a loop still uses outer variables
                if heirs:
                    owners[names[heirs[0]]], names[x] = x, names[heirs[0]]
                    continue
                names[x] = take(x.base)
                owners[names[x]] = x
            name(line.block or (), now)

    name(lines, None)
    return names


def folded(words: str) -> list[str]:
    """A line of a docstring, split if it is long."""
    depth = len(words) - len(words.lstrip())
    return textwrap.wrap(words, WIDTH - len(INDENT), subsequent_indent=" " * depth) or [""]


# Lines -------------------------------------------------------------------------------------------


def broken(line: str) -> list[str]:
    """A line, split into lines of at most ``WIDTH`` characters if possible."""
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    results = line.removeprefix(f"{indent}return ")
    if results != line and len(_items(results)) > 1:
        line = f"{indent}return ({results})"
    several = _TARGETS.fullmatch(line[len(indent) :])
    if several and len(several["names"]) > MAX_TARGETS:
        names = _each(several["names"], indent + INDENT)
        return [f"{indent}{several['word']}(", *names, *broken(f"{indent}){several['rest']}")]
    start, stop = _last_bracket(line)
    inner = line[start + 1 : stop]
    if not inner:
        return [line]
    deeper = indent + INDENT
    items = _items(inner)
    if len(deeper + inner) <= WIDTH and line[start - 7 : start + 1] != "return (":
        body = [deeper + inner]
    elif len(items) == 1 and not inner.endswith(","):
        body = broken(deeper + inner)
    else:
        body = _each(inner, deeper)
    return [line[: start + 1], *body, indent + line[stop:]]


def _each(items: str, indent: str) -> list[str]:
    """A line for each item."""
    return [part for item in _items(items) for part in broken(f"{indent}{item},")]


def _last_bracket(line: str) -> tuple[int, int]:
    """The last nonempty outermost bracket, if the text before it fits into a line.

    Otherwise, an empty one at the end.
    """
    outer = [i for i, c, depth in _marks(line) if not depth and c != ","]
    pairs = list(zip(outer[::2], outer[1::2], strict=True))
    for start, stop in reversed(pairs):
        if stop - start > 1 and start < WIDTH:
            return start, stop
    return len(line) - 1, len(line)


def _marks(line: str) -> Iterator[tuple[int, str, int]]:
    """The positions of brackets and commas outside of strings, with their depth."""
    quote, depth, escaped = "", 0, False
    for i, c in enumerate(line):
        if quote:
            quote = "" if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
        elif c in "\"'":
            quote = c
        elif c in "([{":
            yield i, c, depth
            depth += 1
        elif c in ")]}":
            if depth:  # else it closes a bracket of another line
                depth -= 1
                yield i, c, depth
        elif c == ",":
            yield i, c, depth


def _items(inner: str) -> list[str]:
    """The comma-separated items in a bracket."""
    commas = [i for i, c, depth in _marks(inner) if not depth and c == ","]
    begins, ends = [0, *(i + 1 for i in commas)], [*commas, len(inner)]
    found = [inner[a:b].strip() for a, b in zip(begins, ends, strict=True)]
    return found if found[-1] else found[:-1]
