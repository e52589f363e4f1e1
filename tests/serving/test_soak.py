"""Requests, swaps, broken versions, kills and reloads at once: all is answered, once and right."""

import socket

import pytest

pytest.importorskip("grpc")
from tests.serving.soak import soak

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "send_fds"), reason="workers need sockets that pass files"
)


def test_every_request_is_answered_once(tmp_path):
    counts = soak(tmp_path, 2_000, swaps=5, breaks=2, kills=2, reloads=2)
    assert sum(counts.values()) >= 2_000


@pytest.mark.soak
def test_every_request_of_many_is_answered_once(tmp_path):
    soak(tmp_path, 20_000, swaps=20, breaks=8, kills=10, reloads=4, seed=1)
