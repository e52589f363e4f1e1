"""Placement: pins, what belongs together, earliest finish, and the words for each choice."""

import dataclasses
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.placement import calibration
from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.capture.placement.partition import partition
from eagerflow.capture.placement.placement import placed
from eagerflow.errors import ArgumentError, PlacementError, SessionError
from eagerflow.runtime.cache import ObjectCache
from tests.capture.placement.several_devices import COSTS, far, random_program, three_cpus
from tests.internals import DamagedCache, forget_measurements

__all__ = ["far", "three_cpus"]

SPEC = ef.TensorSpec((64, 64), "float32")


def places(plan):
    """The device of each node by name."""
    return {n.name: str(plan.device_of(n)) for piece in plan.pieces for n in piece.nodes}


def plan_of(f, *specs, devices=("cpu:0", "cpu:1"), **more):
    graph = ef.capture.trace(f, *specs)
    return partition(graph, devices, **{"costs": COSTS, "numerics": "exact"} | more)


# Pins --------------------------------------------------------------------------------------------


def test_ops_pinned_while_tracing_run_on_their_device(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            y = ef.sin(x)
        with ef.device("cpu:2"):
            z = ef.cos(x)
        return y + z

    plan = plan_of(f, SPEC, devices=three_cpus)
    assert places(plan)["sin"] == "cpu:1"
    assert places(plan)["cos"] == "cpu:2"
    line = f.__code__.co_firstlineno + 2
    assert plan.explain("sin") == f"cpu:1: pinned by ef.device at test_placement.py:{line}"


def test_to_device_and_a_device_argument_are_pins(three_cpus):
    def f(x):
        return x.to("cpu:1") * 2.0, ef.zeros((3,), device="cpu:2")

    plan = plan_of(f, SPEC, devices=three_cpus)
    assert places(plan)["to_device"] == "cpu:1"
    assert "pinned by .to at" in plan.explain("to_device")
    moved, made = plan.run([ef.ones((64, 64))])
    assert str(moved.device) == "cpu:0"  # the product has no device of its own
    assert places(plan)["zeros"] == "cpu:2"
    assert "its device argument" in plan.explain("zeros")
    assert made.shape == (3,)


def test_the_default_device_as_an_argument_is_no_pin(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            return ef.zeros(x.shape, device=str(x.device)) + x

    plan = plan_of(f, SPEC)
    assert places(plan)["zeros"] == "cpu:1"  # as the scope says


def test_inputs_and_variables_lie_where_they_are_said_to(three_cpus):
    w = ef.Variable(np.ones((64, 64), np.float32), name="w", device="cpu:1")
    plan = plan_of(
        lambda x: x + w, ef.TensorSpec((64, 64), "float32", "x", device="cpu:2"), devices=three_cpus
    )
    assert plan.explain("w") == plan.explain(w) == "cpu:1: the Variable w is there"
    assert plan.explain("x") == "cpu:2: the input x is declared there"


def test_outputs_come_home_and_those_moved_stay(three_cpus):
    def f(x):
        with ef.device("cpu:1"):
            y = ef.sin(x)
        return y, ef.cos(x).to("cpu:2")

    plan = plan_of(f, SPEC, devices=three_cpus)
    first, second = plan(ef.ones((64, 64)))
    assert [str(t.device) for t in (first, second)] == ["cpu:0", "cpu:2"]


@pytest.mark.parametrize(
    ("pin", "words"),
    [("cpu:2", "not among the devices"), ("cpu:7", "does not exist"), ("gpu:0", "gpu")],
)
def test_a_pin_that_cannot_be_kept_names_node_and_line(three_cpus, pin, words):
    graph = ef.capture.trace(lambda x: ef.sin(x), SPEC)
    (node,) = graph.nodes
    node.device = pin
    with pytest.raises(PlacementError, match=words) as caught:
        partition(graph, ["cpu:0", "cpu:1"], costs=COSTS)
    told = str(caught.value)
    assert "sin" in told
    assert "test_placement.py" in told
    assert "try:" in told


@pytest.mark.parametrize("devices", [[], ["cpu:0", "cpu:0"], ["cpu:9"], ["moon"], [3]])
def test_devices_that_are_none(three_cpus, devices):
    graph = ef.capture.trace(lambda x: ef.sin(x), SPEC)
    with pytest.raises(PlacementError):
        partition(graph, devices, costs=COSTS)


def test_a_variable_elsewhere_is_an_error_that_names_it(three_cpus):
    w = ef.Variable(np.ones(3, np.float32), name="weight", device="cpu:2")
    graph = ef.capture.trace(lambda x: x + w, ef.TensorSpec((3,), "float32"))
    with pytest.raises(PlacementError, match="weight is pinned to cpu:2"):
        partition(graph, ["cpu:0", "cpu:1"], costs=COSTS)


def test_pins_in_bodies_that_contradict_each_other(three_cpus):
    def here(x):
        with ef.device("cpu:0"):
            return ef.sin(x)

    def there(x):
        with ef.device("cpu:1"):
            return ef.cos(x)

    def f(x):
        return ef.capture.cond(x.sum() > 0, here, there, x)

    with pytest.raises(PlacementError, match="pinned to several devices") as caught:
        plan_of(f, SPEC, costs=COSTS)
    assert "test_placement.py" in str(caught.value)


def test_a_pin_in_a_body_is_one_of_the_whole(three_cpus):
    def there(x):
        with ef.device("cpu:1"):
            return ef.cos(x)

    plan = plan_of(lambda x: ef.capture.cond(x.sum() > 0, there, lambda x: x, x), SPEC)
    (name,) = [n for n in places(plan) if "cond" in n]
    assert places(plan)[name] == "cpu:1"
    assert bits_equal(plan(ef.ones((64, 64))), ef.cos(ef.ones((64, 64))))


def bits_equal(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


# Groups, and free nodes --------------------------------------------------------------------------


def test_an_assigned_value_is_computed_beside_its_variable(three_cpus):
    s = ef.Variable(np.zeros((64, 64), np.float32), name="s", device="cpu:1")

    def f(x):
        s.assign(s + x)

    plan = plan_of(f, SPEC)
    assert places(plan)["add"] == "cpu:1"
    assert "beside s, which is on cpu:1" in plan.explain("add")


def test_a_cheap_node_stays_beside_its_large_argument(three_cpus, far):
    # The argument's way to the other device takes longer than the node.
    costs = CostModel({"*": Rates(memory=1e9)}, 1e-6, {("cpu:0", "far:0"): 1e6})
    busy = ef.TensorSpec((512, 512), "float32")

    def f(x):
        with ef.device("far:0"):
            z = ef.zeros((2,)) * 2.0
        return ef.sin(x) + 1.0, z

    plan = plan_of(f, busy, devices=["cpu:0", "far:0"], costs=costs)
    assert places(plan)["sin"] == "cpu:0"
    assert plan.explain("sin") == "cpu:0: beside x, whose 1 MiB it reads"


def branches(x, w):
    a, b = x, x
    for _ in range(3):
        a, b = ef.tanh(a @ w), ef.sin(b @ w) * 0.5
    return a + b


def test_independent_branches_go_to_different_devices(three_cpus):
    # 25 ms a product here, and a latency of 10 µs: two devices take about half the time.
    big = ef.TensorSpec((500, 500), "float32")
    plan = plan_of(branches, big, big, numerics="fast")
    own = places(plan)
    assert len(set(own.values())) == 2
    assert own["matmul_2"] != own["matmul_3"]
    assert plan.bill.worth
    told = plan.explain("matmul_3")
    assert "earliest finish" in told
    assert "against" in told
    assert plan.bill.seconds < 0.7 * plan.bill.one


def test_small_graphs_stay_whole(three_cpus):
    small = ef.TensorSpec((4, 4), "float32")
    plan = plan_of(branches, small, small)
    assert set(places(plan).values()) == {"cpu:0"}
    assert plan.cuts == []
    assert not plan.bill.worth
    assert "nothing to win" not in str(plan)
    assert "not worth it" in str(plan)


def test_a_slow_link_keeps_the_graph_whole(three_cpus, far):
    slow = CostModel(
        {"*": Rates(products=1e10)}, 1e-5, {("cpu:0", "far:0"): 1e3, ("far:0", "cpu:0"): 1e3}
    )
    big = ef.TensorSpec((500, 500), "float32")
    whole = plan_of(branches, big, big, devices=["cpu:0", "far:0"], costs=slow)
    assert set(places(whole).values()) == {"cpu:0"}


def test_the_faster_device_gets_the_work(three_cpus):
    uneven = CostModel({"cpu:0": Rates(products=1e9), "cpu:1": Rates(products=1e12)}, 1e-6)
    big = ef.TensorSpec((500, 500), "float32")
    plan = plan_of(lambda x, w: ef.tanh(x @ w) @ w, big, big, costs=uneven)
    assert places(plan)["matmul"] == places(plan)["matmul_1"] == "cpu:1"


def test_every_node_of_random_programs_has_a_place_and_a_reason(three_cpus):
    for seed in range(20):
        graph, _, _ = random_program(seed, three_cpus)
        plan = partition(graph, three_cpus, numerics="exact", costs=COSTS)
        kept = {n.name for n in plan.partitioned.nodes}
        pinned = {n.name: n.device for n in graph.nodes if n.device is not None}
        for node in graph.nodes:
            device, _, words = plan.explain(node).partition(": ")
            assert device in three_cpus
            assert len(words) > 5
            if node.name in pinned and node.name in kept:
                assert device == pinned[node.name], (seed, node.name)


def test_a_planted_wrong_place_is_found(three_cpus):
    # The check above, on a placement with a pin that was not kept.
    def f(x):
        with ef.device("cpu:1"):
            return ef.sin(x)

    plan = plan_of(f, SPEC)
    plan.placement.nodes[0] = 0
    assert plan.explain("sin").partition(": ")[0] != plan.graph.nodes[0].device


def test_unknown_names_are_refused(three_cpus):
    plan = plan_of(branches, SPEC, SPEC)
    with pytest.raises(SessionError, match="there is no value 'nothing'"):
        plan.explain("nothing")


@pytest.mark.soak
def test_placing_takes_time_in_proportion_to_the_nodes():
    def chain(count):
        def f(x):
            for _ in range(count):
                x = ef.tanh(x) * 1.5 + x
            return x

        return ef.capture.trace(f, ef.TensorSpec((64,), "float32"))

    def seconds(graph):
        begin = time.process_time()
        placed(graph, ["cpu:0"], COSTS)
        return time.process_time() - begin

    small, large = chain(300), chain(3000)
    ratio = min(seconds(large) for _ in range(3)) / min(seconds(small) for _ in range(3))
    print(f"10 times the nodes take {ratio:.1f} times as long")
    assert ratio < 30  # 10 if linear, 100 if quadratic


# Costs -------------------------------------------------------------------------------------------


def test_rates_are_measured_once_and_remembered(three_cpus, monkeypatch, tmp_path):
    forget_measurements(monkeypatch, ObjectCache(tmp_path))  # which no other test empties
    first = calibrate(["cpu:0", "cpu:1"])
    for name in ("both_rates", "all_links"):
        monkeypatch.setattr(calibration, name, lambda *places: pytest.fail("measured again"))
    assert calibrate(["cpu:0", "cpu:1"]) == first
    forget_measurements(monkeypatch)
    assert calibrate(["cpu:0", "cpu:1"]) == first  # from disk


def test_logical_devices_are_alike(three_cpus):
    both = calibrate(["cpu:0", "cpu:1"])
    assert both.rates("cpu:0") == both.rates("cpu:1")
    assert calibrate(["cpu:0"]).rates("cpu:0") == both.rates("cpu:0")


def test_damaged_rates_on_disk_are_measured_again(three_cpus, monkeypatch):
    fine = calibrate(["cpu:0"])
    done = []
    both, links = calibration.both_rates, calibration.all_links
    monkeypatch.setattr(calibration, "both_rates", lambda p: done.append(1) or both(p))
    monkeypatch.setattr(calibration, "all_links", lambda p: done.append(2) or links(p))
    for number, content in enumerate((b"", b"{", b"[]", b'{"devices": 3}', b"\xff", b"[1, 2]"), 1):
        forget_measurements(monkeypatch, DamagedCache(content))
        if number > 2:  # once is enough to time
            monkeypatch.setattr(calibration, "both_rates", lambda p: done.append(1) or plain(fine))
            monkeypatch.setattr(
                calibration, "all_links", lambda p: done.append(2) or [1, 2, 1.5, []]
            )
        calibrate(["cpu:0"])
        assert done == [1, 2] * number


def plain(model):
    return [dataclasses.asdict(model.rates("cpu:0"))] * 2


def test_measured_rates_are_plausible(three_cpus):
    model = calibrate(["cpu:0", "cpu:1"])
    own = model.rates("cpu:0")
    assert 1e8 < own.product_rate(2 * 256**3) < 1e13
    assert 1e8 < own.memory_rate(1 << 20) < 1e12
    assert own.elements["tanh"] > own.elements["add"] > 0
    assert 1e-6 <= model.latency < 0.1
    assert 1.0 <= model.crowd <= calibration.MAX_CROWD_FACTOR


def test_rates_between_points_lie_between_them():
    own = Rates(products=((1e3, 1e9), (1e6, 4e9)), memory=1e10)
    assert own.product_rate(1) == 1e9
    assert own.product_rate(1e9) == 4e9
    assert own.product_rate(1e3) == 1e9
    assert own.product_rate(10**4.5) == pytest.approx(2e9)
    with pytest.raises(ArgumentError, match="no rates of cpu:1"):
        CostModel({"cpu:0": own}).rates("cpu:1")


def test_transfers_cost_latency_and_bytes():
    model = CostModel({"*": Rates()}, 1e-3, {("cpu:0", "gpu:0"): 1e6})
    assert model.transfer(1e6, "cpu:0", "gpu:0") == pytest.approx(1.001)
    assert model.transfer(1e6, "gpu:0", "cpu:0") == 1e-3
    assert model.transfer(1e6, "cpu:0", "cpu:0") == 0.0


def test_views_of_inputs_wait_for_no_product(three_cpus):
    """Each of two chains begins with a view, which the other device can have at once."""

    def f(x, y):
        for _ in range(3):
            x = ef.softmax(x @ x.T * 0.1, axis=-1) @ x
            y = ef.softmax(y @ y.T * 0.1, axis=-1) @ y
        return ef.sum(x) + ef.sum(y)

    costs = CostModel({"*": Rates(products=1e11, memory=1e10, call=2e-6)}, latency=2e-5)
    spec = ef.TensorSpec((512, 256), "float32")
    graph = ef.capture.trace(f, spec, spec)
    one, two = (placed(graph, three_cpus[:n], costs).schedule.seconds for n in (1, 2))
    assert two < 0.52 * one
