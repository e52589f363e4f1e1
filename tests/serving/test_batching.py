"""Requests that are joined have the answers that they have alone, and none harms another."""

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError, IndexRangeError
from eagerflow.serving import Batching, BusyError, LateError, ModelVersion, UnavailableError
from eagerflow.serving.batching import Batcher
from tests.serving.models import asynchronous, scaling

RNG = np.random.default_rng(0)


class Watched(ModelVersion):
    """A version that notes the rows of its batches; a ``slow`` one runs in a thread."""

    def __init__(self, graph, slow=False):
        super().__init__("watched", 1, graph, "exact")
        self.batches = []
        self.go = threading.Event()
        self.go.set()
        self.seconds = 1.0 if slow else 0.0

    def compute(self, inputs, outputs):
        self.go.wait(10)
        self.batches.append(len(inputs[0]))
        return super().compute(inputs, outputs)


def run(body):
    """Run a coroutine, which has to end soon."""
    return asyncio.run(asyncio.wait_for(body, 30))


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.booleans(), st.sampled_from([1, 4]))
def test_joined_is_as_alone(sizes, slow, max_rows):
    version = Watched(scaling(3), slow)
    batcher = Batcher(version, Batching(max_rows))
    given = [RNG.standard_normal((n, 3)).astype("float32") for n in sizes]
    wanted = [version.run({"x": x}) for x in given]

    async def all_at_once():
        return await asyncio.gather(*(batcher.run({"x": x}) for x in given))

    for found, expected in zip(run(all_at_once()), wanted, strict=True):
        assert found.keys() == expected.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])
    assert batcher.running == 0


@asynchronous
async def test_waiting_requests_form_one_batch_of_a_planned_size():
    version = Watched(scaling(2), slow=True)
    batcher = Batcher(version, Batching(8))
    version.go.clear()
    first = asyncio.create_task(batcher.run({"x": np.ones((1, 3), "float32")}))
    await asyncio.sleep(0.05)
    others = [asyncio.create_task(batcher.run({"x": np.ones((1, 3), "float32")})) for _ in range(5)]
    await asyncio.sleep(0.01)
    version.go.set()
    await asyncio.gather(first, *others)
    assert version.batches == [1, 8]


def test_a_request_waits_for_others_no_longer_than_said():
    version = Watched(scaling(2))
    batcher = Batcher(version, Batching(8, max_wait=0.2))

    async def go():
        async def later(seconds):
            await asyncio.sleep(seconds)
            return await batcher.run({"x": np.ones((1, 3), "float32")})

        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.gather(later(0), later(0.05))
        return loop.time() - begin

    assert 0.19 < run(go()) < 5
    assert version.batches == [2]


def test_rows_that_depend_on_each_other_are_never_joined():
    spec = ef.TensorSpec(("batch", 3), "float32")
    version = Watched(ef.capture.trace(lambda x: x - ef.mean(x, axis=0), spec))
    batcher = Batcher(version, Batching(8))
    assert version.signature.batch is None and "mean" in version.signature.alone
    given = [RNG.standard_normal((2, 3)).astype("float32") for _ in range(4)]

    async def go():
        return await asyncio.gather(*(batcher.run({"x": x}) for x in given))

    for x, found in zip(given, run(go()), strict=True):
        np.testing.assert_allclose(found["output"], x - x.mean(axis=0), rtol=1e-5, atol=1e-6)
    assert version.batches == [2, 2, 2, 2]


def test_a_request_that_fails_has_its_own_error():
    spec = ef.TensorSpec(("batch",), "int64")
    table = ef.capture.trace(lambda i: ef.take(ef.arange(4.0), i), spec)
    batcher = Batcher(Watched(table), Batching(8))

    async def go():
        asked = (batcher.run({"i": np.array([i])}) for i in (0, 9, 3))
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = run(go())
    assert (first["output"].tolist(), third["output"].tolist()) == ([0.0], [3.0])
    assert isinstance(second, IndexRangeError)


@asynchronous
async def test_late_busy_and_leaving_requests_are_refused():
    version = Watched(scaling(2), slow=True)
    batcher = Batcher(version, Batching(1, max_queue=2))
    x = {"x": np.ones((1, 3), "float32")}
    version.go.clear()
    running = asyncio.create_task(batcher.run(x))
    await asyncio.sleep(0.05)
    late = asyncio.create_task(batcher.run(x, timeout=0.001))
    waiting = asyncio.create_task(batcher.run(x))
    await asyncio.sleep(0.02)
    with pytest.raises(BusyError, match="queue"):
        await batcher.run(x)
    leaving = asyncio.create_task(batcher.drain())
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="shutting down"):
        await batcher.run(x)
    version.go.set()
    with pytest.raises(LateError, match="deadline"):
        await late
    await asyncio.gather(running, waiting, leaving)
    assert version.batches == [1, 1]
    assert (batcher.statistics().success, batcher.statistics().fail) == (2, 1)


@asynchronous
async def test_requests_are_served_by_priority():
    version = Watched(scaling(2), slow=True)
    batcher = Batcher(version, Batching(1))
    order = []

    async def ask(name, priority):
        await batcher.run({"x": np.ones((1, 3), "float32")}, priority=priority)
        order.append(name)

    version.go.clear()
    tasks = [asyncio.create_task(ask("running", 0))]
    await asyncio.sleep(0.05)
    tasks += [asyncio.create_task(ask(name, p)) for name, p in (("b", 1), ("c", 2), ("a", 0))]
    await asyncio.sleep(0.02)
    version.go.set()
    await asyncio.gather(*tasks)
    assert order == ["running", "a", "b", "c"]


@asynchronous
async def test_cancelled_request_is_not_computed():
    version = Watched(scaling(2), slow=True)
    batcher = Batcher(version, Batching(1))
    x = {"x": np.ones((1, 3), "float32")}
    version.go.clear()
    running = asyncio.create_task(batcher.run(x))
    await asyncio.sleep(0.05)
    gone = asyncio.create_task(batcher.run(x))
    await asyncio.sleep(0.01)
    gone.cancel()
    version.go.set()
    await running
    await asyncio.sleep(0.05)
    assert version.batches == [1] and batcher.running == 0


@pytest.mark.parametrize(
    "wrong",
    [{"max_rows": 0}, {"max_rows": 2.0}, {"max_wait": -1}, {"sizes": (0,)}, {"max_queue": 0}],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Batching(**wrong).checked()
