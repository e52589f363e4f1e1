"""Kinds of changes as rows of texts: what is set up, what a function returns, and what changes.

Each row becomes a module of its own with ``def f(x): return READ``. A last column tells what is
expected where the change is not just noticed: ``refused``, or ``told`` and the name that
``explain`` and ``ledger`` show as not watched.
"""

import itertools

from tests.capture.changes import module

ROWS = {}


def rows(group, *given):
    for number, given_row in enumerate(given):
        setup, read, change, *expected = given_row
        ROWS[f"{group} {number}: {read.strip().splitlines()[0]}"] = (
            setup, read, change, expected[0] if expected else "right",
        )  # fmt: skip


PRELUDE = """
import abc, array, asyncio, bisect, builtins, collections, concurrent.futures, contextlib
import contextvars, copy, copyreg, ctypes, dataclasses, datetime, decimal, enum, fractions
import functools, gc, heapq, importlib, inspect, ipaddress, itertools, json, locale, logging
import math, numbers, operator, os, pathlib, pickle, pprint, queue, random, re, statistics, string
import struct, sys, textwrap, threading, time, types, typing, uuid, warnings, weakref, zoneinfo
import numpy as np
import eagerflow as ef

class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)

def rate_of(*values):
    return values[-1].rate if hasattr(values[-1], "rate") else sum(values)

def last(*values, **named):
    return [*values, *named.values()][-1]

def fake(name, **names):
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made
    return made
"""


def built(row, argument=False):
    """The module of a row, its function, and what changes something."""
    setup, read, change, _ = row
    body = read if "return" in read else f"return {read}"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    made = module(f"{PRELUDE}\n{setup}\ndef f({'x, a' if argument else 'x'}):\n{lines}\n")
    code = compile(change, "a change", "exec")
    return made, made.f, lambda: exec(code, vars(made))


# Containers, read in all ways that Python has -----------------------------------------------------

CONTAINERS = {
    "list": ("[1.0, 2.0, 4.0]", "{0}.append(0.5)"),
    "an item of a list": ("[1.0, 2.0, 4.0]", "{0}[0] = 8.0"),
    "set": ("{1.0, 2.0, 4.0}", "{0}.add(0.5)"),
    "deque": ("collections.deque([1.0, 2.0])", "{0}.append(0.5)"),
    "dict": ("{1.0: 3.0, 2.0: 3.0}", "{0}[0.5] = 1.0"),
    "keys of a dict": ("{1.0: 3.0, 2.0: 3.0}", "{0}[4.0] = {0}.pop(1.0)"),
    "ordered dict": ("collections.OrderedDict({1.0: 3.0})", "{0}[0.5] = 1.0"),
    "counter": ("collections.Counter([1.0, 2.0])", "{0}.update([0.5])"),
    "defaultdict": ("collections.defaultdict(float, {1.0: 3.0})", "{0}[0.5]"),
    "bytearray": ("bytearray([1, 2])", "{0}.append(7)"),
    "array": ("array.array('d', [1.0, 2.0])", "{0}.append(0.5)"),
    "numpy array": ("np.array([1.0, 2.0])", "{0}[0] = 0.5"),
    "array of objects": ("np.array([1.0, 2.0], object)", "{0}[0] = 0.5"),
    "list subclass": ("type('L', (list,), {{}})([1.0, 2.0])", "{0}.append(0.5)"),
    "dict subclass": ("type('D', (dict,), {{}})({{1.0: 2.0}})", "{0}[0.5] = 1.0"),
    "user list": ("collections.UserList([1.0, 2.0])", "{0}.append(0.5)"),
    "user dict": ("collections.UserDict({1.0: 2.0})", "{0}[0.5] = 1.0"),
    "chain map": ("collections.ChainMap({1.0: 2.0}, {2.0: 3.0})", "{0}.maps[1][0.5] = 1.0"),
    "keys view": ("D.keys()", "D[0.5] = 1.0"),
    "mapping proxy": ("types.MappingProxyType(D)", "D[0.5] = 1.0"),
    "array subclass": ("np.array([1.0, 2.0]).view(type('A', (np.ndarray,), {{}}))", "{0}[0] = 0.5"),
    "matrix row": ("np.array([1.0, 2.0]).view(np.recarray)", "{0}[0] = 0.5"),
    "masked array": ("np.ma.array([1.0, 2.0], mask=[0, 0])", "{0}[0] = 0.5"),
}
READERS = """
sum({0}) | sorted({0}) | min({0}) | max({0}, key=operator.neg) | len({0}) | list({0}) | tuple({0})
set({0}) == {{1.0, 2.0}} | 0.5 in {0} | not any(v == 0.5 for v in {0}) | [v for v in {0}]
str({0}) | repr({0}) | f"{{{0}}}" | "%s" % ({0},) | "{{}}".format({0}) | format({0})
list(map(float, {0})) | list(map(operator.neg, {0})) | functools.reduce(operator.add, {0})
functools.reduce(max, {0}) | last(*{0}) | O.last(*{0}) | max(*{0}) | [*{0}][-1] | list(reversed(list({0})))
list(enumerate({0})) | list(zip({0}, {0})) | math.fsum({0}) | next(iter({0})) + len({0})
list(filter(None, {0})) | list(itertools.chain({0}, {0})) | list(itertools.accumulate({0}))
copy.copy({0}) == 1 or sorted(copy.copy({0})) | sorted(copy.deepcopy({0})) | statistics.fmean({0})
sorted(pickle.loads(pickle.dumps({0}))) | dict.fromkeys({0}) | " ".join(map(str, {0}))
all(v < 8 and v != 0.5 for v in {0}), sum({0}) | operator.contains({0}, 0.5), len({0})
np.sum(list({0})) | np.asarray(list({0})).tolist() | ef.tensor(list({0})) | (lambda *v: v[-1])(*{0})
frozenset({0}) | hash(tuple({0})) | functools.partial(last, *{0})() | list(itertools.islice({0}, 9))
math.prod({0}) | heapq.nsmallest(3, {0}) | heapq.nlargest(3, {0}, key=operator.neg)
collections.Counter({0}) | sorted({0}, key=abs) | sum(itertools.starmap(pow, [(v, 2) for v in {0}]))
list(map(O.last, {0})) | max(map(abs, {0})), len({0}) | operator.length_hint({0}) + sum({0})
(lambda a, *b: len(b))(*{0}) | print(*{0}) or sum({0}) | bytes(str(list({0})), "ascii")
""".replace("\n", " | ").strip(" |").split(" | ")
HOLDERS = {
    "global": ("G = {make}", "G"),
    "attribute": ("O.v = {make}", "O.v"),
    "item of a dict": ("T = {{'v': {make}}}", "T['v']"),
    "class": ("class C:\n    v = {make}", "C().v"),
    "helper": ("G = {make}\ndef get(): return G", "get()"),
    "alias": ("G = {make}", "(lambda v: v)(G)"),
    "in a tuple": ("G = ({make}, 1)", "G[0]"),
    "getattr": ("O.v = {make}", "getattr(O, 'v')"),
}


def products():
    """Rows of every container with every reader; the holders take turns."""
    holders = itertools.cycle(HOLDERS.items())
    for name, (make, change) in CONTAINERS.items():
        for reader in READERS:
            where, (setup, place) = next(holders)
            target = "get()" if where == "helper" else place
            text = setup.format(make=make.replace("{{", "{").replace("}}", "}"))
            row = (
                f"D = {{1.0: 2.0, 2.0: 3.0}}\nO = Thing(last=last)\n{text}",
                reader.format(place), change.format(target if where != "alias" else "G"), "",
            )  # fmt: skip
            yield f"{name}, {where}, {reader}", row
        next(holders)


# Models: what the library's own code reads --------------------------------------------------------

_MODEL = """
ef.random.seed(0)
X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
Y = X[:, :1] * 2
m = ef.nn.Sequential([ef.nn.Dense(3, "tanh"), ef.nn.Dense(3)])
m.compile("sgd", "mse")
EXTRA = ef.nn.Dense(3, "relu")
EXTRA(X)
m(X)
"""
_BLOCKS = """
class Net(ef.nn.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [ef.nn.Dense(3, "tanh"), ef.nn.Dense(3)]
        self.table = {"head": ef.nn.Dense(3)}
        self.order = (0, 1)
        self.used = {0, 1}
        self.scale = 2.0
    def call(self, inputs):
        for i in self.order:
            if i in self.used:
                inputs = self.blocks[i](inputs)
        for block in self.blocks[2:]:
            inputs = block(inputs)
        return self.table["head"](inputs) * self.scale
ef.random.seed(0)
X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
Y = X * 2
m = Net()
m.compile("sgd", "mse")
m(X)
EXTRA = ef.nn.Dense(3, "relu")
EXTRA(X)
"""

# ``f`` is the model's own: its steps are captured by ``fit`` and its like, with nothing around.
MODELS = {
    "add": (_MODEL, "m.add(EXTRA)"),
    "pop": (_MODEL, "m.pop()"),
    "a layer is replaced in the list": (_MODEL, "m.layers[1] = EXTRA"),
    "the list is replaced": (_MODEL, "m.layers = [m.layers[0], EXTRA]"),
    "layers change places": (_MODEL, "m.layers.reverse()"),
    "a layer is inserted": (_MODEL, "m.layers.insert(0, EXTRA)"),
    "an activation": (_MODEL, "m.layers[0].activation = ef.nn.activations.get('relu')"),
    "a kernel": (_MODEL, "m.layers[0].kernel = EXTRA.kernel"),
    "no bias": (_MODEL, "m.layers[0].bias = None"),
    "a bias on the second": (_MODEL, "m.layers[1].bias = ef.Variable([1.0, 2.0, 3.0])"),
    "the class of a layer": (
        _MODEL + "class Twice(ef.nn.Dense):\n    def call(self, v): return super().call(v) * 2",
        "m.layers[0].__class__ = Twice",
    ),
    "the class of the second layer": (
        _MODEL + "class Twice(ef.nn.Dense):\n    def call(self, v): return super().call(v) * 2",
        "m.layers[1].__class__ = Twice",
    ),
    "call of the class": (
        _MODEL + "class Own(ef.nn.Dense):\n    def call(self, v): return super().call(v)\n"
        "m.layers.append(Own(3)); m(X)", "Own.call = lambda self, v: v",
    ),
    "call of one layer": (_MODEL, "m.layers[1].call = lambda v: v"),
    "the loss": (_MODEL, "m.loss = ef.nn.losses.get('mae')"),
    "compiled anew": (_MODEL, "m.compile('sgd', 'mae')"),
    "the class of the model": (
        _MODEL + "class Neg(ef.nn.Sequential):\n    def call(self, v): return -super().call(v)",
        "m.__class__ = Neg",
    ),
    "append to blocks": (_BLOCKS, "m.blocks.append(EXTRA)"),
    "an item of blocks": (_BLOCKS, "m.blocks[1] = EXTRA"),
    "extend blocks": (_BLOCKS, "m.blocks += [EXTRA, EXTRA]"),
    "del blocks": (_BLOCKS, "m.order = (0,); del m.blocks[1]"),
    "an item of a dict": (_BLOCKS, "m.table['head'] = EXTRA"),
    "a tuple": (_BLOCKS, "m.order = (1, 0)"),
    "a set": (_BLOCKS, "m.used.discard(1)"),
    "a number": (_BLOCKS, "m.scale = 3.0"),
    "an activation of a block": (_BLOCKS, "m.blocks[0].activation = ef.nn.activations.get('relu')"),
    "the class's call": (_BLOCKS, "Net.call = lambda self, v: v * 0.5"),
}
MODEL_STEPS = {
    "predict": "np.round(m.predict(X, verbose=0), 5).tolist()",
    "evaluate": "np.round(m.evaluate(X, np.ones_like(m.predict(X, verbose=0)), verbose=0), 5).tolist()",
    "fit": "round(float(m.fit(X, 0.5 * np.ones_like(m(X).numpy()), epochs=1, shuffle=False,"
           " verbose=0).history['loss'][0]), 5)",
}  # fmt: skip

# Helpers, spread arguments, caches ----------------------------------------------------------------

rows(
    "spread",
    ("L = [1.0, 2.0]", "x * last(*L)", "L.append(3.0)"),
    ("L = [1.0, 2.0]", "x * last(0, *L)", "L[1] = 3.0"),
    ("L = [1.0]\nM = [2.0]", "x * last(*L, *M)", "M[0] = 5.0"),
    ("D = {'a': 1.0}", "x * last(**D)", "D['a'] = 2.0"),
    ("D = {'a': 1.0}", "x * last(**D)", "D['b'] = 2.0"),
    ("D = {'a': 1.0}", "x * last(**{**D, 'b': 0}, c=D['a'])", "D['a'] = 2.0"),
    ("O = Thing(m=last)\nL = [1.0]", "x * O.m(*L)", "L[0] = 2.0"),
    ("class C:\n    def m(self, *a): return a[-1]\nO = C()\nL = [1.0]", "x * O.m(*L)", "L[0] = 2.0"),
    ("class C:\n    def m(self, *a, **k): return sum(k.values())\nO = C()\nD = {'a': 1.0}",
     "x * O.m(1, **D)", "D['a'] = 2.0"),
    ("L = [Thing(rate=1.0)]", "x * rate_of(*L)", "L[0].rate = 2.0"),
    ("L = [Thing(rate=1.0)]", "x * rate_of(*L)", "L.append(Thing(rate=2.0))"),
    ("L = ((1.0, 2.0), [3.0])", "x * sum(last(*L))", "L[1].append(4.0)"),
    ("S = {1.0}", "x * sum((lambda *a: a)(*S))", "S.add(5.0)"),
    ("Q = collections.deque([1.0])", "x * last(*Q)", "Q.append(3.0)"),
    ("L = [1.0]", "x * last(*map(float, L))", "L[0] = 2.0"),
    ("L = [1.0]", "x * last(*[v * 2 for v in L])", "L[0] = 2.0"),
    ("L = [1.0]\np = functools.partial(last, 0)", "x * p(*L)", "L[0] = 2.0"),
    ("L = [1.0]\nclass C:\n    def __call__(self, *a): return a[-1]\nO = C()", "x * O(*L)",
     "L[0] = 2.0"),
    ("L = [1.0]\nclass C:\n    def __init__(self, *a): self.v = a[-1]", "x * C(*L).v", "L[0] = 2.0"),
    ("L = [1.0, 2.0]", "x * max(*L)", "L[0] = 7.0"),
    ("L = [[1.0]]", "x * sum(*L)", "L[0][0] = 7.0"),
    ("L = [[1.0], [2.0]]", "[a * b for a, b in zip(*L)]", "L[1][0] = 7.0"),
    ("L = ['1', 2]", "int(*L[:1])", "L[0] = '0'"),
    ("L = [1.0]\ndef outer(*a): return last(*a)", "x * outer(*L)", "L.append(2.0)"),
    ("L = [[1.0]]\ndef outer(*a): return last(*a)[0]", "x * outer(*L)", "L[0][0] = 2.0"),
    ("L = [1.0]\ndef outer(a, b=0): return a + b", "x * outer(*L)", "L.append(2.0)"),
    ("L = [1.0]\n@functools.wraps(last)\ndef outer(*a): return last(*a)", "x * outer(*L)",
     "L[0] = 2.0"),
    ("L = [1.0]\n@staticmethod\ndef s(*a): return a[-1]", "x * s(*L)", "L[0] = 2.0"),
    ("L = [1.0]\nh = lambda *a: sum(a)", "x * h(*L[0:])", "L[0] = 2.0"),
    ("L = [1.0]\nh = lambda *a: sum(a)", "x * h(*(L or [5.0]))", "L.clear()"),
)

_CACHED = "RATE = 1.0\n@functools.lru_cache({})\ndef h(v): return v * RATE\n"
rows(
    "caches",
    (_CACHED.format("") + "h(2.0)", "x * h(2.0)", "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("None") + "h(2.0)", "x * h(2.0)", "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("2") + "h(2.0); h(3.0)", "x * h(2.0)", "RATE = 2.0; h(4.0); h(5.0)"),
    (_CACHED.format(""), "x * h(2.0)", "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("") + "h(2.0)", "x * h(v=2.0)", "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("") + "h(2.0)\ndef g(v): return h(v)", "x * g(2.0)",
     "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("") + "h(2.0)", "x * h(2.0)", "RATE = 2.0; h.cache_clear(); h(2.0); h(3.0)"),
    (_CACHED.format("") + "h(2.0)", "x * sum(map(h, [2.0]))", "RATE = 2.0; h.cache_clear()"),
    (_CACHED.format("") + "h(2.0)", "x * h(*[2.0])", "RATE = 2.0; h.cache_clear()"),
    ("RATE = 1.0\nclass C:\n    @functools.lru_cache\n    def m(self): return RATE\nO = C()\nO.m()",
     "x * O.m()", "RATE = 2.0; C.m.cache_clear()"),
    ("RATE = 1.0\nclass C:\n    @functools.cache\n    def m(self): return RATE\nO = C()\nO.m()",
     "x * O.m()", "C.m.cache_clear(); RATE = 2.0; O.m()"),
    ("RATE = 1.0\nclass C:\n    @staticmethod\n    @functools.cache\n    def m(): return RATE\n"
     "C.m()", "x * C.m()", "C.m.cache_clear(); RATE = 2.0"),
    ("RATE = 1.0\nclass C:\n    @classmethod\n    @functools.cache\n    def m(cls): return RATE\n"
     "C.m()", "x * C.m()", "C.__dict__['m'].__func__.cache_clear(); RATE = 2.0"),
    ("RATE = 1.0\nclass C:\n    @functools.cached_property\n    def m(self): return RATE\nO = C()\n"
     "O.m", "x * O.m", "RATE = 2.0; del O.m"),
    ("@functools.cache\ndef h(): return [1.0]\nh()", "x * h()[0]", "h()[0] = 2.0"),
    ("@functools.cache\ndef h(): return Thing(rate=1.0)\nh()", "x * h().rate", "h().rate = 2.0"),
    ("@functools.cache\ndef h(): return {'a': 1.0}\nh()", "x * h()['a']", "h()['a'] = 2.0"),
    ("@functools.cache\ndef h(): return [1.0]\nh()", "x * sum(h())", "h().append(2.0)"),
    ("@functools.cache\ndef h(): return np.ones(2)\nh()", "(x * h()).tolist()", "h()[0] = 2.0"),
    ("MEMO = {}\nRATE = 1.0\ndef h(v):\n    if v not in MEMO: MEMO[v] = v * RATE\n"
     "    return MEMO[v]\nh(1.0)", "x * h(1.0)", "MEMO.clear(); RATE = 2.0"),
    ("MEMO = weakref.WeakKeyDictionary()\nK = Thing()\nMEMO[K] = 1.0", "x * MEMO[K]",
     "MEMO[K] = 2.0"),
    ("RATE = 1.0\nclass Cache:\n    def __init__(self, f): self.f, self.d = f, {}\n"
     "    def __call__(self, v):\n        if v not in self.d: self.d[v] = self.f(v)\n"
     "        return self.d[v]\n@Cache\ndef h(v): return v * RATE\nh(1.0)", "x * h(1.0)",
     "h.d.clear(); RATE = 2.0"),
)

# Modules, imports, names that are not there -------------------------------------------------------

rows(
    "modules",
    ("fake('cfg_a', RATE=1.0)", "x * importlib.import_module('cfg_a').RATE",
     "sys.modules['cfg_a'].RATE = 2.0"),
    ("fake('cfg_b', RATE=1.0)", "x * importlib.import_module('cfg_b').RATE", "fake('cfg_b', RATE=2.0)"),
    ("fake('cfg_c', RATE=1.0)", "x * __import__('cfg_c').RATE", "sys.modules['cfg_c'].RATE = 2.0"),
    ("fake('cfg_c2', RATE=1.0)", "x * __import__('cfg_c2').RATE", "fake('cfg_c2', RATE=2.0)"),
    ("fake('cfg_d', RATE=1.0)", "x * sys.modules['cfg_d'].RATE", "sys.modules['cfg_d'].RATE = 2.0"),
    ("fake('cfg_e', RATE=1.0)", "x * sys.modules.get('cfg_e').RATE", "fake('cfg_e', RATE=2.0)"),
    ("fake('cfg_f', RATE=1.0)", "import cfg_f\nreturn x * cfg_f.RATE",
     "sys.modules['cfg_f'].RATE = 2.0"),
    ("fake('cfg_g', RATE=1.0)", "import cfg_g as c\nreturn x * c.RATE", "fake('cfg_g', RATE=2.0)"),
    ("fake('cfg_h', RATE=1.0)", "from cfg_h import RATE\nreturn x * RATE",
     "sys.modules['cfg_h'].RATE = 2.0"),
    ("fake('cfg_i', RATE=1.0)", "m = importlib.import_module('cfg_i')\nreturn x * m.RATE",
     "sys.modules['cfg_i'].RATE = 2.0"),
    ("fake('cfg_j', RATE=1.0)", "x * getattr(importlib.import_module('cfg_j'), 'RATE')",
     "sys.modules['cfg_j'].RATE = 2.0"),
    ("fake('cfg_k', RATE=1.0)", "x * vars(importlib.import_module('cfg_k'))['RATE']",
     "sys.modules['cfg_k'].RATE = 2.0"),
    ("fake('cfg_l', T={'r': 1.0})", "x * importlib.import_module('cfg_l').T['r']",
     "sys.modules['cfg_l'].T['r'] = 2.0"),
    ("fake('cfg_m', h=lambda v: v)", "importlib.import_module('cfg_m').h(x)",
     "sys.modules['cfg_m'].h = lambda v: -v"),
    ("fake('cfg_n', RATE=1.0); NAME = 'cfg_n'", "x * importlib.import_module(NAME).RATE",
     "fake('cfg_o', RATE=2.0); NAME = 'cfg_o'"),
    ("def load(n): return importlib.import_module(n)\nfake('cfg_p', RATE=1.0)", "x * load('cfg_p').RATE",
     "sys.modules['cfg_p'].RATE = 2.0"),
    ("", "try:\n    import cfg_q\n    return x * cfg_q.RATE\nexcept ImportError:\n    return x",
     "fake('cfg_q', RATE=2.0)"),
    ("", "try:\n    from cfg_r import RATE\n    return x * RATE\nexcept ImportError:\n    return x",
     "fake('cfg_r', RATE=2.0)"),
    ("fake('cfg_s')", "try:\n    from cfg_s import RATE\n    return x * RATE\nexcept ImportError:\n"
     "    return x", "fake('cfg_s', RATE=2.0)"),
    ("", "try:\n    return x * importlib.import_module('cfg_t').RATE\nexcept ImportError:\n    return x",
     "fake('cfg_t', RATE=2.0)"),
    ("", "importlib.util.find_spec('cfg_u') is None", "fake('cfg_u', __spec__=1)"),
    ("", "'cfg_v' in sys.modules", "fake('cfg_v')"),
    ("import tempfile\nP = tempfile.mkdtemp()\nsys.path.append(P)\n"
     "def undo(): sys.path.remove(P); sys.modules.pop('cfg_w', None)",
     "try:\n    import cfg_w\n    return x * cfg_w.RATE\nexcept ImportError:\n    return x",
     "pathlib.Path(P, 'cfg_w.py').write_text('RATE = 2.0'); importlib.invalidate_caches()"),
    ("", "try:\n    return x * RATE\nexcept NameError:\n    return x", "RATE = 2.0"),
    ("def h(): return RATE", "try:\n    return x * h()\nexcept NameError:\n    return x", "RATE = 2.0"),
    ("", "try:\n    return x * RATE\nexcept NameError:\n    return x", "builtins.RATE = 2.0"
     "\ndef undo(): del builtins.RATE"),
    ("O = Thing()", "try:\n    return x * O.rate\nexcept AttributeError:\n    return x", "O.rate = 2.0"),
    ("D = {}", "try:\n    return x * D['r']\nexcept KeyError:\n    return x", "D['r'] = 2.0"),
    ("L = []", "try:\n    return x * L[0]\nexcept IndexError:\n    return x", "L.append(2.0)"),
    ("def outer():\n    def g(v):\n        try: return v * rate\n        except NameError: return v\n"
     "    def put():\n        nonlocal rate\n        rate = 2.0\n    if 0: rate = 1\n    return g, put\n"
     "g, put = outer()", "g(x)", "put()"),
    ("", "'RATE' in globals()", "RATE = 1"),
    ("", "globals().get('RATE', 1.0) * x", "RATE = 2.0"),
    ("", "len([n for n in list(globals()) if n.startswith('RATE_')])", "RATE_A = 2.0"),
    ("", "hasattr(sys.modules[__name__] if __name__ in sys.modules else builtins, 'RATE')",
     "builtins.RATE = 2.0\ndef undo(): del builtins.RATE"),
    ("RATE = 1.0", "x * eval('RATE')", "RATE = 2.0"),
    ("RATE = 1.0\nCODE = compile('RATE', 'text', 'eval')", "x * eval(CODE)", "RATE = 2.0"),
    ("N = {'RATE': 1.0}", "x * eval('RATE', N)", "N['RATE'] = 2.0"),
    ("RATE = 1.0\nN = {}", "exec('y = RATE', globals(), N)\nreturn x * N['y']", "RATE = 2.0"),
    ("import colorsys\nO = colorsys.ONE_THIRD\ndef undo(): colorsys.ONE_THIRD = O",
     "x * colorsys.ONE_THIRD", "colorsys.ONE_THIRD = 0.5"),
    ("fake('pkg_a'); sys.modules['pkg_a'].sub = fake('pkg_a.sub', RATE=1.0)",
     "import pkg_a.sub\nreturn x * pkg_a.sub.RATE", "sys.modules['pkg_a'].sub.RATE = 2.0"),
    ("fake('pkg_b'); sys.modules['pkg_b'].sub = fake('pkg_b.sub', RATE=1.0)",
     "x * importlib.import_module('pkg_b.sub').RATE", "sys.modules['pkg_b.sub'].RATE = 2.0"),
    ("fake('pkg_c', __path__=[]); fake('pkg_c.sub', RATE=1.0)",
     "x * importlib.import_module('.sub', 'pkg_c').RATE", "sys.modules['pkg_c.sub'].RATE = 2.0"),
    ("def getter(name): return {'RATE': R}[name]\nR = 1.0\nM = fake('cfg_x', __getattr__=getter)",
     "x * M.RATE", "R = 2.0"),
    ("import pydoc\nfake('cfg_y', RATE=1.0)", "x * pydoc.locate('cfg_y').RATE",
     "sys.modules['cfg_y'].RATE = 2.0", "told pydoc.locate"),
    ("import pkgutil\nfake('cfg_z', RATE=1.0)", "x * pkgutil.resolve_name('cfg_z').RATE",
     "sys.modules['cfg_z'].RATE = 2.0", "told pkgutil.resolve_name"),
    ("import runpy, tempfile\nP = tempfile.mktemp()\npathlib.Path(P).write_text('R = 1.0')",
     "x * runpy.run_path(P)['R']", "pathlib.Path(P).write_text('R = 2.0')", "told runpy.run_path"),
)

# The environment ----------------------------------------------------------------------------------

_ENVIRONMENT = "os.environ['EF_T'] = '1'\ndef undo(): os.environ.pop('EF_T', None)"
rows(
    "environment",
    *[
        (_ENVIRONMENT, read, change)
        for read, change in [
            ("os.environ['EF_T']", "os.environ['EF_T'] = '2'"),
            ("os.environ.get('EF_T', 0)", "del os.environ['EF_T']"),
            ("os.getenv('EF_T')", "os.environ['EF_T'] = '2'"),
            ("os.getenv('EF_T', '0')", "os.environ.pop('EF_T')"),
            ("os.getenv(key='EF_T')", "os.environ['EF_T'] = '2'"),
            ("os.getenvb(b'EF_T')", "os.environ['EF_T'] = '2'"),
            ("os.environb[b'EF_T']", "os.environ['EF_T'] = '2'"),
            ("os.environb.get(b'EF_T')", "os.environb[b'EF_T'] = b'2'"),
            ("'EF_T' in os.environ", "del os.environ['EF_T']"),
            ("(os.environ | {})['EF_T']", "os.environ['EF_T'] = '2'"),
            ("({} | os.environ)['EF_T']", "os.environ['EF_T'] = '2'"),
            ("{**os.environ}['EF_T']", "os.environ['EF_T'] = '2'"),
            ("dict(os.environ)['EF_T']", "os.environ['EF_T'] = '2'"),
            ("os.environ.copy()['EF_T']", "os.environ['EF_T'] = '2'"),
            ("dict(os.environ.items())['EF_T']", "os.environ['EF_T'] = '2'"),
            ("[v for k, v in os.environ.items() if k == 'EF_T']", "os.environ['EF_T'] = '2'"),
            ("len(os.environ)", "os.environ['EF_T2'] = '2'; os.environ.pop('EF_T')\n"
             "os.environ['EF_T3'] = '1'; os.environ['EF_T4'] = '1'\n"
             "def undo(): [os.environ.pop('EF_T' + c, 0) for c in '234']"),
            ("sorted(k for k in os.environ if k.startswith('EF_T'))", "del os.environ['EF_T']"),
            ("os.path.expandvars('$EF_T')", "os.environ['EF_T'] = '2'"),
            ("os.path.expandvars('a/${EF_T}/b')", "os.environ['EF_T'] = '2'"),
            ("str(pathlib.Path(os.path.expandvars('$EF_T')))", "os.environ['EF_T'] = '2'"),
            ("string.Template('$EF_T').substitute(os.environ)", "os.environ['EF_T'] = '2'"),
            ("'{EF_T}'.format_map(os.environ)", "os.environ['EF_T'] = '2'"),
            ("'%(EF_T)s' % os.environ", "os.environ['EF_T'] = '2'"),
            ("collections.ChainMap({}, os.environ)['EF_T']", "os.environ['EF_T'] = '2'"),
            ("os.environ.setdefault('EF_T', '5')", "os.environ['EF_T'] = '2'"),
            ("operator.itemgetter('EF_T')(os.environ)", "os.environ['EF_T'] = '2'"),
            ("getattr(os, 'environ')['EF_T']", "os.environ['EF_T'] = '2'"),
            ("json.dumps(dict(os.environ))", "os.environ['EF_T'] = '2'"),
            ("next(v for k, v in os.environ.items() if k == 'EF_T')", "os.environ['EF_T'] = '2'"),
            ("e = os.environ\nreturn e['EF_T']", "os.environ['EF_T'] = '2'"),
        ]
    ],
    ("H = os.environ.get('HOME')\ndef undo(): os.environ['HOME'] = H or '/'", "os.path.expanduser('~')",
     "os.environ['HOME'] = '/elsewhere'"),
    ("H = os.environ.get('HOME')\ndef undo(): os.environ['HOME'] = H or '/'", "str(pathlib.Path.home())",
     "os.environ['HOME'] = '/elsewhere'", "told home"),
    ("H = os.getcwd()\ndef undo(): os.chdir(H)", "os.getcwd()", "os.chdir('/')"),
    ("H = os.getcwd()\ndef undo(): os.chdir(H)", "str(pathlib.Path.cwd())", "os.chdir('/')", "told cwd"),
    ("H = os.getcwd()\ndef undo(): os.chdir(H)", "os.path.abspath('a')", "os.chdir('/')",
     "told abspath"),
    ("import tempfile\nP = tempfile.mktemp()", "os.path.exists(P)", "open(P, 'w').close()",
     "told os.path.exists"),
    ("import tempfile\nP = tempfile.mktemp()", "pathlib.Path(P).exists()", "open(P, 'w').close()",
     "told exists"),
    ("import tempfile\nP = tempfile.mktemp()\nopen(P, 'w').write('a')", "open(P).read()",
     "open(P, 'w').write('b')", "told open"),
    ("import tempfile\nP = tempfile.mktemp()\nopen(P, 'w').write('a')", "pathlib.Path(P).read_text()",
     "open(P, 'w').write('b')", "told read_text"),
    ("", "time.time()", "time.sleep(0.002)", "told time.time"),
    ("", "time.perf_counter()", "pass", "told time.perf_counter"),
    ("", "str(datetime.datetime.now())", "pass", "told datetime.datetime.now"),
    ("", "str(datetime.datetime.now(datetime.timezone.utc))", "pass", "told datetime.datetime.now"),
    ("", "random.random()", "pass", "refused"),
    ("", "np.random.rand()", "pass", "refused"),
    ("", "str(uuid.uuid4())", "pass", "refused"),
    ("R = random.Random(1)", "R.random()", "pass", "refused"),
    ("R = np.random.default_rng(1)", "R.normal()", "pass", "refused"),
    ("", "os.urandom(4).hex()", "pass", "refused"),
    ("", "ef.random.normal(()).shape", "pass", "same"),
)

# Equal values that differ -------------------------------------------------------------------------

_UTC = "datetime.timezone.utc"
_EAST = "datetime.timezone(datetime.timedelta(hours=1))"
EQUALS = [
    (f"datetime.datetime(2020, 1, 1, 12, tzinfo={_UTC})",
     f"datetime.datetime(2020, 1, 1, 13, tzinfo={_EAST})", "G.hour"),
    (f"datetime.datetime(2020, 1, 1, 12, tzinfo={_UTC})",
     f"datetime.datetime(2020, 1, 1, 13, tzinfo={_EAST})", "str(G)"),
    ("datetime.datetime(2020, 1, 1)", "datetime.datetime(2020, 1, 1, fold=1)", "G.fold"),
    ("datetime.time(12)", "datetime.time(12, fold=1)", "G.fold"),
    (f"datetime.time(12, tzinfo={_UTC})", f"datetime.time(13, tzinfo={_EAST})", "G.hour"),
    ("datetime.timezone(datetime.timedelta(0))", "datetime.timezone(datetime.timedelta(0), 'X')",
     "G.tzname(None)"),
    ("datetime.date(2020, 1, 1)", "datetime.date(2020, 1, 2)", "G.day"),
    ("datetime.timedelta(1)", "datetime.timedelta(2)", "G.days"),
    ("decimal.Decimal('1.0')", "decimal.Decimal('1.00')", "str(G)"),
    ("decimal.Decimal('0')", "decimal.Decimal('-0')", "G.is_signed()"),
    ("decimal.Decimal('1E1')", "decimal.Decimal('10')", "G.as_tuple().exponent"),
    ("decimal.Decimal('1')", "decimal.Decimal('1.0')", "f'{G}'"),
    ("decimal.Decimal('NaN')", "decimal.Decimal('NaN123')", "str(G)"),
    ("fractions.Fraction(1, 2)", "fractions.Fraction(2, 3)", "G.numerator"),
    ("range(0)", "range(2, 2)", "G.start"),
    ("range(0, 3, 2)", "range(0, 4, 2)", "G.stop"),
    ("range(0, 1, 1)", "range(0, 1, 2)", "G.step"),
    ("range(1)", "range(True)", "repr(G.stop)"),
    ("frozenset({1})", "frozenset({True})", "repr(list(G))"),
    ("frozenset({1})", "frozenset({1.0})", "repr(*G)"),
    ("frozenset({0.0})", "frozenset({-0.0})", "[math.copysign(1, v) for v in G]"),
    ("frozenset({(1,)})", "frozenset({(True,)})", "repr(G)"),
    ("frozenset({8, 0})", "frozenset({0, 8})", "repr(list(G))"),
    ("{1: 2}", "{True: 2}", "repr(list(G))"),
    ("{1: 2}", "{1.0: 2}", "repr(list(G))"),
    ("{0.0: 2}", "{-0.0: 2}", "repr(list(G))"),
    ("{(1,): 2}", "{(True,): 2}", "repr(list(G))"),
    ("(1, 2)", "(True, 2)", "repr(G)"),
    ("(0.0,)", "(-0.0,)", "repr(G)"),
    ("((1.0,),)", "((1,),)", "repr(G[0])"),
    ("1", "True", "repr(G)"),
    ("1", "1.0", "repr(G)"),
    ("0.0", "-0.0", "repr(G)"),
    ("0j", "-0j", "repr(G)"),
    ("complex(0, 0.0)", "complex(0, -0.0)", "repr(G)"),
    ("slice(1)", "slice(True)", "repr(G)"),
    ("slice(0, 1)", "slice(0, 1.0)", "repr(G)"),
    ("slice(None, -0.0)", "slice(None, 0.0)", "repr(G.stop)"),
    ("uuid.UUID(int=1)", "uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe)", "str(G.is_safe)"),
    ("uuid.UUID(int=1)", "uuid.UUID(int=2)", "G.int"),
    ("struct.unpack('<d', bytes.fromhex('000000000000f87f'))[0]",
     "struct.unpack('<d', bytes.fromhex('010000000000f87f'))[0]", "struct.pack('<d', G).hex()"),
    ("np.float64('nan')", "np.frombuffer(bytes.fromhex('010000000000f87f'))[0]", "G.tobytes().hex()"),
    ("np.float32(0)", "np.float32(-0.0)", "repr(G)"),
    ("np.int32(1)", "np.int64(1)", "str(G.dtype)"),
    ("np.str_('a')", "'a'", "type(G).__name__"),
    ("np.datetime64('2020-01-01')", "np.datetime64('2020-01-01T00')", "str(G)"),
    ("np.dtype('<i4')", "np.dtype('>i4')", "str(G)"),
    ("np.dtype([('a', 'i4')])", "np.dtype([('b', 'i4')])", "str(G.names)"),
    ("np.dtype('i4', metadata={'a': 1})", "np.dtype('i4', metadata={'a': 2})", "G.metadata['a']"),
    ("pathlib.PurePosixPath('a')", "pathlib.PurePosixPath('b')", "str(G)"),
    ("pathlib.PureWindowsPath('a')", "pathlib.PureWindowsPath('A')", "str(G)"),
    ("ipaddress.ip_address('127.0.0.1')", "ipaddress.ip_address('127.0.0.2')", "str(G)"),
    ("ipaddress.ip_interface('10.0.0.1/8')", "ipaddress.ip_interface('10.0.0.1/16')", "str(G)"),
    ("zoneinfo.ZoneInfo('UTC')", "zoneinfo.ZoneInfo('Etc/UTC')", "str(G)"),
    ("re.compile('a')", "re.compile('a', re.I)", "bool(G.match('A'))"),
    ("re.compile('a+')", "re.compile('b+')", "bool(G.match('b'))"),
    ("operator.attrgetter('real')", "operator.attrgetter('imag')", "G(x + 1j)"),
    ("operator.itemgetter(0)", "operator.itemgetter(1)", "G([x, 7])"),
    ("operator.methodcaller('hex')", "operator.methodcaller('is_integer')", "G(x)"),
    ("struct.Struct('<d')", "struct.Struct('>d')", "G.pack(x).hex()"),
    ("type('E', (enum.IntEnum,), {}) and enum.IntEnum('E', 'A B').A", "enum.IntEnum('E', 'A B').B", "G.name"),
    ("collections.namedtuple('P', 'a b')(1, 2)", "collections.namedtuple('Q', 'b a')(1, 2)", "G.a"),
    ("collections.namedtuple('P', 'a')(1)", "(1,)", "type(G).__name__"),
    ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(a=True)", "repr(G.a)"),
    ("b'a'", "bytearray(b'a')", "type(G).__name__"),
    ("'a'", "type('S', (str,), {'rate': 1})('a')", "hasattr(G, 'rate')"),
    ("type('I', (int,), {})(1)", "type('J', (int,), {'rate': 2})(1)", "hasattr(G, 'rate')"),
    ("memoryview(b'a')", "memoryview(b'b')", "bytes(G)", "refused"),
    ("10**30", "10**30 + 1", "str(G)"),
    ("'\\u00e9'", "'e\\u0301'", "len(G)"),
    ("collections.OrderedDict(a=1, b=2)", "collections.OrderedDict(b=2, a=1)", "list(G)[0]"),
    ("collections.deque([1], 2)", "collections.deque([1], 3)", "G.maxlen"),
    ("collections.defaultdict(int)", "collections.defaultdict(float)", "repr(G.copy()['a'])"),
    ("functools.partial(max, 1)", "functools.partial(max, 5)", "G(x)"),
    ("np.arange(3)", "np.arange(3).astype('i4')", "str(G.dtype)"),
    ("np.zeros((2, 3))", "np.zeros((3, 2))", "G.shape[0]"),
    ("np.zeros((2, 2))", "np.zeros((2, 2), order='F')", "G.flags.c_contiguous"),
    ("np.zeros(2)", "-np.zeros(2)", "str(np.signbit(G))"),
    ("np.zeros(2)", "np.zeros(4)[::2]", "G.strides[0]"),
    ("np.array(['a'], object)", "np.array([b'a'], object)", "repr(G[0])"),
    ("np.void(b'a')", "np.void(b'b')", "G.tobytes().hex()"),
    ("ef.tensor([1.0])", "ef.tensor([2.0])", "float(G.numpy()[0])"),
]  # fmt: skip
rows("equal", *[(f"G = {a}", read, f"G = {b}", *more) for a, b, read, *more in EQUALS])
# The same within objects and containers, which are remembered as a whole.
rows(
    "equal within",
    *[
        (f"T = {{'v': ({a},)}}", f"(lambda G: {read})(list(T.values())[0][0])", f"T['v'] = ({b},)", *more)
        for a, b, read, *more in EQUALS
    ],
)
rows(
    "identity",
    ("A = (1, [2][0])\nB = tuple([1, 2])", "A is B", "B = A"),
    ("A = 10**30\nB = 10**29 * 10", "A is B", "B = A"),
    ("A = 10**30\nB = A", "A is not B", "B = 10**29 * 10"),
    ("A = 'ab c' * 9\nB = A", "A is B", "B = ''.join(list(A))"),
    ("A = 0.5\nB = A", "A is B", "B = float('0.5')"),
    ("O = Thing(a=10**30)\nB = O.a", "O.a is B", "O.a = 10**29 * 10"),
    ("T = {'a': 10**30}\nB = T['a']", "T['a'] is B", "T['a'] = 10**29 * 10"),
    ("L = [10**30]\nB = L[0]", "[v is B for v in L]", "L[0] = 10**29 * 10"),
    ("A = 10**30\nB = A", "id(A) == id(B)", "B = 10**29 * 10"),
    ("A = 10**30\nB = A", "operator.is_(A, B)", "B = 10**29 * 10"),
    ("A = frozenset([5])\nB = A", "A is B", "B = frozenset([5])"),
    ("A = datetime.date(2020, 1, 1)\nB = A", "A is B", "B = datetime.date(2020, 1, 1)"),
    ("A = np.float64(0.5)\nB = A", "A is B", "B = np.float64(0.5)"),
    ("def outer():\n    a = 10**30\n    b = a\n    def g(): return a is b\n    def put():\n"
     "        nonlocal b\n        b = 10**29 * 10\n    return g, put\ng, put = outer()", "g()", "put()"),
    ("NONE = object()\nG = NONE", "G is NONE", "G = object()"),
)

# Classes ------------------------------------------------------------------------------------------

_CLASSES = """
class A:
    rate = 1.0
    def m(self): return 1.0
class B:
    rate = 2.0
    def m(self): return 2.0
class C(A): pass
class P(abc.ABC):
    pass
@typing.runtime_checkable
class Proto(typing.Protocol):
    def sing(self): ...
O = A()
"""
rows(
    "classes",
    *[
        (_CLASSES, *given)
        for given in [
            ("isinstance(O, A)", "O.__class__ = B"),
            ("isinstance(O, (int, A))", "O.__class__ = B"),
            ("isinstance(O, int | A)", "O.__class__ = B"),
            ("isinstance(O, B)", "O = B()"),
            ("isinstance(O, P)", "P.register(A)"),
            ("isinstance(O, P)", "P.register(O.__class__)"),
            ("isinstance(C(), P)", "P.register(A)"),
            ("isinstance(O, collections.abc.Sized)", "A.__len__ = lambda self: 1"),
            ("isinstance(O, collections.abc.Iterable)", "A.__iter__ = lambda self: iter(())"),
            ("isinstance(O, collections.abc.Hashable)", "A.__hash__ = None"),
            ("isinstance(O, typing.Sized)", "A.__len__ = lambda self: 1"),
            ("isinstance(O, Proto)", "A.sing = lambda self: 1"),
            ("isinstance(O, Proto)", "O.sing = lambda: 1"),
            ("isinstance(O, numbers.Number)", "numbers.Number.register(A)"),
            ("isinstance(C(), A)", "C.__bases__ = (B,)"),
            ("issubclass(C, A)", "C.__bases__ = (B,)"),
            ("issubclass(A, P)", "P.register(A)"),
            ("issubclass(type(O), A)", "O.__class__ = B"),
            ("type(O).__name__", "O.__class__ = B"),
            ("type(O) is A", "O.__class__ = B"),
            ("O.__class__.__name__", "O.__class__ = B"),
            ("type(O).rate", "O.__class__ = B"),
            ("C.rate", "C.__bases__ = (B,)"),
            ("C().m()", "C.__bases__ = (B,)"),
            ("C.__mro__[1].__name__", "C.__bases__ = (B,)"),
            ("C.__base__.__name__", "C.__bases__ = (B,)"),
            ("[c.__name__ for c in C.mro()]", "C.__bases__ = (B,)"),
            ("[c.__name__ for c in inspect.getmro(C)]", "C.__bases__ = (B,)"),
            ("len(A.__subclasses__())", "class D(A): pass"),
            ("[c.__name__ for c in A.__subclasses__()]", "class D(A): pass"),
            ("A.__name__", "A.__name__ = 'Z'"),
            ("A.__qualname__", "A.__qualname__ = 'Z'"),
            ("A.__doc__", "A.__doc__ = 'Z'"),
            ("type(O).__name__", "A.__name__ = 'Z'"),
            ("callable(O)", "A.__call__ = lambda self: 1"),
            ("callable(O)", "O.__class__ = type('K', (), {'__call__': 1})"),
            ("O()  if callable(O) else 0", "A.__call__ = lambda self: 1"),
            ("hasattr(O, 'sing')", "A.sing = 1"),
            ("hasattr(O, '__len__')", "A.__len__ = lambda self: 1"),
            ("match O:\n    case A(): return 1\n    case _: return 2", "O.__class__ = B"),
            ("match O:\n    case A(rate=r): return r\n    case _: return 2", "A.rate = 5.0"),
            ("match O:\n    case P(): return 1\n    case _: return 2", "P.register(A)"),
            ("match O:\n    case A(r): return r\n    case B(): return 2", "A.__match_args__ = ('m',); "
             "A.m = 7"),
            ("match O:\n    case [*_]: return 1\n    case _: return 2",
             "collections.abc.Sequence.register(A); A.__len__ = lambda self: 0; O = A()"),
            ("match O:\n    case {}: return 1\n    case _: return 2",
             "O.__class__ = type('M', (A,), {}); collections.abc.Mapping.register(O.__class__)"),
            ("try:\n    len(O)\n    return 1\nexcept TypeError: return 2", "A.__len__ = lambda self: 1"),
            ("try:\n    return [*O]\nexcept TypeError: return 2", "A.__iter__ = lambda self: iter([5])"),
            ("try:\n    return O + 1\nexcept TypeError: return 2", "A.__add__ = lambda self, o: 5"),
            ("try:\n    return 1 + O\nexcept TypeError: return 2", "A.__radd__ = lambda self, o: 5"),
            ("try:\n    return O[0]\nexcept TypeError: return 2", "A.__getitem__ = lambda self, o: 5"),
            ("O == 1", "A.__eq__ = lambda self, o: True"),
            ("O != 1", "A.__ne__ = lambda self, o: False"),
            ("1 in [O]", "A.__eq__ = lambda self, o: True"),
            ("bool(O)", "A.__bool__ = lambda self: False"),
            ("bool(O)", "A.__len__ = lambda self: 0"),
            ("1 if O else 2", "A.__bool__ = lambda self: False"),
            ("not O", "A.__len__ = lambda self: 0"),
            ("str(O)[:5]", "A.__str__ = lambda self: 'mine!'"),
            ("f'{O}'[:5]", "A.__format__ = lambda self, s: 'mine!'"),
            ("repr(O)[:5]", "A.__repr__ = lambda self: 'mine!'"),
            ("O.rate", "A.__getattribute__ = lambda self, n: 7.0"),
            ("O.rate", "A.rate = property(lambda self: 7.0)"),
            ("O.m()", "A.m = staticmethod(lambda: 7.0)"),
            ("O.m()", "A.m = functools.partialmethod(lambda self, v: v, 7.0)"),
            ("getattr(O, 'more', 1)", "A.__getattr__ = lambda self, n: 7.0"),
            ("C().rate", "C.rate = 7.0"),
            ("super(C, C()).rate", "A.rate = 7.0"),
            ("A.__dict__['rate']", "A.rate = 7.0"),
            ("vars(A)['rate']", "A.rate = 7.0"),
            ("'extra' in vars(A)", "A.extra = 1"),
            ("'extra' in dir(O)", "A.extra = 1"),
            ("len([n for n in dir(A) if n[0] != '_'])", "A.extra = 1"),
            ("dict(inspect.getmembers(O)).get('extra', 1)", "A.extra = 5"),
            ("A.__annotations__.get('z', 1)", "A.__annotations__['z'] = 5"),
            ("typing.get_type_hints(A).get('z', 1)", "A.__annotations__ = {'z': 5 and int}"),
            ("A.__module__", "A.__module__ = 'z'"),
            ("copy.copy(O).rate", "O.rate = 5.0"),
            ("copy.deepcopy([O])[0].rate", "O.rate = 5.0"),
            ("copy.copy(O).rate", "A.__copy__ = lambda self: B()"),
            ("hash(O) == 5", "A.__hash__ = lambda self: 5"),
            ("len({O, 1})", "A.__hash__ = lambda self: 1; A.__eq__ = lambda self, o: True"),
            ("[v.rate for v in sorted([O, A()], key=lambda v: v.rate)]", "A.rate = 3.0"),
            ("object.__getattribute__(O, 'rate')", "A.rate = 5.0"),
            ("A.m.__name__", "A.m = B.m; A.m.__name__ = 'z'"),
            ("A.m(O)", "A.m = B.m"),
            ("weakref.proxy(O).rate", "O.rate = 5.0"),
        ]
    ],
    ("class M(type):\n    def __instancecheck__(cls, o): return cls.ok\nclass A(metaclass=M):\n"
     "    ok = True", "isinstance(5, A)", "A.ok = False"),
    ("class M(type):\n    def __len__(cls): return cls.n\nclass A(metaclass=M):\n    n = 1", "len(A)",
     "A.n = 5"),
    ("class M(type):\n    @property\n    def rate(cls): return cls.n\nclass A(metaclass=M):\n    n = 1",
     "A.rate", "A.n = 5"),
    ("class A:\n    def __class_getitem__(cls, k): return cls.n\n    n = 1", "A[0]", "A.n = 5"),
    ("class A:\n    def __init_subclass__(cls): cls.n = N\nN = 1",
     "class B(A): pass\nreturn B.n", "N = 2"),
    ("@functools.singledispatch\ndef h(v): return 1\n", "h(x)", "h.register(float, lambda v: 2)"),
    ("@functools.singledispatch\ndef h(v): return 1\n", "h(x)", "h.register(numbers.Real, lambda v: 2)"),
    ("@functools.singledispatch\ndef h(v): return 1\n@h.register\ndef _(v: float): return R\nR = 1.0",
     "h(x)", "R = 2.0"),
    ("@functools.singledispatch\ndef h(v): return 1\nh(2.5)", "h(x)", "h.register(float, lambda v: 2)"),
    ("class C:\n    @functools.singledispatchmethod\n    def m(self, v): return 1\nO = C()", "O.m(x)",
     "C.m.register(float, lambda self, v: 2)"),
    ("@functools.singledispatch\ndef h(v): return 1\n", "h.dispatch(float)(x)",
     "h.register(float, lambda v: 2)"),
    ("@functools.singledispatch\ndef h(v): return 1\n", "len(h.registry)", "h.register(float, int)"),
    ("def h(v, r=1.0): return r", "inspect.signature(h).parameters['r'].default",
     "h.__defaults__ = (2.0,)"),
    ("def h(v, *, r=1.0): return r", "inspect.signature(h).parameters['r'].default",
     "h.__kwdefaults__['r'] = 2.0"),
    ("def h(v): return v", "len(inspect.signature(h).parameters)",
     "h.__code__ = (lambda a, b: a).__code__"),
    ("def h(v): return v", "len(inspect.signature(h).parameters)", "h = lambda a, b: a"),
    ("def h(v): return v", "str(inspect.signature(h))", "h.__signature__ = inspect.signature(int)\\\n"
     "  if 0 else inspect.Signature()"),
    ("def h(v: int): return v", "h.__annotations__['v'].__name__", "h.__annotations__['v'] = float"),
    ("def h(v: int): return v", "typing.get_type_hints(h)['v'].__name__",
     "h.__annotations__['v'] = float"),
    ("def h(v, r=1.0): return r", "inspect.getfullargspec(h).defaults", "h.__defaults__ = (2.0,)"),
    ("def h(v): return v", "h.__code__.co_argcount", "h.__code__ = (lambda a, b: a).__code__"),
    ("def h(v): return v", "h.__name__", "h.__name__ = 'z'"),
    ("def h(v): 'a'", "inspect.getdoc(h)", "h.__doc__ = 'z'"),
    ("def h(v): return v", "inspect.isgeneratorfunction(h)",
     "def g(v): yield v\nh.__code__ = g.__code__"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0", "D().r", "D.__init__.__defaults__ = (2.0,)"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0", "D().r", "D.__init__ = lambda s: setattr(s, 'r', 5)"),
    ("@dataclasses.dataclass\nclass D:\n    r: list = dataclasses.field(default_factory=lambda: [R])\nR = 1.0",
     "D().r[0]", "R = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0", "dataclasses.fields(D)[0].default",
     "D.__dataclass_fields__['r'].default = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = D()", "dataclasses.asdict(O)['r']", "O.r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = D()", "dataclasses.astuple(O)", "O.r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = [D()]",
     "dataclasses.asdict(O[0])['r']", "O[0].r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = D()", "dataclasses.replace(O).r", "O.r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = D()", "O == D()", "O.r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: float = 1.0\nO = D()", "str(O)", "O.r = 2.0"),
    ("@dataclasses.dataclass(slots=True)\nclass D:\n    r: float = 1.0\nO = D()", "str([O])", "O.r = 2.0"),
    ("@dataclasses.dataclass(order=True)\nclass D:\n    r: float = 1.0\nO = D()", "O < D(1.5)", "O.r = 2.0"),
    ("@dataclasses.dataclass\nclass D:\n    r: list = dataclasses.field(default_factory=list)\nO = D()",
     "copy.deepcopy(O).r", "O.r.append(1)"),
    ("class E(enum.Enum):\n    A = 1", "E.A.value", "E.A._value_ = 2"),
    ("class E(enum.Enum):\n    A = 1\n    @property\n    def rate(self): return R\nR = 1.0", "E.A.rate",
     "R = 2.0"),
    ("class E(enum.Enum):\n    A = 1\nE.A.extra = 1", "E.A.extra", "E.A.extra = 2"),
    ("N = collections.namedtuple('N', 'a b', defaults=(1, 2))", "N().a", "N.__new__.__defaults__ = (5, 6)"),
    ("class T(typing.NamedTuple):\n    a: float = 1.0", "T().a", "T.__new__.__defaults__ = (5.0,)"),
)

# C code that calls or looks into what it is given -------------------------------------------------

_THINGS = "L = [Thing(r=1.0, n=[1], d={'k': 1.0}), Thing(r=2.0, n=[2], d={'k': 2.0})]\nO = L[0]\n"
rows(
    "c callables",
    *[
        (_THINGS, *given)
        for given in [
            ("min(L, key=operator.attrgetter('r')).r", "L[0].r = 5.0"),
            ("max(L, key=operator.attrgetter('r')) is L[1]", "L[0].r = 5.0"),
            ("[v.r for v in sorted(L, key=operator.attrgetter('r'))]", "L[0].r = 5.0"),
            ("list(map(operator.attrgetter('r'), L))", "L[0].r = 5.0"),
            ("sum(map(operator.attrgetter('r'), L))", "L[1].r = 5.0"),
            ("list(map(operator.attrgetter('r', 'n'), L))", "L[1].n.append(3)"),
            ("list(map(operator.attrgetter('d.keys'), L)) and [*L[0].d]", "L[0].d['z'] = 1"),
            ("operator.attrgetter('r')(O)", "O.r = 5.0"),
            ("G(O)" if 0 else "operator.attrgetter('n')(O)[0]", "O.n[0] = 5.0"),
            ("operator.attrgetter('n.__len__')(O)()", "O.n.append(5)"),
            ("g = operator.attrgetter('r')\nreturn g(O)", "O.r = 5.0"),
            ("g = operator.attrgetter('r')\nreturn [g(v) for v in L]", "O.r = 5.0"),
            ("list(map(operator.itemgetter(0), [v.n for v in L]))", "L[0].n[0] = 5"),
            ("min(L, key=lambda v: v.r).r", "L[0].r = 5.0"),
            ("list(map(vars, L))[0]['r']", "L[0].r = 5.0"),
            ("[vars(v)['r'] for v in L]", "L[0].r = 5.0"),
            ("list(map(getattr, L, ['r', 'r']))", "L[0].r = 5.0"),
            ("list(map(hasattr, L, ['z', 'z']))", "L[0].z = 5.0"),
            ("list(map(len, [v.n for v in L]))", "L[0].n.append(5)"),
            ("list(map(len, map(operator.attrgetter('n'), L)))", "L[0].n.append(5)"),
            ("functools.reduce(getattr, ['d', 'keys'], O) and O.d['k']", "O.d['k'] = 5.0"),
            ("functools.reduce(getattr, ['r'], O)", "O.r = 5.0"),
            ("functools.reduce(operator.getitem, ['d', 'k'], vars(O))", "O.d['k'] = 5.0"),
            ("functools.reduce(operator.add, map(operator.attrgetter('r'), L))", "O.r = 5.0"),
            ("functools.reduce(lambda s, v: s + v.r, L, 0)", "O.r = 5.0"),
            ("functools.reduce(operator.concat, [v.n for v in L])", "O.n.append(7)"),
            ("sum(map(operator.methodcaller('__len__'), [v.n for v in L]))", "O.n.append(7)"),
            ("operator.methodcaller('__getattribute__', 'r')(O)", "O.r = 5.0"),
            ("list(filter(operator.attrgetter('r'), L)) == L", "O.r = 0"),
            ("len(list(filter(operator.attrgetter('n'), L)))", "O.n.clear()"),
            ("list(itertools.filterfalse(operator.attrgetter('r'), L)) == []", "O.r = 0"),
            ("list(itertools.takewhile(operator.attrgetter('r'), L)) == L", "O.r = 0"),
            ("[len(list(g)) for _, g in itertools.groupby(L, operator.attrgetter('r'))]", "O.r = 2.0"),
            ("[k for k, _ in itertools.groupby(L, operator.attrgetter('r'))]", "O.r = 7.0"),
            ("heapq.nlargest(1, L, operator.attrgetter('r'))[0].r", "O.r = 5.0"),
            ("bisect.bisect(L, 1.5, key=operator.attrgetter('r'))", "O.r = 5.0"),
            ("list(map(str, [v.r for v in L]))", "O.r = 5.0"),
            ("list(itertools.starmap(getattr, [(v, 'r') for v in L]))", "O.r = 5.0"),
            ("getattr(*[O, 'r'])", "O.r = 5.0"),
            ("getattr(O, *['r'])", "O.r = 5.0"),
            ("hasattr(*[O, 'z'])", "O.z = 5.0"),
            ("functools.partial(getattr, O)('r')", "O.r = 5.0"),
            ("functools.partial(getattr, O, 'r')()", "O.r = 5.0"),
            ("h = getattr\nreturn h(O, 'r')", "O.r = 5.0"),
            ("(lambda g: g(O, 'r'))(getattr)", "O.r = 5.0"),
            ("O.__getattribute__('r')", "O.r = 5.0"),
            ("object.__getattribute__(O, 'r')", "O.r = 5.0"),
            ("type(O).__getattribute__(O, 'r')", "O.r = 5.0"),
            ("O.__dict__.get('r')", "O.r = 5.0"),
            ("vars(O).copy()['r']", "O.r = 5.0"),
            ("dict(vars(O))['r']", "O.r = 5.0"),
            ("{**vars(O)}['r']", "O.r = 5.0"),
            ("(vars(O) | {})['r']", "O.r = 5.0"),
            ("sorted(vars(O))", "O.z = 5.0"),
            ("len(vars(O))", "O.z = 5.0"),
            ("'z' in vars(O)", "O.z = 5.0"),
            ("O.__reduce_ex__(2)[2]['r']", "O.r = 5.0"),
            ("copy.copy(O).r", "O.r = 5.0"),
            ("copy.deepcopy(L)[0].r", "O.r = 5.0"),
            ("copy.deepcopy(L)[0].n[0]", "O.n[0] = 5.0"),
            ("copy.deepcopy({'a': L})['a'][0].d['k']", "O.d['k'] = 5.0"),
            ("'{0.r}'.format(O)", "O.r = 5.0"),
            ("'{0[0].r}'.format(L)", "O.r = 5.0"),
            ("'{0.d[k]}'.format(O)", "O.d['k'] = 5.0"),
            ("'%(r)s' % vars(O)", "O.r = 5.0"),
            ("string.Formatter().format('{0.r}', O)", "O.r = 5.0"),
            ("f'{O.r:{O.n[0]}}'", "O.n[0] = 9"),
            ("json.dumps(vars(O))", "O.r = 5.0"),
            ("json.dumps(O, default=vars)", "O.r = 5.0"),
            ("json.dumps([1], default=vars) + str(O.r)", "O.r = 5.0"),
            ("pprint.pformat(vars(O))", "O.r = 5.0"),
            ("sum(getattr(v, 'r') for v in L)", "O.r = 5.0"),
            ("sum([v.r for v in reversed(L)])", "O.r = 5.0"),
            ("next(v for v in L if v.r > 1).r", "O.r = 5.0"),
            ("next(filter(lambda v: v.r > 1, L)).r", "O.r = 5.0"),
            ("next(iter(L)).r", "O.r = 5.0"),
            ("next(map(operator.attrgetter('r'), L))", "O.r = 5.0"),
            ("L.copy()[0].r", "O.r = 5.0"),
            ("list(L)[0].r", "O.r = 5.0"),
            ("sorted(L, key=id)[0].r + sorted(L, key=id)[1].r", "O.r = 5.0"),
            ("max(L, key=id).r + min(L, key=id).r", "O.r = 5.0"),
            ("random.Random(0).choice(L[:1]).r", "O.r = 5.0"),
            ("operator.itemgetter(0)(L).r", "O.r = 5.0"),
            ("operator.getitem(L, 0).r", "O.r = 5.0"),
            ("L.__getitem__(0).r", "O.r = 5.0"),
            ("dict(a=L)['a'][0].r", "O.r = 5.0"),
            ("dict(zip('ab', L))['a'].r", "O.r = 5.0"),
            ("[*zip(L, L)][0][1].r", "O.r = 5.0"),
            ("list(enumerate(L))[0][1].r", "O.r = 5.0"),
            ("[v for _, v in enumerate(L)][0].r", "O.r = 5.0"),
            ("collections.deque(L)[0].r", "O.r = 5.0"),
            ("collections.deque(L).popleft().r", "O.r = 5.0"),
            ("list(itertools.chain.from_iterable([L, L]))[0].r", "O.r = 5.0"),
            ("list(itertools.islice(L, 1))[0].r", "O.r = 5.0"),
            ("next(itertools.product(L, L))[1].r", "O.r = 5.0"),
            ("next(itertools.combinations(L, 2))[0].r", "O.r = 5.0"),
            ("next(itertools.cycle(L)).r", "O.r = 5.0"),
            ("np.array(L, object)[0].r", "O.r = 5.0"),
            ("np.vectorize(operator.attrgetter('r'), otypes=[float])(np.array(L, object)).tolist()",
             "O.r = 5.0"),
            ("types.MappingProxyType({'a': O})['a'].r", "O.r = 5.0"),
            ("collections.ChainMap({'a': O})['a'].r", "O.r = 5.0"),
            ("types.SimpleNamespace(a=O).a.r", "O.r = 5.0"),
            ("functools.partial(last, O)().r", "O.r = 5.0"),
            ("contextlib.nullcontext(O).__enter__().r", "O.r = 5.0"),
            ("with contextlib.nullcontext(O) as v:\n    return v.r", "O.r = 5.0"),
            ("(O if x else None).r", "O.r = 5.0"),
            ("(None or O).r", "O.r = 5.0"),
            ("(lambda: O)().r", "O.r = 5.0"),
            ("[v := O, v.r][1]", "O.r = 5.0"),
            ("typing.cast(Thing, O).r", "O.r = 5.0"),
            ("weakref.ref(O)().r", "O.r = 5.0"),
            ("copy.replace(O).r if hasattr(copy, 'replace') and 0 else O.r", "O.r = 5.0"),
            ("inspect.getattr_static(O, 'r')", "O.r = 5.0"),
            ("dict(inspect.getmembers(O))['r']", "O.r = 5.0"),
            ("operator.attrgetter('r')(*L[:1])", "O.r = 5.0"),
            ("list(map(lambda v: v.r, L))", "O.r = 5.0"),
            ("list(map(rate, L)) if 0 else [getattr(v, 'r') for v in L]", "O.r = 5.0"),
            ("asyncio.run(asyncio.sleep(0, O)).r", "O.r = 5.0"),
        ]
    ],
)

# Weak references ----------------------------------------------------------------------------------

_WEAK = "K, V = Thing(r=1.0), Thing(r=1.0)\n"
rows(
    "weak",
    *[
        (_WEAK + setup, *given)
        for setup, *given in [
            ("W = weakref.WeakValueDictionary(a=V)", "W['a'].r", "V.r = 2.0"),
            ("W = weakref.WeakValueDictionary(a=V)", "W['a'].r", "N = Thing(r=2.0); W['a'] = N"),
            ("W = weakref.WeakValueDictionary(a=V)", "W.get('a').r", "N = Thing(r=2.0); W['a'] = N"),
            ("W = weakref.WeakValueDictionary(a=V)", "len(W)", "del V"),
            ("W = weakref.WeakValueDictionary(a=V)", "'a' in W", "del V"),
            ("W = weakref.WeakValueDictionary(a=V)", "sum(v.r for v in W.values())", "V.r = 2.0"),
            ("W = weakref.WeakValueDictionary(a=V)", "[k for k in W]", "W['b'] = K"),
            ("W = weakref.WeakValueDictionary(a=V)", "dict(W)['a'].r", "V.r = 2.0"),
            ("W = weakref.WeakKeyDictionary({K: 1.0})", "W[K]", "W[K] = 2.0"),
            ("W = weakref.WeakKeyDictionary({K: 1.0})", "W.get(K, 5)", "W[K] = 2.0"),
            ("W = weakref.WeakKeyDictionary({K: 1.0})", "sum(W.values())", "W[V] = 2.0"),
            ("W = weakref.WeakKeyDictionary({K: 1.0})", "K in W", "del W[K]"),
            ("W = weakref.WeakKeyDictionary({K: V})", "W[K].r", "V.r = 2.0"),
            ("W = weakref.WeakKeyDictionary({K: [1.0]})", "sum(W[K])", "W[K].append(2.0)"),
            ("W = weakref.WeakKeyDictionary({K: V})", "[k.r for k in W]", "K.r = 5.0"),
            ("W = weakref.WeakSet([K])", "len(W)", "W.add(V)"),
            ("W = weakref.WeakSet([K])", "sum(k.r for k in W)", "K.r = 5.0"),
            ("W = weakref.WeakSet([K])", "V in W", "W.add(V)"),
            ("W = weakref.ref(K)", "W().r", "K.r = 5.0"),
            ("W = weakref.ref(K)", "W() is None", "del K"),
            ("W = weakref.proxy(K)", "W.r", "K.r = 5.0"),
            ("W = weakref.proxy(K)", "getattr(W, 'r')", "K.r = 5.0"),
            ("W = weakref.finalize(K, int)", "W.alive", "del K; gc.collect()"),
            ("W = weakref.WeakMethod(weakref.ref(1).m if 0 else T.m)", "W()(1)", "T.v = 2.0"),
            ("W = weakref.getweakrefcount", "W(K)", "R = weakref.ref(K, int)", "told getweakrefcount"),
        ]
        if "T.m" not in setup
    ],
)

# Threads and tasks --------------------------------------------------------------------------------

_POOL = "RATE = 1.0\ndef h(*a): return RATE\nPOOL = concurrent.futures.ThreadPoolExecutor(1)\n"
rows(
    "threads",
    *[
        (_POOL + setup, read, "RATE = 2.0", "refused")
        for setup, read in [
            ("", "POOL.submit(h).result()"),
            ("", "list(POOL.map(h, [1]))"),
            ("", "with concurrent.futures.ThreadPoolExecutor() as p:\n    return p.submit(h).result()"),
            ("", "out = []\nt = threading.Thread(target=lambda: out.append(h()))\nt.start()\nt.join()\n"
                 "return out[0]"),
            ("T = []\nclass W(threading.Thread):\n    def run(self): self.out = h()",
             "t = W()\nt.start()\nt.join()\nreturn t.out"),
            ("", "asyncio.run(asyncio.to_thread(h))"),
            ("async def main(): return await asyncio.get_running_loop().run_in_executor(None, h)",
             "asyncio.run(main())"),
            ("", "out = []\nt = threading.Timer(0, lambda: out.append(h()))\nt.start()\nt.join()\n"
                 "return out[0]"),
            ("import _thread", "out = []\n_thread.start_new_thread(lambda: out.append(h()), ())\n"
             "while not out: time.sleep(0.001)\nreturn out[0]"),
            ("def go(p): return p.submit(h)", "go(POOL).result()"),
            ("submit = POOL.submit", "submit(h).result()"),
            ("from multiprocessing.pool import ThreadPool\nTP = ThreadPool(1)", "TP.apply(h)"),
            ("from multiprocessing.pool import ThreadPool\nTP = ThreadPool(1)", "TP.map(h, [1])"),
        ]
    ],
    ("RATE = 1.0\nasync def h(): return RATE", "asyncio.run(h())", "RATE = 2.0"),
    ("RATE = 1.0\nasync def h(): return RATE\nasync def main(): return sum(await asyncio.gather(h(), h()))",
     "asyncio.run(main())", "RATE = 2.0"),
    ("RATE = 1.0\ndef h():\n    yield RATE", "list(h())", "RATE = 2.0"),
    ("RATE = 1.0\ndef h():\n    yield\n    yield RATE", "g = h()\nnext(g)\nreturn next(g)", "RATE = 2.0"),
    ("RATE = 1.0\nG = contextvars.copy_context()", "G.run(lambda: RATE)", "RATE = 2.0"),
    ("RATE = 1.0\nV = contextvars.ContextVar('v', default=1)\nG = contextvars.copy_context()",
     "G.run(V.get)", "G.run(V.set, 2)", "told run"),
    ("V = contextvars.ContextVar('v', default=1)", "V.get()", "V.set(2)"),
    ("V = contextvars.ContextVar('v')", "V.get(7)", "V.set(2)"),
    ("V = contextvars.ContextVar('v', default=1)", "contextvars.copy_context().get(V)", "V.set(2)",
     "told copy_context"),
    ("V = contextvars.ContextVar('v', default=1)", "list(contextvars.copy_context().items()) and V.get()",
     "V.set(2)"),
    ("V = contextvars.ContextVar('v', default=[1])", "V.get()[0]", "V.get()[0] = 2"),
    ("T = threading.local(); T.r = 1.0", "T.r", "T.r = 2.0"),
    ("T = threading.local(); T.r = 1.0", "vars(T)['r']", "T.r = 2.0"),
    ("T = threading.local()", "getattr(T, 'r', 1.0)", "T.r = 2.0"),
    ("T = threading.local(); T.r = [1.0]", "T.r[0]", "T.r[0] = 2.0"),
)

# Settings of Python and NumPy ---------------------------------------------------------------------

rows(
    "settings",
    *[
        (f"{setup}\ndef undo(): {undo}", read, change, *more)
        for setup, undo, read, change, *more in [
            ("L = sys.getrecursionlimit()", "sys.setrecursionlimit(L)", "sys.getrecursionlimit()",
             "sys.setrecursionlimit(L + 7)"),
            ("", "sys.setswitchinterval(0.005)", "sys.getswitchinterval()", "sys.setswitchinterval(0.01)"),
            ("", "sys.set_int_max_str_digits(4300)", "sys.get_int_max_str_digits()",
             "sys.set_int_max_str_digits(5000)"),
            ("", "gc.enable()", "gc.isenabled()", "gc.disable()"),
            ("T = gc.get_threshold()", "gc.set_threshold(*T)", "gc.get_threshold()",
             "gc.set_threshold(777)"),
            ("", "gc.set_debug(0)", "gc.get_debug()", "gc.set_debug(gc.DEBUG_SAVEALL)"),
            ("", "sys.argv.remove('--z')", "'--z' in sys.argv", "sys.argv.append('--z')"),
            ("", "sys.path.remove('/z')", "len(sys.path)", "sys.path.append('/z')"),
            ("", "np.set_printoptions(precision=8)", "str(np.array([1 / 3]))",
             "np.set_printoptions(precision=3)"),
            ("A = np.array([1 / 3])", "np.set_printoptions(precision=8)", "str(A)",
             "np.set_printoptions(precision=3)"),
            ("A = np.array([1 / 3])", "np.set_printoptions(precision=8)", "f'{A}'",
             "np.set_printoptions(precision=3)"),
            ("A = np.array([1 / 3])", "np.set_printoptions(precision=8)", "'%s' % A",
             "np.set_printoptions(precision=3)"),
            ("A = [np.array([1 / 3])]", "np.set_printoptions(precision=8)", "repr(A)",
             "np.set_printoptions(precision=3)"),
            ("A = np.array([1 / 3])", "np.set_printoptions(precision=8)", "np.array2string(A)",
             "np.set_printoptions(precision=3)"),
            ("", "np.set_printoptions(precision=8)", "np.get_printoptions()['precision']",
             "np.set_printoptions(precision=3)"),
            ("", "np.set_printoptions(precision=8)", "str(ef.tensor([1 / 3]).numpy())",
             "np.set_printoptions(precision=3)"),
            ("S = np.geterr()", "np.seterr(**S)", "np.geterr()['divide']", "np.seterr(divide='raise')"),
            ("S = np.geterr()\nA = np.zeros(1)", "np.seterr(**S)",
             "try:\n    return float((1 / A)[0])\nexcept FloatingPointError: return 0",
             "np.seterr(divide='raise')", "told error"),
            ("S = np.geterr()\nA = np.zeros(1)", "np.seterr(**S)",
             "try:\n    return float(np.divide(1, A)[0])\nexcept FloatingPointError: return 0",
             "np.seterr(divide='raise')", "told error"),
            ("", "np.setbufsize(8192)", "np.getbufsize()", "np.setbufsize(16384)"),
            ("", "decimal.getcontext().__setattr__('prec', 28)", "decimal.getcontext().prec",
             "decimal.getcontext().prec = 5"),
            ("A = decimal.Decimal(1)", "decimal.getcontext().__setattr__('prec', 28)", "str(A / 3)",
             "decimal.getcontext().prec = 5"),
            ("", "decimal.getcontext().__setattr__('prec', 28)", "str(decimal.Decimal(1) / 3)",
             "decimal.getcontext().prec = 5"),
            ("A = decimal.Decimal(2)", "decimal.getcontext().__setattr__('prec', 28)", "str(A.sqrt())",
             "decimal.getcontext().prec = 5"),
            ("A = decimal.Decimal('2.5')", "decimal.getcontext().__setattr__('rounding', 'ROUND_HALF_EVEN')",
             "str(A.to_integral_value())", "decimal.getcontext().rounding = 'ROUND_UP'"),
            ("", "warnings.resetwarnings()", "len(warnings.filters)", "warnings.simplefilter('once', BytesWarning)"),
            ("H = sys.excepthook", "setattr(sys, 'excepthook', H)", "sys.excepthook is H", "sys.excepthook = int"),
            ("", "setattr(sys, 'dont_write_bytecode', True)", "sys.dont_write_bytecode",
             "sys.dont_write_bytecode = not sys.dont_write_bytecode"),
            ("", "0", "locale.localeconv()['decimal_point'] + str(locale.getlocale())", "pass", "same"),
            ("", "0", "threading.active_count()", "T = threading.Thread(target=time.sleep, args=(0.5,)); T.start()",
             "told active_count"),
            ("", "0", "len(gc.get_objects()) > 0, gc.get_count()[0]", "L = [[] for _ in range(99)]", "told gc.get"),
            ("A = Thing()", "0", "sys.getrefcount(A)", "B = [A, A, A]", "told sys.getrefcount"),
            ("A = [1]", "0", "sys.getsizeof(A)", "A.extend(range(99))"),
            ("", "0", "sys.intern('a') is 'a'", "pass", "same"),
            ("", "threading.setprofile(None)", "threading.current_thread().name",
             "threading.current_thread().name = 'Z'\ndef undo(): threading.current_thread().name = 'MainThread'"),
            ("", "ef.set_memory_limit(None)", "1", "pass", "same"),
            ("H = sys.displayhook", "0", "sys.flags.optimize, sys.version_info[0]", "pass", "same"),
        ]
        if change != "pass"
    ],
)

# Tools, streams, C memory, frames -----------------------------------------------------------------

rows(
    "tools",
    ("L = logging.getLogger('ef.t')", "L.level", "L.level = 7"),
    ("L = logging.getLogger('ef.t1')", "L.isEnabledFor(10)", "L.setLevel(10)", "told isEnabledFor"),
    ("L = logging.getLogger('ef.t2')", "L.getEffectiveLevel()", "L.setLevel(7)", "told getEffectiveLevel"),
    ("L = logging.getLogger('ef.t3')", "len(L.handlers)", "L.addHandler(logging.NullHandler())"),
    ("", "logging.getLogger('ef.t4').level", "logging.getLogger('ef.t4').setLevel(7)"),
    ("", "logging.getLogger('ef.t5').isEnabledFor(10)", "logging.getLogger('ef.t5').setLevel(10)",
     "told isEnabledFor"),
    ("", "logging.root.level", "logging.root.setLevel(7)\ndef undo(): logging.root.setLevel(30)"),
    ("F = concurrent.futures.Future()", "F.done()", "F.set_result(1)"),
    ("F = concurrent.futures.Future()\nF.set_result(1.0)", "F.result()", "F._result = 2.0"),
    ("F = concurrent.futures.Future()", "F.cancelled()", "F.cancel()"),
    ("F = concurrent.futures.Future()", "F.result() if F.done() else 0", "F.set_result(5)"),
    ("L = threading.Lock()", "L.locked()", "L.acquire()"),
    ("L = threading.Lock()", "L.acquire(blocking=False) and (L.release() or 1)", "L.acquire()",
     "told acquire"),
    ("E = threading.Event()", "E.is_set()", "E.set()"),
    ("E = threading.Event()", "E.wait(0)", "E.set()"),
    ("S = threading.Semaphore(1)", "S._value", "S.acquire()"),
    ("T = threading.Thread(target=time.sleep, args=(0.2,))", "T.is_alive()", "T.start()"),
    ("Q = queue.Queue()", "Q.qsize()", "Q.put(1)"),
    ("Q = queue.Queue()", "Q.empty()", "Q.put(1)"),
    ("Q = queue.Queue()\nfor i in range(99): Q.put(i)", "Q.get()", "pass", "refused"),
    ("Q = queue.SimpleQueue()", "Q.qsize()", "Q.put(1)", "refused"),
    ("Q = collections.deque(range(99))", "Q.popleft()", "pass", "refused"),
    ("import io\nF = io.StringIO('ab')", "F.read(1)", "pass", "refused"),
    ("import io\nF = io.StringIO('ab')", "F.getvalue()", "F.write('zz')", "refused"),
    ("import io\nF = io.StringIO('ab')", "F.tell()", "F.write('zz')", "refused"),
    ("import io\nF = io.BytesIO(b'ab')", "F.getbuffer()[0]", "F.write(b'z')", "refused"),
    ("import io\nclass Tee(io.StringIO): rate = 1.0\nF = Tee()", "F.rate", "F.rate = 2.0"),
    ("class Tee:\n    def __init__(self): self.n = 0\n    def write(self, s): self.n += 1\nF = Tee()",
     "F.n", "F.write('a')"),
    ("G = (v for v in range(99))", "next(G)", "pass", "refused"),
    ("G = iter(range(9))", "next(G)", "pass", "refused"),
    ("G = itertools.count()", "next(G)", "pass", "refused"),
    ("G = zip([1.0], [2.0])", "list(G)", "pass", "refused"),
    ("G = map(float, [1, 2])", "sum(G)", "pass", "refused"),
    ("G = enumerate([1.0])", "dict(G)", "pass", "refused"),
    ("G = reversed([1.0])", "[*G]", "pass", "refused"),
    ("G = itertools.cycle([1.0, 2.0])", "next(G)", "pass", "refused"),
    ("P = ctypes.c_double(1.0)", "P.value", "P.value = 2.0"),
    ("P = (ctypes.c_double * 2)(1.0, 2.0)", "P[0]", "P[0] = 2.0", "refused"),
    ("P = (ctypes.c_double * 2)(1.0, 2.0)", "sum(P)", "P[0] = 2.0", "refused"),
    ("P = (ctypes.c_double * 2)(1.0, 2.0)", "P[:]", "P[0] = 2.0", "refused"),
    ("class S(ctypes.Structure): _fields_ = [('r', ctypes.c_double)]\nP = S(1.0)", "P.r", "P.r = 2.0"),
    ("class S(ctypes.Structure): _fields_ = [('r', ctypes.c_double)]\nP = S(1.0)", "bytes(P).hex()",
     "P.r = 2.0", "refused"),
    ("V = ctypes.c_double(1.0)\nP = ctypes.pointer(V)", "P.contents.value", "V.value = 2.0"),
    ("V = ctypes.c_double(1.0)\nP = ctypes.pointer(V)", "P[0]", "V.value = 2.0", "refused"),
    ("A = np.ones(1)\nP = A.ctypes.data", "ctypes.c_double.from_address(P).value", "A[0] = 2.0",
     "told from_address"),
    ("A = np.ones(1)\nP = A.ctypes.data", "ctypes.string_at(P, 8).hex()", "A[0] = 2.0", "told string_at"),
    ("A = np.ones(1)\nP = A.ctypes.data", "ctypes.cast(P, ctypes.POINTER(ctypes.c_double))[0]",
     "A[0] = 2.0", "told cast"),
    ("A = np.ones(1)\nB = A[:]", "B.tolist()", "A[0] = 2.0"),
    ("A = bytearray(b'a')\nB = memoryview(A)", "bytes(B)", "A[0] = 98", "refused"),
    ("A = bytearray(8)\nB = np.frombuffer(A)", "B.tolist()", "A[7] = 64"),
    ("import mmap\nB = mmap.mmap(-1, 8)", "B[:4].hex()", "B[0] = 1", "refused"),
    ("R = 1.0\ndef call(): return step(2.5) if 0 else R", "sys._getframe().f_globals['R']", "R = 2.0",
     "told sys._getframe"),
    ("R = 1.0", "inspect.currentframe().f_globals['R']", "R = 2.0", "told currentframe"),
    ("", "len(inspect.stack()) > 0, sys._getframe(0).f_lineno", "pass", "same"),
    ("R = 1.0\ndef h(): return R\nG = h.__globals__", "G['R']", "R = 2.0"),
    ("R = 1.0\ndef h(): return R", "h.__globals__['R']", "R = 2.0"),
    ("def outer():\n    r = 1.0\n    def g(): return r\n    def put():\n        nonlocal r\n        r = 2.0\n"
     "    return g, put\ng, put = outer()", "g.__closure__[0].cell_contents", "put()"),
    ("def outer():\n    r = 1.0\n    def g(): return r\n    def put():\n        nonlocal r\n        r = 2.0\n"
     "    return g, put\ng, put = outer()", "inspect.getclosurevars(g).nonlocals['r']", "put()",
     "told getclosurevars"),
    ("W = ef.Variable(1.0, name='w')", "W.name", "W.name = 'v'"),
    ("W = ef.Variable(1.0, name='w')", "W.trainable", "W.trainable = False"),
    ("W = ef.Variable(1.0, name='w')", "repr(W)", "W.assign(2.0)", "refused"),
    ("W = ef.Variable(1.0, name='w')", "f'{W}'", "W.assign(2.0)", "refused"),
    ("W = ef.Variable(1.0, name='w')", "str([W])", "W.assign(2.0)", "refused"),
    ("W = ef.Variable(1.0, name='w')", "x * W", "W.assign(2.0)"),
    ("W = [ef.Variable(1.0)]", "x * W[0]", "W[0] = ef.Variable(2.0)"),
    ("W = ef.Variable(1.0)", "x * float(W.numpy())", "W.assign(2.0)", "refused"),
    ("T = ef.tensor([1.0])", "repr(T)", "T = ef.tensor([2.0])"),
    ("T = ef.tensor([1.0])", "x * T", "T = ef.tensor([2.0])"),
    ("", "len(ef.zeros((2,)).shape)", "pass", "same"),
    ("R = 1.0\ndef h():\n    sys.settrace(None)\n    return R", "t = sys.gettrace()\ny = h()\n"
     "sys.settrace(t)\nreturn y", "R = 2.0"),
    ("R = 1.0", "t = sys.gettrace()\nsys.settrace(None)\ny = R\nsys.settrace(t)\nreturn y", "R = 2.0"),
    ("R = 1.0", "sys._getframe().f_trace_lines = False\ny = R\nreturn y", "R = 2.0"),
)

# Arrays and scalars that are no plain arrays -------------------------------------------------------

rows(
    "arrays",
    ("G = np.array([(1, 2.0)], 'i4,f8')[0]", "float(G[1])", "G[1] = 5.0"),
    ("G = np.array([(1, 2.0)], 'i4,f8')[0]", "float(G['f1'])", "G['f1'] = 5.0"),
    ("G = np.array([(1, 2.0)], 'i4,f8')[0]", "str(G.item())", "G['f1'] = 5.0"),
    ("G = np.array([(1, 2.0)], 'i4,f8')[0]", "[float(v) for v in G]", "G['f1'] = 5.0"),
    ("G = np.rec.array([(1, 2.0)], 'i4,f8')[0]", "float(G.f1)", "G.f1 = 5.0"),
    ("G = np.rec.array([(1, 2.0)], 'i4,f8')", "float(G.f1[0])", "G.f1[0] = 5.0"),
    ("A = np.array([(1, 2.0)], 'i4,f8')\nG = A[0]", "float(G[1])", "A['f1'] = 5.0"),
    ("G = np.array([[1.0], [2.0]], object)", "G[0, 0]", "G[0, 0] = 5.0"),
    ("G = np.array([None, None]); G[0] = [1.0]", "G[0][0]", "G[0][0] = 5.0"),
    ("G = np.array([None, None]); G[0] = [1.0]", "sum(G[0])", "G[0].append(5.0)"),
    ("G = np.array([None, None]); G[0] = Thing(r=1.0)", "G[0].r", "G[0].r = 5.0"),
    ("G = np.array([None, None]); G[0] = [1.0]", "str(G)", "G[0].append(5.0)"),
    ("class A(np.ndarray): pass\nG = np.ones(2).view(A); G.r = 1.0", "G.r", "G.r = 2.0"),
    ("class A(np.ndarray): pass\nG = np.ones(2).view(A); G.r = 1.0", "G.sum() * G.r", "G.r = 2.0"),
    ("class A(np.ndarray):\n    def total(self): return float(self.sum()) * R\nG = np.ones(2).view(A)\nR = 1",
     "G.total()", "R = 2.0"),
    ("class A(np.ndarray):\n    def __getitem__(self, k): return R\nG = np.ones(2).view(A)\nR = 1",
     "G[0]", "R = 2.0"),
    ("G = np.ones(2)", "G.sum()", "G[0] = 2.0"),
    ("G = np.ones(2)", "G.dtype.name", "G.dtype = 'i8'"),
    ("G = np.ones(4)", "G.shape", "G.shape = (2, 2)"),
    ("G = np.ones(2)", "G.flags.writeable", "G.flags.writeable = False"),
    ("G = np.ones(2)", "[float(v) for v in np.nditer(G)]", "G[0] = 2.0"),
    ("G = np.ones(2)", "float(G.flat[0])", "G[0] = 2.0"),
    ("G = np.ones(2)", "G.T.tolist()", "G[0] = 2.0"),
    ("G = np.ones(2)", "memoryview(G)[0]", "G[0] = 2.0"),
    ("G = np.ones(2)", "np.lib.stride_tricks.as_strided(G, (1,)).tolist()", "G[0] = 2.0"),
    ("G = np.ones((2, 2))", "[r.tolist() for r in G]", "G[0, 0] = 2.0"),
    ("G = np.poly1d([1.0, 2.0])", "G(x)", "G.coeffs[0] = 5.0"),
    ("G = np.poly1d([1.0, 2.0])", "G(x)", "G = np.poly1d([5.0, 2.0])"),
    ("G = np.vectorize(lambda v: v * R)\nR = 1.0", "float(G(x))", "R = 2.0"),
    ("G = np.frompyfunc(lambda v: v * R, 1, 1)\nR = 1.0", "float(G(x))", "R = 2.0"),
    ("G = np.matrix([[1.0]])", "float(G[0, 0])", "G[0, 0] = 2.0"),
    ("G = np.char.array(['a', 'b'])", "str(G[0])", "G[0] = 'z'"),
    ("G = np.ma.array([1.0], mask=[0])", "float(G.sum())", "G[0] = 2.0", "refused"),
)

# What comes as an argument, and is changed in place: ``f`` takes ``A`` as well --------------------

ARGUMENTS = {
    "set": ("{1.0}", "min(a)", "A.add(0.5)"),
    "set, asked": ("{1.0}", "0.5 in a", "A.add(0.5)"),
    "set, walked": ("{1.0}", "[v for v in a]", "A.add(0.5)"),
    "frozenset of lists": ("(frozenset([1]), {2.0})", "sorted(a[1])", "A[1].add(0.5)"),
    "deque": ("collections.deque([1.0])", "a[-1]", "A.append(0.5)"),
    "deque, spread": ("collections.deque([1.0])", "last(*a)", "A.append(0.5)"),
    "bytearray": ("bytearray(b'a')", "a[0]", "A[0] = 98"),
    "bytearray, whole": ("bytearray(b'a')", "bytes(a)", "A[0] = 98"),
    "array": ("array.array('d', [1.0])", "a[0]", "A[0] = 0.5"),
    "list": ("[1.0]", "x * a[0]", "A[0] = 0.5"),
    "dict": ("{'k': 1.0}", "x * a['k']", "A['k'] = 0.5"),
    "list of objects": ("[Thing(r=1.0)]", "a[0].r", "A[0].r = 0.5"),
    "list of sets": ("[{1.0}]", "min(a[0])", "A[0].add(0.5)"),
    "dict of deques": ("{'k': collections.deque([1.0])}", "sum(a['k'])", "A['k'].append(0.5)"),
    "object": ("Thing(r=1.0)", "a.r", "A.r = 0.5"),
    "object with a list": ("Thing(r=[1.0])", "a.r[0]", "A.r[0] = 0.5"),
    "object with a set": ("Thing(r={1.0})", "min(a.r)", "A.r.add(0.5)"),
    "object with a set, whole": ("Thing(r={1.0})", "str(vars(a))", "A.r.add(0.5)"),
    "user list": ("collections.UserList([1.0])", "a[0]", "A[0] = 0.5"),
    "user dict": ("collections.UserDict(k=1.0)", "a['k']", "A['k'] = 0.5"),
    "chain map": ("collections.ChainMap({'k': 1.0})", "a['k']", "A.maps[0]['k'] = 0.5"),
    "ordered dict": ("collections.OrderedDict(k=1.0)", "x * a['k']", "A['k'] = 0.5"),
    "default dict": ("collections.defaultdict(float, k=1.0)", "x * a['k']", "A['k'] = 0.5"),
    "list subclass": ("type('L', (list,), {})([1.0])", "x * a[0]", "A[0] = 0.5"),
    "dict subclass": ("type('D', (dict,), {})(k=1.0)", "x * a['k']", "A['k'] = 0.5"),
    "mapping proxy": ("types.MappingProxyType(T)", "a['k']", "T['k'] = 0.5"),
    "structured scalar": ("np.array([(1, 2.0)], 'i4,f8')[0]", "float(a[1])", "A[1] = 0.5"),
    "array of objects": ("np.array([1.0, 2.0], object)", "a[0]", "A[0] = 0.5"),
    "array subclass": ("np.ones(2).view(type('N', (np.ndarray,), {}))", "x * a", "A[0] = 0.5"),
    "masked array": ("np.ma.array([1.0], mask=[0])", "x * a", "A[0] = 0.5"),
    "array": ("np.ones(2)", "x * a", "A[0] = 0.5"),
    "dataclass": ("DC()", "a.r", "A.r = 0.5"),
    "dataclass with a list": ("DC()", "sum(a.l)", "A.l.append(0.5)"),
    "namespace": ("types.SimpleNamespace(r=1.0)", "a.r", "A.r = 0.5"),
    "function": ("(lambda: R)", "a()", "R = 0.5"),
    "partial": ("functools.partial(last, T)", "a()['k']", "T['k'] = 0.5"),
    "bound method": ("Thing(r=1.0).__getattribute__", "a('r')", "A.__self__.r = 0.5"),
    "class": ("type('K', (), {'r': 1.0})", "a.r", "A.r = 0.5"),
    "module": ("fake('arg_m', r=1.0)", "a.r", "A.r = 0.5"),
    "weak reference": ("weakref.ref(O)", "a().r", "O.r = 0.5"),
    "context variable": ("contextvars.ContextVar('v', default=1)", "a.get()", "A.set(2)"),
    "enum with attributes": ("E.A", "a.extra", "E.A.extra = 2"),
    "ctypes": ("ctypes.c_double(1.0)", "a.value", "A.value = 2.0"),
    "range": ("range(2)", "[*a]", "A = range(3)"),
    "slice": ("slice(1)", "a.stop", "A = slice(True)"),
    "date": ("datetime.datetime(2020, 1, 1)", "a.fold", "A = datetime.datetime(2020, 1, 1, fold=1)"),
    "decimal": ("decimal.Decimal('1.0')", "str(a)", "A = decimal.Decimal('1.00')"),
    "NaN": ("float('nan')", "str(np.float64(a).tobytes())", "A = -A"),
    "variable": ("ef.Variable(1.0)", "x * a", "A.assign(2.0)"),
    "iterator": ("iter([1.0, 2.0])", "next(a)", "pass", "refused"),
}
for _name, (_make, _read, _change, *_more) in ARGUMENTS.items():
    ROWS[f"argument: {_name}"] = (
        "T = {'k': 1.0}\nR = 1.0\nO = Thing(r=1.0)\nclass E(enum.Enum): A = 1\nE.A.extra = 1\n"
        "@dataclasses.dataclass\nclass DC:\n    r: float = 1.0\n"
        f"    l: list = dataclasses.field(default_factory=lambda: [1.0])\nA = {_make}",
        _read, _change, _more[0] if _more else "right",
    )  # fmt: skip
