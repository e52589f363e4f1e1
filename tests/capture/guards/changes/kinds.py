"""Kinds of changes as texts: the setup, the function's result, and the change.

``kinds.txt`` has groups that begin with ``== name`` and the lines that set up all of a group. Each
paragraph below is a kind: lines with ``?`` set more up, lines with ``->`` change something, the
rest is read by the function. A line with ``=`` gives the expectation where the change is not
just noticed: ``refused``, or ``told`` and names ``explain`` and ``ledger`` show as not watched.
"""

import itertools
import logging
import sys
from pathlib import Path

from tests.capture.guards.changes import module

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


def forget():
    """Remove the traces of kinds in the process, so that they can be tried again."""
    for name in [name for name in sys.modules if name.startswith("cfg_")]:
        del sys.modules[name]
    loggers = logging.root.manager.loggerDict
    for name in [name for name in loggers if name.startswith("ef.t")]:
        del loggers[name]


_names = {}
exec(compile(PRELUDE, "prelude.py", "exec"), _names)


def parse(text):
    """Rows (setup, read, change, expected) by name."""
    found = {}
    for group in ("\n" + text).split("\n== ")[1:]:
        head, *paragraphs = group.strip("\n").split("\n\n")
        name, *shared = head.splitlines()
        for number, paragraph in enumerate(paragraphs):
            parts = {"? ": list(shared), "->": [], "= ": [], "": []}
            for line in paragraph.splitlines():
                mark = line[:2] if line[:2] in parts else ""
                parts[mark].append(line[len(mark) :].removeprefix(" " if mark == "->" else ""))
            setup, change, expected, read = ("\n".join(part) for part in parts.values())
            label = f"{name} {number}: {read.splitlines()[0]}"
            found[label] = setup, read, change, expected or "right"
    return found


ROWS = parse(Path(__file__).with_suffix(".txt").read_text())


def built(row, argument=False):
    """The module of a row, its function, and the function that makes the change."""
    setup, read, change, _ = row
    body = read if "return" in read else f"return {read}"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    head = f"def f(x{', a' if argument else ''})"
    made = module(f"{setup}\n{head}:\n{lines}\n", **_names)
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
READERS = (
    """
sum({0}) | sorted({0}) | min({0}) | max({0}, key=operator.neg) | len({0}) | list({0}) | tuple({0})
set({0}) == {{1.0, 2.0}} | 0.5 in {0} | not any(v == 0.5 for v in {0}) | [v for v in {0}]
str({0}) | repr({0}) | f"{{{0}}}" | "%s" % ({0},) | "{{}}".format({0}) | format({0})
list(map(float, {0})) | list(map(operator.neg, {0})) | functools.reduce(operator.add, {0})
functools.reduce(max, {0}) | last(*{0}) | O.last(*{0}) | max(*{0}) | [*{0}][-1]
list(reversed(list({0}))) | list({0})[::-1]
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
""".replace("\n", " | ")
    .strip(" |")
    .split(" | ")
)
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
                reader.format(place),
                change.format(target if where != "alias" else "G"),
                "",
            )
            yield f"{name}, {where}, {reader}", row
        next(holders)


# Equal values that differ, by themselves and in objects that are remembered as a whole ------------

_UTC = "datetime.timezone.utc"
_EAST = "datetime.timezone(datetime.timedelta(hours=1))"
EQUALS = [
    (
        f"datetime.datetime(2020, 1, 1, 12, tzinfo={_UTC})",
        f"datetime.datetime(2020, 1, 1, 13, tzinfo={_EAST})",
        "G.hour",
    ),
    (
        f"datetime.datetime(2020, 1, 1, 12, tzinfo={_UTC})",
        f"datetime.datetime(2020, 1, 1, 13, tzinfo={_EAST})",
        "str(G)",
    ),
    ("datetime.datetime(2020, 1, 1)", "datetime.datetime(2020, 1, 1, fold=1)", "G.fold"),
    ("datetime.time(12)", "datetime.time(12, fold=1)", "G.fold"),
    (f"datetime.time(12, tzinfo={_UTC})", f"datetime.time(13, tzinfo={_EAST})", "G.hour"),
    (
        "datetime.timezone(datetime.timedelta(0))",
        "datetime.timezone(datetime.timedelta(0), 'X')",
        "G.tzname(None)",
    ),
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
    (
        "struct.unpack('<d', bytes.fromhex('000000000000f87f'))[0]",
        "struct.unpack('<d', bytes.fromhex('010000000000f87f'))[0]",
        "struct.pack('<d', G).hex()",
    ),
    (
        "np.float64('nan')",
        "np.frombuffer(bytes.fromhex('010000000000f87f'))[0]",
        "G.tobytes().hex()",
    ),
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
    ("enum.IntEnum('E', 'A B').A", "enum.IntEnum('E', 'A B').B", "G.name"),
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
]
for _number, (_before, _after, _read, *_more) in enumerate(EQUALS):
    _expected = _more[0] if _more else "right"
    ROWS[f"equal {_number}: {_read}"] = f"G = {_before}", _read, f"G = {_after}", _expected
    ROWS[f"equal within {_number}: {_read}"] = (
        f"T = {{'v': ({_before},)}}",
        f"(lambda G: {_read})(list(T.values())[0][0])",
        f"T['v'] = ({_after},)",
        _expected,
    )


# Models: the library's code reads them; their steps are captured by themselves --------------------

_MODEL = """
ef.random.seed(0)
X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
Y = X * 2
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

MODELS = {
    "add": (_MODEL, "m.add(EXTRA)"),
    "pop": (_MODEL, "m.pop()"),
    "a layer is replaced in the list": (_MODEL, "m.layers[1] = EXTRA"),
    "the list is replaced": (_MODEL, "m.layers = [m.layers[0], EXTRA]"),
    "layers change places": (_MODEL, "m.layers.reverse()"),
    "a layer is inserted": (_MODEL, "m.layers.insert(0, EXTRA)"),
    "an activation": (_MODEL, "m.layers[0].activation = ef.nn.activations.get('relu')"),
    "a kernel": (_MODEL, "m.layers[0].kernel = EXTRA.kernel"),
    "no bias": (_MODEL + "m.layers[0].bias.assign([1.0, 2.0, 3.0])", "m.layers[0].bias = None"),
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
        "m.layers.append(Own(3)); m(X)",
        "Own.call = lambda self, v: v",
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
