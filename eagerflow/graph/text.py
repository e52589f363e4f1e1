"""Text of graphs: the listing that ``print(graph)`` shows, and its parts.

    graph step(x: float32[batch, 3]):
      variables
        dense/kernel: float32[3, 2] on cpu:0

      in dense:
        matmul: float32[batch, 2] = matmul(x, dense/kernel)  # train.py:12
        tanh:   float32[batch, 2] = tanh(matmul)             # train.py:13

Return:
        output = dense/tanh

Within a scope, results of its nodes are named without it, unless another value has that name.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from eagerflow.cells import file_name
from eagerflow.dims import Dim
from eagerflow.errors import printable, short_repr
from eagerflow.graph.folding import fold
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Node, Source, Value
from eagerflow.graph.walk import all_values, named_bodies, named_outputs
from eagerflow.tensor import Tensor

_MAX_SHOWN_ELEMENTS = 8  # constants up to this size are shown by value
_MAX_LETTERS = 160  # of an attribute
_COLUMN_WIDTHS = (28, 28, 48)  # wider cells do not shift the rest of their group
_MAX_LEVELS = 64  # of tuples in attributes, as many as an op call can make
_BYTE_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_SECOND_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


# Parts of the listing ----------------------------------------------------------------------------


def type_text(value: Any) -> str:
    """Dtype and shape of a value: ``float32[batch, 3]``."""
    return f"{_dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"


def value_text(name: str, value: Value) -> str:
    """A value under some name, with its type and its device, if given."""
    place = "" if value.device is None else f" on {value.device}"
    return f"{name}: {type_text(value)}{place}"


@cache  # NumPy's name lookup takes as long as the rest of a line
def _dtype_name(dtype: Any) -> str:
    return str(dtype.name)


def attribute_text(value: Any, depth: int = 0) -> str:
    """An attribute as in Python code: slices with colons, dtypes by name."""
    if isinstance(value, Graph):
        return f"<graph {value.name}>"
    if isinstance(value, np.dtype):
        return str(value.name)
    if value is Ellipsis or depth > _MAX_LEVELS:
        return "..."
    if isinstance(value, slice):
        ends = [
            "" if part is None else attribute_text(part, depth + 1)
            for part in (value.start, value.stop, value.step)
        ]
        return ":".join(ends if ends[2] else ends[:2])
    if isinstance(value, tuple):
        parts = [attribute_text(part, depth + 1) for part in value]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(value)


def attributes_text(node: Node, bodies: bool = True) -> list[str]:
    """The attributes of a node that differ from the op's defaults, each as ``name=value``."""
    found = []
    below = (
        set() if bodies else {name.partition("[")[0] for name, _ in named_bodies(node.attributes)}
    )
    for name, value in node.attributes.items():
        if name in below:
            continue
        default = node.op.attributes.get(name, node)  # no attribute is a node
        if type(value) is not type(default) or value != default:
            found.append(f"{name}={_cut(attribute_text(value))}")
    return found


def call_text(node: Node, name: Callable[[Any], str] | None = None, bodies: bool = True) -> str:
    """The call of a node: ``sum(x, axis=0)``; ``name`` writes the Values among its inputs.

    ``bodies=False`` leaves out the attributes that hold graphs.
    """
    write = name or (lambda value: str(value.name))
    given = [write(x) if type(x) is Value else repr(x) for x in node.inputs]
    while given and node.inputs[len(given) - 1] is None:
        given.pop()
    place = "" if node.device is None else f" on {node.device}"
    return f"{node.op.name}({', '.join(given + attributes_text(node, bodies))}){place}"


def line_text(node: Node, source: Source | None = None) -> str:
    """All of a node in one line, with full names."""
    made = ", ".join(f"{v.name}: {type_text(v)}" for v in node.outputs)
    where = node.source if source is None else source
    end = f"  # {line_name(where)}" if where else ""
    return printable(f"{made} = {call_text(node)}{end}")


def constant_text(value: Value) -> str:
    """The numbers of a small constant, or a short description."""
    size = value.size
    if not isinstance(size, int) or size > _MAX_SHOWN_ELEMENTS:
        return "..."
    held = value.constant
    numbers = held.numpy() if isinstance(held, Tensor) else np.asarray(held)
    if numbers.dtype.kind == "V":  # bfloat16 and float8
        numbers = numbers.astype(np.float32)
    return np.array2string(
        numbers, separator=", ", precision=6, max_line_width=10_000, floatmode="maxprec"
    ).replace("\n", "")


def bytes_text(size: Any, form: str = ".1f") -> str:
    """A number of bytes, or a polynomial of sizes, with its unit: ``1.5 KiB``."""
    if isinstance(size, Dim):
        return f"{size} B"
    for unit, factor in _BYTE_UNITS:
        if size >= factor:
            return f"{size / factor:{form}} {unit}"
    return f"{size:.0f} B"


def seconds_text(seconds: float) -> str:
    """A time with its unit: ``2.5 ms``."""
    for unit, factor in _SECOND_UNITS:
        if seconds * factor >= 0.995:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def aligned_columns(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Rows of a table as lines; ``alignments`` has ``<`` or ``>`` for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{side}{width}}"
            for cell, side, width in zip(row, alignments, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def short_name(node: Node) -> str:
    """The name of a node without its scopes."""
    return node.name.rpartition("/")[2]


def line_name(source: Source) -> str:
    """File and line in short form: ``train.py:12``."""
    # Also for files of other systems.
    file = file_name(source[0]).replace("\\", "/").rpartition("/")[2]
    return f"{file}:{source[1]}"


def _cut(words: str) -> str:
    return words if len(words) <= _MAX_LETTERS else words[: _MAX_LETTERS - 3] + "..."


# Listing -----------------------------------------------------------------------------------------


class _Row(NamedTuple):
    name: str
    type: str
    call: str
    line: str
    below: tuple[tuple[str, Graph], ...]  # nested graphs


@graph_method
def text(self: Graph, *, lines: bool = True, types: bool = True, whole: bool = True) -> str:
    """See ``Graph.text``."""
    written: list[str] = []
    # A stack of items to write, the next one last: not recursive, whatever the depth.
    todo: list[tuple[str, Iterator[str | tuple[str, str, Graph]]]] = [
        ("", _listing(self, "graph", lines, types))
    ]
    while todo:
        indent, parts = todo[-1]
        part = next(parts, None)
        if part is None:
            todo.pop()
        elif isinstance(part, str):
            written.append(indent + printable(part) if part else "")
        else:
            extra, label, graph = part
            deeper = indent + extra if len(todo) < _MAX_LEVELS else indent
            todo.append((deeper, _listing(graph, label, lines, types)))
    shown = written if whole else fold(written)
    if len(shown) < len(written):
        shown.append(f"\n  {len(written):,} lines in all, by graph.text()")
    return "\n".join(shown)


def _listing(
    graph: Graph, label: str, lines: bool, types: bool
) -> Iterator[str | tuple[str, str, Graph]]:
    """The lines of a graph, interleaved with nested graphs: indent, label and graph."""
    yield from _head(graph, label)
    constants = graph.constants
    yield from _known(graph, constants)
    everything = {v.name for v in all_values(graph)}
    places: dict[Any, str] = {}
    first = True
    scopes = [(node.scope, node) for node in graph.nodes]
    for scope, run in groupby(scopes, key=itemgetter(0)):
        if not first or graph.cells or constants:
            yield ""
        first = False
        if scope:
            yield f"  in {scope}:"
        rows = [_row(node, scope, everything, places, lines, types) for _, node in run]
        indent = "    " if scope else "  "
        for row, words in zip(rows, _aligned(rows), strict=True):
            yield indent + words
            for name, body in row.below:
                yield indent + "    ", name, body
    yield from _ends(graph)


def _head(graph: Graph, label: str) -> Iterator[str]:
    given = [value_text(n, v) for n, v in zip(graph.inputs.names, graph.inputs, strict=True)]
    start = f"{label} {graph.name}("
    if len(given) > 1 and sum(map(len, given)) + len(start) > 96:
        yield start
        for words in given:
            yield f"    {words},"
        yield "):"
    else:
        yield f"{start}{', '.join(given)}):"


def _known(graph: Graph, constants: Iterable[Value]) -> Iterator[str]:
    if graph.cells:
        yield "  variables"
        for cell in graph.cells:
            end = "" if cell.assigned is None else ", assigned"
            yield f"    {value_text(cell.name, cell.value)}{end}"
    if constants:
        yield "  constants"
        for value in constants:
            yield f"    {value.name}: {type_text(value)} = {constant_text(value)}"


def _row(
    node: Node, scope: str, everything: set[str], places: dict[Any, str], lines: bool, types: bool
) -> _Row:
    prefix = f"{scope}/" if scope else ""

    def name(value: Any) -> str:
        full: str = value.name
        if not prefix or value.node is None or not full.startswith(prefix):
            return full
        short = full[len(prefix) :]
        return full if short in everything else short

    made = [v.name[len(prefix) :] if v.name.startswith(prefix) else v.name for v in node.outputs]
    base = made[0].rpartition(":")[0] if len(made) > 1 else ""
    if base and all(n.startswith(f"{base}:") for n in made):
        made[1:] = [n[len(base) :] for n in made[1:]]  # qr:0, :1
    named, kind = ", ".join(made), ", ".join([type_text(x) for x in node.outputs])
    where = ""
    if lines and node.origin is not None:
        where = places.get(node.origin, "")
        if not where:  # looking up the line of an instruction takes time
            source = node.source
            where = places[node.origin] = line_name(source) if source else ""
    return _Row(
        named,
        kind if types else "",
        call_text(node, name, bodies=False),
        where,
        tuple(named_bodies(node.attributes)),
    )


def _aligned(rows: list[_Row]) -> Iterator[str]:
    """The rows of one group, with types, calls and lines in columns."""
    widths = [
        max((len(words) for words in column if len(words) <= widest), default=0)
        for column, widest in zip(
            zip(*(row[:3] for row in rows), strict=True), _COLUMN_WIDTHS, strict=True
        )
    ]
    typed = widths[0] + widths[1] + 2 if widths[1] else widths[0]
    for name, kind, call, line, _ in rows:
        left = f"{name + ':':<{widths[0] + 1}} {kind:<{widths[1]}}" if kind else f"{name:<{typed}}"
        yield f"{left} = {call:<{widths[2] if line else 0}}" + (f"  # {line}" if line else "")


def _ends(graph: Graph) -> Iterator[str]:
    titled: dict[str, list[tuple[str, str]]] = {"return": [], "assign": []}
    for title, name, value in named_outputs(graph):
        titled[title].append((name, value.name))
    for i, leaf in enumerate(graph.results):  # results other than tensors
        if type(leaf) is not Value:
            titled["return"].append((f"result {i}", _cut(short_repr(leaf))))
    for title, pairs in titled.items():
        if pairs:
            yield ""
            yield f"  {title}"
            width = _width(name for name, _ in pairs)
            for name, words in pairs:
                yield f"    {name:<{width}} = {words}"


def _width(names: Iterable[str]) -> int:
    return max((len(n) for n in names if len(n) <= _COLUMN_WIDTHS[2]), default=0)
