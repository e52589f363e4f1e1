"""A look-alike of CuPy for machines without a GPU: NumPy's values, CuPy's rules.

It imitates, from CuPy's documentation: arrays are another class than NumPy's and do not
mix with them; each thread has a current device, on which results are made and of which
operands must be; ``asarray`` moves an array to the current device; memory is counted in a
pool per device, and may be limited. Kernels given as text run on the CPU, compiled by g++; a
pointer that they are given has to be that of an array of the device that is current. Streams and
graphs are in ``lookalike_streams``, transfers between processes in ``lookalike_nccl``.
"""

import atexit
import itertools
import shutil
import tempfile
import threading
import types
import weakref

import numpy as np

from tests.backends.lookalike_streams import (
    Allocator,
    Event,
    Misuse,
    PrivatePool,
    Stream,
    Streams,
    elapsed_milliseconds,
    frozen,
    holds,
    thawed,
)
from tests.codegen.cuda_cpu import compile_for_cpu, kernels_of, launch_on_cpu


class CUDARuntimeError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class _Thread(threading.local):
    device = 0
    stream = None  # the one of the default
    allocator = None


class Device:
    def __init__(self, cuda, index):
        if not 0 <= index < cuda.count:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self.cuda, self.id, self.before = cuda, index, []

    def __enter__(self):
        self.before.append(self.cuda.thread.device)
        self.cuda.thread.device = self.id
        return self

    def __exit__(self, *error):
        self.cuda.thread.device = self.before.pop()

    def synchronize(self):
        self.cuda.refuse_waiting()
        self.cuda.synchronized.append(self.id)
        self.cuda.streams.wait_for_all(self.id)

    @property
    def mem_info(self):
        return 600, 1000

    @property
    def pci_bus_id(self):
        return self.cuda.buses[self.id]


class Pool:
    """Counts all allocated memory; enough to see on which device, and to refuse."""

    def __init__(self, cuda):
        self.cuda, self.used, self.limits = cuda, {}, {}

    def take(self, size):
        device = self.cuda.thread.device
        limit = self.limits.get(device, 0)
        if limit and self.used.get(device, 0) + size > limit:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        self.used[device] = self.used.get(device, 0) + size

    def used_bytes(self):
        return self.used.get(self.cuda.thread.device, 0)

    total_bytes = used_bytes

    def get_limit(self):
        return self.limits.get(self.cuda.thread.device, 0)

    def set_limit(self, size):
        self.limits[self.cuda.thread.device] = size

    def free_all_blocks(self):
        self.cuda.emptied.append(self.cuda.thread.device)


class Texts:
    """Compiled kernels: each text is compiled once, and all that need it wait together."""

    def __init__(self):
        self.waiting, self.places, self.folder = [], {}, None

    def add(self, text):
        if text not in self.places and text not in self.waiting:
            self.waiting.append(text)

    def place(self, text):
        if text not in self.places:
            if self.folder is None:
                self.folder = tempfile.mkdtemp(prefix="eagerflow-kernels-")
                atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
            self.places |= compile_for_cpu(self.waiting, tempfile.mkdtemp(dir=self.folder))
            self.waiting.clear()
        return self.places[text]


TEXTS = Texts()


class RawModule:
    """Kernels of a text, on the device that was current when the first of them was taken."""

    def __init__(self, module, code, options):
        assert options == ("--std=c++17", "--fmad=false")
        self.module, self.code, self.device = module, code, None
        module.texts.append(code)
        TEXTS.add(code)

    def get_function(self, name):
        self.device = self.module.thread.device
        assert name in kernels_of(self.code)
        return lambda *given: self._launch(name, *given)

    def _launch(self, name, grid, block, given):
        module = self.module
        assert self.device == module.thread.device, "the module was loaded on another device"
        module.work(lambda: self._run(name, grid, block, given))

    def _run(self, name, grid, block, given):
        module = self.module
        for pointer in [g for g in given if type(g) is np.uint64]:
            module.check_address(int(pointer))
        module.launches.append((name, module.thread.device))
        launch_on_cpu(self.code, TEXTS.place(self.code), name, grid, block, given)


class Function:
    """A NumPy function under CuPy's rules; ``reduce`` and its like come along."""

    def __init__(self, module, function):
        self.module, self.function = module, function

    def __call__(self, *args, **options):
        return self.module.compute(self.function, args, options)

    def __getattr__(self, name):
        return Function(self.module, getattr(self.function, name))


class Lookalike(types.ModuleType):
    """``cupy`` with ``count`` GPUs; a new ``ndarray`` class for each. ``buses`` name the GPUs."""

    def __init__(self, count=2, buses=None):
        super().__init__("cupy")
        self.buses = buses or [f"0000:{i:02x}:00.0" for i in range(count)]
        self.ticks, self.lock = itertools.count(1), threading.Lock()
        self.count, self.synchronized, self.emptied = count, [], []
        self.thread = _Thread()
        self.pool = Pool(self)
        self.launches, self.arrays, self.many = [], [], 100
        self.texts, self.graph_launches = [], 0
        self.pools = weakref.WeakSet()  # of graphs
        self.streams = Streams(self)
        self.RawModule = lambda code, options: RawModule(self, code, options)
        self.ndarray = _array_class(self)
        self.cuda = types.SimpleNamespace(
            Device=lambda index: Device(self, index),
            Event=lambda: Event(self),
            get_elapsed_time=elapsed_milliseconds,
            Stream=lambda non_blocking=False: Stream(self, non_blocking),
            get_current_stream=lambda: self.streams.current,
            MemoryPool=lambda: PrivatePool(self),
            using_allocator=lambda allocator: Allocator(self, allocator),
            runtime=types.SimpleNamespace(
                getDeviceCount=self.count_devices, CUDARuntimeError=CUDARuntimeError, is_hip=False
            ),
        )
        self.linalg = types.SimpleNamespace()
        transforms = ("fft", "ifft", "rfft", "irfft")
        self.fft = types.SimpleNamespace(
            **{name: Function(self, getattr(np.fft, name)) for name in transforms}
        )

    def count_devices(self):
        if not self.count:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return self.count

    def get_default_memory_pool(self):
        return self.pool

    def __getattr__(self, name):
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found
        return Function(self, found)

    def made(self, values, base=None):
        if base is None:
            self.pool.take(values.nbytes)
            if self.thread.allocator is not None:
                self.thread.allocator(values)
        return self.wrap(values, self.thread.device, base)

    def wrap(self, values, index, base=None):
        found = self.ndarray.__new__(self.ndarray)
        found.values, found.index, found.base = values, index, base
        self.remember(found)
        return found

    def remember(self, array):
        array.tick = next(self.ticks)  # its operands have earlier ones
        with self.lock:
            self.arrays.append(weakref.ref(array))
            if len(self.arrays) > self.many:
                self.arrays = [own for own in self.arrays if own() is not None]
                self.many = 2 * len(self.arrays) + 100

    def all_arrays(self):
        with self.lock:
            return [array for own in self.arrays if (array := own()) is not None]

    def check_address(self, address):
        """Assert that an address is in memory of a live array or of a graph."""
        device = self.thread.device
        known = [(a.values, a.index) for a in self.all_arrays()]
        known += [(values, device) for pool in self.pools for values in pool.blocks]
        found = {index for values, index in known if holds(values, address)}
        assert device in found, f"no array of the device is at {address}"

    def refuse_waiting(self):
        if self.streams.recording is not None:
            raise RuntimeError("the current stream is capturing, so synchronization is not allowed")

    def refuse_host(self):
        """A copy from the host would be repeated, from memory that is another array's by then."""
        if self.streams.recording is not None:
            raise Misuse("a copy from the host is recorded")

    def work(self, run):
        """Run a kernel now, or when the graph that is being recorded is launched."""
        if self.streams.recording is None:
            run()
        else:
            self.streams.recording.append(run)

    def plain(self, x):
        if isinstance(x, self.ndarray):
            if x.index != self.thread.device:
                raise ValueError(
                    "Array device must be same as the current device: array device = "
                    f"{x.index} while current = {self.thread.device}"
                )
            return x.values
        if isinstance(x, np.ndarray) and x.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if isinstance(x, list | tuple):
            return type(x)(map(self.plain, x))
        return x

    def compute(self, function, args, options):
        if self.streams.recording is not None and function in _CUBLAS:
            raise NotImplementedError("calling cuBLAS API during stream capture is unsupported")
        given = self.plain(tuple(args)), {k: self.plain(v) for k, v in options.items()}
        into = given[1].pop("out", None)
        out = function(*given[0], **given[1])
        if into is not None:
            return self.write(into, out, function, given, options["out"])
        if isinstance(out, tuple):
            return tuple(
                self.result(np.asarray(part), args, function, given, (n,))
                for n, part in enumerate(out)
            )
        if isinstance(out, np.ndarray | np.generic):
            return self.result(np.asarray(out), args, function, given, ())
        return out

    def result(self, values, args, function, given, part):
        """A new array with these values, or a view of an argument."""
        for x in args:
            if isinstance(x, self.ndarray) and np.may_share_memory(x.values, values):
                return self.made(values, x if x.base is None else x.base)
        found = self.made(values)
        if self.streams.recording is not None:
            self.write(values, values.copy(), function, given, found, part)
            _spoil(values)
        return found

    def write(self, values, found, function, given, array, part=()):
        """Write the result of a function into memory, as a kernel would."""
        if self.streams.recording is None:
            values[...] = found
            return array
        place, args, options = frozen((values, *given))

        def run():
            again = function(*thawed(self, args), **thawed(self, options))
            thawed(self, place)[...] = again[part[0]] if part else again

        self.work(run)
        return array

    def array(self, obj, dtype=None, copy=True, order="K"):
        if isinstance(obj, self.ndarray) and obj.index == self.thread.device:
            return self.compute(np.array, (obj,), {"dtype": dtype})
        self.refuse_host()
        values = obj.values if isinstance(obj, self.ndarray) else np.asarray(obj)
        return self.made(np.array(values, dtype))

    def copyto(self, target, source):
        self.write(self.plain(target), self.plain(source), np.array, ((source.values,), {}), target)

    def empty(self, shape, dtype=float):
        """New memory holds garbage, since its contents must not matter."""
        values = np.empty(shape, dtype)
        _spoil(values)
        return self.made(values)

    def asarray(self, obj, dtype=None, *, blocking=False):
        if isinstance(obj, self.ndarray) and obj.index == self.thread.device:
            return obj
        return self.array(obj, dtype)


_CUBLAS = {np.matmul, np.dot, np.vecdot, np.tensordot, np.einsum}


def _spoil(values):
    values.reshape(-1).view(np.uint8)[...] = 0xA5


class MemoryPointer:
    """Where an array begins."""

    def __init__(self, values):
        self.values, self.ptr = values, values.ctypes.data


def _array_class(module):
    class ndarray:
        __array_ufunc__ = None

        def __init__(self, shape, dtype, memptr):
            self.values = memptr.values.reshape(shape).view(dtype)
            self.index, self.base = module.thread.device, None
            module.remember(self)

        shape = property(lambda self: self.values.shape)
        size = property(lambda self: self.values.size)
        nbytes = property(lambda self: self.values.nbytes)
        ndim = property(lambda self: self.values.ndim)
        dtype = property(lambda self: self.values.dtype)
        strides = property(lambda self: self.values.strides)
        flags = property(lambda self: self.values.flags)
        T = property(lambda self: module.compute(np.transpose, (self,), {}))
        mT = property(lambda self: module.compute(np.matrix_transpose, (self,), {}))
        data = property(lambda self: MemoryPointer(self.values))
        device = property(lambda self: Device(module, self.index))

        def get(self):
            module.refuse_waiting()
            return self.values.copy()

        def fill(self, number):
            module.write(self.values, number, np.asarray, ((number,), {}), self)

        def set(self, values):
            module.refuse_host()
            self.values[...] = values

        def __array__(self, *_, **__):
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

        def __dlpack__(self, **options):
            raise BufferError("the values are on a GPU")

        def __dlpack_device__(self):
            return 2, self.index

        def __getitem__(self, key):
            return module.compute(np.ndarray.__getitem__, (self, key), {})

        def __setitem__(self, key, value):
            assert module.streams.recording is None
            module.plain(self)[module.plain(key)] = module.plain(value)

    def method(name):
        def call(self, *args, **options):
            if name in ("__bool__", "__int__", "__float__"):
                module.refuse_waiting()
            return module.compute(getattr(np.ndarray, name), (self, *args), options)

        return call

    for name in (*_METHODS, *_OPERATORS):
        setattr(ndarray, name, method(name))
    return ndarray


_METHODS = "astype view copy reshape transpose ravel sum any all min max".split()
_OPERATORS = [
    f"__{name}__"
    for name in "add sub mul truediv radd rsub rmul rtruediv neg eq ne lt le gt ge or and invert "
    "bool float int".split()
]
