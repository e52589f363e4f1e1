"""Differences of graphs: nothing where nothing differs, and little where little does."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.graph.diff import common, in_order
from tests.graph.graphs import body, chain


def spec(*shape, dtype="float32"):
    return ef.TensorSpec(shape, dtype)


def traced(f, *specs, name="f"):
    return ef.capture.trace(f, *(specs or (spec("batch", 3),)), name=name)


def network(x, w, b, activation=ef.tanh, extra=None, factor=2.0, scope="dense", table=None):
    with ef.capture.scope(scope):
        h = activation(x @ w + b)
    if extra is not None:
        h = extra(h)
    h = h * (ef.tensor([1.0, 2.0, 3.0]) if table is None else table)
    h = h * factor
    h = h - ef.mean(h, axis=0)
    b.assign(b * 0.5)
    return {"y": h, "total": ef.sum(h)}


def build(**changes):
    w, b = ef.Variable(ef.ones((3, 3)), name="w"), ef.Variable(ef.zeros((3,)), name="b")
    return traced(lambda x: network(x, w, b, **changes))


def test_equal_programs_do_not_differ():
    found = build().diff(build())
    assert (
        not found and len(found) == 0 and str(found) == "" and repr(found) == "<Difference: none>"
    )
    graph = build()
    assert not graph.diff(graph)


@pytest.mark.parametrize(
    ("changes", "added", "removed", "changed"),
    [
        ({"activation": ef.sin}, [], [], {"dense/tanh": ("op",)}),
        ({"factor": 3.0}, [], [], {"multiply_1": ("inputs",)}),
        ({"factor": 2}, [], [], {"multiply_1": ("inputs",)}),
        ({"extra": ef.exp}, ["exp"], [], {"multiply": ("inputs",)}),
        ({"extra": lambda h: h * 5.0}, ["multiply"], [], {"multiply": ("inputs",)}),
        ({"table": ef.tensor([1.0, 2.0, 4.0])}, [], [], {"constant": ("values",)}),
        (
            {"scope": "layer"},
            [],
            [],
            dict.fromkeys(["dense/matmul", "dense/add", "dense/tanh"], ("scope",)),
        ),
    ],
)
def test_a_small_change_gives_a_small_difference(changes, added, removed, changed):
    old, new = build(), build(**changes)
    found = old.diff(new)
    assert found
    assert (found.added, found.removed, found.changed) == (added, removed, changed)
    back = new.diff(old)
    assert (len(back.added), len(back.removed)) == (len(removed), len(added))


def test_attributes_are_compared():
    old, new = (traced(lambda x, a=a: ef.sum(x, axis=a), spec(3, 3)) for a in (0, 1))
    assert old.diff(new).changed == {"sum": ("attributes",)}


def test_it_prints_as_a_diff():
    old = traced(lambda x: ef.sum(ef.tanh(ef.exp(x)), axis=0), spec(3), name="old")
    new = traced(lambda x: ef.sum(ef.sin(ef.exp(x)), axis=0), spec(3), name="new")
    lines = str(old.diff(new)).split("\n")
    assert [line.partition("  # ")[0] for line in lines] == [
        "--- old",
        "+++ new",
        "@@ nodes",
        "   exp: float32[3] = exp(x)",
        "-  tanh: float32[3] = tanh(exp)",
        "+  sin: float32[3] = sin(exp)",
        "   changed: op",
        "   sum: float32[] = sum(sin, axis=0)",
    ]
    assert all("test_diff.py:" in lines[i] for i in (3, 4, 5, 7))


def test_only_the_neighbourhood_is_shown():
    def chain(middle):
        def f(x):
            for i in range(50):
                x = middle(x) if i == 25 else ef.tanh(x)
            return x

        return traced(f, spec(3))

    lines = str(chain(ef.tanh).diff(chain(ef.exp))).split("\n")
    assert len(lines) == 3 + 1 + 2 + 3 + 2
    assert lines[3] == "   ..."


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (spec(3), spec(4), ("shape",)),
        (spec(3), spec(3, dtype="float64"), ("dtype",)),
        (spec("n"), spec("m"), ("shape",)),
        (spec(3), ef.TensorSpec((3,), "float32", device="cpu:0"), ("device",)),
    ],
)
def test_inputs_are_compared(old, new, words):
    found = traced(lambda x: ef.tanh(x), old).diff(traced(lambda x: ef.tanh(x), new))
    assert found.changed["x"] == words
    assert "@@ inputs\n-  x: " in str(found)


def test_diff_reports_added_and_removed_inputs():
    old = traced(lambda x, y: x + y, spec(3), spec(3))
    new = traced(lambda x, z: x + z, spec(3), spec(3))
    found = old.diff(new)
    assert (found.added, found.removed, found.changed) == (["z"], ["y"], {"add": ("inputs",)})


def test_the_order_of_inputs_counts():
    old = traced(lambda x, y: x + y, spec(3), spec(3))
    new = traced(lambda y, x: x + y, spec(3), spec(3))
    assert old.diff(new).changed == {"inputs": ("order",)}


def test_variables_are_compared_by_name_dtype_and_shape():
    a, b, c = (
        ef.Variable(ef.ones(n), name=name) for n, name in (((3,), "a"), ((3,), "b"), ((1,), "a"))
    )
    old, same = (traced(lambda x: x * a, spec(3)) for _ in range(2))
    assert not old.diff(same)
    found = old.diff(traced(lambda x: x * b, spec(3)))
    assert (found.added, found.removed) == (["b"], ["a"])
    assert old.diff(traced(lambda x: x * c, spec(3))).changed == {"a": ("shape",)}


def test_outputs_and_assignments_are_compared():
    old = traced(lambda x: {"a": ef.tanh(x), "b": ef.exp(x)}, spec(3))
    new = traced(lambda x: {"a": ef.tanh(x), "c": ef.exp(x)}, spec(3))
    assert (old.diff(new).added, old.diff(new).removed) == (["c"], ["b"])

    def swapped(x):
        t, e = ef.tanh(x), ef.exp(x)
        return {"a": e, "b": t}

    found = old.diff(traced(swapped, spec(3)))
    assert found.changed == {"a": ("value",), "b": ("value",)}
    assert "@@ outputs\n-  a = tanh\n+  a = exp" in str(found)
    w = ef.Variable(ef.ones((3,)), name="w")

    def assigning(x):
        y = x * w
        w.assign(y)
        return y

    found = traced(lambda x: x * w, spec(3)).diff(traced(assigning, spec(3)))
    assert found.added == ["w"] and "@@ assignments\n+  w = multiply" in str(found)


def test_the_nest_of_the_result_counts():
    old = traced(lambda x: (ef.tanh(x), ef.exp(x)), spec(3))
    new = traced(lambda x: [ef.tanh(x), ef.exp(x)], spec(3))
    assert old.diff(new).changed == {"result": ("order or nest",)}
    assert "-  (output_0, output_1)\n+  [output_0, output_1]" in str(old.diff(new))
    plain = traced(lambda x: (ef.tanh(x), 3), spec(3))
    other = traced(lambda x: (ef.tanh(x), 4), spec(3))
    assert plain.diff(other).changed == {"result": ("order or nest",)}


def test_nan_is_itself_and_one_is_not_true():
    def graph(low):
        return traced(lambda x: ef.maximum(x, low), spec(3))

    assert not graph(float("nan")).diff(graph(float("nan")))
    assert graph(1).diff(graph(1.0)).changed == {"maximum": ("inputs",)}


def test_large_constants_are_compared_in_full():
    values = np.zeros(100_000, np.float32)
    other = values.copy()
    other[-1] = 1

    def graph(array):
        constant = ef.tensor(array)
        return traced(lambda x: x + constant, spec(100_000))

    assert not graph(values).diff(graph(values.copy()))
    assert graph(values).diff(graph(other)).changed == {"constant": ("values",)}


def test_bodies_are_compared():
    old, new = body("a", inner=body("b")), body("a", inner=body("b", "sin"))
    assert not old.diff(body("a", inner=body("b")))
    found = old.diff(new)
    assert found.changed == {"tanh.body: tanh": ("op",)}
    assert "@@ tanh.body: nodes\n-  tanh: " in str(found)
    assert old.diff(body("a")).changed == {"tanh": ("attributes",)}


def test_bodies_in_bodies_have_no_bottom():
    old, new = body("b"), body("b", "sin")
    for _ in range(3_000):
        old, new = body("a", inner=old), body("a", inner=new)
    assert len(old.diff(new)) == 1


# Alignment ----------------------------------------------------------------------------------------

letters = st.lists(st.integers(0, 3), max_size=14)


def longest_common(a, b):
    """Length of the longest common subsequence, by the table."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b, 1):
            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return row[-1]


@given(letters, letters)
def test_alignments_are_in_order_and_longest(a, b):
    for pairs in (common(a, b), in_order(a, b)):
        assert all(a[i] == b[j] for i, j in pairs)
        assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert len(common(a, b)) == longest_common(a, b)


def test_many_changes_are_found_in_time():
    ops = ("sin", "tanh", "tanh")
    old, new = chain(20_000, ops, 3), chain(20_000, ops, 4)
    start = time.process_time()
    assert len(old.diff(new)) == 20_001  # a quadratic algorithm would take minutes
    found = old.diff(chain(19_900, ("sin", "exp", "exp"), 3))
    assert time.process_time() - start < 30
    # Two of three ops are others, and so is the output.
    assert (len(found.added), len(found.removed)) == (0, 100)
    assert len(found.changed) == 13_266 + 1


def test_beyond_the_bound_of_edits_alignment_still_holds():
    a = [i % 7 for i in range(3_000)]
    b = [x for x in a if x != 3] + [9] * 500
    pairs = common(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert len(pairs) > 300
