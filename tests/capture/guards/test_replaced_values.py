"""Programs that put one object after another into the same place, and read from it there.

Each object that is read has to be watched, also where the line that reads it has run before.
"""

import collections
import itertools
import operator
import textwrap

import pytest

import eagerflow as ef
from eagerflow.capture.guards.monitor import Monitor
from eagerflow.errors import CaptureError


class Part:
    """An object with a number."""


class Box:
    """Holds an object, which is read through a property and set by a method."""

    @property
    def held(self):
        return self.part

    def put(self, part):
        self.part = part


# Where the object is: how that is prepared, how ``o`` is put there, how it is read.
PLACES = {
    "attribute": ("", "box.part = o", "box.part"),
    "property": ("", "box.part = o", "box.held"),
    "method": ("", "box.put(o)", "box.part"),
    "own object": ("own = Box()", "own.part = o", "own.part"),
    "setattr": ("own = Box()", "setattr(own, 'part', o)", "own.part"),
    "vars": ("own = Box()", "vars(own)['part'] = o", "own.part"),
    "item": ("", "store['k'] = o", "store['k']"),
    "global": ("global current", "current = o", "current"),
    "globals": ("", "globals()['current'] = o", "current"),
    "closure": ("c = None\ndef put(o):\n    nonlocal c\n    c = o", "put(o)", "c"),
    "own dict": ("d = {}", "d['k'] = o", "d['k']"),
    "update": ("d = {}", "d.update(k=o)", "d['k']"),
    "setdefault": ("d = {}", "d.clear(); d.setdefault('k', o)", "d['k']"),
    "or": ("d = {}", "d |= {'k': o}", "d['k']"),
    "nested": ("d = {}", "d['p'] = {'q': o}", "d['p']['q']"),
    "own list": ("s = [None]", "s[0] = o", "s[0]"),
    "append": ("s = []", "s.append(o)", "s[-1]"),
    "insert": ("s = []", "s.insert(0, o)", "s[0]"),
    "extend": ("s = []", "s.extend([o])", "s[-1]"),
    "add": ("s = []", "s += [o]", "s[-1]"),
    "slice": ("s = []", "s[:] = [o]", "s[0]"),
    "pop": ("s = [None, *objects]", "s.pop(0)", "s[0]"),
    "delete": ("s = [None, *objects]", "del s[0]", "s[0]"),
    "reverse": ("s = [*objects]", "s.reverse() if o is objects[1] else None", "s[0]"),
    "rotate": ("s = collections.deque(objects[::-1])", "s.rotate(1)", "s[0]"),
    "setitem": ("s = [None]", "operator.setitem(s, 0, o)", "s[0]"),
    "tuple": ("s = ()", "s += (o,)", "s[-1]"),
    "popped": ("s = [*objects]", "pass", "s.pop(0)"),
    "iter": ("s = iter(objects)", "pass", "next(s)"),
    "zip": ("s = zip(objects, 'ab')", "pass", "next(s)[0]"),
    "map": ("s = map(lambda o: o, objects)", "pass", "next(s)"),
    "chain": ("s = itertools.chain(objects[:1], objects[1:])", "pass", "next(s)"),
    "generator": ("s = (o for o in objects)", "pass", "next(s)"),
    "send": ("s = (o for o in objects)", "pass", "s.send(None)"),
    "iterator": ("s = iter(objects)", "pass", "s.__next__()"),
}
READS = {
    "attribute": "{}.number",
    "getattr": "getattr({}, 'number')",
    "function": "number_of({})",
    "comprehension": "[{}.number for _ in 'a'][0]",
    "inner": "inner()",
}
FORMS = {
    "loop": "for o in objects:\n    {put}\n    x = x * {read}",
    "one line": "for o in objects: {put}; x = x * {read}",
    "one after another": "\n".join(
        f"o = objects[{i}]\n{{put}}\nx = x * {{read}}" for i in range(2)
    ),
    "while": "i = 0\nwhile i < 2:\n    o = objects[i]\n    {put}\n    x = x * {read}\n    i += 1",
}


def program(place, read, form):
    """The function, with all that it reads, and the objects."""
    before, put, where = PLACES[place]
    read = READS[read].format(where)
    if read == "inner()":
        before += f"\ndef inner():\n    return {where}.number"
    body = f"{before}\n{FORMS[form].format(put=put, read=read)}\nreturn x"
    text = (
        "def number_of(part):\n    return part.number\n"
        f"def function(x):\n{textwrap.indent(body, '    ')}\n"
    )
    objects = [Part(), Part()]
    names = {"objects": objects, "box": Box(), "store": {"k": None}, "current": None, "Box": Box}
    names |= {"collections": collections, "itertools": itertools, "operator": operator}
    exec(text, names)
    return names["function"], objects, text


def stale(place, read, form):
    """The program's text, if captured it is wrong after a number has changed."""
    function, objects, text = program(place, read, form)
    captured = ef.function(function)
    for numbers in ((2.0, 3.0), (2.0, 10.0), (5.0, 10.0)):
        for part, number in zip(objects, numbers, strict=True):
            part.number = number
        try:
            found = float(captured(ef.tensor(1.0)))
        except CaptureError:  # it changes what it reads, and is refused
            return ""
        if found != numbers[0] * numbers[1]:
            return f"{found} for {numbers}:\n{text}"
    return ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("read", READS)
def test_each_object_in_a_place_is_watched(read, form):
    found = [stale(place, read, form) for place in PLACES]
    assert not any(found), "\n".join(found)


def test_lines_that_are_not_evaluated_again_are_found(monkeypatch):
    monkeypatch.setattr(Monitor, "_count", lambda monitor, changes: None)
    found = [place for place in PLACES if stale(place, "attribute", "loop")]
    assert {"attribute", "own list", "pop", "nested"} <= {*found}


def test_few_programs_are_refused():
    refused = 0
    for place in PLACES:
        function, objects, _ = program(place, "attribute", "loop")
        for part in objects:
            part.number = 1.0
        try:
            ef.function(function)(ef.tensor(1.0))
        except CaptureError:
            refused += 1
    assert refused < len(PLACES) / 4


@pytest.mark.parametrize("read", ["next(s)", "s.__next__()", "s.send(None)", "[*s][0]"])
def test_iterators_from_outside_are_refused(read):
    names = {"s": (x for x in [1.0, 2.0])}
    exec(f"def function(x):\n    return x * {read}\n", names)
    with pytest.raises(CaptureError, match="used up by the first call"):
        ef.function(names["function"])(ef.tensor(1.0))


def test_an_object_that_is_replaced_between_two_calls_of_a_line_is_watched():
    box, parts = Box(), [Part(), Part()]

    box.part = parts[0]

    def times(x):
        return x * box.part.number

    @ef.function
    def product(x):
        x = times(x); box.part = parts[1]; x = times(x); box.part = parts[0]  # fmt: skip # noqa: E702
        return x

    for numbers in ((2.0, 3.0), (2.0, 10.0), (5.0, 10.0)):
        for part, number in zip(parts, numbers, strict=True):
            part.number = number
        assert product(ef.tensor(1.0)).numpy() == numbers[0] * numbers[1]


class Chain:
    """A list whose elements lead to each other."""

    def __init__(self, number, rest=None):
        self.number, self.rest = number, rest


def test_a_chain_of_objects_is_watched():
    box, chain = Box(), Chain(2.0, Chain(3.0, Chain(4.0)))

    @ef.function
    def product(x):
        box.part = chain
        while box.part is not None:
            x = x * box.part.number
            box.part = box.part.rest
        return x

    assert product(ef.tensor(1.0)).numpy() == 24
    chain.rest.rest.number = 5.0
    assert product(ef.tensor(1.0)).numpy() == 30
    chain.rest.rest.rest = Chain(2.0)
    assert product(ef.tensor(1.0)).numpy() == 60
