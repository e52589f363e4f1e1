"""Captured functions on GPUs: regions run as CUDA kernels, on a look-alike that compiles them for
the CPU here, on CuPy itself where there is a GPU."""

import shutil
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends import cupy as module
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.cuda import launch
from eagerflow.errors import IndexRangeError, OutOfMemoryError
from tests.backends.lookalike import Lookalike
from tests.codegen.cuda_cpu import kernels_of
from tests.codegen.nvcc import compile_for_gpus, needs_nvcc
from tests.internals import array_of, forget_device_kernels

nn = ef.nn

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """What was loaded for another test's look-alike is not ready for this one."""
    forget_device_kernels(monkeypatch)


def kernels(gpus):
    """Names of the kernels that ran, and their devices, since the last question."""
    if not isinstance(gpus, Lookalike):
        pytest.skip("only the look-alike tells what ran")
    found = [(name.rpartition("_")[0], device) for name, device in gpus.launches]
    gpus.launches.clear()
    return found


def source(function, place="gpu:1"):
    with ef.device(place):
        return function.graphs[-1].plan().source()


def numbers(shape, place="gpu:1", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return ef.tensor(values, device=place)


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.device == b.device
        assert a.dtype == b.dtype
        assert array_of(a).device.id == array_of(b).device.id
        narrow = a.dtype.itemsize == 2  # eager rounds after each op, a region at its end
        rtol, atol = (1e-2, 1e-2) if narrow else (2e-5, 1e-6)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol, atol)


# Functions ------------------------------------------------------------------------------------


def softmax_rows(x):
    return ef.softmax(x * 2.0), ef.log_softmax(x, axis=0).sum(), ef.mean(x, axis=1)


def norm(x):
    centred = x - ef.mean(x, axis=-1, keepdims=True)
    return (centred * ef.rsqrt(ef.mean(ef.square(centred), axis=-1, keepdims=True) + 1e-5),)


def transposed(x):
    y = x.T
    return ef.tanh(y) * 2.0 + y, ef.exp(x[1:, 1:]) - 1.0


def columns(x):
    y = ef.gelu(x + 1.0)
    return y, y.sum(axis=0), ef.max(y, axis=0)


def small(x):
    y = x.astype("bfloat16")
    return (ef.gelu(y * 2).astype("float16") * 3,)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("f", [softmax_rows, norm, transposed, columns, small])
@pytest.mark.parametrize("shape", [(5, 7), (33, 130), (1, 64), (70, 1)])
def test_regions_match_eager(f, shape, gpus):
    captured = ef.function(f)
    x = numbers(shape)
    for given in (x, x + 1.0):
        close(captured(given), f(given))


def test_regions_are_kernels_on_the_device_of_their_arrays(gpus):
    captured = ef.function(lambda x: ef.tanh(x) * 2.0 + 1.0)
    x = numbers((40, 50))
    captured(x)
    assert "(add,) = _tanh_multiply_add((x,))" in source(captured)
    kernels(gpus)
    captured(x)
    assert kernels(gpus) == [("tanh_multiply_add_0", 1)]
    captured(x.to("gpu:0"))
    assert kernels(gpus) == [("tanh_multiply_add_0", 0)]


def test_a_launch_is_prepared_once(gpus, monkeypatch):
    prepared = []
    original = launch.prepare
    monkeypatch.setattr(launch, "prepare", lambda *a: prepared.append(a) or original(*a))
    captured = ef.function(lambda x: ef.tanh(x) * 3.0 + 1.25)
    x = numbers((6, 11))
    for _ in range(4):
        captured(x)
    assert len(prepared) == 1
    captured(numbers((11, 6)).T)
    captured(numbers((11, 6)).T)
    assert len(prepared) == 2


def test_arrays_that_begin_anywhere(gpus):
    """Code loads 16 bytes at once only where all rows begin at multiples of that."""
    captured = ef.function(lambda x: ef.tanh(x) * 2.0 + 1.0)
    whole = numbers((9, 64))
    for start in (0, 1, 2, 3, 4):
        with array_of(whole).device:
            x = ef.asarray(array_of(whole)[:, start : start + 60])
        close([captured(x)], [ef.tanh(x) * 2.0 + 1.0])


def test_exact_plans_call_the_library_op_by_op(gpus):
    """A step with its gradient, Variables and a loop has eager's bits."""
    start = numbers((3, 2)).numpy()
    x = numbers((4, 3))

    def made():
        w = ef.Variable(start, name="w", device="gpu:1")

        def step(x):
            with ef.GradientTape() as tape:
                # Not `** 2`, of which a plan makes this: in old NumPys its bits are others.
                loss = ef.square(ef.tanh(x @ w)).sum()
            w.assign_sub(tape.gradient(loss, w) * 0.1)
            return loss, ef.fori_loop(0, 3, lambda i, c: ef.sin(c), loss)

        return w, step

    (w, eager), (other, step) = made(), made()
    captured = ef.function(step, numerics="exact")
    for _ in range(3):
        for a, b in zip(eager(x), captured(x), strict=True):
            assert (str(b.device), array_of(b).device.id) == ("gpu:1", 1 % module.count_devices())
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    np.testing.assert_array_equal(w.numpy(), other.numpy())
    with ef.device("gpu:1"):
        assert "_tanh(" in captured.graphs[0].plan(numerics="exact").source()


@pytest.mark.sampled(2)
def test_loops_and_branches(gpus):
    def f(x):
        def body(c, row):
            c = ef.tanh(c + row) * 0.5
            return c, ef.exp(c) + 1.0

        carry, rows = ef.scan(body, ef.zeros_like(x[0]), x)
        found = ef.cond(carry.sum() > 0, lambda: ef.sin(carry) * 2, lambda: ef.cos(carry) + 2)
        return carry, rows, ef.while_loop(lambda c: c.sum() < 10, lambda c: c * 2 + 1, found)

    x = numbers((6, 5))
    captured = ef.function(f)
    for _ in range(2):  # no device is current but the CPU
        close(ef.tree.flatten(captured(x))[0], ef.tree.flatten(f(x))[0])


def test_values_moved_to_the_host_are_computed_there(gpus):
    def f(x):
        y = (ef.tanh(x) * 2.0 + 1.0).to("cpu:0")
        z = ef.exp(y * 2.0) - 1.0
        return z, (z @ y).to("gpu:1") * x + 1.0

    x = numbers((8, 8))
    (host, back), (expected, also) = ef.function(f)(x), f(x)
    assert str(host.device) == "cpu:0"
    np.testing.assert_allclose(host.numpy(), expected.numpy(), 1e-4)
    np.testing.assert_allclose(back.numpy(), also.numpy(), 1e-4)
    assert array_of(back).device.id == 1 % module.count_devices()


def test_labels_that_are_no_classes(gpus):
    def f(x, labels):
        return ef.mean(ef.sparse_softmax_cross_entropy(x + 1.0, labels))

    x, good = numbers((4, 3)), ef.tensor([0, 1, 2, 1], device="gpu:1")
    captured = ef.function(f)
    close([captured(x, good)], [f(x, good)])
    for wrong in (-1, 3):
        with pytest.raises(IndexRangeError, match=f"class {wrong} is out of range"):
            captured(x, ef.tensor([0, 1, wrong, 1], device="gpu:1"))


def test_memory_that_is_refused(gpus):
    if module.count_devices() < 2:
        pytest.skip("two logical devices share one pool")
    captured = ef.function(lambda x: ef.tanh(x) * 2.0 + 1.0)
    x = numbers((100, 100))
    captured(x)
    backend = x.device.backend
    backend.set_memory_limit(1, backend.memory_stats(1)["bytes_in_use"] + 1000)
    try:
        with pytest.raises(OutOfMemoryError, match="Out of memory") as caught:
            captured(x)
    finally:
        backend.set_memory_limit(1, None)
    assert "test_cupy_plans.py" in caught.value.at


# Training steps -------------------------------------------------------------------------------


def perceptron():
    layers = [nn.Dense(24, activation="gelu"), nn.LayerNormalization(), nn.Dropout(0.25)]
    return nn.Sequential([*layers, nn.Dense(7)]), (16, 12)


def network():
    layers = [nn.Conv2D(4, 3, activation="relu", padding="same"), nn.BatchNormalization()]
    return nn.Sequential([*layers, nn.MaxPooling2D(2), nn.Flatten(), nn.Dense(7)]), (6, 8, 8, 3)


def training(make, optimizer, capture):
    """Losses of four steps and the weights after them; the step and its arguments."""
    ef.random.seed(3)
    model, shape = make()
    x = numbers(shape)
    labels = ef.tensor(np.arange(shape[0]) % 7, device="gpu:1")
    with ef.device("gpu:1"):
        model(x)
        rule = optimizer()

        def step(x, labels):
            with ef.GradientTape() as tape:
                found = model(x, training=True)
                loss = ef.mean(ef.sparse_softmax_cross_entropy(found, labels))
            weights = model.trainable_variables
            rule.apply(tape.gradient(loss, weights), weights)
            return loss

        run = ef.function(step) if capture else step
        losses = [float(run(x, labels)) for _ in range(4)]
    return losses, [w.numpy() for w in model.trainable_variables], run, (x, labels)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [perceptron, network])
@pytest.mark.parametrize(
    "optimizer",
    [lambda: nn.optimizers.Adam(0.01), lambda: nn.optimizers.SGD(0.1, momentum=0.9)],
    ids=["adam", "momentum"],
)
def test_training_steps_match_eager(make, optimizer, gpus):
    losses, weights, _, _ = training(make, optimizer, False)
    if isinstance(gpus, Lookalike):
        assert kernels(gpus) == []
    found, others, step, given = training(make, optimizer, True)
    np.testing.assert_allclose(found, losses, 1e-4)
    for a, b in zip(others, weights, strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 1e-5)
    text = source(step)
    assert "sparse_softmax_cross_entropy" in text
    assert "_update = (" in text
    kernels(gpus)
    step(*given)
    assert len({name for name, _ in kernels(gpus)}) >= 6


@pytest.mark.sampled(3)
@needs_nvcc
@pytest.mark.parametrize("make", [perceptron, network])
def test_kernels_of_training_steps_compile_for_gpus(make, gpus, tmp_path):
    training(make, lambda: nn.optimizers.Adam(0.01), True)
    if not isinstance(gpus, Lookalike):
        pytest.skip("only the look-alike keeps the texts")
    texts = list(dict.fromkeys(gpus.texts))
    assert sum(len(kernels_of(text)) for text in texts) >= 6
    compile_for_gpus(texts, tmp_path)


def test_threads_on_two_devices(gpus):
    captured = ef.function(lambda x: ef.softmax(ef.tanh(x) * 2.0 + 1.0))
    given = {place: numbers((7, 20), place, seed) for seed, place in enumerate(("gpu:0", "gpu:1"))}
    expected = {p: ef.softmax(ef.tanh(x) * 2.0 + 1.0).numpy() for p, x in given.items()}
    for x in given.values():
        captured(x)
    wrong = []

    def work(place):
        for _ in range(20):
            y = captured(given[place])
            if str(y.device) != place or abs(y.numpy() - expected[place]).max() > 1e-6:
                wrong.append(place)

    if isinstance(gpus, Lookalike):  # its kernels' threads are fibers of one thread
        for place in given:
            work(place)
    else:
        threads = [threading.Thread(target=work, args=(place,)) for place in given]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not wrong


# The look-alike -------------------------------------------------------------------------------


def test_a_pointer_of_another_device_is_noticed(gpus):
    if not isinstance(gpus, Lookalike):
        pytest.skip("about the look-alike")
    b = Builder("twice", "n")
    b.output("y", b.add(b.input("x", "float32", "n"), 1.0))
    region = b.region()
    x, y = array_of(numbers((5,), "gpu:0")), array_of(numbers((5,), "gpu:1"))
    launch.compute(region, [x], [array_of(numbers((5,), "gpu:0", 1))], {"n": 5})
    with pytest.raises(AssertionError, match="no array of the device"):
        launch.compute(region, [x], [y], {"n": 5})
