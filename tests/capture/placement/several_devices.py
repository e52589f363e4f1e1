"""Several devices in one process: logical CPU devices, costs made by hand, random programs."""

import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends.numpy import NumpyBackend
from eagerflow.capture.placement import executor
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.devices import DeviceType, device_types

COSTS = CostModel({"*": Rates(products=1e10, memory=1e9, call=1e-6)}, latency=1e-5)
"""A plain model: 10 Gflop/s, 1 GB/s, 1 µs a call, 10 µs from device to device."""

EAGER_TO_SPLIT = CostModel({"*": Rates(products=1e8, memory=1e8)}, latency=1e-9, run=0.0)
"""A model in which everything takes long but going elsewhere, so that all is cut to pieces."""


@pytest.fixture
def three_cpus(monkeypatch):
    """``cpu:0``, ``cpu:1`` and ``cpu:2``, with threads of their own that end with the test."""
    monkeypatch.setattr(device_types["cpu"], "logical", 3)
    monkeypatch.setattr(device_types["cpu"], "devices", dict(device_types["cpu"].devices))
    yield ["cpu:0", "cpu:1", "cpu:2"]
    executor.shutdown()


class FarBackend(NumpyBackend):
    """NumPy with memory of its own: arrays are copied on arrival, once ``before`` has returned."""

    before = staticmethod(lambda: None)

    def __init__(self):
        super().__init__()
        self.received = []

    def receive(self, array, index=0):
        begin = time.perf_counter()
        self.before()
        copy = np.array(array)
        self.received.append((copy.nbytes, begin, time.perf_counter()))
        return copy


@pytest.fixture
def far(monkeypatch, three_cpus):
    """A device type ``far`` that shares no memory with the CPU; gives its backend."""
    backend = FarBackend()
    known = DeviceType("far", lambda: backend, lambda: 1, None)
    monkeypatch.setitem(device_types, "far", known)
    return backend


def random_program(seed, devices, size=8):
    """A traced random program with random pins, Variables and assignments; its inputs."""
    rng = np.random.default_rng(seed)
    steps = [
        (int(rng.integers(10)), *rng.random(2), int(rng.integers(5)), rng.random())
        for _ in range(int(rng.integers(1, 40)))
    ]
    variables = [
        ef.Variable(
            rng.standard_normal((size, size)).astype(np.float32),
            name=f"v{i}",
            device=devices[int(rng.integers(len(devices)))],
        )
        for i in range(int(rng.integers(0, 4)))
    ]

    def f(x, y):
        values = [x, y, *[v.value for v in variables]]
        for kind, a, b, pin, extra in steps:
            p, q = values[int(a * len(values))], values[int(b * len(values))]
            if pin < len(devices):
                with ef.device(devices[pin]):
                    made = OPS[kind](p, q)
            else:
                made = OPS[kind](p, q)
            values.append(made)
            if extra < 0.1 and variables:
                variables[int(a * len(variables))].assign(made)
        return {"last": values[-1], "middle": values[len(values) // 2]}

    spec = ef.TensorSpec((size, size), "float32")
    graph = ef.capture.trace(f, spec, spec)
    inputs = [ef.tensor(rng.standard_normal((size, size)).astype(np.float32)) for _ in "xy"]
    return graph, inputs, variables


OPS = (
    lambda p, q: p + q,
    lambda p, q: p * q * 0.5,
    lambda p, q: ef.tanh(p @ q * 0.1),
    lambda p, q: ef.sin(p),
    lambda p, q: ef.softmax(p, axis=-1),
    lambda p, q: p - p.mean(axis=0, keepdims=True),
    lambda p, q: ef.flip(p, axis=0),
    lambda p, q: ef.where(p > q, p, q),
    lambda p, q: ef.zeros(p.shape) + p,
    lambda p, q: ef.reshape(p, (-1,)).reshape(q.shape) - 1.0,
)


def bits(tensors):
    """The bytes of some tensors."""
    return [np.asarray(t).tobytes() for t in tensors]


def given_back(variables, f):
    """``f()`` with the Variables' new values, which then have their old ones back."""
    before = [v.value for v in variables]
    try:
        return [*f(), *[v.value for v in variables]]
    finally:
        for v, value in zip(variables, before, strict=True):
            v.current = value
