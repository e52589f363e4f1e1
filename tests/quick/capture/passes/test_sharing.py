"""Passes over scans and branches: one scan for two, and no unused results."""

import pytest

import eagerflow as ef
from eagerflow.capture import cond, scan, switch
from eagerflow.capture.passes.sharing import (
    with_shared_scans,
    without_custom_gradients,
    without_unused_results,
)
from eagerflow.graph.run import evaluate
from tests.capture.control.tools import check_same, graph_of, t

XS = t([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.7]])
H = t([0.3, -0.2])


def step(w):
    return lambda h, x: (ef.tanh(h * w + x), h.sum() * x)


def scans(graph):
    return [n for n in graph.nodes if n.op.name == "scan"]


def same_values(graph, changed, *args):
    check_same(tuple(evaluate(changed, args)[0]), tuple(evaluate(graph, args)[0]))
    changed.check()


def gradient_graph(f, *args):
    """The graph of ``f`` and of its gradient by the last argument, made after it was traced."""
    graph = graph_of(f, *args)
    return graph.gradient(list(graph.outputs.names), graph.inputs.names[-1])


def test_forward_and_gradient_share_one_scan():
    graph = gradient_graph(lambda h, w: scan(step(w), h, XS), H, t(1.5))
    assert len(scans(graph)) == 3
    changed, rewrites = with_shared_scans(graph)
    first, back = scans(changed)
    told = f"shared_scans: {scans(graph)[1].name} serves for scan"
    assert [str(r).partition(",")[0] for r in rewrites] == [told]
    assert first.attributes["body"] == scans(graph)[1].attributes["body"]
    assert back.attributes["reverse"] is True
    same_values(graph, changed, H, t(1.5))
    assert with_shared_scans(changed) == (changed, [])


def test_second_order():
    f = lambda h, w: ef.grad(lambda w: scan(step(w), h, XS)[0].sum())(w)
    graph = gradient_graph(f, H, t(1.5))
    changed, rewrites = with_shared_scans(graph)
    assert len(scans(changed)) == len(scans(graph)) - len(rewrites) < len(scans(graph))
    same_values(graph, changed, H, t(1.5))


def test_within_bodies():
    inner = gradient_graph(lambda h, w: scan(step(w), h, XS)[0], H, t(1.5))

    def outer(c, x):
        y, g = evaluate(inner, [c, x])[0]
        return y * g, y

    graph = graph_of(lambda h, xs: scan(outer, h, xs), H, t([0.5, 1.5]))
    changed, rewrites = with_shared_scans(graph)
    inner = [len(scans(scans(g)[0].attributes["body"])) for g in (graph, changed)]
    assert (inner, len(rewrites)) == ([3, 2], 1)
    same_values(graph, changed, H, t([0.5, 1.5]))


@pytest.mark.parametrize(
    "other",
    [
        lambda h, w: scan(step(w), h * 1.0, XS),
        lambda h, w: scan(step(w), h, XS, reverse=True),
        lambda h, w: scan(step(w), h, XS * 1.0),
        lambda h, w: scan(lambda h, x: (ef.tanh(h * w + x), x), h, XS),
        lambda h, w: scan(lambda h, x: (ef.tanh(h * w - x), (h.sum() * x, x)), h, XS),
    ],
)
def test_different_scans_are_not_shared(other):
    graph = graph_of(lambda h, w: (scan(step(w), h, XS), other(h, w)), H, t(1.5))
    assert with_shared_scans(graph) == (graph, [])


def test_unused_scan_rows_are_removed():
    def f(h):
        carry, (a, _, c) = scan(lambda h, x: (ef.sin(h), (h, ef.exp(h), h * x)), h, XS)
        return carry, a.sum(), c

    graph = graph_of(f, H)
    changed, rewrites = without_unused_results(graph)
    (node,) = scans(changed)
    assert [v.shape for v in node.outputs] == [(2,), (3, 2), (3, 2)]
    (told,) = rewrites
    assert str(told).startswith("unused_results: 1 results of scan are not used,")
    same_values(graph, changed, H)
    assert without_unused_results(changed) == (changed, [])


def test_unused_branch_results_are_removed():
    def f(h, i):
        a = cond(h.sum() > 0, lambda: (h, ef.exp(h)), lambda: (-h, h))[1]
        b = switch(i, [lambda: (h, a), lambda: (a, h)])[0]
        return cond(i > 0, lambda: cond(i > 1, lambda: (a, b), lambda: (b, a))[0], lambda: h)

    graph = graph_of(f, H, ef.tensor(1))
    changed, rewrites = without_unused_results(graph)
    assert len(rewrites) == 3
    same_values(graph, changed, H, ef.tensor(1))


def test_both_together_with_all_other_passes():
    graph = gradient_graph(lambda h, w: scan(step(w), h, XS)[0], H, t(1.5))
    changed = without_unused_results(with_shared_scans(graph)[0].optimized("exact"))[0]
    changed = changed.optimized("exact")
    assert len(scans(changed)) == 2
    same_values(graph, changed, H, t(1.5))


def test_unused_custom_gradients_are_removed():
    custom = ef.custom_gradient(lambda x: ((ef.sin(x), x), lambda g: g[0] * 3.0))

    def f(h):
        a, b = custom(h)
        return scan(lambda c, x: (custom(c * x)[0], b), a, XS)

    graph = graph_of(f, H)
    changed, rewrites = without_custom_gradients(graph)
    assert len(rewrites) == 2
    body = scans(changed)[0].attributes["body"]
    assert "custom_gradient" not in {n.op.name for n in (*changed.nodes, *body.nodes)}
    same_values(graph, changed, H)
