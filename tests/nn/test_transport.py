"""What goes to another process and back is what it was, and leaves nothing behind."""

import gc
import multiprocessing
import os
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.transport import MIN_SHARED_BYTES, Transport

LARGE = MIN_SHARED_BYTES  # bytes


def things():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(40, 30, 5))
    return [
        {"x": rng.normal(size=LARGE), "y": [np.arange(LARGE, dtype="int8"), 3, None]},
        np.zeros((0, 5)),
        image.T,  # columns first
        image[::2],
        np.asfortranarray(image),
        np.array(["a", "bc"] * LARGE),
        np.array([{"a": 1}], dtype=object),
        (b"x" * LARGE, "text" * LARGE),
        rng.normal(size=3),
        rng.normal(size=4 * LARGE).astype("float32"),  # more than was needed before
        np.zeros(LARGE, [("a", "f4"), ("b", "i2")]),
        ef.tensor(rng.normal(size=LARGE)),
    ]


def same(a, b):
    leaves, structure = ef.tree.flatten(a)
    others, other_structure = ef.tree.flatten(b)
    assert structure == other_structure
    for x, y in zip(leaves, others, strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None)


@pytest.mark.parametrize("system", ["with files in memory", "without"])
def test_all_comes_back(system, monkeypatch):
    if system == "without":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    transport = Transport()
    for thing in things():
        same(transport.unpack(transport.pack(thing)), thing)
    large = len(transport.pack(np.zeros(100 * LARGE)))
    assert (large < LARGE) == hasattr(os, "memfd_create")


def test_received_arrays_are_not_overwritten():
    transport = Transport()
    first = transport.unpack(transport.pack(np.zeros(LARGE)))
    second = transport.unpack(transport.pack(np.ones(LARGE)))
    second += 1.0  # it is one's own
    assert first.max() == 0.0 and second.min() == 2.0


def echo(others, pipe, there, back):
    others.close()
    while True:
        try:
            pipe.send_bytes(back.pack(there.unpack(pipe.recv_bytes())))
        except EOFError:
            return


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("shared", [True, False])
def test_between_processes(shared):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    there, back = Transport(shared), Transport(shared)
    process = context.Process(target=echo, args=(ours, theirs, there, back), daemon=True)
    process.start()
    theirs.close()
    try:
        for thing in things():
            ours.send_bytes(there.pack(thing))
            same(back.unpack(ours.recv_bytes()), thing)
    finally:
        ours.close()
        process.join(60)
    assert process.exitcode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
def test_no_file_stays_open():
    def files():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def epoch():
        data = np.zeros((8, LARGE))
        assert sum(len(x) for x in ef.nn.Loader(data, 2, workers="processes:2")) == 8
        next(iter(ef.nn.Loader(data, 2, workers="processes:2")))  # left in the middle

    epoch()
    before = files()
    epoch()
    assert files() == before
