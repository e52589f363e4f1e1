"""Messages between processes: however the system cuts them, they come as they were sent."""

import os
import socket
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from eagerflow.runtime.channel import Channel

DTYPES = ["float32", "int64", "bool", "bfloat16", "complex64"]


@pytest.fixture
def ends():
    a, b = map(Channel, socket.socketpair())
    yield a, b
    a.close()
    b.close()


class Recorded:
    """Stands for a socket: keeps what is sent."""

    family = None

    def __init__(self):
        self.data = b""

    def sendall(self, data):
        self.data += bytes(data)


class Cut:
    """Stands for a socket: gives bytes in pieces of these lengths."""

    family = None

    def __init__(self, data, lengths):
        self.data, self.lengths = data, lengths

    def recv_into(self, view):
        count = min(self.lengths.pop(0) if self.lengths else 1 << 20, len(view), len(self.data))
        view[:count], self.data = self.data[:count], self.data[count:]
        return count


def arrays_of(rows):
    values = np.random.default_rng(0)
    return [values.integers(0, 2, shape).astype(np.dtype(dtype)) for dtype, shape in rows]


shapes = some.lists(some.integers(0, 40), max_size=3).map(tuple) | some.just((300, 80))
messages = some.lists(
    some.tuples(
        some.dictionaries(some.text(max_size=3), some.text(max_size=9) | some.integers()),
        some.lists(some.tuples(some.sampled_from(DTYPES), shapes), max_size=3),
        some.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(messages, some.lists(some.integers(1, 3000), max_size=60))
def test_messages_come_as_they_were_sent_however_they_are_cut(messages, lengths):
    assert ml_dtypes.bfloat16, "NumPy knows it by name"
    sent = []
    out = Channel(Recorded())
    for told, rows, long in messages:
        told.pop("arrays", None)
        sent.append((told | {"text": "x" * 70_000} if long else told, arrays_of(rows)))
        out.send(*sent[-1])
    found = Channel(Cut(out.socket.data, lengths))
    for told, arrays in sent:
        came, others = found.receive()
        assert came == told
        assert len(arrays) == len(others)
        for x, y in zip(arrays, others, strict=True):
            assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
            assert y.flags.writeable
    with pytest.raises(EOFError):
        found.receive()


def test_files_arrive_with_their_messages(ends, tmp_path):
    """Also where many messages lie ready, which are taken with one call of the system."""
    a, b = ends
    for i in range(5):
        (tmp_path / str(i)).write_text(f"text {i}")
        with open(tmp_path / str(i)) as file:
            a.send({"file": i}, [np.arange(i)])
            a.send_file(file.fileno())
            a.send({"between": i})
    for i in range(5):
        assert b.receive()[0] == {"file": i}
        with os.fdopen(b.receive_file()) as file:
            assert file.read() == f"text {i}"
            assert not os.get_inheritable(file.fileno())
        assert b.receive()[0] == {"between": i}


def test_unreceived_file_is_closed(ends, tmp_path):
    a, b = ends
    (tmp_path / "it").write_text("text")
    before = len(os.listdir("/proc/self/fd"))
    with open(tmp_path / "it") as file:
        a.send({"one": 1})
        a.send_file(file.fileno())
        a.send({"two": 2})
    assert b.receive() == ({"one": 1}, [])
    b.close()
    a.close()
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_announced_file_that_is_missing_raises(ends):
    a, b = ends
    a.send({"file": 1})
    a.socket.sendall(b"f")
    b.receive()
    with pytest.raises(EOFError, match="has sent no file"):
        b.receive_file()


def test_a_stranger_brings_no_file_and_no_long_message(ends, tmp_path):
    a, b = ends
    (tmp_path / "it").write_text("text")
    before = len(os.listdir("/proc/self/fd"))
    a.send({"hello": 1})
    assert b.receive(100) == ({"hello": 1}, [])
    with open(tmp_path / "it") as file:
        socket.send_fds(a.socket, [b"\x02\0\0\0{}"], [file.fileno()])
    assert b.receive(100) == ({}, [])
    assert len(os.listdir("/proc/self/fd")) == before
    a.send({"hello": "x" * 200})
    with pytest.raises(EOFError, match="over the limit"):
        b.receive(100)


def test_message_after_a_greeting_is_received(ends):
    a, b = ends
    a.send({"hello": 1})
    a.send({"then": 2}, [np.arange(3)])
    assert b.receive(100) == ({"hello": 1}, [])
    assert b.receive()[0] == {"then": 2}


def test_time_that_is_up_loses_nothing(ends):
    a, b = ends
    text = Channel(Recorded())
    text.send({"x": 1}, [np.arange(4.0)])
    data = text.socket.data
    b.socket.settimeout(0.01)
    for cut in range(4):  # within its length
        a.socket.sendall(data[:cut])
        with pytest.raises(TimeoutError):
            b.receive()
        a.socket.sendall(data[cut:])
        message, (array,) = b.receive()
        assert message == {"x": 1}
        assert array.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("size", [100, 100_000, 9_000_000])
def test_large_arrays_between_threads(ends, size):
    a, b = ends
    sent = np.arange(size, dtype="uint8")
    thread = threading.Thread(target=lambda: [a.send({"i": i}, [sent, sent[:3]]) for i in range(3)])
    thread.start()
    for i in range(3):
        message, (found, few) = b.receive()
        assert message == {"i": i}
        assert found.tobytes() == sent.tobytes()
        assert few.tolist() == [0, 1, 2]
    thread.join()


@pytest.mark.parametrize("data", [b"\x02\0\0\0[]", b"\x02\0\0\0{", b"\x01\0\0\0\xff"])
def test_malformed_message_ends_the_channel(ends, data):
    a, b = ends
    a.socket.sendall(data)
    a.close()
    with pytest.raises(EOFError):
        b.receive()
