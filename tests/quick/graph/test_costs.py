"""Costs of graphs: operations, bytes and memory, as numbers and as polynomials."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.errors import ShapeError
from eagerflow.graph.costs import Size, names_of
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.op import Cost, ops
from tests.graph.graphs import chain


def spec(*shape, dtype="float32"):
    return ef.TensorSpec(shape, dtype)


def network(batch):
    w = ef.Variable(ef.ones((3, 5)), name="w")

    def f(x):
        with ef.capture.scope("outer"), ef.capture.scope("inner"):
            h = ef.tanh(x @ w)
        with ef.capture.scope("outer"):
            h = h * 2.0
        return ef.sum(h, axis=0)

    return ef.capture.trace(f, spec(batch, 3), name="f")


def test_operations_and_bytes_are_those_that_the_ops_state():
    costs = network(4).costs()
    # A product of (4, 3) and (3, 5): two operations for each of 4 * 5 * 3.
    assert [(n.op, n.flops) for n in costs.nodes] == [
        ("matmul", 120),
        ("tanh", 20),
        ("multiply", 20),
        ("sum", 20),
    ]
    assert costs.nodes[0].bytes == 4 * (12 + 15 + 20)
    assert costs.flops == 180
    assert costs.bytes == sum(n.bytes for n in costs.nodes)


def test_named_sizes_give_polynomials_that_hold_for_all_sizes():
    symbolic = network("batch").costs()
    assert str(symbolic.flops) == "45*batch"
    for batch in (1, 7, 1_000):
        known = network(batch).costs()
        for part in ("flops", "bytes", "held", "peak"):
            assert getattr(symbolic, part).evaluate({"batch": batch}) == getattr(known, part)
        given_sizes = network("batch").costs(batch=batch)
        assert (given_sizes.flops, given_sizes.peak) == (known.flops, known.peak)
        assert network("batch").costs({"batch": batch}).bytes == known.bytes


def test_a_missing_size_is_named():
    graph = ef.capture.trace(lambda x, y: ef.sum(x) + ef.sum(y), spec("n"), spec("m"))
    with pytest.raises(ShapeError, match="'m'"):
        graph.costs(n=3)


def test_sizes_in_attributes_count():
    graph = ef.capture.trace(lambda x: ef.zeros((x.shape[0], 3)) + x, spec("n", 3))
    assert graph.costs().nodes[0].bytes == Dim("n") * 12
    assert graph.costs(n=5).nodes[0].bytes == 60


def test_a_cost_that_is_no_polynomial_asks_for_sizes(monkeypatch):
    monkeypatch.setattr(ops["sort"], "cost", lambda x, **_: Cost(int(float(x.size) ** 1.5), 0))
    graph = ef.capture.trace(lambda x: ef.sort(x), spec("n"))
    with pytest.raises(ShapeError) as caught:
        graph.costs()
    assert "graph.costs(n=32)" in caught.value.hint
    assert "test_costs.py:" in caught.value.at
    assert graph.costs(n=4).flops == 8


def test_scope_costs_include_nested_scopes():
    costs = network(4).costs()
    assert list(costs.scopes) == ["outer", "outer/inner", ""]
    assert costs.scopes["outer"].flops == 160
    assert costs.scopes["outer/inner"].flops == 140
    assert costs.scopes[""].flops == 20


def test_ops_and_families_are_summed():
    costs = network(4).costs()
    assert {name: cost.flops for name, cost in costs.families.items()} == {
        "contraction": 120,
        "elementwise": 40,
        "reduction": 20,
    }
    assert next(iter(costs.ops)) == "matmul"


# Memory -------------------------------------------------------------------------------------------


def test_memory_is_freed_after_the_last_use():
    def chain(x):
        for _ in range(10):
            x = ef.tanh(x)
        return x

    costs = ef.capture.trace(chain, spec(1_000)).costs()
    assert (costs.held, costs.peak) == (4_000, 4_000 + 2 * 4_000)  # one is read, one written

    def fan(x):
        parts = [ef.tanh(x) for _ in range(10)]
        return sum(parts[1:], parts[0])

    assert ef.capture.trace(fan, spec(1_000)).costs().peak == 4_000 + 11 * 4_000


def test_outputs_and_assigned_values_stay():
    w = ef.Variable(ef.ones(1_000), name="w")

    def f(x):
        y = ef.tanh(x)
        w.assign(ef.exp(x))
        z = ef.sin(x)
        return y, ef.sum(z)

    costs = ef.capture.trace(f, spec(1_000)).costs()
    assert costs.held == 8_000
    assert costs.peak == 8_000 + 3 * 4_000 + 4


def test_views_need_no_memory_but_keep_their_base():
    def f(x):
        y = ef.tanh(x)
        z = ef.reshape(y, (10, 100)).T  # two views of y
        w = ef.exp(x)
        return ef.sum(z) + ef.sum(w)

    costs = ef.capture.trace(f, spec(1_000)).costs()
    assert [n.made for n in costs.nodes] == [4_000, 0, 0, 4_000, 4, 4, 4]
    assert costs.peak == 4_000 + 2 * 4_000 + 4


def test_constants_are_held():
    table = ef.ones(500)
    assert ef.capture.trace(lambda x: x + table, spec(500)).costs().held == 4_000


def test_bodies_need_memory_while_they_run(monkeypatch):
    x = Value("x", (1_000,), np.dtype("float32"))
    inner = ef.capture.trace(lambda x: ef.tanh(ef.exp(x)), spec(1_000))
    node = Node(ops["stop_gradient"], (x,), {"body": inner}, "loop")
    node.outputs = (Value("loop", (1_000,), x.dtype, None, node),)
    graph = Graph("f", Values([x]), [node], Values(node.outputs, ["y"]))
    monkeypatch.setattr(ops["stop_gradient"], "cost", lambda x, body: Cost(7, 7))
    costs = graph.costs()
    assert costs.flops == 7
    assert costs.peak == 4_000 + 4_000 + 8_000


@pytest.mark.soak
def test_a_hundred_thousand_nodes_are_counted():
    costs = chain(100_000, ("tanh", "add")).costs()
    assert len(costs.nodes) == 100_000 and costs.flops == 300_000
    assert len(str(costs).split("\n")) < 40


# Words --------------------------------------------------------------------------------------------


def test_the_table_begins_with_the_heaviest():
    lines = str(network("batch").costs(batch=4)).split("\n")
    assert lines[0] == "costs of f for batch=4"
    assert lines[1].startswith("  180 operations, ")
    assert re.fullmatch(r"  \d+ B at the peak, of which 108 B for inputs, variables .*", lines[2])
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[4:9]]
    assert rows[0] == ["operations", "share", "bytes", "node", "line"]
    assert rows[1][:4] == ["120", "66.7%", "188 B", "outer/inner/matmul (matmul)"]
    assert re.fullmatch(r"test_costs\.py:\d+", rows[1][4])
    assert [int(row[0]) for row in rows[1:]] == [120, 20, 20, 20]


def test_large_numbers_are_readable():
    words = repr(ef.capture.trace(lambda x: x @ x, spec(1_000, 1_000)).costs())
    assert words == (
        "<Costs of lambda: 2,000,000,000 operations, 11.4 MiB moved, 7.6 MiB at the peak>"
    )


def test_nothing_costs_nothing():
    assert "0 operations" in str(Graph("f", Values([]), [], Values([])).costs())


# Sizes that remember ------------------------------------------------------------------------------

small = st.integers(1, 9)


@given(small, small, small, small)
def test_numbers_remember_their_polynomials(n, m, a, b):
    sizes = {"n": n, "m": m}
    x, y = Size(n, Dim("n")), Size(m, Dim("m"))
    for found in (x * y + a, a * x - y, (x + y) * (x - b), b - x * a, (x * a) // b, x * x * y + x):
        at = found.dim.evaluate(sizes) if isinstance(found.dim, Dim) else found.dim
        assert at == int(found)


def test_names_within_quotients_are_found():
    n, m = Dim("n"), Dim("m")
    assert names_of((n + 1) // (m + 2) * 3 + 1) == {"n", "m"}
