"""Partitions: bits, cuts, pieces, what they print, and their bill."""

import math

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.placement.communication import recv, send
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.capture.placement.cutting import depends_on_threads
from eagerflow.capture.placement.partition import partition
from eagerflow.capture.placement.report import predicted
from eagerflow.errors import ArgumentError, IndexRangeError, SessionError, ShapeError
from eagerflow.graph.run import interpret
from eagerflow.plan.replay import replay_of
from tests.capture.placement.several_devices import (
    COSTS,
    EAGER_TO_SPLIT,
    bits,
    far,
    given_back,
    random_program,
    three_cpus,
)
from tests.contract.checks import CHECKS
from tests.contract.registry import NotApplicable
from tests.internals import graph_of

__all__ = ["far", "three_cpus"]

SPEC = ef.TensorSpec((8, 8), "float32")


def check_cuts(plan):
    """What crosses devices crosses once for each target, by Send and Recv; nothing else does."""
    whole, graph = plan.partitioned, graph_of(plan)
    whole.check()
    sent = [(c.value, c.target) for c in plan.cuts]
    assert len(set(sent)) == len(sent)
    values = {
        v.name: v for v in (*graph.all_inputs(), *[v for n in graph.nodes for v in n.outputs])
    }
    for one in plan.cuts:
        value = values[one.value]
        assert one.bytes == math.prod(value.shape) * value.dtype.itemsize
        assert (one.sent.op, one.received.op) == (send.op, recv.op)
        assert (one.sent.device, one.received.device) == (one.source, one.target)
        assert one.source != one.target
    pairs = [n for n in whole.nodes if n.op.family == "communication"]
    assert len(pairs) == 2 * len(plan.cuts)
    homes = {v: str(plan.devices[k]) for v, k in plan.division.places.items()}
    wanted = set()
    for node in whole.nodes:
        for x in node.values():
            if x.constant is None and node.op is not recv.op:
                assert homes[x] == node.device, f"{node.name} reads {x.name} from {homes[x]}"
                if x.node is not None and x.node.op is recv.op:
                    wanted.add(x)
    wanted |= {v for v in whole.all_outputs() if v.node is not None and v.node.op is recv.op}
    assert wanted == {c.received.outputs[0] for c in plan.cuts}, "a sent value is never received"


def check_pieces(plan):
    """Pieces hold each node once, and wait for each other in no circle."""
    whole = plan.partitioned
    inside = [n for p in plan.pieces for n in p.nodes]
    assert len(inside) == len(set(inside))
    assert set(inside) == {n for n in whole.nodes if n.op.family != "communication"}
    for piece in plan.pieces:
        assert all(before < piece.number for before in piece.after)
        assert {n.device for n in piece.nodes} == {str(piece.device)}


def by_eager_calls(graph, entries):
    """What the graph with Send and Recv in it gives, each node called where it is to run.

    Eager calls refuse operands of several devices, so an edge without Send does not get through.
    """

    def call(node, args):
        with ef.device(node.device):
            out = node.op.call(*args, **node.attributes)
        results = out if isinstance(out, tuple) else (out,)
        assert all(str(y.device) == node.device for y in results), node.name
        return out

    found = interpret(graph, entries, call)
    return found[: len(graph.outputs)], found[len(graph.outputs) :]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_random_programs_over_random_places_have_the_same_bits(three_cpus, first):
    for seed in range(first, first + 25):
        graph, inputs, variables = random_program(seed, three_cpus)
        costs = EAGER_TO_SPLIT if seed % 2 else COSTS
        plan = partition(graph, three_cpus, numerics="exact", costs=costs)
        check_cuts(plan)
        check_pieces(plan)
        whole = replay_of(graph, "exact")
        wanted = given_back(variables, lambda: whole.run(inputs))  # noqa: B023
        found = given_back(variables, lambda: plan.run(inputs))  # noqa: B023
        assert bits(found) == bits(wanted), seed
        entries = [*inputs, *(cell.variable.value for cell in graph.cells)]
        outputs, assigned = by_eager_calls(plan.partitioned, entries)
        count = len(outputs)
        assert bits(outputs) == bits(wanted[:count]), seed
        after = {
            id(cell.variable): t
            for cell, t in zip(
                [c for c in graph.cells if c.assigned is not None], assigned, strict=True
            )
        }
        for variable, value in zip(variables, wanted[count:], strict=True):
            if id(variable) in after:
                assert bits([after[id(variable)]]) == bits([value]), seed


def test_random_programs_fast_agree_and_repeat(three_cpus):
    for seed in range(300, 320):
        graph, inputs, variables = random_program(seed, three_cpus, size=72)
        plan = partition(graph, three_cpus, costs=COSTS if seed % 2 else EAGER_TO_SPLIT)
        whole = replay_of(graph, "exact")
        wanted = given_back(variables, lambda: whole.run(inputs))  # noqa: B023
        found = [given_back(variables, lambda: plan.run(inputs)) for _ in range(2)]  # noqa: B023
        assert bits(found[0]) == bits(found[1]), seed
        for a, b in zip(found[0], wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [300, 96])
def test_large_products_equal_the_whole_graph_bitwise(three_cpus, n):
    # Of these sizes, BLAS gives other bits with one thread than with two.
    rng = np.random.default_rng(0)
    x, w = (ef.tensor(rng.standard_normal((n, 700)).astype(np.float32)) for _ in range(2))

    def f(x, w):
        with ef.device("cpu:1"):
            a = ef.tanh(x @ w.T)
        with ef.device("cpu:2"):
            b = ef.sin(x @ w.T * 0.5)
        return a + b, (x * 2.0) @ w.T

    graph = ef.capture.trace(f, x, w)
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    wanted = bits(replay_of(graph, "exact").run([x, w]))
    assert all(bits(plan.run([x, w])) == wanted for _ in range(5))


def test_which_nodes_depend_on_threads():
    def family(f, *shapes):
        graph = ef.capture.trace(f, *[ef.TensorSpec(s, "float32") for s in shapes])
        return [depends_on_threads(n) for n in graph.nodes]

    assert family(lambda a, b: a @ b, (300, 700), (700, 300)) == [True]
    assert family(lambda a, b: a @ b, (30, 70), (70, 30)) == [False]
    assert family(lambda a, b: a @ b, (30, 70), (70,)) == [True]
    assert family(lambda a: ef.sin(a) + a.sum(), (30, 70)) == [False] * 3
    body = family(
        lambda a: ef.capture.cond(a.sum() > 0, lambda x: ef.linalg.inv(x), lambda x: x, a), (4, 4)
    )
    assert body[-1]


# Planted bugs ------------------------------------------------------------------------------------


def pinned_program():
    def f(x, y):
        with ef.device("cpu:1"):
            a = ef.sin(x) + y
        with ef.device("cpu:2"):
            return a * 2.0, ef.cos(a)

    return ef.capture.trace(f, SPEC, SPEC)


def test_a_planted_second_send_is_found(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    check_cuts(plan)
    plan.division.cuts.append(plan.cuts[0])
    with pytest.raises(AssertionError):
        check_cuts(plan)


def test_a_planted_edge_without_send_is_found(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    one = next(c for c in plan.cuts if c.sent.inputs[0].node is not None)
    reader = next(
        n
        for n in plan.partitioned.nodes
        if one.received.outputs[0] in n.values() and n.op is not recv.op
    )
    reader.inputs = tuple(
        one.sent.inputs[0] if x is one.received.outputs[0] else x for x in reader.inputs
    )
    with pytest.raises(AssertionError, match=r"reads|never received"):
        check_cuts(plan)


def test_a_planted_wrong_size_of_a_cut_is_found(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    plan.division.cuts[0] = plan.cuts[0]._replace(bytes=1)
    with pytest.raises(AssertionError):
        check_cuts(plan)


def test_a_planted_circle_of_pieces_is_found(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    check_pieces(plan)
    plan.pieces[0].waits = {len(plan.pieces) - 1: []}
    with pytest.raises(AssertionError):
        check_pieces(plan)


# Send and Recv -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [send.op, recv.op], ids=["send", "recv"])
def test_send_and_recv_keep_the_contract_of_ops(op):
    tried = 0
    for check in CHECKS.values():
        if check.excuse(op) is None:
            try:
                check(op)
                tried += 1
            except NotApplicable:
                pass
    assert tried > 10


def test_gradients_pass_through_send_and_recv():
    def f(x):
        return (recv(send(x * x, target="cpu:0"), source="cpu:0", device="cpu:0") * 3.0).sum()

    assert ef.grad(f)(ef.tensor([1.0, 2.0])).tolist() == [6.0, 12.0]


# Variables, symbols, results ---------------------------------------------------------------------


def test_variables_are_read_and_assigned_where_they_lie(three_cpus):
    w = ef.Variable(np.ones(8, np.float32), name="w", device="cpu:1")
    s = ef.Variable(np.zeros(8, np.float32), name="s", device="cpu:2")

    def f(x):
        s.assign(x.to("cpu:2") * 2.0 + w.value.to("cpu:2"))
        return s.value.to("cpu:0").sum()

    graph = ef.capture.trace(f, ef.TensorSpec((8,), "float32"))
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    total = plan(ef.ones((8,)))
    assert float(total) == 24.0
    assert s.numpy().tolist() == [3.0] * 8
    assert str(s.device) == "cpu:2"
    assert str(total.device) == "cpu:0"


def test_gradients_of_a_graph_over_devices(three_cpus):
    w = ef.Variable(np.full((8, 8), 0.1, np.float32), name="w")

    def loss(x):
        with ef.device("cpu:1"):
            h = ef.tanh(x @ w)
        with ef.device("cpu:2"):
            return (h * h).sum()

    graph = ef.capture.trace(loss, SPEC).gradient("output", w)
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    x = ef.tensor(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    assert bits(plan.run([x])) == bits(replay_of(graph, "exact").run([x]))
    check_cuts(plan)


def test_named_sizes_are_placed_once_and_run_with_any(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            return ef.sin(x).sum(axis=0)

    graph = ef.capture.trace(f, ef.TensorSpec(("n", 3), "float32"))
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    assert "for n=32 (n assumed)" in str(plan)
    for n in (1, 5, 32, 5):
        x = ef.tensor(np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32))
        assert bits([plan(x)]) == bits([ef.sin(x).sum(axis=0)])
    said = partition(graph, three_cpus, sizes={"n": 7}, costs=COSTS)
    assert "for n=7" in str(said)
    assert said.cuts[0].bytes == 7 * 3 * 4
    with pytest.raises(ArgumentError, match="no dimension 'm'"):
        partition(graph, three_cpus, sizes={"m": 7}, costs=COSTS)


def test_constants_results_that_are_inputs_and_empty_graphs(three_cpus):
    c = ef.tensor([1.0, 2.0])

    def f(x):
        with ef.device("cpu:1"):
            return c, x, c + x, {"n": 3, "again": x}

    graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    known, same, added, more = plan(ef.tensor([3.0, 4.0]))
    assert [t.tolist() for t in (known, same, added)] == [[1.0, 2.0], [3.0, 4.0], [4.0, 6.0]]
    assert more["n"] == 3
    assert more["again"].tolist() == [3.0, 4.0]
    str(plan)
    empty = ef.capture.trace(lambda x: x, ef.TensorSpec((2,), "float32"))
    assert partition(empty, three_cpus, costs=COSTS)(c).tolist() == [1.0, 2.0]


def test_results_share_no_memory_with_the_users_arrays(three_cpus):
    graph = ef.capture.trace(lambda x: ef.reshape(x, (4,)), ef.TensorSpec((2, 2), "float32"))
    plan = partition(graph, three_cpus, costs=COSTS)
    mine = np.zeros((2, 2), np.float32)
    (made,) = plan.run([mine])
    mine[:] = 7.0
    assert made.tolist() == [0.0] * 4


def test_control_flow_stays_whole_on_one_device(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            y = ef.capture.while_loop(
                lambda s: s[0] < 3, lambda s: (s[0] + 1, ef.sin(s[1]) @ s[1]), (0, x)
            )[1]
        return y + 1.0

    graph = ef.capture.trace(f, SPEC)
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    x = ef.tensor(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    assert bits(plan.run([x])) == bits(replay_of(graph, "exact").run([x]))
    assert str(plan.device_of("while_loop")) == "cpu:1"


def test_random_numbers_are_the_same_over_devices(three_cpus):
    def draws(devices):
        generator = ef.random.Generator(5)

        def f(x):
            with ef.device("cpu:1"):
                a = generator.normal((8, 8))
            return a + generator.uniform((8, 8)) + x

        graph = ef.capture.trace(f, SPEC)
        if devices is None:
            return [bits([graph(ef.ones((8, 8)))]) for _ in range(3)]
        plan = partition(graph, devices, numerics="exact", costs=COSTS)
        return [bits([plan(ef.ones((8, 8)))]) for _ in range(3)]

    assert draws(None) == draws(three_cpus)
    assert len({d[0] for d in draws(None)}) == 3


def test_arguments_that_do_not_fit_are_refused(three_cpus):
    plan = partition(pinned_program(), three_cpus, costs=COSTS)
    with pytest.raises(ShapeError):
        plan(ef.ones((8, 9)), ef.ones((8, 8)))
    with pytest.raises(ArgumentError):
        plan(ef.ones((8, 8)))


def test_a_tape_sees_through_a_partition(three_cpus):
    plan = partition(ef.capture.trace(lambda x: (x * x).sum(), SPEC), three_cpus, costs=COSTS)
    x = ef.ones((8, 8)) * 3.0
    assert ef.grad(plan)(x).tolist() == [[6.0] * 8] * 8


def test_an_error_names_the_line_and_leaves_variables_alone(three_cpus):
    s = ef.Variable(np.zeros(3, np.float32), name="s")

    def f(x, i):
        s.assign_add(x)
        with ef.device("cpu:1"):
            return ef.take(x, i, axis=0)

    graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"), ef.TensorSpec((1,), "int64"))
    plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
    plan(ef.ones((3,)), ef.tensor([1]))
    assert s.numpy().tolist() == [1.0] * 3
    for _ in range(3):
        with pytest.raises(IndexRangeError) as caught:
            plan(ef.ones((3,)), ef.tensor([7]))
        assert f"test_partition.py:{f.__code__.co_firstlineno + 3}" in str(caught.value)
        assert s.numpy().tolist() == [1.0] * 3
    plan(ef.ones((3,)), ef.tensor([2]))
    assert s.numpy().tolist() == [2.0] * 3


# Words, bill -------------------------------------------------------------------------------------


def test_it_prints_devices_nodes_and_bill(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    told = str(plan)
    for words in (
        "partition of f over cpu:0, cpu:1, cpu:2",
        "inputs x: float32[8, 8], y: float32[8, 8]",
        "x_to_cpu_1: float32[8, 8] = send(x, target='cpu:1')",
        "sin: float32[8, 8] = sin(x_on_cpu_1)",
        "recv(add_to_cpu_2, source='cpu:1', device='cpu:2')",
        "test_partition.py:",
        "values sent",
        "alone",
        "at the peak",
        "not worth it",
    ):
        assert words in told, words
    assert "def replay(" in plan.source()
    assert "# piece 0 on cpu:1" in plan.source()
    assert "over cpu:0, cpu:1, cpu:2" in repr(plan)


def test_the_bill_counts_bytes_exactly(three_cpus):
    plan = partition(pinned_program(), three_cpus, numerics="exact", costs=COSTS)
    # x and y to cpu:1, their sum to cpu:2, both results home: five times 8 * 8 float32.
    assert plan.bill.cuts == len(plan.cuts) == 5
    assert plan.bill.cut_bytes == 5 * 256
    assert plan.bill.peak["cpu:0"] == 4 * 256 - 2 * 256  # x and y; the results come at the end
    # x, y, sin(x) at once; then their sum is made and x is gone.
    assert plan.bill.peak["cpu:1"] == 3 * 256


def test_predicted_times_follow_the_pieces(three_cpus):
    class Fake:
        def __init__(self, number, device, after=(), alone=False, rest=0.0):
            self.number, self.device, self.waits = number, device, {i: ["made"] for i in after}
            self.alone, self.priority, self.rest = alone, 0.0, rest

        def remaining(self, step_seconds):
            return {"made": self.rest} if self.rest else {}

    model = CostModel({"*": Rates()}, latency=0.5, run=0.0)
    side_by_side = [Fake(0, "a"), Fake(1, "b"), Fake(2, "a", (0, 1))]
    assert (
        predicted(side_by_side, [[1.0], [0.5, 1.5], [1.0]], model) == 3.5
    )  # 2 on b, a hop, 1 on a
    published = [Fake(0, "a", rest=2.5), Fake(1, "b", (0,))]
    assert predicted(published, [[3.0], [4.0]], model) == 5.0  # made at 0.5, a hop, 4 on b
    one = [Fake(0, "a"), Fake(1, "a", (0,))]
    assert predicted(one, [[1.0], [2.0]], model) == 3.0
    alone = [Fake(0, "a", alone=True), Fake(1, "b", alone=True)]
    assert predicted(alone, [[1.0], [2.0]], model) == 3.0


@pytest.mark.parametrize(("bandwidth", "count"), [(math.inf, 0), (1e12, 0), (2e9, 8)])
def test_early_results_are_sent_while_others_are_computed(three_cpus, bandwidth, count):
    """Though its reader is busy for long: a link could not carry all at once."""

    def program(x):
        made, mine, theirs = [], x, x
        with ef.device("cpu:0"):
            for _ in range(8):
                mine = ef.matmul(mine, x)
                made.append(mine)
        with ef.device("cpu:1"):
            for _ in range(24):
                theirs = ef.matmul(theirs, x)
            return sum(made, theirs)

    graph = ef.capture.trace(program, ef.TensorSpec((256, 256), "float32"))
    costs = CostModel(COSTS.devices, COSTS.latency, bandwidth)
    plan = partition(graph, three_cpus[:2], costs=costs)
    (piece,) = (p for p in plan.pieces if p.device == ef.devices("cpu")[0])
    assert len(piece.published) == count
    x = ef.tensor(np.random.default_rng(0).uniform(-0.06, 0.06, (256, 256)).astype("float32"))
    np.testing.assert_allclose(plan(x).numpy(), graph(x).numpy(), rtol=1e-4, atol=1e-6)


def test_kernels_are_those_of_the_pieces(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            y = ef.tanh(x) * 2.0
        with ef.device("cpu:2"):
            return ef.sin(y) + 1.0

    graph = ef.capture.trace(f, ef.TensorSpec((128, 128), "float32"))
    plan = partition(graph, three_cpus, costs=COSTS)
    names = [kernel.name for kernel in plan.kernels]
    assert names == ["tanh_multiply", "sin_add"]


def test_comparison_and_timeline_want_a_run(three_cpus):
    plan = partition(pinned_program(), three_cpus, costs=COSTS)
    with pytest.raises(SessionError):
        plan.compare()
    with pytest.raises(SessionError):
        plan.timeline()


def test_comparison_after_runs(three_cpus):
    plan = partition(pinned_program(), three_cpus, costs=COSTS)
    for _ in range(4):
        plan(ef.ones((8, 8)), ef.ones((8, 8)))
    found = plan.compare()
    assert found.runs == 3
    assert len(found.pieces) == len(plan.pieces)
    assert found.measured > 0
    assert "measured / predicted" in str(found)
