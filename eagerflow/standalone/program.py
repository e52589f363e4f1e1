"""A program: the module being written, with everything that its functions share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.capture.op_bodies import consists_of
from eagerflow.dtypes import FLOAT8, NARROW
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.handlers import raised_here
from eagerflow.standalone import control as control  # registers rules of forms
from eagerflow.standalone import sources
from eagerflow.standalone.expressions import (
    OPERATORS,
    RESERVED,
    Expression,
    Reference,
    bundle,
    call,
    identifier,
    layer,
    literal,
    method,
    sentence,
    text,
)
from eagerflow.standalone.forms import FORMS, numpy_form
from eagerflow.standalone.layout import Line, Text, written
from eagerflow.standalone.writer import Writer

MAX_SHOWN = 8  # elements of an array that is written as a literal
MAX_OPERANDS = 74  # characters of both sides of an operator
_FLOAT16 = np.dtype("float16")
_UNKNOWN = (NARROW | FLOAT8) - {_FLOAT16}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,63}")


class Program:
    """The functions and weights written so far; see ``writer.Program``."""

    def __init__(self, graph: Graph) -> None:
        self.cells = {cell.value: cell for cell in graph.cells}
        self.names = FreeNames([*RESERVED, *sources.FUNCTIONS, "WEIGHTS"])
        self.functions: dict[str, tuple[Text, str]] = {}  # with a one-sentence docstring each
        self.helpers: dict[str, str] = {}  # functions from rules rather than graphs
        self.arrays: dict[str, Any] = {}  # weights and constants by their names in the file
        self._known: dict[Any, str] = {}
        self._paths = _paths([cell.name for cell in graph.cells])
        self._constants: dict[Any, str] = {}
        self._keys = FreeNames([*(path[0] for path in self._paths.values()), ""])
        self._open: list[str] = []  # ops whose bodies are in progress
        for cell in graph.cells:
            self.arrays["/".join(self.path(cell))] = cell.variable.numpy()
            _check(cell.value)

    def path(self, cell: Cell) -> tuple[str, ...]:
        return self._paths[cell.name]

    # Functions -----------------------------------------------------------------------------------

    def function(self, name: str, about: str, writer: Writer, lines: list[Line]) -> str:
        found = written(writer.parameters, lines)
        key = found.parameters, found.lines
        known = self._known.get(key)
        if known is None:
            own = identifier(name, "function")
            short = layer(own)
            taken = short in self.functions or short in self.helpers
            known = self._known[key] = self.names.take(own if taken else short)
            self.functions[known] = found, sentence(about)
        return Reference(known)

    def use(self, name: str) -> str:
        """The name of a library function, which is added to the program."""
        for one in sources.needed_by(name):
            if one not in self.helpers:
                self.helpers[one] = one
        return Reference(name)

    # Values --------------------------------------------------------------------------------------

    def constant(self, writer: Writer, value: Value) -> Expression:
        _check(value)
        array = value.constant.numpy()
        dtype = literal(value.dtype)
        if array.ndim == 0:
            return text(*dtype.pieces, "(", literal(_number(array)), ")")
        if not array.size:
            return call("np.zeros", literal(array.shape), dtype)
        if array.size > 1 and (array == array.flat[0]).all():
            return call("np.full", literal(array.shape), literal(_number(array.flat[0])), dtype)
        if array.size <= MAX_SHOWN:
            return _shown(array)
        if not writer.is_main:
            return writer.take(value)
        return writer.weight((self._stored(array, value.name.rpartition("/")[2]),))

    def _stored(self, array: Any, name: str) -> str:
        """The name in the file of an array, which is stored once."""
        same = array.dtype, array.shape, array.tobytes()
        key = self._constants.get(same)
        if key is None:
            key = self._constants[same] = self._keys.take(identifier(name, "constant"))
            self.arrays[key] = array
        return key

    # Nodes ---------------------------------------------------------------------------------------

    def expressions(self, writer: Writer, node: Node) -> Expression | list[Expression]:
        for value in (*node.values(), *node.outputs):
            _check(value, node)
        xs = _operands(writer, node)
        rule = FORMS.get(node.op.name)
        narrow = _computes_in_float32(node)
        given = _wide(node, xs) if narrow else xs
        found: Any = None if rule is None else rule(writer, node, *given)
        if found is None and node.op.name in sources.FUNCTIONS:
            found = self._library_call(writer, node, given)
        if found is None:
            found = numpy_form(writer, node, given)
        if found is None:
            return self._helper(writer, node, xs)
        return _narrowed(writer, node, found) if narrow else found  # type: ignore[no-any-return]

    def _library_call(self, w: Writer, node: Node, xs: Sequence[Any]) -> Expression:
        given = [text("None") if x is None else x for x in xs]
        while given and given[-1].pieces == ("None",):
            given.pop()
        defaults = sources.defaults_of(node.op.name)
        named = {}
        for key, value in sources.facts_of(node).items():
            if key in ("window", "strides", "dilation"):
                value = _one_for_all(value)
            if key in defaults and (type(value), value) != (type(defaults[key]), defaults[key]):
                named[key] = w.literal(value)
        return call(self.use(node.op.name), *given, **named)

    def _helper(self, w: Writer, node: Node, xs: Sequence[Any]) -> Expression | list[Expression]:
        """The body of a node's op, inline or as a function of its own."""
        if node.op.name in self._open:
            raise CaptureError("it cannot be exported: it consists of itself", op=node.op.name)
        graph = _body(node)
        given = [x for x, v in zip(xs, node.inputs, strict=True) if isinstance(v, Value)]
        if len(graph.nodes) <= 1:
            return w.expand(graph, given)
        inner = Writer(
            self, zip(graph.inputs, [identifier(x) for x in graph.inputs.names], strict=True)
        )
        inner.comments = False
        self._open.append(node.op.name)
        inner.nodes(graph.nodes, graph.outputs, loose=True)
        inner.finish(list(graph.outputs))
        self._open.pop()
        name = inner.define(node.op.name, node.op.doc.partition("\n\n")[0])
        for value, x in zip(graph.inputs, given, strict=True):
            w.known[value] = x
        return w.call(name, inner)


def _paths(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The paths of Variables in the nest of weights: their names, where these are plain."""
    wholes = {}
    for name in names:
        parts = name.split("/")
        plain = all(map(_PLAIN_KEY.fullmatch, parts)) and not name.endswith(".npy")
        wholes[name] = name if plain else "/".join(identifier(p, "weight") for p in parts[:8])
    folders = {whole[:i] for whole in wholes.values() for i, c in enumerate(whole) if c == "/"}
    take = FreeNames(["", *folders]).take
    return {name: tuple(take(whole).split("/")) for name, whole in wholes.items()}


def _one_for_all(numbers: Any) -> Any:
    """A single number for all axes, if they have the same."""
    same = isinstance(numbers, tuple) and len(set(numbers)) == 1
    return numbers[0] if same else numbers


def _shown(array: Any) -> Expression:
    """A small array as a literal."""

    def nest(x: Any) -> Expression:
        return bundle([nest(row) for row in x], "[]") if x.ndim else literal(_number(x))

    return call("np.array", nest(array), literal(array.dtype))


def _number(array: Any) -> Any:
    """The element of an array as a Python number, with as few digits as possible."""
    found = array.item()
    short = float(str(array)) if isinstance(found, float) else found
    return short if array.dtype.type(short) == array else found


def _check(value: Value, node: Node | None = None) -> None:
    if value.dtype in _UNKNOWN:
        raise CaptureError(
            f"it cannot be exported: NumPy has no {value.dtype.name}",
            op=None if node is None else node.op.name,
            argument=value.name if node is None else None,
            hint="convert to float32 or float16 before",
        )


def _body(node: Node) -> Graph:
    """The body of a node's op."""
    try:
        graph = consists_of(node)
    except raised_here(CaptureError) as error:
        raise CaptureError(
            "it cannot be exported: NumPy has no such function, and its body needs numbers",
            op=node.op.name,
        ) from error
    if any(one.op is node.op for one in graph.nodes):
        raise CaptureError("it cannot be exported: NumPy has no such function", op=node.op.name)
    return graph


# Operands ----------------------------------------------------------------------------------------


def _operands(w: Writer, node: Node) -> list[Expression | None]:
    """Expressions of a node's inputs; known numbers beside arrays stay numbers."""
    together = [x for i, x in enumerate(node.inputs) if i in node.op.together]
    arrays = [x for x in together if isinstance(x, Value) and x.constant is None]
    like = next((x.dtype for x in together if isinstance(x, Value)), node.outputs[0].dtype)
    elementwise = node.op.family == "elementwise" and len(node.inputs) > 1
    found: list[Expression | None] = []
    for i, x in enumerate(node.inputs):
        meets = elementwise and i in node.op.together and arrays
        if x is None:
            found.append(None)
        elif isinstance(x, Value):
            plain = meets and x.constant is not None and not x.shape and x.dtype == arrays[0].dtype
            found.append(literal(_number(x.constant.numpy())) if plain else w.term(x))
        else:
            found.append(literal(x) if meets else call(f"np.{like.name}", literal(x)))
    return _shortened(w, node, found)


def _shortened(w: Writer, node: Node, xs: list[Any]) -> list[Expression | None]:
    """Operands of an operator; those that would make the line too long become variables."""
    while node.op.name in OPERATORS and sum(x.width for x in xs) > MAX_OPERANDS:
        i = max(range(len(xs)), key=lambda i: xs[i].width)
        value = node.inputs[i]
        if not isinstance(value, Value) or xs[i].is_plain:
            break
        w.make(value, xs[i])
        again = w.term(value)
        xs = [again if x is value else old for x, old in zip(node.inputs, xs, strict=True)]
    return xs


def _computes_in_float32(node: Node) -> bool:
    """Whether kernels compute a node in float32 and round, as for float16."""
    if not any(v.dtype == _FLOAT16 for v in (*node.values(), *node.outputs)):
        return False
    moves = node.op.family in ("shape", "indexing", "creation", "random", "control", "elementwise")
    return not moves


def _wide(node: Node, xs: Sequence[Any]) -> list[Any]:
    return [
        method(x, "astype", "np.float32") if isinstance(v, Value) and v.dtype == _FLOAT16 else x
        for x, v in zip(xs, node.inputs, strict=True)
    ]


def _narrowed(w: Writer, node: Node, found: Any) -> Any:
    if isinstance(found, Expression) and len(node.outputs) > 1:
        found = w.unpacked(node, found)
    parts = found if isinstance(found, list) else [found]
    made = [
        method(x, "astype", "np.float16") if v.dtype == _FLOAT16 else x
        for x, v in zip(parts, node.outputs, strict=True)
    ]
    return made if isinstance(found, list) else made[0]
