"""Segments of plans on GPUs that are recorded: on a look-alike, on CuPy where there is a GPU."""

import gc
import shutil
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends import cuda_graphs
from eagerflow.backends.cupy import CupyBackend
from eagerflow.codegen.cuda import launch
from eagerflow.devices import current_device
from eagerflow.errors import EagerflowError
from eagerflow.fusion.groups import fuse
from eagerflow.plan.device_buffers import MAX_BLOCKS, Renewal
from eagerflow.plan.device_segments import DeviceSegment
from eagerflow.plan.plan import Plan
from tests.backends.lookalike import Lookalike
from tests.backends.lookalike_streams import Misuse
from tests.backends.test_cupy_plans import close, network, numbers, perceptron, source
from tests.internals import array_of, forget_device_kernels, program_of
from tests.interrupts import at_every_bytecode

nn = ef.nn

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """What was loaded for another test's look-alike is not ready for this one."""
    forget_device_kernels(monkeypatch)


@pytest.fixture
def lookalike(gpus):
    if not isinstance(gpus, Lookalike):
        pytest.skip("about the look-alike")
    return gpus


def launches(gpus):
    """How many graphs were launched since the last question; unknown on a GPU."""
    if not isinstance(gpus, Lookalike):
        return None
    found, gpus.graph_launches = gpus.graph_launches, 0
    return found


def training(make, steps, capture, each=lambda model: None):
    """Losses and weights of steps with other data each, and what ``each`` gives behind them."""
    ef.random.seed(3)
    model, shape = make()
    rng = np.random.default_rng(5)
    found = []
    with ef.device("gpu:1"):
        model(numbers(shape))
        rule = nn.optimizers.Adam(0.01)

        def step(x, labels, scale):
            with ef.GradientTape() as tape:
                logits = model(x, training=True)
                loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, labels)) * scale
            weights = model.trainable_variables
            rule.apply(tape.gradient(loss, weights), weights)
            return loss

        run = ef.function(step) if capture else step
        losses = []
        for number in range(steps):
            x = ef.tensor(rng.standard_normal(shape).astype("float32"), device="gpu:1")
            labels = ef.tensor(rng.integers(0, 7, shape[0]), device="gpu:1")
            losses.append(run(x, labels, 1.0 + number / 8))
            found.append(each(model))
    values = [float(loss) for loss in losses]
    return values, [w.numpy() for w in model.trainable_variables], found, run


def same(one, other):
    np.testing.assert_allclose(one[0], other[0], 1e-4)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, 2e-3, 2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("make", [perceptron, network])
def test_steps_with_other_data_each_are_recorded(make, gpus):
    """Data, a number that is an argument, and a generator's state are other ones in each step."""
    expected = training(make, 9, False)
    launches(gpus)
    found = training(make, 9, True)
    same(found, expected)
    if isinstance(gpus, Lookalike) and make is perceptron:
        # New and old values take turns: two combinations of addresses, each seen first, then kept.
        # What the library makes between the segments of a network lies anywhere.
        assert launches(gpus) >= 5
    assert len(set(found[0])) == 9


def test_values_that_are_held_stay_as_they_are(gpus):
    def weights(model):
        return [w.value for w in model.trainable_variables]

    expected = training(perceptron, 8, False, weights)
    found = training(perceptron, 8, True, weights)
    same(found, expected)
    for ours, theirs in zip(found[2], expected[2], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 2e-3, 2e-5)


def test_views_hold_the_memory_of_a_value(gpus):
    w = ef.Variable(numbers((6, 4)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x) * 2.0
        w.assign(w.value * 0.5 + y)
        return ef.exp(y.sum(axis=0)) + 1.0

    captured, x = ef.function(step), numbers((6, 4), seed=1)
    seen, expected = [], []
    for _ in range(7):
        expected.append(w.numpy() * 0.5 + np.tanh(x.numpy()) * 2)
        captured(x)
        with ef.device("gpu:1"):
            seen.append(w.value[1:, ::2])  # the value itself is not held
    for part, whole in zip(seen, expected, strict=True):
        np.testing.assert_allclose(part.numpy(), whole[1:, ::2], 1e-5, 1e-6)


def two_steps(x):
    y = ef.tanh(x) * 2.0
    return ef.softmax(y + 1.0), ef.exp(y.sum(axis=0)) + 1.0, ef.flip(x, axis=0) * 2.0


def recorded(function, *given, calls=4):
    """A captured function that was called until its steps are recorded."""
    captured = ef.function(function)
    for _ in range(calls):
        captured(*given)
    return captured


def test_results_are_the_callers_own(gpus):
    captured, given = ef.function(two_steps), [numbers((5, 7), seed=i) for i in range(6)]
    found = [captured(x) for x in given]
    for x, results in zip(given, found, strict=True):
        close(results, two_steps(x))
    assert launches(gpus) in (None, 5)


def test_arguments_that_lie_otherwise(gpus):
    captured = recorded(two_steps, numbers((5, 7)))
    with ef.device("gpu:1"):
        turned, part = numbers((7, 5), seed=1).T, numbers((9, 9), seed=2)[2:7, 1:8]
    for x in (turned, part, numbers((5, 7), seed=3)):
        close(captured(x), two_steps(x))


def test_variables_that_are_assigned_elsewhere(gpus):
    w = ef.Variable(numbers((3, 4)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x * w.value) + 1.0
        w.assign_sub(ef.exp(y) * 0.01)
        return ef.exp(y.sum(axis=0)) + 1.0

    x, captured = numbers((3, 4), seed=1), ef.function(step)
    expected = w.numpy()
    for number in range(12):
        if number in (3, 6, 7):  # memory of the user's, and one of another order
            value = numbers((4, 3), seed=number)
            with ef.device("gpu:1"):
                w.assign(value.T if number == 6 else value.reshape((3, 4)))
            expected = w.numpy()
        captured(x)
        expected = expected - np.exp(np.tanh(x.numpy() * expected) + 1) * np.float32(0.01)
        np.testing.assert_allclose(w.numpy(), expected, 1e-5, 1e-6)
    assert launches(gpus) != 0


def test_shapes_and_devices_take_turns(gpus):
    captured = ef.function(two_steps)
    cases = [((5, 7), "gpu:1"), ((5, 7), "gpu:0"), ((4, 3), "gpu:0")]
    for number in range(5):
        for shape, place in cases:
            x = numbers(shape, place, number)
            close(captured(x), two_steps(x))


def test_streams_take_turns(gpus):
    captured, x = recorded(two_steps, numbers((5, 7))), numbers((5, 7), seed=4)
    with array_of(x).device:
        other = gpus.cuda.Stream(non_blocking=True)
    for _ in range(3):
        with array_of(x).device, other:
            ours = captured(x)
            gpus.cuda.Device(array_of(x).device.id).synchronize()
        close(captured(x), ours)
    if isinstance(gpus, Lookalike):
        gpus.synchronized.clear()
        captured(x)
        assert not gpus.synchronized, "the stream is the one of the last call"
        with array_of(x).device, other:
            captured(x)
        assert gpus.synchronized, "memory of the plan is perhaps in use on the other stream"


def test_runs_at_the_same_time_have_memory_of_their_own(gpus):
    """As of two threads that call at once: here, memory of two runs is taken in turn."""
    w = ef.Variable(numbers((3, 4)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x * w.value) + 1.0
        w.assign_sub(ef.exp(y) * 0.01)
        return ef.exp(y.sum(axis=0)) + 1.0

    captured, expected = ef.function(step), w.numpy()
    captured(numbers((3, 4), seed=20))
    with ef.device("gpu:1"):
        frames = captured.graphs[-1].plan()._frames
    held = frames.pop()
    for number in range(16):
        x = numbers((3, 4), seed=20 + number)
        expected = w.numpy() if not number else expected
        found = captured(x)
        y = np.tanh(x.numpy() * expected) + 1
        np.testing.assert_allclose(found.numpy(), np.exp(y.sum(axis=0)) + 1, 1e-4)
        expected = expected - np.exp(y) * np.float32(0.01)
        np.testing.assert_allclose(w.numpy(), expected, 1e-4, 1e-6)
        frames.append(held)
        held = frames.pop(0)
    assert launches(gpus) != 0


def test_released_plans_let_go_of_recordings(gpus):
    captured = recorded(two_steps, x := numbers((5, 7)))
    launches(gpus)
    with ef.device("gpu:1"):
        plan = captured.graphs[-1].plan()
    segments = [x for x in program_of(plan).globals.values() if isinstance(x, DeviceSegment)]
    recordings = lambda: [segment._recordings for segment in segments]
    assert any(recordings())
    plan.release()
    assert not any(recordings())
    close(captured(x), two_steps(x))


def test_published_values_do_not_share_memory_with_the_plan(gpus):
    """It is kept by others while the plan goes on, and runs again."""
    captured = recorded(two_steps, x := numbers((5, 7)))
    graph = captured.graphs[-1]
    outputs = list(graph.all_outputs())
    runs = []
    with ef.device("gpu:1"):
        plan, plain = Plan(graph, fuse, current_device(), False, outputs), graph.plan()
        for factor in (1.0, 2.0, 3.0):
            arrays, told = [array_of(x * factor)], {}
            found = plan.run([told.__setitem__, *arrays])
            runs.append((told, found, plain.run(arrays)))
        for told, found, expected in runs:  # those of early runs too, now that others have followed
            assert sorted(told) == list(range(len(outputs)))
            for i, b in enumerate(expected):
                a = ef.tensor(told[i]).numpy()
                np.testing.assert_array_equal(a, ef.tensor(found[i]).numpy())
                np.testing.assert_allclose(a, ef.tensor(b).numpy(), 1e-5)


def test_profiles_are_of_steps(gpus):
    captured = recorded(two_steps, x := numbers((5, 7)))
    with ef.device("gpu:1"):
        profile = captured.graphs[-1].plan().profile([array_of(x)])
    names = {row.name for row in profile.by("op")}
    assert len(names) >= 3 and "flip" in str(names), "steps of a segment, and the library's"


# What cannot be recorded ----------------------------------------------------------------------


def product(x):
    y = ef.tanh(x) * 2.0
    z = y @ x
    return ef.exp(z) + 1.0, ef.tanh(z) - y


def test_libraries_that_cannot_be_recorded_are_called_between(lookalike):
    captured, x = recorded(product, numbers((5, 5))), numbers((5, 5), seed=1)
    launches(lookalike)
    close(captured(x), product(x))
    assert launches(lookalike) == 2, "before the product, and behind it"
    assert "_segment((tanh_multiply, matmul, " in source(captured)


def test_a_recording_that_fails_at_its_end(lookalike, monkeypatch):
    original = cuda_graphs.CudaGraph

    class Failing(original):
        def __init__(self, cupy, work):
            super().__init__(cupy, work)
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr("eagerflow.backends.cupy.CudaGraph", Failing)
    captured, x = recorded(two_steps, numbers((5, 7))), numbers((5, 7), seed=1)
    close(captured(x), two_steps(x))
    assert launches(lookalike) == 0


def test_an_interrupt_while_recording_leaves_all_as_it_was(lookalike, monkeypatch):
    w = ef.Variable(numbers((5, 5)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x @ w.value) + 1.0
        w.assign_sub(ef.exp(y) * 0.01)
        return y.sum()

    captured, x = ef.function(step), numbers((5, 5), seed=1)
    begun, original = [], lookalike.streams.__class__.recording.fget

    def recording(self):
        found = original(self)
        if found is not None and len(begun) < 1:
            begun.append(self.current)
            raise KeyboardInterrupt
        return found

    captured(x)
    captured(x)
    before = w.numpy()
    monkeypatch.setattr(lookalike.streams.__class__, "recording", property(recording))
    interrupted = 0
    for _ in range(4):
        try:
            captured(x)
        except KeyboardInterrupt:
            interrupted += 1
            np.testing.assert_array_equal(w.numpy(), before)
            assert not begun[0].is_capturing()
            assert lookalike.cuda.get_current_stream().ptr == 0
            assert lookalike.thread.allocator is None
        expected = before
        before = w.numpy()
    assert interrupted == 1
    value = np.exp(np.tanh(x.numpy() @ expected) + 1) * np.float32(0.01)
    np.testing.assert_allclose(before, expected - value, 1e-5, 1e-6)
    assert launches(lookalike) > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("warm", [0, 3, 6], ids=["launching", "recording", "replaying"])
def test_an_exception_at_any_bytecode_leaves_no_half_step(warm, lookalike, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)  # those in finalizers
    weights = [ef.Variable(np.zeros((3, 4), "float32"), device="gpu:1") for _ in range(3)]

    def step(x):
        y = ef.exp(x * 0.0)
        for w in weights:
            w.assign(w.value + y)
        return ef.tanh(y.sum(axis=0)) * 2.0

    captured, x = ef.function(step), numbers((3, 4))

    def seen():
        found = np.array([w.numpy() for w in weights])
        assert found.min() == found.max(), "a half step"
        return float(found.min())

    def check():
        assert lookalike.cuda.get_current_stream().ptr == 0
        assert lookalike.thread.allocator is None
        assert seen() in (before[-1], before[-1] + 1)
        for _ in range(max(warm, 1)):
            before.append(seen())
            np.testing.assert_allclose(captured(x).numpy(), np.full(4, np.tanh(3) * 2), 1e-5)
            assert seen() == before[-1] + 1
        before.append(seen())

    before = [0.0]
    check()
    launches(lookalike)
    assert at_every_bytecode(lambda: captured(x), check, step=17) > 50
    assert launches(lookalike) > 0 or not warm


def test_an_error_in_a_recorded_step_names_the_line(lookalike, monkeypatch):
    captured = ef.function(two_steps)
    captured(numbers((5, 7)))

    def broken(self, device, inputs, outputs):
        raise ValueError("planted")

    monkeypatch.setattr(launch.CudaCall, "__call__", broken)
    with pytest.raises(EagerflowError, match="planted") as caught:
        captured(numbers((5, 7)))
    assert "test_recordings.py" in caught.value.at


# Planted bugs ---------------------------------------------------------------------------------


def test_a_stale_address_is_found(lookalike, monkeypatch):
    """A recording that is launched for other arrays than its own writes where nothing is any more,
    or what is there is another value."""
    key = DeviceSegment.key
    monkeypatch.setattr(DeviceSegment, "key", lambda self, rows: key(self, rows) and 1)
    w = ef.Variable(numbers((30, 40)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x * w.value) + 1.0
        w.assign_sub(ef.exp(y) * 0.01)
        return ef.exp(y.sum(axis=0)) + 1.0

    x, captured = numbers((30, 40), seed=1), ef.function(step)
    with pytest.raises(AssertionError):
        expected = w.numpy()
        for _ in range(6):
            captured(x)
            expected = expected - np.exp(np.tanh(x.numpy() * expected) + 1) * np.float32(0.01)
            np.testing.assert_allclose(w.numpy(), expected, 1e-4)


def test_reuse_of_held_memory_is_detected(lookalike, monkeypatch):
    monkeypatch.setattr("eagerflow.plan.device_buffers.ref", lambda array: lambda: None)
    w = ef.Variable(numbers((3, 4)), name="w", device="gpu:1")

    def step(x):
        y = ef.tanh(x * w.value) + 1.0
        w.assign_sub(ef.exp(y) * 0.01)
        return ef.exp(y.sum(axis=0)) + 1.0

    captured, held = ef.function(step), []
    for _ in range(3):
        captured(numbers((3, 4), seed=1))
        held.append((w.value, w.numpy()))
    with pytest.raises(AssertionError):
        for value, then in held:
            np.testing.assert_array_equal(value.numpy(), then)


def test_arguments_that_are_not_copied_are_found(lookalike, monkeypatch):
    monkeypatch.setattr(CupyBackend, "store", lambda self, array, values: None)
    captured = recorded(two_steps, numbers((5, 7)))
    with pytest.raises(AssertionError):
        close(captured(numbers((5, 7), seed=1)), two_steps(numbers((5, 7), seed=1)))


@pytest.mark.sampled(3)
def test_memory_of_a_recording_that_is_given_back_is_found(lookalike, monkeypatch):
    """Rows of 70,000 numbers are summed in parts, which lie in memory of the recording's own."""

    def forgetful(self, work):
        graph = cuda_graphs.CudaGraph(self.xp, work)
        del graph._memory
        gc.collect()
        return graph

    def f(x):
        return ef.softmax(x * 2.0), ef.exp(x.sum(axis=0)) + 1.0

    x = numbers((2, 70_000))
    captured = recorded(f, x)
    close(captured(x), f(x))
    monkeypatch.setattr(CupyBackend, "record", forgetful)
    captured = ef.function(f)
    with pytest.raises((AssertionError, EagerflowError), match="no array of the device"):
        for _ in range(4):
            captured(x)


def test_a_copy_from_the_host_is_no_recording(lookalike):
    with lookalike.cuda.Device(0), pytest.raises(Misuse):
        cuda_graphs.CudaGraph(lookalike, lambda: lookalike.asarray(np.ones(3)))


# Memory ---------------------------------------------------------------------------------------


def test_only_unreferenced_memory_is_reused(gpus):
    device = ef.tensor([0.0], device="gpu:1").device
    with device.backend.on(1):
        renewal = Renewal(device.backend, (3,), np.dtype("float32"))
        one, other = renewal(), renewal()
        places = [a.data.ptr for a in (one, other)]
        assert places[0] != places[1]
        del one
        again = renewal()
        assert again.data.ptr == places[0]
        part = again[1:]
        del again
        assert renewal().data.ptr not in places, "a view holds its memory"
        del part
        assert renewal().data.ptr == places[0]
        held = [renewal() for _ in range(3 * MAX_BLOCKS)]
        assert len({a.data.ptr for a in held}) == len(held)


def test_values_of_the_host_are_stored_byte_by_byte(gpus):
    backend = ef.tensor([0.0], device="gpu:1").device.backend
    rng = np.random.default_rng(0)
    for count in (0, 1, 3, 8, 127, 128, 129, 512, 513, 5000):
        values = rng.integers(0, 256, count, np.uint8)
        with backend.on(1):
            array = backend.empty((count,), np.dtype("uint8"))
            backend.store(array, values)
            kept, values[...] = values.copy(), 7
            np.testing.assert_array_equal(backend.to_numpy(array), kept)
    with backend.on(1):
        array = backend.empty((), np.dtype("float64"))
        backend.store(array, 0.1)
        assert float(backend.to_numpy(array)) == 0.1
