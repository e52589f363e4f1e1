"""Graphs as pictures: Graphviz text, SVG in notebooks, and files.

If Graphviz is installed, it lays out small graphs; otherwise, and for graphs large
enough to be collapsed, ``graph.picture`` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eagerflow import extras
from eagerflow.display import html
from eagerflow.errors import EagerflowError, MissingExtraError, printable
from eagerflow.graph.graph import MAX_BOXES, Graph, graph_method
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.picture import KINDS, Picture
from eagerflow.graph.text import constant_text, line_text, short_name, type_text
from eagerflow.graph.walk import named_bodies, named_inputs, named_outputs
from eagerflow.handlers import raised_here

_TIMEOUT_SECONDS = 20  # for the Graphviz program
_DOTS_PER_INCH = 200
_SHAPES = {
    "input": "ellipse",
    "variable": "cylinder",
    "constant": "note",
    "node": "box",
    "output": "doubleoctagon",
}


# Graphviz ----------------------------------------------------------------------------------------


@graph_method
def to_dot(self: Graph) -> str:
    """See ``Graph.to_dot``."""
    lines = [
        f"digraph {_quoted(self.name)} {{",
        '  graph [rankdir=TB, fontname="Helvetica"];',
        '  node [fontname="Helvetica", fontsize=11, style=filled];',
        '  edge [fontname="Helvetica", fontsize=9, color="#666677"];',
    ]
    number = 0
    waiting: list[tuple[Graph, str, str]] = [(self, "", "")]
    while waiting:
        graph, label, owner = waiting.pop()
        part = _Dot(graph, number)
        number += 1
        if owner:
            lines.append(f"  subgraph cluster_body_{number} {{")
            lines.append(f"  label={_quoted(label)}; style=dashed;")
        lines += part.boxes()
        if owner:
            lines.append("  }")
        lines += part.edges()
        if owner:
            lines += [f"  {end} -> {owner} [style=dashed];" for end, _, _ in part.ends]
        for node in graph.nodes:
            for name, body in named_bodies(node.attributes):
                waiting.append((body, f"{node.name}.{name}", part.ids[node]))
    return "\n".join([*lines, "}"])


class _Dot:
    """The statements of one graph; ``ids`` are the Graphviz names of its parts.

    ``ends`` are the boxes of outputs and assignments: Graphviz name, label and value.
    """

    def __init__(self, graph: Graph, number: int) -> None:
        self.graph = graph
        self.number = number
        self.ends = [
            (f"o{number}_{i}", name if kind == "return" else f"assign {name}", value)
            for i, (kind, name, value) in enumerate(named_outputs(graph))
        ]
        self.ids: dict[Any, str] = {}
        for part in [*graph.all_inputs(), *graph.constants, *graph.nodes]:
            self.ids.setdefault(part, f"n{number}_{len(self.ids)}")
        for node in graph.nodes:
            self.ids |= dict.fromkeys(node.outputs, self.ids[node])

    def boxes(self) -> Iterator[str]:
        for kind, name, value in named_inputs(self.graph):
            known = f"\n{constant_text(value)}" if kind == "constant" else ""
            yield self._box(value, kind, f"{name}\n{type_text(value)}{known}")
        yield from self._clusters()
        for end, name, _ in self.ends:
            yield f"  {end} [{_look('output')}, label={_quoted(name)}];"

    def _clusters(self) -> Iterator[str]:
        """Nodes within the nested clusters of their scopes."""
        tree: dict[str, Any] = {}
        for node in self.graph.nodes:
            level = tree
            for name in node.scope.split("/") if node.scope else ():
                level = level.setdefault(f"/{name}", {})
            level.setdefault("", []).append(node)
        waiting = [iter(tree.items())]
        count = 0
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
                if waiting:
                    yield "  }"
            elif not found[0]:
                yield from (self._node(node) for node in found[1])
            else:
                name, inner = found
                yield f"  subgraph cluster_{self.number}_{count} {{"
                yield f'  label={_quoted(name[1:])}; style=rounded; color="#99aabb";'
                count += 1
                waiting.append(iter(inner.items()))

    def _node(self, node: Node) -> str:
        words = "\n".join([short_name(node), *[type_text(x) for x in node.outputs]])
        return f"{self._box(node, 'node', words)[:-2]}, tooltip={_quoted(line_text(node))}];"

    def _box(self, part: Any, kind: str, words: str) -> str:
        return f"  {self.ids[part]} [{_look(kind)}, label={_quoted(words)}];"

    def edges(self) -> Iterator[str]:
        for node in self.graph.nodes:
            for value in node.values():
                yield self._edge(value, self.ids[node])
        for end, _, value in self.ends:
            yield self._edge(value, end)

    def _edge(self, value: Value, end: str) -> str:
        return f"  {self.ids[value]} -> {end} [label={_quoted(type_text(value))}];"


def _look(kind: str) -> str:
    fill, border = KINDS[kind]
    return f'shape={_SHAPES[kind]}, fillcolor="{fill}", color="{border}"'


def _quoted(words: str) -> str:
    """A text in Graphviz syntax; a backslash would begin an escape sequence."""
    plain = printable(words, "\n").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain.replace(chr(10), chr(92) + "n")}"'


def _graphviz(dot: str, kind: str) -> bytes | None:
    """The output of Graphviz; None if it is not installed, or fails."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, f"-T{kind}"],
            input=dot.encode(),
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except raised_here(OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None


# Pictures ----------------------------------------------------------------------------------------


@graph_method
def to_svg(self: Graph, limit: int = MAX_BOXES) -> str:
    """See ``Graph.to_svg``."""
    drawn = _graphviz(to_dot(self), "svg") if len(self.nodes) <= limit else None
    if drawn is None:
        return Picture(self, limit).svg()
    svg = drawn.decode("utf-8", "replace")
    return svg[svg.index("<svg") :] if "<svg" in svg else Picture(self, limit).svg()


@graph_method
def draw(self: Graph, path: str | os.PathLike[str], limit: int = MAX_BOXES) -> Path:
    """See ``Graph.draw``."""
    file = Path(path)
    kind = file.suffix.lower().removeprefix(".")
    if kind in ("dot", "gv"):
        file.write_text(to_dot(self) + "\n", encoding="utf-8")
    elif kind == "svg":
        file.write_text(to_svg(self, limit) + "\n", encoding="utf-8")
    elif kind in ("png", "pdf"):
        drawn = _graphviz(to_dot(self), kind) if len(self.nodes) <= limit else None
        if drawn is not None:
            file.write_bytes(drawn)
        else:
            _paint(self, file, limit)
    else:
        raise EagerflowError(
            f"there are no pictures of the kind {file.suffix!r}",
            received=str(path),
            expected="a name that ends in .svg, .dot, .gv, .png or .pdf",
        )
    return file


def _paint(graph: Graph, file: Path, limit: int) -> None:
    try:
        figures = extras.load("matplotlib.figure", "plot", f"a picture as {file.suffix}")
        patches = extras.load("matplotlib.patches", "plot", "a picture")
        paths = extras.load("matplotlib.path", "plot", "a picture")
    except MissingExtraError as error:
        error.hint = f"{error.hint}, or install Graphviz, or write a .svg"
        raise
    picture = Picture(graph, limit)
    figure = figures.Figure(figsize=(picture.width / 96, picture.height / 96))
    picture.paint(figure, patches, paths)
    figure.savefig(file, dpi=min(_DOTS_PER_INCH, 30_000 * 96 / max(picture.width, picture.height)))


@graph_method
def _repr_html_(self: Graph) -> str:
    """See ``Graph._repr_html_``."""
    return html(self, "graphs")
