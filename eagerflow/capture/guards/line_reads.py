"""The reads of each line of a function, found from its instructions without running them.

The instructions are interpreted once with *expressions* in place of values (``bytecode``): where
``a.b`` is loaded, the stack says that it is the attribute ``b`` of the local ``a``. The results
are *actions* in the order of the instructions. They are grouped by lines, as Python reports each
new line; they are then evaluated with the values of the frame (``evaluation``).
"""

from __future__ import annotations

import bisect
import itertools
import weakref
from types import CodeType
from typing import Any, NamedTuple

from eagerflow.capture.guards.bytecode import Action, Expression, Interpreter
from eagerflow.capture.guards.categories import SETTINGS_OF_VARIABLES
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable


class LineReads(NamedTuple):
    """The actions from one place up to the end of its line.

    ``straight`` of them always happen; ``roots`` are the locals that they read from, ``keys``
    those with a plain value that selects what is read; ``caught`` if only reached by an exception.
    ``number`` is unique. In eagerflow's own code a Variable only matters as one of ``settings``:
    more is read of it than its value, or something is looked up by it. A ``deep`` line reads from
    values that are themselves read from somewhere, and can be others at its next run.
    """

    number: int
    actions: tuple[Action, ...]
    straight: int
    roots: tuple[str, ...]
    keys: tuple[str, ...]
    caught: bool
    settings: frozenset[str]
    deep: bool


class Program:
    """The actions of a code object, by the offset of their instructions.

    ``unknown`` names an instruction that this module does not know, of a later Python.
    """

    def __init__(self, code: CodeType) -> None:
        found = Interpreter(code)
        self.unknown = found.unknown
        self.actions = found.actions
        self._line_numbers = found.lines
        self._next = found.follows
        self._branches = found.branches
        self._caught = found.caught
        self.lines: dict[int, LineReads] = {}
        self.own_attributes = _attributes_of_own(code, found)
        self._offsets = sorted(self._line_numbers)

    def instruction(self, offset: int) -> int:
        """The start of the instruction running at ``offset``, perhaps in its cache."""
        return self._offsets[bisect.bisect_right(self._offsets, offset) - 1]

    def line(self, offset: int) -> LineReads:
        """The reads from this offset to the end of its line."""
        found = self.lines.get(offset)
        if found is None:
            found = self.lines[offset] = self._cut(offset)
        return found

    def _cut(self, start: int) -> LineReads:
        line = self._line_numbers.get(start)
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            offset = waiting.pop()
            if offset not in seen and self._line_numbers.get(offset) in (line, None):
                seen.add(offset)
                waiting += self._next.get(offset, ())
        actions: list[Action] = []
        straight, certain = 0, True
        for offset in sorted(seen):
            actions += self.actions.get(offset, ())
            certain = certain and offset not in self._branches
            if certain:
                straight = len(actions)
        roles: dict[str, bool] = {}
        settings: set[str] = set()
        for action in actions:
            for part in action.parts:
                _roles(part, action.verb in ("contains", "store_item"), roles)
                _settings(part, action.verb == "contains", settings)
        keys = tuple(name for name, key in roles.items() if key)
        return LineReads(
            next(_numbers),
            tuple(actions),
            straight,
            tuple(roles),
            keys,
            start in self._caught,
            frozenset(settings),
            any(_is_deep(action) for action in actions),
        )


_numbers = itertools.count()

# Calls of other methods do not look an attribute or an item up by an argument.
_KEYED_CALLS = frozenset(
    """
    __contains__ __getattribute__ __getitem__ count get getattr getenv hasattr index pop setdefault
    """.split()
)


def _roles(expression: Expression, key: bool, roles: dict[str, bool]) -> None:
    """Which locals an expression reads from, and whether one is used as a key."""
    kind, parts = expression.kind, expression.parts
    if kind in ("local", "deref", "name"):
        roles[expression.name] = roles.get(expression.name, False) or key
    elif kind == "item":
        _roles(parts[0], key, roles)
        _roles(parts[1], True, roles)
    elif kind in ("call", "spread"):
        keyed = parts[0].kind != "attribute" or parts[0].name in _KEYED_CALLS
        for part in parts:
            _roles(part, key or (keyed and parts[0].kind != "unknown"), roles)
    else:
        for part in parts:
            _roles(part, key, roles)


_SHALLOW = ("read", "bind", "make", "call")


def _is_deep(action: Action) -> bool:
    """Whether an action reads from a value that was read from an object, a container or a name."""
    deep = _reads_deep if action.verb in _SHALLOW else _is_read
    return any(deep(part) for part in action.parts)


def _is_read(expression: Expression) -> bool:
    """Whether a value, or one that it is made of, is read from somewhere."""
    named = expression.kind in ("attribute", "item", "global", "deref", "name", "super")
    return named or any(_is_read(part) for part in expression.parts)


def _reads_deep(expression: Expression) -> bool:
    kind, parts = expression.kind, expression.parts
    if kind == "attribute":  # of a module or a class, as ef.sin
        return _is_read(parts[0]) and parts[0].kind not in ("global", "module")
    if kind in ("call", "spread"):
        return _reads_deep(parts[0]) or any(_is_read(part) for part in parts[1:])
    deep = _is_read if kind in ("item", "super") else _reads_deep
    return any(deep(part) for part in parts)


def _settings(expression: Expression, key: bool, found: set[str]) -> None:
    """The locals that something is looked up by, or of which more than a value is read."""
    kind, name, parts = expression.kind, expression.name, expression.parts
    if kind in ("local", "deref", "name") and key:
        found.add(name)
    by_argument = kind == "item" or (kind in ("call", "spread") and parts[0].name in _KEYED_CALLS)
    more = kind == "attribute" and (name in SETTINGS_OF_VARIABLES or name not in _OF_TENSORS)
    for i, part in enumerate(parts):
        _settings(part, more or key or (by_argument and i > 0), found)


def _attributes_of_own(code: CodeType, found: Interpreter) -> tuple[str, ...] | None:
    """The attributes a method reads from its first argument, if it reads only tensors otherwise.

    None if it also reads from other objects.
    """
    own = code.co_varnames[0] if code.co_argcount else ""
    names: dict[str, None] = {}

    def simple(expression: Expression) -> bool:
        if expression.kind == "attribute":
            (base,) = expression.parts
            if base.kind == "local" and base.name == own:
                names[expression.name] = None
                return True
            if expression.name not in _OF_TENSORS and _root(base) != "global":
                return False
        return all(simple(x) for x in expression.parts)

    actions = [
        action
        for offset, row in found.actions.items()
        for action in row
        if offset not in found.caught  # reads for an error message do not matter
    ]
    if own and all(simple(part) for action in actions for part in action.parts):
        return tuple(names)
    return None


_OF_TENSORS = {*dir(Tensor), *dir(Variable), "__name__", "__qualname__"} - {
    *SETTINGS_OF_VARIABLES - {"name"}
}


def _root(expression: Expression) -> str:
    while expression.kind == "attribute":
        (expression,) = expression.parts
    return expression.kind


# The programs of code objects -------------------------------------------------------------------

_programs: dict[int, tuple[Any, Program]] = {}


def program_of(code: CodeType) -> Program:
    """The program of a code object, cached for the lifetime of the code."""
    key = id(code)  # equal code objects may be on different lines, and hashing is slow
    known = _programs.get(key)
    if known is not None:
        return known[1]
    program = Program(code)

    def gone(_: Any) -> None:
        _programs.pop(key, None)

    _programs[key] = weakref.ref(code, gone), program
    return program
