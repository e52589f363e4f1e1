"""Functions that the text of programs calls: foreign memory, threads, signals, files."""

import atexit
import copy
import ctypes
import gc
import mmap
import pickle
import shutil
import signal
import tempfile
import threading

import ml_dtypes
import numpy as np

import eagerflow as ef
from tests.differences import epsilon, largest_difference, largest_magnitude
from tests.internals import array_of, value_in

try:
    import torch
except ImportError:
    torch = None  # programs then have no statements with PyTorch

ONLY_IN_PROGRAMS = (copy, gc, ml_dtypes, torch)  # modules that only the text of programs uses
FOLDERS = []


def numbers(rng, shape, dtype, scale=1.0):
    """Random numbers with few digits, which all floating dtypes can represent."""
    return (rng.uniform(-1, 1, shape) * scale).astype("float16").astype(dtype)


def filled(layer, rng, dtype):
    """Assign random values to the weights of a layer."""
    for weight in layer.weights:
        low = 0.5 if "variance" in weight.name else -0.5
        weight.assign(rng.uniform(low, 1, weight.shape).astype("float16").astype(weight.dtype))


def mapped(array):
    """A copy of an array in a file that is mapped into memory."""
    with tempfile.NamedTemporaryFile(suffix=".memory") as file:
        found = np.memmap(file, array.dtype, "w+", shape=array.shape or (1,))
        found[...] = array
    return found.reshape(array.shape)


def in_shared_memory(array):
    """A copy of an array in memory that forked processes share."""
    memory = memoryview(mmap.mmap(-1, max(1, array.nbytes)))
    found = np.ndarray(array.shape, array.dtype, memory)
    found[...] = array
    return found


def in_ctypes(array):
    """A copy of an array in memory of ctypes."""
    memory = (ctypes.c_char * max(1, array.nbytes))()
    found = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    found[...] = array
    return found


def bytearray_array(array):
    """A copy of an array in a bytearray."""
    return np.frombuffer(bytearray(array.tobytes()), array.dtype).reshape(array.shape)


def unpickled_twice(value):
    """Two objects of one pickle of protocol 5, which share its buffers."""
    buffers = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    memory = [bytearray(b.raw()) for b in buffers]
    return [pickle.loads(data, buffers=memory) for _ in range(2)]


def in_thread(f, *args):
    """The result of ``f(*args)`` in another thread."""
    found = []

    def run():
        try:
            found.append(f(*args))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def checkpointed(model, wait=True):
    """A checkpoint with the current state of a model."""
    found = ef.nn.Checkpoint(new_folder())
    found.save(model, step=1, wait=wait)
    return found


def weights_file(model):
    """The path of a new file with the weights of a model."""
    path = f"{new_folder()}/weights.safetensors"
    model.save_weights(path)
    return path


def new_folder():
    FOLDERS.append(tempfile.mkdtemp(prefix="eagerflow-programs-"))
    return FOLDERS[-1]


@atexit.register
def remove_folders():
    while FOLDERS:
        shutil.rmtree(FOLDERS.pop(), ignore_errors=True)


def bits(value):
    """A copy of the bytes of a value."""
    return np.array(array_of(value) if isinstance(value, ef.Tensor) else value).tobytes()


def unchanged(held):
    """Raise if a value has changed; ``held`` has pairs of a value and its earlier bytes."""
    for value, before in held:
        if bits(value) != before:
            raise AssertionError("a value that was read during the step has changed")


def beside_a_reader(read, f, *args):
    """The result of ``f(*args)`` while another thread reads values that must not change."""
    held, stop, failed = [], threading.Event(), []

    def run():
        try:
            while not stop.is_set() and len(held) < 50:
                value = read()
                held.append((value, bits(value)))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        result = f(*args)
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
    unchanged(held)
    return result


def with_signals(act, f, *args):
    """The result of ``f(*args)`` while a signal handler gets values that must not change."""
    held, busy = [], []

    def handle(number, frame):
        if len(held) < 50 and not busy:  # the next signal may interrupt a slow handler
            busy.append(True)
            try:
                value = act()
                held.append((value, bits(value)))
            finally:
                busy.clear()

    if threading.current_thread() is not threading.main_thread():
        return f(*args)
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0004)
    try:
        result = f(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    unchanged(held)
    return result


def leaves(nest):
    """The tensors of a nest, in order, and the values of its Variables."""
    if isinstance(nest, ef.Variable):
        return [value_in(nest)]
    if isinstance(nest, dict):
        return [x for v in nest.values() for x in leaves(v)]
    if isinstance(nest, list | tuple):
        return [x for v in nest for x in leaves(v)]
    return [nest] if isinstance(nest, ef.Tensor | np.ndarray) else []


def in_same_order(a, b):
    """Whether values of Variables lie alike in both programs; pickled ones lie row by row."""
    found = []
    for program in (a, b):
        held = [leaves(getattr(x, "variables", x)) for x in vars(program).values()]
        found.append([np.asarray(array_of(x)).strides for part in held for x in part])
    return found[0] == found[1]


def near(a, b):
    """Whether arrays are equal within the rounding errors of long sums."""
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind in "biu":
        return False
    limit = 1000 * epsilon(a.dtype) * largest_magnitude(a)
    return largest_difference(a, b) <= limit


def same(a, b, in_order):
    """Raise unless two nests have the same bits, or nearly so if other orders in memory were read.

    NumPy adds up numbers in the order in which they lie.
    """
    for x, y in zip(leaves(a), leaves(b), strict=True):
        if bits(x) != bits(y) and (in_order or not near(np.asarray(x), np.asarray(y))):
            raise AssertionError(f"a copy gives {y!r} where the original gives {x!r}")
