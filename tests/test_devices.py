"""Device names, scopes, logical devices, and what happens when devices mix."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.devices import as_device, current_device, device_types
from eagerflow.errors import DeviceError


@pytest.fixture
def two_cpus(monkeypatch):
    monkeypatch.setattr(device_types["cpu"], "logical", 2)
    monkeypatch.setattr(device_types["cpu"], "devices", dict(device_types["cpu"].devices))


def test_full_and_short_names(two_cpus):
    for name in (
        "cpu:1",
        "CPU:1",
        "/device:cpu:1",
        "/job:local/device:cpu:1",
        "/job:local/task:0/device:cpu:1",
        "/job:local/task:0/cpu:1",
    ):
        assert str(as_device(name)) == "cpu:1", name
    assert as_device("cpu:1").full_name == "/job:local/task:0/device:cpu:1"
    assert as_device(as_device("cpu:1").full_name) is as_device("cpu:1")


def test_partial_names_are_completed_from_the_current_device(two_cpus):
    for name in ("cpu", "cpu:*", "/job:local", "/job:local/task:0", "/task:0/device:cpu:*"):
        assert str(as_device(name)) == "cpu:0"
        with ef.device("cpu:1"):
            assert str(as_device(name)) == "cpu:1", name
    with ef.device("cpu:1"):
        assert str(as_device("cpu:0")) == "cpu:0"
    assert as_device(None) is current_device()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is not a device name"),
        ("cpu:-1", "is not a device name"),
        ("cpu:one", "is not a device name"),
        ("cpu 0", "is not a device name"),
        ("job:local", "is not a device name"),
        ("/device:", "is not a device name"),
        ("cpu:0\n", "is not a device name"),
        (3, "is not a device name"),
        (b"cpu:0", "is not a device name"),
        ("moon", "no device type 'moon'"),
        ("cpu:99", "no device 'cpu:99'"),
        ("cpu:99999999999999999999", "no device"),
        ("/job:ps/task:0/device:cpu:0", "this process is /job:local/task:0"),
        ("/job:local/task:1/device:cpu:0", "this process is /job:local/task:0"),
    ],
)
def test_names_that_are_refused(name, words):
    with pytest.raises(DeviceError, match=words):
        as_device(name)
    with pytest.raises(DeviceError, match=words):
        ef.device(name)
    if name and isinstance(name, str):
        with pytest.raises(DeviceError, match=words):
            ef.zeros((2,)).to(name)


def test_devices_are_single_objects():
    (first, *_) = ef.devices("cpu")
    assert first is as_device("cpu:0") is ef.zeros((1,)).device
    assert pickle.loads(pickle.dumps(first)) is first
    assert repr(first) == "Device('cpu:0')"
    assert (first.type, first.index) == ("cpu", 0)


def test_scopes_nest_and_are_left_after_errors(two_cpus):
    assert str(ef.zeros((1,)).device) == "cpu:0"
    with ef.device("cpu:1") as entered:
        assert str(entered) == str(ef.zeros((1,)).device) == str(ef.tensor(1).device) == "cpu:1"
        with ef.device("cpu:0"):
            assert str(ef.tensor(1).device) == "cpu:0"
        assert str(ef.ones((1,)).device) == "cpu:1"
        with pytest.raises(KeyboardInterrupt), ef.device("cpu:0"):
            raise KeyboardInterrupt
        assert str(ef.ones((1,)).device) == "cpu:1"
        assert str(ef.ones((1,), device="cpu:0").device) == "cpu:0"
        assert str(ef.Variable(1.0).device) == "cpu:1"
    assert str(ef.zeros((1,)).device) == "cpu:0"


def test_results_stay_on_their_operands_device(two_cpus):
    x = ef.tensor([1.0, 2.0], device="cpu:1")
    for y in (
        x + x,
        x * 2,
        2 - x,
        x.sum(),
        x.reshape((2, 1)),
        x + np.ones(2),
        -x,
        x.astype("int8"),
    ):
        assert str(y.device) == "cpu:1"
    moved = x.to("cpu:0")
    assert str(moved.device) == "cpu:0"
    assert moved.tolist() == x.tolist()


def test_mixing_devices_is_refused(two_cpus):
    x, y = ef.ones((2,), device="cpu:0"), ef.ones((2,), device="cpu:1")
    with pytest.raises(DeviceError, match="add: the operands are on different devices") as caught:
        x + y
    assert caught.value.received == "x1 float32(2,) on cpu:0, x2 float32(2,) on cpu:1"
    assert "x.to('cpu:0')" in caught.value.hint
    assert (x + y.to("cpu:0")).tolist() == [2.0, 2.0]


def test_gradients_cross_logical_devices(two_cpus):
    w = ef.Variable([1.0, 2.0], device="cpu:1")
    with ef.GradientTape() as tape:
        loss = ((w * w).to("cpu:0") * 3).sum()
    g = tape.gradient(loss, w)
    assert str(loss.device) == "cpu:0"
    assert str(g.device) == "cpu:1"
    assert g.tolist() == [6.0, 12.0]


def test_logical_devices():
    code = """
import eagerflow as ef
from eagerflow.errors import DeviceError
ef.set_logical_devices("cpu", 3)
print([str(d) for d in ef.devices("cpu")])
x = ef.ones((2,), device="cpu:2")
try:
    ef.set_logical_devices("cpu", 2)
except DeviceError as error:
    print(error)
ef.set_logical_devices("cpu", 4)
print(len(ef.devices("cpu")), x.sum())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['cpu:0', 'cpu:1', 'cpu:2']",
        "cpu:2 is in use",
        "  expected: at least 3",
        "4 Tensor(2., float32, cpu:2)",
    ]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", None])
def test_numbers_of_logical_devices_that_are_refused(count):
    with pytest.raises(DeviceError, match="is not a number of devices"):
        ef.set_logical_devices("cpu", count)
    with pytest.raises(DeviceError, match="no device type 'npu'"):
        ef.set_logical_devices("npu", 2)


@pytest.mark.parametrize("name", ["", "GPU", "my device", "3d", "a:b", "cpu"])
def test_names_of_types_that_are_refused(name):
    with pytest.raises(DeviceError, match=r"cannot name a device type|is registered already"):
        ef.register_device_type(name, load=lambda: None)
    assert name == "cpu" or name not in device_types


def test_a_type_that_cannot_be_loaded_says_why():
    def load():
        raise ImportError("no driver")

    ef.register_device_type("broken", load, install="pip install driver")
    try:
        assert "broken:0" in [str(d) for d in ef.devices()]
        with pytest.raises(ImportError, match="no driver"):
            ef.zeros((2,), device="broken:0")
        assert float(ef.zeros((2,)).sum()) == 0
    finally:
        del device_types["broken"]


def test_a_type_without_devices_says_how_to_get_one():
    ef.register_device_type("absent", lambda: None, lambda: 0, install="pip install absent")
    try:
        with pytest.raises(DeviceError, match="no device 'absent'") as caught:
            ef.device("absent")
        assert caught.value.hint == "pip install absent"
    finally:
        del device_types["absent"]


def test_each_thread_has_its_own_scope(two_cpus):
    inside, found = threading.Event(), []

    def other():
        inside.wait(5)
        found.append(str(ef.ones((1,)).device))

    thread = threading.Thread(target=other)
    thread.start()
    with ef.device("cpu:1"):
        inside.set()
        thread.join()
    assert found == ["cpu:0"]
