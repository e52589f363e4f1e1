"""Changes of classes, of defaults and of arguments: each is noticed, or the function is refused."""

import dataclasses
import types
from collections import Counter, OrderedDict, deque

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError
from tests.capture.guards.changes.kinds import PRELUDE

_PROPERTY = "class A:\n    @property\n    def r(self): return 1.0\nclass B(A): pass\nb = B()\n"
_SUPER = "class Z: pass\nclass A(Z): r = 1.0\nclass B(A):\n    r = 9.0\n    def m(self): "
_DESCRIPTOR = (
    "class D:\n    def __init__(self, v=1.0): self.v = v\n"
    "    def __get__(self, o, c): return self.v\n"
    "class A: r = D()\nb = A()\n"
)
_META = "class M(type):\n    @property\n    def r(cls): return 1.0\nclass N(M): pass\n"
_SGD = (
    "o = ef.nn.optimizers.SGD(0.5)\nv = ef.Variable([1.0])\ndef f(x):\n    v.assign([1.0])\n"
    "    with ef.GradientTape() as t: l = ef.sum(v * x)\n"
    "    o.apply(t.gradient(l, [v]), [v])\n    return v.value + 0\n"
)
READ = "def f(x): return x * b.r\n"
FLAG = "return x * 2 if o['r'] else x\n"
NOTICED = {
    # What a class finds under a name
    "a property, overridden": (_PROPERTY + READ, "B.r = property(lambda s: 3.0)"),
    "a property, hidden by a value": (_PROPERTY + READ, "B.r = 3.0"),
    "a property, deleted": (_PROPERTY + READ, "del A.r; A.r = 3.0"),
    "a property with getattr": (_PROPERTY + "def f(x): return x * getattr(b, 'r')",
                                "B.r = property(lambda s: 3.0)"),
    "a property of an argument": (_PROPERTY + "f = lambda x, b=b: x * b.r",
                                  "B.r = property(lambda s: 3.0)"),
    "a property in a pattern": (
        _PROPERTY + "def f(x):\n    match b:\n        case A(r=v): return x * v",
        "B.r = property(lambda s: 3.0)",
    ),
    "a property of a new object": (_PROPERTY + "def f(x):\n    own = B()\n    return x * own.r",
                                   "B.r = 4.0"),
    "a property around a function of another name": (
        "def get(s): return 1.0\nclass A: r = property(get)\nb = A()\n" + READ,
        "A.r = property(lambda s: 4.0)",
    ),
    "a property around a partial": (
        "class A:\n    def g(s, k): return k\n    r = property(functools.partial(g, k=1.0))\n"
        "b = A()\n" + READ,
        "A.r = property(lambda s: 3.0)",
    ),
    "PropertyMock": (
        "from unittest import mock\nclass A: pass\nb = A()\n"
        "p = A.r = mock.PropertyMock(return_value=1.0)\n" + READ,
        "A.r = property(lambda s: 3.0)",
    ),
    "a descriptor, replaced": (_DESCRIPTOR + READ, "A.r = D(3.0)"),
    "a descriptor, its state": (_DESCRIPTOR + READ, "vars(A)['r'].v = 3.0"),
    "a descriptor, hidden by the object": (_DESCRIPTOR + READ, "b.r = 5.0"),
    "a descriptor read from the class": (_DESCRIPTOR + "def f(x): return x * A.r", "A.r = D(3.0)"),
    "a metaclass's property": (_META + "class A(metaclass=N): pass\ndef f(x): return x * A.r",
                               "M.r = property(lambda c: 3.0)"),
    "a metaclass's property, overridden": (
        _META + "class A(metaclass=N): pass\ndef f(x): return x * A.r",
        "N.r = property(lambda c: 3.0)",
    ),
    "a metaclass's __getattr__": (
        "class M(type):\n    def __getattr__(c, n): return 1.0\nclass A(metaclass=M): pass\n"
        "def f(x): return x * A.r",
        "M.__getattr__ = lambda c, n: 3.0",
    ),
    "a metaclass's __call__": (
        "class M(type):\n    def __call__(c): return 1.0\nclass A(metaclass=M): pass\n"
        "def f(x): return x * A()",
        "M.__call__ = lambda c: 3.0",
    ),
    "__getattr__, then the class has it": (
        "class Z: pass\nclass A(Z):\n    def __getattr__(s, n): return 1.0\nb = A()\n" + READ,
        "Z.r = 4.0",
    ),
    "__getattr__ of a module": ("b = types.ModuleType('b')\nb.__getattr__ = lambda n: 1.0\n" + READ,
                                "b.__getattr__ = lambda n: 4.0"),
    "__call__, overridden": (
        "class A:\n    def __call__(s, x): return x\nclass B(A): pass\nf = B()",
        "B.__call__ = lambda s, x: x * 4.0",
    ),
    "__enter__, overridden": (
        "class A:\n    def __enter__(s): return 1.0\n    def __exit__(s, *a): pass\n"
        "class B(A): pass\nb = B()\ndef f(x):\n    with b as v: return x * v",
        "B.__enter__ = lambda s: 4.0",
    ),
    "super().attribute": (_SUPER + "return super().r\nb = B()\nf = lambda x: x * b.m()",
                          "A.r = 3.0"),
    "super().attribute of a new object": (_SUPER + "return super().r\nf = lambda x: x * B().m()",
                                          "A.r = 3.0"),
    "super() in a local": (
        _SUPER + "\n        s = super()\n        return s.r\nb = B()\nf = lambda x: x * b.m()",
        "A.r = 3.0",
    ),
    "getattr(super())": (_SUPER + "return getattr(super(), 'r')\nb = B()\nf = lambda x: x * b.m()",
                         "A.r = 3.0"),
    "hasattr(super())": (
        _SUPER + "return hasattr(super(), 'q')\nb = B()\nf = lambda x: x * 2 if b.m() else x",
        "Z.q = 3.0",
    ),
    "an inserted super().method": (
        "class Z:\n    def r(s): return 1.0\nclass A(Z): pass\nclass B(A):\n"
        "    def r(s): return super().r() * 2\nb = B()\ndef f(x): return x * b.r()",
        "A.r = lambda s: 3.0",
    ),
    "bases behind super()": (
        _SUPER + "return super().r\nclass Q: r = 3.0\nb = B()\nf = lambda x: x * b.m()",
        "B.__bases__ = (Q,)",
    ),
    "what __getattribute__ reads": (
        "class A:\n    v = 1.0\n    def __getattribute__(s, n):\n"
        "        return object.__getattribute__(s, 'v')\nb = A()\n" + READ,
        "b.v = 4.0",
    ),
    "what a metaclass's __getattribute__ reads": (
        "class M(type):\n    def __getattribute__(c, n):\n"
        "        return type.__getattribute__(c, 'v' if n == 'r' else n)\n"
        "class b(metaclass=M): v = 1.0\n" + READ,
        "b.v = 4.0",
    ),
    "what super().__getattribute__ reads": (
        "class A:\n    def __getattribute__(s, n):\n"
        "        return super().__getattribute__('v')\nb = A()\nb.v = 1.0\n" + READ,
        "b.v = 4.0",
    ),
    "the class behind a property": (_PROPERTY + "def f(x): return (lambda o: x * o.r)(b)",
                                    "b.__class__ = type('C', (A,), {'r': 4.0})"),
    "an attribute of an object that is made": (
        "class A:\n    def __init__(s, d): s.d = d\nb = Thing(r=1.0)\n"
        "def f(x): return x * A(b).d.r",
        "b.r = 4.0",
    ),
    "a dict that a cache gives": (
        "D = {'r': 1.0}\n@functools.lru_cache\ndef g(): return D\ndef f(x): return x * g()['r']",
        "D['r'] = 4.0",
    ),
    "a partial that gets another state": (
        "p = functools.partial(lambda a: a, a=1.0)\ndef f(x): return x * p()",
        "p.__setstate__((p.func, (), {'a': 4.0}, {}))",
    ),
    "the code of a function that a loop calls": (
        "L = [Thing(r=lambda: 1.0)]\ndef f(x): return [x * o.r() for o in L][0]",
        "L[0].r.__code__ = (lambda: 4.0).__code__",
    ),
    # Variables
    "a constraint that is read": (
        "v = ef.Variable([2.0])\ndef f(x): return x if v.constraint is None else x * 2",
        "v.constraint = lambda w: w",
    ),
    "a constraint that is called": (
        "v = ef.Variable([2.0])\nv.constraint = lambda w: w\ndef f(x): return v.constraint(x)",
        "v.constraint = lambda w: w * 3",
    ),
    "a constraint that the optimizer calls": (_SGD, "v.constraint = lambda w: ef.maximum(w, 0.0)"),
    "aggregation": (
        "v = ef.Variable([2.0])\ndef f(x): return x if v.aggregation == 'mean' else x * 2",
        "v.aggregation = 'sum'",
    ),
    "an attribute of a Variable's subclass": (
        "class V(ef.Variable): pass\nb = V([2.0])\nb.r = 1.0\n" + READ,
        "b.r = 4.0",
    ),
    "a method of a Variable's subclass": (
        "class V(ef.Variable):\n    def m(s): return 1.0\nv = V([2.0])\ndef f(x): return x * v.m()",
        "V.m = lambda s: 4.0",
    ),
    # Defaults
    "a default dict": ("def f(x, o={'r': True}): " + FLAG, "f.__defaults__[0]['r'] = False"),
    "an empty default": ("def f(x, o={}): return x * 2 if 'k' in o else x",
                         "f.__defaults__[0]['k'] = None"),
    "a default of a keyword": ("def f(x, *, o={'r': True}): " + FLAG,
                               "f.__kwdefaults__['o']['r'] = False"),
    "a default list of texts": ("def f(x, o=['a']): return x * 2 if 'b' in o else x",
                                "f.__defaults__[0].append('b')"),
    "a default in a tuple": ("def f(x, o=([True],)): return x * 2 if o[0][0] else x",
                             "f.__defaults__[0][0][0] = False"),
    "defaults of __call__": ("class A:\n    def __call__(s, x, o=1.0): return x * o\nf = A()",
                             "A.__call__.__defaults__ = (3.0,)"),
    "a list in a partial": ("L = [1.0]\nf = functools.partial(lambda o, x: x * o[0], L)",
                            "L[0] = 3.0"),
    "a dict in a partial": (
        "D = {'r': True}\ndef g(x, o): " + FLAG + "f = functools.partial(g, o=D)",
        "D['r'] = False",
    ),
    "keywords of a partial": ("f = functools.partial(lambda x, r: x * r, r=2.0)",
                              "f.keywords['r'] = 5.0"),
}  # fmt: skip


def made(source):
    module = types.ModuleType("made")
    exec(PRELUDE, vars(module))
    exec(compile(source, "made.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", NOTICED)
def test_a_change_is_noticed(name):
    source, change = NOTICED[name]
    module, x = made(source), ef.tensor([2.5])
    step = ef.function(module.f)
    before = module.f(x).numpy().tolist()
    assert [step(x).numpy().tolist() for _ in range(3)] == [before] * 3
    assert len(step.graphs) == 1
    exec(change, vars(module))
    wanted = module.f(x).numpy().tolist()
    assert wanted != before
    assert [step(x).numpy().tolist() for _ in range(2)] == [wanted] * 2


# What a function does to its arguments ------------------------------------------------------------


@dataclasses.dataclass
class Record:
    rate: float = 1.0
    count: int = 0
    log: list = dataclasses.field(default_factory=list)


def changing(text, result="x"):
    names = {}
    exec(compile(f"def f(x, a):\n    {text}\n    return {result}", "changing.py", "exec"), names)
    return names["f"]


CHANGES = {
    list: """a.append(1.0); a[0] = 5.0; a.pop(); a.clear(); a.reverse(); del a[0]; a += [1.0]
        a *= 2; a[:] = [9.0]; a.extend([x]); a.insert(0, x)""",
    dict: """a['k'] = 5.0; a.pop('r'); a.clear(); a.update(k=1); a.update(r=x); del a['r']
        a |= {'z': 1}; a.setdefault('q', []); a.popitem(); a['n']['z'] = 1; a['l'].append(1)""",
    OrderedDict: "a['k'] = 1; a.move_to_end('r')",
    Counter: "a.update('ab'); a['k'] += 1",
    deque: "a.append(1.0); a.rotate(1); a.popleft()",
    bytearray: "a.append(1)",
    Record: "a.count += 1; a.log.append(1); a.log += [2]; a.log.append(x); a.rate = x",
}
MAKE = {
    list: lambda: [3.0, 1.0, 2.0],
    dict: lambda: {"r": 1.0, "n": {}, "l": []},
    OrderedDict: lambda: OrderedDict(r=1.0, s=2.0),
    Counter: lambda: Counter("a"),
    deque: lambda: deque([1.0, 2.0, 3.0]),
    bytearray: lambda: bytearray(b"a"),
    Record: Record,
}
LINES = {cls: texts.replace("\n", ";").split(";") for cls, texts in CHANGES.items()}
ROWS = [(cls, text.strip()) for cls, texts in LINES.items() for text in texts]


@pytest.mark.parametrize(("cls", "text"), ROWS)
def test_changing_an_argument_is_refused(cls, text):
    step = ef.function(changing(text))
    with pytest.raises(CaptureError, match=r"change|outside"):
        step(ef.ones(2), MAKE[cls]())


def test_the_line_that_changes_an_argument_is_named():
    with pytest.raises(CaptureError, match=r"among its arguments\n  at: changing.py:2\n") as error:
        ef.function(changing("a.append(1.0)"))(ef.ones(2), [2.0])
    assert "list(values)" in str(error.value)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a = dict(a); a['k'] = 1", "x * len(a)"),
        ("a = {**a, 'k': 1}; a.pop('r')", "x * len(a)"),
        ("b = a.copy(); b.clear()", "x * len(a)"),
        ("a.setdefault('r', 7.0)", "x * a['r']"),
        ("a.update(a)", "x * a['r']"),
    ],
)
def test_copies_may_change(text, result):
    f = changing(text, result)
    step = ef.function(f)
    for _ in range(2):
        found, wanted = (g(ef.ones(2), {"r": 3.0}).numpy().tolist() for g in (step, f))
        assert found == wanted


def test_the_dict_of_keywords_may_change():
    def f(x, *rest, **more):
        scale = more.pop("scale")
        rest = [*rest, x]
        rest.append(scale)
        return x * scale * len(rest)

    assert ef.function(f)(ef.ones(1), ef.ones(1), scale=2.0).item() == 6.0


def test_an_attribute_that_the_function_sets_is_set_again():
    own = Record()

    @ef.function
    def step(x, own):
        own.rate = 5.0
        return x

    for rate in (1.0, 2.0, 3.0):
        own.rate = rate
        step(ef.ones(2), own)
        assert own.rate == 5.0
    step(ef.ones(2), own)
    assert len(step.graphs) == 1


DELETING = """del a.rate; delattr(a, 'rate'); vars(a).pop('rate'); a.__dict__.clear()
    object.__delattr__(a, 'rate'); a.__delattr__('rate')"""
SETTING = """a.rate = 5.0; setattr(a, 'rate', 5.0); vars(a)['rate'] = 5.0; vars(a).update(rate=5.0)
    object.__setattr__(a, 'rate', 5.0)"""


@pytest.mark.parametrize("text", [t.strip() for t in DELETING.replace("\n", ";").split(";")])
def test_deleting_an_attribute_of_an_argument_is_refused(text):
    with pytest.raises(CaptureError, match=r"deletes it(.|\n)*changing.py:[12]"):
        ef.function(changing(text))(ef.ones(2), Record(2.0))


def test_deleting_a_read_attribute_is_refused():
    with pytest.raises(CaptureError, match="deletes it"):
        ef.function(changing("y = x * a.rate; del a.rate", "y"))(ef.ones(2), Record(2.0))


@pytest.mark.parametrize("text", [t.strip() for t in SETTING.replace("\n", ";").split(";")])
def test_an_attribute_is_set_in_each_call(text):
    own, step = Record(), ef.function(changing(text))
    for rate in (1.0, 2.0, 3.0):
        own.rate = rate
        step(ef.ones(2), own)
        assert own.rate == 5.0


# Which arguments are one object -------------------------------------------------------------------

ASKING = {
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
    "operator.is_": made("f = lambda a, b: operator.is_(a, b)").f,
    "id": lambda a, b: id(a) == id(b),
    "any": lambda a, b: any(a is v for v in [b]),
    "in a helper": lambda a, b: (lambda c, d: c is d)(a, b),
}
KEYED = {
    "set": lambda a, b: len({a, b}),
    "dict": lambda a, b: len({a: 1, b: 2}),
    "set of ids": lambda a, b: len({id(v) for v in (a, b)}),
    "set comprehension": lambda a, b: len({v for v in (a, b)}),  # noqa: C416
    "dict comprehension": lambda a, b: len({v: 1 for v in (a, b)}),  # noqa: C420
    "set.add": made("def f(a, b):\n    s = set()\n    for v in (a, b): s.add(v)\n    return s").f,
    "dict.fromkeys": lambda a, b: dict.fromkeys((a, b)),
    "frozenset": lambda a, b: frozenset([a, b]),
    "dict of pairs": lambda a, b: dict(zip((a, b), (1, 2), strict=True)),
    "Counter": lambda a, b: Counter([a, b]),
    "hash": lambda a, b: hash(a) == hash(b),
    "lru_cache": made("g = functools.lru_cache(lambda v: 1)\ndef f(a, b): return g(a) + g(b)").f,
    "map": lambda a, b: len(set(map(id, [a, b]))),
    "one argument": lambda a, b: {a: 1},
}
DEFAULTS = {
    "a default": "def f(x, o=T): return x * (2.0 if o is T else 1.0)",
    "__defaults__": "def f(x, o=T): return x * (2.0 if f.__defaults__[0] is o else 1.0)",
    "a default list": "def f(x, o=[1.0]): return x * (2.0 if f.__defaults__[0] is o else 1.0)",
    "an attribute": "g = Thing(t=T)\ndef f(x, o=T): return x * (2.0 if g.t is o else 1.0)",
    "an array": "A = np.ones(1)\ndef f(x, o=A): return x * (2.0 if o is A else 1.0)",
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_identity_check_against_a_global_object_is_refused(name):
    module = made("T = ef.ones(1)\n" + DEFAULTS[name])
    with pytest.raises(CaptureError, match="one object"):
        ef.function(module.f)(ef.ones(1))


@pytest.mark.parametrize("name", [*ASKING, *KEYED])
def test_asking_which_tensors_are_one_is_refused(name):
    ask = {**ASKING, **KEYED}[name]
    one, other = ef.ones(2), ef.ones(2)
    for pair in ((one, other), (one, one), (np.ones(2), np.ones(2))):
        step = ef.function(lambda a, b: a * (2.0 if ask(a, b) else 1.0) + b)
        with pytest.raises(CaptureError, match="one object"):
            step(*pair)


@pytest.mark.parametrize("name", ASKING)
def test_asking_which_objects_are_one_is_answered(name):
    ask = ASKING[name]
    step = ef.function(lambda x, a, b: x * 2 if ask(a, b) else x)
    for make in (Record, lambda: ef.Variable([1.0])):
        one, other = make(), make()
        for a, b in ((one, one), (one, other), (one, one), (other, one)):
            assert step(ef.ones(1), a, b).item() == (2.0 if ask(a, b) else 1.0)


def test_lists_that_may_be_one():
    step = ef.function(lambda x, a, b: x * 2 if a is b else x)
    own = [1.0]
    for other in (own, [1.0]):
        with pytest.raises(CaptureError, match="one object"):
            step(ef.ones(1), own, other)


def test_comparing_with_none_or_itself():
    step = ef.function(lambda a, b=None: a * (1.0 if b is None else 2.0) * (3.0 if a is a else 1.0))
    assert step(ef.ones(1)).item() == 3.0
    assert step(ef.ones(1), ef.ones(1)).item() == 6.0
