"""Partitions in a notebook: the timeline of a run."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.devices import device_types
from eagerflow.notebook import partitions
from tests.notebook.pages import HOSTILE, found, parsed, view, words


@pytest.fixture(autouse=True)
def two_devices(monkeypatch):
    monkeypatch.setattr(device_types["cpu"], "logical", 2)


def over_two(name="two"):
    def f(x):
        with ef.device("cpu:0"):
            a = ef.tanh(x @ x)
        with ef.device("cpu:1"):
            b = ef.sin(x) @ x
        return a + b

    graph = ef.capture.trace(f, ef.TensorSpec((64, 64), "float32", name="x"), name=name)
    return ef.capture.partition(graph, ["cpu:0", "cpu:1"], costs=COSTS)


COSTS = ef.capture.CostModel({"*": ef.capture.Rates()})


def test_before_a_run_there_is_no_timeline():
    plan = over_two()
    root = view(plan)
    assert "Nothing has run yet" in words(root) and not found(root, "svg")
    assert found(root, "pre")[0].text == str(plan)


def test_a_run_is_shown_piece_by_piece():
    plan = over_two()
    plan(np.ones((64, 64), "float32"))
    root = view(plan)
    events = plan.timeline()["traceEvents"]
    boxes = {e["name"]: e for e in events if e["ph"] == "X"}
    drawn = {}
    for group in found(root, "g"):
        rects = [part for part in group if part.tag.endswith("rect")]
        if rects:
            drawn[group[0].text.partition(":")[0]] = rects[0]
    assert drawn.keys() == boxes.keys()
    for one in boxes:  # left to right, as time goes
        for other in boxes:
            x = [float(drawn[name].get("x")) for name in (one, other)]
            assert (x[0] <= x[1] + 0.1) or boxes[one]["ts"] >= boxes[other]["ts"]
    rows = [text.text for text in found(root, "text")]
    assert {"cpu:0", "cpu:1"} <= set(rows)
    arrows = sum(e["ph"] == "s" for e in events)
    assert len(found(root, "line")) == arrows > 0


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_in_partitions_are_text(name):
    plan = over_two(name)
    plan(np.ones((64, 64), "float32"))
    view(plan)
    trace = plan.timeline()
    for event in trace["traceEvents"]:
        event["name"] = event["name"] if event["ph"] == "M" else name
        if event["ph"] == "X":
            event["args"]["nodes"] = [name]
    parsed(partitions.timeline(trace))


def test_long_runs_show_their_longest_pieces(monkeypatch):
    monkeypatch.setattr(partitions, "MAX_BOXES", 1)
    plan = over_two()
    plan(np.ones((64, 64), "float32"))
    root = view(plan)
    assert len(found(root, "rect")) == 1
    assert found(root, "svg")[0].get("aria-label").endswith("the longest 1 shown")
