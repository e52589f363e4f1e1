"""Worker processes of a server: their responses, and that nothing is lost when they end."""

import asyncio
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError, IndexRangeError, SessionError, ShapeError
from eagerflow.runtime.channel import Channel, as_error, described
from eagerflow.serving import (
    Batching,
    CrashedError,
    ModelVersion,
    Server,
    UnavailableError,
    WorkerSettings,
)
from eagerflow.serving.batching import Batcher
from eagerflow.serving.executors import Pool
from tests.internals import free_places
from tests.serving.fragile_worker import DEADLY, ENDS, HANGS, NO_START
from tests.serving.models import Client, put_version, scaling
from tests.serving.test_server import PREDICT, ROW, swaps_under_load, until

FRAGILE = (sys.executable, "-P", "-m", "tests.serving.fragile_worker")
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "send_fds"), reason="workers need sockets that pass files"
)


class Together:
    """A pool and an event loop in one thread, for tests of batchers."""

    def __init__(self, settings, command=FRAGILE):
        self.runner = asyncio.Runner()
        self.pool = Pool(settings, command)

    def run(self, body):
        return self.runner.run(asyncio.wait_for(body, 60))

    def batcher(self, graph, batching, name="m"):
        version = ModelVersion(name, 1, graph)
        executor = self.pool(version)
        made = Batcher(version, batching, executor=executor)
        made.signatures = {
            name: Batcher(part, batching, executor=executor.of_signature(name, part))
            for name, part in version.signatures().items()
        }
        made.warm_up()
        return made

    def all_of(self, batcher, arrays):
        async def go():
            asked = (
                batcher.run(dict.fromkeys(batcher.version.signature.inputs, x)) for x in arrays
            )
            return await asyncio.gather(*asked, return_exceptions=True)

        return self.run(go())

    def close(self):
        self.run(self.pool.close())
        self.runner.close()


@pytest.fixture(scope="module")
def two():
    made = Together(WorkerSettings(2, seconds=30.0, attempts=2, spares=0))
    until(lambda: len(made.pool.workers.pids) == 2, 60)
    yield made
    made.close()


# Messages ----------------------------------------------------------------------------------------

DTYPES = "bool int8 uint64 float16 bfloat16 float32 float64 complex64 complex128 float8_e4m3fn"


def versions_in(two):
    return two.pool.workers._versions


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(DTYPES.split()), st.lists(st.integers(0, 40), max_size=3)),
        max_size=4,
    ),
    st.booleans(),
)
def test_messages_come_as_they_were_sent(forms, reverse):
    arrays = []
    for name, shape in forms:
        array = RNG.integers(0, 2, shape).astype(ef.dtypes.as_dtype(name))
        arrays.append(array.T if reverse else array)
    sending, receiving = map(Channel, socket.socketpair())
    thread = threading.Thread(target=sending.send, args=({"do": "x"}, arrays))
    thread.start()
    message, found = receiving.receive()
    thread.join()
    assert message == {"do": "x"} and len(found) == len(arrays)
    for a, b in zip(arrays, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a.astype("complex128"), b.astype("complex128"))
    sending.close()
    with pytest.raises(EOFError):
        receiving.receive()
    assert not receiving.is_there()
    receiving.close()


def test_errors_keep_their_class_and_fields():
    error = ShapeError("no", op="add", argument="x", received="1", expected="2", hint="3", at="4")
    found = as_error(described(error))
    assert type(found) is ShapeError and str(found) == str(error)
    found = as_error(described(KeyError("a")))
    assert type(found) is RuntimeError and "KeyError" in str(found)
    assert type(as_error({"class": "SystemExit", "problem": "no"})) is RuntimeError


# Answers -----------------------------------------------------------------------------------------


def test_answers_are_those_of_the_process_itself(two):
    batcher = two.batcher(scaling(3), Batching(8))
    arrays = [RNG.standard_normal((n, 3)).astype("float32") for n in (1, 2, 5, 8, 20, 3)]
    version = ModelVersion("own", 1, scaling(3))
    for x, found in zip(arrays, two.all_of(batcher, arrays), strict=True):
        for name, wanted in version.run({"x": x}).items():
            np.testing.assert_array_equal(found[name], wanted)


def test_batches_run_at_the_same_time_and_models_take_turns(two):
    batchers = [two.batcher(scaling(n), Batching(1), f"m{n}") for n in (2, 3, 4)]

    async def go():
        asked = [
            batcher.run({"x": np.full((1, 3), i, "float32")})
            for i in range(40)
            for batcher in batchers
        ]
        return await asyncio.gather(*asked)

    found = two.run(go())
    for position, outputs in enumerate(found):
        i, n = divmod(position, 3)
        assert outputs["total"].tolist() == [3.0 * i * (n + 2)]
    assert free_places(two.pool) == 2 and all(not batcher.running for batcher in batchers)


def test_a_request_that_fails_has_its_own_error(two):
    table = ef.capture.trace(
        lambda i: ef.take(ef.arange(4.0), i), ef.TensorSpec(("batch",), "int64")
    )
    first, second, third = two.all_of(two.batcher(table, Batching(8)), np.int64([[0], [9], [3]]))
    assert (first["output"].tolist(), third["output"].tolist()) == ([0.0], [3.0])
    assert isinstance(second, IndexRangeError)


def test_versions_come_and_go(two):
    batcher = two.batcher(scaling(5), Batching(4))
    workers = two.pool.workers._there
    held = {len(worker.keys) for worker in workers}
    two.run(batcher.drain())
    assert {len(worker.keys) for worker in workers} == {held.pop() - 1}
    wrong = scaling(2)
    wrong.examples = ef.capture.saving.examples.made(scaling(3), [{"x": [[1.0, 2.0, 3.0]]}])
    with pytest.raises(SessionError, match="example 0"):
        two.batcher(wrong, Batching(4))


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="tells of memory")
def test_workers_share_the_memory_of_weights(two):
    size = 32 << 20
    w = ef.Variable(np.ones((size // 4 // 8, 8), "float32"), name="w")
    graph = ef.capture.trace(
        lambda x: ef.sum(x @ w, axis=1), ef.TensorSpec(("n", len(w)), "float32")
    )

    def anonymous():
        return [_memory(pid, "Pss_Anon") for pid in two.pool.workers.pids]

    before = anonymous()
    batcher = two.batcher(graph, Batching(1))
    found = two.all_of(batcher, [np.ones((1, len(w)), "float32")])
    assert found[0]["output"].tolist() == [8 * len(w)]
    for pid, old, new in zip(two.pool.workers.pids, before, anonymous(), strict=True):
        assert new - old < size / 2
        assert _memory(pid, "Pss_Shmem") < size * 0.6  # half of it, as the other has the rest
    assert not w.numpy().flags.writeable
    two.run(batcher.drain())


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="tells of memory")
def test_signatures_share_the_memory_of_weights(two, tmp_path):
    size = 32 << 20
    w = ef.Variable(np.ones((size // 4 // 8, 8), "float32"), name="w")

    def network(x):
        y = x @ w
        return {"sum": ef.sum(y, axis=1), "max": ef.max(y, axis=1), "min": ef.min(y, axis=1)}

    graph = ef.capture.trace(network, ef.TensorSpec(("n", len(w)), "float32"))
    graph.save(tmp_path / "m.ef", signatures={name: [name] for name in ("sum", "max", "min")})
    before = {pid: _memory(pid, "Pss_Shmem") for pid in two.pool.workers.pids}
    batcher = two.batcher(ef.capture.load(tmp_path / "m.ef"), Batching(1))
    for name, columns in (("sum", 8), ("max", 1), ("min", 1)):
        found = two.all_of(batcher.signatures[name], [np.ones((1, len(w)), "float32")])
        assert found[0][name].tolist() == [columns * len(w)]
    for pid, old in before.items():  # half of it, or all where the other has not read it
        assert _memory(pid, "Pss_Shmem") - old < size * 1.25, "three files would be 1.5 times"
    versions = versions_in(two)
    kept = [version.file for version in versions.values()][-4:]
    two.run(batcher.drain())
    assert all(file.closed for file in kept)


def test_partially_loaded_broken_version_is_unloaded(two, tmp_path, monkeypatch):
    scaling(1).save(tmp_path / "m.ef", signatures={"totals": ["total"]})
    graph = ef.capture.load(tmp_path / "m.ef")

    load = two.pool.workers.load

    def load_whole(file, name, number, signature, *more):
        if signature is not None:
            raise SessionError("it is broken")
        return load(file, name, number, signature, *more)

    held = [*versions_in(two)]
    monkeypatch.setattr(two.pool.workers, "load", load_whole)
    with pytest.raises(SessionError, match="is broken"):
        two.batcher(graph, Batching(4))
    assert [*versions_in(two)] == held


def _memory(pid, kind):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(kind + ":"))


# Ends --------------------------------------------------------------------------------------------


def test_requests_of_a_killed_worker_are_retried_by_another(two):
    batcher = two.batcher(scaling(3), Batching(1))
    stop = threading.Event()
    ended = two.pool.workers.ended

    def kill():
        try:
            for _ in range(2):
                until(lambda: len(two.pool.workers.pids) == 2)
                os.kill(two.pool.workers.pids[0], signal.SIGKILL)
                time.sleep(0.1)
        finally:
            stop.set()

    killing = threading.Thread(target=kill)

    async def go():
        answered = 0
        while not stop.is_set():
            found = await asyncio.gather(
                *(batcher.run({"x": np.full((1, 3), i, "float32")}) for i in range(20))
            )
            assert [f["total"].tolist() for f in found] == [[9.0 * i] for i in range(20)]
            answered += 20
        return answered

    killing.start()
    assert two.run(go()) > 40
    killing.join()
    assert two.pool.workers.ended >= ended + 2
    until(lambda: len(two.pool.workers.pids) == 2)


def test_request_crashing_workers_is_refused_and_others_answered(two):
    batcher = two.batcher(scaling(2), Batching(4))
    arrays = [np.full((1, 3), x, "float32") for x in (1.0, ENDS, 2.0)]
    first, second, third = two.all_of(batcher, arrays)
    assert (first["total"].tolist(), third["total"].tolist()) == ([6.0], [12.0])
    assert isinstance(second, CrashedError) and "2 times" in str(second)
    until(lambda: len(two.pool.workers.pids) == 2)
    assert two.all_of(batcher, arrays[:1])[0]["total"].tolist() == [6.0]


def test_a_worker_that_hangs_or_stops_is_replaced():
    made = Together(WorkerSettings(1, seconds=1.0, attempts=2, spares=0))
    try:
        batcher = made.batcher(scaling(2), Batching(1))
        (pid,) = made.pool.workers.pids
        os.kill(pid, signal.SIGSTOP)
        found = made.all_of(batcher, np.float32([[[1, 1, 1]]]))
        assert found[0]["total"].tolist() == [6.0]
        assert made.pool.workers.pids != [pid]
        (error,) = made.all_of(batcher, [np.full((1, 3), HANGS, "float32")])
        assert isinstance(error, CrashedError)
    finally:
        made.close()


def test_a_version_that_ends_workers_is_refused(two):
    other = two.batcher(scaling(3), Batching(1))
    with pytest.raises(CrashedError, match=DEADLY):
        two.batcher(scaling(2), Batching(1), DEADLY)
    assert two.all_of(other, np.float32([[[1, 1, 1]]]))[0]["total"].tolist() == [9.0]
    until(lambda: len(two.pool.workers.pids) == 2)


def test_workers_failing_to_start_are_reported_and_retried(tmp_path, monkeypatch, caplog):
    mark = tmp_path / "no"
    mark.touch()
    monkeypatch.setenv(NO_START, str(mark))
    made = Together(WorkerSettings(1, spares=0))
    try:
        with pytest.raises(UnavailableError, match="no worker has started"):
            made.batcher(scaling(2), Batching(1))
        until(lambda: "could not be started, next try in 0 s" in caplog.text)
        mark.unlink()
        until(lambda: made.pool.workers.pids, 60)
        found = made.all_of(made.batcher(scaling(2), Batching(1)), np.float32([[[1, 1, 1]]]))
        assert found[0]["total"].tolist() == [6.0]
    finally:
        made.close()


def test_a_spare_takes_the_place_of_one_that_ends(tmp_path, monkeypatch):
    mark = tmp_path / "no"
    monkeypatch.setenv(NO_START, str(mark))
    made = Together(WorkerSettings(1, spares=1))
    try:
        until(lambda: len(made.pool.workers.pids) == 2, 60)
        batcher = made.batcher(scaling(2), Batching(1))
        mark.touch()  # no worker replaces it
        os.kill(made.pool.workers.pids[0], signal.SIGKILL)
        for _ in range(3):
            found = made.all_of(batcher, np.float32([[[1, 1, 1]]]))
            assert found[0]["total"].tolist() == [6.0]
        until(lambda: len(made.pool.workers.pids) == 1, 60)
        mark.unlink()
        until(lambda: len(made.pool.workers.pids) == 2, 60)
    finally:
        made.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"processes": -1},
        {"processes": 1.5},
        {"threads": 0},
        {"seconds": 0},
        {"attempts": 0},
        {"spares": -1},
    ],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        WorkerSettings(**wrong).checked()


# Servers -----------------------------------------------------------------------------------------


def test_a_server_with_workers(folder):
    with Server(folder, port=0, poll=0.02, workers=1) as server:
        client = Client(server)
        assert client.json(PREDICT, ROW)["predictions"][0]["total"] == 6
        until(lambda: len(server.pool.workers.pids) == 2)
        assert "eagerflow_workers 2.0" in client.call("/metrics")[2].decode()
        put_version(folder / "scale", 2)
        until(lambda: server.repository.model("scale").current == 2)
        assert client.json(PREDICT, ROW)["predictions"][0]["total"] == 12
        pids = server.pool.workers.pids
        client.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_hanging_worker_does_not_block_shutdown(folder):
    settings = WorkerSettings(1, spares=0)
    server = Server(folder, port=0, workers=settings, grace=1.0).start()
    (pid,) = server.pool.workers.pids
    os.kill(pid, signal.SIGSTOP)
    client = Client(server)

    def ask():
        with suppress(OSError, http.client.HTTPException):
            client.call(PREDICT, ROW)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: server.repository.model("scale").batcher().running)
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 30
    asking.join(30)
    assert not _is_running(pid)


CRASHING = """
import os, signal, sys, time
import eagerflow as ef
server = ef.serving.Server(sys.argv[1], port=0, workers=2).start()
while len(server.pool.workers.pids) < 3:
    time.sleep(0.01)
print(*server.pool.workers.pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_their_server(folder):
    done = subprocess.run(
        [sys.executable, "-c", CRASHING, str(folder)], stdout=subprocess.PIPE, timeout=120
    )
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 3 and done.returncode == -signal.SIGKILL
    until(lambda: not any(map(_is_running, pids)))


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kills_under_load(folder, kills, workers=2):
    """Requests all the while as workers are killed and versions come: all are answered."""
    settings = WorkerSettings(workers, attempts=8)
    chance = random.Random(0)
    with Server(folder, port=0, poll=0.02, workers=settings) as server:

        def kill():
            until(lambda: server.pool.workers.pids, 60)
            time.sleep(chance.uniform(0.0, 0.1))
            with suppress(IndexError, ProcessLookupError):  # it has just been killed
                os.kill(chance.choice(server.pool.workers.pids), signal.SIGKILL)

        answered = swaps_under_load(server, folder / "scale", kills, between=kill)
        assert server.pool.workers.ended > kills // 2
        return answered


def test_kills_lose_nothing(folder):
    assert kills_under_load(folder, 3) > 20


@pytest.mark.soak
def test_many_kills_lose_nothing(folder):
    kills_under_load(folder, 60)
