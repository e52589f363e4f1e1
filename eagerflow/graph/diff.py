"""Differences between two graphs: aligned by structure, so that a small change stays small.

Nodes are aligned like lines of text in a diff, in three rounds: nodes equal in all but
the name; then, in the gaps, nodes with the same op and scope; then nodes with the same op. Aligned
nodes are compared in full. A node with a different number (``add_2`` for ``add_1``), or one that
moved to another line of the user's code, has not changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import printable
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.text import attribute_text, constant_text, line_text, value_text
from eagerflow.graph.walk import named_bodies, named_inputs, named_outputs
from eagerflow.tensor import Tensor

_CONTEXT_LINES = 2  # unchanged lines shown around changes
_MAX_EDITS = 400  # searched by an alignment; beyond that it looks up names


_Named = defaultdict[str, dict[str, Value]]  # values by their names, for each kind


class _Change(NamedTuple):
    part: str  # input, variable, constant, node, output, assignment, name
    where: str  # the node with this body
    old: Any  # None if added
    new: Any  # None if removed
    why: tuple[str, ...]


class Difference:
    """Additions, removals and changes from one graph to another; false if there are none.

    ``added`` and ``removed`` list names, ``changed`` names with the changed facts; nodes of
    the bodies of branches and loops are among them. It prints as a diff with source lines.

    >>> spec = ef.TensorSpec((3,), "float32")
    >>> old = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, spec)
    >>> new = ef.capture.trace(lambda x: ef.sin(x) * 2.0, spec)
    >>> difference = old.diff(new)
    >>> difference.added, difference.removed, difference.changed
    ([], [], {'tanh': ('op',)})
    >>> bool(old.diff(old))
    False
    """

    def __init__(self, changes: Sequence[_Change], listing: str) -> None:
        self._changes = changes
        self._listing = listing

    @property
    def added(self) -> list[str]:
        """Names that are only in the new graph."""
        return [c.where + _name(c.new) for c in self._changes if c.old is None]

    @property
    def removed(self) -> list[str]:
        """Names that are only in the old graph."""
        return [c.where + _name(c.old) for c in self._changes if c.new is None]

    @property
    def changed(self) -> dict[str, tuple[str, ...]]:
        """By old name, the changed facts: op, attributes, shape, dtype, inputs ..."""
        return {
            c.where + _name(c.old): c.why
            for c in self._changes
            if c.old is not None and c.new is not None
        }

    def __bool__(self) -> bool:
        return bool(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __str__(self) -> str:
        return self._listing

    def __repr__(self) -> str:
        return self._listing or "<Difference: none>"


def difference(old: Graph, new: Graph) -> Difference:
    """Additions, removals and changes from one graph to another, as a Difference.

    It compares inputs, Variables with dtype and shape, constants by value, each node's op,
    attributes, inputs, dtypes, shapes, device and scope, outputs and assignments, also in the
    bodies of branches and loops. Lines of the user's code and numbers in names do not count.

    >>> spec = ef.TensorSpec((3,), "float32")
    >>> old = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec, name="f")
    >>> new = ef.capture.trace(lambda x: ef.sum(x, axis=0, keepdims=True), spec, name="f")
    >>> print(ef.capture.difference(old, new))
    --- f
    +++ f
    @@ nodes
    -  sum: float32[] = sum(x, axis=0)  # ...
    +  sum: float32[1] = sum(x, axis=0, keepdims=True)  # ...
       changed: attributes, shape
    """
    changes: list[_Change] = []
    lines: list[str] = []
    waiting = [("", old, new)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        where, a, b = waiting.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        pair = _Pair(a, b, where)
        lines += pair.lines
        changes += pair.changes
        waiting += reversed(pair.bodies)
    head = [f"--- {old.name}", f"+++ {new.name}"] if changes else []
    return Difference(changes, "\n".join([printable(x) for x in head + lines]))


@graph_method
def diff(self: Graph, other: Graph) -> Difference:
    """See ``Graph.diff``."""
    return difference(self, other)


def _name(thing: Any) -> str:
    return thing if isinstance(thing, str) else str(thing.name)


class _Pair:
    """Two graphs, the correspondence of their values, and the changes between them."""

    def __init__(self, old: Graph, new: Graph, where: str) -> None:
        self.where = where
        self.partner: dict[Value, Value] = {}  # the new value of an old one
        self.changes: list[_Change] = []
        self.lines: list[str] = []
        self.bodies: list[tuple[str, Graph, Graph]] = []
        given = _by_kind(named_inputs(old)), _by_kind(named_inputs(new))
        self._by_name("inputs", "input", given, self._typed_pair, _entry)
        self._by_name("variables", "variable", given, self._typed_pair, _entry)
        self._constants(old.constants, new.constants)
        self._nodes(old.nodes, new.nodes)
        self._outputs(old, new)

    def note(self, part: str, old: Any, new: Any, *why: str) -> None:
        self.changes.append(_Change(part, self.where, old, new, why))

    def section(self, title: str, lines: list[str]) -> None:
        """Lines under a heading, if there are any."""
        if lines:
            self.lines.append(f"@@ {self.where}{title}")
            self.lines += lines

    # Inputs, Variables, constants ------------------------------------------------------------

    def _by_name(
        self,
        title: str,
        kind: str,
        sides: tuple[_Named, _Named],
        compare: Callable[[Value, Value], tuple[str, ...]],
        write: Callable[[str, Value], str],
    ) -> None:
        """Compare values by name; ``compare`` returns the differences of two values."""
        old, new = (side[kind] for side in sides)
        lines: list[str] = []
        for name in dict.fromkeys((*old, *new)):
            a, b = old.get(name), new.get(name)
            why = compare(a, b) if a is not None and b is not None else None
            if why != ():
                given, made = None if a is None else name, None if b is None else name
                self.note(title, given, made, *(why or ()))
                lines += [] if a is None else [f"-  {write(name, a)}"]
                lines += [] if b is None else [f"+  {write(name, b)}"]
        if kind == "input" and list(old) != list(new) and sorted(old) == sorted(new):
            self.note(title, title, title, "order")
            lines += [f"-  ({', '.join(old)})", f"+  ({', '.join(new)})"]
        self.section(title, lines)

    def _typed_pair(self, old: Value, new: Value) -> tuple[str, ...]:
        self.partner[old] = new
        return _typed(old, new)

    def _constants(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Match equal constants; compare the rest by name and type."""
        free: dict[Hashable, list[Value]] = {}
        for value in reversed(new):
            free.setdefault(_content(value), []).append(value)
        rest = []
        for value in old:
            same = free.get(_content(value))
            if same:
                self.partner[value] = same.pop()
            else:
                rest.append(value)
        taken = set(self.partner.values())
        added = {v.name: v for v in new if v not in taken}
        lines: list[str] = []
        for value in rest:
            lines.append(f"-  {_entry(value.name, value)}")
            other = added.pop(value.name, None)
            if other is None:
                self.note("constants", value, None)
            else:
                self.partner[value] = other
                self.note("constants", value, other, *(_typed(value, other) or ("values",)))
                lines.append(f"+  {_entry(other.name, other)}")
        for value in added.values():
            self.note("constants", None, value)
            lines.append(f"+  {_entry(value.name, value)}")
        self.section("constants", lines)

    # Nodes -----------------------------------------------------------------------------------

    def _nodes(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        pairs = _align(old, new, (self._exact, _coarse, _loose))
        for a, b in pairs:
            if a is not None and b is not None:
                self.partner |= zip(a.outputs, b.outputs, strict=False)
        rows: list[tuple[str, list[Any]]] = []  # mark and lines
        for a, b in pairs:
            if a is None or b is None:
                self.note("nodes", a, b)
                rows += [("-", [f"-  {line_text(a)}"])] if a is not None else []
                rows += [("+", [f"+  {line_text(b)}"])] if b is not None else []
                continue
            why = self._compared(a, b)
            if why:
                self.note("nodes", a, b, *why)
                words = [f"-  {line_text(a)}", f"+  {line_text(b)}"]
                rows.append(("!", [*words, f"   changed: {', '.join(why)}"]))
            else:
                rows.append((" ", [b]))
        self.section("nodes", list(_with_context(rows)))

    def _exact(self, node: Node, is_old: bool) -> Hashable:
        """All facts of a node except its number and the origins of its inputs."""
        given = tuple(
            ("node" if x.node is not None else self._source(x, is_old))
            if type(x) is Value
            else repr(x)
            for x in node.inputs
        )
        made = tuple((v.dtype, v.shape) for v in node.outputs)
        return node.op.name, node.scope, _plain(node), given, made, node.device

    def _source(self, value: Value, is_old: bool) -> Hashable:
        return self.partner.get(value, value) if is_old else value

    def _compared(self, old: Node, new: Node) -> tuple[str, ...]:
        why = []
        if old.op is not new.op:
            why.append("op")
        elif _plain(old) != _plain(new) or self._unlike(old, new):
            why.append("attributes")
        if not self._same_inputs(old, new):
            why.append("inputs")
        if len(old.outputs) != len(new.outputs):
            why.append("outputs")
        for a, b in zip(old.outputs, new.outputs, strict=False):
            why += [reason for reason in _typed(a, b) if reason not in why]
        if old.device != new.device and "device" not in why:
            why.append("device")
        if old.scope != new.scope:
            why.append("scope")
        return tuple(why)

    def _unlike(self, old: Node, new: Node) -> bool:
        """Whether the sets of nested bodies differ; matching bodies are compared later."""
        a, b = dict(named_bodies(old.attributes)), dict(named_bodies(new.attributes))
        for name in a.keys() & b.keys():
            where = f"{self.where}{old.name}.{name}: "
            self.bodies.append((where, a[name], b[name]))
        return a.keys() != b.keys()

    def _same_inputs(self, old: Node, new: Node) -> bool:
        if len(old.inputs) != len(new.inputs):
            return False
        for a, b in zip(old.inputs, new.inputs, strict=True):
            if type(a) is Value and type(b) is Value:
                if self.partner.get(a) is not b:
                    return False
            elif type(a) is not type(b) or repr(a) != repr(b):
                return False
        return True

    # Outputs ---------------------------------------------------------------------------------

    def _outputs(self, old: Graph, new: Graph) -> None:
        made = _by_kind(named_outputs(old)), _by_kind(named_outputs(new))
        for title, kind in (("outputs", "return"), ("assignments", "assign")):
            self._by_name(title, kind, made, self._same_maker, lambda n, v: f"{n} = {v.name}")
        if sorted(old.outputs.names) == sorted(new.outputs.names):
            one, other = _result(old), _result(new)
            if one != other:
                self.note("result", "result", "result", "order or nest")
                self.section("result", [f"-  {one}", f"+  {other}"])

    def _same_maker(self, old: Value, new: Value) -> tuple[str, ...]:
        return () if self.partner.get(old) is new else ("value",)


# Text --------------------------------------------------------------------------------------------


def _typed(old: Value, new: Value) -> tuple[str, ...]:
    """The visible differences of two values."""
    return tuple(
        what
        for what, a, b in (
            ("shape", old.shape, new.shape),
            ("dtype", old.dtype, new.dtype),
            ("device", old.device, new.device),
        )
        if a != b
    )


def _by_kind(named: Iterable[tuple[str, str, Value]]) -> _Named:
    found: _Named = defaultdict(dict)
    for kind, name, value in named:
        found[kind][name] = value
    return found


def _entry(name: str, value: Value) -> str:
    known = f" = {constant_text(value)}" if value.constant is not None else ""
    return value_text(name, value) + known


class _Word(str):
    __slots__ = ()
    __repr__ = str.__str__


def _result(graph: Graph) -> str:
    """The nest of the program's result, with the names of outputs."""
    words = [_Word(name) for name in graph.outputs.names]
    return repr(tuple(words) if graph.structure is None else graph.nest(words))


def _plain(node: Node) -> Hashable:
    """The attributes as text, so that NaN equals NaN and 1 differs from True; without bodies."""
    return tuple(
        (name, "graph" if isinstance(value, Graph) else attribute_text(value))
        for name, value in sorted(node.attributes.items())
        if not (isinstance(value, tuple) and any(isinstance(x, Graph) for x in value))
    )


def _content(value: Value) -> Hashable:
    held = value.constant
    numbers = held.numpy() if isinstance(held, Tensor) else np.asarray(held)
    return value.dtype, value.shape, value.device, blake2b(numbers.tobytes()).digest()


def _with_context(rows: list[tuple[str, list[Any]]]) -> Iterator[str]:
    """The rows that changed, with a few of those around them; ``...`` for omitted ones."""
    near = [False] * len(rows)
    for i, (mark, _) in enumerate(rows):
        if mark != " ":
            for k in range(max(0, i - _CONTEXT_LINES), min(len(rows), i + _CONTEXT_LINES + 1)):
                near[k] = True
    if not any(near):
        return
    left_out = False
    for shown, (mark, words) in zip(near, rows, strict=True):
        if not shown:
            left_out = True
            continue
        if left_out:
            yield "   ..."
            left_out = False
        yield from words if mark != " " else [f"   {line_text(words[0])}"]


# Alignment ---------------------------------------------------------------------------------------


def _coarse(node: Node, is_old: bool) -> Hashable:
    return node.op.name, node.scope


def _loose(node: Node, is_old: bool) -> Hashable:
    return node.op.name


_Key = Callable[[Node, bool], Hashable]
_Two = tuple[Node | None, Node | None]


def _align(old: Sequence[Node], new: Sequence[Node], keys: Sequence[_Key]) -> list[_Two]:
    """Pairs in order, with None for a node without partner; by the first key, then the next."""
    if not keys:
        return _in_gap(old, new)
    key, later = keys[0], keys[1:]
    one, other = [key(n, True) for n in old], [key(n, False) for n in new]
    found: list[_Two] = []
    i = j = 0
    for a, b in [*common(one, other), (len(old), len(new))]:
        if a > i or b > j:
            found += _align(old[i:a], new[j:b], later)
        if a < len(old) and b < len(new):
            found.append((old[a], new[b]))
        i, j = a + 1, b + 1
    return found


def _in_gap(old: Sequence[Node], new: Sequence[Node]) -> list[_Two]:
    """Equal numbers of nodes in a gap are the same nodes with other ops; otherwise all differ."""
    arities = [[len(node.inputs) for node in nodes] for nodes in (old, new)]
    if arities[0] == arities[1]:
        return list(zip(old, new, strict=True))
    return [*((node, None) for node in old), *((None, node) for node in new)]


def common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Indices of a common subsequence, the longest unless the difference is very large.

    E. W. Myers, An O(ND) difference algorithm and its variations, Algorithmica 1 (1986).
    """
    start, ends = 0, 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    while ends < min(len(a), len(b)) - start and a[-1 - ends] == b[-1 - ends]:
        ends += 1
    inner_a, inner_b = a[start : len(a) - ends], b[start : len(b) - ends]
    middle = _shortest_edit(inner_a, inner_b)
    if middle is None:
        middle = in_order(inner_a, inner_b)
    return [
        *((i, i) for i in range(start)),
        *((i + start, j + start) for i, j in middle),
        *((len(a) - k, len(b) - k) for k in range(ends, 0, -1)),
    ]


def _shortest_edit(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    """The pairs left by a shortest edit; None if there are too many edits."""
    furthest = {1: 0}  # on each diagonal, the progress of the best path in a
    history: list[dict[int, int]] = []
    for edits in range(min(len(a) + len(b), _MAX_EDITS) + 1):
        history.append(furthest.copy())
        for k in range(-edits, edits + 1, 2):
            x = furthest[k + 1] if _from_above(furthest, k, edits) else furthest[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            furthest[k] = x
            if k == len(a) - len(b) and x >= len(a):
                return _walk_back(history, len(a), len(b))
    return None


def _from_above(furthest: dict[int, int], k: int, edits: int) -> bool:
    """Whether the best path on a diagonal ends with an insertion, not with a removal."""
    return k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])


def _walk_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        if edits:
            k = x - y
            before = k + 1 if _from_above(history[edits], k, edits) else k - 1
            start = history[edits][before], history[edits][before] - before
        else:
            start = 0, 0
        while x > start[0] and y > start[1]:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start
    return pairs[::-1]


def in_order(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The longest ordered matching of the k-th items of each kind."""
    places = {item: j for j, item in enumerate(_counted(b))}
    pairs = [(i, places[item]) for i, item in enumerate(_counted(a)) if item in places]
    ends: list[int] = []  # end in b of the best chains of each length
    chains: list[int] = []  # last pair of each of these chains
    before: list[int] = []
    for n, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(chains[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        chains[length : length + 1] = [n]
    found = []
    n = chains[-1] if chains else -1
    while n >= 0:
        found.append(pairs[n])
        n = before[n]
    return found[::-1]


def _counted(items: Sequence[Hashable]) -> list[Hashable]:
    counts: Counter[Hashable] = Counter()
    found: list[Hashable] = []
    for item in items:
        counts[item] += 1
        found.append((item, counts[item]))
    return found
