"""Compressed bodies: read within the limit, and refused with a reason."""

import gzip
import json
import zlib

import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.serving.errors import TooLargeError
from eagerflow.serving.protocols.encodings import decoded
from tests.serving.models import Client
from tests.serving.test_server import PREDICT, ROW

TEXT = json.dumps(ROW).encode()


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(TEXT, mtime=0)), ("deflate", zlib.compress(TEXT)), ("identity", TEXT)],
)
def test_requests_are_read(client, encoding, body):
    status, _, answer = client.call(PREDICT, body, {"content-encoding": encoding})
    assert status == 200 and json.loads(answer)["predictions"][0]["total"] == 6.0


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        ("br", TEXT, "expected: gzip or deflate"),
        ("gzip", TEXT, "the body is no gzip"),
        ("gzip", gzip.compress(TEXT, mtime=0)[:-4], "it is cut off"),
        ("gzip", gzip.compress(TEXT, mtime=0) + b"more", "more comes behind its end"),
        ("deflate", b"", "it is cut off"),
    ],
)
def test_undecodable_bodies_get_400(client, encoding, body, words):
    status, _, answer = client.call(PREDICT, body, {"content-encoding": encoding}, "POST")
    assert status == 400 and words in json.loads(answer)["error"]


def test_gzip_bomb_is_refused():
    bomb = gzip.compress(b"0" * (64 << 20))
    with pytest.raises(TooLargeError, match="1,000 bytes at most"):
        decoded(bomb, "gzip", 1000)
    assert decoded(gzip.compress(b"0" * 1000), "gzip", 1000) == b"0" * 1000


def test_a_server_refuses_a_bomb(folder):
    with ef.serving.Server(folder, port=0, limits=ef.serving.Limits(max_body=10_000)) as server:
        client = Client(server)
        bomb = gzip.compress(b" " * (1 << 20))
        status, _, _ = client.call(PREDICT, bomb, {"content-encoding": "gzip"})
        client.close()
    assert status == 413


def test_an_encoding_that_is_not_read_names_itself():
    with pytest.raises(ArgumentError, match="received: zstd"):
        decoded(b"", "zstd", 10)
