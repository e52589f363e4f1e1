"""Machine code that asks Python objects: right answers, errors that go through, nothing leaked."""

import sys
import weakref
from contextvars import ContextVar, copy_context

import pytest

from eagerflow.codegen.llvm import python_objects
from eagerflow.codegen.llvm.python_objects import NOTHING, Number, can_ask, question

pytestmark = pytest.mark.skipif(not can_ask(), reason="there is no machine code here")


class Thing:
    """What is asked: a plain attribute, a property, a method, and an error if told so."""

    error = None

    def __init__(self):
        self.x = 1.5

    @property
    def made(self):
        if self.error is not None:
            raise self.error
        return self.x

    def method(self):
        return self.x

    def __len__(self):
        return int(self.x)

    def __bool__(self):
        return self.x > 1


class Other(Thing):
    pass


CONTEXT = ContextVar("asked")
ONE, TWO = 12345.5, "two"


def of_thing(kind, key, was, change):
    def make():
        thing = Thing()
        return (kind, thing, key, was(thing)), lambda: change(thing)

    return make


def of_container(kind, make_one, key, was, change):
    def make():
        held = make_one()
        return (kind, held, key, was(held)), lambda: change(held)

    return make


def weak():
    thing = Thing()
    row = "weak", weakref.ref(thing), "x", thing.x
    return row, lambda: setattr(thing, "x", 2.5)


def context():
    CONTEXT.set(ONE)
    return ("context", CONTEXT, NOTHING, ONE), lambda: CONTEXT.set(TWO)


def to_2(thing):
    thing.x = 2.5


def to_0(thing):
    thing.x = 0.5


def listed():
    return [ONE, TWO]


def table():
    return {"a": ONE, TWO: 3}


ROWS = {
    "an attribute": of_thing("attribute", "x", lambda t: t.x, to_2),
    "an attribute that is deleted": of_thing(
        "attribute", "x", lambda t: t.x, lambda t: delattr(t, "x")
    ),
    "no attribute": of_thing("attribute", "y", lambda t: NOTHING, lambda t: setattr(t, "y", None)),
    "a property": of_thing("attribute", "made", lambda t: t.x, to_2),
    "a class": of_thing(
        "attribute", "__class__", lambda t: Thing, lambda t: setattr(t, "__class__", Other)
    ),
    "an item of a list": of_container(
        "item", listed, 1, lambda a: a[1], lambda a: a.__setitem__(1, ONE)
    ),
    "an item that goes": of_container("item", listed, 1, lambda a: a[1], list.pop),
    "an item of a dict": of_container(
        "dict_item", table, "a", lambda a: a["a"], lambda a: a.__setitem__("a", TWO)
    ),
    "an item of a dict that goes": of_container(
        "dict_item", table, "a", lambda a: a["a"], dict.clear
    ),
    "no item": of_container("dict_item", table, "b", lambda a: NOTHING, lambda a: a.update(b=None)),
    "a type": of_container("type_of_item", table, "a", lambda a: float, lambda a: a.update(a=TWO)),
    "a size": of_container("size", listed, NOTHING, lambda a: Number(2), list.clear),
    "a length in Python": of_thing("size", NOTHING, lambda t: Number(1), to_2),
    "elements of a list": of_container(
        "list", listed, Number(2), lambda a: [*a], lambda a: a.__setitem__(1, "tw" + "o" * len(a))
    ),
    "a shorter list": of_container("list", listed, Number(2), lambda a: [*a], list.pop),
    "keys": of_container("keys", table, Number(2), list, lambda a: a.update(b=a.pop("a"))),
    "fewer keys": of_container("keys", table, Number(2), list, lambda a: a.pop(TWO)),
    "more keys": of_container("keys", table, Number(2), list, lambda a: a.update(c=1)),
    "values": of_container(
        "values", table, Number(2), lambda a: [*a.values()], lambda a: a.update(a=TWO)
    ),
    "elements of a set": of_container(
        "elements", lambda: {ONE}, Number(1), list, lambda a: (a.clear(), a.add(TWO))
    ),
    "fewer elements": of_container("elements", lambda: {ONE, 2}, Number(2), list, set.pop),
    "an instance": of_thing(
        "instance", Other, lambda t: Number(0), lambda t: setattr(t, "__class__", Other)
    ),
    "a truth": of_thing("truth", NOTHING, lambda t: Number(1), to_0),
    "a method": of_thing(
        "equal", "method", lambda t: t.method, lambda t: setattr(t, "method", Other().method)
    ),
    "a method that goes": of_thing(
        "equal", "lost", lambda t: t.method, lambda t: setattr(t, "lost", 1)
    ),
    "a weak reference": weak,
    "a context": context,
    "what is contained": of_container(
        "contains", listed, TWO, lambda a: Number(1), lambda a: a.remove(TWO)
    ),
}


def differs(ask):
    try:
        return bool(ask())
    except (AttributeError, IndexError, KeyError):
        return True


def verdicts(name):
    """Whether a row differs before a change, and after it."""
    row, change = ROWS[name]()
    if name == "a method that goes":
        row[1].lost = row[1].method
    ask = question([row])
    before = differs(ask)
    change()
    return before, differs(ask)


def test_every_kind_is_asked():
    assert {make()[0][0] for make in ROWS.values()} == set(python_objects.KINDS)


@pytest.mark.parametrize("name", ROWS)
def test_a_change_is_seen(name):
    assert copy_context().run(verdicts, name) == (False, True)


def test_rows_in_any_place():
    made = [
        make() for name, make in ROWS.items() if name not in ("a context", "a method that goes")
    ]
    CONTEXT.set(ONE)
    ask = question([row for row, _ in made])
    assert ask() == 0
    made[-1][1]()
    assert ask() == 1
    assert question([])() == 0


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_leaked(name):
    row, change = ROWS[name]()
    ask = question([row])
    parts = [x for x in row[1:] if x is not NOTHING]
    counts = []
    for _ in range(2):
        for _ in range(100):
            differs(ask)
        counts.append([sys.getrefcount(x) for x in parts])
        differs(ask)
    assert counts[0] == counts[1]
    change()
    counts = []
    for _ in range(2):
        for _ in range(100):
            differs(ask)
        counts.append([sys.getrefcount(x) for x in parts])
    assert counts[0] == counts[1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_of_attribute_access_propagate(error):
    thing = Thing()
    ask = question([("attribute", thing, "made", thing.x), ("attribute", thing, "x", thing.x)])
    thing.error = error("mine")
    for _ in range(3):
        with pytest.raises(error, match="mine"):
            ask()
    thing.error = None
    assert ask() == 0


def test_guarded_object_lives_as_long_as_the_guard():
    thing = Thing()
    ask, gone = question([("attribute", thing, "x", thing.x)]), weakref.ref(thing)
    del thing
    assert gone() is not None
    assert ask() == 0
    del ask
    assert gone() is None


@pytest.mark.parametrize(
    "right", ["icmp eq ptr %found, %was", "icmp eq i64 %size_now, %number", "%same_item = icmp eq"]
)
def test_planted_blindness_is_found(monkeypatch, right):
    blind = right.replace("icmp eq", "icmp ne")
    assert right in python_objects.TEXT
    monkeypatch.setattr(python_objects, "TEXT", python_objects.TEXT.replace(right, blind))
    planted = python_objects.found_interface.__wrapped__()
    monkeypatch.setattr(python_objects, "found_interface", lambda: planted)
    found = [copy_context().run(verdicts, name) for name in ROWS]
    assert any(f != (False, True) for f in found)
