"""What users do again and again takes no more memory the thousandth time than the tenth.

Each habit is done some times, and then as often again, twice. What grows in both of these rounds
with the number of repetitions is a leak: live objects of eagerflow, entries of the library's own
tables and caches, traced bytes. Caches with a bound are made small here, so that they are full.
"""

import gc
import inspect
import os
import sys
import tracemalloc
import types
import weakref
from collections import Counter, deque
from functools import cache

import pytest

import eagerflow as ef
from eagerflow import dispatch
from eagerflow.capture import history
from eagerflow.capture.control import bodies
from eagerflow.codegen import generated
from eagerflow.devices import device_types
from eagerflow.fusion import kernels
from eagerflow.nn.optimizers import joint_steps
from tests.contract.cases import SOAK
from tests.contract.habits import HABITS, LASTING
from tests.internals import (
    forget_statement_counts,
    generated_calls,
    keep_latest_kernels,
    scan_plans,
)

TIMES = 350 if SOAK else 8  # in each of three rounds
# For each repetition: tracemalloc itself keeps the names of files of code, 69 bytes for each plan,
# and a fit makes four of them.
BYTES = 600
FIXED_BYTES = 12 * 1024  # what tables of the interpreter's grow by at a time
RESIDENT_BYTES = 4_096 if SOAK else None  # for each repetition: coarse, so over many alone
TABLES = (
    *(dict, set, list, deque),
    *(weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
)
BOUNDS = [
    (kernels, "MAX_REMEMBERED"),
    (generated, "MAX_CALLS"),
    (bodies, "MAX_MADE"),
    (joint_steps, "MAX_KNOWN"),
    (scan_plans(), "bound"),
    (history, "TOLD"),
    (dispatch, "MAX_PASSED"),
]


def is_ours(thing):
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "eagerflow"


def parts_of_modules():
    """All that the library's modules and its classes hold by a name, and what their objects do."""
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] != "eagerflow":
            continue
        for key, thing in list(vars(module).items()):
            inner = {}
            if isinstance(thing, type):
                inner = vars(thing) if thing.__module__ == name else {}
            elif is_ours(type(thing)):
                inner = getattr(thing, "__dict__", {})
            yield f"{name}.{key}", thing
            yield from ((f"{name}.{key}.{k}", x) for k, x in list(inner.items()))


@cache
def named_tables(modules):
    """The tables and caches that are held by a name, while there are as many modules."""
    return [
        (name, thing)
        for name, thing in parts_of_modules()
        if hasattr(thing, "cache_parameters")
        or (isinstance(thing, TABLES) and not name.endswith("__"))
    ]


def sizes_of_tables():
    """How many entries the tables and caches have; those with functools' bound are emptied."""
    found = {}
    for name, thing in named_tables(len(sys.modules)):
        if not hasattr(thing, "cache_parameters"):
            found[name] = len(thing)
            continue
        if thing.cache_parameters()["maxsize"] is not None:
            thing.cache_clear()
        found[name] = thing.cache_info().currsize
    return found


def resident():
    """Bytes of memory that the process has now; 0 where the system does not tell."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reading():
    """What there is now: objects by their classes, entries of tables; bytes, traced and resident.

    Bytes are counted before and after, since the reading itself takes some.
    """
    tables = sizes_of_tables()  # which empties caches
    ef.empty_cache()  # memory that is kept for the next arrays, up to a limit
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    objects = Counter(
        type(x).__qualname__
        for x in gc.get_objects()
        if is_ours(type(x)) or type(x) in (types.FunctionType, type, weakref.ref)
    )
    size = resident()
    gc.collect()
    return objects, tables, first, tracemalloc.get_traced_memory()[0], size


def growth(repeat, times=TIMES):
    """What has become more in each of two rounds of as many repetitions, and in two more if any."""
    rounds, before = [], None
    gc.collect()
    gc.freeze()  # what there is already is not looked at, which would take most of the time
    tracemalloc.start()
    try:
        for start in range(0, 5 * times, times):
            for i in range(start, start + times):
                repeat(i)
            now = reading()
            if before is not None:
                rounds.append(differences(before, now, times))
            before = now
            if len(rounds) > 1 and not in_all(rounds):
                break
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return in_all(rounds)


def in_all(rounds):
    """What has become more in all rounds, and by how much in each."""
    return {
        what: tuple(r[what] for r in rounds) for what in rounds[0] if all(what in r for r in rounds)
    }


def differences(before, now, times):
    """What has become more by one for each repetition, and bytes beyond those that are allowed."""
    found = {}
    for old, new in zip(before[:2], now[:2], strict=True):
        found |= {k: n - old.get(k, 0) for k, n in new.items() if n - old.get(k, 0) >= times}
    if (size := now[2] - before[3]) > BYTES * times + FIXED_BYTES:
        found["bytes"] = size
    if RESIDENT_BYTES and (size := now[4] - before[4]) > RESIDENT_BYTES * times:
        found["resident bytes"] = size
    return found


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    """Caches with a bound hold few entries, and are full after the first round."""
    for owner, name in BOUNDS:
        monkeypatch.setattr(owner, name, 4)
    monkeypatch.setattr(device_types["cpu"], "logical", 2)
    LASTING.clear()  # which may have been made with other bounds
    bodies.forget()
    keep_latest_kernels(monkeypatch, 4)
    forget_statement_counts(monkeypatch)
    for table in (generated_calls(), joint_steps._known):
        table.clear()
    scan_plans().items.clear()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", HABITS)
def test_habits_leave_nothing(name, tmp_path):
    habit = HABITS[name]
    given = (tmp_path,) if "folder" in inspect.signature(habit).parameters else ()
    assert growth(lambda i: habit(i, *given)) == {}


KEPT = []
PLANTED = {
    "Tensor": lambda i: KEPT.append(ef.ones(3)),
    "function": lambda i: KEPT.append(lambda: i),
    "bytes": lambda i: KEPT.append(bytes(4096)),
    "eagerflow.fusion.kernels.planted": lambda i: kernels.planted.update({i: None}),
    "type": lambda i: KEPT.append(type("Planted", (), {})),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", PLANTED)
def test_planted_leaks_are_found(what, monkeypatch):
    monkeypatch.setattr(kernels, "planted", {}, raising=False)
    named_tables.cache_clear()
    try:
        assert what in growth(PLANTED[what])
    finally:
        KEPT.clear()
        named_tables.cache_clear()
