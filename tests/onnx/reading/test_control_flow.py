"""If, Loop and Scan: folded, unrolled, or as ops that hold graphs."""

import numpy as np
import pytest

from tests.onnx.reading.models import agree, imported, run

IF = """net (bool c, float[3] x) => (float[3] y)
{
    y = If (c) <
        then_branch = g () => (float[3] t) { t = Add(x, x) },
        else_branch = h () => (float[3] e) { e = Neg(x) }
    >
}"""


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_is_chosen_when_the_graph_runs(flag):
    graph = agree(IF, c=np.array(flag), x=np.arange(3, dtype="float32"))
    assert [node.op.name for node in graph.nodes] == ["cond"]


def test_a_branch_that_is_known_stands_alone():
    graph = imported(IF, values={"c": np.array(True)})
    assert [node.op.name for node in graph.nodes] == ["add"]


def test_branches_of_different_shapes_are_chosen_by_value():
    graph = imported(
        """net (bool c, float[3] x) => (float[k] y)
        {
            y = If (c) <
                then_branch = g () => (float[6] t) { t = Concat<axis = 0>(x, x) },
                else_branch = h () => (float[3] e) { e = Neg(x) }
            >
        }"""
    )
    x = np.arange(3, dtype="float32")
    assert run(graph, c=np.array(True), x=x)["y"].shape == (6,)
    assert run(graph, c=np.array(False), x=x)["y"].shape == (3,)


LOOP = """net (float[3] x) => (float[3] last, float[k, 3] all)
{{
    n = Constant<value_int = {count}>()
    yes = Constant<value = bool {{1}}>()
    last, all = Loop (n, yes, x) <
        body = step (int64 i, bool go, float[3] a) => (bool more, float[3] b, float[3] row)
        {{
            more = Identity(go)
            f = Cast<to = 1>(i)
            b = Add(a, f)
            row = Mul(b, b)
        }}
    >
}}"""


@pytest.mark.parametrize(("count", "ops"), [(3, {"add", "multiply", "stack"}), (40, {"scan"})])
def test_loops_of_a_known_length(count, ops):
    graph = agree(LOOP.format(count=count), x=np.arange(3, dtype="float32"))
    assert ops <= {node.op.name for node in graph.nodes}


def test_loop_with_computed_exit_condition():
    graph = agree(
        """net (float x) => (float y)
        {
            yes = Constant<value = bool {1}>()
            most = Constant<value_float = 100.0>()
            y = Loop (, yes, x) <
                body = step (int64 i, bool go, float a) => (bool more, float b)
                {
                    b = Add(a, a)
                    more = Less(b, most)
                }
            >
        }""",
        x=np.float32(3),
    )
    assert "while_loop" in {node.op.name for node in graph.nodes}


def test_a_loop_whose_length_is_an_input():
    text = """net (int64 n, float[3] x) => (float[3] y)
    {
        yes = Constant<value = bool {1}>()
        y = Loop (n, yes, x) <
            body = step (int64 i, bool go, float[3] a) => (bool more, float[3] b)
            {
                more = Identity(go)
                b = Add(a, x)
            }
        >
    }"""
    for n in (0, 1, 5):
        graph = agree(text, n=np.int64(n), x=np.arange(3, dtype="float32"))
    assert "while_loop" in {node.op.name for node in graph.nodes}


def test_a_state_that_grows_is_unrolled():
    agree(
        """net (float[1] x) => (float[21] y)
        {
            n = Constant<value_int = 20>()
            yes = Constant<value = bool {1}>()
            y = Loop (n, yes, x) <
                body = step (int64 i, bool go, float[k] a) => (bool more, float[m] b)
                {
                    more = Identity(go)
                    b = Concat<axis = 0>(a, x)
                }
            >
        }""",
        x=np.ones(1, "float32"),
    )


SCAN = """net (float[2] s, float[5, 2] x) => (float[2] last, float[a, b] all)
{{
    last, all = Scan <num_scan_inputs = 1 {how},
        body = step (float[2] a, float[2] row) => (float[2] b, float[2] out)
        {{
            b = Add(a, row)
            out = Mul(b, row)
        }}
    > (s, x)
}}"""


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans_in_all_directions(backwards, turned, axis, rng):
    x = rng.standard_normal((5, 2)).astype("float32")
    how = f", scan_input_directions = [{int(backwards)}], scan_output_axes = [{axis}]"
    how += f", scan_output_directions = [{int(turned)}]"
    graph = imported(SCAN.format(how=how))
    assert "scan" in {node.op.name for node in graph.nodes}
    a, rows = np.ones(2, "float32"), []
    for row in x[::-1] if backwards else x:  # ONNX's evaluator goes forwards alone
        a = a + row
        rows.append(a * row)
    found = run(graph, s=np.ones(2, "float32"), x=x)
    np.testing.assert_allclose(found["last"], a, rtol=1e-5)
    wanted = np.stack(rows[::-1] if turned else rows, axis)
    np.testing.assert_allclose(found["all"], wanted, rtol=1e-4, atol=1e-6)


def test_nested_loop_reads_outer_values():
    agree(
        """net (float[2] x) => (float[2] y)
        {
            n = Constant<value_int = 20>()
            yes = Constant<value = bool {1}>()
            y = Loop (n, yes, x) <
                body = outer (int64 i, bool go, float[2] a) => (bool more, float[2] b)
                {
                    more = Identity(go)
                    b = Loop (n, yes, a) <
                        body = inner (int64 j, bool on, float[2] c) => (bool still, float[2] d)
                        {
                            still = Identity(on)
                            h = Constant<value_float = 0.001>()
                            small = Mul(x, h)
                            d = Add(c, small)
                        }
                    >
                }
            >
        }""",
        x=np.ones(2, "float32"),
    )
