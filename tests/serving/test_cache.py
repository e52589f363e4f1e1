"""The cache: equal requests are computed once, never across versions, within its bytes."""

import asyncio

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, IndexRangeError
from eagerflow.serving import Batching, LateError
from eagerflow.serving.batching import Batcher
from eagerflow.serving.cache import ENTRY_BYTES, Cache, Cached
from eagerflow.serving.metrics import Metrics
from tests.serving.models import Client, put_version, remove_version, scaling
from tests.serving.test_batching import Watched, run
from tests.serving.test_server import PREDICT, ROW, until


def row(value):
    return {"x": np.full((1, 3), value, "float32")}


def bytes_in(answering):
    return answering._cache.bytes


def cached(version, max_bytes=1 << 20, **batching):
    return Cached(Batcher(version, Batching(**batching)), Cache("watched", max_bytes, METRICS))


METRICS = Metrics()


def test_equal_requests_are_computed_once():
    version = Watched(scaling(2))
    answering = cached(version, max_rows=1)

    async def go():
        first = await answering.run(row(1.0))
        again = await answering.run({"x": [[1, 1, 1]]})  # as JSON gives it
        assert first["y"].tolist() == again["y"].tolist() == [[2.0] * 3]
        await answering.run(row(2.0))
        await answering.run(row(1.0), ["y"])
        await answering.run(row(-0.0))
        await answering.run(row(0.0))

    run(go())
    assert version.batches == [1] * 5


def test_equal_requests_in_progress_are_shared():
    version = Watched(scaling(2), slow=True)
    answering = cached(version, max_rows=1)

    async def go():
        version.go.clear()
        tasks = [asyncio.create_task(answering.run(row(1.0))) for _ in range(5)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()  # the first request is cancelled
        version.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert [x["total"].tolist() for x in found[1:]] == [[6.0]] * 4
        await answering.run(row(1.0))

    run(go())
    assert version.batches == [1]


def test_a_deadline_is_of_one_request_alone():
    version = Watched(scaling(2), slow=True)
    answering = cached(version, max_rows=1)

    async def go():
        version.go.clear()
        before = asyncio.create_task(answering.run(row(9.0)))
        await asyncio.sleep(0.05)
        late = asyncio.create_task(answering.run(row(1.0), timeout=0.001))
        await asyncio.sleep(0)
        other = asyncio.create_task(answering.run(row(1.0)))
        await asyncio.sleep(0.02)
        version.go.set()
        with pytest.raises(LateError):
            await late
        assert (await other)["total"].tolist() == [6.0]
        await before

    run(go())


def test_errors_are_not_kept():
    table = ef.capture.trace(
        lambda i: ef.take(ef.arange(4.0), i), ef.TensorSpec(("batch",), "int64")
    )
    version = Watched(table)
    answering = cached(version)

    async def go():
        for _ in range(3):
            with pytest.raises(IndexRangeError):
                await answering.run({"i": np.array([9])})
        with pytest.raises(ArgumentError, match="no output"):
            await answering.run({"i": np.array([1])}, ["z"])

    run(go())
    assert len(version.batches) == 3 and bytes_in(answering) == 0


def test_bytes_are_bounded_and_the_oldest_goes():
    version = Watched(scaling(2))
    entry = ENTRY_BYTES + 16
    answering = cached(version, 3 * entry, max_rows=1)

    async def go():
        for value in (1.0, 2.0, 3.0, 1.0, 4.0):  # 2 goes
            await answering.run(row(value))
        assert bytes_in(answering) == 3 * entry and len(version.batches) == 4
        await answering.run(row(1.0))
        assert len(version.batches) == 4
        await answering.run(row(2.0))
        assert len(version.batches) == 5
        large = np.ones((200, 3), "float32")
        await answering.run({"x": large})
        assert bytes_in(answering) == 3 * entry

    run(go())


def test_parts_of_a_batch_do_not_keep_the_batch():
    answering = cached(Watched(scaling(2)), max_rows=8)

    async def go():
        rows = [row(float(i)) for i in range(8)]
        await asyncio.gather(*map(answering.run, rows))
        return await asyncio.gather(*map(answering.run, rows))

    kept = [array for found in run(go()) for array in found.values()]
    assert len(kept) == 16 and all(array.base is None for array in kept)


def test_never_across_versions(folder):
    with ef.serving.Server(folder, port=0, poll=0.02, cache=1 << 20) as server:
        client, model = Client(server), server.repository.model("scale")

        def total():
            return client.json(PREDICT, ROW)["predictions"][0]["total"]

        assert [total(), total()] == [6.0, 6.0]
        put_version(folder / "scale", 2)
        until(lambda: model.current == 2)
        assert [total(), total()] == [12.0, 12.0]
        remove_version(folder / "scale", 2)
        until(lambda: 2 not in model.ready)
        put_version(folder / "scale", 2, scaling(5))  # another file of the same number
        until(lambda: model.current == 2)
        assert [total(), total()] == [30.0, 30.0]
        text = client.call("/metrics")[2].decode()
        assert 'eagerflow_cache_requests_total{model="scale",outcome="hit"} 3.0' in text
        model.keep_answers(None)
        assert total() == 30.0
        client.close()


@pytest.mark.parametrize("size", [0, -1, 1.5, "1"])
def test_sizes_that_cannot_be(folder, size):
    with pytest.raises(ArgumentError, match="cache"):
        ef.serving.Server(folder, port=0, cache=size).start()
