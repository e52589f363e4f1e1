"""The listing of a graph: what it says, how it is aligned, and that it takes linear time."""

import re
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.graph import text
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.text import attribute_text, constant_text
from eagerflow.graph.walk import named_bodies
from eagerflow.op import ops
from tests.graph.graphs import body, chain


def spec(*shape, dtype="float32"):
    return ef.TensorSpec(shape, dtype)


def step_graph():
    kernel = ef.Variable(ef.ones((3, 2)), name="dense/kernel")
    bias = ef.Variable(ef.zeros((2,)), name="dense/bias")

    def step(x, y):
        with ef.capture.scope("dense"):
            h = ef.tanh(x @ kernel + bias)
        bias.assign(bias + 1.0)
        return {"loss": ef.sum((h - y) * ef.tensor([1.5, 2.0]), axis=0), "kept": "a word"}

    return ef.capture.trace(step, spec("batch", 3), spec("batch", 2))


def test_a_listing_says_all():
    assert step_graph().text(lines=False) == (
        "graph step(x: float32[batch, 3], y: float32[batch, 2]):\n"
        "  variables\n"
        "    dense/kernel: float32[3, 2] on cpu:0\n"
        "    dense/bias: float32[2] on cpu:0, assigned\n"
        "  constants\n"
        "    constant: float32[2] = [1.5, 2. ]\n"
        "\n"
        "  in dense:\n"
        "    matmul: float32[batch, 2] = matmul(x, dense/kernel)\n"
        "    add:    float32[batch, 2] = add(matmul, dense/bias)\n"
        "    tanh:   float32[batch, 2] = tanh(dense/add)\n"  # there is an add outside as well
        "\n"
        "  add:      float32[2]        = add(dense/bias, 1.0)\n"
        "  subtract: float32[batch, 2] = subtract(dense/tanh, y)\n"
        "  multiply: float32[batch, 2] = multiply(subtract, constant)\n"
        "  sum:      float32[2]        = sum(multiply, axis=0)\n"
        "\n"
        "  return\n"
        "    loss     = sum\n"
        "    result 1 = 'a word'\n"
        "\n"
        "  assign\n"
        "    dense/bias = add"
    )


def test_lines_of_the_users_code_stand_below_each_other():
    found = re.findall(r"^(.*)  # test_text\.py:(\d+)$", str(step_graph()), re.MULTILINE)
    assert len(found) == 7
    first = step_graph.__code__.co_firstlineno
    assert [int(line) - first for _, line in found] == [6, 6, 6, 7, 8, 8, 8]
    assert len({len(words) for words, _ in found[3:]}) == 1


def test_types_can_be_left_out():
    words = step_graph().text(lines=False, types=False)
    assert "  subtract = subtract(dense/tanh, y)\n" in words
    assert "batch" not in words.split("\n", 1)[1].replace("float32[2]", "").split("return")[0]


def test_repr_stays_one_line():
    assert "\n" not in repr(step_graph())


def test_several_results_stand_in_one_line():
    graph = ef.capture.trace(lambda x: ef.top_k(x, 2), spec(5))
    line = graph.text(lines=False).split("\n")[1]
    assert line == "  top_k:0, :1: float32[2], int64[2] = top_k(x, k=2)"


def test_pinned_devices_are_shown():
    def f(x):
        with ef.device("cpu:0"):
            return ef.tanh(x)

    assert "tanh(x) on cpu:0" in str(ef.capture.trace(f, spec(2)))


def test_long_heads_are_broken():
    def f(a_rather_long_name, another_rather_long_name, the_longest_name_of_them_all):
        return a_rather_long_name + another_rather_long_name + the_longest_name_of_them_all

    words = str(ef.capture.trace(f, spec("batch", 3), spec("batch", 3), spec("batch", 3)))
    assert words.startswith("graph f(\n    a_rather_long_name: float32[batch, 3],\n")
    assert max(map(len, words.split("\n"))) < 120


@pytest.mark.parametrize(("value", "words"), [
    (np.dtype("int8"), "int8"),
    ((slice(None), slice(1, None, 2), 3, Ellipsis, None), "(:, 1::2, 3, ..., None)"),
    ((1,), "(1,)"),
    (Dim("n") * 2, "2*n"),
    ("same", "'same'"),
    (float("nan"), "nan"),
    ((), "()"),
])  # fmt: skip
def test_attributes_read_as_code(value, words):
    assert attribute_text(value) == words


def test_defaults_are_left_out_and_one_is_not_true():
    x = Value("x", (3,), np.dtype("float32"))
    op = ops["sum"]
    words = []
    for keepdims in (False, 0, True):
        node = Node(op, (x,), {"axis": None, "dtype": None, "keepdims": keepdims}, "sum")
        words.append(text.call_text(node))
    assert words == ["sum(x)", "sum(x, keepdims=0)", "sum(x, keepdims=True)"]


def test_arguments_left_out_at_the_end_are_not_shown():
    graph = ef.capture.trace(lambda x: ef.clip(x, None, 2.0), spec(3))
    assert "None, " in str(graph) and "clip(x, None, 2.0)" in str(graph)
    graph = ef.capture.trace(lambda x: ef.clip(x, 1.0), spec(3))
    assert "clip(x, 1.0)" in str(graph)


@pytest.mark.parametrize(
    ("constant", "words"),
    [
        (ef.tensor([[1, 2], [3, 4]]), "[[1, 2], [3, 4]]"),
        (ef.tensor(2.5, dtype="bfloat16"), "2.5"),
        (np.float32([0.1]), "[0.1]"),
        (ef.zeros((9,)), "..."),
        (ef.zeros((0, 3)), "[]"),
    ],
)
def test_small_constants_are_shown(constant, words):
    value = Value("c", constant.shape, constant.dtype, constant=constant)
    assert constant_text(value) == words


def test_nested_graphs_stand_below_their_node():
    graph = body("outer", inner=body("inner"))
    assert graph.text(lines=False) == (
        "graph outer(x: float32[3]):\n"
        "  tanh: float32[3] = tanh(x)\n"
        "      body inner(x: float32[3]):\n"
        "        tanh: float32[3] = tanh(x)\n"
        "\n"
        "        return\n"
        "          y = tanh\n"
        "\n"
        "  return\n"
        "    y = tanh"
    )
    node = body("outer").nodes[0]
    node.attributes["branches"] = (body("a"), body("b"))
    assert [name for name, _ in named_bodies(node.attributes)] == ["branches[0]", "branches[1]"]


def test_nesting_has_no_bottom():
    graph = body("innermost")
    for _ in range(3_000):
        graph = body("outer", inner=graph)
    words = graph.text()
    assert words.count("body outer(") == 2_999
    assert "innermost" in words


@pytest.mark.soak
def test_a_hundred_thousand_nodes_print_in_linear_time():
    short, long = chain(2_000), chain(100_000)

    def seconds(graph, times):
        best = float("inf")
        for _ in range(times):
            start = time.process_time()
            words, folded = graph.text(), str(graph)
            best = min(best, time.process_time() - start)
        assert words.count("\n") > len(graph.nodes) > folded.count("\n")
        return best

    # 50 times the nodes; a quadratic algorithm would take 2,500 times as long.
    assert seconds(long, 1) < 400 * seconds(short, 3)
