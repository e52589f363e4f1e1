"""Traces are what "Trace Event Format" says, and tell the same as the table."""

import json
import threading

import pytest

import eagerflow as ef
from eagerflow.errors import FileFormatError

X = ef.ones((256, 256))
KINDS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
}


def problems(trace):
    """Violations of the JSON object format of traces."""
    found = []
    for number, event in enumerate(trace["traceEvents"]):
        kind = event.get("ph")
        if kind not in KINDS:
            found.append(f"{number}: phase {kind!r}")
        elif event.keys() != KINDS[kind]:
            found.append(f"{number}: {sorted(event.keys() ^ KINDS[kind])}")
        elif kind != "M" and not (isinstance(event["ts"], float | int) and event["ts"] >= 0):
            found.append(f"{number}: ts {event['ts']!r}")
        elif kind == "X" and not event["dur"] >= 0:
            found.append(f"{number}: dur {event['dur']!r}")
        elif kind == "C" and not all(type(v) in (int, float) for v in event["args"].values()):
            found.append(f"{number}: a counter of {event['args']!r}")
        elif kind == "M" and event["name"] not in ("process_name", "thread_name"):
            found.append(f"{number}: {event['name']!r}")
    return found or nesting(trace)


def nesting(trace):
    """Complete events of one thread that overlap without one being inside the other."""
    found, slack = [], 2e-3  # of a microsecond, as times are rounded
    tracks = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for track, own in tracks.items():
        around = []
        for begin, end in sorted(own, key=lambda e: (e[0], -e[1])):
            while around and around[-1] <= begin + slack:
                around.pop()
            if around and end > around[-1] + slack:
                found.append(f"thread {track}: {begin} to {end} leaves what ends at {around[-1]}")
            around.append(end)
    return found


@pytest.fixture(scope="module")
def profile():
    step = ef.function(lambda x: ef.scan(lambda h, r: (ef.tanh(h @ X + r), h), x, x[:20])[0])
    step(X)

    def work():
        for _ in range(20):
            y = ef.exp(X)
            ef.sum(y, axis=0)

    with ef.profile() as p:
        thread = threading.Thread(target=work, name="beside")
        thread.start()
        for _ in range(3):
            step(X)
        ef.tanh(X)
        thread.join()
    return p


@pytest.fixture(scope="module")
def trace(profile, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    profile.save(path)
    return json.loads(path.read_text())


def test_it_has_the_form(trace):
    assert problems(trace) == []
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"MainThread", "beside"}
    assert trace["displayTimeUnit"] == "ms"


def test_each_event_is_there_with_its_facts(profile, trace):
    own = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(own) == len(profile.events)
    assert max(e["ts"] + e["dur"] for e in own) <= profile.seconds * 1e6 + 1
    product = next(e for e in own if e["name"] == "matmul")
    assert product["args"]["flops"] == 20 * 2 * 256**3 and product["args"]["calls"] == 20
    assert product["args"]["line"].startswith("test_trace.py:")
    assert product["args"]["device"] == "cpu:0"
    speed = product["args"]["flops"] / product["dur"] / 1e3
    assert product["args"]["GFLOP/s"] == pytest.approx(speed, rel=0.01)
    flops = sum(e["args"].get("flops", 0) for e in own)
    assert flops == sum(row.flops for row in profile.rows)


def test_steps_are_inside_of_calls(trace):
    own = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    calls = [e for e in own if e["name"] == "call of lambda"]
    inside = [e for e in own if e["name"] == "matmul"]
    assert len(calls) == len(inside) == 3
    for step in inside:
        end = step["ts"] + step["dur"] - 1e-3
        assert any(c["ts"] <= step["ts"] and end <= c["ts"] + c["dur"] for c in calls)


def test_memory_is_a_counter(profile, trace):
    counts = [e["args"]["bytes"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counts == profile.memory.totals and max(counts) == profile.memory.peak > 0


def test_planted_errors_are_found(trace):
    def broken(change):
        copy = json.loads(json.dumps(trace))
        change([e for e in copy["traceEvents"] if e["ph"] == "X"])
        return problems(copy)

    assert broken(lambda own: own[0].pop("ts"))
    assert broken(lambda own: own[0].update(ph="Z"))
    assert broken(lambda own: own[0].update(dur=-1.0))

    def cut_through(own):
        """Let a call end in the middle of another one that is in it."""
        call = next(e for e in own if e["name"] == "call of lambda")
        inner = next(e for e in own if e["name"] == "matmul" and e["ts"] >= call["ts"])
        call["dur"] = inner["ts"] + inner["dur"] / 2 - call["ts"]

    assert broken(cut_through)


def test_a_file_is_written_whole_or_not_at_all(profile, tmp_path):
    with pytest.raises(FileFormatError):
        profile.save(tmp_path / "none" / "trace.json")
    path = tmp_path / "trace.json"
    path.write_text("before")
    profile.save(path)
    assert json.loads(path.read_text())["traceEvents"]
