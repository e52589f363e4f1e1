"""Saved graphs: round trips, equal bytes for equal programs, file permissions."""

import json
import os
import re
import subprocess
import sys
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
import safetensors

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture.saving import encoding, file, layout
from eagerflow.dtypes import FLOAT8, STANDARD
from eagerflow.errors import FileFormatError, SessionError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.run import evaluate
from eagerflow.op import ops
from tests.capture.saving import mutation
from tests.capture.saving.nested_op import test_call
from tests.capture.saving.saved_programs import (
    FLOAT32,
    PROGRAMS,
    branch,
    cell,
    changed,
    dense,
    loaded,
    pieces,
    spec,
    text_of,
    training_step,
)
from tests.internals import array_of
from tests.structure.sources import ROOT

DTYPES = sorted(STANDARD | FLOAT8, key=str)
LIBRARY_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}


def traced(f, *specs):
    return ef.capture.trace(f, *specs)


def run(graph, *inputs):
    """What a graph gives, and what its Variables have afterwards, as arrays."""
    found, _ = tree.flatten(graph(*map(ef.asarray, inputs)))
    tensors = [x for x in found if hasattr(x, "shape")]
    return [t.numpy() for t in tensors + list(graph.variables.values())]


def outputs(graph, *inputs):
    """All outputs of a graph, op by op."""
    entries = [*map(ef.asarray, inputs), *(c.variable.value for c in graph.cells)]
    return [t.numpy() for t in evaluate(graph, entries)[0]]


def example(value, seed):
    """An array for an input of a graph, with 4 for each free size."""
    shape = [size if isinstance(size, int) else 4 for size in value.shape]
    drawn = np.random.default_rng(seed).integers(0, 3, shape)
    return drawn.astype(value.dtype)


def same_bits(one, other):
    assert one.dtype == other.dtype and one.shape == other.shape
    assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


# What comes back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_come_back(program, tmp_path):
    graph = PROGRAMS[program]()
    path = tmp_path / "model.ef"
    graph.save(path)
    again = ef.capture.load(path)
    assert str(again) == str(graph)
    assert path.read_bytes() == file.encode(graph) == file.encode(again)
    assert again.structure == graph.structure
    assert again.argument_structure == graph.argument_structure
    assert again.outputs.names == graph.outputs.names and again.inputs.names == graph.inputs.names
    inputs = [example(value, i) for i, value in enumerate(graph.inputs)]
    for one, other in zip(run(graph, *inputs), run(again, *inputs), strict=True):
        same_bits(one, other)
    for one, other in zip(graph.cells, again.cells, strict=True):
        assert one.variable is not other.variable
        assert one.variable.trainable is other.variable.trainable
        same_bits(one.variable.numpy(), other.variable.numpy())
    for one, other in zip(graph.nodes, again.nodes, strict=True):
        assert one.attributes == other.attributes
        assert list(map(type, one.attributes.values())) == list(
            map(type, other.attributes.values())
        )
        name, line, function = one.source
        assert other.source == (os.path.basename(name), line, function)


def test_calls_of_every_op_come_back():
    count = 0
    seen = set()
    for op, sample, graph in mutation.op_graphs(3):
        data = file.encode(graph)
        again = file.decode(data)
        assert file.encode(again) == data, op.name
        assert str(again) == str(graph), op.name
        assert again.nodes[-1].attributes == graph.nodes[-1].attributes, op.name
        inputs = [x for x in sample.args if hasattr(x, "dtype")]
        for one, other in zip(outputs(graph, *inputs), outputs(again, *inputs), strict=True):
            same_bits(one, other)
        seen.add(op.name)
        count += 1
    print(f"{count} calls of {len(seen)} ops")
    assert len(seen) > 150


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype, shape, tmp_path):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    array = (values % 2).astype(dtype) if dtype.kind == "b" else values.astype(dtype)
    variable = ef.Variable(array, name="v", trainable=False)
    constant = ef.tensor(array[..., ::-1] if shape else array)
    graph = traced(lambda x: (variable, constant, x), spec())
    path = tmp_path / "model.ef"
    graph.save(path)
    again = ef.capture.load(path)
    same_bits(again.cells[0].variable.numpy(), array)
    assert again.cells[0].variable.trainable is False
    same_bits(again.constants[0].constant.numpy(), constant.numpy())
    # An independent reader of the format, which knows dtypes by the names they have there.
    library = dict(safetensors.deserialize(path.read_bytes()))
    assert set(library) == {"v", "constant"}
    found = library["v"]
    if dtype == np.complex128:
        assert (found["dtype"], found["shape"]) == ("F64", [*shape, 2])
    else:
        assert (found["dtype"], found["shape"]) == (LIBRARY_NAMES[dtype.name], [*shape])
    assert bytes(found["data"]) == array.tobytes()


def test_bits_of_special_numbers():
    bits = np.array([0x7FC00001, 0xFFC00123, 0x80000000, 0x7F800000, 1], np.uint32)
    w = ef.Variable(bits.view(np.float32), name="w")
    again = loaded(traced(lambda x: x + w, spec(5)))
    same_bits(again.cells[0].variable.numpy(), bits.view(np.float32))
    half = np.array([0x7FC1, 0x8000, 0xFF80], np.uint16).view(ml_dtypes.bfloat16)
    again = loaded(traced(lambda x: (x, ef.asarray(half)), spec(5)))
    same_bits(again.constants[0].constant.numpy(), half)


NUMBERS = [
    2,
    2.0,
    True,
    -0.0,
    1e-320,
    0.1,
    float("inf"),
    float("-inf"),
    -7,
    1 + 2j,
    complex(-0.0, 1),
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_weak_numbers_among_the_inputs(number):
    again = loaded(traced(lambda x: ef.multiply(x, number), spec(2, dtype="complex64")))
    found = again.nodes[0].inputs[1]
    assert type(found) is type(number) and repr(found) == repr(number)


def test_nan_among_the_inputs():
    again = loaded(traced(lambda x: ef.maximum(x, float("nan")), spec(2)))
    assert np.isnan(again.nodes[0].inputs[1])


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        10**30,
        2**1024 - 1,
        1.5,
        float("inf"),
        "",
        "é\0\n\u202e\ud800",
        (),
        ((),),
        (1, (2.0, ("x", None))),
        slice(None),
        slice(1, None, -2),
        slice(0, ef.Dim("n")),
        Ellipsis,
        np.dtype("float32"),
        np.dtype(ml_dtypes.bfloat16),
        1 + 2j,
        complex(float("nan"), -0.0),
        ef.Dim("n"),
        ef.Dim("n") * 3 + 1,
        (ef.Dim("n") * ef.Dim("m") + 5) // 2,
        7 // ef.Dim("n"),
        ((ef.Dim("n") + 1) // 2 * ef.Dim("k") - 3) // (ef.Dim("m") + 1),
        (((ef.Dim("n") + 1) // 2 + 1) // 3 + 1) // 5,
    ],
    ids=repr,
)
def test_values_of_every_type(value):
    """As attributes, and as results."""
    x = Value("x", (2,), FLOAT32)
    with test_call():
        node = Node(ops["test_call"], (x,), {"body": value}, "call")
        node.outputs = (Value("call", (2,), FLOAT32, None, node),)
        results = (node.outputs[0], value)
        structure = ef.capture.trace(lambda x: (x, 1), spec()).structure
        graph = Graph("g", Values([x]), [node], Values(node.outputs), (), None, structure, results)
        again = loaded(graph)
    for found in (again.nodes[0].attributes["body"], again.results[1]):
        assert type(found) is type(value)
        assert repr(found) == repr(value)
        if "nan" not in repr(value):
            assert found == value


def test_masks_and_truth_values_in_indices(tmp_path):
    def f(x, mask):
        return x.at[mask].set(0.0), x[True, 0]

    x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    graph = ef.capture.trace(f, x, x > 2)
    graph.check()
    graph.save(tmp_path / "masks.ef")
    found = ef.capture.load(tmp_path / "masks.ef")
    for a, b in zip(found(x, x > 2), f(x, x > 2), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_symbolic_sizes_are_unchanged_by_saving():
    """Loaded sizes compute as before: equal, and divided as before."""
    n, m = ef.Dim("n"), ef.Dim("m")
    shape = (n * 2 + 1, (n * m + 5) // 2, ((n + 1) // 2 + m) // 3)
    again = loaded(traced(lambda x: x + 1.0, ef.TensorSpec(shape, "float32", "x")))
    assert again.inputs[0].shape == shape
    for old, new in zip(shape, again.inputs[0].shape, strict=True):
        assert new.evaluate({"n": 7, "m": 3}) == old.evaluate({"n": 7, "m": 3})
        assert (old - new) == 0 and new // 2 == old // 2


Pair = namedtuple("Pair", "first second")


def test_nests_of_arguments_and_results():
    def f(pair, table):
        x = pair.first + table["a"][0]
        results = OrderedDict([("z", [x, (1, "text")]), ("a", Pair(x, None))])
        return {"first": results, 5: (), True: [], (1, "k"): {}, None: ef.Dim("n")}

    graph = traced(f, Pair(spec(), 3), {"b": 1.0, "a": (spec(),)})
    again = loaded(graph)
    nest = again.nest(["x", "y"])
    assert nest == {
        "first": OrderedDict([("z", ["x", (1, "text")]), ("a", ("y", None))]),
        5: (),
        True: [],
        (1, "k"): {},
        None: ef.Dim("n"),
    }
    assert type(nest["first"]) is OrderedDict and type(nest["first"]["a"]) is tuple
    assert [type(k) for k in nest] == [str, int, bool, tuple, type(None)]
    assert list(nest["first"]) == ["z", "a"]
    assert again.argument_structure.children[1].keys == ("b", "a")


NAMES = [
    "a/b",
    "a.b",
    "a b",
    "__metadata__",
    "é",
    "\0",
    "line\nbreak",
    "\u202eabc",
    '"',
    "\\",
    "\ud800",
]


def test_names_of_all_kinds(tmp_path):
    names = [*NAMES, "n" * 1_000_000, "n" * 200, "_"]
    variables = [ef.Variable([1.0 * i], name=name) for i, name in enumerate(names)]
    graph = traced(lambda x: ef.concat([x, *variables]), spec(1, name="x"))
    graph.save(tmp_path / "model.ef")
    again = ef.capture.load(tmp_path / "model.ef")
    assert [c.name for c in again.cells] == names == [c.variable.name for c in again.cells]
    assert run(again, [7.0])[0].tolist() == [7.0, *range(len(names))]
    with safetensors.safe_open(tmp_path / "model.ef", "np") as library:
        keys = list(library.keys())
    assert len(keys) == len(names) and all(len(k) <= 210 and k.isprintable() for k in keys)
    assert {"a/b", "a.b", "é", '"', "\\"} <= set(keys)


def test_names_that_differ_from_the_usual():
    """Values, cells and Variables with names of their own, pins, and a Variable in two graphs."""
    w = ef.Variable([1.0, 2.0], name="w")
    x, own = Value("value of x", (2,), FLOAT32, device="cpu:1"), cell("cell", w)
    own.value.name = "value of cell"
    add = Node(ops["add"], (x, own.value), {}, "add", ("f.py", 3, "f"), "cpu:1")
    add.outputs = (Value("sum", (2,), FLOAT32, None, add, device="cpu:0"),)
    split = Node(ops["unstack"], (add.outputs[0],), {"axis": 0}, "parts")
    split.outputs = tuple(Value(n, (), FLOAT32, None, split, i) for i, n in enumerate("ab"))
    own.assigned = add.outputs[0]
    graph = Graph("g", Values([x], ["x"]), [add, split], Values(split.outputs, ["p", "q"]), [own])
    again = loaded(graph)
    assert again.inputs.names == ("x",) and again.inputs[0].name == "value of x"
    assert again.inputs[0].device == "cpu:1" and again.nodes[0].device == "cpu:1"
    assert again.nodes[0].outputs[0].name == "sum" and again.nodes[0].outputs[0].device == "cpu:0"
    assert [v.name for v in again.nodes[1].outputs] == ["a", "b"]
    assert (again.cells[0].name, again.cells[0].value.name) == ("cell", "value of cell")
    assert again.cells[0].variable.name == "w"
    assert again.cells[0].assigned is again.nodes[0].outputs[0]
    assert file.encode(again) == file.encode(graph)


def test_tensor_shared_by_constant_and_variable_is_saved_twice():
    w = ef.Variable([1.0, 2.0], name="w")
    constant = w.current
    again = loaded(traced(lambda x: x * w + constant, spec(2)))
    assert array_of(again.cells[0].variable.current) is not array_of(again.constants[0].constant)
    again.cells[0].variable.assign([0.0, 0.0])
    assert run(again, [1.0, 1.0])[0].tolist() == [1.0, 2.0]


def test_one_tensor_in_two_graphs_is_saved_once():
    held = ef.tensor(np.arange(1000.0))
    graph = traced(lambda x: (x + held, held), spec(1000))
    other = Value("again", (1000,), held.dtype, constant=held)
    twice = Graph("g", graph.inputs, graph.nodes, Values([*graph.outputs, other], "abc"))
    again = loaded(twice)
    assert len(pieces(file.encode(twice))[1]) == 1000 * held.dtype.itemsize
    assert again.outputs[1].constant is again.outputs[2].constant


def test_graphs_within_graphs():
    with test_call():
        inner = branch("inner")
        graph = branch("outer", (branch("middle", inner), inner))
        graph.check()
        data = file.encode(graph)
        again = file.decode(data)
        middle, same = again.nodes[0].attributes["body"]
        assert (middle.name, same.name) == ("middle", "inner")
        assert middle.nodes[0].attributes["body"] is same  # as it was
        assert str(again) == str(graph) and file.encode(again) == data
        # Graphs of equal text are one, from whatever source.
        copies = branch("outer", (branch("middle", branch("inner")), branch("inner")))
        assert file.encode(copies) == data


def test_graphs_64_deep_and_no_deeper():
    with test_call():
        graph = branch()
        for i in range(64):
            graph = branch(f"level {i}", graph)
        assert file.encode(loaded(graph)) == file.encode(graph)
        with pytest.raises(FileFormatError, match="64 deep"):
            file.encode(branch("more", branch("one", graph)))


def test_an_empty_graph():
    again = loaded(traced(lambda: None))
    assert again.nest([]) is None and again.nodes == () and again.outputs == ()


# The same bytes ----------------------------------------------------------------------------------

SAVE = """
import sys
sys.path.insert(0, {root!r})
from tests.capture.saving.saved_programs import PROGRAMS
for name, make in PROGRAMS.items():
    make().save(f"{{sys.argv[1]}}/{{name}}.ef")
"""


def test_same_program_same_bytes_in_every_process(tmp_path):
    """Whatever the hash seed, the folder and the time."""
    found = []
    for seed in ("0", "1", "77"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", SAVE.format(root=str(ROOT)), str(folder)],
            check=True,
            env=environment,
            cwd=folder,
        )
        found.append([(folder / f"{name}.ef").read_bytes() for name in PROGRAMS])
    assert found[0] == found[1] == found[2] == [file.encode(make()) for make in PROGRAMS.values()]
    assert not any(
        str(tmp_path).encode() in data or str(ROOT).encode() in data for data in found[0]
    )


def test_another_program_gives_other_bytes():
    assert len({file.encode(make()) for make in PROGRAMS.values()}) == len(PROGRAMS)
    base = file.encode(traced(lambda x: x * 2.0, spec(2)))
    assert base != file.encode(traced(lambda x: x * 2, spec(2)))


def test_the_text_is_canonical_json():
    for make in PROGRAMS.values():
        data = file.encode(make())
        text = pieces(data)[0]["__metadata__"]["graph"]
        tables = json.loads(text)
        assert list(tables) == sorted(tables) == list(encoding.SECTIONS)
        rows = text_of({name: list(map(_sorted_row, part)) for name, part in tables.items()})
        assert rows == text


def test_the_page_names_all_fields_of_rows():
    page = (ROOT / "docs" / "saved-graphs-format.md").read_text(encoding="utf-8")
    rows = {
        "nodes": layout.NODE,
        "ops": layout.OP,
        "sources": layout.SOURCE,
        "types": layout.TYPE,
        "variables": layout.VARIABLE,
        "cells": layout.CELL,
        "constants": layout.CONSTANT,
        "inputs": layout.INPUT,
        "outputs": layout.OUTPUT,
    }
    for name, row in rows.items():
        fields = row.fields[: -1 if row.optional else None]
        (line,) = (x for x in page.splitlines() if x.startswith(f"| `{name}` | `["))
        assert line.startswith(f"| `{name}` | `[{', '.join(fields)}]`")
        assert all(f"`{field}`" in line for field in row.fields[len(fields) :])
    table = page.partition("| key of a graph | value |")[2].partition("\n\n")[0]
    keys = "".join(line.split(" | ")[0] for line in table.splitlines()[2:])
    assert sorted(re.findall(r"`(\w+)`", keys)) == sorted(layout.GRAPH.fields)


def _sorted_row(row):
    return json.dumps(row, separators=(",", ":"), sort_keys=True)


def test_saving_and_loading_leave_tapes_and_traces_alone(tmp_path):
    graph = dense()
    with ef.GradientTape() as tape:
        x = ef.tensor([[1.0, 2.0, 3.0]])
        tape.watch(x)
        y = (x * x).sum()
        graph.save(tmp_path / "model.ef")
        again = ef.capture.load(tmp_path / "model.ef")
    assert tape.gradient(y, x).tolist() == [[2.0, 4.0, 6.0]]
    assert type(array_of(again.cells[0].variable.current)) is np.ndarray


# Elsewhere ---------------------------------------------------------------------------------------

USE = """
import sys
import numpy as np
import eagerflow as ef
from eagerflow.graph.run import evaluate
graph = ef.capture.load(sys.argv[1])
x = ef.tensor(np.ones((8, 4), "float32"))
labels = ef.tensor(np.arange(8) % 3)
assert not any(name.startswith("tests") for name in sys.modules)
print(graph)
for _ in range(5):
    entries = [x, labels, *(c.variable.value for c in graph.cells)]
    (loss, gradient), assigned = evaluate(graph, entries)
    for c, value in zip([c for c in graph.cells if c.assigned], assigned, strict=True):
        c.variable.assign(value)
    print(float(loss))
print(graph.variables["steps"])
larger = graph.gradient("loss", "b")
print(larger.outputs.names)
larger.save(sys.argv[2])
"""


def test_a_process_without_the_models_code(tmp_path):
    graph = training_step()
    graph.save(tmp_path / "step.ef", gradients=("loss", ["w"]))
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "step.ef"), str(tmp_path / "more.ef")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "softmax_cross_entropy(" in done.stdout and "# saved_programs.py:" in done.stdout
    losses = [float(x) for x in done.stdout.splitlines() if x.replace(".", "", 1).isdigit()]
    assert len(losses) == 5 and losses == sorted(losses, reverse=True)
    assert "Variable(5, name='steps', int64" in done.stdout
    assert "('loss', 'gradient/w', 'gradient/b')" in done.stdout
    assert ef.capture.load(tmp_path / "more.ef").outputs.names[2] == "gradient/b"


def test_gradients_on_request(tmp_path):
    w = ef.Variable([2.0, 3.0], name="w")
    graph = traced(lambda x: {"loss": (x * w * w).sum()}, spec(2, name="x"))
    graph.save(tmp_path / "model.ef", gradients=("loss", ["w", "x"]))
    again = ef.capture.load(tmp_path / "model.ef")
    assert again.outputs.names == ("loss", "gradient/w", "gradient/x")
    assert [x.tolist() for x in outputs(again, [1.0, 10.0])] == [94.0, [4.0, 60.0], [4.0, 9.0]]
    for wrong in ("loss", ("loss",), ["loss", "w"]):
        with pytest.raises(SessionError, match="describe gradients to save"):
            graph.save(tmp_path / "model.ef", gradients=wrong)
    with pytest.raises(SessionError, match="there is no value"):
        graph.save(tmp_path / "model.ef", gradients=("lost", "w"))
    assert ef.capture.load(tmp_path / "model.ef").outputs.names == again.outputs.names


def test_errors_after_loading_name_the_users_line():
    again = loaded(traced(lambda x, i: ef.take(x, i), spec(3), spec(2, dtype="int64")))
    with pytest.raises(ef.errors.IndexRangeError) as caught:
        run(again, np.ones(3, "float32"), np.array([0, 7]))
    assert "at: test_file.py:" in str(caught.value)


def test_a_device_that_is_not_there():
    data = changed(file.encode(dense()), lambda t: t["variables"][0].__setitem__(4, "gpu:31"))
    again = file.decode(data)
    assert str(again.cells[0].variable.device) == again.cells[0].value.device == "cpu:0"
