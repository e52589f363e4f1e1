"""A graph as the text of its file: JSON in a fixed order, with one row a line.

The fields of the rows are those of ``layout``. Data shared by many nodes (attributes,
types, places in the code) are stored once, in a table, and rows refer to them by number. Values
are numbered within their graph: inputs, Variables' values, constants, results of nodes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from json.encoder import encode_basestring_ascii as quoted
from os.path import basename
from typing import Any

from eagerflow.capture.saving import layout
from eagerflow.capture.saving.layout import MAX_ITEMS, MAX_NODES, SECTIONS
from eagerflow.cells import file_name
from eagerflow.errors import FileFormatError, short_repr
from eagerflow.files.container import fail
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.plain import encode_plain, encode_shape, encode_structure
from eagerflow.op import MAX_DEPTH, ops
from eagerflow.variable import may_be_random_state

dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _items(row: str) -> int:
    return sum(map(row.count, "[{,"))


class _Table:
    """Distinct rows; ``known`` maps keys of known objects to their numbers."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.known: dict[Any, int] = {}

    def add(self, row: Any, key: Any = None) -> int:
        """The number of a row, added if it is new."""
        number = self.known[key] = self.rows.setdefault(dumps(row), len(self.rows))
        return number


class _Places:
    """The source locations of nodes; looks the lines of a function up once."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[list[int], list[int]]] = {}

    def find(self, origin: Any) -> Any:
        """Name of the file, line and function of a node's origin."""
        code, instruction = origin[:2]
        if isinstance(code, str):
            return layout.SOURCE.write(basename(code), instruction, origin[2])
        if id(code) not in self._lines:  # hashing a code object takes time proportional to its size
            found = [(start, line) for start, _, line in code.co_lines() if line is not None]
            self._lines[id(code)] = [s for s, _ in found], [n for _, n in found]
        starts, lines = self._lines[id(code)]
        at = bisect_right(starts, instruction) - 1
        line = lines[at] if at >= 0 else code.co_firstlineno
        return layout.SOURCE.write(basename(file_name(code.co_filename)), line, code.co_name)


class Encoder:
    """Writes graphs as text: ``graph(g)``, then ``text()``, and ``tensors`` to go with it.

    Raises FileFormatError for a graph that cannot be saved, such as one with a user's function in
    place of an op.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._attributes, self._types, self._sources = _Table(), _Table(), _Table()
        self._graphs: list[str] = []
        self._nodes: list[str] = []
        self._variables: list[str] = []
        self._ops: dict[str, int] = {}
        self._numbers: dict[int, int] = {}  # by identity of graphs and of Variables
        self._known: dict[tuple[str, ...], int] = {}
        self._names: dict[int, str] = {}  # of tensors, by identity
        self._repeats: dict[str, int] = {}
        self._places = _Places()
        self._depth = 0

    def text(self) -> str:
        """The text of all graphs written so far; the last one is the program."""
        sections = {
            "attributes": self._attributes.rows,
            "graphs": self._graphs,
            "nodes": self._nodes,
            "ops": [dumps(layout.OP.write(*item)) for item in sorted(self._ops.items())],
            "sources": self._sources.rows,
            "types": self._types.rows,
            "variables": self._variables,
        }
        parts = []
        for name in SECTIONS:
            rows = sections[name]
            if any(_items(row) > MAX_ITEMS for row in rows if len(row) > MAX_ITEMS):
                fail(f"the graph has {name} that are too large to be saved")
            parts.append(f'"{name}":[\n' + ",\n".join(rows) + ("\n]" if rows else "]"))
        return "{" + ",\n".join(parts) + "}"

    # Graphs ----------------------------------------------------------------------------------

    def graph(self, graph: Graph) -> int:
        """The number of a graph in the file; graphs with the same text have the same number."""
        number = self._numbers.get(id(graph))
        if number is None:
            if self._depth > MAX_DEPTH:
                fail(f"graphs within graphs, more than {MAX_DEPTH} deep, cannot be saved")
            self._depth += 1
            number = self._numbers[id(graph)] = self._new(graph)
            self._depth -= 1
        return number

    def _new(self, graph: Graph) -> int:
        numbers: dict[Value, int] = {}
        given = [
            layout.INPUT.write(name, value.name, self._type(value), value.device)
            for name, value in zip(graph.inputs.names, graph.inputs, strict=True)
        ]
        constants = graph.constants
        for value in (*graph.all_inputs(), *constants):
            numbers[value] = len(numbers)
        nodes = [self._node(node, numbers) for node in graph.nodes]
        cells = [
            layout.CELL.write(
                cell.name,
                self._variable(cell.variable, cell.value),
                cell.value.name,
                None if cell.assigned is None else numbers[cell.assigned],
            )
            for cell in graph.cells
        ]
        row = layout.GRAPH.record(
            arguments=encode_structure(graph.argument_structure, self.graph),
            cells=cells,
            constants=[self._constant(value) for value in constants],
            inputs=given,
            name=str(graph.name),
            nodes=len(nodes),
            outputs=[
                layout.OUTPUT.write(name, numbers[v])
                for name, v in zip(graph.outputs.names, graph.outputs, strict=True)
            ],
            results=[self._result(leaf, numbers) for leaf in graph.results],
            structure=encode_structure(graph.structure, self.graph),
        )
        return self._kept(dumps(row._asdict()), nodes)

    def _kept(self, row: str, nodes: list[str]) -> int:
        key = (row, *nodes)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._graphs)
            self._graphs.append(row)
            self._nodes += nodes
            if len(self._nodes) > MAX_NODES:
                fail(f"a graph of more than {MAX_NODES:,} nodes cannot be saved")
        return number

    def _result(self, leaf: Any, numbers: dict[Value, int]) -> Any:
        if type(leaf) is Value:
            return {"value": numbers[leaf]}
        return encode_plain(leaf, self.graph)

    # Nodes -----------------------------------------------------------------------------------

    def _node(self, node: Node, numbers: dict[Value, int]) -> str:
        """The row of a node as text: there are many, and JSON's encoder would take longer."""
        op = node.op
        if self._ops.get(op.name) is None:
            if ops.get(op.name) is not op:
                fail(
                    f"{op.name!r} is a function of your own and cannot be saved",
                    received=f"node {short_repr(node.name)}",
                    expected="registered ops, such as those of eagerflow",
                    hint="write it with ef ops only, without ef.custom_gradient",
                )
            self._ops[op.name] = op.version
        try:
            given = [str(numbers[x]) if type(x) is Value else self._number(x) for x in node.inputs]
            attributes: Any = "null"
            if node.attributes:
                attributes = self._attributes.add(
                    {k: encode_plain(v, self.graph) for k, v in node.attributes.items()}
                )
        except FileFormatError as error:
            error.received = error.received or f"node {short_repr(node.name)}"
            raise
        made = ",".join(self._results(node))
        for value in node.outputs:
            numbers[value] = len(numbers)
        place = "" if node.device is None else f",{quoted(node.device)}"
        return (
            f"[{quoted(op.name)},{quoted(node.name)},[{','.join(given)}],{attributes},"
            f"{self._source(node.origin)},[{made}]{place}]"
        )

    def _number(self, value: Any) -> str:
        """An input other than a tensor: null, or a number in brackets."""
        return "null" if value is None else dumps([encode_plain(value, self.graph)])

    def _results(self, node: Node) -> list[str]:
        """The types of a node's results; with name and device unless these are the defaults."""
        made = []
        several = len(node.outputs) > 1
        for i, value in enumerate(node.outputs):
            kind = self._type(value)
            usual = f"{node.name}:{i}" if several else node.name
            if value.name == usual and value.device is None:
                made.append(str(kind))
            else:
                name = None if value.name == usual else value.name
                made.append(dumps(layout.RESULT.write(kind, name, value.device)))
        return made

    # Contents of tables ----------------------------------------------------------------------

    def _type(self, value: Any) -> int:
        key = value.shape, value.dtype
        number = self._types.known.get(key)
        if number is None:
            row = layout.TYPE.write(value.dtype.name, encode_shape(value.shape))
            number = self._types.add(row, key)
        return number

    def _source(self, origin: Any) -> Any:
        if origin is None:
            return "null"
        key = origin if isinstance(origin[0], str) else (id(origin[0]), origin[1])
        number = self._sources.known.get(key)
        return self._sources.add(self._places.find(origin), key) if number is None else number

    def _constant(self, value: Value) -> Any:
        tensor, kind = value.constant, self._type(value)
        name = self._tensor(tensor, value.name)
        return layout.CONSTANT.write(value.name, kind, name, str(tensor.device), value.device)

    def _variable(self, variable: Any, value: Value) -> int:
        if variable is None:
            fail(f"the Variable {short_repr(value.name)} has no value that could be saved")
        number = self._numbers.get(id(variable))
        if number is None:
            number = self._numbers[id(variable)] = len(self._variables)
            tensor = self.new_tensor(variable.current, value.name)
            row = layout.VARIABLE.write(
                variable.name,
                tensor,
                self._type(variable),
                bool(variable.trainable),
                str(variable.device),
                variable.is_random_state if may_be_random_state(variable) else None,
            )
            self._variables.append(dumps(row))
        return number

    def _tensor(self, tensor: Any, name: str) -> str:
        """The name of a constant in the file, shared by all values that it stands for."""
        found = self._names.get(id(tensor))
        if found is None:
            found = self._names[id(tensor)] = self.new_tensor(tensor, name)
        return found

    def new_tensor(self, tensor: Any, name: str) -> str:
        """A name for a tensor in the file: that of its value, if it is readable and free."""
        base = "".join(c if c.isprintable() else "_" for c in name)[:200]
        found = base
        while found in self.tensors or found == "__metadata__":
            self._repeats[base] = count = self._repeats.get(base, 0) + 1
            found = f"{base}.{count}"
        self.tensors[found] = tensor
        return found
