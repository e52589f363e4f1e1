"""The memory limit counts everything that ops allocate, and nothing else."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends.numpy import owner_of, quiet_runner
from eagerflow.errors import EagerflowError, OutOfMemoryError
from eagerflow.op import ops
from eagerflow.recorder import recorder_state
from eagerflow.runtime import allocation, buffers, machine_code
from tests.cases import cases_of

MB = 1_000_000
pytestmark = pytest.mark.skipif(not machine_code.available(), reason="needs llvmlite")


def settled_bytes():
    """The bytes in use when no thread that has helped holds arrays any more."""
    found, same = ef.memory_stats()["bytes_in_use"], 0
    while same < 5:
        time.sleep(2e-3)
        now = ef.memory_stats()["bytes_in_use"]
        found, same = now, same + 1 if now == found else 0
    return found


@pytest.fixture
def limit():
    def set_limit(size):
        gc.collect()
        ef.set_memory_limit("cpu", settled_bytes() + size)

    yield set_limit
    ef.set_memory_limit("cpu", None)
    ef.empty_cache()


X = ef.tensor(np.random.default_rng(0).random((1000, 1000), np.float32))  # 4 MB
LIST = [1.0] * MB
LARGE = {
    "ones": lambda: ef.ones((25 * MB,)),
    "zeros": lambda: ef.zeros((25 * MB,)),
    "full": lambda: ef.full((25 * MB,), 2.0),
    "Variable": lambda: ef.Variable(X, dtype="float64"),
    "Variable of an array": lambda: ef.Variable(X.numpy()),
    "tensor": lambda: ef.tensor(X.numpy()),
    "tensor of a list": lambda: ef.tensor(LIST),
    "asarray with a dtype": lambda: ef.asarray(X.numpy(), dtype="float64"),
    "assign": lambda: ef.Variable(np.zeros(MB)).assign(LIST),
    "concat": lambda: ef.concat([X, X]),
    "sort": lambda: ef.sort(X),
    "argsort": lambda: ef.argsort(X),
    "cumulative_sum": lambda: ef.cumulative_sum(X, axis=0),
    "matmul": lambda: X @ X,
    "einsum": lambda: ef.einsum("ij,kj->ik", X, X),
    "add": lambda: X + 1.0,
    "add of lists": lambda: ef.ones((MB,)) + LIST,
    "where": lambda: ef.where(X > 0, X, 0.0),
    "silu": lambda: ef.silu(X),
    "softmax": lambda: ef.softmax(X),
    "take": lambda: ef.take(X, np.arange(1000)[::-1], axis=0),
    "index": lambda: X[np.arange(1000)[::-1]],
    "set": lambda: X.at[0].set(1.0),
    "random": lambda: ef.random.normal((MB,)),
    "nonzero": lambda: ef.nonzero(X),
    "astype": lambda: X.astype("float64"),
    "conv": lambda: ef.conv(X.reshape((1, 1000, 1000, 1)), ef.ones((3, 3, 1, 8))),
    "grad": lambda: ef.grad(lambda x: (x @ x).sum())(X),
    "captured": lambda: ef.function(lambda x: ef.sort(x + 1.0) * 2.0)(X),
    "exact": lambda: ef.function(lambda x: ef.sort(x + 1.0) * 2.0, numerics="exact")(X),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LARGE)
def test_large_results_are_refused(limit, name):
    small = name.startswith(("Variable", "tensor", "asarray", "assign", "add of"))
    LARGE[name]()  # calls that are kept ready hold some bytes
    limit(3 * MB)
    before = ef.memory_stats()["bytes_in_use"]
    with pytest.raises(
        OutOfMemoryError, match=r"bytes exceeds the limit of .*are in use"
    ) as caught:
        LARGE[name]()
    assert "ef.set_memory_limit" in caught.value.hint
    assert small or caught.value.op
    del caught
    gc.collect()
    assert ef.memory_stats()["bytes_in_use"] <= before + 64  # the state of random numbers
    ef.set_memory_limit("cpu", None)
    LARGE[name]()


def samples(op):
    rng = np.random.default_rng(0)
    allowed = sorted(op.allowed(0), key=str) if op.dtypes else []
    few = [d for d in allowed if d.name in ("float32", "int64", "bool", "uint64", "complex64")]
    for dtype in few or allowed:
        yield from itertools.islice(cases_of(op).samples(rng, dtype), 3)


@pytest.fixture
def no_collections():
    """What other tests have left is not freed in the middle of this one."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(ops))
def test_no_op_allocates_beside_the_books(monkeypatch, no_collections, name):
    """With one byte to be had, an op gives views of what there is, one number, or an error."""
    monkeypatch.setattr("eagerflow.backends.numpy.gc", SimpleNamespace(collect=lambda: 0))
    op = ops[name]
    checked = 0
    for sample in samples(op):
        args = [ef.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.args]
        try:
            op.call(*args, **sample.attributes)
        except EagerflowError:  # a graph is missing, or it is not for users
            continue
        ef.set_memory_limit("cpu", ef.memory_stats()["bytes_in_use"] + 1)
        try:
            found = op.call(*args, **sample.attributes)
        except OutOfMemoryError:
            checked += 1
            continue
        finally:
            ef.set_memory_limit("cpu", None)
        given = [x.numpy() for x in args if isinstance(x, ef.Tensor)]
        for y in found if isinstance(found, tuple) else (found,):
            array = y.numpy()
            shared = any(np.may_share_memory(array, x) for x in given)
            if array.size and owner_of(array).size > 1 and not shared:
                raise AssertionError(f"{name}{[a.shape for a in given]}: {array.shape}")
    families = ("shape", "control", "communication", "custom")
    views = op.family in families or name in ("getitem", "real")
    assert checked or views, "no sample has shown that the op is limited"


def test_foreign_memory_is_not_counted(limit):
    limit(MB)
    before = ef.memory_stats()["bytes_in_use"]
    mine = np.ones(5 * MB)
    shared = ef.asarray(mine)
    assert np.sort(mine).sum() == 5 * MB
    assert ef.memory_stats()["bytes_in_use"] == before
    assert float(shared[0]) == 1.0
    thread = threading.Thread(target=lambda: np.ones(5 * MB))
    thread.start()
    thread.join()
    assert ef.memory_stats()["bytes_in_use"] == before


def test_bytes_are_counted_until_the_last_view_dies(limit):
    X + 1.0
    limit(9 * MB)
    before = ef.memory_stats()["bytes_in_use"]
    a, b = X + 1.0, ef.ones((100,))
    assert ef.memory_stats()["bytes_in_use"] == before + 4 * MB + 400
    part = a.numpy()[::2]
    del a
    ef.set_memory_limit("cpu", None)  # arrays keep their allocator
    assert ef.memory_stats()["bytes_in_use"] == before + 4 * MB + 400
    thread = threading.Thread(target=lambda held=[part]: held.clear())
    del part
    thread.start()
    thread.join()
    del thread, b
    gc.collect()
    assert ef.memory_stats()["bytes_in_use"] == before
    assert ef.memory_stats()["peak_bytes_in_use"] >= before + 4 * MB


def test_pool_and_numpy_have_one_limit(limit):
    limit(9 * MB)
    a = X + 1.0  # NumPy's
    b = ef.softmax(X)  # of the pool
    for more in (lambda: X + 1.0, lambda: ef.softmax(X)):
        with pytest.raises(OutOfMemoryError):
            more()
    del a
    c = ef.softmax(X)
    del b
    d = X + 1.0
    assert ef.memory_stats()["bytes_in_use"] >= c.nbytes + d.nbytes


def test_garbage_makes_room(limit):
    limit(6 * MB)
    gc.disable()
    try:
        cycle = [X + 1.0]
        cycle.append(cycle)
        del cycle
        assert float((X + 1.0)[0, 0]) >= 1.0
        cycle = [ef.tensor(X.numpy())]
        cycle.append(cycle)
        del cycle
        assert float(ef.tensor(X.numpy())[0, 0]) < 1.0
    finally:
        gc.enable()


def test_state_is_as_before(limit):
    v = ef.Variable(X)
    model = ef.nn.Sequential([ef.nn.layers.Dense(2)])
    limit(3 * MB)
    for change in (
        lambda: v.assign(X + 1.0),
        lambda: v.assign_add(1.0),
        lambda: v.assign(X.numpy()),
    ):
        with pytest.raises(OutOfMemoryError):
            change()
        np.testing.assert_array_equal(v.numpy(), X.numpy())
    assert model(ef.ones((1, 3))).shape == (1, 2)


def test_errors_in_captured_code_name_the_line(limit):
    f = ef.function(lambda x: ef.sort(x + 1.0))
    f(X)
    limit(3 * MB)
    with pytest.raises(OutOfMemoryError, match=r"exceeds the limit") as caught:
        f(X)
    assert "test_allocation.py" in str(caught.value)


def test_limits_change_while_kernels_run(limit):
    stop = threading.Event()
    wrong = []

    def work():
        y = X[:300, :300]
        while not stop.is_set():
            try:
                with ef.GradientTape():  # a context of the thread's own
                    assert float((y + 1.0)[0, 0]) >= 1.0
                    ef.sort(y)
            except OutOfMemoryError:
                pass
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        ef.set_memory_limit("cpu", 100_000)
        time.sleep(2e-3)
        ef.set_memory_limit("cpu", None)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    gc.collect()
    limit(MB)
    with pytest.raises(OutOfMemoryError):
        ef.ones((MB,))


def test_limits_set_within_a_kernel(limit):
    recorder_state()[2](limit, MB)  # as by a signal handler that interrupts one
    with pytest.raises(OutOfMemoryError):
        ef.ones((MB,))


def test_limits_hold_in_kernels_that_run(limit):
    begun, set_now = threading.Event(), threading.Event()
    refused = []

    def kernel():
        held = np.ones(MB)
        begun.set()
        set_now.wait()
        try:
            held += np.ones(MB)
        except MemoryError as error:
            refused.append(error)
        held.resize(10, refcheck=False)

    thread = threading.Thread(target=lambda: quiet_runner()(kernel))
    thread.start()
    begun.wait()
    limit(MB)
    set_now.set()
    thread.join()
    assert len(refused) == 1


def test_the_allocator_itself(limit):
    """Sizes of all kinds through malloc, calloc and realloc: the books are even at the end."""
    limit(300 * MB)
    before = ef.memory_stats()["bytes_in_use"]

    def kernel():
        rng = np.random.default_rng(0)
        held = []
        for n in [0, 1, 7, 1000, 4097, 10**6] * 5:
            a = np.empty(n, np.uint8)
            b = np.zeros((n, 3))
            assert not b.any()
            a = np.concatenate([a, a])
            a.resize(2 * n + 11, refcheck=False)
            assert not a[2 * n :].any()
            a.resize(n // 2, refcheck=False)
            held += [a, b, np.array(["x" * (n % 50)]), rng.random(n % 1000)]
            assert all(x.ctypes.data % 8 == 0 for x in (a, b))
        with pytest.raises(MemoryError):
            np.empty(2**62, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(400 * MB, np.uint8)
        return held

    held = recorder_state()[2](kernel)
    assert ef.memory_stats()["bytes_in_use"] > before + sum(a.nbytes for a in held) - MB
    del held
    gc.collect()
    assert ef.memory_stats()["bytes_in_use"] == before


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_arrays_that_outlive_the_interpreter_are_freed():
    """Machine code and books must be there when the last array dies, in whichever order."""
    code = """if True:
        import sys, builtins, numpy as np, eagerflow as ef
        ef.set_memory_limit("cpu", 10**9)
        tensors = [ef.ones((n,)) + 1.0 for n in (1, 1000, 10**6)]
        sys.held = builtins.held = np.held = [t.numpy() for t in tensors]
        class Late:
            def __init__(self): self.array = (ef.ones((10**6,)) * 2.0).numpy()
            def __del__(self): self.array = None
        builtins.late = Late()
        print("done")
    """
    assert run(code) == "done\n"


def test_forked_children_count_for_themselves():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    code = """if True:
        import os, eagerflow as ef
        ef.set_memory_limit("cpu", 10**7)
        y = ef.ones((10**6,))
        child = os.fork()
        if not child:
            del y
            z = ef.ones((2 * 10**6,))
            os._exit(0 if ef.memory_stats()["bytes_in_use"] == 8 * 10**6 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(ef.memory_stats()["bytes_in_use"])
    """
    assert run(code) == "4000000\n"


def test_nothing_is_loaded_without_a_limit():
    code = """if True:
        import sys, eagerflow as ef
        ef.ones((10,)) + 1.0
        ef.set_memory_limit("cpu", None)
        print("llvmlite" in sys.modules, ef.memory_stats()["bytes_in_use"])
    """
    assert run(code) == "False 0\n"


def test_without_llvmlite_the_pool_alone_is_limited():
    code = """if True:
        import eagerflow as ef
        ef.set_memory_limit("cpu", 10**6)
        x = ef.ones((10**6,))
        try:
            ef.softmax(x)
        except ef.errors.OutOfMemoryError as error:
            print(error.op, ef.memory_stats()["bytes_limit"])
        ef.set_memory_limit("cpu", None)
        print(ef.softmax(x).shape)
    """
    assert run(code, EAGERFLOW_LLVM="0") == "softmax 1000000\n(1000000,)\n"
    assert "without llvmlite" in " ".join(ef.set_memory_limit.__doc__.partition("\n\n")[0].split())


def test_pools_of_their_own_keep_their_own_limits(limit):
    limit(MB)
    assert buffers.BufferPool().empty((5 * MB,)).nbytes == 40 * MB
    assert allocation.counted_bytes() >= 0
