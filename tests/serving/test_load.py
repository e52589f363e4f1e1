"""Load that does not wait for answers: what it counts, and from when."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.serving.load import Load, Question, apply_load, rows_of

ANSWER = b"HTTP/1.1 %d Whatever\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def answering(answer):
    """A server in this loop that calls ``answer(writer, number)`` for each request."""
    number = 0

    async def serve(reader, writer):
        nonlocal number
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                number += 1
                await answer(writer, number - 1)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        server.close()


def loaded(answer, load):
    async def run():
        async with answering(answer) as url:
            return await apply_load(Question(url, b"{}"), load)

    return asyncio.run(run())


def test_every_request_is_counted_once():
    async def answer(writer, number):
        writer.write(ANSWER % (503 if number % 4 == 3 else 200))

    result = loaded(answer, Load(400.0, 0.5, connections=8))
    assert result.statuses == {"200": 150, "503": 50}
    assert len(result.latencies) == 150 and len(result.refusals) == 50
    assert 0 < result.quantile(0.5) <= result.quantile(1.0) == result.latencies.max()
    assert 0 < result.goodput <= 150 / 0.4


def test_time_counts_from_when_a_request_was_due():
    """One connection, and a server that stops for a while: all that was due then waited."""
    stop = 0.3

    async def answer(writer, number):
        if number == 20:
            await asyncio.sleep(stop)
        writer.write(ANSWER % 200)

    waited = np.sort(loaded(answer, Load(200.0, 1.0, connections=1)).latencies)[::-1]
    assert waited[0] >= stop
    # Those due in the first half of the stop waited for half of it; a client that asks after each
    # answer would have counted one.
    assert (waited >= stop / 2).sum() >= 15


def test_lost_connections_and_timeouts_are_counted():
    async def answer(writer, number):
        if number == 5:
            writer.transport.abort()
        elif number != 9:  # which is never answered
            writer.write(ANSWER % 200)

    result = loaded(answer, Load(100.0, 0.3, connections=2, timeout=0.1))
    assert result.statuses == {"200": 28, "connection lost": 1, "no answer in time": 1}


def test_malformed_response_closes_the_connection():
    async def answer(writer, number):
        writer.write(b"nonsense\r\n\r\n" if number == 0 else ANSWER % 200)

    assert loaded(answer, Load(100.0, 0.2, connections=1)).statuses["connection lost"] == 1


def test_a_server_that_goes_away_is_no_endless_wait():
    async def run():
        async def answer(writer, number):
            writer.write(ANSWER % 200)
            if number == 3:
                server.close()
                writer.transport.abort()

        server = None

        async def serve(reader, writer):
            for number in range(100):
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                await answer(writer, number)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        load = Load(100.0, 0.2, connections=1, timeout=0.2)
        return await apply_load(Question(f"http://127.0.0.1:{port}/", b"{}"), load)

    result = asyncio.run(asyncio.wait_for(run(), 20))
    assert sum(result.statuses.values()) == 20
    assert result.statuses["not connected"] > 10


def test_against_a_server_of_models(server):
    body = b'{"inputs": {"x": [[1.0, 2.0, 3.0]]}}'
    question = Question(f"{server.url}/v1/models/scale:predict", body)
    result = asyncio.run(apply_load(question, Load(100.0, 0.3, connections=4)))
    assert result.statuses == {"200": 30}
    title, row = rows_of([result])
    assert len(title) == len(row) and row[0] == "100" and "others" in title


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"seconds": -1}, "seconds"),
        ({"connections": 0}, "connections"),
        ({"timeout": "x"}, "timeout"),
    ],
)
def test_numbers_that_cannot_be(change, word):
    with pytest.raises(ef.errors.ArgumentError, match=word):
        Load(**{"rate": 1.0, **change}).checked()


def test_addresses_and_headers_that_cannot_be():
    for question, word in [
        (Question("file:///x", b""), "not an address"),
        (Question("http://h/", b"", {"a": "b\r\nc: d"}), "line break"),
    ]:
        with pytest.raises(ef.errors.ArgumentError, match=word):
            asyncio.run(apply_load(question, Load(1.0)))
