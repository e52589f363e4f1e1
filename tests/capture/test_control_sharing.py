"""Passes over scans and branches: one scan for two, and no results that nobody uses."""

import pytest

import eagerflow as ef
from eagerflow.capture import cond, scan, switch
from eagerflow.capture.control.sharing import with_shared_scans, without_unused_results
from eagerflow.capture.evaluate import evaluate
from tests.capture.control import check_same, grads, graph_of, t

XS = t([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.7]])
H = t([0.3, -0.2])


def step(w):
    return lambda h, x: (ef.tanh(h * w + x), h.sum() * x)


def scans(graph):
    return [n for n in graph.nodes if n.op.name == "scan"]


def same_values(graph, changed, *args):
    check_same(tuple(evaluate(changed, args)[0]), tuple(evaluate(graph, args)[0]))
    changed.check()


def test_forward_and_gradient_share_one_scan():
    def f(h, w):
        def loss(w):
            carry, ys = scan(step(w), h, XS)
            return carry.sum() + ys.sum(), ys

        (y, ys), g = ef.value_and_grad(loss, has_aux=True)(w)
        return y, ys, g

    graph = graph_of(f, H, t(1.5))
    assert len(scans(graph)) == 3
    changed, rewrites = with_shared_scans(graph)
    first, back = scans(changed)
    assert [str(r).startswith("shared_scans: scan_1 serves for scan") for r in rewrites] == [True]
    assert first.attributes["body"] == scans(graph)[1].attributes["body"]
    assert back.attributes["reverse"] is True
    same_values(graph, changed, H, t(1.5))
    assert with_shared_scans(changed) == (changed, [])


def test_second_order():
    f = lambda h, w: ef.grad(lambda w: grads(lambda w: scan(step(w), h, XS), w)[0])(w)
    graph = graph_of(f, H, t(1.5))
    changed, rewrites = with_shared_scans(graph)
    assert len(scans(changed)) == len(scans(graph)) - len(rewrites) < len(scans(graph))
    same_values(graph, changed, H, t(1.5))


def test_within_bodies():
    def outer(c, x):
        g = ef.grad(lambda w: scan(step(w), c, XS)[0].sum())(x)
        return c * g, scan(step(x), c, XS)[0]

    graph = graph_of(lambda h, xs: scan(outer, h, xs), H, t([0.5, 1.5]))
    changed, rewrites = with_shared_scans(graph)
    assert rewrites
    inner = [len(scans(scans(g)[0].attributes["body"])) for g in (graph, changed)]
    assert inner == [4, 3]
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
def test_what_differs_is_not_shared(other):
    graph = graph_of(lambda h, w: (scan(step(w), h, XS), other(h, w)), H, t(1.5))
    assert with_shared_scans(graph) == (graph, [])


def test_rows_that_nobody_uses():
    def f(h):
        carry, (a, _, c) = scan(lambda h, x: (ef.sin(h), (h, ef.exp(h), h * x)), h, XS)
        return carry, a.sum(), c

    graph = graph_of(f, H)
    changed, rewrites = without_unused_results(graph)
    (node,) = scans(changed)
    assert [v.shape for v in node.outputs] == [(2,), (3, 2), (3, 2)]
    assert [str(r).partition(",")[0] for r in rewrites] == [
        "unused_results: 1 results of scan are not used"
    ]
    same_values(graph, changed, H)
    assert without_unused_results(changed) == (changed, [])


def test_results_of_branches_that_nobody_uses():
    def f(h, i):
        a = cond(h.sum() > 0, lambda: (h, ef.exp(h)), lambda: (-h, h))[1]
        b = switch(i, [lambda: (h, a), lambda: (a, h)])[0]
        return cond(i > 0, lambda: cond(i > 1, lambda: (a, b), lambda: (b, a))[0], lambda: h)

    graph = graph_of(f, H, ef.tensor(1))
    changed, rewrites = without_unused_results(graph)
    assert len(rewrites) == 3
    same_values(graph, changed, H, ef.tensor(1))


def test_both_together_with_all_other_passes():
    f = lambda h, w: grads(lambda w: scan(step(w), h, XS)[0], w)
    graph = graph_of(f, H, t(1.5))
    changed = without_unused_results(with_shared_scans(graph)[0].optimized("exact"))[0]
    changed = changed.optimized("exact")
    assert len(scans(changed)) == 2
    same_values(graph, changed, H, t(1.5))
