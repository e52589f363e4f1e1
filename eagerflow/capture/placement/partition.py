"""Partition: a graph over several devices, with a cost report before and a timeline after a run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from eagerflow.backends.numpy import copied_alike, is_shared
from eagerflow.capture.gradient import find_source
from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import TYPICAL, CostModel, shares_memory
from eagerflow.capture.placement.cutting import Cut, Division, Piece, divide
from eagerflow.capture.placement.executor import FREE, Event, Program, Task
from eagerflow.capture.placement.placement import Placement, as_devices, moved, placed
from eagerflow.capture.placement.report import Comparison, CostReport, cost_report
from eagerflow.capture.placement.timeline import timeline
from eagerflow.devices import Device
from eagerflow.display import html
from eagerflow.errors import ArgumentError, SessionError, printable
from eagerflow.fusion.kernels import FusedKernel
from eagerflow.fusion.lowering import without_inputs
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.sizes import concrete
from eagerflow.graph.text import call_text, line_name, type_text
from eagerflow.graph.walk import renewed
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.plan.part_writes import PartWrite, copied, part_write_of, put_with_parts
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import Replay, call_watched, leaves_of, replay_of
from eagerflow.profiling.trace import write
from eagerflow.recorder import process, recorder_state
from eagerflow.runtime.properties import cached_property
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable, assign_together, read_together

DEFAULT_SIZE = 32  # of a named dimension without a given size
MAX_KEPT_RUNS = 64  # number of runs with stored times


class _Ready(NamedTuple):
    """A graph in pieces for given sizes, and the program of them.

    ``known`` are the arrays of finals that are constants, passed after the entries, and
    ``shared`` the indices of inputs that results may share memory with.
    """

    division: Division
    program: Program
    arrows: list[tuple[int, int, str, int]]
    known: list[Any]
    shared: list[int]


class Partition:
    """A graph over several devices; made by ``ef.capture.partition``.

    ``print(plan)`` shows each device's nodes with Send and Recv and the costs, ``plan.cuts``
    lists values that cross devices, ``plan.explain(node)`` gives the reason for a node's device.
    Called with arguments like the traced function's, or with ``run``, it computes the graph,
    with ``numerics="exact"`` bit for bit. Several threads may run it at once.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> ef.capture.partition(graph, ["cpu:0"]).explain("x")
    'cpu:0: the input x is sent there by default'
    """

    def __init__(
        self,
        graph: Graph,
        devices: Any,
        numerics: str = "fast",
        sizes: dict[str, int] | None = None,
        costs: CostModel | None = None,
    ) -> None:
        self.graph = graph
        self.devices = as_devices(devices)
        self.numerics = numerics
        self._replay: Replay = replay_of(graph, numerics)
        self._given = costs
        names = self._replay._names
        unknown = [name for name in sizes or {} if name not in names]
        if unknown:
            raise ArgumentError(
                f"there is no dimension {unknown[0]!r}",
                op="partition",
                argument="sizes",
                expected="one of " + (", ".join(names) or "none: all sizes are known"),
            )
        self.sizes = {name: (sizes or {}).get(name, DEFAULT_SIZE) for name in names}
        self._assumed = [name for name in names if name not in (sizes or {})]
        self._programs: dict[tuple[int, ...], _Ready] = {}
        self._making = reentrant_lock()
        self._times: deque[tuple[_Ready, float, list[Event]]] = deque(maxlen=MAX_KEPT_RUNS)
        self._last: tuple[_Ready, list[Event]] | None = None
        self._graph = self._concrete(self.sizes)
        self.placement: Placement = placed(self._graph, self.devices, self._model, not self._exact)

    # Construction ----------------------------------------------------------------------------

    @property
    def _exact(self) -> bool:
        return self.numerics == "exact"

    def _concrete(self, sizes: dict[str, int]) -> Graph:
        return _with_free_fills(concrete(self._replay._optimized, sizes))

    @cached_property
    def costs(self) -> CostModel:
        """The cost model: the one given, or one measured on this machine."""
        return calibrate(self.devices) if self._given is None else self._given

    @property
    def _model(self) -> CostModel:
        # With one device there is no choice, and nothing needs to be measured.
        return self.costs if len(self.devices) > 1 else self._given or TYPICAL

    def _ready(self, sizes: dict[str, int]) -> _Ready:
        key = tuple(sizes.values())
        found = self._programs.get(key)
        if found is None:
            with Locked(self._making):
                found = self._programs.get(key)
                if found is None:
                    found = self._programs[key] = self._made(sizes)
        return found

    def _made(self, sizes: dict[str, int]) -> _Ready:
        return _program(self.divided(sizes), self.devices)

    def divided(self, sizes: dict[str, int]) -> Division:
        """The graph in pieces, for these sizes of its named dimensions."""
        graph = self._graph if sizes == self.sizes else self._concrete(sizes)
        placement = self.placement
        if graph is not self._graph:
            placement = moved(placement, self._graph, graph)
        return divide(graph, placement, self._model, self._exact)

    @property
    def _own(self) -> _Ready:
        return self._ready(self.sizes)

    @property
    def division(self) -> Division:
        """The graph in pieces, for the default sizes of the plan."""
        return self._own.division

    # Inspection ------------------------------------------------------------------------------

    @property
    def cuts(self) -> list[Cut]:
        """Values that cross devices: value, source, target and bytes, once for each target."""
        return list(self.division.cuts)

    @property
    def pieces(self) -> list[Piece]:
        """Sequences of nodes of one device without waits in between."""
        return list(self.division.pieces)

    @property
    def partitioned(self) -> Graph:
        """The whole as one graph, with Send and Recv on each edge that crosses devices."""
        return self.division.graph

    @property
    def kernels(self) -> list[FusedKernel]:
        """The regions that have machine code of their own, piece by piece."""
        return [kernel for piece in self.pieces for kernel in piece.plan.kernels]

    @cached_property
    def bill(self) -> CostReport:
        """Pieces, cut bytes, predicted time and peak memory, before anything runs."""
        return cost_report(self._graph, self.division, self.costs, self.devices)

    def device_of(self, node: Any) -> Device:
        """The device of a node, or of a value by name."""
        return self.devices[self._found(node)[0]]

    def explain(self, node: Any) -> str:
        """The reason for a node's device: ``"cpu:1: pinned by ef.device at train.py:12"``.

        ``node`` is a Node, a Value, a Variable, or the name of a node or value. SessionError if it
        is not part of the graph.
        """
        number, words = self._found(node)
        return f"{self.devices[number]}: {words}"

    def _found(self, node: Any) -> tuple[int, str]:
        graph, names = self._replay._optimized, self._node_numbers
        name = node.name if isinstance(node, Node) else node
        if not isinstance(node, Node) and not (isinstance(name, str) and name in names):
            value = find_source(self.graph, node)
            if value.node is None:
                return self._entry(value)
            name = value.node.name
        if name in names:
            number = names[name]
            return self.placement.nodes[number], self.placement.reasons[number]
        if any(own.name == name for own in self.graph.nodes):
            words = "it is not computed: passes have merged it with another, or nothing needs it"
            return self.placement.default, words
        raise SessionError(
            f"{graph.name} has no node {name!r}",
            op="explain",
            hint="print(plan.graph) lists all names",
        )

    @cached_property
    def _node_numbers(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self._replay._optimized.nodes)}

    def _entry(self, value: Value) -> tuple[int, str]:
        if value.constant is not None:
            return self.placement.default, f"{value.name} is a constant: each device has it"
        number = next(k for v, k in self.placement.inputs.items() if v.name == value.name)
        if any(cell.value.name == value.name for cell in self.graph.cells):
            return number, f"the Variable {value.name} is there"
        if value.device is not None:
            return number, f"the input {value.name} is declared there"
        return number, f"the input {value.name} is sent there by default"

    def source(self) -> str:
        """The programs of all pieces as text, with the user's line beside each step."""
        parts = []
        for piece in self.pieces:
            waits = ", ".join(map(str, piece.after))
            after = f", after {waits}" if waits else ""
            parts.append(f"# piece {piece.number} on {piece.device}{after}\n{piece.plan.source()}")
        return "\n".join(parts)

    def __str__(self) -> str:
        listed = [printable(x) for x in [*_listing(self), "", "bill"]]
        return "\n".join([*listed, str(self.bill), *self._notes()])

    def _notes(self) -> list[str]:
        if not self.sizes:
            return []
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        assumed = f" ({', '.join(self._assumed)} assumed)" if self._assumed else ""
        return [f"  for {sizes}{assumed}"]

    def _repr_html_(self) -> str:
        return html(self, "partitions")

    def __repr__(self) -> str:
        places = ", ".join(map(str, self.devices))
        name = printable(self.graph.name)
        return f"<Partition of {name} over {places}: {len(self.pieces)} pieces>"

    # Running ---------------------------------------------------------------------------------

    def checked(self, inputs: Sequence[Any]) -> list[Any]:
        """``inputs`` in the form for ``run``; ShapeError or DTypeError if they do not fit."""
        return self._replay.checked(inputs)

    def run(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The outputs for these Tensors or arrays; afterwards the Variables have their new values.

        ``inputs`` must fit the graph's inputs: they are not checked. If a node fails, no further
        work starts, the Variables keep their values, and the error names the line.
        """
        cells = self.graph.cells
        tensors = read_together([cell.variable for cell in cells])
        arrays = [x._array if type(x) is Tensor else x for x in inputs]
        arrays += [t._array for t in tensors]
        ready = self._ready(self.sizes_of(arrays))
        for i in ready.shared:  # callers may change their arrays later
            if type(inputs[i]) is not Tensor or is_shared(arrays[i]):
                arrays[i] = copied_alike(arrays[i])
        self._receive(arrays)
        begin = perf_counter()
        found, events = ready.program.run([*arrays, *[copied_alike(a) for a in ready.known]])
        self._times.append((ready, perf_counter() - begin, events))
        self._last = ready, events
        places = ready.division.output_devices
        made = [
            new_tensor(array, place.kind(value.dtype))
            for array, place, value in zip(found, places, self.graph.outputs, strict=False)
        ]
        assigned = [cell.variable for cell in cells if cell.assigned is not None]
        count = len(made)
        del arrays, tensors  # only the Variables may refer to values overwritten in place
        _assign(assigned, found[count:], places[count:])
        return made

    def sizes_of(self, arrays: Sequence[Any]) -> dict[str, int]:
        """The sizes of the graph's named dimensions in the arrays of its entries."""
        return self._replay.sizes(arrays) if self.sizes else self.sizes

    def _receive(self, arrays: list[Any]) -> None:
        """Move the entries to their planned devices."""
        for i, k in enumerate(self.placement.inputs.values()):
            place = self.devices[k]
            backend = place.backend
            if type(arrays[i]) is not backend.array_type or not backend.host:
                arrays[i] = backend.receive(arrays[i], place.index)

    def __call__(self, *args: Any) -> Any:
        """The results for arguments like the traced function's, in the nest of its result.

        Raises ArgumentError, ShapeError or DTypeError for arguments that do not fit. Under a tape
        the graph is recorded node by node, on the devices of the arguments.
        """
        inputs = self.checked(leaves_of(self.graph, args))
        if process.recorders and recorder_state()[1] is not None:
            return self.graph.nest(call_watched(self.graph, inputs))
        return self.graph.nest(self.run(inputs))

    # Afterwards ------------------------------------------------------------------------------

    def _last_run(self, op: str, hint: str) -> tuple[_Ready, list[Event]]:
        if self._last is None:
            raise SessionError("nothing has run yet", op=op, hint=hint)
        return self._last

    def compare(self) -> Comparison:
        """Predicted and measured times, of each piece and of the whole.

        The first run, with cold memory and code, is excluded
        if there are others. SessionError before a run.
        """
        ready, _ = self._last_run("compare", "plan(*args) a few times")
        runs = [(seconds, events) for own, seconds, events in self._times if own is ready]
        runs = runs[1:] or runs
        taken: dict[int, list[float]] = {}
        for _, events in runs:
            for event in events:
                taken.setdefault(event.task, []).append(event.end - event.begin)
        pieces = [
            (f"piece {p.number} on {p.device}", p.seconds(self.costs), median(taken[p.number]))
            for p in ready.division.pieces
            if p.number in taken
        ]
        whole = median(seconds for seconds, _ in runs)
        return Comparison(pieces, self.bill.seconds, whole, len(runs))

    def timeline(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The last run as a Chrome trace, written to ``path`` if that is given.

        One row for each device, with arrows for sent values. SessionError before a run.
        """
        ready, events = self._last_run("timeline", "plan(*args) first")
        found = timeline(ready.program, events, ready.arrows)
        if path is not None:
            write(found, path)
        return found


def _assign(variables: Sequence[Variable], values: Sequence[Any], places: Sequence[Device]) -> None:
    """Assign new values, or pending partial writes, to Variables in one commit."""
    new = dict(zip(variables, zip(values, places, strict=True), strict=True))
    parts = {v: x for v, (x, _) in new.items() if type(x) is PartWrite}
    whole = [v for v in new if v not in parts]
    if parts and recorder_state()[1] is None:
        tensors = [v.own(v.fitted(_as_held(v, *new[v]))) for v in whole]
        if not put_with_parts(whole, tensors, parts):
            return
    assign_together({v: _as_held(v, copied(x), place) for v, (x, place) in new.items()})


def _as_held(variable: Variable, array: Any, place: Device) -> Tensor:
    """A new value of a Variable: on its own device, if that needs no copy."""
    kind = variable.current._kind
    return new_tensor(array, kind if shares_memory(place, kind.device) else place.kind(kind.dtype))


def _with_free_fills(graph: Graph) -> Graph:
    """The graph with ones and zeros that do not depend on the array of their shape.

    A kernel may compute that array and also read the ones: each would wait for the other.
    """
    new: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        if node.op.fills and node.inputs:
            made = without_inputs(node)
            made.outputs = tuple([v.like(made) for v in node.outputs])
            new.update(zip(node.outputs, made.outputs, strict=True))
        else:
            made = renewed(node, new)
        nodes.append(made)
    return graph.like(nodes, new) if new else graph


def _program(division: Division, devices: Sequence[Device]) -> _Ready:
    """The tasks of a graph in pieces: the pieces, and transfers between separate memories."""
    numbers = {str(d): d for d in devices}
    same: dict[Value, Value] = {}  # by received value: the value with its memory
    transfers = []
    for cut in division.cuts:
        place = numbers[cut.target]
        if shares_memory(numbers[cut.source], place):
            same[cut.arrived] = cut.given
        else:
            call = partial(_received, place)
            label = f"transfer of {cut.value}"
            ends = (cut.given,), (cut.arrived,)
            transfers.append(Task(label, place, call, *ends, FREE, float("inf"), transfer=True))
    pieces = [
        piece_task(
            piece,
            tuple([same.get(v, v) for v in piece.graph.inputs]),
            tuple(piece.graph.outputs),
        )
        for piece in division.pieces
    ]
    finals = division.graph.all_outputs()
    known = [v for v in finals if v.constant is not None]
    program = Program(
        [*pieces, *transfers],
        [*division.graph.all_inputs(), *known],
        [same.get(v, v) for v in finals],
    )
    readers = {v: p.number for p in reversed(division.pieces) for v in p.graph.inputs}
    arrows = [
        (program.makers[cut.given], readers[cut.arrived], cut.value, cut.bytes)
        for cut in division.cuts
        if cut.given in program.makers and cut.arrived in readers
    ]
    lifetimes = Lifetimes(division.graph.nodes, division.graph.all_inputs(), finals)
    inputs = enumerate(division.graph.inputs)
    shared = [i for i, v in inputs if lifetimes.root(v) in lifetimes.leaving]
    return _Ready(division, program, arrows, [v.constant._array for v in known], shared)


def piece_task(piece: Piece, inputs: tuple[Hashable, ...], outputs: tuple[Hashable, ...]) -> Task:
    """A piece as a task of a program, with these values as its inputs and outputs.

    The task of a late piece returns a PartWrite, if this machine supports it.
    """
    names = dict(zip(piece.graph.outputs, outputs, strict=True))
    published = set(piece.published)
    at_end = [i for i, v in enumerate(piece.graph.outputs) if v not in published]
    late = part_write_of(piece.graph) if piece.late else None
    return Task(
        f"piece {piece.number}",
        piece.device,
        late or partial(_run, piece.plan, at_end),
        inputs,
        tuple([outputs[i] for i in at_end]),
        piece.mode,
        piece.priority,
        nodes=tuple([node.name for node in piece.nodes]),
        published=tuple([names[v] for v in piece.published]),
    )


def _run(plan: Plan, at_end: Sequence[int], arrays: Sequence[Any]) -> Sequence[Any]:
    """The results of a piece that are returned at its end, without published ones."""
    found = plan.run(arrays)  # replaced by another method during a profile
    return found if len(at_end) == len(found) else [found[i] for i in at_end]


def _received(place: Device, arrays: Sequence[Any]) -> list[Any]:
    """Copies of arrays on a device."""
    return [place.backend.receive(x, place.index) for x in arrays]


# Text --------------------------------------------------------------------------------------------


def _listing(plan: Partition) -> list[str]:
    """Each device with its entries, its pieces, and the values that it sends and receives."""
    division = plan.division
    graph = division.graph
    lines = [f"partition of {graph.name} over {', '.join(map(str, plan.devices))}"]
    sends: dict[Node | None, list[Node]] = {}
    for one in division.cuts:
        sends.setdefault(one.given.node, []).append(one.sent)
    received = {one.arrived: one.received for one in division.cuts}
    for k, place in enumerate(plan.devices):
        lines += ["", str(place)]
        for title, values in (
            ("inputs", graph.inputs),
            ("variables", [cell.value for cell in graph.cells]),
        ):
            here = [f"{v.name}: {type_text(v)}" for v in values if division.places[v] == k]
            if here:
                lines.append(f"  {title} {', '.join(here)}")
        rows = [_row(n) for n in sends.get(None, ()) if n.device == str(place)]
        seen: set[Value] = set()
        for piece in (p for p in division.pieces if p.device is place):
            after = f", after {', '.join(map(str, piece.after))}" if piece.after else ""
            rows.append(f"  piece {piece.number}{after}")
            for v in piece.graph.inputs:
                if v in received and v not in seen:
                    seen.add(v)
                    rows.append(_row(received[v]))
            for node in piece.nodes:
                rows.append(_row(node))
                rows += [_row(n) for n in sends.get(node, ())]
        late = [
            v
            for v in graph.all_outputs()
            if v in received and v not in seen and received[v].device == str(place)
        ]
        rows += [_row(received[v]) for v in dict.fromkeys(late)]
        lines += _aligned(rows)
        lines += _ends(graph, division, k)
    return lines


def _row(node: Node) -> str:
    made = ", ".join(f"{v.name}: {type_text(v)}" for v in node.outputs)
    call = call_text(node).removesuffix(f" on {node.device}")
    source = node.source
    where = "" if source is None else f"\0{line_name(source)}"
    return f"    {made} = {call}{where}"


def _aligned(rows: list[str]) -> list[str]:
    """Lines with the texts after a mark aligned."""
    width = min(max((len(r.partition("\0")[0]) for r in rows if "\0" in r), default=0), 88)
    found = []
    for row in rows:
        left, _, where = row.partition("\0")
        found.append(f"{left:<{width}}  # {where}" if where else left)
    return found


def _ends(graph: Graph, division: Division, k: int) -> list[str]:
    """The values that leave a device: results, and new values of Variables."""
    found = []
    for name, v in zip(graph.outputs.names, graph.outputs, strict=True):
        if division.places.get(v, 0) == k:
            found.append(f"  return {name} = {v.name}")
    for cell in graph.cells:
        if cell.assigned is not None and division.places[cell.value] == k:
            found.append(f"  assign {cell.name} = {cell.assigned.name}")
    return found


def partition(
    graph: Graph,
    devices: Any,
    *,
    numerics: str = "fast",
    sizes: dict[str, int] | None = None,
    costs: CostModel | None = None,
) -> Partition:
    """A graph over several devices, placed by pins, by locality, and by cost.

    ``devices`` are devices or their names; ``numerics`` is as for ``ef.function``: with
    ``"exact"`` results have the bits of the unpartitioned graph; ``sizes`` are numbers for named
    dimensions that the placement is made for (32 by default); ``costs`` is a
    CostModel, measured on this machine if not given. Raises PlacementError for pins that cannot
    be satisfied.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> plan = ef.capture.partition(graph, ["cpu:0"])
    >>> plan(ef.zeros((3,)))
    Tensor([0., 0., 0.], float32, cpu:0)
    """
    return Partition(graph, devices, numerics, sizes, costs)
