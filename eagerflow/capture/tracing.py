"""One trace of a function: it runs with symbolic arguments, watched, and becomes a graph."""

from __future__ import annotations

from functools import partial
from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.capture.arguments import PLAIN, BoundArguments, home_of, place_of_change, spec_of
from eagerflow.capture.assumptions import NumbersNeededError
from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.capture.guards.ledger import Ledger
from eagerflow.capture.guards.monitor import Monitor
from eagerflow.capture.history import NUMBERS
from eagerflow.capture.leaks import refuse_leaks
from eagerflow.capture.parameters import Parameters
from eagerflow.capture.trace import Trace, located, number, paths, plain_name, spec_input
from eagerflow.dispatch import own_recorder
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.handlers import raised_here
from eagerflow.masks import opened
from eagerflow.runtime.collector import young
from eagerflow.runtime.machine_code import load_ahead
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.visitors import visited


class NoValuesError(Exception):
    """Nothing can be captured: some arguments are symbolic tensors of a model."""


class Traced(NamedTuple):
    """A trace that has ended, its graph, what it relied on, and which leaves are inputs."""

    recorder: Trace
    graph: Graph
    ledger: Ledger
    places: tuple[int, ...]


def traced(parameters: Parameters, given: BoundArguments) -> Traced:
    """The trace of a function for the arguments of a call.

    Raises NoValuesError for symbolic tensors of a model, and CaptureError for a function that
    creates or changes at every call what it reads.
    """
    if own_recorder(given.leaves) is not None:
        raise NoValuesError
    load_ahead()
    automatic = given.specs is not None
    found = FreeSizes(automatic).traced(partial(traced_once, parameters, given))
    if found.recorder.made or found.recorder.is_unwatched or found.ledger.changed() is not None:
        # The first run may create weights and caches for later runs. State that the second run
        # still creates or changes would change at every call.
        again = partial(traced_once, parameters, given, again=True)
        found = FreeSizes(automatic).traced(again)
        _refuse_changes(parameters.name, found.recorder, found.ledger)
    return found


def traced_once(
    parameters: Parameters, given: BoundArguments, free: FreeSizes, again: bool = False
) -> Traced:
    """The trace of one run of the function."""
    recorder = Trace(parameters.name, home_of(given.leaves), free=free, placed=True)
    inputs: list[Value] = []
    made = _symbolic(parameters, given, recorder, inputs)
    places = tuple(i for i, x in enumerate(given.leaves) if made[i] is not x)
    own = tree.unflatten(given.structure, made)
    as_given = tree.flatten(own)
    monitor = Monitor(parameters.python)
    monitor.updates, monitor.on_caught = recorder.updates, recorder.caught
    recorder.updates.caller = traced_once.__code__
    if not again:  # code that creates lasting state runs again, and is watched then
        recorder.on_created = monitor.abandon
    with young(), visited():
        try:
            with monitor, recorder, located():
                result = parameters.python(*own[0], **own[1])
                for variable in recorder.taped.values():  # trainable ones are watched by tapes
                    monitor.rely(f"{variable.name}.trainable", variable, "trainable")
            recorder.refuse_caught()
        except raised_here(Exception) as error:
            if recorder.assumptions.may_cause(error) and not given.literal:
                raise NumbersNeededError from None  # other numbers may not raise it
            cause = error.__cause__
            if type(error) is ValueError and isinstance(cause, CaptureError):
                raise cause from None  # behind NumPy's, as in array[i] = tensor
            raise
        _refuse_changed_arguments(parameters.name, own, as_given, monitor)
        found = [(i, recorder.updates.place(x)) for i, x in enumerate(made)]
        recorder.updated = {i: place for i, place in found if place is not None}
        graph = recorder.finish(Values(inputs), opened(result), given.structure)
        ledger = monitor.ledger()
        recorder.on_created = None
        del result, monitor, own, as_given, made
        refuse_leaks(recorder.name, recorder.leaks())
    return Traced(recorder, graph, ledger, places)


def _symbolic(
    parameters: Parameters, given: BoundArguments, recorder: Trace, inputs: list[Value]
) -> list[Any]:
    """The leaves with which the function runs: symbolic tensors and numbers, and constants."""
    static = parameters.static_leaves(given)
    labels = paths(parameters.labelled(given))
    specs = given.specs or parameters.specs(given.leaves)
    return [
        _argument(recorder, x, plain_name(path), i in static, inputs, spec)
        for i, (x, path, spec) in enumerate(zip(given.leaves, labels, specs, strict=True))
    ]


def _argument(
    recorder: Trace, x: Any, name: str, static: bool, inputs: list[Value], spec: Any
) -> Any:
    if spec is None and isinstance(x, TensorSpec):
        spec = x
    if spec is None and type(x) in PLAIN:
        return x
    if spec is None and type(x) in NUMBERS:
        return x if static else number(recorder, x, name, inputs)
    if spec is None and (type(x) is Tensor or isinstance(x, np.ndarray | np.generic)):
        spec = spec_of(x, x.shape, recorder.device)
    if spec is None:
        return x
    example = None if isinstance(x, TensorSpec) else getattr(x, "shape", None)
    return spec_input(recorder, spec, name, inputs, example)


def _refuse_changed_arguments(
    name: str, own: Any, as_given: tuple[list[Any], tree.Structure], monitor: Monitor
) -> None:
    """Raise CaptureError if the function has changed a list, dict or dataclass it was given."""
    leaves, structure = tree.flatten(own)
    if structure == as_given[1] and not any(map(is_not, leaves, as_given[0])):
        return
    raise CaptureError(
        "the function itself changes a list, dict or dataclass among its arguments",
        op=name,
        at=place_of_change(own, monitor.changed_at),
        expected="arguments that stay as they are: replayed calls would not change them",
        hint="change a copy, list(values) or dict(values), and return it",
    )


def _refuse_changes(name: str, recorder: Trace, ledger: Ledger) -> None:
    if recorder.made:
        raise CaptureError(
            "the function creates persistent state at every call",
            op=name,
            received=recorder.made[0],
            at=recorder.made_at[0],
            hint="create it once, outside or if there is none yet, and keep it in an attribute",
        )
    guard = ledger.changed()
    if guard is not None:
        raise CaptureError(
            f"the function itself changes values that it reads: {guard.change()}",
            op=name,
            hint="keep values that change between calls in an ef.Variable",
        )
