"""Calls with attributes that a tape sees again: recorded on a short way, as on the long one."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import dispatch
from tests.internals import recorded_in

CALLS = {
    "sum": lambda x: x.sum(axis=1),
    "sum, kept": lambda x: ef.sum(x, axis=(0, 1), keepdims=True),
    "mean": lambda x: x.mean(),
    "max": lambda x: ef.max(x, axis=-1),
    "reshape": lambda x: x.reshape((4, 3)),
    "turned": lambda x: x.T,
    "softmax": lambda x: ef.softmax(x, axis=0),
    "gelu": lambda x: ef.gelu(x, approximate=False),
    "leaky_relu": lambda x: ef.leaky_relu(x, 0.3),
    "expand_dims": lambda x: ef.expand_dims(x, 1),
    "broadcast_to": lambda x: ef.broadcast_to(x, (2, 3, 4)),
    "argmax": lambda x: ef.argmax(x, axis=1),
    "var": lambda x: ef.var(x, axis=1, correction=1.0),
}
VALUES = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def entries(f, times):
    """What a tape holds of the last of some calls, without keys, and the result."""
    x = ef.tensor(VALUES)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        for _ in range(times):
            y = f(x)
    op, attributes, code, instruction, _, kept, _, value = recorded_in(tape)[-1]
    shape = value if isinstance(value, tuple) else value.shape
    return [op, attributes, code, instruction, kept is None, shape], y, tape, x


@pytest.mark.parametrize("name", CALLS)
def test_entries_are_those_of_the_long_way(name, monkeypatch):
    f = CALLS[name]
    short, y, tape, x = entries(f, 3)
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "remember", lambda *given: None)
        patch.setattr(dispatch, "form", lambda *given: [])
        long, z, other, own = entries(f, 1)
    assert short == long
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    if name != "argmax":
        g, wanted = (t.gradient(v, s).numpy() for t, v, s in ((tape, y, x), (other, z, own)))
        np.testing.assert_array_equal(g, wanted)


def test_the_short_way_is_taken(monkeypatch):
    entries(CALLS["sum"], 1)
    monkeypatch.setattr(dispatch, "canonical", None)  # which the long way calls
    entries(CALLS["sum"], 1)
    with pytest.raises(TypeError):
        entries(lambda x: x.sum(axis=[1]), 1)


def test_equal_attributes_of_different_types_are_distinguished():
    for axis, kept in ((1, 1), (1, True), (0, 0), (0, False)):
        found, *_ = entries(lambda x, a=axis, k=kept: ef.max(x, axis=a, keepdims=k), 2)
        assert found[1]["keepdims"] is bool(kept) and type(found[1]["axis"]) is type(axis)
    for slope in (0.0, -0.0, 0, 1, 1.0):
        found, *_ = entries(lambda x, s=slope: ef.leaky_relu(x, s), 2)
        own = found[1]["negative_slope"]
        assert repr(own) == repr(slope)


def test_calls_that_fail_explain_and_are_not_kept():
    x = ef.tensor(VALUES)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        x.reshape((4, 3))
        with pytest.raises(ef.errors.ShapeError, match="12 elements do not fit"):
            x.reshape((5, 3))
        with pytest.raises(ef.errors.ShapeError):
            ef.tensor([1.0, 2.0]).reshape((4, 3))
        assert len(recorded_in(tape)) == 1


def test_unwatched_values_are_not_recorded():
    with ef.GradientTape() as tape:
        for _ in range(3):
            assert ef.tensor(VALUES).sum(axis=1).shape == (3,)
        assert recorded_in(tape) == []


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64"])
def test_other_dtypes(dtype):
    for _ in range(3):
        x = ef.tensor(VALUES, dtype)
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = x.sum(axis=0).reshape((2, 2))
        assert y.dtype == x.dtype
        assert tape.gradient(y, x).tolist() == np.ones((3, 4)).tolist()


def test_few_forms_are_kept(monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_PASSED", 4)
    ef.broadcast_to.op.bound.clear()  # of what other tests have left
    for n in range(1, 10):
        entries(lambda x, n=n: ef.broadcast_to(x, (n, 3, 4)), 1)
        assert len(ef.broadcast_to.op.bound) <= 4
