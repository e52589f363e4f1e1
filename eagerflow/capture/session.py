"""Session: runs parts of graphs by name, and keeps the Variables that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import TracebackType
from typing import Any, NamedTuple, Self

from eagerflow import tree
from eagerflow.capture.placement.partition import partition
from eagerflow.capture.run_order import Turn, written_by
from eagerflow.display import summary
from eagerflow.errors import SessionError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import values_by_name
from eagerflow.graph.walk import as_inputs, substituted
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.masks import masks_among, masks_of_inputs, with_mask
from eagerflow.plan.replay import Replay, check_inputs, lost_mask
from eagerflow.tensor import known_masks, mask_of
from eagerflow.variable import Variable

SHOWN = 12  # number of names in an error


class Part(NamedTuple):
    """The computation of one combination of fetches, feeds and targets."""

    run: Any  # a Replay, or a partition of the graph
    graph: Graph
    written: frozenset[Variable]  # by a run that takes no turn itself


class Asked(NamedTuple):
    """The request of one run; a part is made once for each."""

    wanted: tuple[Value, ...]
    given: tuple[tuple[Value, ...], ...]  # the values for each feed
    goals: tuple[Value, ...]
    graphs: tuple[Graph, ...]  # with all Variables assigned
    names: tuple[str, ...]  # names of Variables to assign


class _Tables:
    """A session's tables of its graphs; replaced as a whole by a new one."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        # If an input and an output share a name, a fetch or target is the output, a feed the input.
        self.names: dict[str, list[Value]] = {}
        self.feeds: dict[str, list[Value]] = {}
        self.order: dict[Node, int] = {}
        self.cells: dict[Value, Cell] = {}  # by their values on entry
        self.inputs: dict[Value, str] = {}
        self.masks: dict[Value, Value] = {}  # of results that have one
        self.taken_masks: dict[Value, Value] = {}  # of inputs
        self.variables: dict[str, Variable] = {}
        self.parts: dict[Any, Part] = {}

    def extended(
        self, graph: Graph, names: dict[Cell, str], variables: dict[str, Variable]
    ) -> _Tables:
        """The same and one more graph, with names for its cells among all Variables."""
        made = _Tables()
        made.parts = self.parts  # computed parts stay valid
        made.graphs = [*self.graphs, graph]
        made.order = self.order.copy()
        for node in graph.nodes:
            made.order.setdefault(node, len(made.order))
        made.variables = variables
        made.cells = self.cells.copy()
        for cell in graph.cells:
            own = Cell(names[cell], variables[names[cell]], cell.value)
            own.assigned = cell.assigned
            made.cells[cell.value] = own
        made.inputs = self.inputs | dict(zip(graph.inputs, graph.inputs.names, strict=True))
        made.masks = self.masks | masks_among(graph.results, graph.structure)
        made.taken_masks = self.taken_masks | masks_of_inputs(graph)
        label = self._label(graph)
        made.names = _with_names(self.names, label, values_by_name(graph))
        made.feeds = _with_names(self.feeds, label, values_by_name(graph, True))
        return made

    def named(self, argument: str) -> dict[str, list[Value]]:
        """The values by name, for this argument of ``run``."""
        return self.feeds if argument == "feeds" else self.names

    def _label(self, graph: Graph) -> str:
        """The prefix for names of a graph: its own name, numbered if another graph has it."""
        taken = {name.partition(":")[0] for name in self.names if ":" in name}
        label, number = graph.name, 0
        while label in taken and graph not in self.graphs:
            number += 1
            label = f"{graph.name}_{number}"
        return label


def _with_names(
    known: dict[str, list[Value]], label: str, more: dict[str, Value]
) -> dict[str, list[Value]]:
    """A table of values by name, with those of one more graph, also as ``label:name``."""
    found = {name: values.copy() for name, values in known.items()}
    for name, value in more.items():
        for own in (name, f"{label}:{name}"):
            values = found.setdefault(own, [])
            if value not in values:
                values.append(value)
    return found


class Session:
    """Runs graphs by name: computes only the fetched values, from the fed ones.

    If an input and an output of a graph share a name, a fetch means the output, and a feed
    the input.

    ``graph`` is the first graph, if there is one yet; ``devices`` are names of devices to spread
    the work over. With a ``cluster`` these are devices of its tasks, all of them if none are
    named; Variables then live in tasks, and ``variables`` and the end of the session fetch
    their values, and ``transfer="bfloat16"`` halves the bytes sent between tasks. ``numerics`` is
    as for ``ef.function``. A session starts empty and can be extended at any time. Variables of
    one name are one Variable in all of its graphs: that of the first graph, with its
    value at that time. They persist from run to run, intermediate values do not. Several
    threads may run a session.

    >>> w = ef.Variable([2.0, 3.0], name="w")
    >>> graph = ef.capture.trace(lambda x: {"y": x * w}, ef.TensorSpec((2,), "float32"))
    >>> with ef.capture.Session(graph) as session:
    ...     session.run("y", feeds={"x": [1.0, 10.0]})
    Tensor([ 2., 30.], float32, cpu:0)
    """

    def __init__(
        self,
        graph: Graph | None = None,
        devices: Sequence[Any] | None = None,
        *,
        cluster: Any = None,
        numerics: str = "fast",
        transfer: str | None = None,
    ) -> None:
        self.devices = None if devices is None else tuple(devices)
        self.cluster, self.numerics, self.transfer = cluster, numerics, transfer
        self._tables = _Tables()
        self._lock = reentrant_lock()
        self._open = True
        if graph is not None:
            self.extend(graph)

    # Graphs and Variables ----------------------------------------------------------------------

    def extend(self, graph: Graph) -> None:
        """Add a graph, also after runs; nodes that it shares with earlier ones stay the same.

        Variables with new names start with their current values. Raises SessionError if the
        existing Variable of a name has another shape or dtype, and when the session is closed;
        nothing is added then.
        """
        with Locked(self._lock):
            self._check_open("extend")
            names = {c: self._name_of(c) for c in graph.cells}
            variables = self._tables.variables.copy()
            for c, name in names.items():
                variables[name] = self._variable(c, variables.get(name))
            self._tables = self._tables.extended(graph, names, variables)

    def _name_of(self, cell: Cell) -> str:
        """The name of a graph's Variable here: generators keep separate states."""
        name, number = cell.name, 0
        if _is_random_state(cell):
            while self._tables.variables.get(name, cell.variable) is not cell.variable:
                number += 1
                name = f"{cell.name}_{number}"
        return name

    def _variable(self, cell: Cell, known: Variable | None) -> Variable:
        if known is None:
            found: Variable = cell.variable
            return found
        if (known.shape, known.dtype) != (cell.value.shape, cell.value.dtype):
            raise SessionError(
                f"there is a different Variable {cell.name!r} already",
                op="Session.extend",
                received=str(cell.value.spec),
                expected=summary(known),
                hint="give one of them another name",
            )
        return known

    @property
    def graphs(self) -> list[Graph]:
        """The graphs, in the order in which they came."""
        return list(self._tables.graphs)

    @property
    def variables(self) -> dict[str, Variable]:
        """The Variables of all graphs, by name, with their current values.

        TaskLostError if a failed task of a cluster held the newest value of one.
        """
        found = dict(self._tables.variables)
        if self.cluster is not None:
            self.cluster.pull(list(found.values()))
        return found

    # Running -----------------------------------------------------------------------------------

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None, targets: Any = ()) -> Any:
        """The values of ``fetches``, in their nest, as Tensors.

        ``fetches`` are names, Values or Variables, or nests of them; a name used by several graphs
        is written as ``graph:name``. ``feeds`` gives values for inputs, or for any other value,
        which is then not computed. ``targets`` are run for their effect: ``"w/assign"`` assigns
        the new value of the Variable ``w``, a Graph all of its Variables; other names are computed
        and dropped. Fetching ``"w/assign"`` assigns too. Random state that a run uses is
        advanced. Raises SessionError for names that do not exist or are ambiguous, and for inputs
        that are needed and not fed, ShapeError or DTypeError for feeds that do not fit; nothing is
        changed then.

        >>> n = ef.Variable(0, name="n")
        >>> graph = ef.capture.trace(lambda k: {"after": n.assign_add(k) * 1}, ef.tensor(1))
        >>> session = ef.capture.Session(graph)
        >>> session.run(["n", "after"], {"k": 5}), session.run("n", {"k": 5}, targets="n/assign")
        ([Tensor(0, int64, cpu:0), Tensor(5, int64, cpu:0)], Tensor(0, int64, cpu:0))
        >>> session.variables["n"].numpy().item()
        5
        """
        self._check_open("run")
        leaves, structure = tree.flatten(fetches)
        wanted = [self._value(x, "fetches") for x in leaves]
        masks = self._tables.masks
        masked = [i for i, v in enumerate(wanted) if v in masks] if masks else []
        wanted += [masks[wanted[i]] for i in masked]
        given = {self._fed(key): value for key, value in (feeds or {}).items()}
        if given and known_masks:
            given = self._masks_fed(given) | given
        asked = self._asked(leaves, wanted, given, targets)
        part = self._part(asked)
        flat = [value for keys, value in given.items() for _ in keys]
        inputs = check_inputs(part.graph, flat)
        if part.written:
            with Turn(part.written):
                found = part.run.run(inputs)
        else:
            found = part.run.run(inputs)
        for i, mask in zip(masked, found[len(leaves) :], strict=False):
            found[i] = with_mask(found[i], mask)
        return tree.unflatten(structure, found[: len(leaves)])

    def _asked(
        self, fetches: Sequence[Any], wanted: Iterable[Value], given: Any, targets: Any
    ) -> Asked:
        listed = [targets] if isinstance(targets, str | Value | Graph) else list(targets)
        graphs = tuple([x for x in listed if isinstance(x, Graph)])
        others = [x for x in listed if not isinstance(x, Graph)]
        goals = tuple([self._value(x, "targets") for x in others])
        names = [x for x in (*fetches, *others) if isinstance(x, str) and x.endswith("/assign")]
        return Asked(tuple(wanted), tuple(given), goals, graphs, tuple(names))

    def _effects(self, asked: Asked) -> list[Cell]:
        """The Variables that a run assigns: all of graphs, else those of ``"w/assign"``.

        Requesting a computed value under another name also assigns the Variables it is assigned to.
        A Variable's or input's value on entry may be assigned to others, and is only a value.
        """
        whole = {c.value for graph in asked.graphs for c in graph.cells}
        named = {v for name in asked.names for v in self._tables.names[name]}
        computed = {v for v in (*asked.wanted, *asked.goals) if v.node is not None} - named

        def is_named(cell: Cell) -> bool:
            own = f"{cell.name}/assign"
            return any(x == own or x.endswith(f":{own}") for x in asked.names)

        return [
            cell
            for cell in self._tables.cells.values()
            if cell.assigned is not None
            and (
                cell.value in whole
                or cell.assigned in computed
                or (cell.assigned in named and is_named(cell))
            )
        ]

    def _value(self, name: Any, argument: str) -> Value:
        tables = self._tables
        found = self._find(name, argument)
        if len(found) > 1:
            labels = [
                key
                for key, values in tables.named(argument).items()
                if ":" in key
                and len(values) == 1
                and values[0] in found
                and key.endswith(f":{name}")
            ]
            raise SessionError(
                f"{name!r} is a name in several graphs",
                op="Session.run",
                argument=argument,
                expected="one of " + ", ".join(labels),
            )
        return found[0]

    def _fed(self, name: Any) -> tuple[Value, ...]:
        """The values for a feed: all inputs of that name, or one other value."""
        found = self._find(name, "feeds")
        inputs = tuple(v for v in found if v in self._tables.inputs)
        return inputs or (self._value(name, "feeds"),)

    def _masks_fed(self, given: dict[tuple[Value, ...], Any]) -> dict[tuple[Value, ...], Any]:
        """Masks of feeds, by the inputs that take them; ArgumentError if there is none."""
        masks = self._tables.taken_masks
        found: dict[tuple[Value, ...], Any] = {}
        fed = {v for values in given for v in values}
        for values, x in given.items():
            if mask_of(x) is None:
                continue
            for v in values:
                if v not in masks:
                    raise lost_mask("Session.run", self._tables.inputs.get(v, v.name), x)
                if masks[v] not in fed:
                    found[(masks[v],)] = mask_of(x)
        return found

    def _find(self, name: Any, argument: str) -> list[Value]:
        tables = self._tables
        if isinstance(name, Value):
            known = name.constant is not None if name.node is None else name.node in tables.order
            if known or name in tables.inputs or name in tables.cells:
                return [name]
            raise SessionError(
                f"{name.name!r} is a value of a graph that this session does not have",
                op="Session.run",
                argument=argument,
                hint="session.extend(graph)",
            )
        if isinstance(name, Variable):
            name = next((n for n, v in tables.variables.items() if v is name), name.name)
        found = tables.named(argument).get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, Graph):
            raise SessionError(
                "a graph is not one value",
                op="Session.run",
                argument=argument,
                received=repr(name),
                expected="names or Values",
                hint=f"{list(name.outputs.names)} for its outputs; targets=graph for its Variables",
            )
        if found is None:
            close = get_close_matches(str(name), tables.names, 3)
            raise SessionError(
                f"there is no value named {name!r}",
                op="Session.run",
                argument=argument,
                expected="one of " + ", ".join(self._main_names()[:SHOWN])
                if tables.graphs
                else "a graph first: session.extend(graph)",
                hint=" or ".join(close or tables.inputs.values()) or None,
            )
        cells = {id(tables.cells[v].variable): v for v in found if v in tables.cells}
        return list(cells.values()) if len(cells) == 1 and len(found) > 1 else found

    def _main_names(self) -> list[str]:
        """All names, those of outputs, inputs and Variables first."""
        outputs = [name for graph in self._tables.graphs for name in graph.outputs.names]
        first = [*outputs, *self._tables.inputs.values(), *self._tables.variables]
        return list(dict.fromkeys([*first, *(n for n in self._tables.names if ":" not in n)]))

    def _part(self, asked: Asked) -> Part:
        key: tuple[Any, ...] = asked
        if self.cluster is not None:
            key = *key, self.cluster.membership
        found = self._tables.parts.get(key)
        if found is None:
            with Locked(self._lock):
                found = self._tables.parts.get(key)
                if found is None:
                    found = self._tables.parts[key] = self._make(asked)
        return found

    def _make(self, asked: Asked) -> Part:
        tables = self._tables
        fed = [v for values in asked.given for v in values]
        effects = self._effects(asked)
        assigned = [cell.assigned for cell in effects if cell.assigned is not None]
        nodes, entries = self._needed([*asked.wanted, *asked.goals, *assigned], set(fed))
        cells = self._used_cells(entries, effects, set(fed))
        missing = [v for v in entries if v in tables.inputs and v not in fed]
        if missing:
            user = next((n for n in nodes if missing[0] in n.inputs), None)
            raise SessionError(
                f"the input {tables.inputs[missing[0]]!r} is needed and not fed",
                op="Session.run",
                argument="feeds",
                expected=str(missing[0].spec),
                at=None if user is None else user.place,
                hint=f"feeds={{{tables.inputs[missing[0]]!r}: ...}}",
            )
        names = [tables.inputs.get(v, v.name) for v in fed]
        outputs = Values([*asked.wanted, *(g for g in asked.goals if g not in assigned)])
        new = as_inputs(fed)
        graph = Graph(
            "Session.run",
            Values(fed, names).replaced(new),
            substituted(nodes, new),
            outputs.replaced(new),
            [cell.replaced(new) for cell in cells],
        )
        written = frozenset() if self.cluster is not None else written_by(cells)
        return Part(self._runner(graph), graph, written)

    def _runner(self, graph: Graph) -> Any:
        if self.cluster is not None:
            return self.cluster.partition(graph, self.devices, self.numerics, self.transfer)
        if self.devices is not None:
            return partition(graph, self.devices, numerics=self.numerics)
        return Replay(graph, self.numerics)

    def _needed(self, goals: Iterable[Value], fed: set[Value]) -> tuple[list[Node], list[Value]]:
        """The nodes needed for ``goals``, in their order, and the values from outside.

        A draw of random numbers needs the advanced state as well.
        """
        nodes: dict[Node, None] = {}
        entries: dict[Value, None] = {}
        waiting = list(goals)
        while waiting:
            value = waiting.pop()
            if value in entries or value.constant is not None:
                continue
            if value in fed or value.node is None:
                entries[value] = None
                cell = self._tables.cells.get(value)
                if cell is not None and cell.assigned is not None and _is_random_state(cell):
                    waiting.append(cell.assigned)
            elif value.node not in nodes:
                nodes[value.node] = None
                waiting.extend(value.node.values())
        return sorted(nodes, key=self._tables.order.__getitem__), list(entries)

    def _used_cells(
        self, entries: Iterable[Value], effects: list[Cell], fed: set[Value]
    ) -> list[Cell]:
        """The Variables that are read or assigned; one that is fed is not read."""
        known = self._tables.cells
        read = [known[value] for value in entries if value in known and value not in fed]
        found: dict[Value, Cell] = {}
        for cell in (*read, *effects):
            if cell.value in found:
                continue
            entry = cell.value
            if entry in fed:
                entry = Value(entry.name, entry.shape, entry.dtype)
            own = found[cell.value] = Cell(cell.name, cell.variable, entry)
            if cell in effects or _is_random_state(cell):
                own.assigned = cell.assigned
        return list(found.values())

    # Closing -----------------------------------------------------------------------------------

    def _check_open(self, how: str) -> None:
        if not self._open:
            raise SessionError(f"the session is closed, so it cannot {how}", op="Session")

    def close(self) -> None:
        """Release graphs, plans and Variables; later runs raise SessionError."""
        with Locked(self._lock):
            tables, self._tables, self._open = self._tables, _Tables(), False
        variables = list(tables.variables.values())
        with Turn(frozenset(variables)):  # after runs that have started
            if self.cluster is not None and self.cluster.is_open:
                self.cluster.pull(variables)

    def __enter__(self) -> Self:
        self._check_open("be entered")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        tables = self._tables
        if not self._open:
            return "<Session, closed>"
        return f"<Session of {len(tables.graphs)} graphs, {len(tables.variables)} Variables>"


def _is_random_state(cell: Cell) -> bool:
    """Whether a Variable is the state of a random generator."""
    return bool(cell.variable.is_random_state)
