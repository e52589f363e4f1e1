"""What a trace saw must be gone when it ends, by counting references alone.

Garbage in cycles is collected at some later time. Until then it holds values of the trace, which
makes every capture search for leaks, and may make it find one that is none.
"""

import gc
import sys
import threading

import pytest

import eagerflow as ef
from eagerflow.runtime.collector import young


def test_training_steps_need_no_search_for_leaks(monkeypatch):
    model = ef.nn.Sequential([ef.nn.Dense(4, activation="relu"), ef.nn.Dense(2)])
    optimizer = ef.nn.optimizers.Adam()

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.mean((model(x, training=True) - y) ** 2)
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    def search(*args):
        raise AssertionError("a value outlived its trace")

    enabled = gc.isenabled()
    gc.disable()
    try:
        monkeypatch.setattr(gc, "collect", search)
        assert step(ef.ones((3, 2)), ef.zeros((3, 2))).shape == ()
    finally:
        if enabled:
            gc.enable()


def test_gc_thresholds_are_restored_after_threaded_traces():
    stop = threading.Event()

    def come_and_go():
        while not stop.is_set():
            with young():
                pass

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    comers = [threading.Thread(target=come_and_go) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for comer in comers:
            comer.start()
        stop.wait(0.5)
    finally:
        stop.set()
        for comer in comers:
            comer.join()
        sys.setswitchinterval(interval)
        after = gc.get_threshold()
        gc.set_threshold(*before)
    assert after == before


class Part:
    def __init__(self, x):
        self.x = x

    def doubled(self):
        return self.x * 2

    @property
    def twice(self):
        return self.x * 2


class Whole:
    def __init__(self, x):
        self.part, self.parts = Part(x), [x]
        self.part.whole = self
        self.method = self.part.doubled

    def doubled(self):
        return self.part.doubled()


def made(x):
    return Whole(x)


@pytest.mark.parametrize("f", [
    lambda x: Whole(x).doubled(),
    lambda x: made(x).doubled(),
    lambda x: made(x).method(),
    lambda x: made(x).part.whole.part.doubled(),
    lambda x: made(x).part.twice,
    lambda x: made(x).parts[0] * 2,
    lambda x: next(w.doubled() for w in [made(x)]),
    lambda x: (lambda **named: named["w"].doubled())(w=made(x)),
])  # fmt: skip
def test_objects_that_a_trace_makes_and_drops_are_no_leak(f):
    captured = ef.function(f)
    for _ in range(2):
        assert float(captured(ef.ones(2)).sum()) == 4.0
