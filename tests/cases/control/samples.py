"""Sample calls of control-flow ops, and a reference implementation, for contract tests."""

import numpy as np

from eagerflow.capture.control.derived import Writing
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.op import ops
from eagerflow.ops.family import FLOAT8, STANDARD
from tests.cases.samples import ErrorSample, Sample, make

ANY = STANDARD | FLOAT8
_COUNT = np.dtype("int32")


def written(f, *specs):
    """The body of a function of tensors that captures nothing."""
    writing = Writing("body")
    symbols = [writing.new(*spec, f"x{i}") for i, spec in enumerate(specs)]
    with writing.trace:
        outs = f(*symbols)
    return writing.body(symbols, outs)


def reference_run(graph, arrays):
    """The outputs of a graph for arrays, one op after the other by its name."""
    known = {}
    for value, array in zip(graph.inputs, arrays, strict=True):
        known[value] = as_tensor(np.asarray(array))
    for node in graph.nodes:
        args = [x if type(x) is not Value else known.get(x, x.constant) for x in node.inputs]
        out = ops[node.op.name].call(*args, **node.attributes)
        known |= zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True)
    return [known[v].numpy() for v in graph.outputs]


def _mix(a, b):
    """Some function of two tensors of any dtype; smooth where they are floats."""
    if a.dtype == np.bool_:
        return ops["logical_xor"].call(a, b)
    if is_inexact(a.dtype):
        return a * b + a * 0.5
    return a + b * 2


def misfits(args, attributes):
    """Calls with a last operand of a wrong shape or dtype, or without a graph."""
    *others, last = args
    graphs = [name for name, item in attributes.items() if isinstance(item, Graph)]
    return [
        ErrorSample((*others, last[:1]), attributes, ShapeError, "its shape is not that of"),
        ErrorSample((*others, last > 0), attributes, DTypeError, "its dtype is not that of"),
        *(ErrorSample(args, attributes | {g: "words"}, DTypeError, "not a graph") for g in graphs),
    ]


# Branches -----------------------------------------------------------------------------------------


def _graphs(op, count, *specs):
    bodies = [
        written(f, *specs)
        for f in (
            lambda x, y, *n: (_mix(x, y), x, *n),
            lambda x, y, *n: (y, _mix(y, x), *n),
            lambda x, y, *n: (_mix(_mix(x, y), y), ops["zeros_like"].call(x), *n),
        )
    ]
    if op == "cond":
        return {"true_graph": bodies[0], "false_graph": bodies[1]}
    return {"branches": tuple(bodies[:count])}


def branch_samples(op):
    """Samples of ``cond`` or of ``switch``."""
    choosers = (
        [np.array(True), np.array(False)]
        if op == "cond"
        else [np.array(i, t) for i, t in ((0, "int32"), (1, "int8"), (-3, "int64"))]
    )

    def samples(rng, dtype):
        found = []
        for shape in ((), (3,), (0, 3), (2, 3)):
            for chooser in choosers:
                x, y = make(rng, dtype, shape), make(rng, dtype, shape)
                given = _graphs(op, 3, (shape, dtype), (shape, dtype))
                found.append(Sample((chooser, x, y), given))
        rows = Dim("rows")
        for chooser in (choosers[0], choosers[-1] * 0 + 5 if op == "switch" else choosers[1]):
            x, y = make(rng, dtype, (2, 3)), make(rng, dtype, (2, 3))
            named = (rows, Dim("columns")), dtype
            found.append(Sample((chooser, x.T[::-1].T, y), _graphs(op, 2, named, named)))
            n = np.array([1, 2], _COUNT)
            specs = ((3,), dtype), ((3,), dtype), ((2,), _COUNT)
            found.append(Sample((chooser, x[0], y[1], n), _graphs(op, 1 + (op == "cond"), *specs)))
        return found

    return samples


def branch_errors(op):
    """Invalid calls of ``cond`` or of ``switch``."""
    chooser = np.array(True) if op == "cond" else np.array(1)

    def errors(rng):
        x, spec = np.ones((2, 3)), ((2, 3), "float64")
        good = _graphs(op, 2, spec, spec)
        other = written(lambda x, y: (x[0], y), spec, spec)
        last = {"false_graph": other} if op == "cond" else {"branches": (good_of(good), other)}
        text = {"true_graph": "words"} if op == "cond" else {"branches": ()}
        return [
            ErrorSample(("a string", x, x), good, DTypeError, "str"),
            ErrorSample((np.array(0.5), x, x), good, DTypeError, "it is no"),
            ErrorSample((chooser[None], x, x), good, ShapeError, "it has axes"),
            ErrorSample((chooser, x, x), good | last, ShapeError, "give different results"),
            ErrorSample((chooser, x, x), good | text, DTypeError, "graph"),
            *misfits((chooser, x, x), good),
        ]

    return errors


def good_of(attributes):
    """The first graph of ``switch``."""
    graph = attributes["branches"][0]
    return graph


# Loops --------------------------------------------------------------------------------------------


def _while_graphs(shape, dtype):
    specs = ((), _COUNT), (shape, dtype), ((), _COUNT), (shape, dtype)
    # Such a loop ends soon for any numbers.
    test = written(lambda i, x, n, k: ((i < n) & (ops["abs"].call(i) < 8),), *specs)
    step = written(lambda i, x, n, k: (i + 1, _mix(x, k)), *specs)
    return {"cond": test, "body": step, "states": 2}


def while_samples(rng, dtype):
    """Samples of ``while_loop``."""
    found = []
    for shape, start, stop, most in (
        ((), 0, 3, 5),
        ((), 3, 3, 5),
        ((3,), 0, 1, 1),
        ((3,), 1, 4, 3),
        ((3,), 0, 4, 2),
        ((2, 3), 0, 3, 4),
        ((2, 3), 2, 0, 4),
        ((0,), 0, 2, 2),
        ((1,), 0, 2, 6),
        ((3,), 0, 3, 0),
        ((2, 1), -1, 2, 4),
        ((3, 2), 0, 2, 3),
    ):
        counts = np.array(start, _COUNT), np.array(stop, _COUNT)
        x, k = make(rng, dtype, shape, -1, 1), make(rng, dtype, shape, -1, 1)
        named = tuple(Dim(f"axis_{i}") for i in range(len(shape))) if found[8:] else shape
        given = _while_graphs(named, dtype) | {"maximum_iterations": most}
        found.append(Sample((counts[0], x, counts[1], k), given))
    return found


def while_errors(rng):
    """Invalid calls of ``while_loop``."""
    n, x = np.array(2, _COUNT), np.ones(3)
    good = _while_graphs((3,), "float64")
    wide = written(lambda i, x, n, k: (i + 1, x[None]), *(_spec(a) for a in (n, x, n, x)))
    return [
        ErrorSample((n, x, n), good, ArgumentError, "3 values for a graph of 4 inputs"),
        ErrorSample((n, x, n, x), good | {"body": wide}, ShapeError, "does not match its input"),
        ErrorSample((n, x, n, x), good | {"cond": good["body"]}, DTypeError, "not a single bool"),
        ErrorSample((n, x, n, x), good | {"states": 3}, ShapeError, "does not match its input"),
        ErrorSample((n, x, n, x), good | {"maximum_iterations": -1}, ShapeError, "negative"),
        *misfits((n, x, n, x), good),
    ]


def _spec(array):
    return array.shape, array.dtype


def _scan_body(shape, dtype, counts):
    specs = [(shape, dtype)] * 3
    if not counts:
        return written(lambda c, x, k: (_mix(c, k), _mix(x, c), x), *specs)
    return written(lambda i, c, x, k: (i + 1, _mix(c, x), _mix(k, c), i), ((), _COUNT), *specs)


def scan_samples(rng, dtype):
    """Samples of ``scan``."""
    found = []
    for shape, steps, reverse, counts in (
        ((), 4, False, False),
        ((), 3, True, True),
        ((), 0, False, False),
        ((2,), 1, True, False),
        ((2,), 3, False, True),
        ((2,), 0, True, True),
        ((2, 3), 2, False, False),
        ((2, 3), 4, True, False),
        ((0,), 2, False, True),
        ((1, 3), 3, False, False),
        ((3, 1), 2, True, True),
        ((2, 3), 3, False, True),
    ):
        c, k = make(rng, dtype, shape, -1, 1), make(rng, dtype, shape, -1, 1)
        xs = make(rng, dtype, (steps, *shape), -1, 1)
        named = tuple(Dim(f"axis_{i}") for i in range(len(shape))) if found[5:] else shape
        given = {"carries": 1 + counts, "sequences": 1, "reverse": reverse}
        given |= {"body": _scan_body(named, dtype, counts)} | (
            {} if found[5:] else {"length": steps}
        )
        args = (c, xs[::-1] if reverse else xs, k)
        found.append(Sample((np.array(0, _COUNT), *args) if counts else args, given))
    return found


def scan_errors(rng):
    """Invalid calls of ``scan``."""
    c, xs = np.ones(2), np.ones((4, 2))
    good = {
        "body": _scan_body((2,), "float64", False),
        "carries": 1,
        "sequences": 1,
    }
    wide = written(lambda c, x, k: (c[None], x), *[((2,), "float64")] * 3)
    return [
        ErrorSample((c, xs[0, 0], c), good, ShapeError, "no axis"),
        ErrorSample((c, xs, c), good | {"length": 3}, ShapeError, "length"),
        ErrorSample((c, xs, c), good | {"body": wide}, ShapeError, "does not match its input"),
        ErrorSample((c, xs, c), good | {"carries": -1}, ShapeError, "carries"),
        *misfits((c, xs, c), good),
        ErrorSample((c, c, c), good | {"sequences": 0}, ShapeError, "length"),
    ]
