"""User functions as bodies, with the outside values that they read and assign."""

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
    """Records the values of Variables before they are assigned, and nothing else.

    Ops do not treat it as a recorder and take their shortest path, so it is not entered as one.
    """

    def __init__(self, outer: Recorder | None) -> None:
        self.outer = outer
        self.append = _forget if outer is None else outer.append
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
        """Restore the recorded values of all Variables."""
        for variable, value in self._values.values():
            variable.current = value


def runs_plainly() -> bool:
    """Whether no recorder needs a loop as one op, so that Python may run it step by step.

    Debuggers then stop in the body, and prints show values.
    """
    recorder = recorder_state()[1]
    while isinstance(recorder, Journal | NanWatch):
        recorder = recorder.outer
    return recorder is None


def all_or_nothing(f: Callable[..., Any], *args: Any) -> Any:
    """``f(...)``; the Variables that it assigns are restored if it raises an error."""
    journal = Journal(recorder_state()[1])
    with visited():
        try:
            return with_recorder(journal, f, *args)
        except BaseException:
            journal.restore()
            raise


# With recorders: bodies ---------------------------------------------------------------------------


class Traced:
    """A traced user function: its nodes, and the tensors and Variables that it captures.

    ``likes`` are tensors like its inputs, with ``labels`` for them; ``build`` makes the
    arguments from them, and ``finish`` turns the result of the function into a list of Tensors.
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
            """One traced run of the function."""
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
            # The first run creates state that later runs reuse, such as the weights of a layer.
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
        # Captured Tensors and Variables, with the Values that stand for them.
        self.taken: dict[int, tuple[Any, Value]] = dict(recorder.captured)
        self.assigned: dict[int, tuple[Variable, Value]] = {}
        for cell in graph.cells:
            self.taken[id(cell.variable)] = (cell.variable, cell.value)
            if cell.assigned is not None:
                self.assigned[id(cell.variable)] = (cell.variable, cell.assigned)
        recorder.captured.clear()  # the body must not keep values passed at each call
        recorder.cells.clear()

    def body(self, outside: Outside, carries: int | None = None, assigns: bool = True) -> Body:
        """The body: arguments, then captured values; results, then assigned values.

        With ``carries``, assigned Variables are additional carries. With ``assigns=False``
        only the results are returned.
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
    """Reject values of a body that are held outside: now, or when an enclosing trace ends.

    Until then the monitor of the trace may hold functions created meanwhile.
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
    """Notify recorders of created state."""
    recorder = recorder_state()[1]
    if recorder is not None:
        recorder.created(what)


class Outside:
    """The values that several bodies take from outside: assigned Variables, and all others."""

    def __init__(self, *bodies: Traced) -> None:
        assigned = {key: pair[0] for body in bodies for key, pair in body.assigned.items()}
        taken = {key: pair[0] for body in bodies for key, pair in body.taken.items()}
        self.assigned: list[Variable] = list(assigned.values())
        self.others = [x for key, x in taken.items() if key not in assigned]

    @property
    def state(self) -> list[Tensor]:
        """The current values of assigned Variables."""
        return [v.value for v in self.assigned]

    @property
    def captured(self) -> list[Tensor]:
        """The tensors, and the current values of the other Variables."""
        return [x.value if isinstance(x, Variable) else x for x in self.others]


def assign(variables: Sequence[Variable], values: Sequence[Tensor]) -> None:
    """Assign the results of bodies to Variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
