"""Requests for which there is no room are refused before they are handed on, as they would be."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

import eagerflow as ef
from eagerflow.serving import Access, Batching
from eagerflow.serving.application import Endpoints
from tests.serving.test_server import PREDICT, ROW, until

BODY = json.dumps(ROW).encode()
TOKEN = "a secret of 16 letters"


def request_of(path=PREDICT, body=BODY, *fields):
    head = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *fields, "", ""]
    return "\r\n".join(head).encode() + body


class Kept:
    """A connection that is kept, and the requests that were handed on."""

    def __init__(self, server, monkeypatch):
        self.socket = socket.create_connection((server.host, server.port), 20)
        self.file = self.socket.makefile("rb")
        self.handed_on = 0
        asked = Endpoints.asked

        def counted(*given):
            self.handed_on += 1
            return asked(*given)

        monkeypatch.setattr(Endpoints, "asked", counted)

    def ask(self, data):
        self.socket.sendall(data)
        return self.answer()

    def answer(self):
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip():
            key, _, value = line.decode().partition(": ")
            headers[key] = value
        return status, headers, self.file.read(int(headers["content-length"]))


@contextmanager
def full(folder, monkeypatch, **options):
    """A server whose queue is full until ``free`` is set, and a connection that is refused."""
    batching = Batching(1, max_queue=1)
    with ef.serving.Server(folder, port=0, batching=batching, **options) as server:
        batcher = server.repository.model("scale").batcher()
        compute, free = batcher.version.compute, threading.Event()

        def slow(*given):
            free.wait(60)
            return compute(*given)

        batcher.version.compute, batcher.version.seconds = slow, 1.0
        waiting = []
        try:
            for count in (1, 2):
                made = socket.create_connection((server.host, server.port), 20)
                waiting.append(made)
                body = json.dumps({"instances": [[count, 2, 3]]}).encode()
                made.sendall(request_of(PREDICT, body, f"authorization: Bearer {TOKEN}"))
                until(lambda count=count: batcher.running == count)
            until(lambda: len(batcher._waiting) == 1)
            kept = Kept(server, monkeypatch)
            yield server, kept, free
            kept.socket.close()
        finally:
            free.set()
            for made in waiting:
                assert made.recv(20).startswith(b"HTTP/1.1 200")
                made.close()


@pytest.mark.parametrize("path", [PREDICT, "/v2/models/scale/versions/1/infer?a=b"])
def test_early_refusal_equals_the_one_after_reading(folder, monkeypatch, path):
    with full(folder, monkeypatch) as (server, kept, free):
        first = kept.ask(request_of(path))
        assert first[0] == 429 and kept.handed_on == 1
        for _ in range(5):
            again = kept.ask(request_of(path))
            assert (again[0], again[2]) == (first[0], first[2])
            assert again[1].keys() == first[1].keys()
        assert kept.handed_on == 1
        assert 'status="429"} 6.0' in server.repository.metrics.text().decode()
        free.set()
        until(lambda: not server.repository.model("scale").batcher().running)
        assert kept.ask(request_of())[0] == 200


def test_bodies_in_parts_and_requests_in_a_row(folder, monkeypatch):
    with full(folder, monkeypatch) as (_server, kept, _free):
        kept.ask(request_of())
        data = request_of(PREDICT, b" " * 50_000)
        assert kept.ask(data[:1000])[0] == 429  # at once
        for begin in range(1000, len(data), 9000):
            kept.socket.sendall(data[begin : begin + 9000])
            time.sleep(0.01)
        kept.socket.sendall(request_of() * 3)
        assert [kept.answer()[0] for _ in range(3)] == [429] * 3
        live = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
        kept.socket.sendall(live + request_of() + live)
        assert [kept.answer()[0] for _ in range(3)] == [200, 429, 200]
        assert kept.ask(request_of("/v1/models/none:predict"))[0] == 404
        assert kept.ask(request_of("/v1/models/scale/versions/x:predict"))[0] == 400
        assert kept.ask(request_of(PREDICT, BODY, "connection: close"))[0] == 429
        assert kept.file.read() == b""


def test_unauthorized_clients_get_401_even_if_overloaded(folder, monkeypatch):
    with full(folder, monkeypatch, access=Access((TOKEN,))) as (_server, kept, _free):
        assert [kept.ask(request_of())[0] for _ in range(3)] == [401] * 3
        allowed = request_of(PREDICT, BODY, f"authorization: Bearer {TOKEN}")
        assert [kept.ask(allowed)[0] for _ in range(3)] == [429] * 3


def test_answers_that_are_kept_need_no_room(folder, monkeypatch):
    with full(folder, monkeypatch, cache=1 << 20) as (server, kept, _free):
        model = server.repository.model("scale")
        assert model.cache is not None
        other = json.dumps({"instances": [[9, 9, 9]]}).encode()
        assert kept.ask(request_of(PREDICT, other))[0] == 429
        assert kept.handed_on == 1
        kept.ask(request_of(PREDICT, other))
        assert kept.handed_on == 2


def test_all_are_noted_where_there_is_a_log(folder, monkeypatch):
    with full(folder, monkeypatch, log="text") as (_server, kept, _free):
        for _ in range(3):
            assert kept.ask(request_of())[0] == 429
        assert kept.handed_on == 3
