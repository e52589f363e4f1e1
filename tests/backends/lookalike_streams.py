"""Streams and graphs of the look-alike of CuPy.

A stream does its work at once; while it is being captured it notes it, as functions of addresses.
A graph that is launched finds arrays at these addresses again, or refuses: memory that was given
back by then is refused. Memory that was recorded and never computed holds garbage.
"""

import collections
import ctypes
import itertools
import threading
import time
import weakref

import numpy as np


class Misuse(BaseException):
    """Misuse that CuPy accepts with wrong results; no code handles it as an error."""


class PrivatePool:
    """Memory that lives as long as the pool, and longer than the arrays in it."""

    def __init__(self, module):
        self.blocks = []
        module.pools.add(self)

    def malloc(self, values):
        self.blocks.append(values)


class Allocator:
    """A context in which a thread takes its memory from a pool."""

    def __init__(self, module, allocator):
        self.thread, self.allocator = module.thread, allocator

    def __enter__(self):
        self.before, self.thread.allocator = self.thread.allocator, self.allocator

    def __exit__(self, *error):
        self.thread.allocator = self.before


class Streams:
    """The streams of a module: which is current in a thread."""

    def __init__(self, module):
        self.thread, self.known = module.thread, weakref.WeakValueDictionary()
        module.streams = self
        self.starting = collections.defaultdict(threading.Lock)  # transfers to a device, by device
        self.default = Stream(module, False, 0)

    def wait_for_all(self, device):
        """Transfers of a device are over; none can begin there meanwhile, as CUDA may have it."""
        with self.starting[device]:
            for stream in list(self.known.values()):
                for op in [op for op in stream.pending if op.device == device]:
                    op.over.wait()

    @property
    def current(self):
        return self.thread.stream or self.default

    @property
    def recording(self):
        """The record of the current stream; None if it is not being captured."""
        return self.current.recorded


class Stream:
    """A stream; the one of number 0 is the default."""

    numbers = itertools.count(1000)

    def __init__(self, module, non_blocking, ptr=None):
        self.module, self.non_blocking = module, non_blocking
        self.ptr = next(self.numbers) if ptr is None else ptr
        self.recorded, self.before = None, []
        self.pending, self.waited = [], 0  # transfers, and the latest event waited for
        module.streams.known[self.ptr] = self

    def wait_event(self, event):
        self.waited = max(self.waited, event.tick)

    def __enter__(self):
        self.before.append(self.module.thread.stream)
        self.module.thread.stream = self
        return self

    def __exit__(self, *error):
        self.module.thread.stream = self.before.pop()

    def begin_capture(self, mode=None):
        if not self.non_blocking:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        assert self.recorded is None, "the stream is captured already"
        self.recorded = []

    def end_capture(self):
        if self.recorded is None:
            raise RuntimeError("cudaErrorIllegalState: the stream is not captured")
        found, self.recorded = Graph(self.module, self.recorded), None
        return found

    def is_capturing(self):
        return self.recorded is not None


class Event:
    """A point in the work of the stream and device that are current when it is recorded."""

    def __init__(self, module):
        self.module, self.device, self.time = module, None, None
        self.tick, self.after = 0, []

    def record(self, stream=None):
        if self.module.streams.recording is not None:
            raise Misuse("a point in what is being captured, and not in what runs")
        self.device, self.time = self.module.thread.device, time.perf_counter()
        self.tick = next(self.module.ticks)
        if stream is not None:
            stream.pending = [op for op in stream.pending if not op.over.is_set()]
            self.after = list(stream.pending)

    @property
    def done(self):
        return all(op.over.is_set() for op in self.after)

    def synchronize(self):
        self.module.refuse_waiting()
        for op in self.after:
            op.over.wait()


def elapsed_milliseconds(first, last):
    if first.time is None or last.time is None:
        raise RuntimeError("cudaErrorInvalidResourceHandle: an event was not recorded")
    assert first.device == last.device, "events of two devices"
    return (last.time - first.time) * 1e3


class Graph:
    """The record of a stream."""

    def __init__(self, module, recorded):
        self.module, self.recorded, self.device = module, recorded, module.thread.device

    def launch(self, stream=None):
        assert self.module.streams.recording is None
        assert self.device == self.module.thread.device, "the graph is another device's"
        self.module.graph_launches += 1
        for run in self.recorded:
            run()


class _Memory:
    """An array as an address, with how it lies there."""

    def __init__(self, values):
        self.address, self.shape = values.ctypes.data, values.shape
        self.strides, self.dtype = values.strides, values.dtype
        low, high = np.lib.array_utils.byte_bounds(values)
        self.low, self.size = low, high - low

    def array(self, module):
        module.check_address(self.address)
        buffer = (ctypes.c_char * self.size).from_address(self.low)
        return np.ndarray(self.shape, self.dtype, buffer, self.address - self.low, self.strides)


def frozen(x):
    """A nest of arguments, in which arrays are addresses."""
    if isinstance(x, np.ndarray) and x.ndim + x.size > 0 and x.dtype != object:
        return _Memory(x)
    if isinstance(x, list | tuple):
        return type(x)(map(frozen, x))
    return {k: frozen(v) for k, v in x.items()} if isinstance(x, dict) else x


def thawed(module, x):
    """The arguments again, with the arrays that are at their addresses now."""
    if isinstance(x, _Memory):
        return x.array(module)
    if isinstance(x, list | tuple):
        return type(x)(thawed(module, item) for item in x)
    return {k: thawed(module, v) for k, v in x.items()} if isinstance(x, dict) else x


def holds(values, address):
    """Whether an address is one of the bytes of an array."""
    low, high = np.lib.array_utils.byte_bounds(values)
    return low <= address < high or (values.size == 0 and low == address)
