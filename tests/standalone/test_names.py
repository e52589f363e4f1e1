"""Names and strings of a graph never become code, whatever they are."""

import ast
import builtins
import re

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.capture
from tests.standalone.programs import Program, assert_close, module_of, run_alone

HOSTILE = [
    'x"]; import os; os.system("touch /tmp/owned"); y["',
    "x\nimport os",
    "x\r\nimport os",
    "x\u2028import os\u2029",
    "x\x0cimport os",
    "x\\",
    'x"""\nimport os\n"""',
    "'''",
    "{__import__('os')}",
    "\u202ex\u202c",
    "\ud800",
    "class",
    "lambda",
    "print",
    "np",
    "numpy",
    "weights",
    "state",
    "w",
    "load_weights",
    "WEIGHTS",
    "rng",
    "None",
    "_",
    "__init__",
    "0",
    " ",
    "x" * 500,
    "a/b",
    "../../etc/passwd",
    "e\u0301\u00e9\ufb01",
    "x.npy",
]
ALLOWED = {"np", "math", "json", "Path", *dir(builtins)}


def imports_of(text):
    """The modules that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def unknown_names(text):
    """Names that a program reads but never defines."""
    made, read = set(ALLOWED) | {"__name__", "__file__"}, set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            (made if isinstance(node.ctx, ast.Store) else read).add(node.id)
        elif isinstance(node, ast.FunctionDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
    return read - made


def check(text):
    assert imports_of(text) <= {"numpy", "math", "json", "pathlib"}
    assert unknown_names(text) == set()
    for line in text.split("\n"):
        assert line == "".join(line.splitlines()), "a break of lines that Python sees, or an editor"
        assert line.isprintable()


def program_of(name, other):
    """A graph in which everything is called something hostile."""
    w = ef.Variable(np.full((3, 3), 2.0, np.float32), name=name)
    v = ef.Variable(np.full(3, 5.0, np.float32), name=other)

    def f(a, b):
        with ef.capture.scope(name.replace("/", "_") or "scope"):
            h = ef.tanh(a @ w + b)
            h = h * v + ef.gelu(h)
        return {name: h, f"{name} ": h + 1}

    specs = [ef.TensorSpec(("n", 3), "float32", name=name)]
    specs.append(ef.TensorSpec((3,), "float32", name=other))
    return f, ef.capture.trace(f, *specs, name=name)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless(name):
    try:
        f, graph = program_of(name, name + "_")
    except ef.errors.EagerflowError:
        pytest.skip("refused as a name already")
    program = Program(graph, width=1000)
    check(program.text)
    x, y = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    found = program(x, y)
    wanted = f(ef.tensor(x), ef.tensor(y))
    assert list(found) == list(wanted)
    for key, value in wanted.items():
        assert_close(found[key], value.numpy(), 8)


@pytest.mark.parametrize("first", ["x", "h", "tanh", "gelu", "dense", "f"])
@pytest.mark.parametrize("second", ["x", "h", "gelu", "x 1", "x_1"])
def test_names_that_collide_are_kept_apart(first, second):
    f, graph = program_of(first, second + "!")
    program = Program(graph)
    check(program.text)
    x, y = np.ones((2, 3), np.float32), np.ones(3, np.float32) * 3
    for a, b in zip(program(x, y).values(), f(ef.tensor(x), ef.tensor(y)).values(), strict=True):
        assert_close(a, b.numpy(), 8)


def test_weights_with_nested_or_similar_names_have_own_paths(tmp_path):
    names = ["a", "a/b", "a/b/c", "a b", "a_b", "a\nb", "", "/", "a//b", "a.npy", "a/b.npy"]
    names += ["../x", "./x", "a\nb/c", "a_b/c", "a_b_1", "x/../y", "constant", "0/1"]
    cells = [ef.Variable([float(i), 0.0], name=name) for i, name in enumerate(names)]

    def f(x):
        return tuple(x * cell for cell in cells)

    graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"), name="f")
    arrays = module_of(graph).arrays
    assert not any(".." in key.split("/") for key in arrays)
    assert len(arrays) == len(names)
    found = run_alone(graph, [np.ones(2, np.float32)], tmp_path, "f")
    np.testing.assert_array_equal([y[0] for y in found], np.arange(len(names)))


def test_lines_of_a_loaded_graph_are_not_looked_up(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the password is 1234\n" * 100)
    graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    path = tmp_path / "model.ef"
    graph.save(path)
    loaded = ef.capture.load(path)
    for node in loaded.nodes:
        node.origin = (str(secret), 3, "f")
    text = Program(loaded).text
    assert "password" not in text
    assert "secret.txt:3" in text


def test_strings_of_attributes_are_quoted():
    def f(x):
        return ef.einsum("ab->ba", x)

    graph = ef.capture.trace(f, ef.TensorSpec((2, 3), "float32"))
    (node,) = [n for n in graph.nodes if "subscripts" in n.attributes] or [None]
    text = Program(graph).text
    check(text)
    assert node is None or re.search(r'einsum\("', text)


def test_planted_code_is_found():
    for planted in ("import os\n", "open2('x')\n", "x = 1 \u2028\n"):
        with pytest.raises((AssertionError, SyntaxError)):
            check(planted)
