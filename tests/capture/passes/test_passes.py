"""Passes: what each does and leaves alone, cells, bodies, names, pins, and that checks catch."""

import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.control import cond, while_loop
from eagerflow.capture.passes import ALL, Pass
from eagerflow.capture.passes.constants import MAX_BYTES, SMALL_BYTES
from eagerflow.capture.passes.patterns import pattern
from eagerflow.capture.passes.rewriting import Rewrite, rule, swept
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.sizes import concrete
from eagerflow.op import REQUIRED, Op, ops
from tests.capture.passes.test_equality import computed
from tests.contract.cases import check_same_bits
from tests.internals import op_table


def spec(*shape, dtype="float32"):
    return ef.TensorSpec(shape, dtype)


def names(graph):
    """The ops of a graph in order."""
    return [node.op.name for node in graph.nodes]


def after(name, f, *specs):
    """The ops of a function's graph after one pass and dead code, which is checked on the way."""
    graph = ef.capture.trace(f, *specs)
    before = [(n, n.inputs, n.attributes, n.outputs) for n in graph.nodes]
    found = ALL["dead_code"](ALL[name](graph))
    found.check()
    assert before == [(n, n.inputs, n.attributes, n.outputs) for n in graph.nodes]
    return names(found)


# The table ---------------------------------------------------------------------------------------


def test_the_table():
    """Each pass has a name, says what it does to numbers, and explains itself."""
    assert list(ALL) == [
        "recorded_scans",
        "constants",
        "no_ops",
        "subexpressions",
        "unused_results",
        "shared_scans",
        "stability",
        "algebra",
        "layout",
        "pooling",
        "recurrences",
        "stop_gradients",
        "custom_gradients",
        "integers",
        "dead_code",
    ]
    for name, one in ALL.items():
        assert one is getattr(ef.capture.passes, name) and one.name == name
        assert one.numerics in ("exact", "fast", "stable", "final", "final, fast")
        assert one.__doc__ and name in repr(one) and one.numerics in repr(one)


def test_passes_are_chosen_by_name_and_kind():
    def f(x):
        return ef.log(1 + x) + (x**2 + 0.0) * ef.tensor(2.0) + ef.stop_gradient(x)

    graph = ef.capture.trace(f, spec(3))
    assert "log1p" in names(graph.optimized())
    assert names(graph.optimized("exact")) == names(graph)
    assert "stop_gradient" in names(graph.optimized())
    assert "stop_gradient" not in names(graph.optimized("exact", final=True))
    assert "log" in names(graph.optimized(without=["stability"]))
    assert names(graph.optimized("exact", only=["stability"])).count("log1p") == 1
    assert graph.optimized(only=[]) is graph
    for wrong in ({"numerics": "quick"}, {"only": ["algebr"]}, {"without": ["dead"]}):
        with pytest.raises(ArgumentError):
            graph.optimized(**wrong)


def test_a_graph_that_is_done_comes_back():
    graph = ef.capture.trace(lambda x: ef.tanh(x), spec(3))
    assert graph.optimized() is graph
    assert all(one(graph) is graph for one in ALL.values())
    assert graph.rewrites is None


# Dead code, subexpressions, constants ---------------------------------------------------------


def test_dead_code():
    def f(x):
        ef.exp(x)
        ef.split(x, 3)
        return ef.split(ef.tanh(x), 3)[1]

    assert after("dead_code", f, spec(3)) == ["tanh", "split"]


def test_subexpressions_tell_numbers_apart():
    """1, 1.0, True, 0.0 and -0.0 are different, and equal ones are one."""

    def f(x):
        return [x + 1, x + 1.0, x + True, x + 0.0, x + -0.0, x + 1, x + float("nan")]

    assert len(after("subexpressions", f, spec(3))) == 6
    total = lambda x: (ef.sum(x, axis=0), ef.sum(x, axis=(0,)), ef.sum(x, axis=0))
    assert len(after("subexpressions", total, spec(3))) == 2
    pair = lambda x, y: ((x + y) * (x + y), y + x)
    assert after("subexpressions", pair, spec(3), spec(3)) == ["add", "multiply", "add"]
    index = lambda x: (x[1:2], x[1:2], x[True:2]) if False else (x[1:2], x[1:2], x[1:3])
    assert len(after("subexpressions", index, spec(4))) == 2


def test_common_subexpressions_nested_multi_output_and_constants():
    def f(x):
        a = [ef.tanh(ef.exp(x) * ef.tensor([2.0, 3.0, 4.0])) for _ in range(3)]
        return [*a, *ef.split(x, 3), *ef.split(x, 3)]

    graph = ef.capture.trace(f, spec(3))
    found = graph.optimized("exact")
    found.check()
    assert names(found) == ["exp", "multiply", "tanh", "split"]
    assert len(graph.constants) == 3 and len(found.constants) == 1
    assert found.outputs.names == graph.outputs.names


def test_subexpressions_keep_to_their_pins():
    ef_device = ef.devices()[0]

    def f(x):
        a = ef.tanh(x)
        with ef.device(ef_device):
            b = ef.tanh(x)
        return a, b, ef.tanh(x)

    graph = ef.capture.trace(f, spec(3))
    found = ALL["subexpressions"](graph)
    assert [n.device for n in found.nodes] == [None, str(ef_device)]
    assert found.outputs[0] is found.outputs[2] is not found.outputs[1]


def test_constants_are_bounded():
    small, large = SMALL_BYTES // 4, MAX_BYTES // 4
    known = ef.ones((small,))
    folded = lambda f: after("constants", f, spec(2)) == []
    assert folded(lambda x: ef.exp(ef.tensor([1.0])) * 2.0)
    assert folded(lambda x: ef.zeros((small,)))
    assert not folded(lambda x: ef.zeros((small + 1,)))
    assert folded(lambda x: ef.broadcast_to(known, (4, small)))
    assert not folded(lambda x: ef.broadcast_to(known, (5, small)))
    big = ef.ones((large + 1,))
    assert not folded(lambda x: big * 2.0)
    assert folded(lambda x: ef.sum(big))  # the result is small
    matrix = ef.ones((300, 300))
    assert not folded(lambda x: matrix @ matrix)  # 54 million operations
    assert folded(lambda x: ef.ones_like(x) * 3.0)
    named = ef.capture.trace(lambda x: ef.ones_like(x), spec("n"))
    assert ALL["constants"](named) is named
    assert after("constants", lambda x: x * ef.exp(ef.tensor(2.0)), spec(2)) == ["multiply"]


def test_constants_that_fail_fail_when_the_graph_runs():
    labels = ef.tensor([7])
    f = lambda x: ef.sparse_softmax_cross_entropy(ef.tensor([[1.0, 2.0]]), labels)
    assert after("constants", f, spec(2)) == ["sparse_softmax_cross_entropy"]


def test_constants_keep_bits_and_names():
    table = ef.asarray(np.random.default_rng(0).standard_normal((5, 7)).astype("float32").T)
    graph = ef.capture.trace(lambda x: {"y": x * 0 + ef.sum(ef.exp(table)), "t": table * 2}, spec())
    found = ALL["constants"](graph)
    found.check()
    assert found.outputs.names == ("y", "t")
    assert found.outputs["t"].constant.numpy().strides == (table * 2).numpy().strides
    check_same_bits(*(computed(g, [ef.tensor(1.0)]) for g in (found, graph)), "folded")


# What stays: Variables, names, places, pins ------------------------------------------------------


def test_passes_keep_assigned_values_of_variables():
    weight = ef.Variable(ef.ones((3,)), name="weight")
    unused = ef.Variable(ef.zeros((2,)), name="unused")
    same = ef.Variable(ef.zeros((2,)), name="same")

    def step(x):
        ef.exp(unused)
        weight.assign(ef.tanh(weight * 1.0 + ef.log(1.0 + x)))
        same.assign(same.value[:])
        return ef.sum(x)

    graph = ef.capture.trace(step, spec(3))
    for numerics in ("exact", "fast"):
        found = graph.optimized(numerics)
        found.check()
        assert found is not graph
        assert list(found.variables) == list(graph.variables) == ["unused", "weight", "same"]
        assigned = {c.name: c.assigned for c in found.cells}
        assert assigned["unused"] is None and assigned["weight"].shape == (3,)
        assert assigned["same"] is next(c.value for c in found.cells if c.name == "same")
    entries = [ef.tensor([1.0, 2.0, 3.0]), ef.zeros((2,)), ef.ones((3,)), ef.zeros((2,))]
    exact = graph.optimized("exact")
    check_same_bits(computed(exact, entries), computed(graph, entries), "assigned")
    assert [c.assigned for c in graph.cells if c.name == "unused"] == [None]


def test_names_places_and_pins_stay():
    device = str(ef.devices()[0])

    def f(x):
        with ef.capture.scope("head"), ef.device(device):
            return {"score": ef.log(1 - ef.softmax(x)), "other": ef.exp(x)}

    graph = ef.capture.trace(f, spec(4))
    found = graph.optimized()
    found.check()
    assert found.outputs.names == ("score", "other")
    assert found.outputs["score"].name == "head/log"
    old = {n.name: n for n in graph.nodes}
    for node in found.nodes:
        assert node.device == device and node.scope.startswith("head")
        assert node.source == old[node.name if node.name in old else "head/log"].source


def test_inputs_as_outputs_and_results_that_are_no_tensors():
    graph = ef.capture.trace(
        lambda x, y: {"a": x * 1 + 0, "word": "kept", "b": [y[:], y]}, spec(2), spec(3)
    )
    found = graph.optimized()
    found.check()
    assert not found.nodes and found.outputs[0] is found.inputs["x"]
    assert found.nest([1, 2, 3]) == {"a": 1, "word": "kept", "b": [2, 3]}


def test_other_devices_are_left_alone():
    """A pattern whose nodes are pinned to different devices is no pattern."""
    x = Value("x", (3,), np.dtype("float32"))
    inner = Node(ops["softmax"], (x,), {"axis": -1}, "softmax", device="cpu:1")
    inner.outputs = (Value("softmax", (3,), x.dtype, node=inner),)
    outer = Node(ops["log"], inner.outputs, {}, "log", device="cpu:0")
    outer.outputs = (Value("log", (3,), x.dtype, node=outer),)
    graph = Graph("f", Values([x]), [inner, outer], Values(outer.outputs))
    assert graph.optimized() is graph
    inner.device = "cpu:0"
    assert names(graph.optimized()) == ["log_softmax"]


# Bodies ------------------------------------------------------------------------------------------


@pytest.fixture
def call_op(monkeypatch):
    """An op that runs a graph that it holds, as the bodies of loops and branches are held."""

    def infer(*specs, body):
        found = [s.like(v.shape, v.dtype) for s, v in zip(specs, body.outputs, strict=False)]
        return tuple(found) if len(found) > 1 else found[0]

    template = ops["tanh"]
    facts = {
        name: getattr(template, name)
        for name in (
            "partials",
            "vjp",
            "jvp",
            "batch",
            "split",
            "cost",
            "onnx",
            "scalar",
        )
    }
    op = Op(
        name="call_body",
        family="control",
        kernel=template.kernel,
        doc="Runs a graph.",
        data=("args",),
        attributes={"body": REQUIRED},
        variadic=True,
        dtypes=(frozenset({np.dtype("float32")}),),
        together=(),
        infer=infer,
        saves=frozenset(),
        **facts,
    )
    op.call = lambda *args, body: tuple(computed_tensors(body, args))
    monkeypatch.setitem(op_table(), "call_body", op)
    return op


def computed_tensors(body, args):
    return [ef.asarray(y) for y in computed(body, list(args))]


def holding(op, body, x):
    """A graph of one node that holds ``body``, twice."""
    nodes = []
    value = x
    for i in range(2):
        node = Node(op, (value,), {"body": body}, f"call_{i}")
        node.outputs = (Value(f"call_{i}", x.shape, x.dtype, node=node),)
        nodes.append(node)
        value = node.outputs[0]
    return Graph("outer", Values([x]), nodes, Values([value], ["y"]))


def test_passes_go_into_bodies(call_op):
    """Bodies in bodies get the same passes, once each, and what they took and gave stays."""
    body = ef.capture.trace(lambda x: ef.log(1 + x) * 1.0 + ef.exp(x) * 0 - 0.0, spec(3))
    x = Value("x", (3,), np.dtype("float32"))
    middle = holding(call_op, body, x)
    outer = holding(call_op, middle, Value("x", (3,), np.dtype("float32")))
    found = outer.optimized()
    found.check()
    bodies = {id(n.attributes["body"]) for n in found.nodes}
    assert len(bodies) == 1 and outer.nodes[0].attributes["body"] is middle
    inner = found.nodes[0].attributes["body"].nodes[0].attributes["body"]
    assert names(inner)[0] == "log1p" and len(inner.nodes) < len(body.nodes)
    assert "stability: log(1 + x) -> log1p(x)" in str(found.rewrites)
    tensor = ef.tensor([0.5, 1.0, 2.0])
    exact = outer.optimized("exact")
    check_same_bits(computed(exact, [tensor]), computed(outer, [tensor]), "bodies")
    for name in ALL:
        alone = ALL[name](outer)
        alone.check()
        assert np.allclose(computed(alone, [tensor])[0], computed(outer, [tensor])[0])


def test_bodies_tell_nodes_apart(call_op):
    x = Value("x", (3,), np.dtype("float32"))
    bodies = [ef.capture.trace(f, spec(3)) for f in (ef.tanh, ef.exp)]
    nodes = []
    for i, body in enumerate((*bodies, bodies[0])):
        node = Node(call_op, (x,), {"body": body}, f"call_{i}")
        node.outputs = (Value(f"call_{i}", (3,), x.dtype, node=node),)
        nodes.append(node)
    outputs = Values([n.outputs[0] for n in nodes])
    found = ALL["subexpressions"](Graph("f", Values([x]), nodes, outputs))
    assert len(found.nodes) == 2 and found.outputs[0] is found.outputs[2]


# Checks that catch -------------------------------------------------------------------------------


def planted(change):
    """A pass that makes a graph from another by ``change``."""
    return Pass("planted", "exact", lambda graph: (change(graph), [Rewrite("planted", "x", None)]))


def wrong_shape(graph):
    (out,) = graph.outputs
    return graph.like(graph.nodes, {out: Value("y", (9,), out.dtype, node=out.node)})


def wrong_dtype(graph):
    (out,) = graph.outputs
    return graph.like(graph.nodes, {out: Value("y", out.shape, np.dtype("int8"))})


def other_name(graph):
    found = graph.like(graph.nodes, {})
    found.outputs = Values(found.outputs, ["renamed"])
    return found


def no_cell(graph):
    found = graph.like(graph.nodes, {})
    found.cells = ()
    return found


def not_assigned(graph):
    found = graph.like(graph.nodes, {})
    found.cells = tuple(Cell(c.name, c.variable, c.value) for c in found.cells)
    return found


def other_inputs(graph):
    found = graph.like(graph.nodes, {})
    found.inputs = Values([Value(v.name, v.shape, v.dtype) for v in found.inputs])
    return found


def other_results(graph):
    found = graph.like(graph.nodes, {})
    found.results = (*found.results[:-1], "another")
    return found


@pytest.mark.parametrize(
    "change",
    [
        wrong_shape,
        wrong_dtype,
        other_name,
        no_cell,
        not_assigned,
        other_inputs,
        other_results,
    ],
)
def test_forbidden_changes_of_a_pass_are_refused(change):
    counter = ef.Variable(0.0, name="counter")

    def f(x):
        counter.assign(counter + 1.0)
        return {"y": ef.tanh(x), "z": "text"}

    graph = ef.capture.trace(f, spec(3))
    with pytest.raises(CaptureError, match="the pass planted has changed the"):
        planted(change)(graph)


def test_a_rule_that_gives_another_shape_is_refused():
    rules = {}

    @rule(rules, ef.tanh, words="tanh(x) -> sum(x)")
    def _(sweep, node):
        return sweep.make(ef.sum, node.inputs[0])

    graph = ef.capture.trace(ef.tanh, spec(3))
    with pytest.raises(CaptureError, match="replaces tanh by something else"):
        swept("planted", graph, rules)


def test_a_pattern_is_found_in_every_form():
    rules = {}
    pattern(rules, "exp(x)² - 1 -> cosh(x)")  # which need not be true
    last = lambda f: swept("planted", ef.capture.trace(f, spec(3)), rules)[0].nodes[-1].op.name
    assert last(lambda x: ef.square(ef.exp(x)) - 1) == "cosh"
    assert last(lambda x: -1 + ef.exp(x) ** 2) == "cosh"
    assert last(lambda x: (lambda e: e * e)(ef.exp(x)) - ef.ones((3,))) == "cosh"
    assert last(lambda x: ef.exp(x) * ef.exp(-x) - 1) == "subtract"
    assert last(lambda x: ef.exp(x) ** 2 - 2) == "subtract"
    assert last(lambda x: ef.exp(x) ** 2 - ef.ones((2, 3))) == "subtract"  # another shape
    assert last(lambda x: 1 - ef.exp(x) ** 2) == "subtract"


def test_pattern_may_require_single_use_of_last_operand():
    rules = {}
    pattern(rules, "-(a - b) -> b - a", once=True)
    names = lambda f: [
        n.op.name for n in swept("planted", ef.capture.trace(f, spec(3)), rules)[0].nodes
    ]
    assert names(lambda x: -(x - 2.0)) == ["subtract", "subtract"]
    assert names(lambda x: (lambda y: (-y, y))(x - 2.0)) == ["subtract", "negative"]


@pytest.mark.parametrize("words", ["x[0] -> x", "exp(x) -> 'x'", "x % 2 -> x"])
def test_words_that_are_no_pattern_are_refused(words):
    with pytest.raises((ValueError, KeyError)):
        pattern({}, words)


def test_wrong_numbers_are_caught():
    """The comparison that these tests rest on tells one bit of one element."""
    rules = {}

    @rule(rules, ef.tanh, words="tanh(x) -> x + 0")
    def _(sweep, node):
        return sweep.make(ef.add, node.inputs[0], 0.0)

    graph = ef.capture.trace(ef.tanh, spec(3))
    found, _ = swept("planted", graph, rules)
    x = ef.tensor([0.0, 1e-20, -1e-20])
    check_same_bits(computed(found, [x]), computed(graph, [x]), "tiny numbers")
    for wrong in ([1e-2, 0.0, 0.0], [-0.0, 0.0, 0.0]):
        x = ef.tensor(wrong)
        with pytest.raises(AssertionError, match="other bits"):
            check_same_bits(computed(found, [x]), computed(graph, [x]), "planted")


def test_time_is_linear():
    """Ten times the nodes take about ten times as long, not a hundred times."""

    def made(count):
        def f(x):
            for _ in range(count):
                x = ef.log(1.0 + ef.exp(ef.tanh(x) * 1.0)) + ef.sum(x * 2.0 * 3.0)[None][:]
            return x

        return ef.capture.trace(f, spec("n", 3))

    def seconds(graph):
        found = []
        for _ in range(3):
            start = time.process_time()
            graph.optimized()
            found.append(time.process_time() - start)
        return min(found)

    small, large = made(30), made(300)
    assert seconds(large) < 40 * seconds(small)


def test_loops_and_branches():
    """What stands in the bodies of while_loop and cond is rewritten, exactly or stably."""

    def step(state):
        i, y = state
        return i + 1, ef.log(1 + ef.exp(y)) * 1.0

    def f(x):
        _, y = while_loop(lambda state: state[0] < 3, step, (ef.tensor(0), x))
        return cond(ef.sum(y) > 0, lambda a: ef.log(ef.softmax(a)) - 0.0, lambda a: a * 1 + 0, y)

    graph = ef.capture.trace(f, spec("n"))
    x = ef.tensor([1.0, -2.0, 200.0])
    written = concrete(graph, {"n": 3})
    for numerics in ("exact", "fast"):
        found = graph.optimized(numerics)
        filled = concrete(found, {"n": 3})
        filled.check()
        loop, branch = (n for n in filled.nodes if n.op.name in ("while_loop", "cond"))
        kinds = names(loop.attributes["body"]), names(branch.attributes["true_graph"])
        if numerics == "exact":
            assert kinds == (["add", "exp", "add", "log"], ["softmax", "log"])
            small = ef.tensor([1.0, -2.0, 2.0])
            check_same_bits(computed(filled, [small]), computed(written, [small]), "bodies")
        else:
            assert kinds == (["add", "softplus"], ["log_softmax"])
            assert np.isfinite(computed(filled, [x])[0]).all()
    assert not np.isfinite(computed(written, [x])[0]).all()
