"""What tests look at inside the package, in one place."""

from collections import deque

from eagerflow.capture import run_order
from eagerflow.codegen import generated
from eagerflow.codegen.cuda import launch as device_launch
from eagerflow.codegen.llvm import launch
from eagerflow.fusion import kernels
from eagerflow.op import ops
from eagerflow.plan import compiled_scans
from eagerflow.plan.segments import Segment
from eagerflow.profiling import memory
from eagerflow.runtime import compilation, measured


def replace_method(monkeypatch, owner, name, make):
    """Put ``make(method)`` in the place of a method, private or not."""
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))


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


def most_helpers(function):
    """The most threads that help with a part of a captured function."""
    return max(getattr(part, "_helpers", 0) for part in parts_of(function))


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


def scan_plans():
    """The cache of the plans of compiled scans."""
    return compiled_scans._plans


def early_messages(transport):
    """The messages of each run that came before they were waited for."""
    return transport._early


def watched_arrays():
    """The memory that a profile watches and that is not given back, by address."""
    return memory._held


def running_turns():
    """The runs that hold Variables now or wait for them."""
    return run_order._turns


def pending_compilations():
    """The compilations that no thread has begun."""
    return compilation._waiting


def forget_statement_counts(monkeypatch):
    """Forget how many statements the kernels of each group would have."""
    monkeypatch.setattr(kernels, "_statement_counts", {})


def generated_calls():
    """The calls of generated code that are kept, by how their arrays lie."""
    return generated._calls


def kernel_cache():
    """The cache on disk of machine code."""
    return launch._disk


def use_kernel_cache(monkeypatch, cache):
    monkeypatch.setattr(launch, "_disk", cache)


def keep_latest_kernels(monkeypatch, count):
    """Keep so many kernels that nothing uses any more, None for all."""
    monkeypatch.setattr(launch, "_latest", deque(maxlen=count))


def forget_device_kernels(monkeypatch):
    monkeypatch.setattr(device_launch, "_ready", {})


class DamagedCache:
    """A cache on disk that has one content for all keys."""

    def __init__(self, content):
        self.content = content

    def load(self, key):
        return self.content

    def store(self, key, content):
        pass


def forget_measurements(monkeypatch, cache=None):
    """Forget what this process has measured, and read another cache on disk if one is given."""
    monkeypatch.setattr(measured, "_known", {})
    if cache is not None:
        monkeypatch.setattr(measured, "_disk", cache)


def free_places(slots):
    """How many sequences, or batches, could begin now."""
    return slots._free
