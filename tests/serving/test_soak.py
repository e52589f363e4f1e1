"""Requests, swaps, broken versions, kills and reloads at once: all is answered, once and right."""

import socket

import numpy as np
import pytest

pytest.importorskip("grpc")
from tests.serving.soak import BASE, EDITIONS, Load, soak

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "send_fds"), reason="workers need sockets that pass files"
)


def test_wrong_answers_are_found():
    load, other = Load(None, 0), 2 * EDITIONS
    load.good.add(other)
    inputs = np.float64([[1, 2, 3], [4, 5, 6]])
    first, second = (code * (inputs + BASE) for code in (EDITIONS, other))
    assert load.check(0, "rows", second, inputs, 2) == 2 and not load.faults
    wrong = {
        "mixed": np.stack([first[0], second[1]]),
        "another request's": second[::-1],
        "broken": 3 * EDITIONS * (inputs + BASE),
        "cut": second[:1],
    }
    for position, (name, found) in enumerate(wrong.items()):
        load.check(0, name, found, inputs)
        assert len(load.faults) == position + 1
    load.check(0, "told", second, inputs, 1)
    load.check_version(0, "rows", 1, 2, set())
    assert len(load.faults) == len(wrong) + 2


def test_every_request_is_answered_once(tmp_path):
    counts = soak(tmp_path, 800, swaps=3, breaks=2, kills=2, reloads=2)
    assert sum(counts.values()) >= 800


@pytest.mark.soak
def test_every_request_of_many_is_answered_once(tmp_path):
    soak(tmp_path, 20_000, swaps=20, breaks=8, kills=10, reloads=4, seed=1)
