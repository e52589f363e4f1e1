"""Generation over HTTP: answers, Server-Sent Events, clients that go, figures."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import httpx
import pytest

import eagerflow as ef
from eagerflow.serving import Limits
from eagerflow.serving.generation import Asked, Generation
from eagerflow.serving.protocols import generate as protocol
from eagerflow.serving.protocols.events import EventStream
from eagerflow.serving.sampling import Sampling
from tests.internals import free_places
from tests.serving.test_batching import run
from tests.serving.test_generation import DECODER, GRAPHS, batcher_of, plain


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    GRAPHS[False].save(folder / "hashing.ef")
    ef.capture.trace(lambda x: x * 2.0, ef.TensorSpec(("batch", 2), "float32")).save(
        folder / "double.ef"
    )
    with ef.serving.Server(folder, port=0, limits=Limits(heartbeat=0.05)) as made:
        yield made


def url_of(server, kind="generate"):
    return f"{server.url}/v2/models/hashing/{kind}"


def batcher_in(server):
    return server.repository.model("hashing").batcher()


def test_an_answer(server):
    body = {"tokens": [1, 2], "max_tokens": 5, "seed": 3, "top_k": 4, "id": "mine"}
    body |= {"parameters": {"timeout": 10_000_000, "priority": 1}}
    found = httpx.post(url_of(server), json=body)
    wanted = plain(Asked([1, 2], 5, Sampling(1.0, 4, 1.0, 3)))
    assert found.json() == {
        "model_name": "hashing",
        "model_version": "1",
        "id": "mine",
        "tokens": wanted,
        "finish_reason": "length",
    }
    at = f"{server.url}/v2/models/hashing/versions/1/generate"
    assert httpx.post(at, json=body).json()["tokens"] == wanted
    assert len(httpx.post(url_of(server), json={"tokens": [1]}).json()["tokens"]) == 16
    assert len({str(httpx.post(url_of(server), json={"tokens": [1]}).json()) for _ in range(4)}) > 1


def test_events_as_they_are_written(server):
    """Byte by byte, as the standard has them."""
    body = json.dumps({"tokens": [1], "max_tokens": 2, "temperature": 0})
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.request("POST", "/v2/models/hashing/generate_stream", body)
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert answer.getheader("cache-control") == "no-cache"
    a, b = plain(Asked([1], 2))
    head = b'{"model_name":"hashing","model_version":"1",'
    assert answer.read() == b"".join(
        [
            b'data: %s"index":0,"token":%d}\n\n' % (head, a),
            b'data: %s"index":1,"token":%d}\n\n' % (head, b),
            b'event: end\ndata: %s"finish_reason":"length","count":2}\n\n' % head,
        ]
    )
    connection.close()


def events_of(lines):
    """A parser of event streams, by the standard: (kind, data) of each event, and comments."""
    kind, data = "message", []
    for line in lines:
        if not line:
            if data:
                yield kind, json.loads("\n".join(data))
            kind, data = "message", []
        elif line.startswith(":"):
            yield "comment", line
        else:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                kind = value
            elif field == "data":
                data.append(value)


def test_events_by_another_parser(server):
    asked = {"tokens": [3], "max_tokens": 6, "temperature": 2.0, "seed": 9, "stop": [[1, 2], 6]}
    with httpx.stream("POST", url_of(server, "generate_stream"), json=asked) as answer:
        found = list(events_of(answer.iter_lines()))
    wanted = plain(Asked([3], 6, Sampling(2.0, seed=9), ((1, 2), (6,))))
    assert [data["token"] for kind, data in found if kind == "message"] == wanted
    assert found[-1][0] == "end" and found[-1][1]["count"] == len(wanted)


WRONG = [
    ([], "JSON object"),
    ({}, "tokens"),
    ({"tokens": []}, "tokens"),
    ({"tokens": "abc"}, "tokens"),
    ({"tokens": [7]}, "tokens"),
    ({"tokens": [-1]}, "tokens"),
    ({"tokens": [1.0]}, "tokens"),
    ({"tokens": [True]}, "tokens"),
    ({"tokens": [1], "max_tokens": 0}, "max_tokens"),
    ({"tokens": [1], "max_tokens": 2.0}, "max_tokens"),
    ({"tokens": [1], "max_tokens": 1 << 40}, "max_tokens"),
    ({"tokens": [1], "temperature": -0.1}, "temperature"),
    ({"tokens": [1], "temperature": "hot"}, "temperature"),
    ({"tokens": [1], "top_k": 0}, "top_k"),
    ({"tokens": [1], "top_k": True}, "top_k"),
    ({"tokens": [1], "top_p": 0}, "top_p"),
    ({"tokens": [1], "top_p": 1.1}, "top_p"),
    ({"tokens": [1], "seed": -1}, "seed"),
    ({"tokens": [1], "seed": 1 << 64}, "seed"),
    ({"tokens": [1], "stop": 3}, "stop"),
    ({"tokens": [1], "stop": [[]]}, "stop"),
    ({"tokens": [1], "stop": [[9]]}, "stop"),
    ({"tokens": [1], "stops": []}, "stops"),
    ({"tokens": [1], "parameters": 3}, "parameters"),
    ({"tokens": [1], "parameters": {"timeout": -1}}, "timeout"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("body", "words"), WRONG)
@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_fields_that_cannot_be(server, kind, body, words):
    found = httpx.post(url_of(server, kind), json=body)
    assert found.status_code == 400 and words in found.json()["error"]


def test_numbers_that_json_has_not(server):
    found = httpx.post(url_of(server), content=b'{"tokens": [1], "temperature": NaN}')
    assert found.status_code == 400 and "temperature" in found.json()["error"]


def test_models_that_are_no_decoders(server):
    found = httpx.post(f"{server.url}/v2/models/double/generate", json={"tokens": [1]})
    assert found.status_code == 400 and "not a decoder" in found.json()["error"]
    assert httpx.post(f"{server.url}/v2/models/none/generate", json={}).status_code == 404


def test_the_context_bounds_both(tmp_path):
    GRAPHS[False].save(
        tmp_path / "m.ef", state={"key": "key_next"}, decoder=DECODER | {"context": 4}
    )
    with ef.serving.Server(tmp_path / "m.ef", port=0) as server:
        at = f"{server.url}/v2/models/m/generate"
        assert len(httpx.post(at, json={"tokens": [1, 2]}).json()["tokens"]) == 2
        for tokens, field in (([1, 2], "max_tokens"), ([1, 2, 3, 4], "tokens")):
            found = httpx.post(at, json={"tokens": tokens, "max_tokens": 3})
            assert found.status_code == 400 and f"generate: {field}" in found.json()["error"]


def wait_for(condition):
    last = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.005)


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_client_disconnect_frees_the_slot(server, kind):
    batcher = batcher_in(server)
    body = json.dumps({"tokens": [1], "max_tokens": 1_000_000}).encode()
    head = f"POST /v2/models/hashing/{kind} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
    with contextlib.closing(socket.create_connection((server.host, server.port))) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + body)
        wait_for(lambda: batcher.sequences.of(batcher))
    wait_for(lambda: not batcher.sequences.of(batcher))
    assert free_places(batcher.slots) == batcher.batching.max_rows


def test_a_slow_stream_has_heartbeats(server):
    """Each step is held up for a while."""
    version = batcher_in(server).version
    compute, go = version.compute, threading.Event()

    def slowly(*args):
        go.wait(10)
        return compute(*args)

    version.compute, version.seconds = slowly, 1.0
    try:
        asked = {"tokens": [1], "max_tokens": 1, "temperature": 0}
        with httpx.stream("POST", url_of(server, "generate_stream"), json=asked) as answer:
            kinds = []
            for kind, _ in events_of(answer.iter_lines()):
                kinds.append(kind)
                if kinds.count("comment") == 2:
                    go.set()
    finally:
        version.compute, version.seconds = compute, 0.0
    assert kinds[:2] == ["comment"] * 2 and kinds[-2:] == ["message", "end"]


def test_an_error_in_the_middle_is_an_event():
    async def events():
        batcher = batcher_of()
        made = Generation(batcher, Asked([1], 5))
        await made.start()
        sent = []
        async for part in protocol.events(protocol.Asked(made.asked, None), made):
            sent.append(part)
            if len(sent) == 2:
                batcher.sequences.end(made._sequence, "version 1 has left")
        made.end()
        return sent

    sent = run(events())
    assert sent[-1].startswith(b"event: error\ndata: ") and b"version 1 has left" in sent[-1]
    assert len(sent) == 3


def test_stalled_reader_holds_no_slot():
    closed = []

    async def events():
        for i in range(5):
            yield b"%d" % i

    async def go():
        never = asyncio.Event()

        async def send(message):
            if message["type"] == "http.response.body":
                await never.wait()

        async def receive():
            await never.wait()

        stream = EventStream(events(), lambda: closed.append(True), 1.0)
        task = asyncio.create_task(stream({}, receive, send))
        while not closed:
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run(go())


def test_figures(server):
    before = batcher_in(server).answered
    httpx.post(url_of(server), json={"tokens": [1], "max_tokens": 3})
    assert batcher_in(server).answered == before + 1
    text = httpx.get(f"{server.url}/metrics").text
    labels = '{model="hashing",version="1"}'
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines[f"eagerflow_generated_tokens_total{labels}"]) >= 3
    assert float(lines[f"eagerflow_first_token_seconds_count{labels}"]) >= 1
    assert lines[f"eagerflow_active_sequences{labels}"] == "0.0"
    page = httpx.get(server.url).text
    assert 'action="v2/models/hashing/generate"' in page and "sequences" in page
