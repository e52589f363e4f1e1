"""Lanes between GPUs of a look-alike: bits, order, threads, and what happens when one fails."""

import itertools
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest

from eagerflow.backends import cupy as backend
from eagerflow.cluster import lanes
from eagerflow.cluster.connections import Listener
from eagerflow.cluster.transport import Transport
from eagerflow.devices import add_task, as_device, device_types, remove_task, task_types
from eagerflow.dtypes import as_dtype, bfloat16
from eagerflow.errors import TaskLostError
from tests.backends import lookalike_nccl
from tests.backends.lookalike import Lookalike
from tests.backends.lookalike_nccl import Nccl, NcclError
from tests.internals import early_messages, replace_method

SECONDS = 10.0
NAMES = ["/job:lane/task:0", "/job:lane/task:1"]
NUMBERS = itertools.count(1000)  # messages of no run, each with another number
RNG = np.random.default_rng(0)


class Two(NamedTuple):
    """Two tasks of this process with two GPUs, and what they have heard of failures."""

    tasks: list[Transport]
    cupy: Any
    broken: list[tuple[str, str, str]]

    @property
    def cupy_nccl(self):
        return sys.modules["cupy.cuda.nccl"]

    def array(self, values, gpu):
        with self.cupy.cuda.Device(gpu):
            return self.cupy.asarray(values)

    def send(self, key, arrays, source=0, gpu=0, target=1, dtype=None):
        """Send arrays of a GPU of one task to one of the other; whether they went past the host."""
        own, peer = self.tasks[source], NAMES[1 - source]
        place = as_device(f"{NAMES[source]}/device:gpu:{gpu}")
        sent = [own.past_host(peer, place, target, x, dtype or x.dtype) for x in arrays]
        plain = [x.get() if past is None else past for x, past in zip(arrays, sent, strict=True)]
        own.send(peer, key, plain)
        return [past is not None for past in sent]

    def receive(self, key, source=0):
        """What has come from a task: arrays of GPUs or of the host."""
        found = SimpleQueue()
        self.tasks[1 - source].receive(key, found.put)
        return found.get(timeout=SECONDS)

    def open(self, source=0, gpu=0, target=1):
        """Return when the lane from a task to the other one is open."""
        x = self.array(np.ones(3), gpu)
        for _ in range(10_000):
            key = (-next(NUMBERS), source, gpu, target)
            if all(self.send(key, [x], source, gpu, target)):
                self.receive(key, source)
                return
            time.sleep(0.001)
        raise AssertionError("the lane has not opened")

    def lane(self, source=0):
        (found,) = self.tasks[source].lanes._out.values()
        return found


@pytest.fixture
def make(monkeypatch) -> Callable[..., Two]:
    """What makes two tasks of this process; all threads of lanes end with the test."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    for name, value in (("backend", None), ("devices", {}), ("logical", None)):
        monkeypatch.setattr(device_types["gpu"], name, value)
    for name in NAMES:
        monkeypatch.delitem(task_types, name, raising=False)  # with the backend of another test
    made: list[Any] = []

    def two(buses=None, version=23203):
        cupy = Lookalike(2, buses)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", Nccl(cupy, version))
        backend.count_devices.cache_clear()
        broken = []
        tasks = [
            Transport(name, b"token", partial(lambda *row: broken.append(row), name))
            for name in NAMES
        ]
        listeners = [Listener(b"token", None, task.accept) for task in tasks]
        made.extend([*listeners, *tasks])
        for name in NAMES:
            add_task(name, {"gpu": 2}, own=True)
        facts = {t.name: t.lanes.begin({"gpu": 2}, "machine", True) for t in tasks}
        for task in tasks:
            task.lanes.peers = facts
            task.move({n: x.address for n, x in zip(NAMES, listeners, strict=True)})
        return Two(tasks, cupy, broken)

    yield two
    for one in [*made, *sys.modules["cupy.cuda.nccl"].listening.values()]:
        one.close()
    for name in NAMES:
        remove_task(name)
    backend.count_devices.cache_clear()
    assert soon(lambda: not [t for t in threading.enumerate() if "lane" in t.name])


def ends_of(task):
    """The ends of the lanes of a task, by lane and device."""
    return task.lanes._ends.values()


def soon(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def bits(array):
    """Dtype, shape and bytes of an array of a GPU or of the host."""
    values = array if isinstance(array, np.ndarray) else array.get()
    return values.dtype.name, values.shape, values.tobytes()


VALUES = {
    "float32": RNG.standard_normal((3, 5)).astype("float32"),
    "float64": RNG.standard_normal(1000),
    "complex64": (RNG.standard_normal(7) + 1j).astype("complex64"),
    "complex128": np.array(1.5 - 2j),
    "bool": RNG.random((2, 3, 4)) > 0.5,
    "int8": np.arange(-5, 6, dtype="int8"),
    "uint64": np.array(2**64 - 1, "uint64"),
    "float16": np.array([np.nan, -0.0, np.inf], "float16"),
    "bfloat16": RNG.standard_normal((4, 2)).astype(bfloat16),
    "transposed": RNG.standard_normal((6, 7)).T,
    "strided": np.arange(40, dtype="int32")[3::4],
    "backwards": np.arange(9, dtype="float32")[::-1],
    "large": RNG.standard_normal(1 << 18),
}


def test_arrays_come_as_they_are(make):
    two = make()
    two.open()
    given = {name: two.array(x, 0) for name, x in VALUES.items()}
    given["transposed"] = two.array(np.ascontiguousarray(VALUES["transposed"].T), 0).T
    given["strided"] = two.array(np.arange(40, dtype="int32"), 0)
    with two.cupy.cuda.Device(0):
        given["strided"] = given["strided"][3::4]
    assert not given["transposed"].flags.c_contiguous
    for number, (name, x) in enumerate(given.items()):
        assert two.send((1, number), [x]) == [True], name
        (found,) = two.receive((1, number))
        assert type(found) is two.cupy.ndarray
        assert found.index == 1
        assert bits(found) == bits(np.ascontiguousarray(VALUES[name]).reshape(VALUES[name].shape))
    assert two.send((2, 0), list(given.values())) == [True] * len(given)
    together = two.receive((2, 0))
    assert [bits(x) for x in together] == [bits(x) for x in VALUES.values()]
    assert two.tasks[0].traffic[NAMES[1]] > 2 * VALUES["large"].nbytes


def test_empty_arrays_and_those_of_the_host_come_with_the_others(make):
    two = make()
    two.open()
    key, peer = (1, 0), NAMES[1]
    place = as_device(f"{NAMES[0]}/device:gpu:0")
    past = [
        two.tasks[0].past_host(peer, place, 1, two.array(x, 0), x.dtype)
        for x in (np.ones(3), np.zeros((0, 4)), np.arange(5))
    ]
    assert past[1] is None
    host = np.full(20_000, 7.0)  # which goes through shared memory
    two.tasks[0].send(peer, key, [host, past[0], np.zeros((0, 4)), past[2], host[:2]])
    wanted = [host, np.ones(3), np.zeros((0, 4)), np.arange(5), host[:2]]
    assert [bits(x) for x in two.receive(key)] == [bits(x) for x in wanted]


def test_values_are_rounded_on_the_device(make):
    two = make()
    two.open()
    x = RNG.standard_normal(100).astype("float32")
    two.send((1, 0), [two.array(x, 0)], dtype=as_dtype("bfloat16"))
    assert bits(two.receive((1, 0))[0]) == bits(x.astype(bfloat16))


def test_sent_array_may_be_modified_immediately(make):
    two = make()
    two.open()
    x = two.array(np.ones(1000), 0)
    two.send((1, 0), [x])
    x.fill(5.0)
    assert bits(two.receive((1, 0))[0]) == bits(np.ones(1000))


def exchange(two, count, threads=3):
    """Both directions at once, from several threads; the messages whose bits are wrong."""
    wrong: list[Any] = []

    def go(source, thread):
        gpu = source  # GPUs 0 and 1 of the two tasks
        for number in range(count):
            values = np.full(1 + (number * 37) % 50, number + 1000.0 * thread + 0.5 * source)
            key = (3, source, thread, number)
            past = two.send(key, [two.array(values, gpu)], source, gpu, 1 - gpu)
            if past != [True]:
                wrong.append((key, "went by the host"))

    def take(source, thread):
        for number in range(count):
            key = (3, source, thread, number)
            value = number + 1000.0 * thread + 0.5 * source
            try:
                (found,) = two.receive(key, source)
            except Exception as error:
                wrong.append((key, repr(error)))
                return
            if bits(found) != bits(np.full(1 + (number * 37) % 50, value)):
                wrong.append((key, "other bits"))

    work = [
        threading.Thread(target=call, args=(source, thread))
        for call in (go, take)
        for source in (0, 1)
        for thread in range(threads)
    ]
    for one in work:
        one.start()
    for one in work:
        one.join(4 * SECONDS)
        assert not one.is_alive()
    return wrong


@pytest.mark.sampled(3)
@pytest.mark.parametrize("buses", [["a", "b"], ["b", "a"]])
def test_both_directions_at_once_many_times(make, buses):
    two = make(buses)
    two.open(0, 0, 1)
    two.open(1, 1, 0)
    ends = [end for task in two.tasks for own in ends_of(task) for end in own.values()]
    assert sorted(end._leads for end in ends) == [False, False, True, True]
    assert exchange(two, 100) == []


def test_an_end_that_follows_starts_no_transfer_before_the_leading_one():
    end = lanes.ReceivingEnd("token", None, False, None, None)
    taken = SimpleQueue()

    def take():
        while True:
            taken.put(end.taken())

    threading.Thread(target=take, daemon=True).start()
    for number in (1, 2):
        end.expect(number, [number], print)
        with pytest.raises(Empty):
            taken.get(timeout=0.05)
        end.begun(number)
        assert taken.get(timeout=SECONDS) == ([number], print)


def test_a_planted_wrong_order_is_found(make, monkeypatch):
    """The sender takes what is ordered in pairs the other way round: each array is another's."""
    two = make()
    two.open(0, 0, 1)
    two.open(1, 1, 0)
    plain = lanes.End.taken
    kept: list[Any] = []

    def swapped(self):
        if not self.sends:
            return plain(self)
        if not kept:
            kept.extend([plain(self), plain(self)])
        return kept.pop()

    def misused(words):  # which on this way may happen, too
        raise EOFError(words)

    monkeypatch.setattr(lookalike_nccl, "misused", misused)
    monkeypatch.setattr(lanes.End, "taken", swapped)
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.3)
    assert exchange(two, 20, 1)


class Waiting:
    """Both GPUs are waited for all the time, in which nothing can begin on them."""

    def __init__(self, two):
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(two.cupy.cuda.Device(i),), daemon=True)
            for i in (0, 1)
        ]

    def _serve(self, gpu):
        while not self._over.wait(0.0002):
            gpu.synchronize()

    def __enter__(self):
        for one in self._threads:
            one.start()

    def __exit__(self, *error):
        self._over.set()


def test_waiting_for_a_gpu_blocks_no_lane(make):
    two = make()
    two.open(0, 0, 1)
    two.open(1, 1, 0)
    with Waiting(two):
        assert exchange(two, 60) == []


def test_without_an_order_of_gpus_a_wait_for_one_blocks_both(make, monkeypatch):
    """Planted: each end begins as soon as it can. So the test above finds what it is to find."""
    two = make()
    two.open(0, 0, 1)
    two.open(1, 1, 0)
    for task in two.tasks:
        for own in ends_of(task):
            for end in own.values():
                end._leads = True
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.5)
    with Waiting(two):
        assert exchange(two, 200)
    for made in two.cupy_nccl.made:
        made.abort()


def test_messages_that_come_twice_or_late_change_nothing(make, monkeypatch):
    two = make()
    kept: list[Any] = []

    def doubled(handle):
        """Each message comes twice, and every other one after the next one."""

        def handle_twice(self, link, message, arrays):
            again = lambda: handle(self, link, dict(message), list(arrays))
            if "lanes" in message and not kept:
                kept.append(again)
                return
            again()
            again()
            while kept:
                kept.pop()()

        return handle_twice

    two.open()
    replace_method(monkeypatch, Transport, "_handle", doubled)
    for number in range(40):
        two.send((1, number), [two.array(np.full(3, float(number)), 0)])
    for number in range(40):
        assert bits(two.receive((1, number))[0]) == bits(np.full(3, float(number)))
    assert two.broken == []


def test_messages_for_forgotten_runs_are_dropped(make):
    two = make()
    two.open()
    two.tasks[1].forget(7)
    for number in range(5):
        two.send((7, number), [two.array(np.ones(4), 0)])
    two.send((8, 0), [two.array(np.full(4, 2.0), 0)])
    assert bits(two.receive((8, 0))[0]) == bits(np.full(4, 2.0))
    assert not early_messages(two.tasks[1]).get(7)


def test_where_no_communicator_can_be_made_the_host_is_taken(make, monkeypatch):
    two = make()

    def refused(*args):
        raise NcclError(2)

    monkeypatch.setattr(two.cupy_nccl, "NcclCommunicator", refused)
    x = two.array(np.arange(5), 0)
    assert two.send((1, 0), [x]) == [False]
    assert soon(lambda: two.lane().fate)
    assert two.send((1, 1), [x]) == [False]
    assert bits(two.receive((1, 1))[0]) == bits(np.arange(5))
    place = as_device(f"{NAMES[0]}/device:gpu:0")
    words = two.tasks[0].lanes.refusal(NAMES[1], place, 1)
    assert words.startswith("NCCL 2.32.3: NcclError")
    assert two.broken == []


@pytest.mark.parametrize("fails", [0, 1])
def test_failed_lane_is_reported_and_later_messages_use_the_host(make, monkeypatch, fails):
    two = make()
    two.open()
    end = next(c for c in two.cupy_nccl.made if c.rank == fails)
    lane = two.lane()
    before = lane.sent_bytes  # of messages that may still be at work

    def failed():
        if lane.sent_bytes > before:
            raise NcclError(1)

    monkeypatch.setattr(end, "check_async_error", failed)
    x = two.array(np.ones(4), 0)
    two.send((1, 0), [x])
    assert soon(lambda: two.broken and two.lane().fate)
    # The receiver may tell as well, of the message that comes behind the word that the lane closed.
    (words,) = [w for task, peer, w in two.broken if "no more" in w and task == NAMES[fails]]
    assert words.startswith("sends no more from GPU to GPU: NcclError")
    assert two.send((1, 1), [x]) == [False]
    assert bits(two.receive((1, 1))[0]) == bits(np.ones(4))


def test_message_for_a_closed_lane_is_reported(make):
    two = make()
    two.open()
    x = two.array(np.ones(4), 0)
    (own,) = ends_of(two.tasks[1])
    for end in own.values():
        end.close("for the test")
    two.send((1, 0), [x])
    assert soon(lambda: two.broken)
    assert two.broken == [(NAMES[1], NAMES[0], "has sent over a lane that is closed")]


def test_sending_over_a_lane_closed_meanwhile_raises(make):
    two = make()
    two.open()
    place = as_device(f"{NAMES[0]}/device:gpu:0")
    past = two.tasks[0].past_host(NAMES[1], place, 1, two.array(np.ones(4), 0), np.float64)
    two.lane().close("it has failed")
    with pytest.raises(TaskLostError, match=f"the way to {NAMES[1]} has failed"):
        two.tasks[0].send(NAMES[1], (1, 0), [past])


def test_lane_closes_with_its_connection_and_is_reopened(make, monkeypatch):
    two = make()
    two.open()
    first = two.lane()
    with monkeypatch.context() as patched:
        # The receiver takes no more from the lane, as a process that stands still.
        over = threading.Event()
        patched.setattr(lanes.ReceivingEnd, "_begin", lambda *args: over.wait(SECONDS))
        two.send((1, 0), [two.array(np.ones(4), 0)])
        two.tasks[0].links[0].close()
        assert soon(lambda: first.fate == "the connection has ended")
        assert soon(lambda: two.broken)
        over.set()
    assert soon(lambda: not any(made.comm for made in two.cupy_nccl.made))
    two.open()
    assert two.lane() is not first
    assert two.send((2, 0), [two.array(np.ones(4), 0)]) == [True]
    assert bits(two.receive((2, 0))[0]) == bits(np.ones(4))


def test_a_peer_that_never_connects_holds_up_nothing(make, monkeypatch):
    two = make()
    stuck = threading.Event()
    communicator = two.cupy_nccl.NcclCommunicator

    def connecting(count, unique_id, rank):
        if rank:
            stuck.wait(SECONDS)
        return communicator(count, unique_id, rank)

    monkeypatch.setattr(two.cupy_nccl, "NcclCommunicator", connecting)
    for number in range(5):
        assert two.send((1, number), [two.array(np.ones(4), 0)]) == [False]
        assert bits(two.receive((1, number))[0]) == bits(np.ones(4))
    stuck.set()
    two.open()
