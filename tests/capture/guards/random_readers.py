"""Random functions that read from random objects, and random changes of these objects."""

import collections
import random

import numpy as np

from tests.capture.guards.changes import Thing, module

HELPERS = """
import collections.abc, copy, functools, itertools, operator, weakref
import numpy as np

def pick(value, key):
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list):
        return value[key]
    return getattr(value, key)

def parts(value):
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, collections.deque, np.ndarray)):
        return value
    return [getattr(value, name) for name in ("a", "b", "c")]

def total(value):
    if isinstance(value, (int, float, np.generic)):
        return value
    result = 0
    for part in parts(value):
        result += total(part)
    return result

def walk(value):
    if isinstance(value, (int, float, np.generic)):
        yield value
    else:
        for part in parts(value):
            yield from walk(part)

def same(value):
    return value

def last(*values, **named):
    return total([*values, *named.values()][-1])

@functools.lru_cache(maxsize=None)
def cached(value):
    return value * 2

@functools.singledispatch
def kind(value):
    return 1

@kind.register
def _(value: dict):
    return 2

class Reader:
    def __init__(self, value):
        self.value = value

    @property
    def held(self):
        return self.value

    def __getitem__(self, key):
        return pick(self.value, key)
"""


def tree(draw, depth):
    """A random nest of objects, dicts and lists with numbers at its ends."""
    kind = draw.choice(["thing", "dict", "list"] if depth else ["number"])
    if kind == "number":
        return draw.choice([draw.randint(0, 9), draw.random(), True])
    inner = [
        tree(draw, depth - (draw.random() < 0.8))
        if depth > 1 or draw.random() < 0.9
        else tree(draw, 0)
        for _ in range(3)
    ]
    if depth == 1:
        inner = [tree(draw, 0) for _ in range(3)]
        if draw.random() < 0.3:  # a container of numbers only
            return draw.choice([set, collections.deque, np.array, tuple])(inner)
    if kind == "thing":
        return Thing(a=inner[0], b=inner[1], c=inner[2])
    return dict(zip("abc", inner, strict=True)) if kind == "dict" else inner


# How a number may be read: {0} is its text.
NUMBERS = [
    "    r += {0}",
    "    r += {0} if X else 0",
    "    r += max({0}, 0)",
    "    if {0}:\n        r += 1",
    "    r += sum([{0}])",
    "    try:\n        r += {0}\n    finally:\n        r += 1",
    "    r += cached({0})",
    "    r += len(str({0}))",
    "    r += last(*[{0}])",
    "    r += isinstance({0}, float)",
    "    r += len(repr([{0}]))",
    "    r += {0} is True",
    "    r += type({0}).__name__ == 'bool'",
    "    r += len('%s' % ({0},))",
]


def listed(text):
    """What stands between bars and ends of lines."""
    return text.strip().replace("\n", " | ").split(" | ")


# How one step down may be written: {0} is the text so far, {1} the key.
ATTRIBUTES = listed(
    """
{0}.{1} | getattr({0}, '{1}') | vars({0})['{1}'] | pick({0}, '{1}') | same({0}).{1}
Reader({0}).held.{1} | operator.attrgetter('{1}')({0}) | ({0} if X else None).{1}
getattr(*[{0}, '{1}']) | copy.copy({0}).{1} | weakref.ref({0})().{1}
functools.reduce(getattr, ['{1}'], {0}) | functools.partial(getattr, {0})('{1}')
object.__getattribute__({0}, '{1}') | copy.deepcopy([{0}])[0].{1}
"""
)
ITEMS = listed(
    """
{0}['{1}'] | {0}.get('{1}') | pick({0}, '{1}') | dict({0})['{1}'] | Reader({0})['{1}']
{{**{0}}}['{1}'] | ({0} or None)['{1}'] | [v for k, v in {0}.items() if k == '{1}'][0]
operator.itemgetter('{1}')({0}) | list({0}.values())[list({0}).index('{1}')] | dict(**{0})['{1}']
next(v for k, v in {0}.items() if k == '{1}') | ({0}|{{}})['{1}']
collections.ChainMap({{}}, {0})['{1}'] | copy.copy({0})['{1}']
"""
)
ELEMENTS = listed(
    """
{0}[{1}] | {0}[{1}:][0] | pick({0}, {1}) | list({0})[{1}] | [*{0}][{1}]
next(itertools.islice({0}, {1}, None)) | [x for x in {0}][{1}] | Reader({0})[{1}]
sorted({0}, key=lambda v: 0)[{1}] | tuple(same({0}))[{1}] | (lambda *a: a)(*{0})[{1}]
operator.getitem({0}, {1}) | list(map(same, {0}))[{1}] | collections.deque({0})[{1}]
copy.copy({0})[{1}] | list(zip({0}, {0}))[{1}][1] | next(v for i, v in enumerate({0}) if i == {1})
"""
)


def step(draw, text, value):
    """One step further down: (text, value)."""
    if isinstance(value, Thing):
        key = draw.choice("abc")
        return draw.choice(ATTRIBUTES).format(text, key), getattr(value, key)
    if isinstance(value, dict):
        key = draw.choice(list(value))
        return draw.choice(ITEMS).format(text, key), value[key]
    key = draw.randrange(len(value))
    return draw.choice(ELEMENTS).format(text, key), value[key]


def statement(draw, number, names):
    """Lines that read something and add it to the result."""
    name = draw.choice(list(names))
    text, value = name, names[name]
    for _ in range(draw.randint(0, 4)):
        if not isinstance(value, Thing | dict | list) or not value:
            break
        text, value = step(draw, text, value)
        if draw.random() < 0.3:
            local = f"v{number}_{len(names)}"
            names[local] = value
            line = f"    {local} = {text}"
            return [line, *statement(draw, number, {local: value})]
    if isinstance(value, int | float):
        return [draw.choice(NUMBERS).format(text)]
    return [draw.choice(nest_forms(value)).format(text)]


def nest_forms(value):
    """How a nest may be read: {0} is its text."""
    forms = [
        "    r += total({0})",
        "    r += sum(walk({0}))",
        "    for p in parts({0}):\n        r += total(p)",
        "    for p in parts({0}): r += total(p)",
        "    r += sum(total(p) for p in parts({0}))",
        "    r += sum(map(total, parts({0})))",
        "    r += functools.reduce(lambda s, p: s + total(p), parts({0}), 0)",
        "    first, *_ = parts({0})\n    r += total(first)",
    ]
    if isinstance(value, list | dict | set | tuple | collections.deque):
        forms += [
            "    r += last(*{0}, 0)",
            "    r += len([*{0}])",
            "    r += kind({0})",
            "    r += sum(map(last, {0})) if isinstance({0}, list) else 0",
            "    r += isinstance({0}, collections.abc.Sequence)",
            "    r += len(copy.deepcopy({0}))",
            "    r += len(list(map(repr, {0})))",
            "    r += len(max(map(str, {0}), key=len, default=''))",
        ]
    if isinstance(value, set | tuple | collections.deque | np.ndarray):
        forms += [
            "    r += len(str({0}))",
            "    r += sum({0})",
            "    r += sorted({0})[0]",
            "    r += functools.reduce(operator.add, {0})",
            "    r += max({0}, key=abs)",
            "    r += max(*{0}, 0)",
            "    r += min({0}, default=0) if len({0}) else 0",
        ]
    if isinstance(value, list | dict):
        forms += ["    r += len({0})", "    r += 3 in {0}", "    r += bool({0})"]
    return forms


def program(seed):
    """A random function of one number, and the module with the values it reads."""
    draw = random.Random(seed)
    roots = {name: tree(draw, 2) for name in ("A", "B", "C")} | {"X": 1}
    lines = ["def f(x):", "    r = x"]
    names = {name: value for name, value in roots.items() if name != "X"}
    for number in range(draw.randint(1, 4)):
        lines += statement(draw, number, names if draw.random() < 0.5 else dict(names))
    made = module("\n".join([HELPERS, *lines, "    return r"]), **roots)
    return draw, made, "\n".join(lines)


def places(value):
    """All (holder, key) pairs below a value."""
    found = []
    if isinstance(value, Thing):
        pairs = vars(value).items()
    elif isinstance(value, dict):
        pairs = value.items()
    else:
        pairs = enumerate(value) if isinstance(value, list | collections.deque | np.ndarray) else ()
    for key, part in pairs:
        found += [(value, key), *places(part)]
    return found


def change(draw, made):
    """Change a value that ``f`` may or may not read; returns a description."""
    spots = [(vars(made), name) for name in ("A", "B", "C", "X")]
    for name in ("A", "B", "C"):
        spots += places(vars(made)[name])
    holder, key = draw.choice(spots)
    table = vars(holder) if isinstance(holder, Thing) else holder
    old = table[key]
    if isinstance(holder, np.ndarray):
        new = draw.choice([old + 1, old * 0])
    elif isinstance(old, set | collections.deque) and draw.random() < 0.7:
        draw.choice(
            [
                old.clear,
                lambda: old and old.pop(),
                lambda: old.extend([5]) if isinstance(old, collections.deque) else old.add(0.25),
            ]
        )()
        return f"{key}: it changes"
    elif isinstance(old, int | float):
        new = draw.choice([old + 1, 0, float(old), tree(draw, 0)])
    elif isinstance(old, list) and draw.random() < 0.5:
        draw.choice([old.reverse, lambda: old.append(5), lambda: old.pop(0)])()
        return f"{key}: the list changes"
    elif isinstance(old, dict) and draw.random() < 0.5:
        draw.choice([lambda: old.update(d=5), lambda: old.update(a=old.pop("a", 0)), old.clear])()
        return f"{key}: the dict changes"
    else:
        new = tree(draw, draw.choice([0, 1]))
    table[key] = new
    return f"{key}: {old!r} -> {new!r}"
