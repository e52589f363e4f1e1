"""Guards that machine code checks miss nothing, as those that Python checks."""

import pytest

import eagerflow as ef
from eagerflow.capture.guards import checks
from eagerflow.capture.guards import ledger as ledgers
from eagerflow.codegen.llvm.python_objects import NOTHING, Number, can_ask
from tests.capture.guards.changes import CHANGES, kinds
from tests.capture.guards.test_change_kinds import fate
from tests.capture.guards.test_ledger import stale_programs, verdict, watched

needs_code = pytest.mark.skipif(not can_ask(), reason="there is no machine code here")


@pytest.fixture
def code(monkeypatch):
    """Ledgers are checked by machine code from the first check on."""
    monkeypatch.setattr(ledgers, "CALLS_BEFORE_CODE", 0)
    monkeypatch.setattr(checks, "MIN_COMPARISONS", 0)


@pytest.fixture
def few_rows(monkeypatch):
    """Machine code takes over also where there are few rows."""
    monkeypatch.setattr(checks, "MIN_COMPARISONS", 0)


@needs_code
@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("part", range(4))
def test_changes(part):
    found = {name: verdict(name) for name in list(CHANGES)[part::4]}
    assert {name: f for name, f in found.items() if f != "right"} == {}


@pytest.mark.sampled(3)
@needs_code
@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("part", range(2))
def test_each_kind(part):
    found = {name: fate(name, row) for name, row in list(kinds.ROWS.items())[part::2]}
    assert {n: f for n, f in found.items() if f not in kinds.ROWS[n][3].split(" or ")} == {}


@needs_code
@pytest.mark.usefixtures("code")
def test_random_functions_are_never_stale():
    missed, differ = stale_programs(range(300_000, 300_250))
    assert missed == []
    assert differ > 50


@needs_code
@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    "kind, name", [("item", "a_global_number"), ("attribute", "an_attribute_of_self")]
)
def test_planted_blindness_is_found(monkeypatch, kind, name):
    blind = ("size", (), NOTHING, Number(0))
    monkeypatch.setitem(checks.ASKED, kind, lambda *row: blind)
    assert verdict(name).startswith("stale")


class Sensor:
    """An attribute, and one that code of the user's reads."""

    def __init__(self):
        self.scale, self.error = 2.0, None

    @property
    def rate(self):
        if self.error is not None:
            raise self.error
        return self.scale


@needs_code
@pytest.mark.parametrize("rows", [1, 100_000])
def test_code_takes_over(monkeypatch, rows):
    monkeypatch.setattr(checks, "MIN_COMPARISONS", rows)
    sensor = Sensor()
    found = watched(lambda x: x * sensor.scale + len(CHANGES), 1.0)
    count = lambda: len(found._checks)
    assert count() > 1
    for _ in range(checks.CALLS_BEFORE_CODE):
        assert found.changed() is None
    assert (count() == 1) == (rows == 1)
    assert found.changed() is None
    sensor.scale = 3.0
    assert found.changed().name == "sensor.scale"


def test_python_checks_where_there_is_no_code(monkeypatch):
    monkeypatch.setattr(checks, "can_ask", lambda: False)
    sensor = Sensor()
    found = watched(lambda x: x * sensor.scale, 1.0)
    for _ in range(checks.CALLS_BEFORE_CODE + 2):
        assert found.changed() is None
    sensor.scale = 3.0
    assert found.changed().name == "sensor.scale"


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("calls", [0, checks.CALLS_BEFORE_CODE + 1])
def test_unreadable_attribute_counts_as_changed(calls):
    sensor = Sensor()

    def same_rate(x):
        return x * 2 if sensor.rate is sensor.scale else x

    found = watched(same_rate, 1.0)
    for _ in range(calls):
        assert found.changed() is None
    sensor.error = ValueError("no rate")
    assert found.changed() is not None
    step = ef.function(same_rate)
    with pytest.raises(ValueError, match="no rate"):
        step(ef.tensor(1.0))


NUMBER = 3


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("calls", [0, checks.CALLS_BEFORE_CODE + 1])
def test_a_question_that_had_an_error_for_an_answer(calls, monkeypatch):
    def is_number(x):
        try:
            return x * isinstance(x, NUMBER)
        except TypeError:
            return x

    found = watched(is_number, 1.0)
    for _ in range(calls):
        assert found.changed() is None
    monkeypatch.setitem(globals(), "NUMBER", float)
    assert found.changed() is not None


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("calls", [0, checks.CALLS_BEFORE_CODE + 1])
def test_interrupt_in_a_guarded_read_propagates(calls):
    sensor = Sensor()
    step = ef.function(lambda x: x * sensor.rate)
    for _ in range(1 + calls):
        assert float(step(ef.tensor(1.0))) == 2.0
    sensor.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        step(ef.tensor(1.0))
    sensor.error = None
    assert float(step(ef.tensor(1.0))) == 2.0


def test_an_equality_that_gives_an_array_is_no_error(monkeypatch):
    """What compares is never a value's own ``==``; where it fails, the guard does not hold."""

    def failing(a, b):
        raise ValueError("the truth value of an array is ambiguous")

    settings = {"rate": 2.0}
    found = watched(lambda x: x * sum(settings.values()), 1.0)
    monkeypatch.setattr("eagerflow.capture.guards.ledger.same", failing)
    monkeypatch.setattr("eagerflow.capture.guards.snapshot.same", failing)
    settings["rate"] = 2.0 * len(settings)
    assert found.changed() is not None
