"""Monitors: what they restore, nest, mark and tell, next to what they notice."""

import array
import dis
import functools
import gc
import sys
import threading
import time
import types
import weakref

import pytest

import eagerflow as ef
from eagerflow.capture.guards import bytecode
from eagerflow.capture.guards.ledger import Guard, Ledger
from eagerflow.capture.guards.monitor import Monitor, current_monitor
from eagerflow.errors import CaptureError, EagerflowError
from tests.capture.guards.changes import Thing


def watched(f, *args):
    """The ledger of a run."""
    with Monitor(f) as monitor:
        f(*args)
    return monitor.ledger()


def scaled(x):
    return x * SCALE


SCALE = 1.0


# What the function changes itself ----------------------------------------------------------------


def test_a_counter_is_marked_each_time():
    own = Thing(count=0)

    def f(x):
        own.count += 1
        return x * own.count

    for _ in range(3):
        guard = watched(f, 1.0).changed()
        assert guard.name == "own.count"
        assert guard.changed_by_trace


def test_a_flag_that_is_set_once_is_stable_the_second_time():
    own = Thing(built=False)

    def f(x):
        if not own.built:
            own.built = True
            own.weights = [1.0, 2.0]
        return x * own.weights[0]

    first = watched(f, 1.0).changed()
    assert first.name == "own.built"
    assert first.changed_by_trace
    second = watched(f, 1.0)
    assert second.changed() is None
    own.weights[0] = 3.0
    assert second.changed().name == "own.weights[0]"


def test_attribute_written_before_read_has_no_guard():
    own = Thing()

    def f(x):
        own.cache = {}
        own.cache["a"] = x
        return own.cache["a"]

    ledger = watched(f, 1.0)
    assert not [guard for guard in ledger if "cache" in guard.name]


def test_a_store_that_fails_is_none():
    own = Thing(rate=0.1)

    def broken():
        raise ValueError

    def f(x):
        try:
            own.rate = broken()
        except ValueError:
            pass
        return x * own.rate

    ledger = watched(f, 1.0)
    own.rate = 0.2
    assert ledger.changed().name == "own.rate"


# Monitors inside monitors, threads, errors -------------------------------------------------------


def test_outer_monitor_includes_reads_of_the_inner_one():
    own = Thing(rate=0.1)

    def inner(x):
        return x * own.rate

    ledgers = []

    def outer(x):
        with Monitor(inner) as monitor:
            y = inner(x)
        ledgers.append(monitor.ledger())
        return y

    ledger = watched(outer, 1.0)
    own.rate = 0.2
    assert ledger.changed().name == "own.rate"
    assert ledgers[0].changed().name == "own.rate"
    assert current_monitor() is None


def test_internal_reads_can_be_added_as_guards():
    w = ef.Variable(1.0)

    def f(x):
        current_monitor().rely("w.trainable", w, "trainable")
        return x

    ledger = watched(f, 1.0)
    w.trainable = False
    assert ledger.changed().change() == "attribute w.trainable changed from True to False"


def test_everything_is_restored_after_an_error():
    before = sys.gettrace()

    def f(x):
        raise KeyError(x)

    for _ in range(2):
        with pytest.raises(KeyError), Monitor(f) as monitor:
            f(1.0)
        assert sys.gettrace() is before
        assert current_monitor() is None
        assert len(monitor.ledger()) > 0


def test_threads_do_not_see_each_other():
    results = {}
    barrier = threading.Barrier(2)

    def work(name):
        own = Thing(rate=0.1)

        def f(x):
            barrier.wait(timeout=20)
            y = x * own.rate
            barrier.wait(timeout=20)
            return y

        ledger = watched(f, 1.0)
        own.rate = 0.2
        results[name] = (ledger.changed().name, len(ledger))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1]
    assert results[0][0] == "own.rate"


def test_a_watch_is_used_once():
    monitor = Monitor(len)
    with pytest.raises(EagerflowError, match="after the Monitor has ended"):
        monitor.ledger()
    with monitor, pytest.raises(EagerflowError, match="entered already"):
        monitor.__enter__()


def test_nothing_that_the_trace_made_is_kept():
    made = []

    def f(x):
        thing = Thing(rate=x, rows=[x])
        made.append(weakref.ref(thing))
        for row in thing.rows:
            x = x + row * thing.rate
        return x

    ledger = watched(f, 1.0)
    gc.collect()
    assert made[0]() is None
    assert not [guard for guard in ledger if "rate" in guard.name]


# Other trace functions ---------------------------------------------------------------------------

needs_settrace = pytest.mark.skipif(
    hasattr(sys, "monitoring"), reason="this Python watches by sys.monitoring, apart from settrace"
)


@pytest.fixture
def no_trace():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


@needs_settrace
def test_a_trace_function_keeps_its_events(no_trace):
    own = Thing(rate=0.1)

    def f(x):
        y = x * own.rate
        return y

    def events_of(run):
        seen = []

        def hook(frame, event, arg):
            if frame.f_code is f.__code__:
                seen.append((event, frame.f_lineno))
            return hook

        sys.settrace(hook)
        run()
        assert sys.gettrace() is hook
        sys.settrace(None)
        return seen

    ledgers = []
    alone = events_of(lambda: f(1.0))
    both = events_of(lambda: ledgers.append(watched(f, 1.0)))
    assert both == alone
    assert len(alone) == 4
    own.rate = 0.2
    assert ledgers[0].changed().name == "own.rate"


@needs_settrace
def test_a_trace_function_that_installs_itself_is_outlived(no_trace):
    own = Thing(rate=0.1)

    def f(x):
        return helper(x)

    def helper(x):
        return x * own.rate

    def hook(frame, event, arg):  # as trace functions in C do when they are called
        sys.settrace(hook)
        return None

    sys.settrace(hook)
    ledger = watched(f, 1.0)
    assert sys.gettrace() is hook
    sys.settrace(None)
    own.rate = 0.2
    assert ledger.changed().name == "own.rate"


@needs_settrace
def test_a_debugger_that_takes_over_makes_the_ledger_void(no_trace):
    def debugger(frame, event, arg):
        return None

    def f(x):
        vars(sys)["".join(("set", "trace"))](debugger)
        return x

    ledger = watched(f, 1.0)
    assert sys.gettrace() is debugger
    sys.settrace(None)
    assert ledger.changed().kind == "watch"


@needs_settrace
def test_a_trace_function_that_wants_no_lines_hides_none(no_trace):
    own, lines = Thing(rate=0.1), []

    def f(x):
        y = x
        y = y * own.rate
        return y

    def hook(frame, event, arg):
        if frame.f_code is f.__code__:
            frame.f_trace_lines = False
            lines.append(event)
        return hook

    sys.settrace(hook)
    ledger = watched(f, 1.0)
    assert sys.gettrace() is hook
    sys.settrace(None)
    assert lines == ["call", "return"]
    own.rate = 0.2
    assert ledger.changed().name == "own.rate"


@needs_settrace
@pytest.mark.parametrize("when", ["call", "line", "return"])
def test_a_trace_function_that_ends_itself_is_gone(no_trace, when):
    own = Thing(rate=0.1)

    def f(x):
        y = x
        return helper(y)

    def helper(x):
        y = x
        return y * own.rate

    def hook(frame, event, arg):
        if event == when and frame.f_code is f.__code__:
            sys.settrace(None)
            return None
        return hook

    sys.settrace(hook)
    ledger = watched(f, 1.0)
    assert sys.gettrace() is None
    own.rate = 0.2
    assert ledger.changed().name == "own.rate"


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="settrace and sys.monitoring are apart")
@pytest.mark.parametrize(
    "how",
    [
        lambda: sys.settrace(None),
        lambda: list(map(sys.settrace, [None])),
        lambda: functools.partial(sys.settrace, None)(),
    ],
)
def test_ending_the_trace_inside_is_refused(no_trace, how):
    own = Thing(rate=0.1)

    def f(x):
        before = sys.gettrace()
        how()
        y = x * own.rate
        sys.settrace(before)
        return y

    with pytest.raises(CaptureError, match="while another function traces"):
        watched(f, 1.0)


# Guards and ledgers ------------------------------------------------------------------------------


def test_change_is_reported():
    settings = {"rates": [0.1, 0.2], "name": "a"}

    def f(x):
        for rate in settings["rates"]:
            x = x * rate
        return x, settings["name"]

    ledger = watched(f, 1.0)
    settings["rates"][1] = 0.3
    place = f"({__file__}:{f.__code__.co_firstlineno + 1})"
    told = ledger.changed().change()
    assert told == f"contents settings['rates'][1] changed from 0.2 to 0.3 {place}"
    settings["rates"][1] = 0.2
    assert ledger.changed() is None
    settings["rates"].append(1)
    assert "the length of settings['rates'] changed from 2 to 3" in ledger.changed().change()


def test_the_table():
    text = str(watched(scaled, 1.0))
    head, *rows = text.splitlines()
    assert head.split() == ["kind", "name", "value", "read", "at"]
    (row,) = [row for row in rows if row.split()[1] == "SCALE"]
    assert row.split()[0] == "global"
    assert row.endswith(f"{__file__}:{scaled.__code__.co_firstlineno + 1}")
    assert "1.0" in row


def test_an_equal_value_is_remembered_for_the_next_check(monkeypatch):
    made = types.ModuleType("made")
    exec("RATE = 1000.5\ndef f(x): return x * RATE", vars(made))
    ledger = watched(made.f, 1.0)
    made.RATE = float("1000.5")
    assert ledger.changed() is None
    monkeypatch.setattr(Ledger, "search", lambda self: pytest.fail("it searches again"))
    assert ledger.changed() is None


def test_a_check_that_raises_is_a_change():
    class Model:
        rate = 0.1

    model = Model()
    ledger = watched(lambda x: x * model.rate, 1.0)

    def broken(self):
        raise RuntimeError("mine")

    Model.rate = property(broken)
    assert ledger.changed().name == "model.rate"


def test_a_list_that_holds_itself():
    rows = [1]
    rows.append(rows)
    ledger = watched(lambda x: len(str(rows)), 1.0)
    assert ledger.changed() is None
    rows[0] = 2
    assert ledger.changed() is not None


def test_bytes_and_typed_arrays():
    numbers = array.array("d", [1.0, 2.0])
    ledger = watched(lambda x: x * numbers[0], 1.0)
    assert ledger.changed() is None
    numbers[0] = 3.0
    assert ledger.changed() is not None


def test_all_instructions_are_known():
    known = {
        *bytecode.EFFECTS,
        *bytecode.HANDLERS,
        # of the compiler and of the machine itself, never in the code of a function
        "SETUP_FINALLY",
        "SETUP_CLEANUP",
        "SETUP_WITH",
        "POP_BLOCK",
        "JUMP",
        "JUMP_NO_INTERRUPT",
        "RESERVED",
        "ENTER_EXECUTOR",
    }
    present = {name for name in dis.opmap if not name.startswith("INSTRUMENTED")}
    assert present - known == set()


def test_an_instruction_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.delitem(bytecode.HANDLERS, "LOAD_GLOBAL")
    made = types.ModuleType("made")
    exec("def f(x): return len([x])", vars(made))
    with pytest.raises(CaptureError, match="LOAD_GLOBAL"), Monitor(made.f):
        made.f(1.0)


def test_a_guard_shows_itself():
    guard = Guard("global", "RATE", "item", {"RATE": 0.1}, "RATE", 0.1)
    assert repr(guard) == "<Guard global RATE: 0.1>"
    assert repr(Ledger([guard])) == "<Ledger of 1 guards>"
    assert len(Ledger([guard])) == 1


# Cost: printed, not judged -----------------------------------------------------------------------


def timed(f, count):
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for _ in range(count):
            f()
        best = min(best, time.thread_time() - start)
    return best / count * 1e6


def test_cost_is_printed():
    things = [Thing(rate=0.1, table={"a": 1.0}) for _ in range(10)]

    def f(x):
        for thing in things:
            x = x * thing.rate + thing.table["a"]
        return x

    ledger = watched(f, 1.0)
    assert len(ledger) >= 30
    check = timed(ledger.changed, 200)
    print(f"a check of {len(ledger)} guards takes {check:.2f} us")

    def ops(x):
        for _ in range(100):
            x = ef.tanh(x + x)
        return x

    ones = ef.ones((2,))
    plain = timed(functools.partial(ops, ones), 1) / 200
    seen = timed(functools.partial(watched, ops, ones), 1) / 200
    print(f"an op takes {plain:.2f} us, and {seen:.2f} us while it is watched")
