"""The ways to run a program's captured functions; each gives what stands for ``capture``."""

import functools
import importlib.util
import inspect
import itertools
import pathlib
import tempfile

import numpy as np

import eagerflow as ef
from eagerflow.errors import CaptureError, EagerflowError
from tests.programs.helpers import leaves

_numbers = itertools.count()


class Graphed:
    """A captured function that ``run`` computes from its graph and inputs."""

    def __init__(self, f, run, numerics):
        self.function = ef.function(f, numerics=numerics)
        self.run = run

    def __get__(self, instance, owner=None):
        return functools.partial(self.call, self.function.__get__(instance, owner))

    def __call__(self, *args):
        return self.call(self.function, *args)

    def call(self, function, *args):
        graph = function.graph(*args)
        return self.run(graph, function.inputs_of(*args))

    def __deepcopy__(self, memo):
        return self


class Kept:
    """What is made of each graph once; graphs are held, so that no other has the identity."""

    def __init__(self, make):
        self.make, self.made = make, {}

    def of(self, graph):
        if id(graph) not in self.made:
            self.made[id(graph)] = graph, self.make(graph)
        return self.made[id(graph)][1]


def graphed(make, run, numerics):
    def capture(f):
        kept = Kept(make)
        return Graphed(f, lambda graph, inputs: run(graph, kept.of(graph), inputs), numerics)

    return capture


def run_session(graph, session, inputs):
    return session.run(
        list(graph.outputs), dict(zip(graph.inputs, inputs, strict=True)), targets=graph
    )


def loaded(graph):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.ef"
        graph.save(path)
        found = ef.capture.load(path)
    return found, ef.capture.Session(found, numerics="exact")


def run_loaded(graph, made, inputs):
    """Run the loaded graph with the values of the program's Variables, and give these theirs."""
    found, session = made
    pairs = [(a.variable, b.variable) for a, b in zip(graph.cells, found.cells, strict=True)]
    for own, theirs in pairs:
        theirs.assign(own.current)
    results = run_session(found, session, inputs)
    for own, theirs in pairs:
        own.assign(theirs.current)
    return results


def partitioned(graph):
    return ef.capture.partition(graph, ["cpu:0", "cpu:1"], numerics="exact")


class ExportError(AssertionError):
    """An exported program gives values of other shapes or dtypes."""


class Exported:
    """A function run eagerly, but for some calls, which an exported program computes."""

    def __init__(self, f, compute, counts):
        self.f, self.compute, self.counts, self.calls = f, compute, counts, 0
        self.function = ef.function(f)

    def __get__(self, instance, owner=None):
        return functools.partial(
            self.call, self.function.__get__(instance, owner), self.f.__get__(instance, owner)
        )

    def __call__(self, *args):
        return self.call(self.function, self.f, *args)

    def __deepcopy__(self, memo):
        return self

    def call(self, function, f, *args):
        self.calls += 1
        if self.calls not in (2, 5):
            return f(*args)
        graph = inputs = found = None
        try:
            graph = function.graph(*args)
            inputs = function.inputs_of(*args)
            found = self.compute(graph, [np.array(x) for x in inputs])
            self.counts["exported"] = self.counts.get("exported", 0) + 1
        except CaptureError:
            self.counts["refused"] = self.counts.get("refused", 0) + 1
        result = f(*args)
        if found is None:
            return result
        outputs, after = found
        for k, (a, b) in enumerate(zip(leaves(result), outputs, strict=True)):
            alike(a, b, f"result {k}")
        for cell in graph.cells:
            if cell.name in after:
                alike(cell.variable, after[cell.name], cell.name)
                cell.variable.assign(after[cell.name])
        return [ef.asarray(x) for x in outputs]


def alike(a, b, name):
    if tuple(a.shape) != b.shape or a.dtype != b.dtype:
        raise ExportError(f"{name}: {a.dtype}{a.shape} eagerly, exported {b.dtype}{b.shape}")


def by_python(graph, inputs):
    """What a stand-alone program of a graph computes: outputs, and Variables by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "exported.py"
        ef.capture.export_python(graph, path)
        spec = importlib.util.spec_from_file_location(f"exported_{next(_numbers)}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        weights = module.load_weights(module.WEIGHTS) if hasattr(module, "WEIGHTS") else {}
    f = getattr(module, graph.name)
    parameters = list(inspect.signature(f).parameters)
    given = [weights] * (len(parameters) - len(inputs))
    found = f(*inputs, *given)
    outputs = [np.asarray(x) for x in flat(found)]
    return outputs, dict(named(weights))


def flat(nest):
    if isinstance(nest, dict):
        return [x for v in nest.values() for x in flat(v)]
    if isinstance(nest, list | tuple):
        return [x for v in nest for x in flat(v)]
    return [nest]


def named(weights, before=""):
    for key, value in weights.items():
        if isinstance(value, dict):
            yield from named(value, f"{before}{key}/")
        else:
            yield before + key, value


def by_onnx(graph, inputs):
    """What ONNX Runtime computes of a graph: outputs, and Variables by name."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.onnx"
        ef.capture.export_onnx(graph, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
            raise CaptureError(str(error)) from None
    names = [x.name for x in session.get_inputs()]
    feeds = {v.name: x for v, x in zip(graph.inputs, inputs, strict=True)}
    found = session.run(None, {n: feeds[n] for n in names if n in feeds})
    after, outputs = {}, []
    for place, value in zip(session.get_outputs(), found, strict=True):
        if place.name.endswith("/next"):
            after[place.name.removesuffix("/next")] = value
        else:
            outputs.append(value)
    return outputs, after


def decorators_of(way, counts):
    """What stands for ``capture`` and for ``nested`` in the text, for a way to run."""
    if way in ("eager", "wide", "perturbed"):
        return (lambda f: f), (lambda f: f)
    if way == "fast":
        return ef.function, ef.function
    exact = functools.partial(ef.function, numerics="exact")
    if way == "exact":
        return exact, exact
    if way == "session":
        make = functools.partial(ef.capture.Session, numerics="exact")
        return graphed(make, run_session, "exact"), exact
    if way == "fast session":
        return graphed(ef.capture.Session, run_session, "fast"), ef.function
    if way == "loaded":
        return graphed(loaded, run_loaded, "exact"), exact
    if way == "partitioned":
        return graphed(partitioned, lambda graph, plan, inputs: plan.run(inputs), "exact"), exact
    compute = {"python": by_python, "onnx": by_onnx}[way]
    return (lambda f: Exported(f, compute, counts)), (lambda f: f)


EXACT = {"exact", "session", "loaded", "partitioned"}
EXPORTED = {"python", "onnx"}
REFUSALS = (CaptureError, EagerflowError)
