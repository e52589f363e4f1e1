"""Profiles of plans: every step is there with its numbers, and nothing changes by looking."""

from itertools import pairwise

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.codegen.llvm import stamps
from eagerflow.plan.profiled_segments import IterationsSite, LoopSite, StampedSegment, StepsSite
from eagerflow.plan.timed import UPDATES
from tests.internals import layouts_of, segments_of

segments = pytest.mark.skipif(not kernel.has_segments(), reason="segments need llvmlite")


def product_graph():
    spec = ef.TensorSpec((64, 64), "float32")
    return ef.capture.trace(lambda x: ef.sum(ef.tanh(x @ x), axis=0), spec)


def rows_of(profile):
    return {row.name: row for row in profile.rows}


def test_steps_have_their_numbers():
    plan = product_graph().plan()
    found = plan.profile([np.ones((64, 64), "float32")], rounds=3)
    product = rows_of(found)["matmul"]
    assert (product.calls, product.flops) == (3, 3 * 2 * 64**3)
    assert product.result == "float32(64, 64)"
    assert product.bytes == 3 * 2 * 64 * 64 * 4  # what is read twice counts once
    assert product.place.startswith("test_profile.py:")
    assert product.gigaflops == pytest.approx(product.flops / product.seconds / 1e9)
    times = [row.seconds for row in found.rows]
    assert times == sorted(times, reverse=True)
    assert "GFLOP/s" in str(found)
    assert "a run of 3" in str(found)


def test_a_step_inside_of_a_loop_counts_its_calls():
    def f(x):
        return ef.fori_loop(0, 5, lambda i, y: ef.sort(y) * 0.5, x)

    plan = ef.capture.trace(f, ef.TensorSpec((9,), "float32")).plan()
    found = plan.profile([np.arange(9, dtype="float32")], rounds=2)
    assert rows_of(found)["sort"].calls == 2 * 5


def training_step(weights, optimizer):
    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.mean((x @ weights) ** 2)
        optimizer.apply(tape.gradient(loss, [weights]), [weights])
        return loss

    return step


def test_variables_and_arguments_stay():
    weights = ef.Variable(np.ones((200, 200), "float32"))
    optimizer = ef.nn.optimizers.Adam(learning_rate=0.1)
    step, x = training_step(weights, optimizer), ef.ones((16, 200))
    before = weights.numpy()
    found = step.profile(x, rounds=2)
    np.testing.assert_array_equal(weights.numpy(), before)
    assert int(optimizer.iterations.numpy()) == 0
    in_place = UPDATES in rows_of(found)
    assert in_place == kernel.has_segments()
    step(x)
    assert (weights.numpy() != before).all()


def test_no_rounds_are_refused():
    with pytest.raises(ef.errors.ArgumentError, match="0 rounds measure nothing"):
        product_graph().plan().profile([np.ones((64, 64), "float32")], rounds=0)


def test_steps_give_the_same_bits_and_updates_as_without(monkeypatch):
    x = ef.tensor(np.random.default_rng(0).standard_normal((48, 200)).astype("float32"))
    found = []
    for looked_at in (False, True):
        weights = ef.Variable(np.full((200, 200), 0.01, "float32"))
        step = training_step(weights, ef.nn.optimizers.Adam(learning_rate=0.1))
        losses = [step(x)]
        if looked_at:
            with ef.profile() as p:
                losses += [step(x), step(x)]
            assert rows_of(p)["matmul"].calls >= 2
        else:
            losses += [step(x), step(x)]
        losses.append(step(x))
        found.append([*(loss.numpy().tobytes() for loss in losses), weights.numpy().tobytes()])
    assert found[0] == found[1]


@segments
def test_steps_of_a_segment_are_one_behind_the_other():
    step, x = ef.function(lambda x: ef.sum(ef.tanh(x @ x), axis=0)), ef.ones((256, 256))
    step(x)
    with ef.profile() as p:
        step(x)
    own = [part.event for part in p.parts if isinstance(part.event.site, StepsSite)]
    assert len(own) >= 2
    for before, after in pairwise(own):
        assert before.end <= after.begin
    call = next(part.event for part in p.parts if part.facts.name.startswith("call of"))
    assert all(call.begin <= event.begin <= event.end <= call.end for event in own)


@segments
def test_without_a_clock_a_segment_is_one_event(monkeypatch):
    monkeypatch.setattr(stamps, "can_stamp", lambda: False)
    step, x = ef.function(lambda x: ef.sum(ef.tanh(x @ x), axis=0)), ef.ones((256, 256))
    expected = step(x).numpy()
    with ef.profile() as p:
        found = step(x)
    np.testing.assert_array_equal(found.numpy(), expected)
    (name,) = {row.name for row in p.rows} - {"call of lambda", "(preparing the profile)"}
    assert name.startswith("matmul + tanh")


def wide_scan(x, w):
    return ef.scan(lambda h, row: (ef.tanh(h @ w + row), h), ef.zeros_like(x[0]), x)[0]


def narrow_scan(x, w):
    return ef.scan(lambda h, row: (h * 0.5 + row, h), ef.zeros_like(x[0]), x)[0]


@segments
@pytest.mark.parametrize("threads", [1, 2])
def test_steps_of_loops_are_seen(threads, monkeypatch):
    monkeypatch.setattr("eagerflow.runtime.threads.thread_count", lambda: threads)
    monkeypatch.setattr("eagerflow.runtime.threads.helpers", lambda: threads - 1)
    x, w = ef.ones((20, 32, 128)) * 0.1, ef.ones((128, 128)) * 0.01
    expected = [f(x, w).numpy() for f in (ef.function(wide_scan), wide_scan)]
    captured = ef.function(wide_scan)
    captured(x, w)
    shares = []
    for _ in range(10):  # a thread that another program interrupts takes longer
        with ef.profile() as p:
            found = captured(x, w).numpy()
        np.testing.assert_array_equal(found, expected[0])
        inside = [part for part in p.parts if isinstance(part.event.site, IterationsSite)]
        loop = next(part for part in p.parts if isinstance(part.event.site, LoopSite))
        whole = (loop.event.end - loop.event.begin) * 1e-9
        shares.append(sum(part.seconds for part in inside) / whole)
    product = next(part for part in inside if part.facts.name == "matmul")
    assert product.facts.calls == 20
    assert product.facts.flops == 20 * 2 * 32 * 128 * 128
    assert product.seconds > 0
    assert not loop.facts.flops, "work of its steps counts once"
    assert 0.5 < max(shares) <= 1.0001


@segments
def test_loops_of_short_steps_are_one_event():
    x, w = ef.ones((300, 4)), ef.ones((1,))
    captured = ef.function(narrow_scan)
    captured(x, w)
    with ef.profile() as p:
        captured(x, w)
    assert not [part for part in p.parts if isinstance(part.event.site, IterationsSite)]
    assert rows_of(p)["scan"].flops > 0


@segments
def test_stamps_are_in_segments_of_profiles_alone():
    captured, x = ef.function(lambda x: ef.tanh(x @ x) @ x), ef.ones((128, 128))
    captured(x)
    plan = captured.graphs[-1].plan()
    captured(x)
    own = segments_of(plan)
    before = {segment: list(layouts_of(segment)) for segment in own}
    with ef.profile():
        captured(x)
    captured(x)
    for segment in own:
        assert not isinstance(segment, StampedSegment)
        assert layouts_of(segment) == before[segment], "the plain layouts are the same objects"


def test_errors_of_steps_name_the_line_of_the_user():
    @ef.function
    def f(x, i):
        return ef.take(ef.tanh(x), i, axis=0)

    x, wrong = ef.ones((3,)), ef.tensor([7])
    with pytest.raises(ef.errors.IndexRangeError) as plain:
        f(x, wrong)
    with ef.profile() as p, pytest.raises(ef.errors.IndexRangeError) as found:
        f(x, wrong)
    assert str(found.value) == str(plain.value)
    assert p.seconds > 0


def test_long_tables_count_omitted_rows():
    def f(x):
        return [
            op(x)
            for op in (
                *(ef.sin, ef.cos, ef.tan, ef.exp, ef.log, ef.sqrt, ef.tanh, ef.sort, ef.argsort),
                *(ef.sinh, ef.cosh, ef.floor, ef.ceil, ef.abs, ef.sign, ef.expm1, ef.log1p),
                *(ef.square, ef.sum, ef.mean, ef.max, ef.min, ef.prod, ef.flip, ef.cumulative_sum),
            )
        ]

    text = str(
        ef.capture.trace(f, ef.TensorSpec((50,), "float32"))
        .plan(numerics="exact")
        .profile([np.ones(50, "float32")], rounds=1)
    )
    assert "more: " in text
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 110
