"""Kept memory: limits, giving it back, and the public functions of tensors' memory."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, OutOfMemoryError
from eagerflow.runtime import buffers
from eagerflow.runtime.buffers import MIN_POOLED_BYTES, BufferPool

MB = 1 << 20


@pytest.fixture
def pool():
    return BufferPool()


def in_use(pool):
    return pool.stats()["bytes_in_use"]


def resident():
    """Bytes of this process in physical memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Limits ------------------------------------------------------------------------------------------


def test_limit_of_memory(pool):
    pool.set_limit(20 * MB)
    held = [pool.empty((8 * MB,), np.int8) for _ in range(2)]
    with pytest.raises(OutOfMemoryError) as caught:
        pool.empty((5 * MB,), np.int8)
    for words in ("array of 5,242,880 bytes", "limit of 20,971,520", "16,777,216 are in use"):
        assert words in str(caught.value)
    assert "ef.set_memory_limit" in caught.value.hint
    held.append(pool.empty((4 * MB,), np.int8))
    assert in_use(pool) == pool.stats()["bytes_limit"] == 20 * MB
    with pytest.raises(OutOfMemoryError):
        pool.empty((MIN_POOLED_BYTES,), np.int8)
    pool.set_limit(None)
    pool.empty((5 * MB,), np.int8)
    assert pool.stats()["bytes_limit"] == 0


def test_kept_memory_makes_room(pool):
    pool.set_limit(20 * MB)
    del [pool.empty((8 * MB,), np.int8) for _ in range(2)][:]
    assert pool.stats()["bytes_kept"] == 16 * MB
    array = pool.empty((12 * MB,), np.int8)
    assert pool.stats()["bytes_kept"] == 8 * MB
    other = pool.empty((7 * MB,), np.int8)
    assert pool.stats()["bytes_kept"] == 0
    assert in_use(pool) == array.nbytes + other.nbytes == 19 * MB


def test_a_lower_limit_takes_kept_memory_at_once(pool):
    held = [pool.empty((8 * MB,), np.int8) for _ in range(3)]
    held.pop()
    pool.set_limit(10 * MB)  # less than what is in use
    assert pool.stats()["bytes_kept"] == 0
    held.pop()
    assert pool.stats()["bytes_kept"] == 0  # 8 MiB would not fit beside the rest
    with pytest.raises(OutOfMemoryError):
        pool.empty((8 * MB,), np.int8)


def test_unreachable_cycles_are_no_reason_to_refuse(pool):
    pool.set_limit(10 * MB)
    cycle = [pool.empty((8 * MB,), np.int8)]
    cycle.append(cycle)
    del cycle
    pool.empty((9 * MB,), np.int8)


def test_the_oldest_kept_memory_goes_first():
    pool = BufferPool(kept_limit=10 * MB)
    sizes = [2 * MB, 3 * MB, 4 * MB, 5 * MB]
    held = [pool.empty((size,), np.int8) for size in sizes]
    for i in (2, 0, 3, 1):
        held[i] = None
    assert pool.stats()["bytes_kept"] == 10 * MB
    again = [pool.empty((size,), np.int8) for size in sizes]
    assert pool.stats()["reuses"] == 3
    assert pool.stats()["allocations"] == 8
    assert in_use(pool) == sum(a.nbytes for a in again)
    pool.set_kept_limit(0)
    del again
    assert pool.stats()["bytes_kept"] == 0
    pool.set_kept_limit(None)
    assert buffers.default_kept_limit() <= 4 << 30


def test_of_one_size_the_latest_stays(pool):
    held = [pool.empty((2 * MB,), np.int8) for _ in range(3)]
    places = [array.ctypes.data for array in held]
    for i in (1, 2, 0):
        held[i] = None
    pool.set_kept_limit(4 * MB)
    held = [pool.empty((2 * MB,), np.int8) for _ in range(2)]
    assert [array.ctypes.data for array in held] == [places[0], places[2]]


def test_blocks_beyond_the_bound_are_not_kept():
    pool = BufferPool(kept_limit=4 * MB)
    pool.empty((5 * MB,), np.int8)
    assert pool.stats()["bytes_kept"] == 0


def test_default_limit_if_memory_size_is_unknown(monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert buffers.memory_of_machine() is None
    assert buffers.default_kept_limit() == 1 << 30


def test_a_container_has_less_memory_than_its_machine(monkeypatch, tmp_path):
    (tmp_path / "small").write_text(str(512 * MB))
    (tmp_path / "none").write_text("max\n")
    paths = [str(tmp_path / name) for name in ("none", "missing", "small")]
    monkeypatch.setattr(buffers, "CGROUP_LIMITS", paths)
    assert buffers.default_kept_limit() == 128 * MB


def test_the_system_refuses(pool, monkeypatch):
    for shape in ((1 << 62,), (1 << 61, 8), (1 << 50,)):
        with pytest.raises(OutOfMemoryError, match="the system has no"):
            pool.empty(shape, np.int8)
    pool.empty((2 * MB,), np.int8)
    mapped, map_pages = [], buffers.map_pages

    def full(size):
        mapped.append(pool.stats()["bytes_kept"])
        if mapped[-1]:
            raise OSError("no memory")
        return map_pages(size)

    monkeypatch.setattr(buffers, "map_pages", full)
    assert pool.empty((3 * MB,), np.int8).nbytes == 3 * MB
    assert mapped == [2 * MB, 0]  # what was kept went first


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's statistics")
def test_released_memory_is_the_systems(pool):
    pool.release()
    before = resident()
    held = [pool.empty((16 * MB,), np.int8) for _ in range(4)]
    for array in held:
        array[...] = 1
    assert resident() - before > 60 * MB
    del held, array
    assert resident() - before > 60 * MB
    assert pool.release() == 64 * MB
    assert resident() - before < 10 * MB
    assert pool.stats()["bytes_kept"] == 0
    assert pool.release() == 0


@pytest.mark.skipif(buffers.system_trim()(0) is None, reason="another malloc than glibc's")
def test_release_empties_malloc_as_well():
    """In a process of its own: how malloc's heap lies depends on all that ran before."""
    program = """
import numpy as np
from eagerflow.runtime.buffers import BufferPool
from tests.runtime.test_buffer_limits import MB
from tests.runtime.test_buffer_limits import resident

held = [np.ones(3000) for _ in range(2000)]
last = np.ones(10)  # pins the end of the heap
before = resident()
del held
BufferPool().release()
assert before - resident() > 30 * MB, (before, resident())
assert last.all()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_many_arrays_leave_memory_bounded():
    pool, rng, held, most = BufferPool(kept_limit=32 * MB), random.Random(1), [], 0
    for _ in range(10_000):
        array = pool.empty((rng.randrange(MIN_POOLED_BYTES, 4 * MB),), np.int8)
        array[:: 1 << 16] = 1
        held.append(array)
        if len(held) > 8:
            del held[rng.randrange(8)]
        stats = pool.stats() if rng.random() < 0.1 else {"bytes_kept": 0, "bytes_in_use": 0}
        most = max(most, stats["bytes_kept"])
        assert stats["bytes_in_use"] <= sum(a.nbytes for a in held) * 9 / 8
    assert 16 * MB < most <= 32 * MB
    stats = pool.stats()
    assert stats["allocations"] == 10_000
    assert stats["reuses"] > 2_000
    assert stats["peak_bytes_in_use"] <= 9 * 4 * MB * 9 / 8
    del held, array
    assert in_use(pool) == 0


# In eager ops ------------------------------------------------------------------------------------

LARGE_OPS = {
    "tanh": lambda x: ef.softplus(x),
    "softmax": lambda x: ef.softmax(x),
    "where": lambda x: ef.where(x > 0, x, 0.0),
    "clip": lambda x: ef.clip(x, 0, 1),
}


@pytest.mark.parametrize("name", LARGE_OPS)
def test_large_results_are_counted(name):
    op = LARGE_OPS[name]
    for size, count in ((100, 0), (1000, 1)):
        x = ef.asarray(np.linspace(-2, 2, size * 500, dtype=np.float32).reshape(size, 500))
        before = ef.memory_stats("cpu")["allocations"]
        y = op(x)
        assert ef.memory_stats()["allocations"] == before + count
        np.testing.assert_allclose(y[:7].numpy(), op(x[:7]).numpy(), rtol=1e-6)
        for axes in ((0, 1), (1, 0)):
            turned = op(ef.asarray(np.array(x.numpy(), order="F")).transpose(axes)).numpy()
            if axes == (0, 1) or name != "softmax":
                np.testing.assert_allclose(turned, y.numpy().transpose(axes), rtol=1e-6)


def test_limit_for_tensors():
    x = ef.ones((1000, 1000))
    ef.empty_cache()
    ef.set_memory_limit("cpu", ef.memory_stats()["bytes_in_use"] + 5 * MB)
    try:
        y = ef.softmax(x)
        with pytest.raises(OutOfMemoryError) as caught:
            ef.softmax(y)
        assert caught.value.op == "softmax"
        assert "float32(1000, 1000)" in str(caught.value)
        del y, caught  # the traceback holds y
        ef.softmax(x)
    finally:
        ef.set_memory_limit(None, None)
    ef.softmax(ef.softmax(x))
    ef.empty_cache("cpu:0")
    assert ef.memory_stats()["bytes_kept"] == 0


@pytest.mark.parametrize("size", [0, -5, 1.5, True, "1 GB"])
def test_limits_that_are_none(size):
    with pytest.raises(ArgumentError, match="limit of memory"):
        ef.set_memory_limit("cpu", size)
