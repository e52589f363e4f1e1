"""The user's functions as bodies, and what they use and change from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.capture.control.bodies import Body, Inner, as_before
from eagerflow.capture.control.nests import place_of
from eagerflow.capture.leaks import refuse_leaks
from eagerflow.capture.trace import Trace, plain_name
from eagerflow.debugging import NanWatch
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.recorder import Recorder, recorder_state, with_recorder
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable
from eagerflow.visitors import visited

# Without recorders: plain Python ------------------------------------------------------------------


def _forget(entry: Any) -> None:
    """Nothing is recorded."""


class Journal(Recorder):
    """Notes the values that Variables had before they were assigned, and sees nothing else.

    It is no recorder to ops, which take their shortest way, and so is not entered like others.
    """

    def __init__(self, outer: Recorder | None) -> None:
        self.outer = outer
        self.append = _forget if outer is None or outer.append is not None else None
        self._values: dict[int, tuple[Variable, Tensor]] = {}

    def assign(self, variable: Any, value: Any) -> None:
        self._note(variable)
        super().assign(variable, value)

    def exchange(self, variable: Any, old: Any, new: Any) -> bool:
        self._note(variable)
        return self.exchange_below(variable, old, new)

    def _note(self, variable: Any) -> None:
        self._values.setdefault(id(variable), (variable, variable.current))

    def restore(self) -> None:
        """Give all Variables the values that they had."""
        for variable, value in self._values.values():
            variable.current = value


def runs_plainly() -> bool:
    """Whether no recorder needs to see a loop as one op; then Python runs it, step by step.

    So a debugger stops in the body, and prints show values.
    """
    recorder = recorder_state()[1]
    while isinstance(recorder, Journal | NanWatch):
        recorder = recorder.outer
    return recorder is None


def all_or_nothing(f: Callable[..., Any], *args: Any) -> Any:
    """``f(...)``; Variables that it assigns have their values back if an error comes out."""
    journal = Journal(recorder_state()[1])
    with visited():
        try:
            return with_recorder(journal, f, *args)
        except BaseException:
            journal.restore()
            raise


# With recorders: bodies ---------------------------------------------------------------------------


class Traced:
    """A function of the user's as nodes, with the tensors and Variables that it took from outside.

    ``likes`` are tensors like those that it gets, with ``labels`` for them; ``build`` makes the
    arguments of them, and ``finish`` a list of Tensors of what the function returns.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        name: str,
        labels: Sequence[str],
        likes: Sequence[Any],
        build: Callable[[list[Tensor]], tuple[Any, ...]],
        finish: Callable[[Any], list[Tensor]],
    ) -> None:
        self.name = name

        def trace() -> tuple[Trace, Graph]:
            """One run of the function, written down."""
            recorder = Inner(name, lifts=True)
            symbols = []
            for label, x in zip(labels, likes, strict=True):
                value = Value(recorder.unique(plain_name(label)), tuple(x.shape), x.dtype, recorder)
                symbols.append(recorder.symbol(value, x.device))
            inputs = Values([s._array for s in symbols])
            with recorder:
                outputs = tuple(finish(f(*build(symbols))))
            graph = recorder.finish(inputs, outputs)
            del symbols, outputs
            _refuse_leaks(recorder)
            return recorder, graph

        recorder, graph = trace()
        if recorder.made:
            # A first run makes what later ones find, as the weights of a layer.
            for what in recorder.made:
                _tell(what)
            recorder, graph = trace()
        if recorder.made:
            raise CaptureError(
                "it creates persistent state at every call",
                op=name,
                at=place_of(f),
                received=recorder.made[0],
                expected="state that is created once",
                hint="create it outside of the function, and use it there",
            )
        self.inputs = list(graph.inputs)
        self.nodes = graph.nodes
        self.outputs = list(graph.outputs)
        self._unique = recorder.unique
        # What comes from outside, and the Value that stands for it: Tensors, and Variables.
        self.taken: dict[int, tuple[Any, Value]] = dict(recorder.captured)
        self.assigned: dict[int, tuple[Variable, Value]] = {}
        for cell in graph.cells:
            self.taken[id(cell.variable)] = (cell.variable, cell.value)
            if cell.assigned is not None:
                self.assigned[id(cell.variable)] = (cell.variable, cell.assigned)
        recorder.captured.clear()  # the body must not keep what it is given each time
        recorder.cells.clear()

    def body(self, outside: Outside, carries: int | None = None, assigns: bool = True) -> Body:
        """The body: arguments, then what comes from outside; results, then what is assigned.

        Where there are ``carries``, assigned Variables are more of them. With ``assigns=False``
        the results come out alone.
        """
        state = [self._entry(v) for v in outside.assigned]
        others = [self._entry(x) for x in outside.others]
        after = [
            self.assigned[id(v)][1] if id(v) in self.assigned else entry
            for v, entry in zip(outside.assigned, state, strict=True)
        ]
        i, o = (len(self.inputs), len(self.outputs)) if carries is None else (carries, carries)
        inputs = [*self.inputs[:i], *state, *self.inputs[i:], *others]
        outputs = [*self.outputs[:o], *(after if assigns else ()), *self.outputs[o:]]
        return as_before(self.name, inputs, self.nodes, outputs)

    def _entry(self, x: Any) -> Value:
        if id(x) in self.taken:
            return self.taken[id(x)][1]
        return Value(self._unique("unused"), tuple(x.shape), x.dtype)


def _refuse_leaks(recorder: Trace) -> None:
    """Refuse values of a body that are held outside: now, or when a trace around it ends.

    Until then functions that were made on the way may be held by the monitor of the trace.
    """
    outer = recorder_state()[1]
    while outer is not None and not isinstance(outer, Trace):
        outer = outer.outer
    if outer is None:
        refuse_leaks(recorder.name, recorder.leaks())
    else:
        outer._tensors += recorder._tensors
        recorder._tensors.clear()


def _tell(what: str) -> None:
    """Tell recorders of state that was created."""
    recorder = recorder_state()[1]
    if recorder is not None:
        recorder.created(what)


class Outside:
    """What several bodies take from outside: the Variables that they assign, and all else."""

    def __init__(self, *bodies: Traced) -> None:
        assigned = {key: pair[0] for body in bodies for key, pair in body.assigned.items()}
        taken = {key: pair[0] for body in bodies for key, pair in body.taken.items()}
        self.assigned: list[Variable] = list(assigned.values())
        self.others = [x for key, x in taken.items() if key not in assigned]

    @property
    def state(self) -> list[Tensor]:
        """The values that assigned Variables have now."""
        return [v.value for v in self.assigned]

    @property
    def captured(self) -> list[Tensor]:
        """The tensors, and the values that the other Variables have now."""
        return [x.value if isinstance(x, Variable) else x for x in self.others]


def assign(variables: Sequence[Variable], values: Sequence[Tensor]) -> None:
    """Let Variables have what bodies assigned to them."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
