"""The text of a saved graph as a Graph again; the text is untrusted.

Each row is read separately, checked field by field, and may only refer to rows before
it. Ops come from the registry only. No row may cause work out of proportion to
the length of the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from eagerflow.capture.control.bodies import Body
from eagerflow.capture.saving import layout
from eagerflow.capture.saving.layout import MAX_ITEMS, MAX_NODES, SECTIONS
from eagerflow.devices import Device, as_device, current_device
from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import EagerflowError, FileFormatError, short_repr
from eagerflow.files.container import fail, loads
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.plain import decode_plain, decode_shape, decode_structure
from eagerflow.handlers import raised_here
from eagerflow.op import MAX_DEPTH, Op, ops
from eagerflow.ops.shapes.joining import split, unstack
from eagerflow.spec import as_shape
from eagerflow.variable import may_be_random_state

_SPLIT, _UNSTACK = split.op, unstack.op  # type: ignore[attr-defined]
_MAX_CACHED_ROWS = 10_000  # limit of parsed rows kept per table
_MAX_ITEMS_PER_LETTER = 16  # limit of work per character of the text
_MAX_ROWS = 4 * MAX_NODES
_MAX_JSON_DEPTH = 6 * MAX_DEPTH  # each of our levels takes several brackets


class Entry(NamedTuple):
    """A tensor that a graph needs: its name in the file, its required type, and its device."""

    tensor: str
    shape: tuple[int, ...]
    dtype: DType
    device: Device


class Rows:
    """The rows of one section, parsed on demand."""

    def __init__(self, name: str, text: str, start: int, stop: int) -> None:
        self.name = name
        self._text = text
        self._starts = array("I", [start])
        at = text.find("\n", start, stop)
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1, stop)
        self._starts.append(stop + 1)
        if start == stop:
            self._starts = array("I")

    def __len__(self) -> int:
        return max(0, len(self._starts) - 1)

    def text(self, number: int) -> str:
        """A row without its final comma, which all but the last one have."""
        start, stop = self._starts[number], self._starts[number + 1] - 1
        if number < len(self) - 1:
            stop -= 1
            if self._text[stop] != ",":
                fail(f"row {number} of {self.name} does not end in a comma")
        return self._text[start:stop]

    def read(self, number: int) -> tuple[Any, int]:
        """A row, and its number of items."""
        row = self.text(number)
        openings = row.count("[") + row.count("{")
        items = openings + row.count(",")
        if items > MAX_ITEMS:
            self.fail(number, "it is too large", expected=f"at most {MAX_ITEMS:,} items")
        if openings > _MAX_JSON_DEPTH and _depth(row) > _MAX_JSON_DEPTH:
            self.fail(
                number, "it is nested too deeply", expected=f"at most {_MAX_JSON_DEPTH} levels"
            )
        try:
            return loads(row), items
        except raised_here(ValueError, RecursionError) as error:
            self.fail(number, f"it is not JSON: {str(error)[:80]}")

    def fail(self, number: int, problem: str, **more: Any) -> NoReturn:
        """Raise FileFormatError that names the row."""
        fail(f"row {number} of {self.name}: {problem}", **more)


def _depth(row: str) -> int:
    """The nesting depth of the brackets in a row, including harmless ones in strings."""
    depth = deepest = 0
    for sign in row:
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest


def _sections(text: str) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    at = 0
    for name in SECTIONS:
        opening = f'{"," if found else "{"}{chr(10) if found else ""}"{name}":[\n'
        if not text.startswith(opening, at):
            fail(
                f"the graph's section {name!r} is not where it has to be",
                received=short_repr(text[at : at + 40]),
                expected=short_repr(opening),
            )
        start = at + len(opening)
        empty = text.startswith("]", start)
        stop = start if empty else text.find("\n]", start)
        if stop < 0:
            fail(f"the graph's section {name!r} does not end")
        found[name] = Rows(name, text, start, stop)
        at = stop + (1 if empty else 2)
    if text[at:] != "}":
        fail("there is something after the graph's last section")
    return found


class _Table:
    """Rows that others refer to by number, decoded when needed."""

    def __init__(self, rows: Rows, decode: Callable[[Any], Any]) -> None:
        self._rows = rows
        self._decode = decode
        self._known: dict[int, tuple[Any, int]] = {}

    def __call__(self, number: Any) -> tuple[Any, int]:
        found = self._known.get(number) if type(number) is int else None
        if found is None:
            rows = self._rows
            if type(number) is not int or not 0 <= number < len(rows):
                fail(f"{short_repr(number)} is not the number of one of the {rows.name}")
            if len(self._known) >= _MAX_CACHED_ROWS:
                self._known.clear()
            row, items = rows.read(number)
            try:
                found = self._known[number] = self._decode(row), items
            except raised_here(EagerflowError) as error:
                rows.fail(number, error.problem, received=error.received, expected=error.expected)
        return found


class _Attributes(NamedTuple):
    given: dict[str, Any]
    bodies: tuple[int, ...]  # the numbers of the graphs among them


_NONE = _Attributes({}, ())


class Decoder:
    """Reads the graphs of a text: ``graph()`` gives the program, ``wanted`` lists tensors.

    Variables and constants are put in by ``fill`` when their tensors have been read.
    """

    def __init__(self, text: str) -> None:
        if text.count("\n") > _MAX_ROWS:
            fail("the graph has too many rows", expected=f"at most {MAX_NODES:,} nodes")
        self._rows = _sections(text)
        self._left = _MAX_ITEMS_PER_LETTER * len(text) + 1_000_000
        self.shorter: set[str] = set()  # ops with fewer results when the file was written
        self._later: dict[str, dict[str, Any]] = {}  # attributes added since, with defaults
        self._ops = dict(self._op(i) for i in range(len(self._rows["ops"])))
        self._types = _Table(self._rows["types"], _type)
        self._sources = _Table(self._rows["sources"], _source)
        self._attributes = _Table(self._rows["attributes"], self._decode_attributes)
        self._graphs: list[Graph] = []
        self._sizes: list[tuple[int, int]] = []  # of each graph: nodes with bodies, and depth
        self._bodies: list[int] = []  # referred to by the current row
        self._used: set[int] = set()
        self._cells: list[tuple[int, Cell]] = []
        self._constants: list[tuple[Entry, Value]] = []

    def graph(self) -> Graph:
        """The program: the last of the graphs, which uses all others."""
        rows = self._rows["graphs"]
        at = 0
        for number in range(len(rows)):
            row, _ = rows.read(number)
            graph = _Reading(self, row, number, number == len(rows) - 1).read(at)
            at += len(graph.nodes)
            self._graphs.append(graph)
        if at != len(self._rows["nodes"]):
            fail("there are nodes that belong to no graph")
        if len(self._used) != len(rows) - 1:
            fail("there are graphs that nothing uses" if len(rows) else "there is no graph")
        return self._graphs[-1]

    def _op(self, number: int) -> tuple[str, Op]:
        rows = self._rows["ops"]
        row = layout.OP.read(rows.read(number)[0])
        name, version = row or rows.fail(number, "it is not a name and a version")
        op = ops.get(name)
        if op is None:
            fail(
                f"there is no op {short_repr(name)}",
                expected="ops that are registered",
                hint="update eagerflow, or import the package that adds the op",
            )
        if version in op.shorter:
            self.shorter.add(name)
        elif 0 < version < op.version and version + 1 >= min(
            op.since.values(), default=version + 2
        ):
            self._later[name] = {n: op.attributes[n] for n, v in op.since.items() if v > version}
        elif version != op.version:
            newer = version > op.version
            fail(
                f"the file has another version of the op {name!r}",
                received=f"version {short_repr(version)}",
                expected=f"version {op.version}",
                hint="update eagerflow" if newer else "save the graph again with this eagerflow",
            )
        return name, op

    # Parts of rows ---------------------------------------------------------------------------

    def spend(self, items: int) -> None:
        """Count work; limits the amount that a short text may cause."""
        self._left -= items
        if self._left < 0:
            fail("the graph refers to the same large rows too often")

    def find(self, number: int) -> Graph:
        """A graph before the current one."""
        if not 0 <= number < len(self._graphs):
            fail(f"the graph {short_repr(number)} does not exist before its use")
        self._used.add(number)
        self._bodies.append(number)
        return self._graphs[number]

    def no_graph(self, number: int) -> NoReturn:
        """Reject a graph outside of ops."""
        fail(f"there is a graph, {short_repr(number)}, in place of a plain value")

    def _decode_attributes(self, row: Any) -> _Attributes:
        if type(row) is not dict:
            fail("attributes are not an object with names")
        self._bodies.clear()
        given = {name: decode_plain(value, self.find) for name, value in row.items()}
        return _Attributes(given, tuple(self._bodies))

    def type(self, number: Any) -> tuple[tuple[Any, ...], DType]:
        """Shape and dtype with this number."""
        found, items = self._types(number)
        self.spend(items)
        return found

    def op(self, name: Any) -> Op:
        """The op with this name, of those that the file lists."""
        op = self._ops.get(name) if type(name) is str else None
        if op is None:
            fail(f"the op {short_repr(name)} is not in the file's list of ops")
        return op

    def attributes(self, number: Any, op: Op) -> tuple[dict[str, Any], tuple[int, ...]]:
        """The attributes with this number, in the order in which the op lists them."""
        (given, bodies), items = (_NONE, 0) if number is None else self._attributes(number)
        self.spend(items)
        given = self._later.get(op.name, {}) | given
        if len(given) != len(op.attributes) or not given.keys() <= op.attributes.keys():
            fail(
                f"the attributes are not those of {op.name}",
                received=", ".join([short_repr(x) for x in list(given)[:20]]) or "none",
                expected=", ".join(op.attributes) or "none",
            )
        return {name: given[name] for name in op.attributes}, bodies

    def source(self, number: Any) -> Any:
        """The place in the user's code with this number."""
        return None if number is None else self._sources(number)[0]

    def node_row(self, number: int) -> Any:
        """A row of the table of nodes."""
        if number >= len(self._rows["nodes"]):
            fail("a graph has more nodes than there are")
        return self._rows["nodes"].read(number)[0]

    def variable(self, number: Any, cell: Cell) -> tuple[tuple[Any, ...], DType]:
        """Shape and dtype of a Variable, to be stored in the cell."""
        if type(number) is not int or not 0 <= number < self.variables:
            fail(f"{short_repr(number)} is not the number of one of the variables")
        self._cells.append((number, cell))
        return self.type(self._variable(number).type)

    def _variable(self, number: int) -> Any:
        rows = self._rows["variables"]
        row = layout.VARIABLE.read(rows.read(number)[0])
        return row or rows.fail(number, "it is not a name, tensor, type, flag and device")

    def constant(self, value: Value, tensor: str, device: str) -> None:
        """Note that a value is this tensor of the file."""
        self._constants.append(
            (Entry(tensor, _sized(value.shape), value.dtype, _device(device)), value)
        )

    # Tensors ---------------------------------------------------------------------------------

    @property
    def variables(self) -> int:
        """The number of Variables."""
        return len(self._rows["variables"])

    @property
    def unused(self) -> int:
        """The number of Variables that no graph has."""
        return self.variables - len({number for number, _ in self._cells})

    def wanted(self) -> list[Entry]:
        """The tensors of the Variables, and then of the constants."""
        return [*self._variable_entries(), *(entry for entry, _ in self._constants)]

    def _variable_entries(self) -> Iterator[Entry]:
        for i in range(self.variables):
            row = self._variable(i)
            shape, dtype = self.type(row.type)
            yield Entry(row.tensor, _sized(shape), dtype, _device(row.device))

    def fill(self, tensors: list[Any], make: Callable[[Any, str, bool, bool], Any]) -> None:
        """Set the requested tensors; ``make`` makes a Variable of one."""
        count = self.variables
        variables = []
        for i in range(count):
            row = self._variable(i)
            # Older files lack this field; the name decides.
            random = "random_state" in row.name if row.random is None else row.random
            random = random and may_be_random_state(tensors[i])
            variables.append(make(tensors[i], row.name, row.trainable, random))
        for number, cell in self._cells:
            cell.variable = variables[number]
            cell.value.device = str(cell.variable.device)
        for (_, value), tensor in zip(self._constants, tensors[count:], strict=True):
            value.constant = tensor


class _Reading:
    """The reading of one graph."""

    def __init__(self, decoder: Decoder, row: Any, number: int, last: bool) -> None:
        self.decoder = decoder
        self.last = last
        self.where = where = f"row {number} of graphs"
        self.values: list[Value] = []
        fields = layout.GRAPH.fields
        if type(row) is not dict or row.keys() != set(fields):
            fail(f"{where}: it has other keys than a graph", expected=", ".join(fields))
        for name, classes in zip(fields, layout.GRAPH.classes, strict=True):
            if type(row[name]) not in classes and object not in classes:
                fail(f"{where}: {name} is {short_repr(row[name])}")
        self.row = layout.GRAPH.record(**row)

    def read(self, first: int) -> Graph:
        """The graph with its nodes from this row of the table on."""
        row, decoder = self.row, self.decoder
        if not 0 <= row.nodes <= MAX_NODES:
            fail(f"{self.where}: it has {short_repr(row.nodes)} nodes")
        inputs = [self._input(item) for item in row.inputs]
        read = [self._cell(item) for item in row.cells]
        for item in row.constants:
            self._constant(item)
        nodes, size, depth = [], row.nodes + 1, 0
        for number in range(first, first + row.nodes):
            node, bodies = self._read_node(number)
            nodes.append(node)
            for body in bodies:
                size += decoder._sizes[body][0]
                depth = max(depth, decoder._sizes[body][1] + 1)
        if size > MAX_NODES + 1 or depth > MAX_DEPTH:
            fail(
                f"{self.where}: the graphs in it are too many or too deep",
                expected=f"at most {MAX_NODES:,} nodes and {MAX_DEPTH} levels",
            )
        decoder._sizes.append((size, depth))
        for cell, assigned in read:
            cell.assigned = None if assigned is None else self._value(assigned)
        outputs = [self._output(item) for item in row.outputs]
        made = Graph(
            row.name,
            _named(inputs),
            nodes,
            _named(outputs),
            [cell for cell, _ in read],
            decode_structure(row.arguments, decoder.no_graph),
            decode_structure(row.structure, decoder.no_graph),
            tuple([self._result(leaf) for leaf in row.results]),
        )
        return made if self.last else _as_body(made)

    def _fail(self, item: Any, what: str) -> NoReturn:
        fail(f"{self.where}: {short_repr(item)} is no {what}")

    def _value(self, number: Any) -> Value:
        if type(number) is not int or not 0 <= number < len(self.values):
            fail(f"{self.where}: the value {short_repr(number)} does not exist before its use")
        return self.values[number]

    def _add(
        self,
        name: str,
        kind: Any,
        device: str | None = None,
        node: Node | None = None,
        index: int = 0,
    ) -> Value:
        shape, dtype = self.decoder.type(kind)
        value = Value(name, shape, dtype, None, node, index, None, device)
        self.values.append(value)
        return value

    def _input(self, item: Any) -> tuple[str, Value]:
        row = layout.INPUT.read(item) or self._fail(item, "input")
        return row.name, self._add(row.value, row.type, row.device)

    def _cell(self, item: Any) -> tuple[Cell, int | None]:
        row = layout.CELL.read(item) or self._fail(item, "Variable of a graph")
        value = Value(row.value, (), as_dtype("float32"))
        cell = Cell(row.name, None, value)
        value.shape, value.dtype = self.decoder.variable(row.variable, cell)
        self.values.append(value)
        return cell, row.assigned

    def _constant(self, item: Any) -> None:
        row = layout.CONSTANT.read(item) or self._fail(item, "constant")
        value = self._add(row.name, row.type, row.device)
        self.decoder.constant(value, row.tensor, row.tensor_device)

    def _output(self, item: Any) -> tuple[str, Value]:
        row = layout.OUTPUT.read(item) or self._fail(item, "output")
        return row.name, self._value(row.value)

    def _result(self, leaf: Any) -> Any:
        if type(leaf) is dict and leaf.keys() == {"value"}:
            return self._value(leaf["value"])
        return decode_plain(leaf, self.decoder.no_graph)

    # Nodes -----------------------------------------------------------------------------------

    def _read_node(self, number: int) -> tuple[Node, tuple[int, ...]]:
        found = self.decoder.node_row(number)
        row = layout.NODE.read(found)
        if row is None:
            fail(f"row {number} of nodes: {short_repr(found)} is no node")
        try:
            return self._node(row)
        except FileFormatError as error:
            error.problem = f"row {number} of nodes, {short_repr(row.name)}: {error.problem}"
            raise

    def _node(self, row: Any) -> tuple[Node, tuple[int, ...]]:
        decoder, name, made = self.decoder, row.name, row.results
        op = decoder.op(row.op)
        attributes, bodies = decoder.attributes(row.attributes, op)
        inputs = tuple([self._argument(x) for x in row.inputs])
        if op.family != "elementwise" and any(type(x) is list for x in row.inputs):
            fail(f"{op.name} only takes tensors, and a number is among its inputs")
        node = Node(op, inputs, attributes, name, decoder.source(row.source), row.device)
        _few_results(node, len(made))
        decoder.spend(len(made) * (1 + len(name) // 8))
        if len(made) == 1:
            node.outputs = (self._made(made[0], name, node, 0),)
        else:
            node.outputs = tuple(
                [self._made(item, f"{name}:{i}", node, i) for i, item in enumerate(made)]
            )
        if row.op in decoder.shorter:
            _complete(node)
        return node, bodies

    def _made(self, item: Any, name: str, node: Node, index: int) -> Value:
        if type(item) is int:
            return self._add(name, item, None, node, index)
        row = layout.RESULT.read(item) or self._fail(item, "result of a node")
        return self._add(name if row.name is None else row.name, row.type, row.device, node, index)

    def _argument(self, item: Any) -> Any:
        if type(item) is int:
            return self._value(item)
        if item is None:
            return None
        if type(item) is list and len(item) == 1:
            return decode_plain(item[0], self.decoder.no_graph)
        self._fail(item, "input of a node")


# Small parts -------------------------------------------------------------------------------------


def _named(values: list[tuple[str, Value]]) -> Values:
    return Values([value for _, value in values], [name for name, _ in values])


def _type(row: Any) -> tuple[tuple[Any, ...], DType]:
    found = layout.TYPE.read(row) or fail(f"{short_repr(row)} is no dtype and shape")
    return as_shape(decode_shape(found.shape)), as_dtype(found.dtype)


def _source(row: Any) -> tuple[str, int, str]:
    found = layout.SOURCE.read(row) or fail(f"{short_repr(row)} is no file, line and function")
    return tuple(found)


def _as_body(graph: Graph) -> Graph:
    """A graph inside an op as control-flow ops make them, if it has no further content."""
    body = Body(graph.name, graph.inputs, graph.nodes, graph.outputs)
    more = graph.cells or graph.structure or graph.argument_structure
    names = graph.inputs.names == body.inputs.names and graph.outputs.names == body.outputs.names
    return body if names and graph.results == body.results and not more else graph


def _sized(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if not all(type(size) is int for size in shape):
        fail("a Variable or a constant has a size that is not a number")
    return shape


def _device(name: str) -> Device:
    """The device of this name, or the current one if there is none."""
    try:
        return as_device(name) if len(name) < 200 else current_device()
    except raised_here(EagerflowError, ValueError):
        return current_device()


def _complete(node: Node) -> None:
    """Give a node the results added to its op since the file was written."""
    specs = [x.spec if type(x) is Value else x for x in node.inputs]
    try:
        found = node.op.infer(*specs, **node.attributes)
    except raised_here(Exception):  # reported by the check of the whole graph
        return
    for i in range(len(node.outputs), len(found)):
        new = Value(f"{node.name}:{i}", found[i].shape, found[i].dtype, None, node, i)
        node.outputs = (*node.outputs, new)


def _few_results(node: Node, count: int) -> None:
    """Reject an op with too many results, before they are inferred."""
    x, axis = node.inputs[0] if node.inputs else None, node.attributes.get("axis")
    many: Any = None
    if node.op is _UNSTACK and type(x) is Value and type(axis) is int:
        many = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else None
    elif node.op is _SPLIT:
        many = node.attributes["indices_or_sections"]
    if type(many) is int and many != count:
        fail(f"{node.op.name} gives {many} results, and the node has {count}")
