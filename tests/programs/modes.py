"""Execution modes of programs: the decorators of captured functions, and execution of graphs."""

import functools
import importlib.util
import inspect
import itertools
import pathlib
import tempfile

import numpy as np

import eagerflow as ef
from eagerflow.errors import CaptureError
from tests.programs import helpers
from tests.programs.helpers import leaves

_numbers = itertools.count()
BIT_EXACT = {"exact", "session", "loaded", "partitioned"}
ATOMIC = ("fast", "exact", "session", "partitioned")  # a call that raises assigns no Variable
EXPORTED = {"python", "onnx"}


class FromGraph:
    """A captured function whose calls are computed by ``run(graph, inputs)``."""

    def __init__(self, function, run):
        self.function, self.run = function, run

    def __get__(self, instance, owner=None):
        return FromGraph(self.function.__get__(instance, owner), self.run)

    def __call__(self, *args):
        graph = self.function.graph(*args)
        return self.run(graph, self.function.inputs_of(*args))

    def __deepcopy__(self, memo):
        return self


def from_graph(make, run, numerics):
    """A decorator of functions computed by ``run(graph, make(graph), inputs)``."""

    def capture(f):
        made = {}  # by the ids of graphs, which stay alive here

        def run_graph(graph, inputs):
            if id(graph) not in made:
                made[id(graph)] = graph, make(graph)
            return run(*made[id(graph)], inputs)

        return FromGraph(ef.function(f, numerics=numerics), run_graph)

    return capture


def run_session(graph, session, inputs):
    return session.run(
        list(graph.outputs), dict(zip(graph.inputs, inputs, strict=True)), targets=graph
    )


def load(graph):
    """A graph after saving and loading, with a session."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.ef"
        graph.save(path)
        loaded = ef.capture.load(path)
    return loaded, ef.capture.Session(loaded, numerics="exact")


def run_loaded(graph, loaded_and_session, inputs):
    """Run a loaded graph with the values of the Variables, and copy its updates to them."""
    loaded, session = loaded_and_session
    pairs = [(a.variable, b.variable) for a, b in zip(graph.cells, loaded.cells, strict=True)]
    for own, other in pairs:
        other.assign(own.current)
    results = run_session(loaded, session, inputs)
    for own, other in pairs:
        own.assign(other.current)
    return results


def partition(graph):
    return ef.capture.partition(graph, ["cpu:0", "cpu:1"], numerics="exact")


class ExportError(AssertionError):
    """An exported program computes values of other shapes or dtypes."""


class Exported:
    """An eager function, some calls of which an exported program computes as well."""

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
        exported = None
        try:
            graph = function.graph(*args)
            inputs = function.inputs_of(*args)
            exported = self.compute(graph, [np.array(x) for x in inputs])
            self.counts["exported"] = self.counts.get("exported", 0) + 1
        except CaptureError:
            self.counts["refused"] = self.counts.get("refused", 0) + 1
        result = f(*args)
        if exported is None:
            return result
        outputs, state = exported
        for k, (a, b) in enumerate(zip(leaves(result), outputs, strict=True)):
            check_spec(a, b, f"result {k}")
        for cell in graph.cells:
            if cell.name in state:
                check_spec(cell.variable, state[cell.name], cell.name)
                cell.variable.assign(state[cell.name])
        return [ef.asarray(x) for x in outputs]


def check_spec(a, b, name):
    if tuple(a.shape) != b.shape or a.dtype != b.dtype:
        raise ExportError(f"{name}: {a.dtype}{a.shape} eagerly, {b.dtype}{b.shape} exported")


def run_python(graph, inputs):
    """Outputs of an exported Python program, and its Variables by name."""
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
    outputs = [np.asarray(x) for x in flatten(f(*inputs, *given))]
    return outputs, dict(by_path(weights))


def flatten(nest):
    if isinstance(nest, dict):
        return [x for v in nest.values() for x in flatten(v)]
    if isinstance(nest, list | tuple):
        return [x for v in nest for x in flatten(v)]
    return [nest]


def by_path(weights, prefix=""):
    for key, value in weights.items():
        if isinstance(value, dict):
            yield from by_path(value, f"{prefix}{key}/")
        else:
            yield prefix + key, value


def run_onnx(graph, inputs):
    """Outputs of a graph in ONNX Runtime, and its Variables by name."""
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
    values = session.run(None, {n: feeds[n] for n in names if n in feeds})
    outputs, state = [], {}
    for output, value in zip(session.get_outputs(), values, strict=True):
        if output.name.endswith("/next"):
            state[output.name.removesuffix("/next")] = value
        else:
            outputs.append(value)
    return outputs, state


def identity(f):
    return f


def decorators_of(mode, counts):
    """The decorators ``capture`` and ``nested`` of the text of a program in a mode."""
    if mode in ("eager", "float64", "perturbed"):
        return identity, identity
    if mode == "fast":
        return ef.function, ef.function
    exact = functools.partial(ef.function, numerics="exact")
    if mode == "exact":
        return exact, exact
    if mode == "session":
        make = functools.partial(ef.capture.Session, numerics="exact")
        return from_graph(make, run_session, "exact"), exact
    if mode == "fast session":
        return from_graph(ef.capture.Session, run_session, "fast"), ef.function
    if mode == "loaded":
        return from_graph(load, run_loaded, "exact"), exact
    if mode == "partitioned":
        return from_graph(partition, lambda graph, plan, inputs: plan.run(inputs), "exact"), exact
    compute = {"python": run_python, "onnx": run_onnx}[mode]
    return (lambda f: Exported(f, compute, counts)), identity


def namespace(mode, counts):
    """The global names of the text of a program in a mode."""
    capture, nested = decorators_of(mode, counts)
    found = {k: v for k, v in vars(helpers).items() if not k.startswith("__")}
    return found | {"capture": capture, "nested": nested}
