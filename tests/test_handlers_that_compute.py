"""A signal handler computes, reads and assigns real values in the middle of symbolic work.

Models are built, shapes inferred and gradient kernels learned by calls of ops on tensors without
values. A handler runs at one place after the other where Python looks for signals, and is no part
of them.
"""

import signal

import numpy as np
import pytest

import eagerflow as ef
from tests.interrupts import at_bytecode, count_bytecodes

COUNT = ef.Variable(np.float32([1.0, 2.0, 3.0]), trainable=False)
PLACES = 60


def learned_gradients():
    """Kernels of derivatives are made from calls on symbols, as if no tape had needed them yet."""
    op = ef.power.op
    rules, op.rules = op.rules, [None] * 4
    x = ef.tensor(np.linspace(0.5, 2.0, 6, dtype="f4"))
    try:
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = ef.sum(ef.power(x, 3.5))
        found = tape.gradient(y, x)
    finally:
        op.rules = rules
    np.testing.assert_allclose(found, 3.5 * np.asarray(x) ** 2.5, rtol=1e-5)


def functional_model():
    x = ef.nn.Input((4,))
    h = ef.tanh(ef.nn.Dense(3)(x) * 2.0) + COUNT
    model = ef.nn.Model(x, ef.nn.Add()([h, h[:, ::-1]]))
    assert model(np.ones((2, 4), "f4")).shape == (2, 3)


def symbolic_control_flow():
    x = ef.nn.Input((3,))
    y = ef.cond(ef.sum(x) > 0, lambda: x * 2.0, lambda: x)
    y, _ = ef.scan(lambda c, i: (c * 0.5, i), y, ef.ones(2))
    y = ef.fori_loop(0, 3, lambda i, s: s + 1.0, y)
    given = np.ones((1, 3), "f4")
    np.testing.assert_allclose(ef.nn.Model(x, y)(given), given * 0.5 + 3.0)


def inferred_shapes():
    layer = ef.nn.Sequential([ef.nn.Dense(3), ef.nn.LayerNormalization()])
    assert layer.compute_output_spec(ef.nn.Input((4,))).shape[1:] == (3,)


@pytest.mark.parametrize(
    "work", [learned_gradients, functional_model, symbolic_control_flow, inferred_shapes]
)
def test_signal_handler_ops_stay_out_of_symbolic_work(work):
    values, wrong = [], []

    def handle(number, frame):
        try:
            COUNT.assign(COUNT * 2.0 - COUNT.value)
            values.append((ef.sin(COUNT.value) + ef.ones(3) ** 2.0).numpy())
        except BaseException as error:
            wrong.append(repr(error))

    def interrupt(place):
        signal.raise_signal(signal.SIGUSR1)
        if wrong:
            wrong[-1] += f" at {place}"

    work()
    own = COUNT.numpy().copy()
    count = count_bytecodes(work, for_signals=True)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        for at in range(1, count, max(1, count // PLACES)):
            at_bytecode(work, at, interrupt, for_signals=True)
            assert wrong == []
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(values) > PLACES // 2
    for value in values:
        np.testing.assert_array_equal(value, np.sin(own) + 1.0)
    np.testing.assert_array_equal(COUNT.numpy(), own)
