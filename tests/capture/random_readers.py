"""Random functions that read from random objects, and random changes of these objects."""

import random

from tests.capture.changes import Thing, module

HELPERS = """
import functools, itertools, operator

def pick(value, key):
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list):
        return value[key]
    return getattr(value, key)

def parts(value):
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    return [getattr(value, name) for name in ("a", "b", "c")]

def total(value):
    if isinstance(value, (int, float)):
        return value
    result = 0
    for part in parts(value):
        result += total(part)
    return result

def walk(value):
    if isinstance(value, (int, float)):
        yield value
    else:
        for part in parts(value):
            yield from walk(part)

def same(value):
    return value

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
    inner = [tree(draw, depth - (draw.random() < 0.8)) if depth > 1 or draw.random() < 0.9
             else tree(draw, 0) for _ in range(3)]  # fmt: skip
    if depth == 1:
        inner = [tree(draw, 0) for _ in range(3)]
    if kind == "thing":
        return Thing(a=inner[0], b=inner[1], c=inner[2])
    return dict(zip("abc", inner, strict=True)) if kind == "dict" else inner


def step(draw, text, value):
    """One step further down: (text, value)."""
    if isinstance(value, Thing):
        key = draw.choice("abc")
        forms = ["{0}.{1}", "getattr({0}, '{1}')", "vars({0})['{1}']", "pick({0}, '{1}')",
                 "same({0}).{1}", "Reader({0}).held.{1}", "operator.attrgetter('{1}')({0})",
                 "({0} if X else None).{1}"]  # fmt: skip
        return draw.choice(forms).format(text, key), getattr(value, key)
    if isinstance(value, dict):
        key = draw.choice(list(value))
        forms = ["{0}['{1}']", "{0}.get('{1}')", "pick({0}, '{1}')", "dict({0})['{1}']",
                 "Reader({0})['{1}']", "{{**{0}}}['{1}']", "({0} or None)['{1}']",
                 "[v for k, v in {0}.items() if k == '{1}'][0]", "operator.itemgetter('{1}')({0})",
                 "list({0}.values())[list({0}).index('{1}')]"]  # fmt: skip
        return draw.choice(forms).format(text, key), value[key]
    key = draw.randrange(len(value))
    forms = ["{0}[{1}]", "{0}[{1}:][0]", "pick({0}, {1})", "list({0})[{1}]", "[*{0}][{1}]",
             "next(itertools.islice({0}, {1}, None))", "[x for x in {0}][{1}]",
             "Reader({0})[{1}]", "sorted({0}, key=lambda v: 0)[{1}]",
             "tuple(same({0}))[{1}]"]  # fmt: skip
    return draw.choice(forms).format(text, key), value[key]


def statement(draw, number, names):
    """Lines that read something and add it to the result."""
    name = draw.choice(list(names))
    text, value = name, names[name]
    for _ in range(draw.randint(0, 4)):
        if isinstance(value, int | float):
            break
        text, value = step(draw, text, value)
        if draw.random() < 0.3:
            local = f"v{number}_{len(names)}"
            names[local] = value
            line = f"    {local} = {text}"
            return [line, *statement(draw, number, {local: value})]
    if isinstance(value, int | float):
        forms = ["    r += {0}", "    r += {0} if X else 0", "    r += max({0}, 0)",
                 "    if {0}:\n        r += 1", "    r += sum([{0}])",
                 "    try:\n        r += {0}\n    finally:\n        r += 1"]  # fmt: skip
        return [draw.choice(forms).format(text)]
    forms = ["    r += total({0})", "    r += sum(walk({0}))", "    for p in parts({0}):\n"
             "        r += total(p)", "    for p in parts({0}): r += total(p)",
             "    r += sum(total(p) for p in parts({0}))", "    r += sum(map(total, parts({0})))",
             "    r += functools.reduce(lambda s, p: s + total(p), parts({0}), 0)",
             "    first, *_ = parts({0})\n    r += total(first)"]  # fmt: skip
    if isinstance(value, list | dict):
        forms += ["    r += len({0})", "    r += 3 in {0}", "    r += bool({0})"]
    return [draw.choice(forms).format(text)]


def program(seed):
    """A random function of one number, and the module with what it reads."""
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
        pairs = enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        found += [(value, key), *places(part)]
    return found


def change(draw, made):
    """Change something that ``f`` may or may not read; what was done, in words."""
    spots = [(vars(made), name) for name in ("A", "B", "C", "X")]
    for name in ("A", "B", "C"):
        spots += places(vars(made)[name])
    holder, key = draw.choice(spots)
    table = vars(holder) if isinstance(holder, Thing) else holder
    old = table[key]
    if isinstance(old, int | float):
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
