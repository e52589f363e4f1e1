"""Tokens that are generated together are those that are generated alone, and answers say so."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.graph.state import declared
from eagerflow.serving import Batching, BusyError, LateError, Limits, ModelVersion, SequenceLimits
from eagerflow.serving.generation import Asked, Generation
from eagerflow.serving.protocols import generate as protocol
from eagerflow.serving.protocols.events import EventStream
from eagerflow.serving.sampling import Sampler, Sampling
from eagerflow.serving.sequences import Sequences
from eagerflow.serving.slots import Slots
from eagerflow.serving.stepping import SequenceBatcher
from tests.serving.test_batching import run

VOCABULARY = 7
DECODER = {"tokens": "token", "logits": "logits"}


def hashing(lengths=False):
    """A decoder whose logits are small integers that depend on every token before.

    It computes in integers, so that neither batches nor parts of a prompt change a bit. With
    ``lengths`` it takes several tokens of a sequence at once, and gives logits for the last.
    """

    def after(key, token):
        return (key * 31 + token + 1) % 65_537

    def decode(token, key):
        if lengths:
            powers = 31 ** (token.shape[1] - 1 - ef.nn.layers.positions.places(token, 1))
            key = (key * 31 ** token.shape[1] + ef.sum((token + 1) * powers, axis=1)) % 65_537
        else:
            key = after(key, token)
        logits = (key[:, None] * ef.tensor([3, 5, 7, 11, 13, 17, 19]) % 23).astype("float32")
        return {"logits": logits * 0.25, "key_next": key}

    shape = ("batch", "length") if lengths else ("batch",)
    graph = ef.capture.trace(
        decode, ef.TensorSpec(shape, "int64"), ef.TensorSpec(("batch",), "int64")
    )
    graph.state = declared(graph, {"key": "key_next"}, DECODER)
    return graph


def plain(asked):
    """The tokens, by a loop without batches."""
    key, sampler, made = 0, Sampler(asked.sampling), []
    for token in asked.tokens:
        key = (key * 31 + token + 1) % 65_537
    while len(made) < asked.max_tokens:
        logits = key * np.asarray([3, 5, 7, 11, 13, 17, 19]) % 23 * 0.25
        made.append(sampler.draw(logits.astype("float32")))
        if any(tuple(made[-len(stop) :]) == stop for stop in asked.stop):
            break
        key = (key * 31 + made[-1] + 1) % 65_537
    return made


TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
ASKED = st.builds(
    Asked,
    TOKENS,
    st.integers(1, 12),
    st.builds(
        Sampling,
        st.sampled_from([0.0, 0.7, 3.0]),
        st.none() | st.integers(1, 8),
        st.sampled_from([1.0, 0.8, 0.1]),
        st.integers(0, 2**64 - 1),
    ),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    st.none(),
    st.integers(0, 1),
)
GRAPHS = {lengths: hashing(lengths) for lengths in (False, True)}


def batcher_of(lengths=False, rows=4, slow=False, **limits):
    version = ModelVersion("hashing", 1, GRAPHS[lengths], "exact")
    assert lengths or version.signature.batch == "batch"
    version.seconds = 1.0 if slow else 0.0
    sequences = Sequences("hashing", SequenceLimits(**limits))
    return SequenceBatcher(version, Batching(rows), None, sequences)


async def generate(batcher, asked, delay=0.0):
    await asyncio.sleep(delay)
    made = Generation(batcher, asked)
    await made.start()
    try:
        return await made.all_tokens(), made.finish_reason
    finally:
        made.end()


@settings(max_examples=40, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=9), st.booleans(), st.sampled_from([1, 3, 4]))
def test_together_as_alone(jobs, lengths, rows):
    batcher = batcher_of(lengths, rows)

    async def go():
        return await asyncio.gather(
            *(generate(batcher, asked, 0.001 * (i % 3)) for i, asked in enumerate(jobs))
        )

    for asked, (tokens, reason) in zip(jobs, run(go()), strict=True):
        assert tokens == plain(asked)
        stopped = any(tuple(tokens[-len(stop) :]) == stop for stop in asked.stop)
        assert reason == ("stop" if stopped else "length")
    assert not batcher.sequences.of(batcher) and batcher.running == 0


def test_sequences_join_and_leave_between_steps():
    batcher, sizes = batcher_of(), []
    compute = batcher.version.compute
    batcher.version.compute = lambda inputs, places: (
        sizes.append(len(inputs[0])) or compute(inputs, places)
    )
    lengths = [2, 9, 5, 5, 3, 7]

    async def go():
        return await asyncio.gather(
            *(generate(batcher, Asked([1], n, Sampling())) for n in lengths)
        )

    run(go())
    assert sizes[0] == 4 and max(sizes) == 4
    # All in 31 rows; padded to sizes with a plan, and the last alone.
    assert sum(lengths) <= sum(sizes) <= sum(lengths) + 8


def test_prompts_take_no_more_of_a_step_than_sequences_do():
    batcher = batcher_of(lengths=True, rows=4)
    made = Generation(batcher, Asked(list(range(7)) * 2, 1))
    assert batcher.lengths == [1, 2, 4]
    assert list(map(len, made._parts([0] * 11))) == [4, 4, 2, 1]
    assert list(map(len, Generation(batcher_of(), Asked([0], 1))._parts([0] * 3))) == [1, 1, 1]


def test_what_ends_frees_its_slot():
    batcher = batcher_of(rows=1, slow=True)

    async def go():
        made = Generation(batcher, Asked([1], 1000))
        await made.start()
        task = asyncio.create_task(made.all_tokens())
        late = asyncio.create_task(generate(batcher, Asked([1], 1, timeout=0.01)))
        waiting = asyncio.create_task(generate(batcher, Asked([2], 3)))
        gone = asyncio.create_task(generate(batcher, Asked([2], 3)))
        await asyncio.sleep(0.05)
        with pytest.raises(LateError):
            await late
        gone.cancel()
        task.cancel()
        made.end()
        assert (await waiting)[0] == plain(Asked([2], 3))
        assert batcher.slots._free == 1 and not batcher.sequences.of(batcher)

    run(go())


def test_slots_go_by_priority_and_are_bounded():
    async def go():
        slots, order = Slots(1, 2), []

        async def one(name, priority):
            await slots.take("m", None, priority)
            order.append(name)
            slots.give_back()

        await slots.take("m")
        tasks = [asyncio.create_task(one(name, p)) for name, p in (("b", 1), ("a", 0))]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="too many sequences wait"):
            await slots.take("m")
        slots.give_back()
        await asyncio.gather(*tasks)
        assert order == ["a", "b"]

    run(go())


def test_no_room_gives_the_slot_back():
    batcher = batcher_of(max_sequences=1)

    async def go():
        batcher.begin("held")
        with pytest.raises(BusyError, match="no room"):
            await generate(batcher, Asked([1], 1))
        assert batcher.slots._free == 4

    run(go())


# Sampling -----------------------------------------------------------------------------------------


def draws(count, **how):
    logits = np.log(np.asarray([0.4, 0.3, 0.2, 0.1])).astype("float32")
    sampler = Sampler(Sampling(seed=5, **how))
    return np.bincount([sampler.draw(logits) for _ in range(count)], minlength=4) / count


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"temperature": 1.0}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0.5}, np.square([4, 3, 2, 1]) / 30),
        ({"temperature": 1.0, "top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 1.0, "top_k": 9}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 1.0, "top_p": 0.65}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.75}, [4 / 9, 3 / 9, 2 / 9, 0]),
        ({"temperature": 1.0, "top_p": 0.01}, [1, 0, 0, 0]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 0.0, "top_k": 3}, [1, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_as_often_as_said(how, wanted):
    found = draws(3000, **how)
    np.testing.assert_allclose(found, wanted, atol=4 * np.sqrt(0.25 / 3000))
    assert not found[np.asarray(wanted) == 0].any()


def test_ties_and_numbers_that_are_none():
    logits = np.zeros(5, "float32")
    assert {Sampler(Sampling(1.0, 2, 1.0, s)).draw(logits) for s in range(20)} == {0, 1}
    assert {Sampler(Sampling(1.0, None, 0.4, s)).draw(logits) for s in range(20)} == {0, 1}
    for wrong in (np.nan, np.inf):
        with pytest.raises(EagerflowError, match="not finite"):
            Sampler(Sampling(1.0)).draw(np.asarray([0.0, wrong], "float32"))
    masked = np.asarray([-np.inf, 1.0, -np.inf], "float32")
    assert Sampler(Sampling(1.0, 3, 0.9, 0)).draw(masked) == 1


def test_a_row_without_numbers_fails_alone():
    def decode(token, bad):
        logits = ef.where((token == 3)[:, None], float("nan"), ef.zeros((5,), dtype="float32"))
        return {"logits": logits, "bad_next": bad}

    rows = ef.TensorSpec(("batch",), "int64")
    graph = ef.capture.trace(decode, rows, rows)
    graph.state = declared(graph, {"bad": "bad_next"}, DECODER)
    batcher = SequenceBatcher(ModelVersion("m", 1, graph), Batching(4))

    async def go():
        jobs = (Asked([token], 3) for token in (1, 3, 2))
        return await asyncio.gather(*(generate(batcher, x) for x in jobs), return_exceptions=True)

    first, second, third = run(go())
    assert first == third == ([0, 0, 0], "length")
    assert isinstance(second, EagerflowError) and "not finite" in str(second)


# Over HTTP ----------------------------------------------------------------------------------------


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
    assert found.status_code == 400 and "no decoder" in found.json()["error"]
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
def test_who_goes_frees_the_slot(server, kind):
    batcher = batcher_in(server)
    body = json.dumps({"tokens": [1], "max_tokens": 1_000_000}).encode()
    head = f"POST /v2/models/hashing/{kind} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
    with contextlib.closing(socket.create_connection((server.host, server.port))) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + body)
        wait_for(lambda: batcher.sequences.of(batcher))
    wait_for(lambda: not batcher.sequences.of(batcher))
    assert batcher.slots._free == batcher.batching.max_rows


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


def test_a_reader_who_stalls_holds_no_slot():
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


def test_a_sequence_needs_a_start():
    with pytest.raises(ArgumentError, match="no decoder"):
        double = ef.capture.trace(lambda x: x * 2.0, ef.TensorSpec(("batch", 2), "float32"))
        batcher = ef.serving.batching.Batcher(ModelVersion("double", 1, double), Batching())
        Generation(batcher, Asked([1], 1))
