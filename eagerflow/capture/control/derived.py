"""Graphs derived from bodies: gradients, tangents, and batched versions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from eagerflow.batching import Batching
from eagerflow.capture.control.bodies import Body, Inner, made_once, replay
from eagerflow.capture.control.silence import silent
from eagerflow.devices import Device
from eagerflow.dims import Shape
from eagerflow.dtypes import is_inexact
from eagerflow.forward import Forward
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import needed, substituted
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import add
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.reductions.sums import argmax
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import TensorSpec
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor


def home(args: Sequence[Any]) -> Device | None:
    """The device for a derived graph: that of the first floating-point operand, or of any."""
    tensors = [x for x in args if type(x) is Tensor]
    tensors = [x for x in tensors if is_inexact(x.dtype)] or tensors
    return tensors[0].device if tensors else None


def wanted(x: Any) -> bool:
    """Whether the gradient by an operand may be requested: a tape watches it."""
    return type(x) is Tensor and is_inexact(x.dtype) and x._key is not None


class Writing:
    """A graph under construction: inputs are added, ops called, and outputs named."""

    def __init__(self, name: str, device: Device | None = None) -> None:
        self.trace = Inner(name, device)

    def inputs(self, likes: Sequence[Any], prefix: str = "", lead: Shape = ()) -> list[Tensor]:
        """New inputs of these shapes (with ``lead`` in front) and dtypes, as Tensors."""
        return [self.new((*lead, *x.shape), x.dtype, prefix + x.name) for x in likes]

    def new(self, shape: Shape, dtype: Any, name: str) -> Tensor:
        """One new input."""
        return self.trace.input(TensorSpec(shape, dtype), name)

    def values(self, tensors: Sequence[Tensor]) -> list[Value]:
        """The Values that Tensors stand for."""
        return [self.trace.value_of(t) for t in tensors]

    def body(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Body:
        """The graph from these inputs to these outputs."""
        return Body(self.trace.name, self.values(inputs), self.trace.nodes, self.values(outputs))


# Gradients ----------------------------------------------------------------------------------------


@made_once
def gradients(
    graph: Graph, needed: tuple[bool, ...], forced: tuple[bool, ...], device: Device | None
) -> tuple[Body, tuple[bool, ...]]:
    """The graph from inputs and gradients of the inexact outputs to gradients by inputs.

    It gives the gradients by those ``needed`` on which an output depends, and zeros for other
    ``forced`` ones; also returns which inputs have a gradient. Values of the forward pass are
    recomputed.
    """
    writing = Writing(graph.name, device)
    xs = writing.inputs(graph.inputs)
    gs = writing.inputs([v for v in graph.outputs if is_inexact(v.dtype)], "gradient_")
    watched = [x for x, need in zip(xs, needed, strict=True) if need]
    with writing.trace:
        with GradientTape() as tape:
            tape.watch(watched)
            ys = replay(graph, xs)
        parts = iter(_pulled(tape, ys, watched, gs))
        found = [next(parts) if need else None for need in needed]
        found = [
            zeros_like(x) if g is None and force else g
            for x, g, force in zip(xs, found, forced, strict=True)
        ]
    body = writing.body([*xs, *gs], [g for g in found if g is not None])
    return _without_waste(body), tuple(g is not None for g in found)


def _pulled(
    tape: GradientTape, ys: Sequence[Tensor], xs: list[Tensor], gs: list[Tensor]
) -> list[Any]:
    """Gradients by ``xs`` (None where there is none) from those of the inexact ``ys``."""
    inexact = [y for y in ys if is_inexact(y.dtype)]
    return list(tape.gradient(inexact, xs, gs, unconnected="none"))


def _without_waste(body: Body) -> Body:
    """The same body without nodes whose results are not used, and without prints."""
    new: dict[Value, Value] = {}
    nodes = silent(needed(body.nodes, body.outputs), new)
    return Body(body.name, body.inputs, nodes, [new.get(v, v) for v in body.outputs])


class Halves(NamedTuple):
    """The body of a scan that also returns residuals, and the body of the backward scan.

    ``forward`` goes from carries, slices and captured values to carries, ys and ``residuals``
    more ys. ``backward`` goes from gradients of carries, sums of gradients by captured values,
    gradients of ys, residuals, slices and captured values to gradients of carries, those sums,
    and gradients of slices. The other fields say which carries, slices and captured values have
    a gradient, which ys are inexact, and which slices and captured values the backward scan
    reads, by position; ``needed`` is the request.
    """

    forward: Body
    backward: Body
    carries: list[int]
    slices: list[int]
    captured: list[int]
    ys: list[int]
    residuals: int
    read_slices: list[int]
    read_captured: list[int]
    needed: tuple[bool, ...]


@made_once
def halves(
    graph: Graph,
    carries: int,
    sequences: int,
    needed: tuple[bool, ...],
    rows: tuple[bool, ...],
    device: Device | None,
) -> Halves:
    """The two halves of the gradient of a scan with this body.

    ``needed`` marks the slices and captured values to differentiate by, and ``rows`` the ys
    that have a gradient. The body is run once under a tape: the residuals are the forward values
    that the backward pass uses.
    """
    writing = Writing(graph.name, device)
    inputs = writing.inputs(graph.inputs)
    state, slices = inputs[:carries], inputs[carries : carries + sequences]
    captured = inputs[carries + sequences :]
    asked = (*(True,) * carries, *rows)
    inexact = [i for i, v in enumerate(graph.outputs) if is_inexact(v.dtype) and asked[i]]
    gs = writing.inputs([graph.outputs[i] for i in inexact], "gradient_")
    kept = [i for i, x in enumerate(state) if is_inexact(x.dtype)]
    some = [i for i, need in enumerate(needed) if need]
    with writing.trace:
        with GradientTape() as tape:
            watched = [state[i] for i in kept] + [inputs[carries + i] for i in some]
            tape.watch(watched)
            ys = replay(graph, inputs)
        middle = len(writing.trace.nodes)
        found = _pulled(tape, [ys[i] for i in inexact], watched, gs)
        back = [
            zeros_like(state[i]) if g is None else g
            for i, g in zip(kept, found[: len(kept)], strict=True)
        ]
        rest = [(i, g) for i, g in zip(some, found[len(kept) :], strict=True) if g is not None]
        of_slices = [(i, g) for i, g in rest if i < sequences]
        of_captured = [(i - sequences, g) for i, g in rest if i >= sequences]
        added = [graph.inputs[carries + sequences + i] for i, _ in of_captured]
        totals = writing.inputs(added, "sum_")
        sums = [add(total, g) for total, (_, g) in zip(totals, of_captured, strict=True)]
    outs = writing.values([*back, *sums, *(g for _, g in of_slices)])
    nodes, residuals = cut(
        writing.trace.nodes, middle, outs, set(writing.values(state)), set(writing.values(captured))
    )
    middle_values = [*writing.values(ys), *residuals]
    forward = Body(graph.name, writing.values(inputs), writing.trace.nodes[:middle], middle_values)
    back_inputs = writing.values([*gs[: len(kept)], *totals, *gs[len(kept) :]])
    parts = writing.values(slices), writing.values(captured)
    backward, read = _way_back(graph.name, nodes, back_inputs, residuals, parts, outs)
    return Halves(
        forward,
        backward,
        kept,
        [i for i, _ in of_slices],
        [i for i, _ in of_captured],
        [i - carries for i in inexact if i >= carries],
        len(residuals),
        read[0],
        read[1],
        needed,
    )


def _way_back(
    name: str,
    nodes: list[Node],
    given: list[Value],
    residuals: list[Value],
    parts: Sequence[list[Value]],
    outs: list[Value],
) -> tuple[Body, list[list[int]]]:
    """The body of the backward scan, and which slices and captured values it reads."""
    # Residuals are inputs here, not results of nodes.
    new = {v: Value(v.name, v.shape, v.dtype) for v in residuals}
    entries = list(new.values())
    nodes = substituted(nodes, new)
    used = {v for node in nodes for v in node.values()} | set(outs)
    read = [[i for i, v in enumerate(part) if v in used] for part in parts]
    taken = [part[i] for part, chosen in zip(parts, read, strict=True) for i in chosen]
    results = [new.get(v, v) for v in outs]
    return Body(f"{name}_gradient", [*given, *entries, *taken], nodes, results), read


def cut(
    nodes: list[Node], middle: int, outs: list[Value], state: set[Value], captured: set[Value]
) -> tuple[list[Node], list[Value]]:
    """The nodes of the backward pass, and the forward values that they use.

    Loop invariants are not stored for each step, but recomputed.
    """
    constant = set(captured)
    for node in nodes[:middle]:
        if all(v in constant or v.constant is not None for v in node.values()):
            constant.update(node.outputs)
    back = needed(nodes[middle:], outs)
    used = [v for node in back for v in node.values()] + outs
    invariant = [v for v in used if v in constant and v not in captured]
    again = needed(nodes[:middle], invariant) if invariant else []
    made = {v for node in nodes[:middle] for v in node.outputs} | state
    residuals = list(dict.fromkeys(v for v in used if v in made and v not in constant))
    return [*again, *back], residuals


# Tangents -----------------------------------------------------------------------------------------


class Tangents(NamedTuple):
    """A graph with its derivative, before inputs and outputs are ordered.

    ``moved`` has the tangents of inputs, and ``pushed`` those of outputs, None if zero.
    """

    name: str
    inputs: list[Value]
    moved: list[Value | None]
    nodes: list[Node]
    outputs: list[Value]
    pushed: list[Value | None]


@made_once
def moved(
    graph: Graph, moving: tuple[bool, ...], forced: tuple[bool, ...], device: Device | None
) -> Tangents:
    """The graph together with the tangents of its outputs for tangents of the inputs ``moving``.

    Outputs in ``forced`` always have a tangent.
    """
    writing = Writing(graph.name, device)
    xs = writing.inputs(graph.inputs)
    given = iter(
        writing.inputs([v for v, m in zip(graph.inputs, moving, strict=True) if m], "tangent_")
    )
    tangents = [next(given) if m else None for m in moving]
    with writing.trace:
        with Forward() as forward:
            for x, tangent in zip(xs, tangents, strict=True):
                if tangent is not None:
                    forward.seed(x, tangent, 1)
            ys = replay(graph, xs)
        found = [forward.tangent(y) for y in ys]
        found = [
            zeros_like(y) if t is None and force else t
            for y, t, force in zip(ys, found, forced, strict=True)
        ]
    value_of = writing.trace.value_of
    given_values = [None if t is None else value_of(t) for t in tangents]
    pushed = [None if t is None else value_of(t) for t in found]
    new: dict[Value, Value] = {}
    nodes = silent(writing.trace.nodes, new)
    outputs = [new.get(v, v) for v in writing.values(ys)]
    pushed = [None if v is None else new.get(v, v) for v in pushed]
    return Tangents(graph.name, writing.values(xs), given_values, nodes, outputs, pushed)


def interleaved(
    t: Tangents, operands: Sequence[Any], tangents: Sequence[Any], ends: Sequence[int]
) -> tuple[list[Value], list[Tensor], list[int]]:
    """Inputs of a graph and its derivative, operands for them, and their number in each part.

    Parts end at ``ends``; each has the values first, and then the tangents of those that have one.
    """
    inputs: list[Value] = []
    given: list[Tensor] = []
    counts = []
    for start, end in pairwise((0, *ends)):
        pairs = zip(operands[start:end], tangents[start:end], t.moved[start:end], strict=True)
        own = [(v, zeros_like(x) if dx is None else dx) for x, dx, v in pairs if v is not None]
        inputs += [*t.inputs[start:end], *(v for v, _ in own)]
        given += [*operands[start:end], *(dx for _, dx in own)]
        counts.append(end - start + len(own))
    return inputs, given, counts


# Batches ------------------------------------------------------------------------------------------


@made_once
def batched(
    graph: Graph,
    flags: tuple[bool, ...],
    forced: tuple[bool, ...],
    size: Any,
    device: Device | None,
) -> tuple[Body, tuple[bool, ...]]:
    """The graph for ``size`` examples, stacked along a first axis of the inputs with flags.

    Outputs that depend on them have that axis too, as do ``forced`` ones; also returns
    the flags of the outputs.
    """
    writing = Writing(graph.name, device)
    xs = [
        writing.inputs([v], "", (size,) if flag else ())[0]
        for v, flag in zip(graph.inputs, flags, strict=True)
    ]
    with writing.trace:
        with Batching(size) as level:
            each = [level.wrap(x) if flag else x for x, flag in zip(xs, flags, strict=True)]
            ys = replay(graph, each)
        out = [level.holds(y) for y in ys]
        whole = [
            level.join(y) if held or force else y
            for y, held, force in zip(ys, out, forced, strict=True)
        ]
    flagged = tuple(held or force for held, force in zip(out, forced, strict=True))
    return writing.body(xs, whole), flagged


def by_example(flags: Tensor, x: Tensor) -> Tensor:
    """Flags of examples, reshaped to broadcast with a tensor of examples."""
    found: Tensor = reshape(flags, (*flags.shape, *(1,) * (x.ndim - 1)))
    return found


def of_active(
    active: Tensor, operands: Sequence[Tensor], flags: Sequence[bool], size: Any
) -> list[Tensor]:
    """Operands with inactive examples replaced by copies of the first active one.

    A computation on inactive examples therefore terminates, and raises no errors of its
    own. Operands without flags are the same for all examples.
    """
    if isinstance(size, int) and size == 0:
        return list(operands)
    first = reshape(argmax(active), (1,))
    return [
        where(by_example(active, x), x, take(x, first, axis=0)) if flag else x
        for x, flag in zip(operands, flags, strict=True)
    ]
