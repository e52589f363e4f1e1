"""Inputs, outputs and Variables of one name, at each border that graphs cross by names.

A name that asks for a value means the output; a name that gives a value means the input.
"""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

import eagerflow as ef
from eagerflow.cli import main
from eagerflow.errors import CaptureError
from eagerflow.summary.graphs import graph_def
from tests.serving.models import Client, put_version

NAMES = ["state", "x", "add", "multiply", "constant", "state/next", "output", "state_1"]
SEEDS = range(10)


class Program:
    """A random function of rows whose inputs, outputs and Variable share names."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        given, made = (
            [str(name) for name in rng.choice(NAMES, rng.integers(1, most), replace=False)]
            for most in (4, 5)
        )
        if given[0] not in made:
            made[0] = given[0]
        self.steps = dict(zip(made, rng.integers(4, size=len(made)), strict=True))
        self.weight = np.float32(rng.integers(2, 9, size=3))
        self.feeds = {name: np.float32(rng.integers(1, 9, size=(2, 3))) for name in given}
        self.wanted = self.compute(self.feeds, self.weight)
        self.variable = ef.Variable(self.weight, name=str(rng.choice(NAMES)))
        self.assigns = bool(rng.integers(2))
        specs = [ef.TensorSpec(("batch", 3), "float32", name=name) for name in given]
        self.graph = ef.capture.trace(self.traced, *specs, name="program")
        assert self.graph.inputs.names == tuple(given)
        assert self.graph.outputs.names == tuple(made)

    def compute(self, given, weight):
        """What each output is of the inputs."""
        values = list(given.values())
        for step in self.steps.values():
            first, last = values[0], values[-1]
            values.append([first, last * 0.5 + first, last * weight, first + 1.0][step])
        return dict(zip(self.steps, values[len(given) :], strict=True))

    def traced(self, *given):
        found = self.compute(dict(zip(self.feeds, given, strict=True)), self.variable)
        if self.assigns:
            self.variable.assign_add(ef.sum(given[0], axis=0))
        return found

    def outputs_alone(self):
        return self.graph.prune({name: name for name in self.graph.outputs.names})

    def fed(self, graph):
        """The feeds that a graph takes."""
        return {name: self.feeds[name] for name in graph.inputs.names}


@pytest.fixture(params=SEEDS)
def program(request):
    return Program(request.param)


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for name, x in wanted.items():
        np.testing.assert_array_equal(np.asarray(found[name]), x, err_msg=name)


def test_calls_of_graphs_files_and_partitions(program, tmp_path):
    program.graph.save(tmp_path / "graph.ef")
    loaded = ef.capture.load(tmp_path / "graph.ef")
    assert loaded.inputs.names == program.graph.inputs.names
    assert_same(loaded(**program.feeds), program.wanted)
    alone = program.outputs_alone()
    assert_same(alone(**program.fed(alone)), program.wanted)
    split = ef.capture.partition(ef.capture.load(tmp_path / "graph.ef"), ["cpu:0"])
    assert_same(split(*program.feeds.values()), program.wanted)


def test_fetches_feeds_values_and_pruned_graphs(program):
    graph = program.graph
    session = ef.capture.Session(graph)
    assert_same(session.run({n: n for n in program.wanted}, program.feeds), program.wanted)
    for name, wanted in program.wanted.items():
        assert graph.value(name) is graph.outputs[name]
        assert_same({name: session.run(name, program.feeds)}, {name: wanted})
        alone = graph.prune([name])
        assert_same({name: alone(**program.fed(alone))[0]}, {name: wanted})


def test_signatures_and_servers(program, tmp_path):
    alone = program.outputs_alone()
    asked = {"all": [*program.wanted], "renamed": {f"my {n}": n for n in program.wanted}}
    alone.save(tmp_path / "made.ef", signatures=asked)
    put_version(tmp_path / "models" / "m", 1, ef.capture.load(tmp_path / "made.ef"))
    version = ef.serving.ModelVersion("m", 1, alone)
    assert_same(version.run(program.fed(alone)), program.wanted)
    feeds = {name: x.tolist() for name, x in program.fed(alone).items()}
    with ef.serving.Server(tmp_path / "models", port=0) as server:
        client = Client(server)
        found = client.json("/v1/models/m:predict", {"inputs": feeds})["outputs"]
        assert_same(_by_name(found, program.wanted), program.wanted)
        for name, outputs in asked.items():
            body = {"signature_name": name, "inputs": feeds}
            found = client.json("/v1/models/m:predict", body)["outputs"]
            named = dict(zip(outputs, program.wanted.values(), strict=True))
            assert_same(_by_name(found, named), named)
        client.close()


def _by_name(found, wanted):
    """What a server answers for several outputs, or for the only one."""
    return found if isinstance(found, dict) else dict.fromkeys(wanted, found)


def test_onnx_names_each_tensor_once(program, tmp_path):
    path = str(tmp_path / "model.onnx")
    ef.capture.export_onnx(program.graph, path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    assert [x.name for x in session.get_inputs()] == [*program.feeds]
    names = [x.name for x in session.get_outputs()]
    found = session.run(None, program.feeds)
    assert_same(dict(zip(program.wanted, found, strict=False)), program.wanted)
    cells = {cell.name for cell in program.graph.cells}
    changed = [f"{c.name}/next" for c in program.graph.cells if c.assigned is not None]
    assert names[len(program.wanted) :] == changed
    for name, own in zip(names, program.wanted, strict=False):
        taken = own in {*program.feeds, *cells, *changed}
        assert name == f"{own}/output" if taken else name == own
    back = ef.capture.import_onnx(path)
    back = back.prune({name: name for name in names})
    assert_same(back(**program.fed(back)), dict(zip(names, found, strict=True)))


def test_python_programs(program, tmp_path):
    alone = program.outputs_alone()
    ef.capture.export_python(alone, tmp_path / "made.py")
    text = (tmp_path / "made.py").read_text()
    space = {"__file__": str(tmp_path / "made.py"), "__name__": "made"}
    exec(compile(text, "made.py", "exec"), space)
    given = list(program.fed(alone).values())
    if alone.variables:
        given.append(space["load_weights"](space["WEIGHTS"]))
    assert_same(space["program"](*given), program.wanted)


def test_commands(program, tmp_path, capsys):
    path = str(tmp_path / "graph.ef")
    program.outputs_alone().save(path)
    feeds = {n: f"--feed={n}={json.dumps(x.tolist())}" for n, x in program.feeds.items()}
    alone = ef.capture.load(path)
    own = [feeds[n] for n in alone.inputs.names]
    assert main(["run", path, *own, "--out", str(tmp_path / "all")]) == 0
    for name, wanted in program.wanted.items():
        file = f"{name.replace('/', '_')}.npy"
        np.testing.assert_array_equal(np.load(tmp_path / "all" / file), wanted)
        own = [feeds[n] for n in alone.prune([name]).inputs.names]
        assert main(["run", path, *own, "--fetch", name, "--out", str(tmp_path / "one")]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "one" / file), wanted)
    assert main(["show", path]) == 0
    assert capsys.readouterr().err == ""


def test_steps_in_a_row(program):
    """Outputs go to the inputs of their names; other inputs are those of the first step."""
    first = program.outputs_alone()
    twice = first.compose(first, {n: n for n in first.inputs.names if n in first.outputs.names})
    second = program.feeds | {n: x for n, x in program.wanted.items() if n in program.feeds}
    wanted = program.compute(second, program.weight)
    assert_same(twice(**program.fed(twice)), {n: np.asarray(x) for n, x in wanted.items()})


def test_other_names_differences_drawings_and_gradients(program):
    graph = program.graph
    for old in program.wanted:
        renamed = graph.rename(outputs={old: "other"})
        assert graph.diff(renamed) and not graph.diff(graph)
        found = renamed.prune({"other": "other"})
        assert_same(found(**program.fed(found)), {"other": program.wanted[old]})
        assert graph_def(graph) != graph_def(renamed)
    source = next(iter(program.feeds))
    alone = graph.gradient(source, source, unconnected="zero")
    tensor = ef.tensor(program.feeds[source])
    with ef.GradientTape() as tape:
        tape.watch(tensor)
        found = program.compute(program.feeds | {source: tensor}, ef.tensor(program.weight))
    wanted = tape.gradient(found[source], [tensor], unconnected="zero")[0]
    named = f"gradient/{source}"
    assert_same({named: alone(**program.feeds)[named]}, {named: wanted.numpy()})


def test_variable_update_with_a_conflicting_name_is_refused(tmp_path):
    w, other = ef.Variable([1.0], name="w"), ef.Variable([1.0], name="w/next")

    def step(x):
        w.assign(x * other)
        return x

    graph = ef.capture.trace(step, ef.TensorSpec((1,), "float32"))
    with pytest.raises(CaptureError, match="'w/next'"):
        ef.capture.export_onnx(graph, tmp_path / "model.onnx")
