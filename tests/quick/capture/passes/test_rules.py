"""The rules of no-ops, algebra and layout: what each does, and what looks alike and stays."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.passes import ALL
from eagerflow.capture.passes.algebra import ALGEBRA
from tests.capture.passes.test_equality import check_passes, computed
from tests.capture.passes.test_passes import after, names, spec
from tests.contract.cases import check_same_bits

# No-ops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [
    lambda x: x.reshape((2, 3)),
    lambda x: x.reshape((-1, 3)),
    lambda x: ef.broadcast_to(x, (2, 3)),
    lambda x: x.T.T,
    lambda x: ef.permute_dims(x, (0, 1)),
    lambda x: ef.permute_dims(x, (-2, -1)),
    lambda x: x.astype("float32"),
    lambda x: ef.squeeze(ef.expand_dims(x, 1), 1),
    lambda x: x[:],
    lambda x: x[...],
    lambda x: x[:, :],
    lambda x: x[0:2, ..., 0:9],
    lambda x: ef.squeeze(x, ()),
])  # fmt: skip
def test_views_that_change_nothing(f):
    assert after("no_ops", f, spec(2, 3)) == []


@pytest.mark.parametrize("f", [
    lambda y: ef.negative(-y),
    lambda y: y * 1,
    lambda y: 1.0 * y,
    lambda y: y / 1,
    lambda y: y - 0,
    lambda y: y + -0.0,
    lambda y: +y,
    lambda y: ef.conj(y),
    lambda y: ef.maximum(y, y),
    lambda y: y * ef.ones((1, 1)),
    lambda y: y.astype("float64").astype("float32"),
    lambda y: ef.multiply_no_nan(y, ef.broadcast_to(ef.tensor(1.0), (2, 3))),
])  # fmt: skip
def test_arithmetic_that_changes_nothing(f):
    """It goes where the input lies as the copy would; an input from outside may lie anyhow."""
    assert after("no_ops", lambda x: f(ef.tanh(x)), spec(2, 3))[:2] in (["tanh"], ["ones", "tanh"])
    assert after("no_ops", f, spec(2, 3)) != []


@pytest.mark.parametrize("f", [
    lambda y: y + 0.0,
    lambda y: y - -0.0,
    lambda y: 0 - y,
    lambda y: y * -1,
    lambda y: y**1,
    lambda y: y.reshape((6,)).reshape((2, 3)),
    lambda y: y.T,
    lambda y: y[:, ::-1],
    lambda y: y[:1],
    lambda y: y * ef.ones((2, 3)),
    lambda y: y.astype("float16").astype("float32"),
    lambda y: y.astype("float64"),
    lambda y: 1 / y,
    lambda y: ef.stop_gradient(y),
    lambda y: ef.broadcast_to(y, (1, 2, 3)),
    lambda y: y.astype("int32").astype("float32"),
])  # fmt: skip
def test_ops_that_change_values_are_not_removed(f):
    graph = ef.capture.trace(lambda x: f(ef.tanh(x)), spec(2, 3))
    assert ALL["no_ops"](graph) is graph


def test_chains_of_views_become_one():
    f = lambda x: ef.permute_dims(ef.permute_dims(ef.tanh(x), (1, 2, 0)), (1, 2, 0))
    assert after("no_ops", f, spec(2, 3, 4)) == ["tanh", "permute_dims"]
    g = lambda x: ef.broadcast_to(ef.broadcast_to(x, (2, 3)), (4, 2, 3))
    assert after("no_ops", g, spec(3)) == ["broadcast_to"]
    h = lambda x: x.astype("int64").astype("int16")
    assert after("no_ops", h, spec(3, dtype="int8")) == ["astype"]


@pytest.mark.parametrize("value", [-0.0, 0.0, float("nan"), float("inf"), 1e-45, -1.5])
def test_exact_passes_keep_signs_and_nans(value):
    def f(x):
        y = ef.tanh(x) + x
        return [
            y + 0.0,
            y - 0.0,
            y + -0.0,
            y * 1.0,
            ef.negative(-y),
            y / 1,
            0.0 - y,
            y * -1.0,
            y * 0.0,
        ]

    x = ef.full((3, 2), value)
    check_passes(ef.capture.trace(f, x), [x], f"at {value}")


@pytest.mark.parametrize("order", ["C", "F"])
def test_how_values_lie_in_memory_is_kept(order):
    """Sums of strided, broadcast and transposed inputs add in the order that they did."""
    big = np.random.default_rng(5).standard_normal((64, 48)).astype("float32")

    def f(x):
        plain = [
            x * 1,
            ef.negative(-x),
            x.reshape((48, 64)).reshape((64, 48)),
            +x,
            x.astype("float32"),
        ]
        copies = [ef.tanh(x) * 1.0, ef.tanh(x.T).T * 1, x * ef.ones((64, 48)), ef.concat([x])]
        return [ef.sum(y, axis=axis) for y in (*plain, *copies) for axis in (None, 0, 1)] + [
            y @ y.T for y in plain
        ]

    for array in (np.asarray(big, order=order), big[::-1], np.broadcast_to(big[0], (64, 48))):
        x = ef.asarray(array)
        graph = ef.capture.trace(f, x)
        check_same_bits(computed(graph.optimized("exact"), [x]), computed(graph, [x]), order)


# Algebra -----------------------------------------------------------------------------------------


def pulled(x, *indices):
    """The gradient of parts of a value."""
    with ef.GradientTape() as tape:
        tape.watch(x)
        parts = [ef.square(x[index]) for index in indices]
    return tape.gradient(parts, x)


@pytest.mark.parametrize("f, wanted", [
    (lambda x: pulled(x, np.s_[:, :1], np.s_[:, 1:]),
     ["getitem"] * 2 + ["multiply"] * 2 + ["concat"]),
    (lambda x: x**2, ["square"]),
    (lambda x: x**2.0, ["square"]),
    (lambda x: x**3, ["square", "multiply"]),
    (lambda x: x**4, ["square", "square"]),
    (lambda x: x**1, []),
    (lambda x: x**-1, ["reciprocal"]),
    (lambda x: x**0, []),
    (lambda x: x**-2, ["reciprocal", "square"]),
    (lambda x: x**0.5, ["power"]),
    (lambda x: x / 2, ["multiply"]),
    (lambda x: x / -0.125, ["multiply"]),
    (lambda x: x / 3, ["divide"]),
    (lambda x: x / 1e-45, ["divide"]),
    (lambda x: x / 2.0**127, ["divide"]),
    (lambda x: x / ef.full((2, 3), 4.0), ["multiply"]),
    (lambda x: (x * 2) * 3, ["multiply"]),
    (lambda x: 0.5 * (x * 0.1), ["multiply"]),
    (lambda x: (x * 1e30) * 1e30, ["multiply", "multiply"]),
    (lambda x: (x + 1) + 2, ["add", "add"]),
    (lambda x: x + 0.0, []),
    (lambda x: ef.zeros_like(x) + x, []),
    (lambda x: 0 - x, ["negative"]),
    (lambda x: x * -1.0, ["negative"]),
    (lambda x: x + (-ef.tanh(x)), ["tanh", "subtract"]),
    (lambda x: x - (-ef.tanh(x)), ["tanh", "add"]),
    (lambda x: -(x - ef.tanh(x)), ["tanh", "subtract"]),
    (lambda x: (-x) * (-ef.tanh(x)), ["tanh", "multiply"]),
    (lambda x: x * ef.reciprocal(ef.exp(x)), ["exp", "divide"]),
    (lambda x: 1 / ef.sqrt(x), ["rsqrt"]),
    (lambda x: ef.reciprocal(ef.sqrt(x)), ["rsqrt"]),
    (lambda x: ef.where(x > 0, x, x), []),
    (lambda x: x.reshape((6,)).reshape((3, 2)), ["reshape"]),
    (lambda x: x.reshape((6,)).reshape((2, 3)), []),
    (lambda x: ef.concat([x]), []),
    (lambda x: ef.pad(x, ((0, 0), (0, 0))), []),
    (lambda x: x * ef.ones_like(x), []),
    (lambda x: ef.multiply_no_nan(x, 2.0), ["multiply"]),
    (lambda x: ef.multiply_no_nan(x, 0.0), ["multiply_no_nan"]),
    (lambda x: ef.broadcast_to(x[:1], (2, 3)) + ef.tanh(x), ["getitem", "tanh", "add"]),
    (lambda x: ef.sum(ef.broadcast_to(x, (4, 2, 3)), axis=0), ["reshape", "sum", "multiply"]),
    (lambda x: ef.mean(ef.broadcast_to(x, (4, 2, 3))), ["reshape", "mean"]),
    (lambda x: ef.sum(ef.broadcast_to(x[:1], (2, 3)), axis=1), ["getitem", "broadcast_to", "sum"]),
    (lambda x: ef.sum(ef.sum(x, axis=0), axis=0), ["sum"]),
    (lambda x: ef.mean(ef.mean(x, axis=1, keepdims=True), axis=0, keepdims=True), ["mean"]),
    (lambda x: ef.max(ef.max(x, axis=1), axis=0), ["max"]),
    (lambda x: ef.sum(ef.sum(x, axis=0), axis=0, keepdims=True), ["sum", "sum"]),
    (lambda x: x + ef.sum(ef.full((300, 400), 0.5)), ["add"]),
])  # fmt: skip
def test_algebra(f, wanted):
    """Each form becomes the one that is wanted, and its values are those from before."""
    x = ef.asarray(np.random.default_rng(3).uniform(0.5, 2, (2, 3)).astype("float32"))
    graph = ef.capture.trace(f, x)
    found = graph.optimized(only=["constants", "algebra", "dead_code"])
    found.check()
    assert names(found) == wanted
    with np.errstate(all="ignore"):  # some are infinite, before as after
        assert_close(computed(graph, [x])[0], computed(found, [x])[0])


def assert_close(before, after):
    """At most four units in the last place apart."""
    off = np.abs(after.astype("float64") - before)
    assert (np.equal(after, before) | (off <= 4 * np.spacing(np.abs(before)))).all(), f"{off} off"


def test_rules_of_algebra_are_all_tested():
    """No rule is there that no test above has seen at work."""
    seen = set()
    marks = [m for t in (test_algebra,) for m in t.pytestmark if m.name == "parametrize"]
    for f, _ in marks[0].args[1]:
        graph = ef.capture.trace(f, spec(2, 3)).optimized(only=["constants", "algebra"])
        rewrites = graph.rewrites or ()
        seen |= {r.words for r in rewrites if r.name == "algebra"}
    for f in (lambda x: ef.negative(-x), lambda x: x / 1, lambda x: x - 0, lambda x: x * 1):
        seen |= {r.words for r in ALL["algebra"](ef.capture.trace(f, spec(2))).rewrites}
    assert {words for found in ALGEBRA.values() for words, _ in found} == seen


@pytest.mark.parametrize("indices, joined", [
    (np.s_[0, 1], True), (np.s_[1, -2], True), (np.s_[:1, 1:], True), (np.s_[0, 1:2], True),
    ([np.s_[..., 0], np.s_[..., 1:]], True), ([np.s_[:, 2], np.s_[:, :2]], True),
    ([np.s_[:, 0:2], np.s_[:, 2:3]], True), ([np.s_[:, 0:2], np.s_[:, 1:3]], False),
    ([np.s_[:, 0:1], np.s_[:, 2:3]], False), ([np.s_[:, ::2], np.s_[:, 1:2]], False),
    ([np.s_[0], np.s_[1, :]], True), ([np.s_[0, :2], np.s_[1, 2:]], False),
    ([np.s_[0], np.s_[:, 1]], False), ([np.s_[[0]], np.s_[[1]]], False),
])  # fmt: skip
def test_parts_that_come_together(indices, joined):
    x = ef.asarray(np.random.default_rng(3).uniform(0.5, 2, (2, 3)).astype("float32"))
    graph = ef.capture.trace(lambda x: pulled(x, *indices), x)
    found = graph.optimized(only=["constants", "algebra", "dead_code"])
    assert ("concat" in names(found)) == joined
    assert ("index_scatter" in names(found)) != joined
    np.testing.assert_array_equal(computed(found, [x])[0], computed(graph, [x])[0])


@pytest.mark.parametrize(
    "x", [[np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-20, 3e38, 2e19], [5e-20, 1e-45, -1e38, 7.0]]
)
def test_powers_of_hard_numbers(x):
    """Products for powers overflow and underflow where the powers do."""
    x = ef.tensor(x)
    for n in (-2, -1, 0, 1, 2, 3, 4):
        graph = ef.capture.trace(lambda x, n=n: x ** float(n), x)
        a, b = (computed(g, [x])[0] for g in (graph, ALL["algebra"](graph)))
        assert np.allclose(a, b, rtol=1e-6, atol=3e-45, equal_nan=True), n


def test_integers_keep_their_ways():
    x = ef.tensor([3, -4, 127], dtype="int8")
    f = lambda x: [x**2, x**3, x + 0, x * 1, x - 0, x * -1, ef.negative(-x), x | x]
    graph = ef.capture.trace(f, x)
    found = graph.optimized()
    check_same_bits(computed(found, [x]), computed(graph, [x]), "int8")
    assert len(found.nodes) < len(graph.nodes)
