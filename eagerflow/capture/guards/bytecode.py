"""Walking: a code object's instructions, with expressions on the stack in place of values."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from eagerflow.capture.guards.opcodes import EFFECTS, ENDS, OPERATORS, TEXTS, TRUTH

__all__ = ["Action", "Expression", "Walk"]


class Expression:
    """Where a value on the stack comes from.

    ``kind`` says how to read ``name`` and ``parts``: ``global``, ``name`` (of a local of
    code that is not in a function, or a global), ``deref``, ``local``, ``constant``, ``given``
    (a value that was found), ``module``, ``attribute``, ``item``, ``super``, ``call``, ``spread``
    (a call with ``*args``), ``function``, ``built`` (a list, tuple ... of ``parts``, or one that
    has ``grown`` in a loop), ``result`` (of an operator), ``either``, ``null``, ``unknown``.
    """

    __slots__ = ("kind", "line", "name", "offset", "parts")

    def __init__(
        self,
        kind: str,
        name: Any = None,
        parts: tuple[Expression, ...] = (),
        offset: int = -1,
        line: int | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.parts = parts
        self.offset = offset
        self.line = line

    def __repr__(self) -> str:
        inner = ", ".join([repr(self.name)] * (self.name is not None) + [*map(repr, self.parts)])
        return f"{self.kind}({inner})"


UNKNOWN = Expression("unknown")
NULL = Expression("null")


class Action(NamedTuple):
    """What an instruction does to values that it did not make.

    ``verb`` is ``read`` (no more than that), ``iterate`` (the elements), ``use`` (all of it),
    ``text`` (what it is written as), ``identity`` (which object it is), ``kind`` (what kind of
    container), ``match`` (a class pattern, with the number of positions and the names), ``truth``,
    ``contains``, ``call``, ``make`` (a function), ``bind`` (a local), ``return``, or ``store_``
    and what: ``attribute``, ``item``, ``global``, ``deref``.
    """

    verb: str
    parts: tuple[Expression, ...]
    name: Any
    offset: int
    line: int | None


_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_VISITS = 8  # a loop that builds a container would go on forever
_MARK_LAST = "CALL_KW" in dis.opmap  # from 3.13 on the mark of a call lies above what is called


def _either(a: Expression, b: Expression) -> Expression:
    """What is one of two values; the first one itself if it covers the second."""
    found = {(x.kind, x.offset): x for x in (a.parts if a.kind == "either" else (a,))}
    before = list(found.values())
    # A value of the same instruction is the same one, by now known better.
    found |= {(x.kind, x.offset): x for x in (b.parts if b.kind == "either" else (b,))}
    parts = tuple(found.values())
    if len(parts) == len(before) and all(x is y for x, y in zip(parts, before, strict=True)):
        return a
    return Expression("either", parts=parts) if len(parts) > 1 else parts[0]


class Walk:
    """One walk over the instructions of a code object, along every way through it."""

    def __init__(self, code: CodeType) -> None:
        self.actions: dict[int, list[Action]] = {}
        self.lines: dict[int, int | None] = {}
        self.follows: dict[int, tuple[int, ...]] = {}  # where it goes on, but not back
        self.branches: set[int] = set()
        self.unknown: str | None = None
        self.values: dict[Any, Expression] = {}
        self.code = code
        self.cells = {*code.co_freevars, *code.co_cellvars}
        self.instructions = list(dis.get_instructions(code))
        self.index = {x.offset: i for i, x in enumerate(self.instructions)}
        self.stack: list[Expression] = []
        self.jumped: list[Expression] | None = None  # the stack after a jump, where it differs
        self.names: tuple[str, ...] = ()  # keywords of the call to come
        self.offset = 0
        self.line: int | None = None
        seen: set[int] = set()
        self._follow([(0, [])], seen)
        normal = set(seen)
        handlers = [x.offset for x in self.instructions if x.opname == "PUSH_EXC_INFO"]
        cleanups = [x.offset for x in self.instructions if x.offset not in seen]
        # The machine unwinds the stack before it goes to a handler: what lies below is not known.
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
            if before is not None:  # a second way to here: what lies on the stack is either value
                if len(before) != len(stack) or visits.get(offset, 0) > _VISITS:
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
                if instruction.opname not in ENDS:
                    self.branches.add(offset)
            if instruction.opname not in ENDS and self.index[offset] + 1 < len(self.index):
                follow.append(self.instructions[self.index[offset] + 1].offset)
                waiting.append((follow[-1], self.stack))
            self.follows[offset] = tuple(follow)

    def _step(self, instruction: dis.Instruction) -> None:
        name = instruction.opname
        self.offset = instruction.offset
        self.line = instruction.positions.lineno if instruction.positions else None
        self.lines[self.offset] = self.line
        if name in EFFECTS:
            pops, pushes = EFFECTS[name]
            parts = self.take(pops)
            if name == "CALL_INTRINSIC_1" and instruction.arg == 6:  # a list becomes a tuple
                self.push(parts[0])
            else:
                self.stack += [self.value("call", parts=(UNKNOWN, *parts))] * pushes
        elif name in TEXTS or instruction.argrepr in ("%", "%="):
            self.act("text", *self.take(TEXTS.get(name, 2)))
            self.push(self.value("result"))
        elif name in OPERATORS:
            parts = self.take(OPERATORS[name])
            self.act("use", *parts)
            # One list or dict may come of others, with what they hold.
            self.push(self.value("result", parts=parts if name == "BINARY_OP" else ()))
        elif name in TRUTH:
            self.act("truth", *self.take(1))
            if "JUMP" not in name:
                self.push(self.value("result"))
        else:
            handler = _HANDLERS.get(name)
            if handler is None:
                self.unknown = name
                self.stack = []
            else:
                handler(self, instruction)

    # The stack ----------------------------------------------------------------------------------

    def push(self, *values: Expression) -> None:
        self.stack += values

    def take(self, count: int) -> tuple[Expression, ...]:
        """The topmost values, lowest first; what lies below the known part is not known."""
        missing = count - len(self.stack)
        if missing > 0:
            self.stack[:0] = [UNKNOWN] * missing
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return tuple(taken)

    def loaded(self, value: Expression, called: Any) -> None:
        """Push what was loaded, with the mark that shows that it is about to be called."""
        if not called:
            self.push(value)
        elif _MARK_LAST:
            self.push(value, NULL)
        else:
            self.push(NULL, value)

    def value(self, kind: str, name: Any = None, parts: tuple[Expression, ...] = ()) -> Expression:
        # The same object for the same value, to see where a second walk finds nothing new.
        key = kind, self.offset, name if kind != "constant" else id(name), parts
        known = self.values.get(key)
        if known is None:
            known = self.values[key] = Expression(kind, name, parts, self.offset, self.line)
        return known

    def act(self, verb: str, *parts: Expression, name: Any = None) -> None:
        action = Action(verb, parts, name, self.offset, self.line)
        self.actions.setdefault(self.offset, []).append(action)

    def read(self, kind: str, name: Any = None, parts: tuple[Expression, ...] = ()) -> Expression:
        """A value whose reading matters also where nothing is done with it."""
        value = self.value(kind, name, parts)
        self.act("read", value)
        return value


# Handlers of single instructions ----------------------------------------------------------------

_HANDLERS: dict[str, Callable[[Walk, Any], None]] = {}
_Handler = Callable[[Walk, Any], None]


def _on(names: str) -> Callable[[_Handler], _Handler]:
    def added(handler: _Handler) -> _Handler:
        for name in names.split():
            _HANDLERS[name] = handler
        return handler

    return added


@_on("LOAD_CONST LOAD_SMALL_INT")
def _constant(walk: Walk, x: Any) -> None:
    walk.push(walk.value("constant", x.argval))


@_on("PUSH_NULL")
def _null(walk: Walk, x: Any) -> None:
    walk.push(NULL)


@_on(
    "LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW"
    " LOAD_FAST_BORROW_LOAD_FAST_BORROW"
)
def _local(walk: Walk, x: Any) -> None:
    names = x.argval if isinstance(x.argval, tuple) else (x.argval,)
    for name in names:
        # From 3.13 on this is also how a cell gets into the closure of a function.
        walk.push(walk.read("deref", name) if name in walk.cells else walk.value("local", name))


def _bind(walk: Walk, name: str, value: Expression) -> None:
    walk.act("bind", value, name=name)


@_on("STORE_FAST STORE_FAST_MAYBE_NULL STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST")
def _store_local(walk: Walk, x: Any) -> None:
    names = x.argval if isinstance(x.argval, tuple) else (x.argval,)
    _bind(walk, names[0], walk.take(1)[0])
    if x.opname == "STORE_FAST_STORE_FAST":
        _bind(walk, names[1], walk.take(1)[0])
    elif x.opname == "STORE_FAST_LOAD_FAST":
        walk.push(walk.value("local", names[1]))


@_on("LOAD_DEREF LOAD_CLASSDEREF LOAD_CLOSURE LOAD_FROM_DICT_OR_DEREF")
def _deref(walk: Walk, x: Any) -> None:
    if x.opname == "LOAD_FROM_DICT_OR_DEREF":
        walk.take(1)
    walk.push(walk.read("deref", x.argval))


@_on("STORE_DEREF")
def _store_deref(walk: Walk, x: Any) -> None:
    (value,) = walk.take(1)
    walk.act("store_deref", value, name=x.argval)
    _bind(walk, x.argval, value)


@_on("LOAD_GLOBAL LOAD_NAME LOAD_FROM_DICT_OR_GLOBALS")
def _global(walk: Walk, x: Any) -> None:
    if x.opname == "LOAD_FROM_DICT_OR_GLOBALS":
        walk.take(1)
    kind = "global" if x.opname == "LOAD_GLOBAL" else "name"
    walk.loaded(walk.read(kind, x.argval), x.opname == "LOAD_GLOBAL" and x.arg & 1)


@_on("STORE_GLOBAL")
def _store_global(walk: Walk, x: Any) -> None:
    walk.act("store_global", *walk.take(1), name=x.argval)


@_on("LOAD_ATTR LOAD_METHOD")
def _attribute(walk: Walk, x: Any) -> None:
    method = x.opname == "LOAD_METHOD" or (_METHOD_BIT and x.arg & 1)
    walk.loaded(walk.read("attribute", x.argval, walk.take(1)), method)


_METHOD_BIT = "LOAD_SUPER_ATTR" in dis.opmap  # from 3.12 on the argument tells


@_on("LOAD_SUPER_ATTR LOAD_SUPER_METHOD LOAD_ZERO_SUPER_ATTR LOAD_ZERO_SUPER_METHOD")
def _super_attribute(walk: Walk, x: Any) -> None:
    _, *parts = walk.take(3)
    owner = walk.value("super", parts=tuple(parts))
    walk.loaded(walk.read("attribute", x.argval, (owner,)), x.arg & 1)


@_on("STORE_ATTR DELETE_ATTR")
def _store_attribute(walk: Walk, x: Any) -> None:
    (owner,) = walk.take(1)
    if x.opname == "STORE_ATTR":
        walk.take(1)
    walk.act("store_attribute", owner, name=x.argval)


@_on("BINARY_SUBSCR")
def _item(walk: Walk, x: Any) -> None:
    walk.push(walk.read("item", None, walk.take(2)))


@_on("BINARY_SLICE")
def _slice(walk: Walk, x: Any) -> None:
    container, _, _ = walk.take(3)
    walk.push(walk.read("item", None, (container, UNKNOWN)))


@_on("STORE_SUBSCR DELETE_SUBSCR STORE_SLICE")
def _store_item(walk: Walk, x: Any) -> None:
    if x.opname == "STORE_SLICE":
        _, container, _, _ = walk.take(4)
        walk.act("store_item", container, UNKNOWN)
        return
    walk.act("store_item", *walk.take(2))
    if x.opname == "STORE_SUBSCR":
        walk.take(1)


@_on("CONTAINS_OP")
def _contains(walk: Walk, x: Any) -> None:
    walk.act("contains", *walk.take(2))
    walk.push(walk.value("result"))


@_on("GET_ITER GET_YIELD_FROM_ITER")
def _iterate(walk: Walk, x: Any) -> None:
    (container,) = walk.take(1)
    walk.act("iterate", container)
    walk.push(walk.value("call", parts=(UNKNOWN, container)))


@_on("FOR_ITER")
def _next(walk: Walk, x: Any) -> None:
    (iterator,) = walk.take(1)
    # END_FOR takes the iterator from the stack where there is one; in 3.11 the loop itself does.
    ends = "END_FOR" in dis.opmap
    walk.jumped = [*walk.stack, iterator, UNKNOWN] if ends else list(walk.stack)
    walk.push(iterator, walk.value("call", parts=(UNKNOWN, iterator)))


@_on("END_FOR")
def _end_for(walk: Walk, x: Any) -> None:
    walk.take(1 if "FORMAT_SIMPLE" in dis.opmap else 2)  # one from 3.13 on, then POP_TOP


@_on("POP_ITER")
def _pop_iterator(walk: Walk, x: Any) -> None:
    walk.take(1)


@_on("END_SEND")
def _end_send(walk: Walk, x: Any) -> None:
    walk.push(walk.take(2)[1])


@_on("SEND")
def _send(walk: Walk, x: Any) -> None:
    receiver, _ = walk.take(2)
    result = walk.value("call", parts=(UNKNOWN, receiver))
    walk.jumped = (
        [*walk.stack, receiver, result] if "END_SEND" in dis.opmap else [*walk.stack, result]
    )
    walk.push(receiver, result)


@_on("UNPACK_SEQUENCE UNPACK_EX")
def _unpack(walk: Walk, x: Any) -> None:
    (container,) = walk.take(1)
    walk.act("iterate", container)
    count = x.arg if x.opname == "UNPACK_SEQUENCE" else (x.arg & 0xFF) + 1 + (x.arg >> 8)
    walk.push(*[walk.value("call", parts=(UNKNOWN, container)) for _ in range(count)])


@_on("LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE")
def _extend(walk: Walk, x: Any) -> None:
    (value,) = walk.take(1)
    walk.act("iterate", value)
    _grow(walk, x.arg, walk.value("call", parts=(UNKNOWN, value)))


def _grow(walk: Walk, depth: int, value: Expression, name: str | None = None) -> None:
    """The container that lies so deep in the stack holds more; ``grown`` is one of a loop."""
    if depth <= len(walk.stack):
        container = walk.stack[-depth]
        walk.stack[-depth] = walk.value("built", name, (container, value))


@_on("LIST_APPEND SET_ADD MAP_ADD")
def _append(walk: Walk, x: Any) -> None:
    parts = walk.take(2 if x.opname == "MAP_ADD" else 1)
    walk.act("use", *parts)
    _grow(walk, x.arg, parts[-1], "grown")


@_on("LIST_TO_TUPLE")
def _same(walk: Walk, x: Any) -> None:
    walk.push(*walk.take(1))


@_on("BUILD_LIST BUILD_TUPLE BUILD_SET BUILD_STRING BUILD_SLICE BUILD_MAP BUILD_CONST_KEY_MAP")
def _build(walk: Walk, x: Any) -> None:
    count = {"BUILD_MAP": 2 * x.arg, "BUILD_CONST_KEY_MAP": x.arg + 1}.get(x.opname, x.arg)
    # Who looks at the new container looks at what it was made of.
    walk.push(walk.value("built", parts=walk.take(count)))


@_on("FORMAT_VALUE")
def _format(walk: Walk, x: Any) -> None:
    walk.act("text", *walk.take(2 if x.arg & 4 else 1))
    walk.push(walk.value("result"))


@_on("GET_LEN")
def _length(walk: Walk, x: Any) -> None:
    walk.act("iterate", walk.stack[-1] if walk.stack else UNKNOWN)
    walk.push(walk.value("result"))


@_on("IS_OP")
def _is(walk: Walk, x: Any) -> None:
    walk.act("identity", *walk.take(2))
    walk.push(walk.value("result"))


@_on("MATCH_MAPPING MATCH_SEQUENCE")
def _match(walk: Walk, x: Any) -> None:
    walk.act("kind", walk.stack[-1] if walk.stack else UNKNOWN)
    walk.push(walk.value("result"))


@_on("MATCH_CLASS")
def _match_class(walk: Walk, x: Any) -> None:
    subject, cls, names = walk.take(3)
    walk.act("match", subject, cls, name=(x.arg, names.name or ()))
    walk.push(walk.value("call", parts=(UNKNOWN, subject)))


@_on("MATCH_KEYS")
def _match_keys(walk: Walk, x: Any) -> None:
    subject, keys = walk.take(2)
    walk.act("use", subject)
    walk.push(subject, keys, walk.value("call", parts=(UNKNOWN, subject)))


@_on("JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP")
def _or_pop(walk: Walk, x: Any) -> None:
    (value,) = walk.take(1)
    walk.act("truth", value)
    walk.jumped = [*walk.stack, value]


@_on("COPY")
def _copy(walk: Walk, x: Any) -> None:
    values = walk.take(x.arg)
    walk.push(*values, values[0])


@_on("SWAP")
def _swap(walk: Walk, x: Any) -> None:
    first, *middle, last = walk.take(x.arg)
    walk.push(last, *middle, first)


@_on("RETURN_VALUE")
def _return(walk: Walk, x: Any) -> None:
    walk.act("return", *walk.take(1))


@_on("RAISE_VARARGS")
def _raise(walk: Walk, x: Any) -> None:
    walk.take(x.arg)


@_on("IMPORT_NAME")
def _import(walk: Walk, x: Any) -> None:
    _, names = walk.take(2)
    dotted = x.argval if names.name else x.argval.partition(".")[0]
    walk.push(walk.read("module", dotted))


@_on("IMPORT_FROM")
def _import_from(walk: Walk, x: Any) -> None:
    (module,) = walk.take(1)
    walk.push(module, walk.read("attribute", x.argval, (module,)))


@_on("IMPORT_STAR")
def _import_star(walk: Walk, x: Any) -> None:
    walk.take(1)


# Calls and functions ----------------------------------------------------------------------------


@_on("KW_NAMES")
def _keywords(walk: Walk, x: Any) -> None:
    walk.names = walk.code.co_consts[x.arg]


def _call(walk: Walk, arguments: tuple[Expression, ...]) -> None:
    lower, upper = walk.take(2)
    if lower is NULL:
        function = upper
    elif upper is NULL:
        function = lower
    else:  # the upper one is the first argument
        function, arguments = lower, (upper, *arguments)
    names, walk.names = walk.names, ()
    value = walk.value("call", names, (function, *arguments))
    walk.act("call", value)
    walk.push(value)


@_on("CALL")
def _plain_call(walk: Walk, x: Any) -> None:
    _call(walk, walk.take(x.arg))


@_on("CALL_KW")
def _keyword_call(walk: Walk, x: Any) -> None:
    *arguments, names = walk.take(x.arg + 1)
    walk.names = names.name or ()
    _call(walk, tuple(arguments))


@_on("CALL_FUNCTION_EX")
def _spread_call(walk: Walk, x: Any) -> None:
    arguments = walk.take(1 + (x.arg & 1))
    lower, upper = walk.take(2)
    function = upper if lower is NULL else lower
    value = walk.value("spread", parts=(function, *arguments))
    walk.act("call", value)
    walk.push(value)


@_on("MAKE_FUNCTION")
def _make(walk: Walk, x: Any) -> None:
    (code,) = walk.take(1)
    if "SET_FUNCTION_ATTRIBUTE" not in dis.opmap:
        walk.take(bin(x.arg or 0).count("1"))
    walk.act("make", name=code.name)
    walk.push(walk.value("function", code.name))


@_on("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(walk: Walk, x: Any) -> None:
    _, function = walk.take(2)
    walk.push(function)
