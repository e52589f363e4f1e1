"""How often a function is traced at its first call, and that nothing is lost where once is enough.

An optimizer's state is made while its first step is traced. That has no other effect, so the trace
is valid; later changes of the state are noticed.
"""

import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import tracing
from eagerflow.capture.guards.monitor import Monitor
from eagerflow.recorder import prepared
from tests.internals import replace_method

X = ef.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
NAMES = [n for n in ef.nn.optimizers.__all__ if n[0].isupper() and n != "Optimizer"]
ONCE = [n for n in NAMES if n not in ("LBFGS", "LossScaleOptimizer")]


@pytest.fixture
def runs(monkeypatch):
    """The runs of all functions that are traced."""
    seen = []

    def counted(run):
        return lambda *args, **kwargs: seen.append(args) or run(*args, **kwargs)

    replace_method(monkeypatch, tracing, "traced_once", counted)
    return seen


def training(optimizer):
    """A step along the gradients of a loss, and the weights that it changes."""
    weights = [ef.Variable([[0.3], [0.2], [-0.1]], name="w"), ef.Variable([0.1], name="b")]

    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.mean((x @ weights[0] + weights[1] - 1.0) ** 2)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step, weights


def assert_like_eager(steps, make, captured, weights):
    eager, own = training(make())
    for _ in range(steps):
        np.testing.assert_allclose(captured(X), eager(X), rtol=1e-5, atol=1e-6)
    for mine, other in zip(weights, own, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ONCE)
def test_a_step_that_makes_an_optimizers_state_is_traced_once(name, runs):
    make = getattr(ef.nn.optimizers, name)
    step, weights = training(make())
    assert_like_eager(4, make, ef.function(step), weights)
    assert len(runs) == 1


def test_weights_that_a_layer_makes_have_the_trace_repeated(runs):
    dense = ef.nn.Dense(2)
    call = ef.function(lambda x: dense(x))
    np.testing.assert_allclose(call(X), dense(X), rtol=1e-6)
    assert len(runs) == 2


def test_state_that_is_dropped_is_noticed(runs):
    optimizer = ef.nn.optimizers.Adam()
    step, weights = training(optimizer)
    captured = ef.function(step)
    captured(X)
    optimizer._state.clear()
    optimizer._changed_so_far.clear()
    captured(X)
    assert len(runs) == 2
    assert len(optimizer.variables) == 2 + 2 * len(weights)
    assert [int(v.numpy().any()) for v in optimizer.variables] == [1] * 6


def test_state_read_before_its_creation_causes_no_retrace(runs):
    optimizer = ef.nn.optimizers.Adam()
    step, _ = training(optimizer)

    @ef.function
    def counting(x):
        count = len(optimizer.variables)
        return step(x), count

    counts = [int(counting(X)[1]) for _ in range(2)]
    assert counts == [6, 6]  # the second run of two, which finds it
    assert len(runs) == 2


def test_two_optimizers_in_one_step(runs):
    optimizers = [ef.nn.optimizers.Adam(), ef.nn.optimizers.Adam()]
    steps = [training(optimizer) for optimizer in optimizers]
    both = ef.function(lambda x: [step(x) for step, _ in steps])
    for _ in range(3):
        a, b = both(X)
        assert float(a) == float(b)
    assert len(runs) <= 2
    assert [int(o.iterations) for o in optimizers] == [3, 3]


class Scaled(ef.nn.optimizers.Optimizer):
    """A user's own, whose state begins with what a global says."""

    slots = ("sum",)

    def state_for(self, variable):
        return {"sum": self._slot(variable, "sum", value=BEGIN)}

    def update(self, value, gradient, state, rate, step):
        return value - rate * SCALE * (state[0] + gradient), state[0] + gradient


BEGIN, SCALE = 0.5, 1.0


def test_reads_in_custom_optimizer_updates_are_guarded(runs, monkeypatch):
    step, weights = training(Scaled(learning_rate=0.1))
    captured = ef.function(step)
    assert_like_eager(2, lambda: Scaled(learning_rate=0.1), captured, weights)
    assert len(runs) == 1
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 0.0)
    before = weights[1].numpy().copy()
    captured(X)
    assert len(runs) == 2
    assert weights[1].numpy() == before


def test_error_during_state_creation_restores_the_monitor():
    rate = [2.0]

    def fails():
        raise KeyError("mine")

    @ef.function
    def f(x):
        try:
            prepared(fails)
        except KeyError:
            pass
        return x * rate[0]

    assert float(f(ef.tensor(1.0))) == 2.0
    rate[0] = 3.0
    assert float(f(ef.tensor(1.0))) == 3.0


def test_monitor_ignores_reads_in_aside():
    seen = {"a": 1}

    def reads():
        return seen["a"]

    def f():
        return monitor.aside(reads), len(seen)

    with Monitor(f) as monitor:
        assert f() == (1, 1)
    ledger = monitor.ledger()
    seen["a"] = 2
    assert ledger.changed() is None
    seen["b"] = 3
    assert ledger.changed() is not None


LATE = """
import eagerflow as ef
from eagerflow.capture import tracing
runs, whole = [], tracing.traced_once
def counted(*args, **kwargs):
    runs.append(args)
    return whole(*args, **kwargs)
tracing.traced_once = counted
norm = ef.function(lambda x: ef.layer_norm(x))
assert "layer_norm" not in vars(ef)
first = norm(ef.tensor([[1.0, 3.0]]))
assert len(runs) == 1, runs
held = ef.layer_norm
ef.layer_norm = lambda x: x * 0.0
assert float(abs(norm(ef.tensor([[1.0, 3.0]]))).sum()) == 0.0 and len(runs) == 2, runs
"""


def test_lazily_loaded_ops_are_available_before_first_use():
    subprocess.run([sys.executable, "-c", LATE], check=True)
