"""Fused kernels: the region of a fusion group's nodes, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.layout import Entry, imagined, like
from eagerflow.codegen.region import Region
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.fusion.access import AccessMap, Axes, Number, composed, real_axes, space_axes
from eagerflow.fusion.labels import UNSIGNED, has_others, refuse_labels
from eagerflow.fusion.lowering import ReducedAxes, emit, memory_type
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import needed
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.nn.losses import (
    sparse_softmax_cross_entropy,
    sparse_softmax_cross_entropy_gradient,
)

CLASS_OPS = (sparse_softmax_cross_entropy, sparse_softmax_cross_entropy_gradient)
"""Ops whose second argument holds class labels, which must be valid."""

_largest = np.maximum.reduce

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_LAYOUTS = 64  # maximum combinations of strides that a call is prepared for
MAX_NAMED_OPS = 4  # in the name of a kernel


class Member(NamedTuple):
    """A node of a fusion group, with its axes in the group's index space.

    ``axes`` are the group's axes for those of its access map, ``position`` is that in the graph.
    ``kind`` is the reduction of a row op: "row", "column" (accumulated row by row, complete when
    all rows are), or "both"; it is empty for an element-wise op.
    """

    node: Node
    access: AccessMap
    axes: Axes
    kind: str
    position: int


class Operand(NamedTuple):
    """A value as a region accesses it: its axes, and an optional single word."""

    value: Value
    axes: Axes
    word: int | None = None


class FusedKernel:
    """Nodes of a graph computed by one region.

    ``inputs`` are the Values that it reads and ``outputs`` those that it makes, in the order of
    the region's; a Value occurs twice among the inputs if it is read along other axes too.
    ``sizes`` are those of the region's axes by name: arrays enter it without axes of size 1,
    and possibly with permuted axes (``view``). ``inplace`` holds pairs of output and
    input indices that may share an array, if nothing else needs the input. ``checks`` are pairs
    of an input that holds class labels, and the number of classes.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        rows: Axes,
        members: Sequence[Member],
        values: Sequence[Value],
        uniform: dict[Value, Number],
    ) -> None:
        self.nodes = tuple(needed([m.node for m in members], values))
        self.name = _name(self.nodes)
        own = set(self.nodes)
        members = [m for m in members if m.node in own]
        numbers, key = _key(sizes, rows, members, values, uniform)
        written = _written.get(key)
        if written is None:
            writer = _RegionWriter(self.name, sizes, rows, uniform)
            written = writer.written(members, values, numbers)
            if len(_written) >= MAX_REMEMBERED:
                _written.clear()
            _written[key] = written
        self._order, self.sizes, self.region, inputs, outputs, self.checks = written
        known = list(numbers)
        self._inputs = tuple([Operand(known[n], *more) for n, *more in inputs])
        self._outputs = tuple([Operand(known[n], *more) for n, *more in outputs])
        self.inputs = tuple(p.value for p in self._inputs)
        self.outputs = tuple(p.value for p in self._outputs)
        self.inplace = self._inplace_pairs()

    def __repr__(self) -> str:
        return f"<FusedKernel {self.name}: {len(self.nodes)} nodes>"

    def _permutation(self, operand: Operand) -> list[int]:
        """The axes of an array, without those of size 1, in the region's order."""
        own = real_axes(operand.axes)
        return sorted(range(len(own)), key=lambda i: self._order.index(own[i]))

    # In place ------------------------------------------------------------------------------------

    def _inplace_pairs(self) -> tuple[tuple[int, int], ...]:
        """Outputs that may overwrite an input."""
        return tuple(
            (k, i)
            for k, out in enumerate(self._outputs)
            if self.region.outputs[k].value not in self.region.columns
            for i, given in enumerate(self._inputs)
            if (out.value.shape, out.value.dtype) == (given.value.shape, given.value.dtype)
            and out.axes == given.axes
            and self.inputs.count(given.value) == 1
        )

    def region_inplace(self, pairs: Sequence[tuple[int, int]]) -> Region:
        """The region with some outputs in place of inputs: pairs out of ``inplace``.

        Raises ArgumentError for other pairs, and if an array would be used twice.
        """
        if not pairs:
            return self.region
        wrong = [pair for pair in pairs if pair not in self.inplace]
        if wrong or len(dict(pairs)) < len(pairs) or len({i for _, i in pairs}) < len(pairs):
            raise ArgumentError(
                f"{list(pairs)} cannot be one array each",
                op=f"region {self.name}",
                expected=f"pairs of output and input out of {list(self.inplace)}, each once",
            )
        taken = dict(pairs)
        outputs = tuple(
            replace(out, inplace=self.region.inputs[taken[k]].name) if k in taken else out
            for k, out in enumerate(self.region.outputs)
        )
        own = self.region
        return Region.shared(own.name, own.axes, own.inputs, own.body, outputs, own.sizes)

    # Running -------------------------------------------------------------------------------------

    def view(self, array: Any, operand: Operand) -> Any:
        """An array as it enters the region: never a copy."""
        if operand.word is not None:
            return array[operand.word : operand.word + 1].reshape(())
        kept = tuple([0 if n == 1 else slice(None) for n in operand.value.shape])
        found = array[(*kept, ...)] if 0 in kept else array
        order = self._permutation(operand)
        return found if order == sorted(order) else found.transpose(order)

    def entries(self) -> tuple[list[Entry], list[Entry]]:
        """The entry forms of the arrays of inputs and of outputs."""
        return self._entries(self._inputs), self._entries(self._outputs)

    def _entries(self, operands: Sequence[Operand]) -> list[Entry]:
        found = []
        for value, axes, word in operands:
            kept = [axis for axis, n in enumerate(value.shape) if n != 1]
            order = [] if word is not None else self._permutation(Operand(value, axes))
            own = tuple([kept[i] for i in order])
            found.append(Entry(value.shape, value.dtype, own, word))
        return found

    def prepare(
        self,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        inplace: Sequence[tuple[int, int]] = (),
        way: str | None = None,
    ) -> FusedCall:
        """The region prepared for calls; code is compiled now, or loaded from the cache.

        ``inputs`` and ``outputs`` are arrays like those of later calls, or anything with
        ``shape``, ``dtype`` and perhaps ``strides``; without them all are contiguous.
        ``inplace`` are pairs out of ``self.inplace``, ``way`` is one of ``kernel.ways()``.
        """
        return FusedCall(self, inputs or self.inputs, outputs or self.outputs, inplace, way)


Step = Node | FusedKernel
"""A step of a plan: a node of its graph, or several computed by one kernel."""


class FusedCall:
    """A kernel's region prepared for arrays of known shapes, dtypes and strides.

    ``call(inputs, outputs)`` fills the arrays ``outputs``, in the kernel's order; those in
    place of inputs are the same array objects. Inputs with other strides than expected are allowed,
    and cost one preparation each; outputs must have the expected ones. Several threads may
    call it at once.
    """

    __slots__ = ("_fixed", "_prepared", "kernel", "region", "way")

    def __init__(
        self,
        fused: FusedKernel,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        inplace: Sequence[tuple[int, int]],
        way: str | None,
    ) -> None:
        self.kernel = fused
        self.region = fused.region_inplace(inplace)
        self.way = way or kernel.ways()[0]
        self._prepared: dict[Any, Any] = {}
        self._fixed = self._ready([_like(x) for x in inputs], [_like(x) for x in outputs])

    def source(self) -> str:
        """The region as text."""
        return str(self.region)

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Fill ``outputs`` with the results of the region for ``inputs``."""
        if self.kernel.checks:
            self.check(inputs)
        if self._fixed(inputs, outputs):
            self._other(inputs, outputs)

    def deferred(self) -> Any:
        """Prepares calls to be run later, all together; None if that is impossible."""
        fixed = self._fixed
        if self.kernel.checks or not kernel.can_wait(fixed):
            return None
        return fixed

    def native(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The machine code call for such arrays, in a segment; None if that is impossible."""
        found = self._ready(inputs, outputs)
        return found if kernel.is_fixed(found) else None

    def _other(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run on arrays with other strides than expected, or of another type."""
        key = tuple([a.strides for a in (*inputs, *outputs)])
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= MAX_LAYOUTS:
                self._prepared.clear()
            found = self._prepared[key] = self._ready(inputs, outputs)
        if found(inputs, outputs):  # of another type, such as NumPy's memmaps and masked arrays
            self._run(inputs, outputs)

    def check(self, inputs: Sequence[Any]) -> None:
        """Raise IndexRangeError for invalid labels; other inputs are not checked."""
        for number, classes in self.kernel.checks:
            labels = inputs[number]
            unsigned = UNSIGNED.get(labels.dtype)
            if unsigned is not None and labels.size:
                # As unsigned numbers, negative ones are the largest.
                wrong = _largest(labels.view(unsigned), None) >= classes
            else:
                wrong = has_others(labels, classes)
            if wrong:
                refuse_labels(labels, classes)

    def _ready(
        self, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        own = self.kernel
        offsets = [(p.word or 0) * p.value.dtype.itemsize for p in own._inputs]
        found = kernel.fixed_call(
            self.region,
            self._views(inputs, own._inputs),
            self._views(outputs, own._outputs),
            own.sizes,
            like(*inputs, *outputs),
            offsets,
            self.way,
        )
        return found or self._run

    def _views(self, arrays: Sequence[Any], operands: Sequence[Operand]) -> list[Any]:
        return [self.kernel.view(a, p) for a, p in zip(arrays, operands, strict=True)]

    def _run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        own = self.kernel
        given, made = self._views(inputs, own._inputs), self._views(outputs, own._outputs)
        kernel.compute(self.region, given, made, own.sizes, self.way)


def _like(x: Any) -> Any:
    """An array, or what looks like one, from a value or a spec."""
    if isinstance(x, np.ndarray):
        return x
    return imagined(tuple(x.shape), x.dtype, getattr(x, "strides", None))


def _letter(axis: int) -> str:
    return _LETTERS[axis] if axis < len(_LETTERS) else f"a{axis}"


def _name(nodes: Sequence[Node]) -> str:
    """A short name for a region, which depends only on its ops."""
    names = [n.op.name for n in nodes if n.op.views != "all"]
    if len(names) > MAX_NAMED_OPS:
        more = len(names) - MAX_NAMED_OPS + 1
        names[MAX_NAMED_OPS - 2 : -1] = [f"{more}_more"]
    return "_".join(names)


class _Written(NamedTuple):
    """A region, with its operands by the numbers of their Values in its key."""

    order: Axes
    sizes: dict[str, int]
    region: Region
    inputs: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]
    checks: tuple[tuple[int, int], ...]


MAX_REMEMBERED = 1 << 10
_written: dict[Any, _Written] = {}
"""Regions of recent groups, such as those of the layers of a network that are alike."""


def _key(
    sizes: tuple[int, ...],
    rows: Axes,
    members: Sequence[Member],
    values: Sequence[Value],
    uniform: dict[Value, Number],
) -> tuple[dict[Value, int], Any]:
    """The Values of a group, numbered, and all facts that its region depends on."""
    numbers: dict[Value, int] = {}

    def term(x: Any) -> Any:
        # As texts, numbers that are equal differ: 0.0 and -0.0, 1 and True.
        return numbers.setdefault(x, len(numbers)) if type(x) is Value else repr(x)

    steps = [
        (
            node.op,
            node.op.scalar,
            repr(node.attributes),
            tuple([term(x) for x in node.inputs]),
            tuple([term(x) for x in node.outputs]),
            *facts,
        )
        for node, *facts, _ in members
    ]
    made = tuple([term(v) for v in values])
    known = [(v.shape, v.dtype, repr(uniform.get(v))) for v in numbers]
    return numbers, (sizes, rows, *steps, made, *known)


class _RegionWriter:
    """Writes the region of nodes in one index space, with rows along some axes."""

    def __init__(
        self, name: str, sizes: tuple[int, ...], rows: Axes, uniform: dict[Value, Number]
    ) -> None:
        self.rows, self.uniform = rows, uniform
        self.order = (*(a for a in range(len(sizes)) if a not in rows), *rows)
        self.sizes = {_letter(a): sizes[a] for a in self.order} or {_letter(0): 1}
        self.builder = Builder(name, " ".join(self.sizes), **({} if self.order else self.sizes))
        self.inputs: list[Operand] = []
        self.outputs: list[Operand] = []
        self.checks: list[tuple[int, int]] = []
        self.terms: dict[Any, Any] = {}  # of values, and of operands
        self.made: dict[Value, Axes] = {}

    def written(
        self, members: Sequence[Member], values: Sequence[Value], numbers: dict[Value, int]
    ) -> _Written:
        """The region that computes ``values``."""
        for member in members:
            self.add(member)
        for value in values:
            self.output(value)
        inputs, outputs = (
            tuple([(numbers[value], *more) for value, *more in some])
            for some in (self.inputs, self.outputs)
        )
        region = self.builder.region()
        return _Written(self.order, self.sizes, region, inputs, outputs, tuple(self.checks))

    def add(self, member: Member) -> None:
        """Write the statements of a node."""
        results = emit(self.builder, member.node, self._given(member), self._reduced(member))
        for value, result, lies in zip(
            member.node.outputs, results, member.access.outputs, strict=True
        ):
            self.terms[value] = result
            self.made[value] = composed(lies, member.axes)

    def output(self, value: Value) -> None:
        """Add a value to the region's outputs."""
        operand = Operand(value, self.made[value])
        name, dtype = f"y{len(self.outputs)}", memory_type(value.dtype)
        self.outputs.append(operand)
        self.builder.output(name, self.terms[value], dtype, self._named(operand.axes))

    def _named(self, axes: Sequence[int]) -> str:
        """The names of axes in the region, in its order."""
        return " ".join(_letter(a) for a in self.order if a in axes)

    def _given(self, member: Member) -> list[Any]:
        node, access = member.node, member.access
        found: list[Any] = []
        for i, (x, lies) in enumerate(zip(node.inputs, access.inputs, strict=True)):
            if type(x) is not Value:
                found.append(x)
            elif x in self.terms:
                found.append(self.terms[x])
            elif access.reduced is None and x in self.uniform:
                found.append(self.uniform[x])
            elif node.op.call is random_keep:
                words = range(x.shape[0])
                found.append(tuple(self._input(Operand(x, (), w)) for w in words))
            else:
                found.append(self._input(Operand(x, composed(lies, member.axes))))
                if i == 1 and node.op.call in CLASS_OPS:
                    self._note_classes(node)
        return found

    def _note_classes(self, node: Node) -> None:
        logits, labels = node.inputs[:2]
        number = next(i for i, p in enumerate(self.inputs) if p.value is labels)
        check = number, logits.shape[node.attributes["axis"]]
        if check not in self.checks:
            self.checks.append(check)

    def _input(self, operand: Operand) -> Any:
        term = self.terms.get(operand)
        if term is None:
            name, dtype = f"x{len(self.inputs)}", memory_type(operand.value.dtype)
            self.inputs.append(operand)
            term = self.builder.input(name, dtype, self._named(operand.axes))
            self.terms[operand] = term
        return term

    def _reduced(self, member: Member) -> ReducedAxes:
        if member.access.reduced is None:
            return ReducedAxes()
        own = composed(member.access.reduced, member.axes)
        # Rows are along all of them, along none, or along those that all rows of the region have.
        row = own if member.kind == "row" else () if member.kind == "column" else self.rows
        first = [a for a in own if a not in row]
        around = [a for a in real_axes(member.axes) if a not in own]
        return ReducedAxes(*[self._named(x) for x in (row, first, around)])


# Size estimates -----------------------------------------------------------------------------------

_statement_counts: dict[Any, int | None] = {}


def statement_count(node: Node, access: AccessMap, uniform: dict[Value, Number]) -> int | None:
    """The number of statements of a node; None if it cannot be in a region.

    ``uniform`` are values with equal elements.
    """
    kinds: list[Any] = []
    for x in node.inputs:
        if type(x) is not Value:
            kinds.append((type(x), x))
        else:
            kinds.append((x.dtype, uniform.get(x)))
    own = tuple([(n, repr(v)) for n, v in node.attributes.items() if n != "shape"])
    row = None if access.reduced is None else len(access.reduced)
    key = node.op, tuple(kinds), own, row
    try:
        return _statement_counts[key]
    except KeyError:
        pass
    if len(_statement_counts) >= MAX_REMEMBERED:
        _statement_counts.clear()
    found = _statement_counts[key] = _count_alone(node, access, uniform)
    return found


def _count_alone(node: Node, access: AccessMap, uniform: dict[Value, Number]) -> int | None:
    """The statements of a node in a region of its own."""
    axes = space_axes(access.sizes)
    rows = composed(access.reduced or (), axes)
    writer = _RegionWriter("trial", access.space, rows, uniform)
    try:
        writer.add(Member(node, access, axes, "" if access.reduced is None else "row", 0))
        for value in node.outputs:
            writer.output(value)
        return len(writer.builder.region().body)
    except raised_here(EagerflowError, AttributeError):
        return None
