"""Devices in captured code: results are where eager calls would have put them."""

import importlib

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DeviceError
from tests.capture.placement.several_devices import three_cpus

__all__ = ["three_cpus"]

V = None


@pytest.fixture(autouse=True)
def two_devices(three_cpus):
    global V
    V = ef.Variable([1.0, 2.0, 3.0], device="cpu:1")
    yield
    V = None


def scoped(make):
    def f(x):
        with ef.device("cpu:1"):
            return make(x)

    return f


CASES = {
    "a creation": scoped(lambda x: ef.zeros(3)),
    "what follows": scoped(lambda x: ef.zeros(3) + 1),
    "an argument": scoped(lambda x: x * 2),
    "numbers": scoped(lambda x: ef.tensor([1.0, 2.0])),
    "a draw": scoped(lambda x: ef.random.uniform((3,))),
    "a move": lambda x: x.to_device("cpu:1"),
    "after a move": lambda x: x.to_device("cpu:1") * 2,
    "named": lambda x: ef.ones(3, device="cpu:1"),
    "a Variable": lambda x: V * 2,
    "both": lambda x: V * x.to_device("cpu:1"),
    "two results": lambda x: (x + 1, V + 1),
    "back": lambda x: (V * 2).to_device("cpu:0") + x,
    "without arguments' device": lambda x: ef.ones(3),
}


def taped(graph):
    def call(*args):
        with ef.GradientTape():
            return graph(*args)

    return call


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("home", ["cpu:0", "cpu:1"])
def test_results_are_where_eager_puts_them(kind, home):
    f, x = CASES[kind], ef.ones(3, device=home)
    try:
        wanted = f(x)
    except DeviceError:
        with pytest.raises(DeviceError):
            ef.function(f)(x)
        return
    made = [ef.function(f), ef.function(f, numerics="exact")]
    if home == "cpu:0" and kind != "both":  # a plain trace has one place until it is moved away
        graph = ef.capture.trace(f, x)
        made += [graph, taped(graph)]
    for way in made:
        found = way(x)
        for a, b in zip(_flat(wanted), _flat(found), strict=True):
            assert str(a.device) == str(b.device)
            assert a.shape == b.shape


def _flat(nest):
    return list(nest) if isinstance(nest, tuple) else [nest]


def test_arguments_on_two_devices_stay_apart():
    a, b = ef.ones(3), ef.ones(3, device="cpu:1")
    f = ef.function(lambda a, b: (a * 2, b * 2, a + b.to_device("cpu:0")))
    assert [str(y.device) for y in f(a, b)] == ["cpu:0", "cpu:1", "cpu:0"]
    with pytest.raises(DeviceError, match="different devices"):
        ef.function(lambda a, b: a * b)(a, b)


def test_verify_compares_devices(monkeypatch):
    f, x = CASES["a creation"], ef.ones(3)
    assert ef.capture.verify(f, [x])

    module = importlib.import_module("eagerflow.plan.replay")
    monkeypatch.setattr(module, "homes", lambda graph, device: [device] * len(graph.all_outputs()))
    found = ef.capture.verify(f, [x], modes=["eager", "captured"])
    assert not found
    assert "the device of output" in str(found)
    assert np.asarray(found.first_difference.reference).item() == "cpu:1"
