"""What tests look at inside the package, in one place."""

from eagerflow.op import ops
from eagerflow.plan.segments import Segment


def array_of(tensor):
    """The array that a tensor holds, or the symbol of its recorder; nothing counts as read."""
    return tensor._array


def value_in(variable):
    """The tensor in a Variable; looking at it does not mark the value as shared."""
    return variable._current


def array_in(variable):
    """The array of such a tensor."""
    return array_of(value_in(variable))


def op_table():
    """The ops that are registered by now, by name; tests add their own and take them away."""
    return ops._ops


def entries_of(function):
    """The entries of a captured function, one for each graph."""
    return list(function._entries.items.values())


def plans_of(function):
    """The plans of all graphs of a captured function."""
    return [plan for entry in entries_of(function) for plan in entry.replay.plans.items.values()]


def program_of(plan):
    """The program that a plan runs: its lines, and the objects that they refer to."""
    return plan._program


def segments_of(plan):
    """The segments of machine code in a plan."""
    return [x for x in program_of(plan).globals.values() if isinstance(x, Segment)]


def layouts_of(segment):
    """The layouts of a segment that no run uses now."""
    return segment._free


def parts_of(function):
    """The parts of all segments of a captured function's plans."""
    segments = [s for plan in plans_of(function) for s in segments_of(plan)]
    return [part for s in segments for layout in layouts_of(s) for part in layout.parts]


def graph_of(partition):
    """The graph that a partition cuts into pieces, with known sizes."""
    return partition._graph


def program_in(partition):
    """The tasks of a partition, with which it runs for its default sizes."""
    return partition._own.program


def last_run_of(partition):
    """What a partition ran last, and the events of that."""
    return partition._last


def recorded_in(tape):
    """The calls that a tape has recorded."""
    return tape._entries


def hosts_of(cluster):
    """The hosts that a cluster has started its tasks on."""
    return cluster._hosts


def server_of(cluster, name):
    """The server of a task of a cluster that is in this process."""
    return hosts_of(cluster).server(cluster.task(name))


def end_steps(strategy):
    """Wait for all steps of asynchronous training, and change no Variable."""
    strategy._end()
