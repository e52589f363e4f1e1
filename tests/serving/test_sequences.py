"""Sequences hand on their own state, in order, whatever runs beside them."""

import asyncio
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError, IndexRangeError, ShapeError
from eagerflow.graph.state import declared
from eagerflow.serving import (
    Batching,
    BusyError,
    LateError,
    ModelVersion,
    SequenceLimits,
    UnavailableError,
    UnknownSequenceError,
)
from eagerflow.serving.sequences import Sequences, Step
from eagerflow.serving.stepping import SequenceBatcher
from tests.serving.test_batching import run

TABLE = np.arange(4, dtype="float32")
BEGIN = np.asarray([0.25, -3.0], "float32")


def summing(mixes=False):
    """A graph whose state is a decaying sum and a count; an index beyond the table fails."""

    def step(x, i, h, count):
        total = h * 0.5 + x
        if mixes:
            total = total - ef.mean(total, axis=0)
        y = total + ef.take(ef.tensor(TABLE), i)[:, None]
        return {"y": y, "seen": count + 1, "h_next": total, "count_next": count + 1}

    def rows(*shape, dtype="float32"):
        return ef.TensorSpec(("batch", *shape), dtype)

    whole = rows(dtype="int64")
    graph = ef.capture.trace(step, rows(2), whole, rows(2), whole)
    graph.state = declared(graph, {"h": ("h_next", BEGIN), "count": "count_next"})
    return graph


class Plain:
    """The same, for one sequence, in NumPy."""

    def __init__(self):
        self.h, self.count = BEGIN, 0

    def step(self, x, i):
        if i >= len(TABLE):
            return None
        self.h, self.count = self.h * np.float32(0.5) + x, self.count + 1
        return self.h + TABLE[i], self.count


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def batcher_of(cls=SequenceBatcher, rows=4, clock=None, slow=False, graph=None, number=1, **limits):
    version = ModelVersion("summing", number, graph or summing(), "exact")
    version.seconds = 1.0 if slow else 0.0
    sequences = Sequences("summing", SequenceLimits(**limits), clock or Clock())
    return cls(version, Batching(rows), None, sequences)


def asked(x, i=0):
    return {"x": np.asarray(x, "float32").reshape(1, 2), "i": np.asarray([i])}


async def ask(batcher, id, x=(1.0, 2.0), i=0, start=False, end=False, **more):
    _, found = await batcher.answer(asked(x, i), step=Step(id, start, end), **more)
    return found["y"][0], int(found["seen"][0])


EVENT = st.tuples(
    st.integers(0, 5),  # which sequence
    st.sampled_from(["go", "go", "go", "fail", "end"]),
    st.floats(-4, 4, width=16),
)


def check_interleaving(cls, rounds, rows, slow=False):
    """What requests at once give is what a plain loop over each sequence gives."""
    batcher, known = batcher_of(cls, rows, slow=slow), {}

    async def go():
        for events in rounds:
            tasks, wanted = [], []
            for id, kind, x in events:
                name = f"s{id}"
                start = name not in known
                plain = known.setdefault(name, Plain())
                i = len(TABLE) if kind == "fail" else id % len(TABLE)
                expected = plain.step(np.asarray([x, -x], "float32"), i)
                if (start and expected is None) or kind == "end":
                    del known[name]
                tasks.append(
                    asyncio.create_task(ask(batcher, name, (x, -x), i, start, end=kind == "end"))
                )
                wanted.append(expected)
                if name not in known:  # its end shows before another begins
                    await asyncio.wait(tasks)
            found = await asyncio.gather(*tasks, return_exceptions=True)
            for answer, expected in zip(found, wanted, strict=True):
                if expected is None:
                    assert isinstance(answer, IndexRangeError), answer
                    continue
                np.testing.assert_array_equal(answer[0], expected[0])
                assert answer[1] == expected[1]
        assert len(batcher.sequences.of(batcher)) == len(known)
        assert batcher.running == 0

    run(go())


ROUNDS = st.lists(st.lists(EVENT, min_size=1, max_size=8), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(ROUNDS, st.sampled_from([1, 3, 8]), st.booleans())
def test_any_interleaving_is_as_each_alone(rounds, rows, slow):
    check_interleaving(SequenceBatcher, rounds, rows, slow)


@pytest.mark.soak
@settings(max_examples=2000, deadline=None)
@given(ROUNDS, st.sampled_from([1, 2, 3, 8, 32]), st.booleans())
def test_many_interleavings(rounds, rows, slow):
    check_interleaving(SequenceBatcher, rounds, rows, slow)


class Neighbours(SequenceBatcher):
    """Wrong: each sequence goes on from the state of another of its batch."""

    def _gathered(self, members, wanted):
        return super()._gathered(members[1:] + members[:1], wanted)


class Early(SequenceBatcher):
    """Wrong: state is kept of what fails."""

    def _joined(self, batch):
        for request in batch:
            if len(batch) == 1:
                request.sequence.put([x + 1 for x in request.sequence.rows()])
        return super()._joined(batch)


class Stale(SequenceBatcher):
    """Wrong: the stack of the step before is taken for any members."""

    def _gathered(self, members, wanted):
        found = super()._gathered(members, wanted)
        stack = self._stack
        return stack.arrays if stack and len(stack.arrays[0]) == len(found[0]) else found


@pytest.mark.parametrize("wrong", [Neighbours, Early, Stale])
def test_planted_faults_are_found(wrong):
    rounds = [
        [(id, "go", id + 1.0) for id in ids] for ids in ((0, 1), (2, 3), (1, 0), (0,), (3, 1))
    ]
    check_interleaving(SequenceBatcher, rounds, 4)
    with pytest.raises(AssertionError):
        check_interleaving(wrong, rounds, 4)


def test_the_same_sequences_share_their_stack_without_copies():
    batcher = batcher_of()
    stack = lambda: batcher._stack

    async def go():
        for turn in range(3):
            await asyncio.gather(*(ask(batcher, f"s{i}", start=turn == 0) for i in range(3)))
            assert [s.id for s in stack().members] == ["s0", "s1", "s2"]
        before = stack()
        await ask(batcher, "late", start=True)  # few beside many: they stay as they are
        assert stack() is before
        assert len(before.arrays[0]) == 4  # filled up to a size with a plan
        for i in range(3):
            await ask(batcher, f"s{i}", end=True)
        await ask(batcher, "late", end=True)
        assert stack() is None

    run(go())


def test_graphs_that_mix_rows_run_alone():
    batcher = batcher_of(graph=summing(mixes=True))
    assert batcher.version.signature.batch is None

    async def go():
        first = await asyncio.gather(*(ask(batcher, f"s{i}", start=True) for i in range(3)))
        second = await asyncio.gather(*(ask(batcher, f"s{i}") for i in range(3)))
        return first, second

    for answers, count in zip(run(go()), (1, 2), strict=True):
        assert [seen for _, seen in answers] == [count] * 3
        np.testing.assert_array_equal(*[y for y, _ in answers][:2])


def test_an_lstm_by_steps_is_the_layer():
    layer = ef.nn.LSTM(4, return_sequences=True)
    x = np.random.default_rng(0).standard_normal((3, 5, 2)).astype("float32")
    whole = layer(x).numpy()

    def step(x, h, c):
        y, (h, c) = layer.cell(x, [h, c])
        return {"y": y, "h_next": h, "c_next": c}

    state = ef.TensorSpec(("batch", 4), "float32")
    graph = ef.capture.trace(step, ef.TensorSpec(("batch", 2), "float32"), state, state)
    graph.state = declared(graph, {"h": "h_next", "c": "c_next"})
    batcher = SequenceBatcher(ModelVersion("lstm", 1, graph), Batching(4))
    assert batcher.version.signature.batch == "batch"

    async def row(i):
        found = [
            await batcher.answer({"x": x[i, t : t + 1]}, step=Step(i + 1, t == 0, False))
            for t in range(5)
        ]
        return np.concatenate([outputs["y"] for _, outputs in found])

    async def go():
        return await asyncio.gather(*(row(i) for i in range(3)))

    np.testing.assert_allclose(run(go()), whole, rtol=1e-5, atol=1e-6)


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sequence_id": 1.5}, "names no sequence"),
        ({"sequence_id": True}, "names no sequence"),
        ({"sequence_id": "x" * 300}, "names no sequence"),
        ({"sequence_id": [1]}, "names no sequence"),
        ({"sequence_start": True}, "without its id"),
        ({"sequence_id": 0, "sequence_end": True}, "without its id"),
        ({"sequence_id": 1, "sequence_start": 1}, "sequence_start"),
        ({"sequence_id": 1, "sequence_end": "yes"}, "sequence_end"),
    ],
)
def test_parameters_that_are_none(parameters, words):
    with pytest.raises(ArgumentError, match=words):
        Step.of(parameters)


def test_parameters():
    assert Step.of({"timeout": 3}) is None
    assert Step.of({"sequence_id": 0}) is None and Step.of({"sequence_id": ""}) is None
    assert Step.of({"sequence_id": "a", "sequence_end": True}) == Step("a", False, True)


def test_requests_that_cannot_be():
    batcher = batcher_of()

    async def go():
        with pytest.raises(ArgumentError, match="belong to sequences"):
            await batcher.answer(asked((1, 2)))
        with pytest.raises(ArgumentError, match="belong to sequences"):
            await batcher.run(asked((1, 2)))
        with pytest.raises(UnknownSequenceError, match="no sequence 7"):
            await ask(batcher, 7)
        await ask(batcher, 7, start=True)
        other = batcher_of(number=3)
        other.sequences = batcher.sequences
        with pytest.raises(UnknownSequenceError, match="another version"):
            await ask(other, 7, is_named=True)
        assert (await ask(other, 7))[1] == 2  # where it has begun
        with pytest.raises(ShapeError, match=r"x: .*one row"):
            two = {"x": np.ones((2, 2), "float32"), "i": np.zeros(2, "int64")}
            await batcher.answer(two, step=Step(7, False, False))
        with pytest.raises(ArgumentError, match="no input 'h'"):
            await batcher.answer(
                asked((1, 2)) | {"h": np.ones((1, 2), "float32")}, step=Step(7, False, False)
            )
        assert (await ask(batcher, 7))[1] == 3  # as if nothing had been
        await ask(batcher, 7, end=True)
        with pytest.raises(UnknownSequenceError, match="a request ended it"):
            await ask(batcher, 7)

    run(go())


def test_sequence_with_failed_first_request_is_unknown():
    batcher = batcher_of(slow=True)

    async def go():
        first = asyncio.create_task(ask(batcher, "a", i=9, start=True))
        await asyncio.sleep(0)
        second = asyncio.create_task(ask(batcher, "a"))
        with pytest.raises(IndexRangeError):
            await first
        with pytest.raises(UnknownSequenceError, match="first request failed"):
            await second
        assert not batcher.sequences.of(batcher)

    run(go())


def test_one_that_begins_again_takes_the_place():
    batcher = batcher_of(slow=True, max_sequences=1)

    async def go():
        await ask(batcher, "a", start=True)
        old = asyncio.create_task(ask(batcher, "a"))
        await asyncio.sleep(0)
        assert (await ask(batcher, "a", start=True))[1] == 1
        assert (await old)[1] == 2
        assert (await ask(batcher, "a"))[1] == 2
        assert len(batcher.sequences.of(batcher)) == 1

    run(go())


@pytest.mark.parametrize("limits", [{"max_sequences": 2}, {"max_bytes": 32}])
def test_too_many_are_refused(limits):
    clock = Clock()
    batcher = batcher_of(clock=clock, idle_seconds=10, **limits)
    assert batcher.version.state_bytes == 16

    async def go():
        await ask(batcher, 1, start=True)
        await ask(batcher, 2, start=True)
        with pytest.raises(BusyError, match="no room"):
            await ask(batcher, 3, start=True)
        clock.now += 5
        await ask(batcher, 2)
        clock.now += 6
        await ask(batcher, 3, start=True)  # the first one was idle for too long
        with pytest.raises(UnknownSequenceError, match="idle for 10 s"):
            await ask(batcher, 1)
        assert (await ask(batcher, 2))[1] == 3

    run(go())


def test_idle_sequences_go_by_themselves():
    batcher = batcher_of(clock=time.monotonic)
    batcher.sequences.limits = SequenceLimits(idle_seconds=0.1)

    async def go():
        await ask(batcher, 1, start=True)
        while batcher.sequences.of(batcher):
            await asyncio.sleep(0.02)

    run(go())


@pytest.mark.parametrize(
    "wrong",
    [{"max_sequences": 0}, {"max_bytes": 1.5}, {"idle_seconds": -1}, {"leaving_seconds": "1"}],
)
def test_limits_that_cannot_be(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        SequenceLimits(**wrong).checked()


def test_late_and_busy():
    batcher = batcher_of(slow=True)
    batcher.batching = Batching(4, max_queue=2)

    async def go():
        await ask(batcher, 1, start=True)
        with pytest.raises(LateError):
            await ask(batcher, 1, timeout=-1.0)
        found = await asyncio.gather(*(ask(batcher, 1) for _ in range(4)), return_exceptions=True)
        assert [x[1] for x in found[:2]] == [2, 3]
        assert all(isinstance(x, BusyError) for x in found[2:])

    run(go())


# Versions that leave ------------------------------------------------------------------------------


def test_a_version_that_leaves_lets_sequences_end():
    clock = Clock()
    batcher = batcher_of(clock=clock, leaving_seconds=5)

    async def go():
        await ask(batcher, 1, start=True)
        await ask(batcher, 2, start=True)
        leaving = asyncio.create_task(batcher.drain())
        await asyncio.sleep(0.03)
        with pytest.raises(UnavailableError, match="shutting down"):
            await ask(batcher, 3, start=True)
        assert (await ask(batcher, 1, end=True))[1] == 2
        assert (await ask(batcher, 2))[1] == 2
        assert not leaving.done()
        clock.now += 6
        await leaving
        with pytest.raises(UnknownSequenceError, match="version 1 has left"):
            await ask(batcher, 2)

    run(go())


def test_drain_does_not_wait_for_idle_sequences():
    batcher = batcher_of(slow=True)

    async def go():
        await ask(batcher, 1, start=True)
        under_way = asyncio.create_task(ask(batcher, 1))
        await asyncio.sleep(0)
        batcher.sequences.is_closing = True
        await batcher.drain()
        assert (await under_way)[1] == 2

    run(go())
