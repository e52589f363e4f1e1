"""Quantization after training: converts products of floats to products of small integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eagerflow import tree
from eagerflow.capture.passes import compare, optimized
from eagerflow.capture.quantization.insertion import Choices, Insertion, Target, frozen, targets_of
from eagerflow.capture.quantization.report import (
    Errors,
    QuantizationReport,
    Row,
    constant_bytes,
    errors_of,
)
from eagerflow.capture.quantization.scales import METHODS, Observer, Range
from eagerflow.capture.subject import graph_of
from eagerflow.errors import ArgumentError
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.walk import needed

MODES = ("static", "dynamic", "weights")
BITS = (8, 4)
GROUP_SIZE = 32
PERCENTILE = 99.99
_PASSES = ("constants", "no_ops", "dead_code")


class Quantized(NamedTuple):
    """A quantized graph, and a report of the changes."""

    graph: Graph
    report: QuantizationReport


def quantize(
    graph: Any,
    calibration: Iterable[Any] | None = None,
    *,
    mode: str = "static",
    bits: int = 8,
    per_channel: bool = True,
    group_size: int = GROUP_SIZE,
    method: str = "minmax",
    percentile: float = PERCENTILE,
    keep: Sequence[str] = (),
) -> Quantized:
    """A graph with its known-weight matrix products and convolutions on small integers.

    ``graph`` is a Graph, an ``ef.function`` with one graph, or an ``ef.nn`` model; Variables that
    it only reads become constants. ``calibration`` are batches of representative
    data: each an array, a tuple of arguments, or a dict by input names. ``mode`` selects the
    quantized operands: "static", weights and activations, with the range of activations in
    the data; "dynamic", the same with the range of each call; "weights", only the weights, which
    are converted back to floats in products. Weights are int8, with a scale for each column or
    filter, or ``per_channel=False`` one for all; with "weights", matrices have a scale for each
    column in each ``group_size`` rows, and ``bits=4`` makes them int4, two in a byte. Activations
    are uint8 (int8 in dynamic convolutions). ``method`` finds ranges:
    "minmax" takes all, "percentile" cuts ``percentile`` percent at each
    end, "mse" takes the part with the least squared error. ``keep`` are names of nodes or scopes
    that stay floats.

    Returns the graph and a report. Inputs and outputs stay floats; it saves and exports as any
    other graph, to ONNX with QuantizeLinear and DequantizeLinear. Raises ArgumentError for invalid
    choices, for missing calibration data, and for data that are not finite.

    >>> w = ef.Variable(np.linspace(-1, 1, 12).reshape(4, 3).astype("float32"), name="w")
    >>> graph = ef.capture.trace(lambda x: ef.relu(x @ w), ef.TensorSpec(("n", 4), "float32"))
    >>> found = ef.capture.quantize(graph, [np.linspace(-1, 1, 20).reshape(5, 4).astype("float32")])
    >>> [node.op.name for node in found.graph.nodes]
    ['quantize', 'dequantize', 'dequantize', 'matmul', 'relu']
    >>> print(found.report)
    1 ops quantized: 48 B of constants became 29 B (60%)
      op      bits  before  after  signal to noise  largest error  node
      matmul     8    48 B   24 B          44.6 dB         0.0052  matmul
      output output: 44.5 dB, 0.0052 at most
    """
    _refuse(mode, bits, method, percentile, group_size)
    source = optimized(frozen(graph_of(graph, "quantize")), only=_PASSES)
    targets = targets_of(source, set(keep))
    batches = [] if calibration is None else calibration
    if mode == "static":
        ranges, last = _observed(source, targets, batches, method, percentile)
    else:
        ranges, last = {}, next(iter(batches), None)
    choices = Choices(mode, bits, per_channel, group_size)
    walk = Insertion(source, targets, ranges, choices)
    found = optimized(walk.run(), only=("dead_code",))
    compare(source, found, "quantization")
    return Quantized(found, _report(source, found, targets, last))


def _refuse(mode: str, bits: int, method: str, percentile: float, group_size: int) -> None:
    for name, value, choices in (
        ("mode", mode, MODES),
        ("bits", bits, BITS),
        ("method", method, METHODS),
    ):
        if value not in choices:
            expected = ", ".join(map(repr, choices))
            raise _refused(name, f"{value!r} is not a choice", expected)
    if bits == 4 and mode != "weights":
        raise _refused("bits", "products are of 8 bits", "mode='weights' for weights of 4 bits")
    if not 50 < percentile <= 100:
        raise _refused(
            "percentile",
            f"{percentile!r} is not a percentile for the upper end",
            "above 50, at most 100",
        )
    if not isinstance(group_size, int) or group_size < 1:
        raise _refused("group_size", f"{group_size!r} is not a number of rows", "at least 1")


def _refused(argument: str, problem: str, expected: str) -> ArgumentError:
    return ArgumentError(problem, op="quantize", argument=argument, expected=expected)


# Data --------------------------------------------------------------------------------------------


def _observed(
    graph: Graph, targets: list[Target], batches: Iterable[Any], method: str, percentile: float
) -> tuple[dict[Value, Range], Any]:
    """The ranges of the operands of targets, and the last batch."""
    values = list(dict.fromkeys(target.x for target in targets))
    observers = [Observer() for _ in values]
    shown = _showing(graph, values)
    last = None
    for last in batches:
        for observer, array in zip(observers, _run(shown, last), strict=True):
            observer.add(array)
    if last is None:
        raise _refused("calibration", "there are no calibration data", "batches, or mode='dynamic'")
    for value, observer in zip(values, observers, strict=True):
        if not observer.is_finite:
            raise _refused(
                "calibration", f"{value.name} is not finite with these data", "finite numbers"
            )
    found = [observer.range(method, percentile) for observer in observers]
    return dict(zip(values, found, strict=True)), last


def _showing(graph: Graph, values: Sequence[Value]) -> Graph:
    """A graph with all inputs and these values as outputs, without assignments."""
    cells = [Cell(c.name, c.variable, c.value) for c in graph.cells]
    nodes = needed(graph.nodes, set(values))
    names = [f"value_{i}" for i in range(len(values))]
    return Graph(graph.name, graph.inputs, nodes, Values(values, names), cells)


def _run(graph: Graph, batch: Any) -> list[Any]:
    """The results of a graph for a batch, as arrays."""
    if isinstance(batch, Mapping):
        results = graph(**batch)
    else:
        results = graph(*(batch if isinstance(batch, tuple) else (batch,)))
    return [x.numpy() for x in tree.flatten(results)[0]]


# The report --------------------------------------------------------------------------------------


def _report(source: Graph, found: Graph, targets: list[Target], batch: Any) -> QuantizationReport:
    """The changes of the targets, with their errors in a batch, if there is one."""
    makers = {node.name: node for node in found.nodes}
    made = [makers[target.node.name] for target in targets]
    rows: list[Errors | None] = [None] * len(targets)
    ends: dict[str, Errors] = {}
    if batch is not None:
        before = [*(t.node.outputs[0] for t in targets), *source.outputs]
        after = [*(node.outputs[0] for node in made), *found.outputs]
        graphs = _showing(source, before), _showing(found, after)
        pairs = zip(*[_run(graph, batch) for graph in graphs], strict=True)
        errors = [errors_of([a], [b]) if a.dtype.kind == "f" else None for a, b in pairs]
        rows = errors[: len(targets)]
        outputs = zip(source.outputs.names, errors[len(targets) :], strict=True)
        ends = {name: own for name, own in outputs if own is not None}
    lines = [_row(*each) for each in zip(targets, made, rows, strict=True)]
    return QuantizationReport(tuple(lines), constant_bytes(source), constant_bytes(found), ends)


def _row(target: Target, node: Node, errors: Errors | None) -> Row:
    held = _constants_behind(node.inputs[1])
    integers = next(v for v in held if v.dtype.kind in "iu")
    bits = 8 * integers.size * integers.dtype.itemsize // target.weights.size
    after = sum(nbytes(x) for x in held)
    return Row(node.name, node.op.name, bits, target.weights.nbytes, after, errors)


def _constants_behind(value: Value) -> list[Value]:
    """The constants that a value is computed from."""
    if value.constant is not None:
        return [value]
    if value.node is None:
        return []
    return [x for given in value.node.values() for x in _constants_behind(given)]
