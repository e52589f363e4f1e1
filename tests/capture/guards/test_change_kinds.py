"""Every kind of change between two calls is noticed, refused, or told as not watched."""

import contextlib
import io
from collections import Counter

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture.guards import calls, recording
from eagerflow.errors import CaptureError, GradientError
from tests.capture.guards.changes import kinds


def outcome(f, *args):
    """A result as text, or the error."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            leaves = tree.flatten(f(*args))[0]
    except Exception as error:
        return error
    return [
        repr(np.asarray(x).tolist()) if isinstance(x, ef.Tensor | np.ndarray) else repr(x)
        for x in leaves
    ]


def alike(a, b):
    return type(a) is type(b) if isinstance(a, Exception) else str(a) == str(b)


def fate(name, row):
    """What became of a kind: right, refused, told, or what is wrong."""
    argument = name.startswith("argument")
    made, f, change = kinds.built(row, argument)
    step = ef.function(f, static=(0,))

    def call(g):
        return outcome(g, 2.5, *([made.A] if argument else []))

    before = call(f)
    first, second = call(step), call(step)
    shown = step.explain().partition("not watched: ")[2], step.ledger()
    try:
        change()
        found, wanted = call(step), call(f)
    finally:
        getattr(made, "undo", lambda: None)()
        kinds.forget()
    if any(isinstance(x, CaptureError) for x in (first, second, found)):
        return "refused"
    expected = row[3]
    if expected.startswith("told"):
        what = expected[5:]
        told = what in shown[0] and any(
            what in line and "not watched" in line for line in shown[1].splitlines()
        )
        return expected if told else f"not told: {what}"
    if not alike(first, before):
        return f"wrong at first: {first} in place of {before}"
    if alike(before, wanted):
        return "nothing changes"
    return "right" if alike(found, wanted) else f"stale: {found} in place of {wanted}"


def test_each_kind(capsys):
    fates = {name: fate(name, row) for name, row in kinds.ROWS.items()}
    wrong = {n: f for n, f in fates.items() if f not in kinds.ROWS[n][3].split(" or ")}
    counts = Counter(f.partition(" ")[0] for f in fates.values())
    with capsys.disabled():
        print(f"\n{len(fates)} kinds of changes: {dict(counts)}")
    assert wrong == {}
    assert len(fates) >= 700
    assert counts["right"] >= 600


@pytest.mark.soak
def test_containers_read_in_all_ways(capsys):
    fates = {name: fate(name, row) for name, row in kinds.products()}
    wrong = {n: f for n, f in fates.items() if f not in ("right", "refused", "nothing changes")}
    refused = [name for name, f in fates.items() if f == "refused"]
    with capsys.disabled():
        print(f"\n{len(fates)} readings of containers: {dict(Counter(fates.values()))}")
    assert wrong == {}
    assert Counter(fates.values())["right"] >= 1_000
    assert {name.partition(",")[0] for name in refused} == {"keys view", "masked array"}


# Models: their steps are captured by fit, evaluate and predict themselves -------------------------

STEPS = ("predict", "evaluate", "fit")
# Changes that leave a weight without use, which training may refuse, as it does op by op.
LEAVE_WEIGHTS = {"a kernel", "no bias", "a bias on the second", "call of the class", "a set"}
LEAVE_WEIGHTS |= {"call of one layer", "the class's call"}


def trained(model, step, x, y):
    """What a step of a model gives, and what the same gives op by op."""
    own = model(x, training=False)
    loss = float(model.compute_loss(y=ef.tensor(y), y_pred=own))
    if step == "predict":
        return model.predict(x), own.numpy()
    if step == "evaluate":
        return np.float64(np.ravel(model.evaluate(x, y, verbose=0))[0]), loss
    return model.fit(x, y, epochs=1, shuffle=False, verbose=0).history["loss"][0], loss


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_models(step):
    for name, (setup, change) in kinds.MODELS.items():
        row = setup, "0", change, ""
        made, _, change = kinds.built(row)
        before = [trained(made.m, step, made.X, made.Y)[0] for _ in range(2)][-1]
        change()
        try:
            found, wanted = trained(made.m, step, made.X, made.Y)
        except GradientError:
            assert name in LEAVE_WEIGHTS  # it was traced again
            continue
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6, err_msg=name)
        if step == "predict" and "loss" not in name and "compiled" not in name:
            assert not np.allclose(before, found), f"{name} changes nothing"


# The checks can fail ------------------------------------------------------------------------------


def verdicts(monkeypatch, where, name, value, group):
    monkeypatch.setattr(where, name, value)
    return {n: fate(n, row) for n, row in kinds.ROWS.items() if n.startswith(group)}


def test_planted_equality_is_found(monkeypatch):
    def equal(a, b):
        return type(a) is type(b) and bool(np.all(a == b))

    monkeypatch.setattr("eagerflow.capture.guards.ledger.same", equal)
    monkeypatch.setattr("eagerflow.capture.guards.snapshot.same", equal)
    fates = [fate(n, row) for n, row in kinds.ROWS.items() if n.startswith("equal")]
    assert sum(f.startswith("stale") for f in fates) > 20


def test_planted_trust_in_classes_is_found(monkeypatch):
    fates = verdicts(monkeypatch, recording, "is_user_class", lambda cls: False, "classes")
    assert sum(f.startswith("stale") for f in fates.values()) > 10


def test_planted_trust_in_c_code_is_found(monkeypatch):
    fates = verdicts(monkeypatch, calls, "what_it_reads", lambda f: "pure", "settings")
    assert sum(f.startswith(("stale", "not told")) for f in fates.values()) > 5
