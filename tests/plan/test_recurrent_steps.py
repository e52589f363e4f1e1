"""Recurrent networks as steps of segments: whole training steps in one call, whatever they get."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen.kernel import has_segments
from eagerflow.plan.segments import PythonPart
from eagerflow.primitives import compiled_recurrence as compiled
from eagerflow.primitives.recurrent_cells import CELLS
from eagerflow.runtime import threads
from tests.internals import most_helpers, parts_of
from tests.interrupts import at_every_bytecode, interrupted_at_times
from tests.primitives.test_recurrence import Case, forget

needs_segments = pytest.mark.skipif(not has_segments(), reason="there is no compiler")

CELL_NAMES = sorted(CELLS)
# Batch, steps, width, units: few examples, whose inputs are multiplied first, and many.
SIZES = ((1, 16, 16, 32), (3, 20, 5, 20), (8, 6, 7, 33))
RUNS = 3


def arguments(cell, size, given="", reverse=False, dtype="float32"):
    """The op's arguments, those of them that are arrays, as a dict."""
    case = Case(cell, size, dtype, given, reverse)
    starts = dict(zip(("h", "c"), case.starts, strict=False))
    own = {"x": case.x, "kernel": case.kernel, "recurrent_kernel": case.recurrent}
    own |= {"bias": case.bias, **starts, "mask": case.mask}
    return {name: ef.tensor(a) for name, a in own.items() if a is not None}


def training(cell, reverse=False, by_cells=False):
    """What gives a loss, all outputs, and the gradients by all floats."""
    op, states = getattr(ef, cell), ("h", "c")[: CELLS[cell].states]

    def step(**given):
        watched = [x for name, x in given.items() if name != "mask"]
        with ef.GradientTape() as tape:
            tape.watch(watched)
            own = [given.get(name) for name in ("x", "kernel", "recurrent_kernel", "bias", *states)]
            found = op(*own, given.get("mask"), reverse=reverse)
            found = found if isinstance(found, tuple) else (found,)
            loss = ef.mean(found[0] * found[0] + ef.sin(found[0]))
            if by_cells:
                loss = loss + ef.mean(found[-1] * found[-1])
        return (loss, *found, *tape.gradient(loss, watched))

    return step


def check(found, wanted, tolerance=2e-5):
    for a, b in zip(found, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0))


def compare(cell, size, given="", reverse=False, by_cells=False, dtype="float32"):
    """Captured results are the eager ones, run after run; gives the captured function."""
    own, step = arguments(cell, size, given, reverse, dtype), training(cell, reverse, by_cells)
    captured, wanted = ef.function(step), step(**own)
    for _ in range(RUNS):  # sums over time begin with zeros in each
        check(captured(**own), wanted, 2e-5 if dtype == "float32" else 1e-13)
    return captured


def in_python(captured):
    return {p.step.op.name for p in parts_of(captured) if isinstance(p, PythonPart)}


@pytest.mark.sampled(3)
@needs_segments
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_a_training_step_is_one_call(cell, size):
    rng = np.random.default_rng(0)
    own = arguments(cell, size, "b")
    x = own.pop("x")
    weights = [ef.Variable(w) for w in own.values()]
    weights.append(ef.Variable(rng.standard_normal((size[3], 1)).astype("float32")))
    optimizer = ef.nn.optimizers.Adam(learning_rate=0.01)

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            found = getattr(ef, cell)(x, *weights[:3])
            h = found[0] if isinstance(found, tuple) else found
            loss = ef.mean((h[:, -1] @ weights[3] - 1.0) ** 2)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    losses = [float(step(x)) for _ in range(20)]
    assert losses[-1] < losses[0]
    (part,) = parts_of(step)
    assert not isinstance(part, PythonPart)


@pytest.mark.sampled(8)
@needs_segments
@pytest.mark.parametrize("given", ["", "b", "bs", "bsm"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_captured_recurrent_ops_match_eager(cell, size, given):
    """States, masks, steps in reverse, gradients by cell states."""
    captured = compare(cell, size, given, reverse="m" in given, by_cells="s" in given)
    assert in_python(captured) == set()


@needs_segments
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(CELL_NAMES),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9), st.integers(1, 60)),
    st.sets(st.sampled_from("bsm")),
    st.booleans(),
    st.booleans(),
)
def test_any_size(cell, size, given, reverse, by_cells):
    compare(cell, size, "".join(given), reverse, by_cells)


@pytest.mark.sampled(3)
@needs_segments
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_float64(cell):
    for size in SIZES:
        assert in_python(compare(cell, size, "bs", dtype="float64")) == set()


@needs_segments
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_without_a_gradient(cell):
    """Nothing keeps the gates: products of inputs are in memory of the segment's own."""
    op = getattr(ef, cell)
    for size in SIZES:
        own = arguments(cell, size, "b")

        @ef.function
        def f(x, kernel, recurrent_kernel, bias):
            found = op(x * 1.0, kernel, recurrent_kernel, bias)
            found = found if isinstance(found, tuple) else (found,)
            return tuple([ef.tanh(h) for h in found])

        found = op(*own.values())
        found = found if isinstance(found, tuple) else (found,)
        for _ in range(RUNS):
            check(f(**own), [np.tanh(np.asarray(h)) for h in found])


@needs_segments
def test_one_value_as_both_states():
    own = arguments("lstm", (4, 6, 5, 24), "b")
    start = ef.tensor(np.random.default_rng(1).standard_normal((4, 24)).astype("float32"))

    def f(x, kernel, recurrent_kernel, bias):
        return [ef.tanh(s) for s in ef.lstm(x, kernel, recurrent_kernel, bias, start, start)]

    wanted = f(**own)
    captured = ef.function(f)
    for _ in range(RUNS):
        check(captured(**own), wanted)


@needs_segments
def test_arrays_that_lie_otherwise():
    """They are copied, by Python, as long as they come."""
    own = arguments("gru", (5, 9, 8, 24), "bm")
    step = training("gru")
    captured, wanted = ef.function(step), step(**own)
    turned = {
        name: ef.asarray(np.asfortranarray(np.asarray(x))) if name != "bias" else x
        for name, x in own.items()
    }
    for arrays in (own, turned, turned, own):
        check(captured(**arrays), wanted)


@needs_segments
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_nothing_is_read_that_was_not_written(cell, monkeypatch):
    """Planted: memory to work in, and for results, holds NaN before."""
    empty = np.empty

    def spoilt(shape, dtype=float, **more):
        made = empty(shape, dtype, **more)
        if made.dtype.kind == "f" or made.dtype == np.uint8:
            made.fill(np.nan if made.dtype.kind == "f" else 255)
        return made

    for size in SIZES:
        own, step = arguments(cell, size), training(cell)
        wanted = step(**own)
        captured = ef.function(step)
        with monkeypatch.context() as patch:
            patch.setattr(np, "empty", spoilt)
            assert np.isnan(np.empty((4,), np.uint8).view("float32")).all()
            found = captured(**own)
        check(found, wanted)


# Bits and threads --------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch):
    """All networks are shared among threads, by units."""
    for name, value in (("THREAD_PRODUCTS", 1), ("STEP_PRODUCTS", 1), ("THREAD_ROWS", 1 << 20)):
        monkeypatch.setattr(compiled, f"MIN_{name}", value)
    forget()
    yield
    threads.set_thread_count(None)
    forget()


def bits(found):
    return [np.asarray(x).tobytes() for x in found]


@pytest.mark.sampled(3)
@needs_segments
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_bits_do_not_depend_on_threads(cell, shared):
    for size in ((2, 30, 5, 150), (9, 7, 6, 40)):
        own, found = arguments(cell, size, "bsm"), []
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            captured = ef.function(training(cell))
            found += [bits(captured(**own)) for _ in range(RUNS)]
            helpers = most_helpers(captured)
            assert helpers >= min(count - 1, 1)
        assert all(one == found[0] for one in found)


@pytest.mark.parametrize("cell", CELL_NAMES)
def test_exact_steps_equal_eager_ones_bitwise(cell):
    for size in SIZES:
        own, step = arguments(cell, size, "bsm"), training(cell)
        assert bits(ef.function(step, numerics="exact")(**own)) == bits(step(**own))


# Interrupts --------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@needs_segments
@pytest.mark.parametrize("how", ["bytecode", "signal"])
def test_interrupts_leave_segments_whole(how, shared):
    threads.set_thread_count(2)
    own, captured = arguments("lstm", (2, 40, 5, 64), "b"), ef.function(training("lstm"))
    wanted = [bits(captured(**own)) for _ in range(20)][-1]

    def step():
        captured(**own)

    def look():
        assert bits(captured(**own)) == wanted

    if how == "bytecode":
        assert at_every_bytecode(step, look, step=2) > 50
    else:
        assert interrupted_at_times(step, look, 60, seconds=20.0) > 10


# Other processors, and none ----------------------------------------------------------------------

CHECKS = """
from tests.plan import test_recurrent_steps as own
parts = []
for cell in own.CELL_NAMES:
    for size in own.SIZES:
        captured = own.compare(cell, size, "bsm", reverse=True, by_cells=True)
        parts += own.parts_of(captured)
        assert not own.in_python(captured)
print(len(parts), own.compiled.processor("float32")[0] if parts else 0)
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("variable", "value", "lanes"),
    [
        ("EAGERFLOW_LLVM_FEATURES", "-avx512*", "8"),
        ("EAGERFLOW_LLVM_FEATURES", "-avx* -fma", "4"),
        ("EAGERFLOW_LLVM", "0", "0"),
    ],
    ids=["avx2", "sse", "none"],
)
def test_other_processors_and_no_compiler(variable, value, lanes):
    environment = os.environ | {variable: value, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split()
    assert (int(count) > 0) == (lanes != "0" and has_segments())
    if os.uname().machine == "x86_64" and has_segments():
        assert found == lanes
