"""Loader: the same batches whatever prepares them, from any place; nothing remains of workers."""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError

HOW = [0, 1, 3, "processes:2"]
by_workers = pytest.mark.parametrize("workers", HOW)
X = np.arange(46, dtype="float32").reshape(23, 2)
Y = np.arange(23)


def values(batches):
    return [[np.asarray(leaf).tolist() for leaf in ef.tree.flatten(batch)[0]] for batch in batches]


def helpers():
    """Threads and processes that work for loaders."""
    threads = [t for t in threading.enumerate() if t.daemon and "serve" in t.name]
    return threads, multiprocessing.active_children()


@pytest.fixture(autouse=True)
def nothing_remains():
    yield
    gc.collect()
    assert helpers() == ([], [])


def noisy(x, y, rng):
    return x + rng.normal(size=x.shape).astype("float32"), y


def late(x, y):
    time.sleep(0.02 if y % 4 == 0 else 0.0)
    return x, y


class Pictures:
    """What PyTorch calls a map-style dataset."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        if not 0 <= i < 10:
            raise IndexError(i)
        return np.full((2, 2), i, "float32"), i


class Numbers:
    """An iterable that begins again each time."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


@pytest.mark.sampled(2)
@by_workers
@pytest.mark.parametrize(
    "data",
    [(X, Y), {"x": X, "y": (Y, X)}, X, list(zip(X, Y, strict=True)), Pictures(), Numbers(23)],
    ids=["pair", "nest", "array", "list", "dataset", "iterable"],
)
def test_batches_are_the_examples_in_their_order(data, workers):
    loader = ef.nn.Loader(data, 4, workers=workers)
    batches = list(loader)
    leaves = [
        np.concatenate(c) for c in zip(*[ef.tree.flatten(b)[0] for b in batches], strict=True)
    ]
    if isinstance(data, tuple | dict | np.ndarray):
        right = ef.tree.flatten(data)[0]
    else:
        columns = zip(*[ef.tree.flatten(item)[0] for item in _examples(data)], strict=True)
        right = [np.stack(c) for c in columns]
    for a, b in zip(leaves, right, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(ef.tree.flatten(batches[0])[0][0], ef.Tensor)
    if loader.steps is not None:
        assert len(loader) == len(batches)


def _examples(data):
    return [data[i] for i in range(len(data))] if hasattr(data, "__len__") else data


@by_workers
def test_workers_change_nothing(workers):
    """Slow and random functions, another order in each epoch: the batches are those of one."""
    options = {"batch_size": 5, "shuffle": True, "seed": 3}
    right = ef.nn.Loader((X, Y), map=noisy, **options)
    found = ef.nn.Loader((X, Y), map=noisy, workers=workers, **options).map(late_of_batch)
    for _ in range(2):
        assert values(found) == values(right)


def late_of_batch(x, y):
    time.sleep(float(y[0] % 3) / 200)
    return x, y


def test_epochs_have_orders_of_their_own():
    loader = ef.nn.Loader(Y, 23, shuffle=True, seed=1)
    first, second = values(loader), values(loader)
    assert first != second
    assert sorted(first[0][0]) == sorted(second[0][0]) == Y.tolist() != first[0][0]
    assert values(ef.nn.Loader(Y, 23, shuffle=True, seed=2)) != first
    ef.random.seed(5)
    a = values(ef.nn.Loader(Y, 23, shuffle=True))
    ef.random.seed(5)
    assert values(ef.nn.Loader(Y, 23, shuffle=True)) == a


def test_an_iterable_is_shuffled_in_a_window():
    loader = ef.nn.Loader(Numbers(100), 100, shuffle=10, seed=0)
    (first,), (second,) = values(loader)[0], values(loader)[0]
    assert sorted(first) == list(range(100)) != first != second
    assert all(value < place + 10 for place, value in enumerate(first))


@pytest.mark.sampled(12)
@by_workers
@pytest.mark.parametrize("data", [(X, Y), Numbers(23)], ids=["arrays", "iterable"])
def test_state_goes_on_with_the_batches_that_would_have_come(workers, data):
    def made():
        shuffle = 7 if isinstance(data, Numbers) else True
        return ef.nn.Loader(data, 4, shuffle=shuffle, workers=workers, prefetch=3, seed=9)

    whole = made()
    right = values(whole) + values(whole)
    for taken in range(len(right)):
        loader, given = made(), []
        while len(given) < taken:
            for batch in loader:
                given += values([batch])
                if len(given) == taken:
                    break
        state = json.loads(json.dumps(loader.state()))
        again = ef.nn.Loader(data, 4, shuffle=loader.shuffled, workers=workers, seed=1)
        again.set_state(state)
        rest = values(again)
        assert rest
        if len(given) + len(rest) < len(right):
            rest += values(again)
        assert given + rest == right


@pytest.mark.parametrize("data", [(X, Y), Numbers(23)], ids=["arrays", "iterable"])
def test_state_after_the_last_batch_resumes_at_the_next_epoch(data):
    loader = ef.nn.Loader(data, 4, shuffle=7, seed=9)
    first, second = values(loader), values(loader)
    again = ef.nn.Loader(data, 4, shuffle=7)
    again.set_state({"epoch": 0, "position": len(first), "seed": 9})
    next(iter(again))  # a loop that is left early
    assert values(again) == second
    assert again.state() == {"epoch": 2, "position": 0, "seed": 9}


def test_a_loop_left_early_begins_anew():
    loader = ef.nn.Loader(Y, 5, workers=1)
    assert values([next(iter(loader))]) == values([next(iter(loader))]) == [[[0, 1, 2, 3, 4]]]
    assert loader.state()["position"] == 1
    assert len(list(loader)) == 5
    assert loader.state() == {"epoch": 1, "position": 0, "seed": loader.state()["seed"]}


def test_chains():
    loader = ef.nn.Loader(list(range(10)), None, map=lambda x: x + 1)
    assert [int(x) for x in loader] == list(range(1, 11))
    chained = loader.map(lambda x: x * 2).shuffle(seed=0).batch(4, drop_last=True).prefetch(2)
    assert len(chained) == len(list(chained)) == 2
    sums = [batch[0] for batch in values(chained.map(np.sum))]
    assert sums == [sum(batch[0]) for batch in values(chained.prefetch(0, workers=0))]
    assert loader.steps == 10 and loader.workers == 0


def test_strings_stay_arrays_and_floats_become_float32():
    words, numbers = next(iter(ef.nn.Loader([("a", 1.5), ("bc", 2.5)], 2)))
    assert isinstance(words, np.ndarray) and words.tolist() == ["a", "bc"]
    assert numbers.dtype == np.float32


def test_it_is_given_to_fit_evaluate_and_predict():
    y = X.sum(axis=1, keepdims=True)
    model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
    model.compile(ef.nn.optimizers.SGD(1e-4), "mse")
    loader = ef.nn.Loader((X, y), 8, shuffle=True, workers=2)
    history = model.fit(loader, epochs=3, validation_data=loader, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert history.params["steps"] == 3
    assert model.evaluate(loader, verbose=0) == pytest.approx(model.evaluate(X, y, verbose=0))
    found, wanted = model.predict(ef.nn.Loader(X, 8)), model.predict(X, batch_size=8)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# Errors -------------------------------------------------------------------------------------------


def wrong_at_nine(x):
    if x == 9:
        raise KeyError("nine")
    return x


def stops(x):
    raise StopIteration


def dies(x):
    os._exit(3)


@by_workers
def test_an_error_comes_in_its_place_with_its_traceback(workers):
    batches = iter(ef.nn.Loader(Y, 4, map=wrong_at_nine, workers=workers))
    assert values([next(batches), next(batches)]) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    with pytest.raises(KeyError, match="nine") as caught:
        next(batches)
    story = "".join(getattr(caught.value, "__notes__", []))
    names = [entry.name for entry in caught.traceback]
    assert "wrong_at_nine" in names or "wrong_at_nine" in story
    assert next(batches, None) is None


@by_workers
def test_data_error_is_raised_after_earlier_batches(workers):
    def data():
        yield from range(6)
        raise OSError("the disk")

    batches = iter(ef.nn.Loader(data(), 4, workers=workers))
    assert values([next(batches)]) == [[[0, 1, 2, 3]]]
    with pytest.raises(OSError, match="the disk"):
        next(batches)


@by_workers
def test_stop_iteration_of_a_function_is_no_end(workers):
    with pytest.raises(RuntimeError, match="in the middle"):
        list(ef.nn.Loader(Y, 4, map=stops, workers=workers))


def test_worker_process_exit_raises():
    with pytest.raises(ef.errors.EagerflowError, match="exit code 3"):
        list(ef.nn.Loader(Y, 4, map=dies, workers="processes:2"))


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def odd(x):
    raise Odd(1, 2)


def test_unpicklable_worker_error_raises():
    with pytest.raises(ef.errors.EagerflowError, match="Odd"):
        list(ef.nn.Loader(Y, 4, map=odd, workers="processes:1"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ef.nn.Loader((X, Y[:3])), ef.errors.ShapeError, "different numbers"),
        (lambda: ef.nn.Loader(()), ef.errors.ShapeError, "no array"),
        (lambda: ef.nn.Loader(3), ef.errors.ArgumentError, "holds no examples"),
        (lambda: ef.nn.Loader(lambda: iter(X)), ef.errors.ArgumentError, "pass the generator"),
        (lambda: ef.nn.Loader(X, 0), ef.errors.ArgumentError, "batch_size"),
        (lambda: ef.nn.Loader(X, workers="threads"), ef.errors.ArgumentError, "workers"),
        (lambda: ef.nn.Loader(X, workers="processes:x"), ef.errors.ArgumentError, "workers"),
        (lambda: ef.nn.Loader(X, workers=-1), ef.errors.ArgumentError, "workers"),
        (lambda: ef.nn.Loader(X, prefetch=-1), ef.errors.ArgumentError, "prefetch"),
        (lambda: ef.nn.Loader(X, seed=-1), ef.errors.ArgumentError, "seed"),
        (lambda: ef.nn.Loader(X, map=3), ef.errors.ArgumentError, "map"),
        (lambda: ef.nn.Loader(Numbers(3), shuffle=True), ef.errors.ArgumentError, "1000"),
        (lambda: ef.nn.Loader(X).map(np.sum).batch(3), ef.errors.ArgumentError, "recreated"),
        (lambda: ef.nn.Loader(X).set_state({"epoch": 1}), ef.errors.ArgumentError, "no state"),
        (
            lambda: ef.nn.Loader(X).set_state({"epoch": 0, "position": 9, "seed": 1}),
            ef.errors.ArgumentError,
            "the same data",
        ),
        (lambda: list(ef.nn.Loader([X, X[:2]])), ef.errors.ShapeError, "different shapes"),
        (lambda: list(ef.nn.Loader([(1, 2), (1,)])), ef.errors.ShapeError, "not alike"),
        (lambda: len(ef.nn.Loader(Numbers(3))), TypeError, "number of batches"),
    ],
)
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call()


# Leaving ------------------------------------------------------------------------------------------


@by_workers
def test_leaving_early_leaves_nothing(workers):
    loader = ef.nn.Loader((X, Y), 2, workers=workers, prefetch=4)
    for _ in loader:
        break
    assert helpers() == ([], [])
    batches = iter(loader)
    next(batches)
    batches.close()
    assert helpers() == ([], [])
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            raise ZeroDivisionError
    assert helpers() == ([], [])
    batches = iter(loader)
    next(batches)
    del batches
    assert helpers() == ([], [])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [2, "processes:2"])
def test_ctrl_c_ends_the_workers(workers):
    code = f"""
import os, signal, threading, time
import numpy as np
import eagerflow as ef
def slow(x):
    time.sleep(0.05)
    return x
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for batch in ef.nn.Loader(np.arange(10_000), 2, map=slow, workers={workers!r}):
        pass
except KeyboardInterrupt:
    import multiprocessing
    print("left", [t.name for t in threading.enumerate() if "serve" in t.name],
          multiprocessing.active_children())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "left [] []\n", done.stderr
    assert done.stderr == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [2, "processes:2"])
def test_a_program_that_ends_or_is_killed_takes_its_workers_along(workers):
    code = f"""
import sys, numpy as np, eagerflow as ef, multiprocessing
batches = iter(ef.nn.Loader(np.arange(10_000), 2, workers={workers!r}))
next(batches)
print(*[p.pid for p in multiprocessing.active_children()], flush=True)
if "wait" in sys.argv:
    sys.stdin.read()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    pids = list(map(int, done.stdout.split()))
    started = subprocess.Popen(
        [sys.executable, "-c", code, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pids += list(map(int, started.stdout.readline().split()))
    started.kill()
    started.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while any(map(_lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_lives, pids))


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("workers", [2, "processes:2"])
def test_a_fork_while_batches_are_prepared(workers):
    """The child is told that the iterator is not its own, makes another, and ends."""
    loader = ef.nn.Loader((X, Y), 2, workers=workers)
    batches = iter(loader)
    first = next(batches)
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        try:
            next(batches)
        except ef.errors.EagerflowError as error:
            found = "another process" in str(error)
        again = values(ef.nn.Loader((X, Y), 2, workers=2))
        del batches
        gc.collect()
        os._exit(0 if found and again == values(ef.nn.Loader((X, Y), 2)) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert values([first, *batches]) == values(loader)


def test_loaders_in_several_threads():
    loader = ef.nn.Loader((X, Y), 3, workers=2)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(values, [loader] * 4))
    assert found == [found[0]] * 4


@pytest.mark.soak
@pytest.mark.parametrize("workers", [3, "processes:2"])
def test_soak(workers):
    rng, before = np.random.default_rng(0), len(os.listdir("/proc/self/fd"))
    loader = ef.nn.Loader((X, Y), 2, map=late, workers=workers)
    for _ in range(200):
        left = int(rng.integers(13))
        for i, _ in enumerate(loader):
            if i == left:
                break
    assert helpers() == ([], [])
    assert len(os.listdir("/proc/self/fd")) <= before


# Batches of lists of examples ---------------------------------------------------------------------

RAGGED = [[1, 2], [3], [4, 5, 6], [7], [8, 9]]


def padded(examples):
    longest = max(map(len, examples))
    return {
        "x": np.array([[*x, *[0] * (longest - len(x))] for x in examples]),
        "length": np.array([len(x) for x in examples]),
    }


@pytest.mark.parametrize("workers", [0, 2, "processes:2"])
def test_a_function_makes_batches_of_ragged_examples(workers):
    loader = ef.nn.Loader(RAGGED, 2, collate_fn=padded, workers=workers)
    found = [(b["x"].tolist(), b["length"].tolist()) for b in loader]
    assert found == [
        ([[1, 2], [3, 0]], [2, 1]),
        ([[4, 5, 6], [7, 0, 0]], [3, 1]),
        ([[8, 9]], [2]),
    ]
    loader.set_state({"epoch": 0, "position": 2, "seed": 0})
    assert [b["x"].tolist() for b in loader] == [[[8, 9]]]


def test_it_is_given_rows_of_arrays_and_results_of_functions():
    rows = lambda examples: np.stack([x * y for x, y in examples])
    loader = ef.nn.Loader((np.arange(4), np.full(4, 3)), 2, collate_fn=rows)
    assert [b.tolist() for b in loader] == [[0, 3], [6, 9]]
    mapped = ef.nn.Loader(RAGGED, 3, map=lambda x: [10 * i for i in x], collate_fn=padded)
    assert next(iter(mapped.map(lambda b: b["x"]))).tolist() == [
        [10, 20, 0],
        [30, 0, 0],
        [40, 50, 60],
    ]
    words = ef.nn.Loader(iter(RAGGED), 4, collate_fn=padded)
    assert [b["length"].tolist() for b in words] == [[2, 1, 3, 1], [2]]


@pytest.mark.parametrize("given", [{"collate_fn": 3}, {"collate_fn": padded, "batch_size": None}])
def test_it_needs_a_function_and_a_size(given):
    with pytest.raises(ArgumentError, match="Loader: collate_fn"):
        ef.nn.Loader(RAGGED, **given)
