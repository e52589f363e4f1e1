"""Running of graphs that may be wrong: by a session, as a plan of either kind, and op by op."""

import signal
from contextlib import contextmanager

import numpy as np

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.errors import EagerflowError
from eagerflow.graph import costs
from eagerflow.graph.run import evaluate
from eagerflow.graph.walk import named_bodies
from eagerflow.plan.replay import Replay

LARGE = 1 << 18  # elements of a value from which on a graph is not run
SIZE = 3  # of a dimension that is known by name
SECONDS = 2.0  # that a run may take; a loop may have no end


class TooLong(BaseException):
    """A run that does not end soon."""


@contextmanager
def limited(seconds=SECONDS):
    """Raises TooLong in calls that take longer."""

    def stop(number, frame):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_small(graph):
    """Whether all values of a graph, and of the bodies in it, fit into little memory."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        values = [*one.all_inputs(), *one.constants, *(v for n in one.nodes for v in n.outputs)]
        if any(isinstance(v.size, int) and v.size > LARGE for v in values):
            return False
        waiting += [body for node in one.nodes for _, body in named_bodies(node.attributes)]
    return True


def fed(graph):
    """Arrays for the inputs of a graph; None for an input that there is no small array for."""
    found = []
    for value in graph.inputs:
        shape = tuple(
            s if type(s) is int else s.evaluate(dict.fromkeys(names(s), SIZE)) for s in value.shape
        )
        if any(s < 0 for s in shape) or np.prod(shape, dtype=float) > LARGE:
            return None
        count = int(np.prod(shape))
        found.append((np.arange(count) % 3).reshape(shape).astype(value.dtype))
    return found


def names(dim):
    return {str(name) for name in costs.names_of(dim)} if isinstance(dim, Dim) else ()


def ways(graph, arrays):
    """How a graph can be run, each with a call."""
    yield (
        "session",
        lambda: ef.capture.Session(graph).run(
            list(graph.outputs), dict(zip(graph.inputs, arrays, strict=True)), targets=graph
        ),
    )
    yield "call", lambda: graph(*arrays)
    yield "exact", lambda: Replay(graph, "exact").run(graph_inputs(graph, arrays))
    yield (
        "op by op",
        lambda: evaluate(
            graph, [*map(ef.asarray, arrays), *(c.variable.value for c in graph.cells)]
        ),
    )


def graph_inputs(graph, arrays):
    return Replay(graph, "exact").checked(arrays)


def untyped(graph):
    """The errors of running a graph that are none of eagerflow's, by way; and how many ran."""
    bad, ran = {}, 0
    arrays = fed(graph) if is_small(graph) else None
    if arrays is None:
        return bad, ran
    for name, call in ways(graph, arrays):
        try:
            with limited():
                call()
            ran += 1
        except (EagerflowError, TooLong):
            pass
        except Exception as error:
            bad[name] = error
    return bad, ran
