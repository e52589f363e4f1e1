"""Kernels in trouble: bad caches, forks, threads, no compiler, long runs, and wrong arrays."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.errors import ArgumentError, DeviceError, DTypeError, IndexRangeError, ShapeError
from eagerflow.runtime import machine_code

ROOT = Path(__file__).parents[2]
needs_llvm = pytest.mark.skipif(not machine_code.available(), reason="llvmlite is not installed")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
has_proc = Path("/proc/self/status").exists()
needs_proc = pytest.mark.skipif(not has_proc, reason="no /proc on this system")
PRELUDE = """
import numpy as np
import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.runtime import threads
from eagerflow.codegen.llvm import launch
from tests.codegen.many_regions import LARGE
from tests.codegen.many_regions import X
from tests.codegen.many_regions import check
from tests.codegen.many_regions import growth
from tests.codegen.many_regions import region
from tests.codegen.many_regions import together
"""


def start(code, cache="off", before="", **environment):
    """A fresh process that runs a piece of code, with a folder of kernels of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", before + PRELUDE + code],
        cwd=ROOT,
        env={**os.environ, "EAGERFLOW_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """(what it printed, what it complained of) of a process, which must end well and in time."""
    try:
        output, errors = process.communicate(timeout=300)  # also on a busy machine
    finally:
        process.kill()
    assert process.returncode == 0, f"ended by {process.returncode}: {errors}"
    return output.split(), errors


def run(code, cache="off", **environment):
    """What ``ended`` gives of a process that runs a piece of code."""
    return ended(start(code, cache, **environment))


# The folder of kernels ---------------------------------------------------------------------------

FEW = 6
COMPUTE = f"""
import os
for number in range({FEW}):
    check(number)
folder = launch._disk.folder
entries = len(os.listdir(folder)) if folder and os.path.isdir(folder) else 0
print(launch._disk.hits, launch._disk.misses, entries)
"""


@needs_llvm
def test_a_folder_that_is_not_there_yet(tmp_path):
    folder = tmp_path / "not" / "there"
    assert run(COMPUTE, folder) == (["0", str(FEW), str(FEW)], "")
    assert run(COMPUTE, folder) == ([str(FEW), "0", str(FEW)], "")


@pytest.mark.sampled(3)
@needs_llvm
@pytest.mark.parametrize("place", ["file", "file/below", "proc"])
def test_folders_that_cannot_be_written_to(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    folder = "/proc/self/kernels" if place == "proc" else tmp_path / place
    output, errors = run(COMPUTE, folder)
    assert output[2] == "0"
    assert errors.count("RuntimeWarning") == 1 and "EAGERFLOW_CACHE" in errors
    assert (tmp_path / "file").read_text() == "mine"


def flipped(content, place):
    changed = bytearray(content)
    changed[place] ^= 0x10
    return bytes(changed)


DAMAGE = [
    lambda content: b"",
    lambda content: content[:40],
    lambda content: content[:-1],
    lambda content: flipped(content, 3),
    lambda content: flipped(content, len(content) // 2),
    lambda content: flipped(content, -1),
]


@needs_llvm
def test_damaged_kernels_are_compiled_again(tmp_path):
    run(COMPUTE, tmp_path)
    files = sorted(tmp_path.iterdir())
    whole = [file.read_bytes() for file in files]
    assert len(files) == len(DAMAGE) == FEW
    for file, content, damage in zip(files, whole, DAMAGE, strict=True):
        file.write_bytes(damage(content))
    output, errors = run(COMPUTE, tmp_path)
    assert output == ["0", str(FEW), str(FEW)]
    assert errors.count("Warning") <= 1
    assert run(COMPUTE, tmp_path) == ([str(FEW), "0", str(FEW)], "")


@needs_llvm
def test_kernels_under_each_others_names_are_not_run(tmp_path):
    run(COMPUTE, tmp_path)
    files = sorted(tmp_path.iterdir())
    whole = [file.read_bytes() for file in files]
    for file, content in zip(files, whole[1:] + whole[:1], strict=True):
        file.write_bytes(content)
    output, errors = run(COMPUTE, tmp_path)
    assert output == ["0", str(FEW), str(FEW)]
    assert errors == ""


@needs_llvm
def test_a_kernel_of_another_machine_is_not_run(tmp_path):
    if not machine_code.host().triple.startswith("x86_64"):
        pytest.skip("features of x86-64")
    run(COMPUTE, tmp_path)
    narrow = {"EAGERFLOW_LLVM_FEATURES": "-avx512* -avx2"}
    assert run(COMPUTE, tmp_path, **narrow)[0] == ["0", str(FEW), str(2 * FEW)]


@needs_llvm
def test_eight_processes_compile_the_same_at_once(tmp_path):
    code = """
for number in np.random.permutation(8):
    check(int(number))
"""
    processes = [start(code, tmp_path) for _ in range(8)]
    assert [ended(process) for process in processes] == [([], "")] * 8
    assert len(list(tmp_path.iterdir())) == 8  # and nothing half made


# Forks and threads -------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run

def child(number):
    signal.alarm(60)
    try:
        check(0)
        check(number)
        check(1, LARGE)
        threads.set_thread_count(2)
        check(number, LARGE)
        status = 0
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
        status = 1
    os._exit(status)

def fork(number):
    pid = os.fork()
    if pid == 0:
        child(number)
    return pid

def all_well(pids):
    print(*(os.waitpid(pid, 0)[1] for pid in pids), flush=True)
"""


@needs_llvm
@needs_fork
def test_children_compute_after_a_fork():
    code = """
check(0)
check(1, LARGE)
all_well([fork(100 + i) for i in range(3)])
check(200)
"""
    assert run(FORKS + code) == (["0"] * 3, "")


@needs_llvm
@needs_fork
def test_a_fork_while_threads_compile():
    code = """
import itertools, threading, time
check(0)
numbers, ended = itertools.count(1_000), threading.Event()

def compile():
    while not ended.is_set():
        check(next(numbers))

workers = [threading.Thread(target=compile) for _ in range(2)]
for worker in workers:
    worker.start()
pids = []
for i in range(8):
    time.sleep(0.013 * i)
    pids.append(fork(100 + i))
all_well(pids)
ended.set()
for worker in workers:
    worker.join()
check(200)
"""
    assert run(FORKS + code) == (["0"] * 8, "")


@needs_llvm
@needs_fork
def test_a_lock_that_a_fork_leaves_behind_is_noticed():
    """Without what ``machine_code`` does before and after forks, a child would wait for ever."""
    code = """
import threading
from eagerflow.runtime import machine_code
machine_code._lock = lock = threading.RLock()  # one that no fork waits for
check(0)
held = threading.Event()

def hold():
    with lock:
        held.set()
        threading.Event().wait(20)

threading.Thread(target=hold, daemon=True).start()
held.wait()

def child(number):
    signal.alarm(2)
    check(number)
    os._exit(0)

all_well([fork(100)])
os._exit(0)  # kernels in memory wait for the lock, too
"""
    output, _ = run(FORKS + code)
    assert output == ["14"]  # SIGALRM


@needs_llvm
def test_eight_threads_call_thirty_regions_at_once(tmp_path):
    code = """
regions = [region(number) for number in range(30)]

def work(thread):
    for i in range(30):
        number = (i + thread // 2) % 30
        check(number, found=regions[number])

together(work, 8)
print(len(launch._kernels), launch._disk.misses, len(launch._making))
"""
    assert run(code, tmp_path) == (["30", "30", "0"], "")


@needs_llvm
def test_a_program_ends_while_a_thread_compiles():
    code = """
import itertools, threading

def compile():
    for number in itertools.count():
        check(number)

threading.Thread(target=compile, daemon=True).start()
for number in range(5):
    check(-number)
"""
    for _ in range(2):
        assert run(code) == ([], "")


@needs_llvm
def test_threads_that_clear_do_not_disturb_others():
    code = """
regions = [region(number) for number in range(5)]

def work(thread):
    for i in range(40):
        if thread == 0:
            launch.clear()
        check(i % 5, found=region(i % 5) if i % 2 else regions[i % 5])

together(work, 4)
"""
    assert run(code) == ([], "")


# Without a compiler ------------------------------------------------------------------------------

REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""
ON_TILES = """
import sys
from eagerflow.errors import MissingExtraError
from tests.codegen.llvm_cases import CASES
from tests.codegen.llvm_cases import check as check_case

assert kernel.ways() == ("numpy",), kernel.ways()
for name in CASES:
    check_case(name, "rows")
for number in range(6):
    check(number)
    check(number, LARGE)
x = np.random.default_rng(0).standard_normal((300, 200)).astype("float32")
e = np.exp(x.astype("float64"))
for axis in (0, 1):
    y = ef.softmax(ef.tensor(x), axis=axis)
    np.testing.assert_allclose(y.numpy(), e / e.sum(axis, keepdims=True), 1e-5)
with ef.GradientTape() as tape:
    v = ef.Variable(x)
    loss = ef.log_softmax(v).sum()
assert tape.gradient(loss, v).shape == (300, 200)
assert "region softmax" in ef.kernels.show(ef.softmax, ef.tensor(x))
assert "__global__" in ef.kernels.show(ef.softmax, ef.tensor(x), code="cuda")
"""
SAID_TO_BE_MISSING = """
for call in (lambda: ef.kernels.show(ef.softmax, ef.tensor(x), code="llvm"),
             lambda: kernel.run(region(0), (X,), way="llvm")):
    try:
        call()
    except MissingExtraError as error:
        print("llvmlite" in str(error), "pip install llvmlite" in str(error))
"""


def test_without_llvmlite_all_is_computed_by_numpy():
    code = ON_TILES + SAID_TO_BE_MISSING
    assert ended(start(code, before=REFUSE)) == (["True"] * 4, "")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", ["0", "off"])
def test_the_compiler_can_be_switched_off(value):
    small = ON_TILES if value == "0" else "import sys\ncheck(0)\n"
    code = small + "print(*(name for name in sys.modules if name == 'llvmlite'))"
    assert run(code, EAGERFLOW_LLVM=value) == ([], "")


# Long runs ---------------------------------------------------------------------------------------


def grown(warm, rounds, leak=0):
    ((share,), errors) = run(f"print(growth({warm}, {rounds}, {leak}))")
    assert errors == ""
    print(f"memory after {rounds} rounds: {100 * float(share):+.1f} %")
    return float(share)


@pytest.mark.soak
@needs_llvm
@needs_proc
@pytest.mark.parametrize(
    ("warm", "rounds"), [(30, 80), pytest.param(200, 1_000, marks=pytest.mark.soak)]
)
def test_compiled_and_dropped_kernels_leave_no_memory(warm, rounds):
    assert grown(warm, rounds) < 0.05


@needs_llvm
@needs_proc
def test_memory_that_is_left_is_noticed():
    """As much in 50 rounds as 70 kB, the size of a kernel and its region, would be in 150."""
    assert grown(10, 50, leak=210_000) > 0.05


# Wrong arrays ------------------------------------------------------------------------------------


def scaled(**more):
    """y = x * row + table[index], its sums, and x once more in place."""
    b = Builder("scaled", "m n")
    x, row = b.input("x", "float32", "m n"), b.input("row", "float32", "m")
    index = b.input("index", "int64", "m")
    table = b.input("table", "float32", "m n", gather="index")
    y = x * row + table
    b.output("y", y)
    b.output("sums", b.sum(y, "m"))
    b.output("x", y + index.builder.convert(index, "float32"), inplace="x")
    return b.region()


def arguments():
    rng = np.random.default_rng(0)
    x, row = rng.random((6, 5), np.float32), rng.random(6, np.float32)
    index, table = np.arange(6) % 4, rng.random((4, 5), np.float32)
    y, sums = np.empty((6, 5), np.float32), np.empty(5, np.float32)
    return {"x": x, "row": row, "index": index, "table": table, "y": y, "sums": sums}


def compute(region, given, way):
    inputs = [given[name] for name in ("x", "row", "index", "table")]
    outputs = [given["y"], given["sums"], given.get("out", given["x"])]
    kernel.compute(region, inputs, outputs, {}, way)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def shifted(a):
    """Two arrays like ``a`` that share all but one element of each row."""
    both = np.zeros((a.shape[0], a.shape[1] + 1), a.dtype)
    return both[:, :-1], both[:, 1:]


class Foreign:
    """What another library's array may look like."""

    def __init__(self, array):
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.ndim, self.flags = array.ndim, array.flags


def overlapping(a):
    first, second = shifted(a["x"])
    return {"x": first, "out": second}


def spread(a):
    return {"y": np.lib.stride_tricks.as_strided(a["y"], (6, 5), (0, 4))}


WRONG = {
    "another dtype": (DTypeError, "x has dtype float64", lambda a: {"x": a["x"].astype("f8")}),
    "another dtype of an output": (DTypeError, "y has", lambda a: {"y": a["y"].astype("f8")}),
    "other byte order": (DTypeError, "x has dtype", lambda a: {"x": a["x"].astype(">f4")}),
    "byte order of an output": (DTypeError, "y has", lambda a: {"y": a["y"].astype(">f4")}),
    "a rank too many": (ShapeError, "row has shape", lambda a: {"row": a["row"][:, None]}),
    "a rank too few": (ShapeError, "y has shape", lambda a: {"y": a["y"][0]}),
    "another size": (ShapeError, "axis m has size 6", lambda a: {"row": a["row"][:5]}),
    "another size of an output": (ShapeError, "y has shape", lambda a: {"y": a["y"][:5]}),
    "a size of 1 is not spread": (ShapeError, "axis m", lambda a: {"row": a["row"][:1]}),
    "an output on an input": (ArgumentError, "y shares memory", lambda a: {"y": a["x"]}),
    "an output on an input's part": (ArgumentError, "sums shares", lambda a: {"sums": a["x"][2]}),
    "two outputs": (ArgumentError, "sums shares memory with y", lambda a: {"sums": a["y"][2]}),
    "in place of another part": (ArgumentError, "x shares memory with x", overlapping),
    "in place, turned": (ArgumentError, "x shares memory with x", lambda a: {"out": a["x"][::-1]}),
    "read-only": (ArgumentError, "y cannot be written", lambda a: {"y": read_only(a["y"])}),
    "read-only in place": (ArgumentError, "x cannot be", lambda a: {"x": read_only(a["x"])}),
    "a spread output": (ArgumentError, "several elements in one place", spread),
    "rows beyond the last": (IndexRangeError, "4 rows", lambda a: {"index": a["index"] + 1}),
    "rows before the first": (IndexRangeError, "from -1", lambda a: {"index": a["index"] - 1}),
    "rows of no table": (IndexRangeError, "0 rows", lambda a: {"table": a["table"][:0]}),
    "a list": (DeviceError, "x is a list", lambda a: {"x": a["x"].tolist()}),
    "a number": (DeviceError, "row is a float", lambda a: {"row": 1.0}),
    "nothing": (DeviceError, "y is a NoneType", lambda a: {"y": None}),
    "a foreign array": (DeviceError, "x is a Foreign", lambda a: {"x": Foreign(a["x"])}),
    "a foreign output": (DeviceError, "y is a Foreign", lambda a: {"y": Foreign(a["y"])}),
}


@pytest.mark.parametrize("before", [False, True], ids=["cold", "prepared"])
@pytest.mark.parametrize("way", kernel.ways())
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arrays_are_refused(wrong, way, before):
    """Also if the region is ready for arrays of the same shapes."""
    kind, message, change = WRONG[wrong]
    region = scaled()
    if before:
        compute(region, arguments(), way)
    given = arguments()
    given |= change(given)
    copies = {name: np.array(a) for name, a in given.items() if isinstance(a, np.ndarray)}
    with pytest.raises(kind, match=message) as caught:
        compute(region, given, way)
    assert "region scaled[m, n]" in str(caught.value)
    for name, copy in copies.items():
        np.testing.assert_array_equal(given[name], copy)


@pytest.mark.parametrize("way", kernel.ways())
def test_right_arrays_are_taken(way):
    region, given = scaled(), arguments()
    wide = {name: a.astype("f8") for name, a in given.items()}
    expected = wide["x"] * wide["row"][:, None] + wide["table"][given["index"]]
    compute(region, given, way)
    np.testing.assert_allclose(given["y"], expected, 1e-6)
    np.testing.assert_allclose(given["sums"], expected.sum(0), 1e-6)
    np.testing.assert_allclose(given["x"], expected + given["index"][:, None], 1e-6)


@pytest.mark.parametrize("way", kernel.ways())
def test_numbers_of_arrays(way):
    region, given = scaled(), arguments()
    inputs = [given[name] for name in ("x", "row", "index", "table")]
    with pytest.raises(ArgumentError, match="4 inputs, not 3"):
        kernel.run(region, inputs[:-1], way=way)
    with pytest.raises(ArgumentError, match="3 outputs, not 1"):
        kernel.compute(region, inputs, [given["y"]], way=way)
    with pytest.raises(ShapeError, match="axis n has size 7"):
        kernel.run(region, inputs, {"n": 7}, way)
    with pytest.raises(ArgumentError, match="there is no way 'fortran'"):
        kernel.run(region, inputs, way="fortran")


@pytest.mark.parametrize("way", kernel.ways())
def test_run_in_place_asks_the_same(way):
    b = Builder("twice", "n")
    x, y = b.input("x", "float32", "n"), b.input("y", "float32", "n")
    b.output("x", x + y, inplace="x")
    region, x = b.region(), np.ones(9, np.float32)
    (found,) = kernel.run(region, (x, np.ones(9, np.float32)), way=way)
    assert found is x and x.tolist() == [2.0] * 9
    with pytest.raises(ArgumentError, match="shares memory with y"):
        kernel.run(region, (x, x), way=way)
    with pytest.raises(ArgumentError, match="cannot be written"):
        kernel.run(region, (read_only(x), np.ones(9, np.float32)), way=way)
    with pytest.raises(ArgumentError, match="several elements in one place"):
        kernel.run(region, (np.broadcast_to(np.float32(1), 9), x), way=way)
    assert x.tolist() == [2.0] * 9


@pytest.mark.parametrize("way", kernel.ways())
def test_missing_sizes(way):
    b = Builder("ones", "m n")
    x = b.input("x", "float32", "m")
    b.output("y", x, axes="m n")
    region, x = b.region(), np.ones(3, np.float32)
    with pytest.raises(ShapeError, match="no input determines the size of n"):
        kernel.run(region, (x,), way=way)
    (y,) = kernel.run(region, (x,), {"n": 2}, way)
    assert y.tolist() == [[1.0, 1.0]] * 3
