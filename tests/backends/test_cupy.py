"""The GPU backend: on a look-alike of CuPy here, on CuPy itself where there is a GPU."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends import cupy as module
from eagerflow.devices import as_device, device_types
from eagerflow.errors import ArgumentError, DeviceError, MissingExtraError, OutOfMemoryError
from tests.backends.lookalike import Lookalike
from tests.internals import array_of


@pytest.fixture
def none(monkeypatch):
    """CuPy without a GPU."""
    monkeypatch.setattr(device_types["gpu"], "backend", None)
    monkeypatch.setitem(sys.modules, "cupy", Lookalike(0))
    module.count_devices.cache_clear()
    yield
    module.count_devices.cache_clear()


def device_of(tensor):
    return str(tensor.device), array_of(tensor).device.id


# Without a GPU -------------------------------------------------------------------------------


@pytest.fixture
def missing(monkeypatch):
    """No CuPy."""
    monkeypatch.setattr(device_types["gpu"], "backend", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    module.count_devices.cache_clear()
    yield
    module.count_devices.cache_clear()


def test_without_cupy_there_are_no_gpus(missing):
    assert module.count_devices() == 0
    assert ef.devices("gpu") == []
    with pytest.raises(DeviceError, match="there is no device 'gpu:0'") as caught:
        ef.device("gpu:0")
    assert "pip install 'eagerflow[cuda12]'" in caught.value.hint


def test_without_cupy_the_backend_names_the_extra(missing):
    with pytest.raises(MissingExtraError, match="CuPy") as caught:
        module.CupyBackend()
    assert "pip install 'eagerflow[cuda12]'" in caught.value.hint
    assert isinstance(caught.value, ImportError)


def test_without_a_driver_there_are_no_gpus(none):
    assert module.count_devices() == 0
    with pytest.raises(DeviceError, match="no device 'gpu:0'"):
        ef.zeros((2,), device="gpu:0")
    with pytest.raises(DeviceError, match="CuPy sees no GPU"):
        module.CupyBackend()
    with pytest.raises(DeviceError, match="no device of type 'gpu' to split"):
        ef.set_logical_devices("gpu", 2)


def test_import_loads_no_cupy():
    code = (
        "import sys, eagerflow, eagerflow.backends.cupy; eagerflow.ones((2,)) + 1;"
        "print('cupy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# Where values are ----------------------------------------------------------------------------


def test_tensors_are_made_where_they_are_asked_for(gpus):
    as_device("gpu:1")
    assert device_types["gpu"].backend is None, "naming a device loads nothing"
    for place in ("gpu:0", "gpu:1"):
        index = int(place[-1]) % module.count_devices()
        assert device_of(ef.tensor([1.0, 2.0], device=place)) == (place, index)
        assert device_of(ef.zeros((2, 3), device=place)) == (place, index)
        with ef.device(place):
            assert device_of(ef.tensor(1)) == (place, index)
            assert device_of(ef.ones((2,))) == (place, index)
            assert device_of(ef.eye(2)) == (place, index)


def test_results_stay_with_their_operands(gpus):
    x = ef.tensor([[1.0, -2.0], [3.0, 4.0]], device="gpu:1")
    with ef.device("gpu:0"):
        for y in (x + x, x * 2, 1 - x, -x, x.sum(), x.sum(axis=0), x.reshape((4,)), x + x * x):
            assert device_of(y) == device_of(x)
    np.testing.assert_array_equal((x + x * x).numpy(), [[2, 2], [12, 20]])
    np.testing.assert_array_equal(x.sum(axis=0).numpy(), [4, 2])
    assert float(x.sum()) == float(x.sum()) == 6.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "complex64", "bool"])
def test_dtypes_and_scalars(gpus, dtype):
    x = ef.tensor([1, 0, 1], dtype=dtype, device="gpu:1")
    expected = ef.tensor([1, 0, 1], dtype=dtype)
    for f in (lambda x: x + x, lambda x: x * 3, lambda x: x + 0.1, lambda x: 1j * x):
        np.testing.assert_array_equal(f(x).numpy(), f(expected).numpy())
        assert f(x).dtype == f(expected).dtype
        assert device_of(f(x)) == device_of(x)


def test_transfers(gpus):
    x = np.arange(6.0).reshape(2, 3)
    first = ef.tensor(x, device="gpu:0")
    second = first.to("gpu:1")
    back = second.to("cpu:0")
    assert [str(t.device) for t in (first, second, back)] == ["gpu:0", "gpu:1", "cpu:0"]
    assert type(array_of(back)) is np.ndarray
    for t in (first, second, back):
        np.testing.assert_array_equal(t.numpy(), x)
    assert array_of(first.to("gpu:0")) is array_of(first)
    x[:] = 0
    assert float(first.sum()) == 15.0


def test_mixed_devices_are_refused(gpus):
    x, y = ef.ones((2,), device="gpu:0"), ef.ones((2,), device="gpu:1")
    with pytest.raises(DeviceError, match="different devices") as caught:
        x + y
    assert "x1 float32(2,) on gpu:0, x2 float32(2,) on gpu:1" in caught.value.received
    with pytest.raises(DeviceError, match="different devices"):
        ef.ones((2,)) + x


def test_arrays_of_cupy_are_shared(gpus):
    with gpus.cuda.Device(1 % module.count_devices()):
        array = gpus.asarray(np.ones(3, np.float32))
    t = ef.asarray(array)
    assert array_of(t) is array
    assert t.device.type == "gpu"
    assert array_of(ef.tensor(array)) is not array
    assert ef.asarray(array, device="cpu:0").tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ArgumentError, match="copy=False"):
        ef.asarray(np.ones(3), device="gpu:1", copy=False)


def test_gradient_on_a_gpu(gpus):
    x = ef.tensor([1.0, 2.0], device="gpu:1")
    w = ef.Variable([[1.0, 2.0]], device="gpu:1")
    with ef.GradientTape() as tape:
        tape.watch(x)
        loss = (x * w * x).sum()
    gx, gw = tape.gradient(loss, (x, w))
    assert device_of(gx) == device_of(gw) == device_of(x)
    np.testing.assert_array_equal(gx.numpy(), [2, 8])
    np.testing.assert_array_equal(gw.numpy(), [[1, 4]])


def test_each_thread_has_its_own_device(gpus):
    found = {}

    def work(place):
        with ef.device(place):
            for _ in range(50):
                x = ef.ones((3,)) * 2
            found[place] = (device_of(x), float(x.sum()))

    threads = [threading.Thread(target=work, args=(f"gpu:{i}",)) for i in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    count = module.count_devices()
    assert found == {f"gpu:{i}": ((f"gpu:{i}", i % count), 6.0) for i in (0, 1)}


# Memory and time -----------------------------------------------------------------------------


def test_memory_is_counted_and_limited_for_each_device(gpus):
    backend = as_device("gpu:0").backend
    if module.count_devices() < 2:
        pytest.skip("two logical devices share one pool")
    before = [backend.memory_stats(i)["bytes_in_use"] for i in (0, 1)]
    x = ef.zeros((1000,), device="gpu:1")
    after = [backend.memory_stats(i)["bytes_in_use"] for i in (0, 1)]
    assert after[0] == before[0]
    assert after[1] >= before[1] + x.nbytes
    backend.set_memory_limit(1, after[1] + 100)
    try:
        assert backend.memory_stats(1)["bytes_limit"] == after[1] + 100
        with pytest.raises(OutOfMemoryError) as caught:
            ef.zeros((100_000,), device="gpu:1")
        assert caught.value.op == "zeros"
        ef.zeros((100_000,), device="gpu:0")
    finally:
        backend.set_memory_limit(1, None)
    ef.zeros((100_000,), device="gpu:1")


def test_kept_memory_is_given_back_for_each_device(gpus):
    ef.empty_cache("gpu:1")
    if isinstance(gpus, Lookalike):
        assert gpus.emptied == [1]


def test_synchronize_waits_for_every_gpu(gpus):
    as_device("gpu:0").backend.synchronize()
    if isinstance(gpus, Lookalike):
        assert gpus.synchronized == [0, 1]
