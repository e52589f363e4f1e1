"""What each line of a function reads, found from its instructions without running them.

The instructions are walked once with a stack of *expressions* in place of values: where ``a.b``
is loaded, the stack says that it is the attribute ``b`` of the local ``a``. What comes out are
*actions* in the order of the instructions, in pieces of one line each, for the interpreter tells
when it comes to a new line. Whoever has the frame then finds the values (``reading``).
"""

from __future__ import annotations

import bisect
import weakref
from types import CodeType
from typing import Any, NamedTuple

from eagerflow.capture.walking import Action, Expression, Walk

__all__ = ["Action", "Expression", "Piece", "Program", "program_of"]


class Piece(NamedTuple):
    """The actions from one place up to the end of its line.

    ``straight`` of them happen for certain; ``roots`` are the locals that they start from;
    ``caught`` says that only an exception leads here.
    """

    number: int
    actions: tuple[Action, ...]
    straight: int
    roots: tuple[str, ...]
    caught: bool


class Program:
    """The actions of a code object, by the offset of their instructions.

    ``unknown`` names an instruction that this module does not know, of a later Python.
    """

    def __init__(self, code: CodeType) -> None:
        walk = Walk(code)
        self.unknown = walk.unknown
        self.actions = walk.actions
        self._lines = walk.lines
        self._next = walk.follows
        self._branches = walk.branches
        self._caught = walk.caught
        self._pieces: dict[int, Piece] = {}
        self._offsets = sorted(self._lines)

    def instruction(self, offset: int) -> int:
        """Where the instruction begins that is running at ``offset``, perhaps in its cache."""
        return self._offsets[bisect.bisect_right(self._offsets, offset) - 1]

    def piece(self, offset: int) -> Piece:
        """The piece that begins at this offset."""
        found = self._pieces.get(offset)
        if found is None:
            found = self._pieces[offset] = self._cut(offset)
        return found

    def _cut(self, start: int) -> Piece:
        line = self._lines.get(start)
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            offset = waiting.pop()
            if offset not in seen and self._lines.get(offset) in (line, None):
                seen.add(offset)
                waiting += self._next.get(offset, ())
        actions: list[Action] = []
        straight, certain = 0, True
        for offset in sorted(seen):
            actions += self.actions.get(offset, ())
            certain = certain and offset not in self._branches
            if certain:
                straight = len(actions)
        roots = dict.fromkeys(
            name for action in actions for part in action.parts for name in _locals_of(part)
        )
        roots |= dict.fromkeys(a.name for a in actions if a.verb == "bind")
        number = len(self._pieces)
        return Piece(number, tuple(actions), straight, tuple(roots), start in self._caught)


def _locals_of(expression: Expression) -> list[str]:
    if expression.kind in ("local", "deref"):
        return [expression.name]
    return [name for part in expression.parts for name in _locals_of(part)]


# The programs of code objects -------------------------------------------------------------------

_programs: dict[int, tuple[Any, Program]] = {}


def program_of(code: CodeType) -> Program:
    """The program of a code object; it lives as long as the code does."""
    key = id(code)  # equal code objects may stand on different lines, and hashing them takes long
    known = _programs.get(key)
    if known is not None:
        return known[1]
    program = Program(code)

    def gone(_: Any) -> None:
        _programs.pop(key, None)

    _programs[key] = weakref.ref(code, gone), program
    return program
