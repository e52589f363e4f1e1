"""The ledger notices every change of what a function read, and it never misses one."""

import importlib
import io
import itertools
import random
import threading
import time
import uuid
import zlib

import numpy as np
import pytest

from eagerflow.capture.guards.monitor import Monitor
from eagerflow.errors import CaptureError
from tests.capture.guards.changes import CHANGES, Thing
from tests.capture.guards.random_readers import change as random_change
from tests.capture.guards.random_readers import program

for _part in "arrays attributes containers functions loops names surroundings".split():
    importlib.import_module(f"tests.capture.guards.changes.{_part}")

# The function itself changes what it reads: noticed also without a change from outside.
BY_ITSELF = {"a_counter_of_the_function", "a_list_that_is_mutated_before_it_is_measured"}
INPUTS = {"the_value_of_a_variable"}  # another result, but nothing that Python code relies on


def watched(f, *args):
    """The ledger of a run."""
    with Monitor(f) as monitor:
        f(*args)
    return monitor.ledger()


def outcome(f, *args):
    try:
        return repr(f(*args))
    except Exception as error:
        return type(error).__name__


def verdict(name):
    """What became of a row: ``right``, or what is wrong with it."""
    expected, make = CHANGES[name]
    f, change = make()
    with Monitor(f) as monitor:
        before = outcome(f, 2.5)
    ledger = monitor.ledger()
    at_first = ledger.changed()
    try:
        change()
        guard, after = ledger.changed(), outcome(f, 2.5)
    finally:
        getattr(change, "undo", lambda: None)()
    if (at_first is not None) != (name in BY_ITSELF):
        return f"changed before anything did: {at_first and at_first.change()}"
    if after != before and guard is None and name not in INPUTS:
        return f"stale: {before} in place of {after}"
    if (after != before) != (expected == "notice") and name not in INPUTS | BY_ITSELF:
        return f"the row says {expected}, but the results are {before} and {after}"
    if (guard is not None) != (expected == "notice"):
        return f"to {expected}, and the guard is {guard and guard.change()}"
    return "right"


@pytest.mark.parametrize("name", CHANGES)
def test_change(name):
    assert verdict(name) == "right"


def test_table_is_large():
    counts = [expected for expected, _ in CHANGES.values()]
    print(f"{len(counts)} kinds of changes: {counts.count('notice')} to notice, the rest to ignore")
    assert counts.count("notice") >= 150
    assert counts.count("ignore") >= 20


# Planted faults: the checks can fail -------------------------------------------------------------


PLANTED = {
    "no globals": ("item", "a_global_number"),
    "no attributes": ("attribute", "an_attribute_of_self"),
    "no closures": ("cell", "a_closure_number"),
    "no contents": ("contents", "a_list_is_walked_over"),
    "no defaults": ("__defaults__", "a_default"),
    "no lengths": ("length", "a_list_gets_longer"),
    "no members": ("member", "the_call_of_an_object"),
}


@pytest.mark.parametrize("how", PLANTED)
def test_planted_blindness_gives_stale_results(how, monkeypatch):
    kind, name = PLANTED[how]
    add = Monitor.add

    def blind(self, what, label, reader, *rest):
        return True if reader == kind else add(self, what, label, reader, *rest)

    monkeypatch.setattr(Monitor, "add", blind)
    assert verdict(name).startswith("stale")


def test_planted_guards_about_everything_are_found(monkeypatch):
    own = Thing(other=1)
    add = Monitor.add

    def eager(self, *args):
        args_of_all = ("attribute", "other", "attribute", own, "other", own.other, ("", 1), True)
        add(self, *args_of_all)
        return add(self, *args)

    monkeypatch.setattr(Monitor, "add", eager)
    ledger = watched(lambda x: math_of(x), 1.0)
    own.other = 2
    assert ledger.changed().name == "other"


def math_of(x):
    return x + SHIFT


SHIFT = 1.0


# Random functions --------------------------------------------------------------------------------


def stale_programs(seeds):
    """Seeds of random functions whose change was missed; counts of what was seen."""
    missed, differ, noticed = [], 0, 0
    for seed in seeds:
        draw, made, text = program(seed)
        with Monitor(made.f) as monitor:
            before = outcome(made.f, 1)
        ledger = monitor.ledger()
        assert ledger.changed() is None, f"{seed}: {ledger.changed().change()}\n{text}"
        for _ in range(3):
            what = random_change(draw, made)
            guard, after = ledger.changed(), outcome(made.f, 1)
            differ += after != before
            noticed += guard is not None
            if after != before and guard is None:
                missed.append(f"{seed}: {what}: {before}, now {after}\n{text}")
            if after != before or guard is not None:
                break
    print(f"{differ} results differ, {noticed} changes are noticed")
    return missed, differ


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_random_functions_are_never_stale(part):
    missed, differ = stale_programs(range(250 * part, 250 * (part + 1)))
    assert missed == []
    assert differ > 50


@pytest.mark.soak
@pytest.mark.parametrize("part", range(25))
def test_many_random_functions_are_never_stale(part):
    first = 10_000 + part * 1_000
    missed, differ = stale_programs(range(first, first + 1_000))
    assert missed == []
    assert differ > 200


def test_planted_blindness_is_found_by_random_functions(monkeypatch):
    add = Monitor.add

    def blind(self, kind, name, access, *rest):
        return True if access == "contents" else add(self, kind, name, access, *rest)

    monkeypatch.setattr(Monitor, "add", blind)
    assert stale_programs(range(60))[0]


# Refusals ----------------------------------------------------------------------------------------


class ForeignArray:
    def __array__(self):
        return np.ones(2)


LARGE = np.zeros(200_000)
NUMBERS = iter([1, 2, 3])
RNG = np.random.default_rng(0)
PYTHON_RNG = random.Random(0)
FILE = io.StringIO("some text")
FOREIGN = ForeignArray()
OPAQUE = zlib.compressobj()
MANY = list(range(30_000))
COUNTER = itertools.count()

REFUSED = {
    "random.random": (lambda x: x * random.random(), "ef.random"),
    "random.choice": (lambda x: random.choice([x, 1]), "ef.random"),
    "np.random.normal": (lambda x: x * np.random.normal(), "ef.random"),
    "np.random.rand": (lambda x: x * np.random.rand(), "ef.random"),
    "a generator of random numbers": (lambda x: x * RNG.normal(), "ef.random"),
    "a Python generator of them": (lambda x: x * PYTHON_RNG.random(), "ef.random"),
    "a generator without a seed": (lambda x: np.random.default_rng().normal(), "ef.random"),
    "uuid4": (lambda x: str(uuid.uuid4()), "ef.random"),
    "an iterator by next": (lambda x: x * next(NUMBERS, 1), "list"),
    "an iterator by for": (lambda x: [x for _ in NUMBERS], "list"),
    "an iterator in a call": (lambda x: sum(NUMBERS), "list"),
    "an iterator without end": (lambda x: x * next(COUNTER), "list"),
    "a file": (lambda x: FILE.read(), "read it before"),
    "a large array": (lambda x: x * LARGE, "ef.tensor"),
    "a large array in a call": (lambda x: np.sum(LARGE), "ef.tensor"),
    "an array of another library": (lambda x: np.add(FOREIGN, x), "ef.tensor"),
    "an object without attributes": (lambda x: len(OPAQUE.compress(b"a")), "argument"),
    "a large list": (lambda x: sum(MANY), "argument"),
    "a large list by a loop": (lambda x: [n for n in MANY], "argument"),  # noqa: C416
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    f, hint = REFUSED[name]
    with pytest.raises(CaptureError) as caught, Monitor(f):
        f(1.0)
    error = caught.value
    assert hint in error.hint
    assert error.at.startswith(__file__)
    assert error.received
    line = f.__code__.co_firstlineno
    assert int(error.at.rpartition(":")[2]) in (line, line + 1)


def fresh_generator(x):
    rng = np.random.default_rng(3)
    return x * rng.normal() * random.Random(1).random()


def fresh_iterators(x):
    numbers = iter([1, 2])
    return x * next(numbers) + sum(n for n in range(3))


def fresh_large_array(x):
    return np.zeros(300_000)[0] + x


ACCEPTED = {
    "a generator made by the function": fresh_generator,
    "iterators made by the function": fresh_iterators,
    "a large array made by the function": fresh_large_array,
    "a file that is written": lambda x: FILE.write("") * 0 + x,
    "a lock": lambda x: x if LOCK.acquire(blocking=False) and LOCK.release() is None else 0,
    "a name of what is not used": lambda x: (RNG, LARGE, NUMBERS) and x,
    "the time": lambda x: x * (time.time() > 0),
    "a branch not taken": lambda x: next(NUMBERS) if x < 0 else x,
}
LOCK = threading.Lock()


@pytest.mark.parametrize("name", [n for n in ACCEPTED if n != "a name of what is not used"])
def test_accepted(name):
    if name == "a branch not taken":

        def f(x):
            if x < 0:
                return next(NUMBERS)
            return x

    else:
        f = ACCEPTED[name]
    assert watched(f, 1.0).changed() is None


def test_clocks_are_listed_and_not_compared():
    ledger = watched(ACCEPTED["the time"], 1.0)
    (guard,) = [guard for guard in ledger if guard.kind == "call"]
    assert guard.name == "time.time()"
    assert ledger.changed() is None


def test_the_error_of_the_function_goes_before_the_refusal():
    def f(x):
        random.random()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), Monitor(f):
        f(1.0)
