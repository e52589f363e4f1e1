"""Kept memory: used again once nothing views it, and never before."""

import gc
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.runtime import buffers
from eagerflow.runtime.buffers import MIN_POOLED_BYTES, BufferPool
from tests.interrupts import AtTimes, Interrupted

MB = 1 << 20


@pytest.fixture
def pool():
    return BufferPool()


def in_use(pool):
    return pool.stats()["bytes_in_use"]


def address(array):
    return array.__array_interface__["data"][0]


# What comes out ----------------------------------------------------------------------------------

DTYPES = [
    np.float32,
    "f8",
    bool,
    np.complex64,
    ml_dtypes.bfloat16,
    "M8[s]",
    [("a", "i1"), ("b", "f8")],
]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.sampled_from(DTYPES),
    st.integers(0, 3),
)
def test_arrays_are_those_of_numpy(shape, dtype, grown):
    shape[grown % len(shape)] *= max(1, 3 * MB // math.prod(shape) >> grown)
    array = buffers.empty(tuple(shape), dtype)
    other = np.empty(shape, dtype)
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype, array.strides) == (other.shape, other.dtype, other.strides)
    assert array.flags.writeable and array.flags.aligned and array.flags.c_contiguous
    if array.nbytes >= MIN_POOLED_BYTES:
        assert address(array) % 64 == 0
    array[...] = np.ones((), dtype)
    assert (array == np.ones((), dtype)).all()


def test_sizes_as_numbers():
    assert buffers.empty(MB).shape == (MB,)
    assert buffers.empty(np.int64(MB), np.int8).shape == (MB,)
    assert buffers.empty((np.int32(3), np.int64(MB)), np.int8).shape == (3, MB)


def test_order_of_axes_follows_the_model():
    x = np.ones((30, 400, 500), np.float32)
    turned = x.T
    for like in (x, turned, x[:, ::2], x.transpose(1, 0, 2)):
        array = buffers.empty_like(like)
        assert (array.shape, array.dtype) == (like.shape, like.dtype)
        assert array.flags.f_contiguous if like is turned else array.flags.c_contiguous
    assert buffers.empty_like(x.T).strides == x.T.strides


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((MIN_POOLED_BYTES - 1,), np.int8),
        ((), "f8"),
        ((0, MB), "f8"),
        ((MB,), object),
        ((MB,), "3f4"),
    ],
    ids=str,
)
def test_other_arrays_come_from_numpy(pool, shape, dtype):
    assert pool.empty(shape, dtype).shape == np.empty(shape, dtype).shape
    assert pool.stats()["allocations"] == 0


@pytest.mark.parametrize("shape", [(-1, MB), (-MB, -2), (-1, -1, MB), (-2, -1, MB)])
def test_negative_sizes(pool, shape):
    with pytest.raises(ValueError, match=r"negative|unknown"):
        pool.empty(shape)
    assert in_use(pool) == 0


@given(st.integers(MIN_POOLED_BYTES, 1 << 45) | st.integers(MIN_POOLED_BYTES, 8 * MIN_POOLED_BYTES))
def test_at_most_an_eighth_is_unused(nbytes):
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "map_pages", lambda size: asked.append(size) or bytearray())
        with pytest.raises(ValueError, match="buffer"):
            BufferPool().empty((nbytes,), np.int8)
    assert nbytes <= asked[0] <= nbytes * 9 / 8
    assert asked[0] % 4096 == 0


# Used again, but not too early -------------------------------------------------------------------


def test_memory_is_used_again(pool):
    array = pool.empty((MB,), np.float64)
    first = address(array)
    del array
    assert pool.stats()["bytes_kept"] == 8 * MB
    array = pool.empty((2, MB), np.float32)  # as many bytes
    assert address(array) == first
    stats = pool.stats()
    assert stats["reuses"] == 1 and stats["allocations"] == 2
    assert stats["bytes_in_use"] == stats["peak_bytes_in_use"] == 8 * MB
    assert stats["bytes_kept"] == 0


def torch_view(array):
    return pytest.importorskip("torch").from_dlpack(array)


VIEWS = {
    "slice": lambda a: a[100:-100:3],
    "slice of a slice": lambda a: a[100:][:-100][::3],
    "element row": lambda a: a[5],
    "reshape": lambda a: a.reshape(-1),
    "ravel": lambda a: a.ravel(),
    "transpose": lambda a: a.T,
    "axes": lambda a: a[None, ..., None].swapaxes(0, 1),
    "dtype": lambda a: a.view(np.int32),
    "field": lambda a: a.view([("x", "f4")])["x"],
    "class": lambda a: a.view(np.matrix),
    "diagonal": lambda a: np.diagonal(a),
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, 1),
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (10,), (8,)),
    "asarray": lambda a: np.asarray(memoryview(a)),
    "memoryview": lambda a: memoryview(a),
    "memoryview of a slice": lambda a: memoryview(a[3:])[2:],
    "frombuffer": lambda a: np.frombuffer(a, np.float32, offset=400),
    "frombuffer of bytes": lambda a: np.frombuffer(memoryview(a).cast("B"), np.float32),
    "dlpack": lambda a: np.from_dlpack(a),
    "torch": torch_view,
    "iterator": lambda a: a.flat,
    "ctypes": lambda a: a.ctypes,
    "Tensor": lambda a: ef.asarray(a)[10:],
    "list": lambda a: [a],
    "closure": lambda a: lambda: a,
    "masked": lambda a: np.ma.masked_array(a, copy=False),
}


def contents(view):
    """All values that are seen through a view."""
    if callable(view):
        view = view()
    if isinstance(view, list):
        view = view[0]
    if hasattr(view, "_arr"):  # of ndarray.ctypes
        view = view._arr
    if isinstance(view, ef.Tensor):
        view = view.numpy()
    if isinstance(view, np.flatiter):
        view = view.base
    values = np.asarray(view)
    return values.view(np.float32) if values.dtype == np.int32 else values


@pytest.mark.parametrize("name", VIEWS)
def test_views_keep_the_memory(pool, name):
    array = pool.empty((600, 800), np.float32)
    array[...] = 7
    view = VIEWS[name](array)
    del array
    gc.collect()
    assert in_use(pool) > 0
    others = [pool.empty((600, 800), np.float32) for _ in range(3)]
    for other in others:
        other[...] = -1
    assert (contents(view) == 7).all()
    del view, others, other
    gc.collect()
    assert in_use(pool) == 0


COPIES = {
    "pickle": lambda a: pickle.loads(pickle.dumps(a)),
    "pickle out of band": lambda a: pickle.loads(pickle.dumps(a, protocol=5)),
    "copy": lambda a: a.copy(),
    "arithmetic": lambda a: a + 0,
    "bytes": lambda a: np.frombuffer(a.tobytes(), np.float32),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not(pool, name):
    array = pool.empty((600, 800), np.float32)
    array[...] = 7
    copy = COPIES[name](array)
    del array
    assert in_use(pool) == 0
    pool.empty((600, 800), np.float32)[...] = -1
    assert (copy == 7).all()


def test_addresses_do_not(pool):
    array = pool.empty((MB,), np.float32)
    kept = (array.ctypes.data, array.__array_interface__)
    del array
    assert in_use(pool) == 0
    assert kept[0] == kept[1]["data"][0]


def test_finalizers_of_cycles_still_find_their_values(pool):
    found = []

    class Owner:
        def __init__(self):
            self.me = self
            self.array = pool.empty((MB,), np.float32)
            self.array[...] = 3
            self.views = [self.array[5:], memoryview(self.array), self.array.base]

        def __del__(self):
            pool.empty((MB,), np.float32)[...] = 4  # in the middle of a garbage collection
            found.append((self.array == 3).all() and (self.views[0] == 3).all())

    for _ in range(3):
        Owner()
    gc.collect()
    assert found == [True] * 3
    assert in_use(pool) == 0


class Fault(Exception):
    """What the checks below raise."""


def play(pool, seed, steps=150):
    """Random arrays and views, each filled with a value of its own that must stay."""
    rng = random.Random(seed)
    held = []
    for step in range(1, steps):
        size = rng.choice(
            (MIN_POOLED_BYTES, MIN_POOLED_BYTES + 5, 2 * MIN_POOLED_BYTES, 3 * MIN_POOLED_BYTES)
        )
        array = pool.empty((size // 4,), np.int32)
        array[...] = step
        held.append((step, rng.choice((array, array[1000:], array[::7], array.reshape(1, -1)))))
        del array
        while len(held) > rng.randrange(1, 9):
            held.pop(rng.randrange(len(held)))
        if rng.random() < 0.05:
            pool.release()
        for value, view in held:
            if not (view == value).all():
                raise Fault(f"array {value} was overwritten")
    held.clear()
    del view
    if in_use(pool):
        raise Fault("memory in use has no owner")


@pytest.mark.parametrize("seed", range(3))
def test_no_array_overwrites_another(pool, seed):
    play(pool, seed)


class ReturnsTwice(BufferPool):
    def _take_back(self, lease):
        super()._take_back(lease)
        lease.block.home.append(lease.block)


class ReturnsEarly(BufferPool):
    """The block goes back with the array itself, whether or not views are left."""

    def empty(self, shape, dtype=np.float64):
        array = super().empty(shape, dtype)
        lease = next(b.lease for b in self._blocks if b.lease and b.lease() is array.base)
        self.kept = (*getattr(self, "kept", ()), weakref.ref(array, self.ended(lease)))
        return array

    def ended(self, lease):
        return lambda _: self._take_back(lease)


@pytest.mark.parametrize("wrong", [ReturnsTwice, ReturnsEarly])
def test_check_detects_memory_allocated_twice(wrong):
    with pytest.raises(Fault, match="overwritten"):
        play(wrong(), 0)


# Under stress ------------------------------------------------------------------------------------


def test_eight_threads_at_once(pool):
    faults, made = [], 60

    def work(seed):
        rng = random.Random(seed)
        held = []
        for step in range(made):
            mark = seed * 1000 + step
            array = pool.empty(
                (rng.choice((MIN_POOLED_BYTES, 2 * MIN_POOLED_BYTES)) // 4,), np.int32
            )
            array[...] = mark
            held.append((mark, array[3:]))
            if len(held) > 3:
                mark, view = held.pop(rng.randrange(3))
                if not (view == mark).all():
                    faults.append(mark)
            if step % 20 == 10:
                pool.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = pool.stats()
    assert not faults
    assert stats["bytes_in_use"] == 0
    assert stats["allocations"] == 8 * made


def test_arrays_die_in_other_threads(pool):
    held = [pool.empty((MB,), np.int8) for _ in range(50)]
    threads = [threading.Thread(target=held.pop) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_use(pool) == 0
    assert pool.stats()["bytes_kept"] == 50 * MB


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_interrupts_leave_the_books_in_order(pool, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)  # those in finalizers
    rng, came = random.Random(0), 0

    def act(frame):
        pool.empty((MB,), np.int8)  # a guest in the middle of a call
        if frame.f_code.co_filename == buffers.__file__ and rng.random() < 0.7:
            raise Interrupted

    with AtTimes(act, most=4e-4):
        end = time.monotonic() + 60
        while came < 2_000 and time.monotonic() < end:
            try:
                pool.empty((MB,), np.int8)
            except Interrupted:
                came += 1
    assert came > 0
    stats = pool.stats()
    assert stats["bytes_in_use"] == 0
    assert stats["bytes_kept"] == sum(len(b) for b in pool._kept.values()) * MB
    asked = []
    thread = threading.Thread(target=lambda: asked.append(pool.empty((MB,), np.int8)))
    thread.start()
    thread.join(10)
    assert asked  # the lock is free


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_write_to_pages_of_their_own():
    array = buffers.empty((2 * MB,), np.int32)
    array[...] = 1
    buffers.empty((2 * MB,), np.int32)[...] = 2
    stop = threading.Event()

    def allocate():
        while not stop.is_set():
            buffers.empty((MIN_POOLED_BYTES,), np.int8)

    thread = threading.Thread(target=allocate)  # holds the lock much of the time
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                array[...] = 3
                again = buffers.empty((2 * MB,), np.int32)
                again[...] = 4
                del again
                right = (array == 3).all() and buffers.release() >= array.nbytes
                os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    assert (array == 1).all()
    assert (buffers.empty((2 * MB,), np.int32) == 2).all()  # kept since it died


def test_the_end_of_the_interpreter_is_quiet():
    code = """
import numpy as np
from eagerflow.runtime import buffers
kept = [buffers.empty((1 << 20,)) for _ in range(3)]
kept.append(kept)
buffers.late = buffers.empty((1 << 21,))[3:]
class Owner:
    def __init__(self): self.array = buffers.empty((1 << 21,))
    def __del__(self): self.array[...] = 1; self.array = None
np.owner = Owner()
loop = [Owner()]; loop.append(loop)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
