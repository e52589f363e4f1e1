"""How many places something new touches: each is added here by writing just those.

An op with a fused kernel 1, a rewrite rule 1, a pass 2 (the pass, and its place in the order), a
device type 1 (``tests/backends/strict.py``), a layer 1, a field of the file format 1 and its page
(``tests/capture/saving`` holds the two together).
"""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.passes import ALL, Pass
from eagerflow.capture.passes.algebra import ALGEBRA
from eagerflow.capture.passes.rewriting import rule, swept
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.family import pointwise
from tests.internals import op_table

X = ef.TensorSpec((100_000,), "float32")


@pytest.fixture
def shifted():
    """An element-wise op: its formula and its derivative in one function."""

    @pointwise(partials=(lambda y, x: 2 * x,), saves="x")
    def shifted(x, /):
        """The square of each element, and one."""
        return ef.square(x) + 1

    yield shifted
    del op_table()["shifted"]


def test_an_op_with_a_fused_kernel_touches_one_place(shifted):
    x = ef.tensor(np.linspace(-2, 2, 100_000, dtype="float32"))
    np.testing.assert_allclose(shifted(x), x.numpy() ** 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(ef.grad(lambda v: shifted(v).sum())(x), 2 * x.numpy(), rtol=1e-6)
    graph = ef.capture.trace(lambda v: ef.exp(-shifted(v)), X)
    (kernel,) = graph.plan().kernels
    assert [node.op.name for node in kernel.nodes] == ["shifted", "negative", "exp"]
    np.testing.assert_allclose(graph(x), np.exp(-(x.numpy() ** 2) - 1), rtol=1e-5)


def test_a_rewrite_rule_touches_one_place(monkeypatch):
    monkeypatch.setitem(ALGEBRA, exp.op, list(ALGEBRA.get(exp.op, ())))

    @rule(ALGEBRA, exp, words="exp(x) -> 1 + x, for once")
    def _first_terms(sweep, node):
        return sweep.make(ef.add, node.inputs[0], 1.0)

    graph = ef.capture.trace(ef.exp, X).optimized(only=["algebra"])
    assert [node.op.name for node in graph.nodes] == ["add"]
    assert "exp(x) -> 1 + x, for once" in {rewrite.words for rewrite in graph.rewrites}


def test_a_pass_touches_two_places(monkeypatch):
    rules = {}

    @rule(rules, exp, words="exp(x) -> x, for once")
    def _argument(sweep, node):
        return node.inputs[0]

    forgetting = Pass(
        "forgetting", "exact", lambda graph: swept("forgetting", graph, rules), "none"
    )
    monkeypatch.setitem(ALL, "forgetting", forgetting)
    assert ef.capture.trace(ef.exp, X).optimized("exact").nodes == ()


def test_a_layer_touches_one_place():
    class Scaled(ef.nn.Layer):
        def __init__(self, by=2.0, **kwargs):
            super().__init__(**kwargs)
            self.by = by

        def call(self, x):
            return x * self.by

    again = Scaled.from_config(Scaled(3.0).get_config())
    assert again(ef.tensor([1.0])).numpy() == 3.0
