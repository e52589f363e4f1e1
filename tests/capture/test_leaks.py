"""What a trace saw must be gone when it ends, by counting references alone.

Garbage in cycles is collected at some later time. Until then it holds values of the trace, which
makes every capture search for leaks, and may make it find one that is none.
"""

import gc
import sys
import threading

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


def test_the_collector_runs_as_before_after_traces_in_many_threads():
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
