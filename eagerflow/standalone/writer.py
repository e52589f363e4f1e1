"""Functions of a program, written from the nodes of a graph.

Each scope becomes a function, with its free values as parameters and the values used outside as
results; a value that is used once, in the user's line that computes it, is inlined into the
expression that uses it. The parameters of a function are collected while it is written.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Sequence
from os.path import basename
from typing import Any, Protocol

from eagerflow.dims import Dim, DimLike
from eagerflow.errors import EagerflowError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.standalone.expressions import (
    PRODUCT,
    SUM,
    Expression,
    Piece,
    Reference,
    Variable,
    binary,
    bundle,
    call,
    identifier,
    layer,
    literal,
    quoted,
    remark,
    text,
    unary,
)
from eagerflow.standalone.layout import Line, assignment
from eagerflow.standalone.naming import NEUTRAL, code_of, own_name
from eagerflow.standalone.scopes import (
    common,
    made,
    needed_outside,
    only_scope,
    read,
    runs,
    together,
)

MAX_WIDTH = 66  # characters of an expression within another one
MAX_FOLDERS = 12  # of weights that become separate parameters
MAX_RETURN = 80  # characters of a returned expression
ARGUMENTS = "x", "y", "z", "a", "b", "c", "d", "e", "f", "g", "h"


class Program(Protocol):
    """The interface of a program for the functions in it: the parts that they share."""

    cells: dict[Value, Cell]

    def expressions(self, writer: Writer, node: Node) -> Expression | list[Expression]:
        """The result of a node: one expression for all outputs, or one for each."""

    def constant(self, writer: Writer, value: Value) -> Expression:
        """A known value."""

    def use(self, name: str) -> str:
        """The name of a library function, which is added to the program."""

    def path(self, cell: Cell) -> tuple[str, ...]:
        """The path of a Variable in the nest of weights."""

    def function(self, name: str, about: str, writer: Writer, lines: list[Line]) -> str:
        """Add a function of these lines, with a sentence as its docstring; returns its name."""


class Writer:
    """Writes one function: ``keys`` are its free values, in order, ``parameters`` their names."""

    def __init__(self, program: Program, parameters: Iterable[tuple[Any, str]] = ()) -> None:
        self.program = program
        self.known: ChainMap[Any, Expression] = ChainMap()  # one map for each open block
        self.keys: list[Any] = []
        self.parameters: list[Variable] = []
        self.is_main = False  # whether it receives all weights
        self.heads: list[Line] = []  # sizes
        self.lines: list[Line] = []
        self.prefix: tuple[str, ...] = ()  # path of the weights that it receives
        self.folders: set[tuple[str, ...]] = set()  # of weights that are separate parameters
        self.weights: Variable | None = None
        self.wanted_names: dict[Value, str] = {}
        self.node: Node | None = None
        self._single: dict[Value, Node] = {}  # values with a single use, and their users
        self._used: set[Value] = set()
        self._loose: set[Value] = set()  # results that may be returned without a variable
        self._comment = self._place = ""
        self._said: set[str] = set()
        self.comments = True
        for key, name in parameters:
            self.take(key, name)

    # Known values --------------------------------------------------------------------------------

    def take(self, key: Any, name: str = "") -> Expression:
        """A new parameter, for a value or for the name of a size."""
        count = sum(isinstance(k, Value) for k in self.keys)
        if not name:
            name = ARGUMENTS[count] if count < len(ARGUMENTS) else f"x_{count}"
        variable = Variable(name, fixed=not isinstance(key, Value))
        self.keys.append(key)
        self.parameters.append(variable)
        found = self.known.maps[-1][key] = text(variable)
        return found

    def term(self, x: Any) -> Expression:
        """The expression of a value or a number."""
        if not isinstance(x, Value):
            return literal(x)
        found = self.known.get(x)
        if found is None:
            if x.constant is not None:
                return self.program.constant(self, x)
            cell = self.program.cells.get(x)
            found = self.take(x) if cell is None else self.weight(self.program.path(cell))
        return found

    def weight(self, path: tuple[str, ...]) -> Expression:
        """The weights at a path of the nest: an array, or a nest of them."""
        if path[:1] in self.folders:
            found, inner = self.known.get(path[:1]) or self.take(path[:1], layer(path[0])), path[1:]
        else:
            if self.weights is None:
                self.weights = Variable("w", fixed=True)
            found, inner = text(self.weights), path[len(self.prefix) :]
        return text(found, *(f"[{quoted(part)}]" for part in inner))

    def named(self, x: Expression, base: str = "") -> Expression:
        """An expression that can be repeated: a variable, unless it is plain already."""
        return x if x.is_plain else text(self.assign(x, base or "value"))

    def variable(self, value: Value) -> Variable:
        """A new variable for a value."""
        wanted = self.wanted_names.get(value)
        name = wanted or own_name(value)
        return Variable(name, fixed=wanted is not None, says=name != NEUTRAL)

    def assign(self, x: Expression, base: str) -> Variable:
        """A new variable with this value."""
        variable = Variable(base)
        self.write(assignment([variable], x, [variable]))
        return variable

    def write(self, line: Line) -> None:
        """Append a line, with the pending comment."""
        self.lines.append(line._replace(comment=self._comment))
        self._comment = ""

    # Sizes ---------------------------------------------------------------------------------------

    def size(self, dim: DimLike) -> Expression:
        """A size, possibly of a named dimension."""
        if not isinstance(dim, Dim):
            return literal(dim)
        total: Expression | None = None
        for monomial, factor in dim._terms.items():
            term = None if abs(factor) == 1 and monomial else literal(abs(factor))
            for atom in monomial:
                own = self._atom(dim, atom)
                term = own if term is None else binary("*", PRODUCT, term, own)
            assert term is not None
            if total is None:
                total = unary("-", term) if factor < 0 else term
            else:
                total = binary("-" if factor < 0 else "+", SUM, total, term)
        assert total is not None, "a Dim has terms"
        return total

    def _atom(self, dim: Dim, atom: str) -> Expression:
        if atom in dim._quotients:
            upper, lower = [self.size(x) for x in dim._quotients[atom]]
            return binary("//", PRODUCT, upper, lower)
        found = self.known.get(atom)
        if found is not None:
            return found
        for key, variable in zip(self.keys, self.parameters, strict=True):
            if isinstance(key, Value) and Dim(atom) in key.shape:
                axis = key.shape.index(Dim(atom))
                value = Variable(identifier(atom), fixed=True)
                self.heads.append(assignment([value], text(variable, f".shape[{axis}]"), [value]))
                found = self.known.maps[-1][atom] = text(value)
                return found
        return self.take(atom, identifier(atom))

    def sizes(self, shape: Iterable[DimLike]) -> Expression:
        """A shape as a tuple."""
        return bundle([self.size(x) for x in shape])

    def literal(self, value: Any) -> Expression:
        """The value of an attribute: a size, possibly of a named dimension, or a nest."""
        if isinstance(value, tuple):
            return bundle([self.literal(x) for x in value])
        return self.size(value) if isinstance(value, Dim) else literal(value)

    # Nodes ---------------------------------------------------------------------------------------

    def nodes(
        self, nodes: Sequence[Node], wanted: Sequence[Value], scope: str = "", loose: bool = False
    ) -> None:
        """Append the statements of some nodes; all values in ``wanted`` are known afterwards.

        Where they may be ``loose``, short expressions are not assigned to variables.
        """
        self._count(nodes, wanted, loose)
        while (only := only_scope(nodes, scope)) is not None:
            scope = only
        needed = needed_outside(nodes, wanted, scope)
        for inner, run in runs(nodes, scope):
            if inner is None or len(run) == 1:
                for node in run:
                    self._say(node)
                    self.statement(node)
            else:
                self._say(run[0])
                self._call_scope(inner, run, [v for v in made(run) if v in needed])

    def _count(self, nodes: Sequence[Node], wanted: Sequence[Value], loose: bool) -> None:
        uses = Counter(v for node in nodes for v in node.values())
        uses.update(wanted)
        self._used |= uses.keys()
        last = {v: node for node in nodes for v in node.values()}
        self._single |= {v: node for v, node in last.items() if uses[v] == 1}
        self._loose |= {v for v in wanted if loose and uses[v] == 1}

    def statement(self, node: Node) -> None:
        """Append the statement of a node, or keep its expression for the node that uses it."""
        self.node = node
        try:
            found = self.program.expressions(self, node)
        except EagerflowError as error:
            error.at = error.at or node.place or None
            raise
        if isinstance(found, list):
            for value, x in zip(node.outputs, found, strict=True):
                if value in self._used:
                    self._keep(node, value, x)
        elif len(node.outputs) == 1:
            self._keep(node, node.outputs[0], found)
        else:
            self._bind(node.outputs, found)

    def _keep(self, node: Node, value: Value, x: Expression) -> None:
        user = self._single.get(value)
        inline = user is not None and user.origin is not None and together(node, user)
        if x.is_plain or (inline and x.width <= MAX_WIDTH) or self._may_stay(value, x):
            self.known[value] = x
        else:
            self._bind((value,), x)

    def _may_stay(self, value: Value, x: Expression) -> bool:
        """Whether a result need not be assigned to a variable before it is returned."""
        loose = value in self._loose and value not in self.wanted_names
        return loose and x.width <= MAX_RETURN

    def _bind(self, values: Sequence[Value], x: Expression) -> None:
        targets: list[Piece] = []
        for value in values:
            if value not in self._used:
                targets.append("_")
                continue
            variable = self.variable(value)
            own = self.wanted_names.get(value)
            if own is None and isinstance(x.pieces[0], Reference) and len(values) == 1:
                variable.base, variable.says = NEUTRAL, False
            heirs = [y for y in x.variables() if not y.fixed or y.base == variable.base]
            wanted = own is None or [y for y in heirs[:1] if y.base == own]
            variable.heir_of = tuple(heirs[:1]) if wanted and not targets else ()
            targets.append(variable)
            self.known[value] = text(variable)
        self.write(assignment(targets, x, [y for y in targets if isinstance(y, Variable)]))

    def make(self, value: Value, x: Expression) -> None:
        """Assign the initial value of a variable that later lines complete."""
        self._bind((value,), x)

    def known_variable(self, value: Value) -> Variable:
        """The variable of a value."""
        return self.known[value].variables()[0]

    def unpacked(self, node: Node, x: Expression) -> list[Expression]:
        """Variables for all used results of a call."""
        self._bind(node.outputs, x)
        return [self.known.get(v, text("_")) for v in node.outputs]

    def _call_scope(self, scope: str, nodes: Sequence[Node], results: list[Value]) -> None:
        inner = Writer(self.program)
        paths = [self.program.path(c) for c in map(self.program.cells.get, read(nodes)) if c]
        inner.prefix = common(paths)
        folders = {path[:1] for path in paths if len(path) > 1}
        if not inner.prefix and len(folders) <= MAX_FOLDERS:
            inner.folders = folders
        inner.comments = self.comments and len({n.place for n in nodes}) > 1
        inner.nodes(nodes, results, scope, loose=True)
        inner.finish(results)
        name = inner.define(scope.rpartition("/")[2], f"Scope {scope}.")
        found = self.call(name, inner)
        if len(results) == 1 and self._may_stay(results[0], found):
            self.known[results[0]] = found
        elif results:
            self._bind(results, found)

    def call(self, name: str, inner: Writer) -> Expression:
        """The call of a function, with its free values as arguments."""
        given = [self._key(key) for key in inner.keys]
        if inner.weights is not None:
            given.append(self.weight(inner.prefix))
        return call(name, *given)

    def _key(self, key: Any) -> Expression:
        """The argument for a parameter of the called function."""
        if isinstance(key, Value):
            return self.term(key)
        return self.weight(key) if isinstance(key, tuple) else self.size(Dim(key))

    def finish(self, results: Sequence[Value]) -> None:
        """Return these values."""
        found = [self.term(v) for v in results]
        self.write(Line(text("return ", *_commas(found)).pieces))

    def define(self, name: str, about: str) -> str:
        """Add the function to the program, under this name or a similar one."""
        order = sorted(range(len(self.keys)), key=lambda i: _rank(self.keys[i]))
        self.keys = [self.keys[i] for i in order]
        self.parameters = [self.parameters[i] for i in order]
        if self.weights is not None:
            self.parameters.append(self.weights)
        return self.program.function(name, about, self, [*self.heads, *self.lines])

    # Blocks --------------------------------------------------------------------------------------

    def block(self, graph: Graph, given: Sequence[Expression]) -> tuple[list[Line], list[Any]]:
        """The lines of a graph with the given inputs, and the expressions of its results."""
        outside, self.lines = self.lines, []
        self.known = self.known.new_child()  # variables of a block are not visible outside
        try:
            found = self.inline(graph, given)
            return self.lines, found
        finally:
            self.lines, self.known = outside, self.known.parents

    def inline(self, graph: Graph, given: Sequence[Expression]) -> list[Expression]:
        """Append the lines of a graph with the given inputs; the expressions of its results."""
        self.known.update(zip(graph.all_inputs(), given, strict=True))
        before = self.node
        self.nodes(graph.nodes, graph.all_outputs(), loose=True)
        self.node = before
        return [self.term(v) for v in graph.all_outputs()]

    def expand(self, graph: Graph, given: Sequence[Expression]) -> list[Expression]:
        """As ``inline``, for the body of an op: inputs that are used twice are assigned first."""
        uses = Counter(v for node in graph.nodes for v in node.values())
        uses.update(graph.outputs)
        plain = [
            self.named(x) if uses[v] > 1 else x for v, x in zip(graph.inputs, given, strict=True)
        ]
        comments, self.comments = self.comments, False
        found = self.inline(graph, plain)
        self.comments = comments
        return found

    # The user's lines ----------------------------------------------------------------------------

    def _say(self, node: Node) -> None:
        """Add a comment to the next line, if it belongs to another line of the user."""
        if not self.comments or node.origin is None:
            return
        file, line, _ = node.source or ("", 0, "")
        place = f"{basename(file)}:{line}"
        if place == self._place:
            return
        self._place = place
        code = "" if place in self._said else code_of(node)
        self._said.add(place)
        self._comment = remark(f"{place}: {code}" if code else place)


def _rank(key: Any) -> int:
    """The rank of a parameter: arrays come first, then sizes, then weights."""
    return 0 if isinstance(key, Value) else 1 if isinstance(key, str) else 2


def _commas(items: Sequence[Expression]) -> list[Any]:
    found: list[Any] = []
    for x in items:
        found += (", ", x) if found else (x,)
    return found or [literal(None)]
