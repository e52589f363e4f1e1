"""Recurrent networks in machine code: sizes, cells, bits, threads, other processors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagerflow.codegen import generated
from eagerflow.ops.nn.recurrent import gru_training, lstm_training, simple_rnn
from eagerflow.ops.nn.recurrent_gradients import gru_gradient, lstm_gradient, simple_rnn_gradient
from eagerflow.primitives import compiled_recurrence as compiled
from eagerflow.primitives import recurrence
from eagerflow.primitives.recurrent_cells import CELLS
from eagerflow.runtime import threads
from tests.cases import cases_of

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")

OPS = {
    "gru": (gru_training, gru_gradient),
    "lstm": (lstm_training, lstm_gradient),
    "simple_rnn": (simple_rnn, simple_rnn_gradient),
}
# Batch, steps, width, units: one block and several, tails of vectors, few examples and many.
SIZES = (
    (1, 3, 2, 5),
    (3, 1, 4, 16),
    (5, 6, 0, 33),
    (7, 4, 5, 20),
    (2, 9, 3, 64),
    (13, 3, 7, 1),
    (1, 4, 1, 100),
    (21, 5, 16, 48),
)


class Case:
    """Arguments of a network, and of its gradient, by a random generator."""

    def __init__(self, cell, size, dtype="float32", given="", reverse=False, seed=0):
        batch, steps, width, units = size
        rng = np.random.default_rng(seed)
        found, wide = CELLS[cell], CELLS[cell].gates * units

        def array(*shape, by=1.0):
            return (rng.standard_normal(shape) * by).astype(dtype)

        self.cell, self.found, self.reverse = cell, found, reverse
        self.x, self.kernel = array(batch, steps, width), array(width, wide, by=0.5)
        self.recurrent = array(units, wide, by=units**-0.5)
        self.bias = None
        if "b" in given:
            self.bias = array(2, wide) if found.apart else array(wide)
        states = range(found.states)
        self.starts = [array(batch, units) if "s" in given else None for _ in states]
        self.mask = rng.random((batch, steps)) < 0.6 if "m" in given else None
        self.g = [array(batch, steps, units) if k == 0 or "g" in given else None for k in states]

    def forward(self, keep=True):
        return compiled.forward(*self.arguments(), keep)

    def arguments(self):
        own = self.x, self.kernel, self.recurrent, self.bias, self.starts, self.mask
        return self.cell, *own, self.reverse

    def gradient(self, results):
        return compiled.gradient(self.cell, *self.of_gradient(results))

    def of_gradient(self, results):
        values = results[-1] if self.found.beside else None
        state = results[self.found.states - 1]
        return self.recurrent, state, values, self.g, self.starts[-1], self.mask, self.reverse

    def expected(self, results):
        """What is right of both, from the definitions of the ops, in float64."""
        forward, back = (cases_of(op.op).reference for op in OPS[self.cell])
        own = self.x, self.kernel, self.recurrent, self.bias, *self.starts, self.mask
        found = forward(*own, reverse=self.reverse)
        kernel, state, values, g, start, mask, reverse = self.of_gradient(results)
        beside = (values, *g, None, start) if self.found.beside else g
        after = back(kernel, state, *beside, mask, reverse=reverse)
        return found if isinstance(found, tuple) else (found,), after


def check(case, tolerance):
    results = case.forward()
    found = case.gradient(results)
    for made, right in zip((results, found), case.expected(results), strict=True):
        for a, b in zip(made, right, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("given", ["", "bs", "bsmg"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cell", CELLS)
def test_definitions(cell, size, given):
    check(Case(cell, size, given=given, reverse="m" in given), 3e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cell", CELLS)
def test_definitions_in_float64(cell):
    for size in SIZES[::3]:
        check(Case(cell, size, "float64", "bsmg"), 1e-12)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(CELLS)),
    st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(0, 6), st.integers(1, 70)),
    st.sets(st.sampled_from("bsmg")),
    st.booleans(),
)
def test_any_size(cell, size, given, reverse):
    """Against the way step by step, which the contract of the ops compares with definitions."""
    case = Case(cell, size, given=given, reverse=reverse)
    results = case.forward()
    right = recurrence.step_by_step(np, *case.arguments(), True)
    kernel, state, values, g, *rest = case.of_gradient(results)
    after = recurrence.gradients_step_by_step(np, cell, kernel, state, values, g, None, *rest)
    found = (*results, *case.gradient(results))
    for a, b in zip(found, (*right, *after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_keeping_intermediates_does_not_change_results(cell):
    case = Case(cell, (6, 4, 3, 40), given="b")
    for a, b in zip(case.forward(False), case.forward(), strict=False):
        assert a.tobytes() == b.tobytes()


def test_layouts():
    """Arrays that are not contiguous, and masks with a stride."""
    case = Case("lstm", (5, 4, 6, 24), given="bsmg")
    right = case.forward()
    after = case.gradient(right)
    for name in ("x", "kernel", "recurrent", "bias", "mask"):
        array = getattr(case, name)
        setattr(case, name, np.stack([array, array], axis=-1)[..., 0])
    case.starts, case.g = ([np.asfortranarray(x) for x in own] for own in (case.starts, case.g))
    results = case.forward()
    for a, b in zip((*results, *case.gradient(results)), (*right, *after), strict=True):
        assert a.tobytes() == b.tobytes()


def test_infinities_and_nan_stay_with_their_examples():
    case = Case("lstm", (6, 5, 3, 20))
    right = case.forward()[0]
    case.x[2, 1, 0], case.x[4, 3, 1] = np.nan, np.inf
    h = case.forward()[0]
    assert np.isnan(h[2, 1:]).all()
    assert np.isfinite(h[[0, 1, 3, 5]]).all()
    assert (h[:, 0] == right[:, 0]).all()
    assert not np.isnan(h[4]).any()  # gates are closed or open


# Threads ------------------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch):
    """All networks are shared among threads."""
    for name in ("MIN_THREAD_PRODUCTS", "MIN_STEP_PRODUCTS"):
        monkeypatch.setattr(compiled, name, 1)
    forget()
    yield monkeypatch
    threads.set_thread_count(None)
    forget()


def forget():
    """Let the work be cut anew."""
    compiled.prepared_forward.cache_clear()
    compiled.prepared_gradient.cache_clear()


def results_by_threads(case, counts):
    for count in counts:
        threads.set_thread_count(count)
        results = case.forward()
        yield b"".join(a.tobytes() for a in (*results, *case.gradient(results)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("least", [1, 1 << 20], ids=["examples", "units"])
@pytest.mark.parametrize("cell", CELLS)
def test_bits_do_not_depend_on_threads(cell, least, shared):
    shared.setattr(compiled, "MIN_THREAD_ROWS", least)
    forget()
    for size in ((1, 7, 3, 200), (5, 6, 3, 130), (23, 5, 9, 70)):
        case = Case(cell, size, given="bsmg")
        first, *others = results_by_threads(case, (1, 2, 3, 5))
        assert all(bits == first for bits in others)


def test_both_ways_to_share_are_tested(shared):
    def shares(batch, helpers):
        size, dtype = compiled.Size(batch, 9, 5, 256), np.dtype("float32")
        network = compiled.Network("lstm", dtype, size, False, True, False, True, (False,) * 2)
        return compiled.shares_of(network, 16, helpers)

    assert (shares(64, 3), shares(2, 3)) == ((4, 1), (1, 4))
    assert (shares(64, 0), shares(2, 0)) == ((1, 1), (1, 1))


def test_bits_of_an_example_do_not_depend_on_the_others():
    case = Case("gru", (29, 4, 3, 50), given="bsm")
    results = case.forward()
    found = case.gradient(results)
    few = slice(11, 16)
    for name in ("x", "mask"):
        setattr(case, name, getattr(case, name)[few])
    case.starts, case.g = ([a[few] for a in own] for own in (case.starts, case.g))
    alone = case.forward()
    for a, b in zip((*results, *found), (*alone, *case.gradient(alone)), strict=True):
        assert a[few].tobytes() == b.tobytes()


def test_threads_that_meet_after_each_step_many_times(shared):
    """Steps that are so short that helpers often come late, or leave others behind."""
    shared.setattr(compiled, "MIN_THREAD_ROWS", 1 << 20)
    case = Case("lstm", (2, 40, 2, 64), given="b")
    first, *others = results_by_threads(case, [1, *[4, 3, 2] * 30])
    assert all(bits == first for bits in others)


def test_a_lost_turn_would_be_seen(shared):
    """Planted: all steps in one turn, which threads that share units must not do."""
    shared.setattr(compiled, "MIN_THREAD_ROWS", 1 << 20)
    case = Case("lstm", (2, 60, 2, 128), given="b")
    (right,) = results_by_threads(case, [1])
    call = compiled.Prepared

    def in_one_turn(kernel, cut, parallel, turns, /, **given):
        given["turn_steps"] = given["steps"]
        return call(kernel, cut, parallel, 1, **given)

    shared.setattr(compiled, "Prepared", in_one_turn)
    assert all(bits != right for bits in results_by_threads(case, [2, 3]))


# Which block, which way ---------------------------------------------------------------------------


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize(("sums", "lines"), [(4, 4), (4, 3), (3, 3), (1, 1)])
def test_blocks_fit_into_registers(sums, lines, registers):
    for examples in (1, 2, 3, 48):
        for units in (1, 3, 8, 20, 32, 100, 256, 512):
            lanes, vectors, rows = compiled.block_of(examples, units, sums, lines, 16, registers)
            assert -(-units // lanes) % vectors == 0
            assert rows * sums * vectors + 2 <= registers
            assert units > lanes // 2 or lanes == 4


def test_small_networks_go_step_by_step():
    size = compiled.Size(2, 3, 4, 5)
    assert not compiled.takes("lstm", np.dtype("float32"), size)
    size = compiled.Size(8, 16, 32, 64)
    assert compiled.takes("lstm", np.dtype("float32"), size)
    assert not compiled.takes("lstm", np.dtype("float16"), size)
    assert not compiled.takes("lstm", np.dtype("float32"), size._replace(steps=0))


# Other processors ---------------------------------------------------------------------------------

CHECKS = """
from tests.primitives import test_recurrence as own
for cell in own.CELLS:
    for size in own.SIZES[::3]:
        own.check(own.Case(cell, size, given="bsmg"), 3e-5)
    own.test_definitions_in_float64(cell)
print(*own.compiled.processor("float32"))
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("features", "shape"), [("-avx512*", "8 16"), ("-avx* -fma", "4 16")], ids=["avx2", "sse"]
)
def test_code_for_processors_with_shorter_vectors(features, shape):
    environment = os.environ | {"EAGERFLOW_LLVM_FEATURES": features, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if os.uname().machine == "x86_64":
        assert done.stdout.split() == shape.split()
