"""Random programs, captured and with free sizes; ``tests/programs`` has other ways to run them.

With ``numerics="fast"`` results are as close to the truth as those of eager, and the same bits in
every run, with 1 or 2 threads. ``-m soak`` takes 5,000 programs.
"""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import EagerflowError
from eagerflow.ops.random import default_generator
from eagerflow.plan.replay import Replay
from eagerflow.runtime import threads
from tests.capture.programs import State, inputs, leaves, program

COUNT = 300
SOAK = 5_000
CALLS = 3


def written(seed):
    """The program of a seed: half of them are smooth, and longer ones are rarer."""
    return program(seed, "smooth" if seed % 2 else "rough", steps=4 + seed % 9)


def values(state):
    """What the state holds: Variables and random numbers to come."""
    return [v.numpy() for v in (*state.variables, state.rng.state, default_generator.state)]


def outcome(f, state, seed, size=3, dtype="float32"):
    """The results of three calls, and the Variables' values afterwards."""
    ef.random.seed(seed)
    found = [leaves(f(*inputs(seed + turn, size, dtype))) for turn in range(CALLS)]
    return [x for turn in found for x in turn] + values(state)


def check_bits(found, wanted, what):
    assert len(found) == len(wanted), f"{what}: {len(found)} results, not {len(wanted)}"
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(b, np.ndarray):
            assert a == b, f"{what}, result {i}: {a!r} instead of {b!r}"
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{what}, result {i}: {a} instead of {b}"
        assert a.tobytes() == b.tobytes(), f"{what}, result {i}: {a} instead of {b}"


def eager(made, seed, **more):
    state = State(seed, more.get("dtype", "float32"))
    return outcome(made.function(state), state, seed, **more)


def captured(made, seed, numerics="fast"):
    state = State(seed, capture=True)
    return outcome(ef.function(made.function(state), numerics=numerics), state, seed)


def graph_and_inputs(made, seed, size):
    """A captured graph of new Variables, and what it takes in each of the calls."""
    ef.random.seed(seed)
    f = ef.function(made.function(State(seed)), numerics="exact")
    given = [f.inputs_of(*inputs(seed + turn, size)) for turn in range(CALLS)]
    return f.graph(*inputs(seed, size)), given


def run_graph(graph, run, given):
    """The outputs of three runs, and the values of the graph's Variables afterwards."""
    found = [x.numpy() for args in given for x in run(args)]
    return found + [v.numpy() for v in graph.variables.values()]


def check_sizes(made, seed):
    """One graph for batches of any size; False where the program needs to know the size."""
    state = State(seed)
    f = ef.function(made.function(state), numerics="exact")
    spec = ef.TensorSpec(("n", 4), "float32")
    ef.random.seed(seed)
    try:
        graph = f.graph(spec, spec, 1.0, 1)
    except EagerflowError as error:
        assert error.at is None or made.file in error.at or "programs.py" in error.at, error
        return False
    before = [c.variable.current for c in graph.cells]
    for size in (3, 5):
        other, given = graph_and_inputs(made, seed, size=size)
        wanted = run_graph(other, Replay(other, "exact").run, given)
        for cell, tensor in zip(graph.cells, before, strict=True):
            cell.variable.current = tensor
        found = run_graph(graph, Replay(graph, "exact").run, given)
        check_bits(found, wanted, f"any size, {size}")
    return True


def is_inexact(x):
    return hasattr(x, "dtype") and ef.dtypes.is_inexact(x.dtype)


def taped(f, state, seed):
    """The results of a call, and the gradients by arguments and Variables."""
    ef.random.seed(seed)
    x, y, scale, k = inputs(seed, 3)
    with ef.GradientTape() as tape:
        tape.watch([x, y])
        found = f(x, y, scale, k)
        real = [t for t in tree.flatten(found)[0] if is_inexact(t)]
        loss = sum((ef.sum(ef.abs(t)).astype("float64") for t in real), ef.sum(x * 0.0))
    grads = tape.gradient(loss, [x, y, state.w, state.b], unconnected="zero")
    return leaves([found, grads])


def check_fast(made, seed):
    """Compiled: the same bits again, with one thread and with two; and no less accurate."""
    before = threads.thread_count()
    try:
        threads.set_thread_count(2)
        found = captured(made, seed)
        threads.set_thread_count(1)
        check_bits(captured(made, seed), found, "fast again, with one thread")
    finally:
        threads.set_thread_count(before)
    if seed % 2 == 0:
        return
    wanted, truth = eager(made, seed), eager(made, seed, dtype="float64")
    for a, b, t in zip(found, wanted, truth, strict=True):
        if not isinstance(b, np.ndarray) or b.dtype.kind != "f":
            continue
        scale = 1.0 + np.abs(t).max(initial=0)
        allowed = 8 * np.abs(b - t).max(initial=0) + 3e-6 * scale
        off = np.abs(a - t).max(initial=0)
        assert off <= allowed, f"fast is {off} off, eager {np.abs(b - t).max()}: {a} for {t}"


def check(seed, all_ways=False):
    """The ways to run one program; whether it runs with any batch size, None if not asked."""
    made = written(seed)
    try:
        check_bits(captured(made, seed, "exact"), eager(made, seed), "captured")
        check_fast(made, seed)
        return check_sizes(made, seed) if all_ways or seed % 3 == 1 else None
    except BaseException as error:
        error.add_note(f"program {seed}:\n{made.text}")
        raise


BATCHES = 20


@pytest.mark.sampled(20)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_programs(batch, capsys):
    count = COUNT // BATCHES
    found = [check(seed) for seed in range(batch * count, (batch + 1) * count)]
    asked = [ran for ran in found if ran is not None]
    with capsys.disabled():
        print(f" {count} programs, {sum(asked)} of {len(asked)} with batches of any size")
    assert sum(asked) > len(asked) // 2, "hardly any program runs with any batch size"


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(50))
def test_many_programs(batch):
    count = SOAK // 50
    for seed in range(COUNT + batch * count, COUNT + (batch + 1) * count):
        check(seed, all_ways=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(1, 60, 2))
def test_gradients_of_calls(seed):
    """A tape around a captured program records one call, and gives the gradients of eager."""
    made = written(seed)
    state = State(seed)
    wanted = taped(made.function(state), state, seed)
    state = State(seed)
    f = ef.function(made.function(state), numerics="exact")
    check_bits(taped(f, state, seed), wanted, f"the gradient of\n{made.text}")
