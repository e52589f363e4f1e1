"""Graphs for the tests of code that reads graphs: made by hand, or of one call of each op."""

from functools import partial

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.op import ops
from tests.contract.cases import as_tensors, main_dtype, samples

FLOAT32 = np.dtype("float32")


def chain(length, names=("tanh",), size=3):
    """A graph of so many nodes in a row, whose ops take turns; much faster than to trace it."""
    x = value = Value("x", (size,), FLOAT32)
    nodes = []
    origin = (__file__, 1, "chain")
    for i in range(length):
        op = ops[names[i % len(names)]]
        node = Node(op, (value,) * len(op.data), {}, f"{op.name}_{i}", origin)
        value = Value(node.name, (size,), FLOAT32, None, node)
        node.outputs = (value,)
        nodes.append(node)
    return Graph("chain", Values([x]), nodes, Values([value], ["y"]))


def body(name, op="tanh", inner=None):
    """A graph of one node, with a graph among its attributes if one is given."""
    graph = chain(1, (op,))
    graph.name = name
    node = graph.nodes[0]
    node.name = node.outputs[0].name = op
    node.attributes |= {} if inner is None else {"body": inner}
    return graph


def calls_of(op):
    """Graphs of one call of an op each, for those of its samples that can be traced."""
    found = []
    for sample in samples(op, main_dtype(op)):
        arguments = as_tensors(sample)
        call = partial(op.call, **sample.attributes)
        try:
            found.append(ef.capture.trace(lambda *xs, f=call: f(*xs), *arguments, name=op.name))
        except EagerflowError:  # whose shapes depend on values
            continue
    return found
