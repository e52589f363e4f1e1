"""cond, switch, while_loop, fori_loop, scan and map give the same bits in every way to run them."""

import pickle

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import cond, fori_loop, scan, switch, while_loop
from eagerflow.capture import map as ef_map
from eagerflow.capture.control.bodies import Body
from eagerflow.graph.run import evaluate
from eagerflow.graph.sizes import Sizes, with_sizes
from eagerflow.op import ops
from tests.capture.control.tools import (
    captured,
    check_both,
    check_close,
    check_same,
    graph_of,
    loop_scan,
    t,
)


def node_of(graph, name):
    (node,) = [n for n in graph.nodes if n.op.name == name]
    return node


# Branches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_cond(value):
    def f(x):
        return cond(
            x.sum() > 0, lambda x: {"a": x * 2.0, "b": (x,)}, lambda x: {"a": -x, "b": (x + 1,)}, x
        )

    result = check_both(f, t([value, 0.5]))
    assert result["a"].tolist() == ([2.0, 1.0] if value > 0 else [1.0, -0.5])


def test_cond_takes_from_outside_and_constants():
    table = np.array([1.0, 2.0])

    def f(x, k):
        return cond(k[0] > 0, lambda: x * table, lambda: k + 3.0)

    assert check_both(f, t([3.0, 4.0]), t([1.0, 0.0])).tolist() == [3.0, 8.0]
    assert check_both(f, t([3.0, 4.0]), t([0.0, 0.0])).tolist() == [3.0, 3.0]


def test_eager_cond_runs_one_branch_only():
    ran = []
    assert cond(False, lambda: ran.append("true") or 1.0, lambda: ran.append("false") or 2.0) == 2.0
    assert ran == ["false"]


def test_branches_may_return_nothing_and_dicts_in_any_order():
    def f(x):
        both = cond(
            x > 0, lambda: {"a": x, "b": None, "c": x * 2}, lambda: {"c": x, "a": x * 3, "b": None}
        )
        return both["a"], both["c"], cond(x > 0, lambda: None, lambda: None)

    assert [y if y is None else float(y) for y in check_both(f, t(2.0))] == [2.0, 4.0, None]
    assert [y if y is None else float(y) for y in check_both(f, t(-2.0))] == [-6.0, -2.0, None]


@pytest.mark.parametrize(("index", "expected"), [(-5, 3.0), (0, 3.0), (1, 6.0), (2, 9.0), (9, 9.0)])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_switch_clamps(index, expected, dtype):
    def f(i, x):
        return switch(i, [lambda x: x, lambda x: x * 2, lambda x: x * 3], x)

    assert float(check_both(f, ef.tensor(index, dtype=dtype), t(3.0))) == expected
    assert float(switch(index, (lambda: 1.0,))) == 1.0


def test_switch_of_unsigned_and_python_indices():
    branches = [lambda: 1.0, lambda: 2.0]
    assert float(switch(ef.tensor(2**63 + 5, dtype="uint64"), branches)) == 2.0
    assert float(switch(np.int16(-1), branches)) == 1.0


# Loops --------------------------------------------------------------------------------------------


def test_while_loop():
    def f(n, x):
        return while_loop(
            lambda s: s["i"] < n,
            lambda s: {"x": s["x"] * 1.1, "i": s["i"] + 1},
            {"i": n * 0, "x": x},
        )

    for count in (0, 1, 7):
        result = check_both(f, ef.tensor(count), t([1.0, 2.0]))
        assert int(result["i"]) == count
        np.testing.assert_allclose(
            result["x"].numpy(), np.array([1.0, 2.0]) * 1.1**count, rtol=1e-12
        )


@pytest.mark.parametrize("most", [0, 2, 3, 100])
def test_maximum_iterations(most):
    def f(x):
        return while_loop(lambda x: x < 8.0, lambda x: x + 3.0, x, maximum_iterations=most)

    assert float(check_both(f, t(0.0))) == [0.0, 6.0, 9.0, 9.0][[0, 2, 3, 100].index(most)]


def test_python_numbers_take_on_the_dtype_of_the_state():
    def f(x):
        return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, 0.5, True), (0, x, x > 5))

    i, x, flag = check_both(f, t(2.0))
    assert (i.dtype, x.dtype, flag.dtype) == (ef.int64, ef.float64, ef.bool)
    assert float(x) == 0.5


@pytest.mark.parametrize(("lo", "hi"), [(0, 4), (2, 5), (3, 3), (5, 2), (-2, 1)])
def test_fori_loop(lo, hi):
    def f(x):
        return fori_loop(lo, hi, lambda i, s: (s[0] + i, s[1] * 1.5), (ef.tensor(0), x))

    def by_tensors(x, lo, hi):
        return fori_loop(lo, hi, lambda i, s: (s[0] + i, s[1] * 1.5), (ef.tensor(0), x))

    x = t([1.0, 2.0])
    total, product = check_both(f, x)
    assert int(total) == sum(range(lo, hi))
    check_close(product, x * 1.5 ** len(range(lo, hi)))
    bounds = ef.tensor(lo, dtype="int32"), ef.tensor(hi)
    check_same(captured(by_tensors, x, *bounds), (total, product))
    check_same(by_tensors(x, *bounds), (total, product))


def test_fori_loop_with_known_bounds_is_a_scan():
    x = t(1.0)
    assert node_of(graph_of(lambda x: fori_loop(0, 9, lambda i, s: s * i, x), x), "scan")
    by_tensor = graph_of(lambda n, x: fori_loop(0, n, lambda i, s: s * i, x), ef.tensor(3), x)
    assert node_of(by_tensor, "while_loop")


# Scans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_scan(steps, reverse):
    def step(c, x):
        return c * 0.5 + x, c - x

    def f(c, xs):
        return scan(step, c, xs, reverse=reverse)

    c, xs = t([1.0, -1.0]), t(np.arange(2.0 * steps).reshape(steps, 2))
    carry, ys = check_both(f, c, xs)
    assert ys.shape == (steps, 2)
    if steps:
        check_same((carry, ys), loop_scan(step, c, xs, reverse))
    else:
        check_same(carry, c)


def test_scan_over_nests_with_integers_and_bools():
    def step(carry, row):
        count, seen = carry
        return (count + row["n"], seen | row["flag"]), {
            "so_far": count,
            "none": None,
            "x": (row["x"],),
        }

    def f(n, flag, x):
        return scan(
            step, (ef.tensor(0, dtype="int32"), ef.tensor(False)), {"n": n, "flag": flag, "x": x}
        )

    n, flag = ef.tensor([1, 2, 3], dtype="int32"), ef.tensor([False, True, False])
    (count, seen), ys = check_both(f, n, flag, t([[1.0], [2.0], [3.0]]))
    assert (int(count), bool(seen)) == (6, True)
    assert (ys["so_far"].tolist(), ys["none"], ys["x"][0].shape) == ([0, 1, 3], None, (3, 1))


def test_scan_without_rows():
    def f(x):
        return scan(lambda c, _: (c * 2, c), x, None, length=4)

    carry, ys = check_both(f, t(1.0))
    assert (float(carry), ys.tolist()) == (16.0, [1.0, 2.0, 4.0, 8.0])
    assert scan(lambda c, _: (c, None), t(1.0), length=0)[1] is None


def test_map():
    def f(xs):
        return ef_map(lambda row: {"double": row["x"] * 2, "sum": row["x"].sum()}, {"x": xs})

    result = check_both(f, t([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert result["sum"].tolist() == [3.0, 7.0, 11.0]
    assert ef_map(lambda x: (x, x * 2), t(np.zeros((0, 3))))[1].shape == (0, 3)


# Together -----------------------------------------------------------------------------------------


def test_three_deep():
    def f(xs, k):
        def outer(c, x):
            def middle(i, s):
                return cond(
                    (s + i).sum() > 4.0,
                    lambda s: while_loop(lambda v: v.sum() > 2.0, lambda v: v * 0.5 - k * 0.01, s),
                    lambda s: s + x * k,
                    s,
                )

            after = fori_loop(0, 3, middle, c)
            return after, switch(x.sum().astype("int32"), [lambda: after, lambda: x, lambda: c * k])

        return scan(outer, xs[0] * 0.0, xs)

    xs, k = t([[0.5, 1.5], [2.0, 0.25], [1.0, 1.0]]), t(1.25)
    check_both(f, xs, k)


def test_a_body_becomes_one_node_and_is_traced_once():
    calls = []

    def step(c, x):
        calls.append(len(calls))
        return c + x, None

    graph = graph_of(lambda xs: scan(step, xs[0], xs)[0], t(np.ones((50, 2))))
    assert [n.op.name for n in graph.nodes] == ["getitem", "scan"]
    assert len(calls) == 1
    node = graph.nodes[1]
    body = node.attributes["body"]
    assert (node.attributes["carries"], node.attributes["sequences"]) == (1, 1)
    assert [v.shape for v in body.inputs] == [(2,), (2,)]
    calls.clear()
    scan(step, t(np.zeros(2)), t(np.ones((50, 2))))
    assert len(calls) == 50


def test_while_node_lists_state_then_captured():
    def f(n, x):
        return while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), (n * 0, x))[1]

    node = node_of(graph_of(f, ef.tensor(3), t(2.0)), "while_loop")
    test, body = node.attributes["cond"], node.attributes["body"]
    assert node.attributes["states"] == 2
    specs = [(v.shape, v.dtype) for v in node.inputs]
    for graph in (test, body):
        assert [(v.shape, v.dtype) for v in graph.inputs] == specs
    assert [v.dtype for v in test.outputs] == [ef.bool]
    assert [(v.shape, v.dtype) for v in body.outputs] == specs[:2]


def test_ops_inside_the_body_are_not_recorded():
    with ef.GradientTape() as tape:
        x = t(2.0)
        tape.watch(x)
        scan(lambda c, _: (c * 2, None), x, length=30)
    assert repr(tape).startswith("<GradientTape closed: 1 ops")


def test_results_are_distinct_from_arguments():
    x = t([1.0, 2.0])
    with ef.GradientTape() as tape:
        tape.watch(x)
        a, b = cond(True, lambda x: (x, x), lambda x: (x, x), x)
        y = (a * 2 + b * 3 + x * 5).sum()
    assert tape.gradient(y, x).tolist() == [10.0, 10.0]
    assert len({id(x), id(a), id(b)}) == 3


# Symbolic sizes -----------------------------------------------------------------------------------

ROWS = [ef.TensorSpec(("rows", "columns"), "float64")]


def test_symbolic_rows():
    def f(xs):
        c, ys = scan(lambda c, x: (c + x, ef.zeros(xs.shape, "float64") + c), xs[0] * 0, xs)
        padded = fori_loop(0, xs.shape[0], lambda i, s: s + ef.ones((xs.shape[1],), "float64"), c)
        return padded, ys, cond(c.sum() > 0, lambda: xs * 2, lambda: ef.broadcast_to(c, xs.shape))

    graph = ef.capture.trace(f, *ROWS)
    assert [str(v.shape) for v in graph.outputs] == [
        "(columns,)",
        "(rows, rows, columns)",
        "(rows, columns)",
    ]
    for shape in ((3, 2), (1, 4), (4, 4)):
        xs = t(np.arange(1.0, 1 + shape[0] * shape[1]).reshape(shape))
        (node,) = [n for n in graph.nodes if n.op.name == "cond"]
        sizes = Sizes(rows=shape[0], columns=shape[1])
        assert with_sizes(node.attributes["false_graph"], sizes).outputs[0].shape == shape
        check_same(tuple(settled_outputs(graph, xs, sizes)), f(xs))


def settled_outputs(graph, xs, sizes):
    """The outputs of a graph for sizes that its attributes do not know yet."""
    whole = Body("whole", graph.inputs, graph.nodes, graph.outputs)
    return evaluate(with_sizes(whole, sizes), [xs])[0]


def test_symbolic_body_takes_sizes_from_its_inputs():
    graph = ef.capture.trace(lambda xs: scan(lambda c, x: (c + x, x.sum()), xs[0] * 0, xs), *ROWS)
    node = node_of(graph, "scan")
    settled_node = {**node.attributes, "length": None}
    for shape in ((3, 2), (5, 1)):
        xs = t(np.ones(shape))
        c, ys = ops["scan"].call(xs[0], xs, **settled_node)
        assert (c.shape, ys.shape) == (shape[1:], shape[:1])


# Bodies as values ---------------------------------------------------------------------------------


def test_bodies_are_equal_if_they_compute_the_same():
    def body(f):
        return node_of(graph_of(lambda x: scan(f, x, length=3)[0], t([1.0])), "scan").attributes[
            "body"
        ]

    one, other = body(lambda c, _: (c * 2.0, None)), body(lambda c, _: (c * 2.0, None))
    assert one == other and hash(one) == hash(other) and one is not other
    for changed in (
        body(lambda c, _: (c * 3.0, None)),
        body(lambda c, _: (c + 2.0, None)),
        body(lambda c, _: (c * 2, None)),  # an integer: not the same program, if the same numbers
        body(lambda c, _: (c * -0.0, None)),
        body(lambda c, _: (c * 2.0, c)),
        body(lambda c, _: (cond(c[0] > 0, lambda: c, lambda: c * 2.0), None)),
    ):
        assert changed != one
    zero, minus = body(lambda c, _: (c * 0.0, None)), body(lambda c, _: (c * -0.0, None))
    assert zero != minus


def test_bodies_pass_through_pickle():
    def step(c, x):
        return cond(c.sum() > 0, lambda: c[::-1] * x, lambda: c), c

    xs = t([[1.0, 2.0], [3.0, 4.0]])
    body = node_of(graph_of(lambda xs: scan(step, xs[0], xs), xs), "scan").attributes["body"]
    again = pickle.loads(pickle.dumps(body))
    assert again == body
    assert type(again) is Body
    assert [n.source for n in again.nodes] == [n.source for n in body.nodes]
