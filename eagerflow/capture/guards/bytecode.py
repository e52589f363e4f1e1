"""Bytecode: a code object interpreted with expressions on the stack in place of values.

Instructions of Python 3.11 to 3.13 are known.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple


@dataclass(slots=True, eq=False, repr=False)
class Expression:
    """The origin of a value on the stack.

    ``kind`` says how to read ``name`` and ``parts``: ``global``, ``name`` (of a local of
    code that is not in a function, or a global), ``deref``, ``local``, ``constant``, ``given``
    (a known value), ``module``, ``attribute``, ``item``, ``super``, ``call``, ``spread``
    (a call with ``*args``), ``function``, ``built`` (a list, tuple ... of ``parts``, or one that
    has ``grown`` in a loop), ``result`` (of an operator), ``either``, ``null``, ``unknown``.
    """

    kind: str
    name: Any = None
    parts: tuple[Expression, ...] = ()
    offset: int = -1
    line: int | None = None

    def __repr__(self) -> str:
        inner = ", ".join([repr(self.name)] * (self.name is not None) + [*map(repr, self.parts)])
        return f"{self.kind}({inner})"


UNKNOWN = Expression("unknown")
NULL = Expression("null")


class Action(NamedTuple):
    """A use of existing values by an instruction.

    ``verb`` is ``read`` (no further use), ``iterate`` (the elements), ``use`` (all of it),
    ``text`` (its text form), ``identity`` (its identity), ``key`` (likewise, in a
    set or dict), ``kind`` (the kind of container), ``class`` (behavior of its class), ``match`` (a
    class pattern, with the number of positions and the names), ``truth``, ``contains``, ``call``,
    ``make`` (a function), ``bind`` (a local), ``return``, or ``store_``
    with a target: ``attribute``, ``item``, ``global``, ``deref``.
    """

    verb: str
    parts: tuple[Expression, ...]
    name: Any
    offset: int
    line: int | None


# Instructions -----------------------------------------------------------------------------------

_FROM_312 = sys.version_info >= (3, 12)
_FROM_313 = sys.version_info >= (3, 13)

# By instruction: values popped from the stack, topmost last; their use; and values pushed.
# As in CPython's own definitions: a letter names a value, ``_`` an irrelevant one, ``?`` one
# that is not followed. A pushed value is one of them again, a ``result``, something ``derived``
# from them that may be a part of them, or a read under the instruction's name.
_READ = frozenset({"attribute", "deref", "item", "name"})
EFFECTS: dict[str, tuple[tuple[str, ...], str | None, tuple[str, ...]]] = {
    name: (tuple(taken.split()), verb, tuple(put.split()))
    for (taken, verb, put), names in {
        ("", None, ""): """
            ASYNC_GEN_WRAP CACHE COPY_FREE_VARS DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME
            EXIT_INIT_CHECK EXTENDED_ARG INTERPRETER_EXIT JUMP_BACKWARD NOP NOT_TAKEN
            JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD MAKE_CELL PRECALL RESUME RETURN_CONST
            RETURN_GENERATOR SETUP_ANNOTATIONS""",
        ("", None, "constant"): "LOAD_CONST LOAD_SMALL_INT",
        ("", None, "deref"): "LOAD_CLASSDEREF LOAD_CLOSURE LOAD_DEREF",
        ("", None, "derived"): """
            LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_COMMON_CONSTANT LOAD_LOCALS
            WITH_EXCEPT_START""",
        ("", None, "derived derived"): "GET_ANEXT",
        ("", None, "name"): "LOAD_NAME",
        ("_", None, ""): """
            IMPORT_STAR POP_EXCEPT POP_ITER POP_JUMP_BACKWARD_IF_NONE
            POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
            POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_TOP RERAISE STORE_NAME""",
        ("_", None, "deref"): "LOAD_FROM_DICT_OR_DEREF",
        ("_", None, "name"): "LOAD_FROM_DICT_OR_GLOBALS",
        ("a", None, "derived"): """
            CHECK_EG_MATCH CHECK_EXC_MATCH GET_AITER GET_AWAITABLE LOAD_SPECIAL YIELD_VALUE""",
        ("a", None, "derived derived"): "PUSH_EXC_INFO",
        ("a", "class", "derived derived"): "BEFORE_ASYNC_WITH BEFORE_WITH",
        ("a", None, "a"): "LIST_TO_TUPLE",
        ("a", None, "a attribute"): "IMPORT_FROM",
        ("_ _", None, ""): "END_ASYNC_FOR",
        ("_ a", None, "a"): "END_SEND SET_FUNCTION_ATTRIBUTE",
        ("a b", None, "derived"): "CALL_INTRINSIC_2 PREP_RERAISE_STAR",
        ("a b", None, "item"): "BINARY_SUBSCR",
        ("a ? _", None, "item"): "BINARY_SLICE",
        ("a b c", None, "derived derived"): "CLEANUP_THROW",
        ("a", "iterate", "derived"): "GET_ITER GET_YIELD_FROM_ITER",
        ("a", "iterate", "a result"): "GET_LEN",
        ("a", "kind", "a result"): "MATCH_MAPPING MATCH_SEQUENCE",
        ("a", "return", ""): "RETURN_VALUE",
        ("a", "store_attribute", ""): "DELETE_ATTR",
        ("_ a", "store_attribute", ""): "STORE_ATTR",
        ("a", "store_global", ""): "STORE_GLOBAL",
        ("a b", "store_item", ""): "DELETE_SUBSCR",
        ("_ a b", "store_item", ""): "STORE_SUBSCR",
        ("_ a ? _", "store_item", ""): "STORE_SLICE",
        ("a", "text", "result"): "CONVERT_VALUE FORMAT_SIMPLE",
        ("a b", "text", "result"): "FORMAT_WITH_SPEC",
        ("a", "truth", ""): """
            POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE
            POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE""",
        ("a", "truth", "result"): "TO_BOOL UNARY_NOT",
        ("a", "use", "result"): "PRINT_EXPR UNARY_INVERT UNARY_NEGATIVE UNARY_POSITIVE",
        ("a b", "use", "result"): "COMPARE_OP",
        ("a b", "contains", "result"): "CONTAINS_OP",
        ("a b", "identity", "result"): "IS_OP",
    }.items()
    for name in names.split()
}
_ENDS = frozenset(
    """
    JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD RAISE_VARARGS RERAISE RETURN_CONST
    RETURN_VALUE
    """.split()
)
_Handler = Callable[["Interpreter", Any], None]
HANDLERS: dict[str, _Handler] = {}
"""The method of ``Interpreter`` for each instruction that is not in ``EFFECTS``."""


def _on(names: str) -> Callable[[_Handler], _Handler]:
    def added(handler: _Handler) -> _Handler:
        for name in names.split():
            HANDLERS[name] = handler
        return handler

    return added


_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_MAX_VISITS = 8  # for one instruction: a loop that builds a container would never end


def _either(a: Expression, b: Expression) -> Expression:
    """One of two values; the first one if it covers the second."""
    found = {(x.kind, x.offset): x for x in (a.parts if a.kind == "either" else (a,))}
    before = list(found.values())
    # A value of the same instruction is the same one, with more known now.
    found |= {(x.kind, x.offset): x for x in (b.parts if b.kind == "either" else (b,))}
    parts = tuple(found.values())
    if len(parts) == len(before) and all(x is y for x, y in zip(parts, before, strict=True)):
        return a
    return Expression("either", parts=parts) if len(parts) > 1 else parts[0]


class Interpreter:
    """The actions of a code object along every path through it."""

    def __init__(self, code: CodeType) -> None:
        self.actions: dict[int, list[Action]] = {}
        self.lines: dict[int, int | None] = {}
        self.follows: dict[int, tuple[int, ...]] = {}  # successors without jumps back
        self.branches: set[int] = set()
        self.unknown: str | None = None
        self.values: dict[Any, Expression] = {}
        self.code = code
        self.cells = {*code.co_freevars, *code.co_cellvars}
        self.instructions = list(dis.get_instructions(code))
        self.index = {x.offset: i for i, x in enumerate(self.instructions)}
        self.stack: list[Expression] = []
        self.jumped: list[Expression] | None = None  # the stack after a jump, if different
        self.names: tuple[str, ...] = ()  # keywords of the next call
        self.offset = 0
        self.line: int | None = None
        seen: set[int] = set()
        self._follow([(0, [])], seen)
        normal = set(seen)
        handlers = [x.offset for x in self.instructions if x.opname == "PUSH_EXC_INFO"]
        cleanups = [x.offset for x in self.instructions if x.offset not in seen]
        # The interpreter unwinds the stack before a handler: the values below are unknown.
        self._follow([(offset, []) for offset in reversed(handlers)], seen)
        for offset in cleanups:
            self._follow([(offset, [])], seen)
        self.caught = seen - normal

    def _follow(self, waiting: list[tuple[int, list[Expression]]], seen: set[int]) -> None:
        stacks: dict[int, list[Expression]] = {}
        visits: dict[int, int] = {}
        while waiting:
            offset, stack = waiting.pop()
            before = stacks.get(offset)
            if offset not in self.index or (before is None and offset in seen):
                continue
            if before is not None:  # second path to here: the stack holds either value
                if len(before) != len(stack) or visits.get(offset, 0) > _MAX_VISITS:
                    continue
                stack = [_either(a, b) for a, b in zip(before, stack, strict=True)]
                if all(a is b for a, b in zip(before, stack, strict=True)):
                    continue
            stacks[offset] = stack
            visits[offset] = visits.get(offset, 0) + 1
            seen.add(offset)
            instruction = self.instructions[self.index[offset]]
            self.stack, self.jumped = list(stack), None
            self.actions.pop(offset, None)
            self._step(instruction)
            follow = []
            if instruction.opcode in _JUMPS:
                target = instruction.argval
                waiting.append((target, self.stack if self.jumped is None else self.jumped))
                if target > offset:
                    follow.append(target)
                if instruction.opname not in _ENDS:
                    self.branches.add(offset)
            if instruction.opname not in _ENDS and self.index[offset] + 1 < len(self.index):
                follow.append(self.instructions[self.index[offset] + 1].offset)
                waiting.append((follow[-1], self.stack))
            self.follows[offset] = tuple(follow)

    def _step(self, instruction: dis.Instruction) -> None:
        name = instruction.opname
        self.offset = instruction.offset
        self.line = instruction.positions.lineno if instruction.positions else None
        self.lines[self.offset] = self.line
        effect, handler = EFFECTS.get(name), HANDLERS.get(name)
        if effect is not None:
            self._apply(*effect, instruction.argval)
        elif handler is not None:
            handler(self, instruction)
        else:
            self.unknown = name
            self.stack = []

    def _apply(
        self, taken: tuple[str, ...], verb: str | None, put: tuple[str, ...], name: Any
    ) -> None:
        values: dict[str, Expression] = {}
        parts: tuple[Expression, ...] = ()
        if taken:
            values = dict(zip(taken, self.take(len(taken)), strict=True))
            parts = tuple([UNKNOWN if k == "?" else v for k, v in values.items() if k != "_"])
        if verb is not None:
            self.act(verb, *parts, name=name)
        for what in put:
            if what in values:
                value = values[what]
            elif what == "derived":
                value = self.derived(*parts)
            elif what in _READ:
                value = self.read(what, name, parts)
            else:
                value = self.value(what, name if what == "constant" else None)
            self.stack.append(value)

    # The stack ----------------------------------------------------------------------------------

    def push(self, *values: Expression) -> None:
        self.stack += values

    def take(self, count: int) -> tuple[Expression, ...]:
        """The topmost values, lowest first; below the known part of the stack they are unknown."""
        first = len(self.stack) - count
        if first < 0:
            self.stack[:0] = [UNKNOWN] * -first
            first = 0
        taken = tuple(self.stack[first:])
        del self.stack[first:]
        return taken

    def loaded(self, value: Expression, called: Any) -> None:
        """Push a loaded value, with the marker (NULL) that precedes or follows a callee.

        From 3.13 on the marker lies above the callee.
        """
        if not called:
            self.push(value)
        elif _FROM_313:
            self.push(value, NULL)
        else:
            self.push(NULL, value)

    def value(self, kind: str, name: Any = None, parts: tuple[Expression, ...] = ()) -> Expression:
        # The same object for the same value, so that a second visit can see that nothing changed.
        key = kind, self.offset, name if kind != "constant" else id(name), parts
        known = self.values.get(key)
        if known is None:
            known = self.values[key] = Expression(kind, name, parts, self.offset, self.line)
        return known

    def derived(self, *parts: Expression) -> Expression:
        """A value that comes from others in an untracked way: it may be a part of them."""
        return self.value("call", parts=(UNKNOWN, *parts))

    def act(self, verb: str, *parts: Expression, name: Any = None) -> None:
        action = Action(verb, parts, name, self.offset, self.line)
        self.actions.setdefault(self.offset, []).append(action)

    def read(self, kind: str, name: Any = None, parts: tuple[Expression, ...] = ()) -> Expression:
        """A value recorded as read even if it is not used further."""
        value = self.value(kind, name, parts)
        self.act("read", value)
        return value

    # Single instructions ------------------------------------------------------------------------

    @_on("BINARY_OP")
    def _binary(self, x: Any) -> None:
        parts = self.take(2)
        text = x.argrepr in ("%", "%=")
        self.act("text" if text else "use", *parts)
        # A list or dict may be made of others, with their contents.
        self.push(self.value("result", parts=() if text else parts))

    @_on("CALL_INTRINSIC_1")
    def _intrinsic(self, x: Any) -> None:
        (value,) = self.take(1)
        makes_tuple = x.arg == 6  # INTRINSIC_LIST_TO_TUPLE
        self.push(value if makes_tuple else self.derived(value))

    @_on("PUSH_NULL")
    def _null(self, x: Any) -> None:
        self.push(NULL)

    @_on(
        "LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW"
        " LOAD_FAST_BORROW_LOAD_FAST_BORROW"
    )
    def _local(self, x: Any) -> None:
        names = x.argval if isinstance(x.argval, tuple) else (x.argval,)
        for name in names:
            # From 3.13 on this also loads a cell for the closure of a function.
            self.push(self.read("deref", name) if name in self.cells else self.value("local", name))

    def _bind(self, name: str, value: Expression) -> None:
        self.act("bind", value, name=name)

    @_on("STORE_FAST STORE_FAST_MAYBE_NULL STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST")
    def _store_local(self, x: Any) -> None:
        names = x.argval if isinstance(x.argval, tuple) else (x.argval,)
        self._bind(names[0], self.take(1)[0])
        if x.opname == "STORE_FAST_STORE_FAST":
            self._bind(names[1], self.take(1)[0])
        elif x.opname == "STORE_FAST_LOAD_FAST":
            self.push(self.value("local", names[1]))

    @_on("STORE_DEREF")
    def _store_deref(self, x: Any) -> None:
        (value,) = self.take(1)
        self.act("store_deref", value, name=x.argval)
        self._bind(x.argval, value)

    @_on("LOAD_GLOBAL")
    def _global(self, x: Any) -> None:
        self.loaded(self.read("global", x.argval), x.arg & 1)

    @_on("LOAD_ATTR LOAD_METHOD")
    def _attribute(self, x: Any) -> None:
        method = x.opname == "LOAD_METHOD" or (_FROM_312 and x.arg & 1)
        self.loaded(self.read("attribute", x.argval, self.take(1)), method)

    @_on("LOAD_SUPER_ATTR LOAD_SUPER_METHOD LOAD_ZERO_SUPER_ATTR LOAD_ZERO_SUPER_METHOD")
    def _super_attribute(self, x: Any) -> None:
        _, *parts = self.take(3)
        owner = self.value("super", parts=tuple(parts))
        self.loaded(self.read("attribute", x.argval, (owner,)), x.arg & 1)

    @_on("FOR_ITER")
    def _next(self, x: Any) -> None:
        (iterator,) = self.take(1)
        # From 3.12 on END_FOR takes the iterator from the stack; in 3.11 the loop itself does.
        self.jumped = [*self.stack, iterator, UNKNOWN] if _FROM_312 else list(self.stack)
        self.push(iterator, self.derived(iterator))

    @_on("END_FOR")
    def _end_for(self, x: Any) -> None:
        self.take(1 if _FROM_313 else 2)  # from 3.13 on POP_TOP takes the other one

    @_on("SEND")
    def _send(self, x: Any) -> None:
        receiver, _ = self.take(2)
        result = self.derived(receiver)
        self.jumped = [*self.stack, receiver, result] if _FROM_312 else [*self.stack, result]
        self.push(receiver, result)

    @_on("UNPACK_SEQUENCE UNPACK_EX")
    def _unpack(self, x: Any) -> None:
        (container,) = self.take(1)
        self.act("iterate", container)
        count = x.arg if x.opname == "UNPACK_SEQUENCE" else (x.arg & 0xFF) + 1 + (x.arg >> 8)
        self.push(*[self.derived(container) for _ in range(count)])

    @_on("LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE")
    def _extend(self, x: Any) -> None:
        (value,) = self.take(1)
        self.act("iterate", value)
        self._grow(x.arg, self.derived(value))

    def _grow(self, depth: int, value: Expression, name: str | None = None) -> None:
        """Add a value to the container at this depth of the stack; ``grown`` if in a loop."""
        if depth <= len(self.stack):
            container = self.stack[-depth]
            self.stack[-depth] = self.value("built", name, (container, value))

    @_on("LIST_APPEND SET_ADD MAP_ADD")
    def _append(self, x: Any) -> None:
        parts = self.take(2 if x.opname == "MAP_ADD" else 1)
        self.act("use", *parts)
        self._grow(x.arg, parts[-1], "grown")

    @_on("BUILD_LIST BUILD_TUPLE BUILD_SET BUILD_STRING BUILD_SLICE BUILD_MAP BUILD_CONST_KEY_MAP")
    def _build(self, x: Any) -> None:
        count = {"BUILD_MAP": 2 * x.arg, "BUILD_CONST_KEY_MAP": x.arg + 1}.get(x.opname, x.arg)
        parts = self.take(count)
        # A look at the new container is a look at its parts.
        self.push(self.value("built", parts=parts))

    @_on("FORMAT_VALUE")
    def _format(self, x: Any) -> None:
        self.act("text", *self.take(2 if x.arg & 4 else 1))
        self.push(self.value("result"))

    @_on("MATCH_CLASS")
    def _match_class(self, x: Any) -> None:
        subject, cls, names = self.take(3)
        self.act("match", subject, cls, name=(x.arg, names.name or ()))
        self.push(self.derived(subject))

    @_on("MATCH_KEYS")
    def _match_keys(self, x: Any) -> None:
        subject, keys = self.take(2)
        self.act("use", subject)
        self.push(subject, keys, self.derived(subject))

    @_on("JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP")
    def _or_pop(self, x: Any) -> None:
        (value,) = self.take(1)
        self.act("truth", value)
        self.jumped = [*self.stack, value]

    @_on("COPY")
    def _copy(self, x: Any) -> None:
        values = self.take(x.arg)
        self.push(*values, values[0])

    @_on("SWAP")
    def _swap(self, x: Any) -> None:
        first, *middle, last = self.take(x.arg)
        self.push(last, *middle, first)

    @_on("RAISE_VARARGS")
    def _raise(self, x: Any) -> None:
        self.take(x.arg)

    @_on("IMPORT_NAME")
    def _import(self, x: Any) -> None:
        _, names = self.take(2)
        dotted = x.argval if names.name else x.argval.partition(".")[0]
        self.push(self.read("module", dotted))

    # Calls and functions ------------------------------------------------------------------------

    @_on("KW_NAMES")
    def _keywords(self, x: Any) -> None:
        self.names = self.code.co_consts[x.arg]

    def _call(self, arguments: tuple[Expression, ...]) -> None:
        lower, upper = self.take(2)
        if lower is NULL:
            function = upper
        elif upper is NULL:
            function = lower
        else:  # the upper value is the first argument
            function, arguments = lower, (upper, *arguments)
        if not arguments and function.kind == "global" and function.name == "super":
            arguments = self._arguments_of_super()
        names, self.names = self.names, ()
        value = self.value("call", names, (function, *arguments))
        self.act("call", value)
        self.push(value)

    def _arguments_of_super(self) -> tuple[Expression, ...]:
        """The implicit arguments of ``super()``: the method's class, and its first argument."""
        code = self.code
        if "__class__" not in self.cells or not code.co_argcount:
            return ()
        own = code.co_varnames[0]
        kind = "deref" if own in self.cells else "local"
        return self.value("deref", "__class__"), self.value(kind, own)

    @_on("CALL")
    def _plain_call(self, x: Any) -> None:
        self._call(self.take(x.arg))

    @_on("CALL_KW")
    def _keyword_call(self, x: Any) -> None:
        *arguments, names = self.take(x.arg + 1)
        self.names = names.name or ()
        self._call(tuple(arguments))

    @_on("CALL_FUNCTION_EX")
    def _spread_call(self, x: Any) -> None:
        arguments = self.take(1 + (x.arg & 1))
        lower, upper = self.take(2)
        function = upper if lower is NULL else lower
        value = self.value("spread", parts=(function, *arguments))
        self.act("call", value)
        self.push(value)

    @_on("MAKE_FUNCTION")
    def _make(self, x: Any) -> None:
        (code,) = self.take(1)
        if not _FROM_313:
            self.take(bin(x.arg or 0).count("1"))
        self.act("make", name=code.name)
        self.push(self.value("function", code.name))
