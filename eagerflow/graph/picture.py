"""Pictures of graphs without any other program: boxes in layers, as SVG or through matplotlib.

Boxes are below their operands. K. Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding
of hierarchical system structures, IEEE Transactions on Systems, Man and Cybernetics 11 (1981):
layers by longest paths, order within them by barycentres, then coordinates: those
closest to the neighbours that keep the order, an isotonic regression.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from eagerflow.display import escape
from eagerflow.errors import printable
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.text import constant_text, line_text, short_name, type_text
from eagerflow.graph.walk import named_inputs, named_outputs

KINDS = {  # of boxes on white paper: fill and border
    "input": ("#e3f2e1", "#3b7d3a"),
    "variable": ("#fdf0d5", "#b7791f"),
    "constant": ("#eeeeee", "#777777"),
    "node": ("#e8f0fb", "#3c6eb4"),
    "group": ("#d5e3f7", "#24508f"),
    "output": ("#f6e1ea", "#a8326b"),
}
_HUES = {  # of boxes in SVG: for light and dark backgrounds
    "input": "#4c9a4a",
    "variable": "#c08418",
    "constant": "#888888",
    "node": "#5b8fd9",
    "group": "#3f74c4",
    "output": "#cf5590",
}
_ARROW = "#8a8a99"
# The attributes of the picture are those of light paper, for viewers that read no style sheets.
_DARK = (
    "<style>@media (prefers-color-scheme: dark) { .eagerflow-graph { color: #dddddd } "
    ".eagerflow-graph > rect { fill: #111111 } }</style>"
)
_LETTER, _LINE = 6.7, 15.0  # width of a letter and height of a line, in pixels
_WIDEST = 34  # letters in a line of a box
_GAP_X, _GAP_Y, _MARGIN = 16.0, 34.0, 14.0
_SWEEPS = 6


@dataclass(eq=False)
class Box:
    """A rectangle of the picture, or, without a kind, a point on a long edge."""

    kind: str
    lines: list[str] = field(default_factory=list)
    story: str = ""  # tooltip
    layer: int = 0
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0  # of the middle
    y: float = 0.0  # of the top
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)


@dataclass(eq=False)
class Edge:
    """A line from one box to another; ``path`` has the boxes and points that it passes."""

    start: Box
    end: Box
    labels: list[str] = field(default_factory=list)
    path: list[Box] = field(default_factory=list)


class Picture:
    """Boxes and edges of a graph with coordinates; collapsed to at most ``limit``.

    Scopes are collapsed, the innermost ones first; if that is not enough, neighbours are.
    """

    def __init__(self, graph: Graph, limit: int) -> None:
        self.name = graph.name
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        self._between: dict[tuple[Box, Box], Edge] = {}
        self._fill(graph, limit)
        self.layers = self._layered()
        self._ordered()
        self._placed()
        self.width = max((b.x + b.width / 2 for b in self.boxes), default=0.0) + _MARGIN
        self.height = max((b.y + b.height for b in self.boxes), default=0.0) + _MARGIN

    # Contents --------------------------------------------------------------------------------

    def _fill(self, graph: Graph, limit: int) -> None:
        groups = _groups(graph, limit)
        members: dict[Any, list[Node]] = {}
        for node, key in zip(graph.nodes, groups, strict=True):
            members.setdefault(key, []).append(node)
        made = {key: _node_box(key, nodes) for key, nodes in members.items()}
        box_of = {node: made[key] for node, key in zip(graph.nodes, groups, strict=True)}
        entries = self._entries(graph, box_of, limit)
        self.boxes += entries.values()
        self.boxes = list(dict.fromkeys(self.boxes))
        self.boxes += made.values()
        for node in graph.nodes:
            for value in node.values():
                self._connect(value, entries, box_of, box_of[node])
        ends = list(named_outputs(graph))
        rest = Box("output", [f"{len(ends) - limit} more outputs"])
        for i, (kind, name, value) in enumerate(ends):
            words = [_short(name), ("assigned: " if kind == "assign" else "") + type_text(value)]
            box = Box("output", words, f"{name} = {value.name}") if i < limit else rest
            if i <= limit:
                self.boxes.append(box)
            self._connect(value, entries, box_of, box)
        for box in self.boxes:
            box.lines = [_cut(printable(line)) for line in box.lines]
            box.width = max(map(len, box.lines)) * _LETTER + 18
            box.height = len(box.lines) * _LINE + 8

    def _entries(self, graph: Graph, box_of: dict[Node, Box], limit: int) -> dict[Value, Box]:
        """The boxes of inputs, Variables and constants; those used by one group only are in it."""
        readers: dict[Value, set[Box]] = {}
        for node in graph.nodes:
            for value in node.values():
                readers.setdefault(value, set()).add(box_of[node])
        found: dict[Value, Box] = {}
        inside: dict[Box, dict[str, int]] = {}
        for kind, name, value in named_inputs(graph):
            known = readers.get(value, set())
            only = next(iter(known)) if len(known) == 1 else None
            if kind != "input" and only is not None and only.kind == "group":
                counts = inside.setdefault(only, {})
                counts[kind] = counts.get(kind, 0) + 1
                continue
            lines = [_short(name), type_text(value)]
            if kind == "constant":
                lines = [constant_text(value), type_text(value)]
            found[value] = Box(kind, lines, f"{name}: {type_text(value)}")
        for box, counts in inside.items():
            box.lines += [f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items()]
        for kind in ("input", "variable", "constant"):
            many = [value for value, box in found.items() if box.kind == kind]
            if len(many) > limit:
                found |= dict.fromkeys(many, Box(kind, [f"{len(many)} {kind}s"]))
        return found

    def _connect(
        self, value: Value, entries: dict[Value, Box], box_of: dict[Node, Box], end: Box
    ) -> None:
        start = entries.get(value) if value.node is None else box_of.get(value.node)
        if start is None or start is end:
            return
        edge = self._between.get((start, end))
        if edge is None:
            edge = self._between[start, end] = Edge(start, end)
            self.edges.append(edge)
        label = f"{value.name}: {type_text(value)}"
        if label not in edge.labels:
            edge.labels.append(label)

    # Layout ----------------------------------------------------------------------------------

    def _layered(self) -> list[list[Box]]:
        """Boxes by layer, with points in between where an edge crosses other layers."""
        order = {box: i for i, box in enumerate(self.boxes)}
        forward: dict[Box, list[Box]] = {}
        for edge in self.edges:
            if order[edge.start] < order[edge.end]:  # a collapsed scope may also read later values
                forward.setdefault(edge.start, []).append(edge.end)
        for box in self.boxes:
            for other in forward.get(box, ()):
                other.layer = max(other.layer, box.layer + 1)
        below = {other for others in forward.values() for other in others}
        for box in self.boxes:  # a box without operands is just above its first reader
            if box in forward and box not in below:
                box.layer = min(other.layer for other in forward[box]) - 1
        layers: list[list[Box]] = [
            [] for _ in range(1 + max((b.layer for b in self.boxes), default=0))
        ]
        for box in self.boxes:
            layers[box.layer].append(box)
        for edge in self.edges:
            self._route(edge, layers)
        return layers

    def _route(self, edge: Edge, layers: list[list[Box]]) -> None:
        upper, lower = sorted((edge.start, edge.end), key=lambda b: b.layer)
        path = [upper]
        for layer in range(upper.layer + 1, lower.layer):
            point = Box("", layer=layer, width=8.0)
            layers[layer].append(point)
            path.append(point)
        path.append(lower)
        for one, other in pairwise(path):
            if one.layer < other.layer:
                one.below.append(other)
                other.above.append(one)
        edge.path = path if upper is edge.start else path[::-1]

    def _ordered(self) -> None:
        """Reduce crossings: each box near the mean position of its neighbours."""
        position = {box: float(i) for layer in self.layers for i, box in enumerate(layer)}
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                wanted = {}
                for box in layer:
                    near = box.above if down else box.below
                    own = position[box]
                    wanted[box] = sum(position[n] for n in near) / len(near) if near else own
                layer.sort(key=wanted.__getitem__)
                position |= {box: float(i) for i, box in enumerate(layer)}

    def _placed(self) -> None:
        y = _MARGIN
        for layer in self.layers:
            height = max((box.height for box in layer), default=0.0)
            for box in layer:
                box.y = y + (height - box.height) / 2
            y += height + _GAP_Y
            x = 0.0
            for box in layer:
                box.x = x + box.width / 2
                x += box.width + _GAP_X
        for sweep in range(2 * _SWEEPS):
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                wanted = []
                for box in layer:
                    near = (box.above if down else box.below) or box.above or box.below
                    wanted.append(sum(n.x for n in near) / len(near) if near else box.x)
                for box, x in zip(layer, _apart(wanted, layer), strict=True):
                    box.x = x
        left = min((b.x - b.width / 2 for layer in self.layers for b in layer), default=0.0)
        for layer in self.layers:
            for box in layer:
                box.x += _MARGIN - left

    # Drawing ---------------------------------------------------------------------------------

    def curves(self) -> Iterator[tuple[Edge, list[tuple[float, float]]]]:
        """Each edge with its points: a start, and for each piece two control points and an end."""
        for edge in self.edges:
            downward = edge.start.layer < edge.end.layer
            at = (edge.start.x, edge.start.y + (edge.start.height if downward else 0.0))
            points = [at]
            for box in edge.path[1:]:
                top = box.y + (0.0 if downward else box.height)
                to = (box.x, top)
                bend = (to[1] - at[1]) / 2 or 20.0
                points += [(at[0], at[1] + bend), (to[0], to[1] - bend), to]
                at = (to[0], to[1] + box.height) if not box.kind and downward else to
            yield edge, points

    def svg(self, on_page: bool = False) -> str:
        """The picture as self-contained SVG text.

        It has a background of its own, which is dark where the viewer prefers that, or, with
        ``on_page``, the colours of the page.
        """
        own = "" if on_page else ' class="eagerflow-graph" color="#222222"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="11" role="img" '
            f'aria-label="graph {escape(self.name)}"{own}>',
            f"<title>{escape(self.name)}</title>",
        ]
        if not on_page:
            parts += [_DARK, '<rect width="100%" height="100%" fill="#ffffff"/>']
        for edge, points in self.curves():
            numbers = [f"{x:.1f},{y:.1f}" for x, y in points]
            pieces = " ".join("C" + " ".join(numbers[i : i + 3]) for i in range(1, len(points), 3))
            (x, y), side = points[-1], 6 if edge.start.layer < edge.end.layer else -6
            # The head is drawn here: a marker needs a name, and a page may hold many pictures.
            parts.append(
                f"<g><title>{_story(edge.labels)}</title>"
                f'<path d="M{numbers[0]} {pieces}" fill="none" stroke="{_ARROW}" stroke-width="1"/>'
                f'<path d="M{x:.1f},{y:.1f} l-3,{-side} h6 z" fill="{_ARROW}"/></g>'
            )
        for box in self.boxes:
            parts += _box_svg(box)
        return "\n".join([*parts, "</svg>"])

    def paint(self, figure: Any, patches: Any, paths: Any) -> None:
        """Draw into a matplotlib figure, given its modules of patches and paths."""
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        axes.set_axis_off()
        for _, points in self.curves():
            codes = [paths.Path.MOVETO] + [paths.Path.CURVE4] * (len(points) - 1)
            arrow = patches.FancyArrowPatch(
                path=paths.Path(points, codes),
                arrowstyle="-|>",
                mutation_scale=7,
                color="#666677",
                linewidth=0.7,
            )
            axes.add_patch(arrow)
        for box in self.boxes:
            fill, border = KINDS[box.kind]
            corner = min(box.height / 2, 12.0) if box.kind in ("input", "output") else 3.0
            frame = patches.FancyBboxPatch(
                (box.x - box.width / 2, box.y),
                box.width,
                box.height,
                boxstyle=f"round,pad=0,rounding_size={corner}",
                facecolor=fill,
                edgecolor=border,
                linewidth=0.8,
                linestyle=_dashes(box.kind)[0],
            )
            axes.add_patch(frame)
            for i, line in enumerate(box.lines):
                axes.text(
                    box.x,
                    box.y + 4 + (i + 0.5) * _LINE,
                    line.replace("$", r"\$"),
                    fontsize=7.2,
                    ha="center",
                    va="center",
                    weight="bold" if i == 0 else "normal",
                    color="#222222" if i == 0 else "#555555",
                )


# Text --------------------------------------------------------------------------------------------


def _story(lines: Sequence[str]) -> str:
    return escape("\n".join(lines[:20]))


def _cut(line: str) -> str:
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"


def _short(name: str) -> str:
    return name if len(name) <= _WIDEST else "…" + name[1 - _WIDEST :]


def _dashes(kind: str) -> tuple[str, str]:
    return ("--", ' stroke-dasharray="4 2"') if kind == "constant" else ("-", "")


def _box_svg(box: Box) -> Iterator[str]:
    colours = 'fill="{0}" stroke="{0}" fill-opacity=".14"'.format(_HUES[box.kind])
    words = 'font-weight="bold" fill="currentColor"', 'fill="currentColor"'
    left, corner = box.x - box.width / 2, 3
    if box.kind in ("input", "output"):
        corner = 14
    dashes = _dashes(box.kind)[1]
    yield f"<g><title>{escape(box.story or box.lines[0])}</title>"
    if box.kind == "group":  # stands for several nodes, and is drawn that way
        yield (
            f'<rect x="{left + 3:.1f}" y="{box.y + 3:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="3" {colours}/>'
        )
    yield (
        f'<rect x="{left:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{corner}" {colours}{dashes}/>'
    )
    for i, line in enumerate(box.lines):
        yield (
            f'<text x="{box.x:.1f}" y="{box.y + 15 + i * _LINE:.1f}" text-anchor="middle" '
            f"{words[i > 0]}>{escape(line)}</text>"
        )
    yield "</g>"


# Grouping ----------------------------------------------------------------------------------------


def _node_box(key: Any, nodes: list[Node]) -> Box:
    node = nodes[0]
    if key is node:
        types = [type_text(v) for v in node.outputs]
        lines = [short_name(node), *types[:3], *(["…"] if len(types) > 3 else [])]
        return Box("node", [*lines, *([_short(node.scope)] if node.scope else [])], line_text(node))
    title = key if isinstance(key, str) else f"{short_name(node)} … {short_name(nodes[-1])}"
    story = "\n".join(line_text(n) for n in nodes[:20])
    return Box("group", [_short(title), f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"], story)


def _groups(graph: Graph, limit: int) -> list[Any]:
    """For each node the node itself, or the name or number of its group."""
    scopes = [tuple(node.scope.split("/")) if node.scope else () for node in graph.nodes]
    keys: list[Any] = list(graph.nodes)
    depth = min(max(map(len, scopes), default=0), 16)
    while len(set(keys)) > limit and depth:
        depth -= 1
        keys = [
            "/".join(scope[: depth + 1]) if len(scope) > depth else node
            for node, scope in zip(graph.nodes, scopes, strict=True)
        ]
    shown = list(dict.fromkeys(keys))
    if len(shown) <= limit:
        return keys
    pieces = {key: i * limit // len(shown) for i, key in enumerate(shown)}
    return [pieces[key] for key in keys]


def _apart(wanted: Iterable[float], layer: Sequence[Box]) -> list[float]:
    """The closest centres to those wanted, in least squares, without overlap of boxes."""
    starts: list[float] = []
    at = 0.0
    for box in layer:
        starts.append(at + box.width / 2)
        at += box.width + _GAP_X
    blocks: list[tuple[float, float, int]] = []  # sum of wanted centres, weight, number of boxes
    for x, start, box in zip(wanted, starts, layer, strict=True):
        weight = 1.0 if box.kind else 4.0  # prefer straight long edges
        total, count = (x - start) * weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / weight:
            before = blocks.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        blocks.append((total, weight, count))
    shifts = [total / weight for total, weight, count in blocks for _ in range(count)]
    return [start + shift for start, shift in zip(starts, shifts, strict=True)]
