"""The programs of plans hold names of ours and numbers alone, whatever a graph's names say."""

import ast
import builtins
import inspect
import random
import sys
import traceback

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.codegen.numpy import in_place
from eagerflow.devices import current_device
from eagerflow.errors import CaptureError, EagerflowError, IndexRangeError, printable
from eagerflow.graph.sizes import concrete
from eagerflow.op import Missing, ops
from eagerflow.plan import plan as plans
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import Replay, as_written
from eagerflow.runtime.python_code import compiled
from tests.capture.saving.saved_programs import PROGRAMS, changed, dense
from tests.internals import program_of
from tests.plan.programs import FILE, ODD, foreign, odd_text, renamed

X = ef.TensorSpec((3,), "float32")
HALF = np.array([0.5, -1.0, 2.0], "float32")


def text_of(plan):
    return "\n".join(program_of(plan).lines)


# What a file says ---------------------------------------------------------------------------------

PAYLOADS = [
    f"train.py{end}{lead}import builtins; builtins.ran = True{tail}"
    for end in ("\n", "\r", "\r\n", "\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "\n\n")
    for lead, tail in (("", "\n"), ("    ", "\n"), ("    ", "#"), (";", ""))
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_place_in_a_file_is_never_run(payload):
    def change(tables):
        tables["sources"] = [[payload, 1, payload] for _ in tables["sources"]]

    graph = file.decode(changed(file.encode(dense()), change))
    graph.check()
    arrays = [np.ones((4, 3), "float32"), np.array(True)]
    feeds = dict(zip(graph.inputs, arrays, strict=False))
    ef.capture.Session(graph).run(list(graph.outputs), feeds)
    graph(*arrays[: len(graph.inputs)])
    Replay(graph, "exact").run(arrays[: len(graph.inputs)])
    for shown in (str(graph), str(graph.costs(batch=4)), graph.plan(sizes={"batch": 4}).source()):
        assert all(line.isprintable() for line in shown.split("\n"))
    assert not hasattr(builtins, "ran")


# Names --------------------------------------------------------------------------------------------


def program(name, other):
    """A graph with these two names for everything that has one."""
    v = ef.Variable(HALF, name=name)
    w = ef.Variable(HALF + 1, name=other)

    def f(a, b):
        with ef.capture.scope(name):
            c = ef.sin(a) - b
        with ef.capture.scope(other):
            d = ef.sin(b) - v * w
        v.assign(v + a)
        w.assign(w - b)
        return {name: c, other: d}

    a, b = (ef.TensorSpec((3,), "float32", name=n) for n in (name, other))
    return ef.capture.trace(f, a, b)


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("µ", "μ"),
        ("σ²", "σ2"),
        ("x½", "x1⁄2"),
        ("ﬁ", "fi"),
        ("ſ", "s"),
        ("𝐱", "x"),
        ("ª", "a"),
        ("été", "e_te"),
        ("x\n", "x\r"),
        ("__debug__", "__class__"),
        ("b0", "buffers"),
        ("x" * 200, "x" * 199 + "y"),
        ("match", "_"),
        ("名", "前"),
    ],
)
def test_names_that_python_reads_as_one(name, other, numerics):
    """Inputs, Variables, scopes, nodes and outputs whose names are alike stay two."""
    graph = program(name, other)
    a, b = np.array([1.0, 2.0, 3.0], "float32"), np.array([5.0, 7.0, 11.0], "float32")
    for loaded in (graph, file.decode(file.encode(graph))):
        found = Replay(loaded, numerics).run([a, b])
        np.testing.assert_allclose(found[0].numpy(), np.sin(a) - b, rtol=1e-5)
        np.testing.assert_allclose(found[1].numpy(), np.sin(b) - HALF * (HALF + 1), rtol=1e-5)
        v, w = (cell.variable for cell in loaded.cells)
        np.testing.assert_allclose(v.numpy(), HALF + a, rtol=1e-6)
        np.testing.assert_allclose(w.numpy(), HALF + 1 - b, rtol=1e-6)
        v.assign(HALF)
        w.assign(HALF + 1)


def test_plan_source_keeps_plain_names():
    graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, X, name="net")
    lines = graph.plan(numerics="exact").source().splitlines()
    assert lines[0] == "def replay(buffers, x):"
    assert lines[-2].startswith("    multiply = _multiply(tanh, 2.0)")
    assert "# test_lowering.py:" in lines[-2]


# All that a graph's maker can choose --------------------------------------------------------------

ATTRIBUTES = [
    lambda x: ef.reshape(x, (3, 1)),
    lambda x: ef.sum(x, axis=0),
    lambda x: ef.einsum("i,i->i", x, x),
    lambda x: ef.pad(x, 1, mode="edge"),
    lambda x: x[..., None, ::2],
    lambda x: ef.leaky_relu(x),
    lambda x: ef.astype(x, "float64"),
    lambda x: ef.full((3,), 2.5) + x,
    lambda x: x**2.0,
    lambda x: ef.arange(3) + x,
    lambda x: ef.roll(x, 1),
    lambda x: ef.sort(x, descending=True),
]
VALUES = [
    "x",
    "'); import os; ('",
    "\n",
    float("nan"),
    float("inf"),
    -0.0,
    1e308,
    2**63,
    2**64,
    10**5000,
    -(2**63),
    1j,
    complex("nan"),
    (1, ("a", None)),
    slice(1, None, "x"),
    Ellipsis,
    None,
    True,
    np.dtype("float32"),
    (),
    ((),),
    (float("-inf"),),
    np.float64(1.5),
    np.int64(3),
    b"x",
    1.5,
]


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_graphs_make_plans_without_a_foreign_part(seed):
    rng = random.Random(seed)
    graphs = [make() for make in PROGRAMS.values()]
    made = checked = 0
    for number in range(60):
        graph = rng.choice(graphs)
        if rng.random() < 0.7:
            graph = ef.capture.trace(rng.choice(ATTRIBUTES), X)
            node = rng.choice([n for n in graph.nodes if n.attributes] or graph.nodes)
            if node.attributes and rng.random() < 0.7:
                node.attributes[rng.choice(list(node.attributes))] = rng.choice(VALUES)
        elif rng.random() < 0.3:
            for node in graph.nodes[:3]:
                if node.op.family == "elementwise":
                    node.inputs = tuple(rng.choice((x, 2.5, 1j, 10**400)) for x in node.inputs)
        graph = renamed(graph, (seed, number).__hash__())
        graph.cache.clear()
        sizes = {"batch": 2, "n": 3, "m": 2}
        made += 1
        try:
            filled = concrete(graph, sizes)
            plan = Plan(filled, as_written, current_device(), exact=bool(number % 2))
        except EagerflowError:
            continue
        checked += 1
        assert foreign(text_of(plan)) == []
        assert FILE.fullmatch(plan.file)
        assert len(plan.source().splitlines()) == len(text_of(plan).splitlines())
        assert all(line.isprintable() for line in plan.source().split("\n"))
        assert text_of(plan).isascii()
    assert checked > made // 2


def test_an_attribute_with_a_name_in_other_letters(monkeypatch):
    def scaled(xp, x, /, *, größe=2.0, µ=1.0):
        return x * größe + µ

    none = Missing("for tests")
    op = ops["leaky_relu"]
    facts = {n: getattr(op, n) for n in ("data", "variadic", "dtypes", "together", "infer", "cost")}
    made = type(op)(
        name="scaled",
        family="custom",
        kernel=scaled,
        doc="A test.",
        partials=none,
        vjp=none,
        jvp=none,
        saves=frozenset(),
        batch=none,
        split=none,
        onnx=none,
        scalar=none,
        attributes=dict(scaled.__kwdefaults__),
        **facts | {"infer": lambda x, **_: x},
    )
    graph = ef.capture.trace(lambda x: ef.tanh(x), X)
    (node,) = graph.nodes
    node.op, node.attributes = made, {"größe": 3.0, "μ": 0.5}
    plan = Plan(graph, as_written, current_device(), exact=True)
    assert plan.run([HALF])[0].tolist() == (HALF * 3.0 + 0.5).tolist()
    assert foreign(text_of(plan)) == []


FOREIGN = [
    "import os",
    "from os import path",
    "a = 'x'",
    "a = b'x'",
    "a = f'{b}'",
    "a = 1j",
    "a = b.__class__",
    "a = b.reshape.__self__",
    "a = unknown",
    "unknown = a",
    "a = _f(unknown=1)",
    "def f(a=1): pass",
    "def f(*a): pass",
    "def f(**a): pass",
    "def f(a, /): pass\nlambda: 0",
    "class A: pass",
    "a = lambda: b",
    "a = [b]",
    "a = {}",
    "a = (*_f(b), b)",
    "a = (*(b, b), b)",
    "(*a, b) = b",
    "a = {b}",
    "a = [b for b in a]",
    "a = (b for b in a)",
    "with a: pass",
    "try: pass\nexcept: pass",
    "raise a",
    "assert a",
    "global a",
    "a += b",
    "a: b = 1",
    "a = b if a else b",
    "a = b and a",
    "a = a + b",
    "a = a < b",
    "a = b[1:2]",
    "a, *b = a",
    "a = _f(*b)",
    "a = _f(**b)",
    "@a\ndef b(): pass",
    "yield a",
    "await a",
    "def b[a](): pass",
    "a = (b := 1)",
    "del unknown",
    "def unknown(): pass",
    "def b(unknown): pass",
    "match a:\n  case 1: pass",
    "async def b(): pass",
    "def b(a: _f): pass",
    "nonlocal a",
    "a = ~b",
    "for unknown in a: pass",
    "a = a is b",
    "while a:\n  continue",
    "a = 1 = b",
    "a = (",
    "a = \x00",
    "a" + "(" * 500 + ")" * 500,
]


@pytest.mark.parametrize("text", FOREIGN)
def test_code_outside_the_plan_language_is_refused(text):
    with pytest.raises(CaptureError, match="the program of a plan"):
        compiled(text, "<eagerflow plan 0>", {"a", "b", "_f", "out"})


def test_the_code_that_runs_is_the_tree_that_was_checked(monkeypatch):
    """A line that lowering should never write is stopped before it runs."""
    real = plans.lower

    def lower(*args):
        program = real(*args)
        program.lines.insert(1, "    __import__('builtins').ran = True")
        program.places.insert(1, None)
        return program

    graph = ef.capture.trace(lambda x: ef.tanh(x), X)
    monkeypatch.setattr(plans, "lower", lower)
    with pytest.raises(CaptureError, match="has unexpected parts: letters"):
        graph.plan(numerics="exact")
    assert not hasattr(builtins, "ran")


def test_nothing_else_in_the_package_runs_text():
    """``exec`` and the like stand where plans and kernels are made, and in the demo's prompt."""
    assert in_place.program_of  # its module is there
    found = set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not name.startswith("eagerflow.") or path is None:
            continue
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            word = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if word in ("exec", "eval", "compile", "__import__"):
                found.add((name, word))
    assert found - {("eagerflow.cli.demo", "exec"), ("eagerflow.cli.demo", "eval")} == {
        ("eagerflow.plan.plan", "exec"),
        ("eagerflow.runtime.python_code", "compile"),
        ("eagerflow.codegen.numpy.in_place", "exec"),
    }


# Loops and branches in each other -----------------------------------------------------------------


def tower(kind, depth):
    """A program of so many loops or branches in each other."""

    def level(x, number):
        if number == depth:
            return ef.tanh(x) + 1.0
        within = lambda y: level(y, number + 1)
        if kind == "cond":
            return ef.cond(ef.sum(x) > -1e9, within, lambda y: y, x)
        if kind == "switch":
            return ef.switch(ef.astype(ef.sum(x) * 0 + 1, "int32"), [lambda y: y, within], x)
        if kind == "while":
            again = lambda s: (within(s[0]), s[1] + 1)
            return ef.while_loop(lambda s: s[1] < 1, again, (x, ef.tensor(0)))[0]
        if kind == "scan":
            return ef.scan(lambda c, _: (within(c), c), x, None, length=2 if number < 3 else 1)[0]
        if number % 3 == 0:  # each in turn, and some results are of a level farther out
            return ef.cond(ef.sum(x) > -1e9, lambda: within(x) + x, lambda: x)
        if number % 3 == 1:
            return ef.scan(lambda c, r: (within(c), c + r), x * 0.5, ef.stack([x]))[0]
        return ef.fori_loop(0, 1, lambda i, c: within(c) - x, x)

    return lambda x: level(x, 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("kind", ["cond", "switch", "while", "scan", "all"])
@pytest.mark.parametrize("depth", [15, 16, 17, 20, 21, 33, 63])
def test_loops_and_branches_as_deep_as_files_hold(kind, depth, numerics):
    f = tower(kind, depth)
    graph = ef.capture.trace(f, X)
    found = Replay(graph, numerics).run([HALF])[0].numpy()
    np.testing.assert_allclose(found, f(ef.tensor(HALF)).numpy(), rtol=1e-5)
    if depth == 63:
        loaded = file.decode(file.encode(graph))
        assert Replay(loaded, numerics).run([HALF])[0].numpy().tobytes() == found.tobytes()


def test_branches_deeper_than_files_hold():
    f = tower("cond", 130)
    graph = ef.capture.trace(f, X)
    found = Replay(graph, "exact").run([HALF])[0].numpy()
    np.testing.assert_allclose(found, np.tanh(HALF) + 1.0, rtol=1e-5)


def test_an_error_in_a_function_of_its_own_names_the_line():
    def look(i, x, depth):
        if depth == 0:
            return ef.take(x, i)
        return ef.cond(ef.sum(x) > -1e9, lambda: look(i, x, depth - 1), lambda: x)

    graph = ef.capture.trace(lambda i, x: look(i, x, 40), ef.TensorSpec((3,), "int64"), X)
    line = inspect.getsourcelines(look)[1] + 2
    with pytest.raises(IndexRangeError) as caught:
        Replay(graph, "exact").run([np.array([0, 1, 7]), HALF])
    assert f"test_lowering.py:{line} in look" in str(caught.value)
    assert "take = _take(" in "".join(traceback.format_exception(caught.value))


# Display ------------------------------------------------------------------------------------------


def plain_lines(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_is_shown_controls_a_terminal_or_a_page(seed):
    rng = random.Random(seed)
    for make in (*PROGRAMS.values(), lambda: program("a", "b")):
        graph = renamed(make(), rng.random())
        other = renamed(make(), rng.random())
        sizes = {"batch": 2, "n": 3, "m": 2}
        shown = [
            str(graph),
            repr(graph),
            str(graph.costs(sizes)),
            repr(graph.costs(sizes)),
            str(graph.diff(other)),
            graph.to_dot(),
            *map(repr, graph.nodes),
            *map(repr, graph.all_inputs()),
            *map(repr, graph.cells),
            graph.plan(sizes=sizes).source(),
            repr(graph.plan(sizes=sizes)),
        ]
        assert all(map(plain_lines, shown))
        for page in (graph.to_svg(), graph._repr_html_()):
            assert plain_lines(page.replace("\t", ""))
            assert "<script" not in page


def test_errors_escape_unprintable_text():
    for odd in (text for text in ODD if not text.isprintable()):
        error = EagerflowError(
            "it fails", op=odd, argument=odd, received=odd, expected=odd, hint=odd, at=odd
        )
        assert plain_lines(str(error))
        assert len(str(error).split("\n")) == 5
        graph = ef.capture.trace(lambda x: x, X, name=odd)
        graph.outputs.names = ("same", "same")
        with pytest.raises(CaptureError) as caught:
            graph.check()
        assert plain_lines(str(caught.value)) and odd not in str(caught.value).split("\n")[0]


def test_variables_and_tensors_in_pages_and_at_the_prompt():
    rng = random.Random(0)
    for _ in range(200):
        variable = ef.Variable(HALF, name=odd_text(rng))
        assert plain_lines(repr(variable))
        page = variable._repr_html_()
        assert plain_lines(page.replace("\t", "")) and "<script" not in page


def test_printable_escapes_and_keeps():
    assert printable("été 名 x½") == "été 名 x½"
    assert printable("a\x1b[2J\u202e\r\n\ud800") == r"a\x1b[2J\u202e\r\n\ud800"
    assert printable("a\nb\t", "\n") == "a\nb" + r"\t"
