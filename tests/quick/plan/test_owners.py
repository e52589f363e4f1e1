"""Steps write over a value only where nothing else can see it, whatever a program does between."""

import contextlib
import copy
import ctypes
import pickle
import signal
import threading
import time
from multiprocessing import shared_memory

import numpy as np
import pytest

import eagerflow as ef
from tests.internals import array_in

SIZE = 40_000  # float32: more than variable.MIN_OWNED_BYTES


def values(seed=0, size=SIZE):
    return np.random.default_rng(seed).standard_normal(size).astype("float32")


class Program:
    """A step of Adam on some Variables, in one of the ways in which a user may write it."""

    def __init__(self, captured, variables):
        self.variables = variables
        self.optimizer = ef.nn.optimizers.Adam(1e-2)

        def step(x):
            with ef.GradientTape() as tape:
                loss = sum(ef.sum(v * v * x) for v in variables)
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        self.step = ef.function(step) if captured else step
        self.x = ef.tensor(values(99) ** 2)


def two(make):
    """The same program captured, and eager."""
    return [Program(captured, make()) for captured in (True, False)]


def check_alike(programs, between, steps=8):
    """Step both, call ``between`` on each between steps, and compare; what it gives never changes.

    ``between(program, number)`` gives arrays or Tensors, which are held.
    """
    held = [[], []]
    for number in range(steps):
        losses = [float(p.step(p.x)) for p in programs]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for own, program in zip(held, programs, strict=True):
            own += [(x, np.array(x)) for x in between(program, number)]
        for own in held:
            for x, was in own:
                np.testing.assert_array_equal(np.asarray(x), was)
        for a, b in zip(programs[0].variables, programs[1].variables, strict=True):
            # The marks of owners stay as they are.
            one, other = (array_in(v) for v in (a, b))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def one_variable():
    return [ef.Variable(values())]


def two_variables():
    return [ef.Variable(values(1)), ef.Variable(values(2))]


def exchange(program, number):
    a, b = program.variables
    first, second = a.value, b.value
    a.assign(second)
    b.assign(first)
    return []


def share(program, number):
    a, b = program.variables
    if number % 3 == 0:
        b.assign(a)
    return [a.numpy()] if number == 3 else []


def copies(program, number):
    a = program.variables[0]
    made = copy.deepcopy(a), ef.Variable(a), pickle.loads(pickle.dumps(a)), copy.copy(a)
    return [v.numpy() for v in made]


def some_rows(program, number):
    return [v.value[10:20] for v in program.variables] + [v[::7] for v in program.variables]


HABITS = {
    "nothing": lambda p, n: [],
    "numpy": lambda p, n: [v.numpy() for v in p.variables],
    "value": lambda p, n: [v.value for v in p.variables],
    "value at times": lambda p, n: [v.value for v in p.variables] if n % 3 else [],
    "dlpack": lambda p, n: [np.from_dlpack(v.value) for v in p.variables],
    "memoryview": lambda p, n: [memoryview(v.numpy()) for v in p.variables],
    "asarray": lambda p, n: [np.asarray(v) for v in p.variables],
    "rows": some_rows,
    "copies": copies,
    "loss": lambda p, n: [p.step(p.x)],
    "assign itself": lambda p, n: [v.assign(v.value).numpy() for v in p.variables],
    "evaluate": lambda p, n: [ef.function(lambda: [v * 2 for v in p.variables])()[0]],
    "give out": lambda p, n: ef.function(lambda: [v.value for v in p.variables])(),
}


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("make", [one_variable, two_variables])
def test_values_held_between_steps_never_change(make, habit):
    check_alike(two(make), HABITS[habit])


@pytest.mark.parametrize("habit", [exchange, share])
def test_values_may_change_places(habit):
    check_alike(two(two_variables), habit)


def test_step_results_do_not_depend_on_held_values():
    plain, held = (Program(True, one_variable()) for _ in range(2))
    losses = [float(plain.step(plain.x)) for _ in range(12)]
    kept, found = [], []
    for _ in range(12):
        found.append(float(held.step(held.x)))
        kept.append(held.variables[0].numpy())
    assert found == losses
    assert len({x.ctypes.data for x in kept}) == 12


TWINS = {
    "deepcopy": copy.deepcopy,
    "Variable": ef.Variable,
    "assign": lambda a: ef.Variable(np.zeros(SIZE, "f4")).assign(a),
    "value": lambda a: ef.Variable(a.value),
    "asarray": lambda a: ef.Variable(ef.asarray(a.numpy())),
}


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("twin", TWINS)
def test_twins_go_their_own_ways(twin, numerics):
    a = ef.Variable(np.zeros(SIZE, "float32"))
    b = TWINS[twin](a)

    @ef.function(numerics=numerics)
    def step():
        a.assign(a * 2 + 1)
        b.assign(b * 3 + 1)

    for wanted in ((1, 1), (3, 4), (7, 13)):
        step()
        assert (float(a[5]), float(b[-1])) == wanted
    for wanted in ((15, 40), (31, 121)):
        step()
        assert (array_in(a)[5], array_in(b)[-1]) == wanted


def foreign(kind, tmp_path):
    """A writable array in memory of something else, and that thing."""
    data = values(5)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        tensor = torch.from_numpy(data.copy()).clone()
        return ef.from_dlpack(tensor), tensor.numpy()
    if kind == "memmap":
        data.tofile(tmp_path / "numbers")
        mapped = np.memmap(tmp_path / "numbers", "float32", "r+")
        return ef.asarray(mapped), np.memmap(tmp_path / "numbers", "float32", "r")
    if kind == "shared memory":
        block = shared_memory.SharedMemory(create=True, size=data.nbytes)
        _blocks.append(block)  # NumPy does not keep it
        found = np.ndarray(data.shape, "float32", block.buf)
        found[:] = data
        return ef.asarray(found), found
    if kind == "bytearray":
        memory = bytearray(data.tobytes())
        return ef.asarray(np.frombuffer(memory, "float32")), np.frombuffer(memory, "float32")
    if kind == "ctypes":
        memory = (ctypes.c_float * SIZE)(*data)
        return ef.asarray(np.ctypeslib.as_array(memory)), np.ctypeslib.as_array(memory)
    if kind == "pickle":
        buffers = []
        text = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
        memory = [bytearray(x.raw()) for x in buffers]
        return tuple(ef.asarray(pickle.loads(text, buffers=memory)) for _ in range(2))
    array = data.copy()
    return ef.asarray(array), array


_blocks = []


@pytest.fixture(autouse=True)
def blocks_given_back():
    yield
    while _blocks:
        _blocks.pop().unlink()


FOREIGN = ("numpy", "torch", "memmap", "shared memory", "bytearray", "ctypes", "pickle")


@pytest.mark.parametrize("kind", FOREIGN)
def test_memory_of_others_is_never_written(kind, tmp_path):
    given, outside = foreign(kind, tmp_path)
    before = np.array(outside)
    v = ef.Variable(np.zeros(SIZE, "float32"))
    program = Program(True, [v])
    program.step(program.x)
    v.assign(given)
    del given
    for _ in range(4):
        program.step(program.x)
        np.testing.assert_array_equal(np.asarray(outside), before)
    w = ef.Variable(ef.asarray(outside))
    other = Program(True, [w])
    for _ in range(4):
        other.step(other.x)
    np.testing.assert_array_equal(np.asarray(outside), before)


@pytest.mark.parametrize("kind", FOREIGN)
def test_rows_of_foreign_tables_are_never_written(kind, tmp_path):
    given, outside = foreign(kind, tmp_path)
    before = np.array(outside)
    table = ef.Variable(ef.reshape(given, (-1, 8)))
    del given
    ids = ef.tensor([1, 5, 7])
    optimizer = ef.nn.optimizers.SGD(0.5)
    for number in range(4):
        with ef.GradientTape() as tape:
            rows = ef.embedding_lookup(table, ids, sparse_gradient=True)
            loss = (rows * rows).sum()
        optimizer.apply([tape.gradient(loss, table)], [table])
        np.testing.assert_array_equal(np.asarray(outside), before)
        if number:
            np.testing.assert_allclose(table.numpy()[0], before[:8])
    assert np.all(table.numpy()[[1, 5, 7]] == 0)


class Stage:
    """One large Variable that a captured step adds one to."""

    def __init__(self):
        self.v = v = ef.Variable(np.zeros(SIZE, "float32"))
        self.w = ef.Variable(np.zeros(SIZE, "float32"))

        def step(x):
            v.assign(v + x)
            return v.value[:3] * 1.0

        self.step = ef.function(step)
        self.one = ef.tensor(1.0)
        self.step(self.one)


def _all_alike(held):
    return all(x.min() == x.max() == was for x, was in held)


def check_held(act, seconds=1.0):
    """Step while ``act(stage)`` is called by another thread; what that held never changes."""
    stage, held, over = Stage(), [], threading.Event()

    def look():
        while not over.is_set():
            for array in act(stage):
                held.append((array, float(array[7])))
                if len(held) > 60:
                    assert _all_alike(held)
                    held.clear()

    errors = []

    def guarded():
        try:
            look()
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=guarded)
    other.start()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        stage.step(stage.one)
    over.set()
    other.join()
    assert not errors
    assert _all_alike(held)


def read_and_assign(stage):
    held = stage.v.numpy()
    stage.w.assign(stage.v)
    stage.v.assign(stage.w)
    return [held]


def read_alone(stage):
    return [stage.v.numpy()]


def step_too(stage):
    stage.step(stage.one)
    return [stage.v.numpy()]


def evaluate(stage):
    found = ef.function(lambda: stage.v + 0.0)()
    return [found.numpy()]


@pytest.mark.parametrize("act", [read_and_assign, read_alone, step_too, evaluate])
def test_values_held_by_other_threads_never_change(act):
    check_held(act)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX has timers")
@pytest.mark.parametrize("act", [read_and_assign, read_alone, step_too])
def test_values_held_by_signal_handlers_never_change(act):
    stage, held, count = Stage(), [], [0]

    def handle(signum, frame):
        count[0] += 1
        for array in act(stage):
            held.append((array, float(array[7])))

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 2e-3, 2e-3)
    try:
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end and count[0] < 300:
            stage.step(stage.one)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count[0] > 20
    assert _all_alike(held)


def test_a_failed_step_leaves_the_next_one_right():
    v = ef.Variable(np.zeros(SIZE, "float32"))

    @ef.function
    def step(i):
        v.assign(v + ef.take(ef.ones(4), i))

    step(ef.tensor(1))
    for _ in range(3):
        with contextlib.suppress(ef.errors.IndexRangeError):
            step(ef.tensor(7))
        held = v.value
        was = held.numpy().copy()
        step(ef.tensor(2))
        np.testing.assert_array_equal(held.numpy(), was)
    assert np.all(v.numpy() == 4)


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_carries_that_a_scan_passes_on_have_memory_of_their_own(numerics):
    def f(start, rows):
        with ef.GradientTape() as tape:
            tape.watch(rows)
            end, squares = ef.scan(lambda c, x: (c, x * x), start, rows)
            loss = squares.sum()
        return end, tape.gradient(loss, rows)

    start, rows = np.arange(SIZE, dtype="float32"), np.ones((3, 4), "float32")
    captured = ef.function(f, numerics=numerics)
    for _ in range(2):
        end, gradient = captured(start, rows)
        assert not np.may_share_memory(end.numpy(), start)
        np.testing.assert_array_equal(end.numpy(), start)
        np.testing.assert_array_equal(gradient.numpy(), 2 * rows)
