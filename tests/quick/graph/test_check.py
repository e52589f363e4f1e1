"""Each rule of graphs is checked: sound graphs pass, and a graph with one fault is refused."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.op import REQUIRED, custom_op, ops
from eagerflow.tree import flatten
from tests.contract.cases import shipped
from tests.graph.graphs import calls_of

float32 = np.dtype("float32")
VALUE_DEPENDENT = ("nonzero",)  # ops whose results have a shape that no trace can know


def spec(*shape, dtype="float32", name=None):
    return ef.TensorSpec(shape, dtype, name=name)


def sound():
    """A graph with all kinds of parts, new for each test."""
    w = ef.Variable(ef.ones((3, 2)), name="w")

    def f(x, y):
        h = ef.tanh(x @ w)
        w.assign(w * 0.5)
        best, places = ef.top_k(h, 1)
        kept = ef.where(h > 0.0, h, y)
        return {"best": best, "places": places, "s": ef.sum(kept * ef.tensor([1.0, 2.0]), axis=0)}

    return ef.capture.trace(f, spec("batch", 3), spec("batch", 2), name="f")


def node(graph, name):
    return next(n for n in graph.nodes if n.name == name)


def test_a_sound_graph_passes():
    graph = sound()
    assert graph.check() is None
    assert {n.op.name for n in graph.nodes} >= {"matmul", "top_k", "where", "sum"}


def test_edited_graphs_pass_the_check():
    graph = sound()
    graph.prune("s").check()
    graph.rename({"x": "image"}).check()


# Planted faults -----------------------------------------------------------------------------------


def swap_nodes(graph):
    nodes = list(graph.nodes)
    i = nodes.index(node(graph, "tanh"))
    nodes[i - 1 : i + 1] = nodes[i], nodes[i - 1]
    graph.nodes = tuple(nodes)


def repeat_node(graph):
    graph.nodes += (graph.nodes[-1],)


def repeat_name(graph):
    node(graph, "tanh").outputs[0].name = "x"


def lose_name(graph):
    node(graph, "tanh").outputs[0].name = ""


def lose_node_name(graph):
    node(graph, "tanh").name = None


def unknown_op(graph):
    node(graph, "tanh").op = custom_op("theirs", lambda g: g)


def foreign_op(graph):
    node(graph, "tanh").op = None


def too_many_inputs(graph):
    node(graph, "tanh").inputs *= 2


def too_few_inputs(graph):
    node(graph, "matmul").inputs = node(graph, "matmul").inputs[:1]


def no_input(graph):
    node(graph, "tanh").inputs = (None,)


def odd_input(graph):
    node(graph, "tanh").inputs = ("three",)


def array_input(graph):
    node(graph, "tanh").inputs = (np.ones(3),)


def foreign_value(graph):
    node(graph, "tanh").inputs = (Value("alien", (Dim("batch"), 2), float32),)


def wrong_dtype(graph):
    graph.inputs[0].dtype = np.dtype("bool")


def mixed_dtypes(graph):
    graph.inputs[1].dtype = np.dtype("float64")


def strange_attribute(graph):
    node(graph, "sum").attributes["colour"] = "red"


def missing_attribute(graph):
    del node(graph, "sum").attributes["axis"]


def ungiven_attribute(graph):
    node(graph, "top_k").attributes["k"] = REQUIRED


def listed_attribute(graph):
    node(graph, "sum").attributes["axis"] = [0]


def callable_attribute(graph):
    node(graph, "sum").attributes["axis"] = (0, print)


def deep_attribute(graph):
    axis = 0
    for _ in range(5_000):
        axis = (axis,)
    node(graph, "sum").attributes["axis"] = axis


def no_attributes(graph):
    node(graph, "sum").attributes = None


def wrong_axis(graph):
    node(graph, "sum").attributes["axis"] = 7


def senseless_attribute(graph):
    node(graph, "sum").attributes["axis"] = slice(None)


def wrong_shape(graph):
    node(graph, "tanh").outputs[0].shape = (3,)


def wrong_size_name(graph):
    node(graph, "tanh").outputs[0].shape = (Dim("other"), 2)


def wrong_result_dtype(graph):
    node(graph, "tanh").outputs[0].dtype = np.dtype("float64")


def missing_output(graph):
    node(graph, "top_k").outputs = node(graph, "top_k").outputs[:1]


def no_outputs(graph):
    node(graph, "tanh").outputs = ()


def wrong_index(graph):
    node(graph, "top_k").outputs[1].index = 0


def wrong_maker(graph):
    node(graph, "tanh").outputs[0].node = node(graph, "matmul")


def odd_shape(graph):
    graph.inputs[0].shape = [3]


def negative_size(graph):
    graph.inputs[0].shape = (-1, 3)


def odd_dtype(graph):
    graph.inputs[0].dtype = np.dtype("datetime64[s]")


def odd_device(graph):
    graph.inputs[0].device = 3


def odd_pin(graph):
    node(graph, "tanh").device = 3


def constant_input(graph):
    graph.inputs[0].constant = ef.ones((2, 3))


def input_twice(graph):
    graph.inputs = Values([*graph.inputs, graph.inputs[0]], ["x", "y", "z"])


def input_names_twice(graph):
    graph.inputs = Values(graph.inputs, ["x", "x"])


def odd_entry(graph):
    graph.inputs = Values([*graph.inputs, 3.0], ["x", "y", "z"])


def changed_constant(graph):
    graph.constants[0].constant = ef.ones((3,))


def constant_without_shape(graph):
    graph.constants[0].constant = 3.0


def changed_variable(graph):
    graph.cells[0].variable = ef.Variable(ef.ones((2, 3)), name="w")


def variable_of_a_node(graph):
    graph.cells[0].value.node = graph.nodes[0]


def variable_name_twice(graph):
    graph.cells[0].name = "x"


def misfit_assigned(graph):
    graph.cells[0].assigned = node(graph, "tanh").outputs[0]


def foreign_assigned(graph):
    graph.cells[0].assigned = Value("alien", (3, 2), float32)


def odd_assigned(graph):
    graph.cells[0].assigned = 3.0


def odd_output(graph):
    graph.outputs = Values([3.0, *graph.outputs[1:]], graph.outputs.names)


def foreign_output(graph):
    values = [Value("alien", (), float32), *graph.outputs[1:]]
    graph.outputs = Values(values, graph.outputs.names)


def output_names_twice(graph):
    graph.outputs = Values(graph.outputs, ["a", "a", "b"])


def variable_names_twice(graph):
    (cell,) = graph.cells
    graph.cells += (Cell(cell.name, None, Value("other", (3, 2), np.dtype("float32"))),)


def results_in_another_order(graph):
    graph.results = (*graph.results[1:], graph.results[0])


def other_structure(graph):
    graph.structure = flatten([1, 2, 3, 4])[1]


FAULTS = [
    (swap_nodes, "matmul, which does not exist yet", "tanh"),
    (repeat_node, "sum is made twice", "sum"),
    (repeat_name, "the name 'x' is taken", "tanh"),
    (lose_name, "has the name ''", "tanh"),
    (lose_node_name, "it has the name None", None),
    (unknown_op, "there is no op 'theirs'", "tanh"),
    (foreign_op, "there is no op 'None'", "tanh"),
    (too_many_inputs, "it has 2 inputs", "tanh"),
    (too_few_inputs, "it has 1 inputs", "matmul"),
    (no_input, "x is missing", "tanh"),
    (odd_input, "x is 'three'", "tanh"),
    (array_input, "x is array", "tanh"),
    (foreign_value, "x is alien, which does not exist", "tanh"),
    (wrong_dtype, "dtype that the op does not take", "matmul"),
    (mixed_dtypes, "its inputs have different dtypes", "where"),
    (strange_attribute, "its attributes are not those of the op", "sum"),
    (missing_attribute, "its attributes are not those of the op", "sum"),
    (ungiven_attribute, "the attribute k is not given", "top_k"),
    (listed_attribute, "the attribute axis holds a list", "sum"),
    (callable_attribute, "the attribute axis holds a builtin", "sum"),
    (deep_attribute, "too deep", "sum"),
    (no_attributes, "its attributes are None", "sum"),
    (wrong_axis, "axis 7 does not exist", "sum"),
    (senseless_attribute, "the attribute axis is not valid for the op", "sum"),
    (wrong_shape, "its outputs are not those of the op", "tanh"),
    (wrong_size_name, "its outputs are not those of the op", "tanh"),
    (wrong_result_dtype, "its outputs are not those of the op", "tanh"),
    (missing_output, "its outputs are not those of the op", "top_k"),
    (no_outputs, "its outputs are not those of the op", "tanh"),
    (wrong_index, "does not say that it is output 1", "top_k"),
    (wrong_maker, "does not say that it is output 0", "tanh"),
    (odd_shape, "x has the shape", "f"),
    (negative_size, "x has the shape", "f"),
    (odd_dtype, "x has the dtype", "f"),
    (odd_device, "x is to be on 3", "f"),
    (odd_pin, "it is to run on 3", "tanh"),
    (constant_input, "the input x is a constant", "f"),
    (input_twice, "x is made twice", "f"),
    (input_names_twice, "inputs do not have a name each", "f"),
    (odd_entry, "an input is 3.0", "f"),
    (changed_constant, "constant does not match its array", "f"),
    (constant_without_shape, "constant does not match its array", "f"),
    (changed_variable, "Variable w is not as the graph says", "f"),
    (variable_of_a_node, "Variable w is a constant, or a node makes it", "f"),
    (variable_name_twice, "the name 'x' of a Variable is taken", "f"),
    (misfit_assigned, "does not match it", "tanh"),
    (foreign_assigned, "is not a value of the graph", "f"),
    (odd_assigned, "an output or an assigned value is 3.0", "f"),
    (odd_output, "an output or an assigned value is 3.0", "f"),
    (foreign_output, "the output best is not a value", "f"),
    (variable_names_twice, "its Variables do not have a name each", "f"),
    (output_names_twice, "outputs do not have a name each", "f"),
    (results_in_another_order, "values in its result are not its first outputs", "f"),
    (other_structure, "3 leaves, and its structure 4", "f"),
]


@pytest.mark.parametrize(
    ("plant", "words", "where"), FAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_planted_fault_is_found(plant, words, where):
    graph = sound()
    graph.check()
    plant(graph)
    with pytest.raises(CaptureError) as caught:
        graph.check()
    assert words in caught.value.problem
    if where is not None:
        assert caught.value.problem.startswith(where)
    if where not in (None, "f"):  # a node's fault names the user's line
        assert "test_check.py:" in caught.value.at


def loop_of(body):
    """A graph whose only node holds another graph, as an op of control flow does."""
    graph = ef.capture.trace(lambda x: ef.tanh(x), spec(3), name="outer")
    graph.nodes[0].attributes["body"] = body
    return graph


@pytest.fixture
def tanh_with_body(monkeypatch):
    monkeypatch.setitem(ops["tanh"].attributes, "body", None)
    monkeypatch.setattr(ops["tanh"], "infer", lambda x, body=None: ef.TensorSpec(x.shape, x.dtype))


def test_faults_in_bodies_are_found(tanh_with_body):
    inner = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    graph = loop_of((1, inner))
    graph.check()
    inner.nodes[0].attributes["axis"] = 7
    with pytest.raises(CaptureError, match=r"^tanh\.body\[1\]: sum = sum\(...\): the op"):
        graph.check()


def test_bodies_in_bodies_have_no_bottom(tanh_with_body):
    graph = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    innermost = graph
    for _ in range(3_000):
        graph = loop_of(graph)
    graph.check()
    innermost.nodes[0].attributes["axis"] = 7
    with pytest.raises(CaptureError, match="axis 7"):
        graph.check()


def test_a_body_in_many_places_is_checked_once(tanh_with_body):
    graph = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    for _ in range(60):  # 2 ** 60 ways down
        graph = loop_of((graph, graph))
    graph.check()


def test_variables_may_be_missing():
    x = Value("x", (3,), float32)
    cell = Cell("w", None, Value("w", (3,), float32))
    made = Node(ops["add"], (x, cell.value), {}, "add")
    made.outputs = (Value("add", (3,), float32, None, made),)
    graph = Graph("f", Values([x]), [made], Values(made.outputs, ["y"]), [cell])
    graph.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", shipped(), ids=lambda op: op.name)
def test_a_call_of_any_op_passes_and_can_be_read(op):
    graphs = calls_of(op)
    assert graphs or op.name in VALUE_DEPENDENT
    for graph in graphs:
        graph.check()
        assert f"{op.name}(" in str(graph) and graph.costs().flops >= 0
        if len(graph.inputs) == len(set(graph.prune(list(graph.outputs)).inputs)):
            assert not graph.diff(graph.prune(graph.nest(graph.outputs)))
