"""Malformed requests to a server in a process of its own, valid ones between them, slow senders.

``python -m tests.serving.malformed --count 200000`` runs it at full size.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median

import grpc
import grpc.aio
import numpy as np

import eagerflow as ef
from eagerflow.serving.protocols.messages import messages
from eagerflow.serving.protocols.rpc import SERVICE
from tests.serving.http2 import begun_call, data_frame
from tests.serving.models import put_version
from tests.serving.mutations import Called, Streamed, framed, inference_message, malformed
from tests.serving.served import Connection, ServerProcess

HTTP_STATUS = {200, 307, *range(400, 500), 503, 504}
GRPC_CODES = {"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
GRPC_CODES |= {"DEADLINE_EXCEEDED"}
USERS = 24
PATIENCE = 0.3  # seconds until a request is taken for one that the server waits for the rest of
ANSWER_SECONDS = 60.0
GROWTH = 2 << 20  # bytes that a process may grow by in a round by chance
BODY_SECONDS = 2.0
SLOW = 300
ROW = framed("POST", "/v1/models/scale:predict", b'{"instances": [[1.0, 2.0, 3.0]]}')
ROW_ANSWER = {"predictions": [{"y": [1.0, 2.0, 3.0], "total": 6.0}]}
CONFIG = f"""max_body = 1
body_seconds = {BODY_SECONDS}
idle_seconds = {BODY_SECONDS}
poll = 0.2
"""


def put_models(folder):
    """One model for each thing that a request can be about."""
    batch = ef.TensorSpec(("batch",), "int64")
    table = ef.capture.trace(lambda i: ef.take(ef.arange(4.0), i), batch)
    total = ef.capture.trace(
        lambda x: ef.sum(ef.astype(x, "int64"), axis=1), ef.TensorSpec(("batch", 3), "uint8")
    )
    cell = ef.nn.GRUCell(4)

    def step(x, h):
        y, (h,) = cell(x, [h])
        return {"y": y, "h_next": h}

    specs = [ef.TensorSpec(("batch", size), "float32") for size in (3, 4)]
    gpt = ef.nn.networks.GPT(vocabulary=50, context=16, width=8, depth=1, heads=2)
    put_version(folder / "scale", 1)
    put_version(folder / "table", 1, table)
    put_version(folder / "bytes", 1, total)
    ef.capture.trace(step, *specs).save(folder / "gru.ef", state={"h": "h_next"})
    ef.nn.networks.decoding_graph(gpt).save(folder / "gpt.ef")


class Sender:
    """Sends random requests, and keeps invalid answers."""

    def __init__(self, server, seed):
        self.server = server
        self.chance = random.Random(seed)
        self.left = 0
        self.counts = Counter()
        self.faults = []
        self._channel = None

    def fault(self, asked, *told):
        self.faults.append((*told, asked))
        if len(self.faults) <= 10:
            print("FAULT", *told, str(asked)[:700], file=sys.stderr, flush=True)

    async def send(self, count):
        """So many malformed requests, by several users at once."""
        self.left = count
        address = f"{self.server.host}:{self.server.grpc_port}"
        async with grpc.aio.insecure_channel(address) as self._channel:
            await asyncio.gather(*(self._user() for _ in range(USERS)))

    async def _user(self):
        connection = Connection(self.server.host, self.server.port)
        while self.left > 0:
            self.left -= 1
            asked = malformed(self.chance)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if isinstance(asked, Called):
                        await self._call(asked)
                    elif isinstance(asked, Streamed):
                        await self._stream(asked)
                    elif asked.whole:
                        self.check_answer(asked, *await connection.exchange(asked.data))
                    else:
                        await self._send_part(asked)
                    if self.chance.random() < 0.1:
                        await self._valid(connection)
            except Exception as error:
                self.fault(asked, "no answer", repr(error))
                connection.abort()
        await connection.end()

    async def _valid(self, connection):
        """A valid request has its answer, independent of earlier requests on the connection."""
        status, _, body = await connection.exchange(ROW)
        if status != 200 or json.loads(body) != ROW_ANSWER:
            self.fault("a valid request", status, body)
        answer = await self._call(Called("ModelInfer", inference_message().SerializeToString()))
        if answer is None or np.float32([1, 2, 3]).tobytes() not in answer:
            self.fault("a valid call", answer)
        self.counts["valid"] += 2

    def check_answer(self, asked, status, headers, body):
        """Check that the status is allowed and that errors have a message."""
        self.counts[asked.kind, status] += 1
        if status not in HTTP_STATUS:
            self.fault(asked, status, body[:300])
        is_json = "json" in headers.get("content-type", "")
        if status >= 400 and is_json and not json.loads(body).get("error"):
            self.fault(asked, status, "no words", body[:300])

    async def _send_part(self, asked):
        """Send a possibly incomplete request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        try:
            writer.write(asked.data)
            try:
                async with asyncio.timeout(PATIENCE):
                    status = 100
                    while status == 100:  # "go on" comes before the answer
                        status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
                self.check_answer(asked, status, {}, b"")
            except TimeoutError:
                self.counts[asked.kind, "waits"] += 1
            except asyncio.IncompleteReadError:
                self.fault(asked, "the connection was ended without an answer")
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
        except OSError:
            self.counts[asked.kind, "reset"] += 1
        finally:
            writer.close()

    async def _call(self, asked):
        method = self._channel.unary_unary(
            f"/{SERVICE}/{asked.method}", lambda data: data, lambda data: data
        )
        try:
            answer = await method(asked.data, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            name = error.code().name
            self.counts["grpc", name] += 1
            if name not in GRPC_CODES or not error.details():
                self.fault(asked, name, error.details())
            return None
        self.counts["grpc", "OK"] += 1
        return answer

    async def _stream(self, asked):
        """Each part of a stream has an answer of its own, independent of the others."""
        method = self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            lambda data: data,
            messages()["ModelStreamInferResponse"].FromString,
        )
        answers = [answer async for answer in method(iter(asked.parts), timeout=ANSWER_SECONDS)]
        self.counts["grpc", "stream"] += 1
        if len(answers) != len(asked.parts):
            self.fault(asked, f"{len(answers)} answers to {len(asked.parts)} parts")
        for answer in answers:
            if "the server failed" in answer.error_message:
                self.fault(asked, answer.error_message)


@contextlib.contextmanager
def serving(folder):
    """A server of all models; its log must not report a failure."""
    models, config = folder / "models", folder / "serve.toml"
    put_models(models)
    config.write_text(CONFIG)
    with ServerProcess(folder / "log", models, "--config", config) as server:
        yield server
        assert server.process.poll() is None
    log = server.log()
    assert "Traceback" not in log and "failed" not in log, log[-5000:]


def send_all(server, count, seed=0, rounds=3):
    """Malformed requests in rounds, after one to warm up: counts by kind and answer.

    AssertionError for an answer that must not be, or if the process grows in each round.
    """
    sender = Sender(server, seed)
    sizes = []
    for _ in range(rounds + 1):
        asyncio.run(sender.send(count // (rounds + 1)))
        sizes.append(server.memory())
        done = sum(n for key, n in sender.counts.items() if key != "valid")
        print(f"{done:,} sent, {sizes[-1] >> 10:,} KiB", flush=True)
        assert not sender.faults, (len(sender.faults), sender.faults[:3])
    grown = [b - a for a, b in itertools.pairwise(sizes)]
    assert min(grown) < GROWTH, f"the process grows in each round: {grown} bytes"
    return sender.counts


# Slow senders -------------------------------------------------------------------------------------


async def _median(server, most, goes_on=lambda: True):
    """The median of the seconds that valid requests take, so many at most, while it goes on."""
    connection = Connection(server.host, server.port)
    found = []
    while len(found) < most and goes_on():
        begin = time.perf_counter()
        assert (await connection.exchange(ROW))[0] == 200
        found.append(time.perf_counter() - begin)
    await connection.end()
    assert len(found) > most // 10
    return median(found)


async def _rpc_median(server, most, goes_on=lambda: True):
    """As ``_median``, over gRPC."""
    found = []
    async with grpc.aio.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        asked = messages()["ModelInferRequest"](model_name="scale")
        asked.inputs.add(name="x", datatype="FP32", shape=(1, 3))
        asked.raw_input_contents.append(np.ones(3, "f4").tobytes())
        while len(found) < most and goes_on():
            begin = time.perf_counter()
            await call(asked.SerializeToString(), timeout=20)
            found.append(time.perf_counter() - begin)
    assert len(found) > most // 10
    return median(found)


async def _drip(address, parts, opened):
    """Send the first part, then one a second; returns the server's output until it disconnects.

    The address is that of the server.
    """
    reader, writer = await asyncio.open_connection(*address)
    try:
        opened.release()
        writer.write(parts[0])
        answer = asyncio.ensure_future(reader.read())
        for part in parts[1:]:
            await asyncio.wait([answer], timeout=1.0)
            if answer.done():
                break
            writer.write(part)
        return await answer
    except ConnectionError:
        return b""
    finally:
        writer.close()


def _by_bytes(data, sent):
    """Data in parts of a byte each, behind a first one."""
    return [data[:sent], *(data[i : i + 1] for i in range(sent, len(data)))]


def _slow_http():
    """A slow body, a slow head, and silence, as parts."""
    body = framed("POST", "/v1/models/scale:predict", b" " * 1000)
    return [_by_bytes(body, n) for n in (body.index(b" " * 10), 20, 0)]


def _slow_grpc():
    """A slow message of a call, one of a stream, and a slow head of a call, as parts."""
    calls = [begun_call(f"/{SERVICE}/{name}") for name in ("ModelInfer", "ModelStreamInfer")]
    message = (1000).to_bytes(5, "big")
    dripping = [data_frame(bytes([byte])) for byte in message + bytes(995)]
    return [*([call, *dripping] for call in calls), _by_bytes(calls[0], len(calls[0]) - 40)]


async def _slow_senders(address, kinds, measured, count):
    """The medians without and with slow senders, and the answers to these, by kind."""
    plain = await measured(300)
    opened = asyncio.Semaphore(0)
    slow = [
        asyncio.create_task(_drip(address, kinds[i % len(kinds)], opened)) for i in range(count)
    ]
    for _ in slow:
        await opened.acquire()
    beside = await measured(300, lambda: not any(task.done() for task in slow))
    answers = await asyncio.wait_for(asyncio.gather(*slow), 30 * BODY_SECONDS)
    return plain, beside, [answers[i :: len(kinds)] for i in range(len(kinds))]


def slow_senders(server, count=SLOW):
    """Many that send a byte a second: others are answered as before, and they are let go."""
    http = (server.host, server.port), _slow_http(), partial(_median, server)
    rpc = (server.host, server.grpc_port), _slow_grpc(), partial(_rpc_median, server)
    for kind, told in (("HTTP", http), ("gRPC", rpc)):
        plain, beside, answers = asyncio.run(_slow_senders(*told, count))
        print(
            f"{kind}: median of {plain * 1e3:.2f} ms, {beside * 1e3:.2f} ms beside {count} slow "
            "senders"
        )
        assert beside < 4 * plain + 0.005
        assert [len(one) for one in answers] == [count // 3] * 3
        if kind == "HTTP":
            assert all(answer.startswith(b"HTTP/1.1 504") for answer in answers[0])
        else:
            assert all(b"took too long" in answer for one in answers[:2] for answer in one)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        counts = send_all(server, options.count, options.seed)
        slow_senders(server)
    for key, count in sorted(counts.items(), key=str):
        print(key, count)


if __name__ == "__main__":
    main()
