"""Stability rewrites: closer to the truth where the form as written fails, as good elsewhere."""

import math
from typing import NamedTuple

import mpmath
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.passes import ALL
from eagerflow.capture.passes.stability import STABILITY
from tests.capture.passes.test_equality import computed

mpmath.mp.dps = 60


class Form(NamedTuple):
    """A form as users write it, the truth of one element, hard inputs, and usual ones."""

    words: str  # of the rule
    f: object
    truth: object
    hard: tuple
    usual: tuple = (-3.0, 3.0)
    ulp: float = 24.0  # at usual inputs, where the form as written is as accurate as it gets


def scalar(f):
    """A truth for each element on its own."""
    return lambda row: [f(mpmath.mpf(v)) for v in row]


def log_softmax(row):
    total = mpmath.log(sum(mpmath.exp(v) for v in row))
    return [v - total for v in row]


def softmax(row):
    total = sum(mpmath.exp(v) for v in row)
    return [mpmath.exp(v) / total for v in row]


def logsumexp(row):
    return [mpmath.log(sum(mpmath.exp(v) for v in row))]


def variance(row):
    mean = sum(row) / len(row)
    return [sum((v - mean) ** 2 for v in row) / len(row)]


def sigmoid(v):
    return 1 / (1 + mpmath.exp(-v))


TINY = (1e-6, -1e-7, 3e-9)
FORMS = [
    Form("log(1 + x) -> log1p(x)", lambda x: ef.log(1 + x), scalar(lambda v: mpmath.log(1 + v)),
         TINY, (-0.5, 3)),
    Form("log(1 - x) -> log1p(-x)", lambda x: ef.log(1.0 - x), scalar(lambda v: mpmath.log(1 - v)),
         TINY, (-3, 0.5)),
    Form("log(1 + exp(x)) -> softplus(x)", lambda x: ef.log(ef.exp(x) + 1),
         scalar(lambda v: mpmath.log(1 + mpmath.exp(v))), (100.0, -40.0, 1000.0)),
    Form("log1p(exp(x)) -> softplus(x)", lambda x: ef.log1p(ef.exp(x)),
         scalar(lambda v: mpmath.log(1 + mpmath.exp(v))), (100.0, 1000.0)),
    Form("log(1 - exp(x)) -> log(expm1(-x)) + x or log1p(-exp(x)), by size",
         lambda x: ef.log(1 - ef.exp(x)), scalar(lambda v: mpmath.log(1 - mpmath.exp(v))),
         (-1e-9, -1e-4, -30.0), (-5, -0.7)),
    Form("exp(x) - 1 -> expm1(x)", lambda x: ef.exp(x) - 1.0, scalar(mpmath.expm1), TINY, (0.5, 3)),
    Form("1 - exp(x) -> -expm1(x)", lambda x: 1 - ef.exp(x), scalar(lambda v: -mpmath.expm1(v)),
         TINY, (0.5, 3)),
    Form("1 - sigmoid(x) -> sigmoid(-x)", lambda x: 1 - ef.sigmoid(x),
         scalar(lambda v: sigmoid(-v)), (20.0, 50.0), (-3, 1)),
    Form("1 - erf(x) -> erfc(x)", lambda x: 1 - ef.erf(x), scalar(mpmath.erfc), (5.0, 8.0),
         (-2, 1)),
    Form("1 - tanh(x)² -> (1 / cosh(x))²", lambda x: 1 - ef.tanh(x) ** 2,
         scalar(lambda v: mpmath.sech(v) ** 2), (8.0, -20.0, 40.0), (-1, 1)),
    Form("1 - cos(x) -> 2 sin(x / 2)²", lambda x: 1 - ef.cos(x),
         scalar(lambda v: 2 * mpmath.sin(v / 2) ** 2), (1e-3, 1e-6), (1, 2)),
    Form("log(softmax(x)) -> log_softmax(x)", lambda x: ef.log(ef.softmax(x)), log_softmax,
         (0.0, 200.0, -300.0)),
    Form("log(softmax(x)[i]) -> log_softmax(x)[i], and of sigmoid",
         lambda x: ef.log(ef.softmax(x)[1:]), lambda row: log_softmax(row)[1:],
         (0.0, 200.0, -300.0)),
    Form("log(sigmoid(x)) -> log_sigmoid(x)", lambda x: ef.log(ef.sigmoid(x)),
         scalar(lambda v: mpmath.log(sigmoid(v))), (-200.0, 30.0), (-3, 1)),
    Form("1 - sigmoid(x) -> sigmoid(-x)", lambda x: ef.log(1 - ef.sigmoid(x)),
         scalar(lambda v: mpmath.log(sigmoid(-v))), (200.0, 17.0), (-1, 3)),
    Form("log(sum(exp(x))) -> logsumexp(x)", lambda x: ef.log(ef.sum(ef.exp(x), keepdims=True)),
         logsumexp, (500.0, 499.0, -10.0)),
    Form("log(mean(exp(x))) -> logsumexp(x) - log(count)",
         lambda x: ef.log(ef.mean(ef.exp(x), axis=0, keepdims=True)),
         lambda row: [logsumexp(row)[0] - mpmath.log(len(row))], (-500.0, -499.0, -600.0), (1, 3)),
    Form("log(exp(a) + exp(b)) -> logaddexp(a, b)", lambda x: ef.log(ef.exp(x) + ef.exp(x * 0.5)),
        scalar(lambda v: mpmath.log(mpmath.exp(v) + mpmath.exp(v / 2))), (300.0, -400.0), (0.5, 3)),
    Form("log(exp(x)) -> x", lambda x: ef.log(ef.exp(x)), scalar(lambda v: v), (300.0, -400.0)),
    Form("exp(x) / sum(exp(x)) -> softmax(x)",
         lambda x: ef.exp(x) / ef.sum(ef.exp(x), axis=0, keepdims=True), softmax,
         (500.0, 499.0, 450.0)),
    Form("1 / (1 + exp(-x)) -> sigmoid(x)", lambda x: 1 / (1 + ef.exp(-x)), scalar(sigmoid), (),
         (-3, 3)),
    Form("exp(x) / (1 + exp(x)) -> sigmoid(x)", lambda x: ef.exp(x) / (1 + ef.exp(x)),
         scalar(sigmoid), (100.0, 300.0)),
    Form("(exp(x) - exp(-x)) / (exp(x) + exp(-x)) -> tanh(x)",
         lambda x: (ef.exp(x) - ef.exp(-x)) / (ef.exp(x) + ef.exp(-x)), scalar(mpmath.tanh),
         (1e-6, 1e-3, 100.0), (0.7, 3)),
    Form("sqrt(x²) -> abs(x)", lambda x: ef.sqrt(x * x), scalar(mpmath.fabs), (1e30, 1e-30)),
    Form("sqrt(a² + b²) -> hypot(a, b)", lambda x: ef.sqrt(x**2 + ef.square(x * 0.5)),
         scalar(lambda v: mpmath.sqrt(v * v * 1.25)), (1e30, 1e-30)),
    Form("mean(x²) - mean(x)² -> var(x)",
         lambda x: ef.mean(x * x, axis=0, keepdims=True) - ef.mean(x, axis=0, keepdims=True) ** 2,
         variance, (10000.0, 10000.5, 10001.0), (-3, 3), 60.0),
]  # fmt: skip


def errors(actual, truth):
    """Each element's distance from the truth in units in the last place; inf where not finite."""
    found = []
    for y, t in zip(np.ravel(actual).tolist(), truth, strict=True):
        unit = float(np.spacing(np.float32(abs(float(t)))))
        found.append(abs(mpmath.mpf(y) - t) / unit if math.isfinite(y) else mpmath.inf)
    return found


def both(f, values):
    """What a form gives in float32 as written and rewritten, and what was rewritten."""
    x = ef.tensor(np.asarray(values, np.float32))
    graph = ef.capture.trace(f, x)
    found = graph.optimized(only=["subexpressions", "stability", "dead_code"])
    found.check()
    report = found.rewrites
    return computed(graph, [x])[0], computed(found, [x])[0], report, x.numpy().tolist()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.words)
def test_closer_to_the_truth(form):
    """At hard inputs the rewritten form is nearly right, and the one as written is not."""
    written, better, report, values = both(form.f, form.hard or (0.25,))
    assert form.words in {r.words for r in report}
    truth = form.truth([mpmath.mpf(v) for v in values])
    before, after = errors(written, truth), errors(better, truth)
    assert max(after) <= form.ulp, f"{better} instead of {truth}"
    if form.hard:
        assert max(before) > 4 * form.ulp, "as written it is as good: the case is not hard"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.words)
def test_as_good_elsewhere(form):
    """At usual inputs both forms are within a few units in the last place of the truth."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        written, better, _, values = both(form.f, rng.uniform(*form.usual, 4))
        truth = form.truth([mpmath.mpf(v) for v in values])
        own, before = max(errors(better, truth)), max(errors(written, truth))
        assert own <= max(form.ulp, 2 * before), f"{own} units off, {before} as written"


GRADIENTS = {
    "the gradient of log(softmax(x)) -> that of log_softmax(x)": (
        lambda x: ef.sum(ef.log(ef.softmax(x)) * ef.tensor([1.0, 2.0, 3.0])),
        (0.0, 200.0, -300.0),
        lambda v: [w - 6 * p for w, p in zip((1, 2, 3), softmax(v), strict=True)],
    ),
    "the gradient of log(sigmoid(x)) -> that of log_sigmoid(x)": (
        lambda x: ef.sum(ef.log(ef.sigmoid(x)) * 2.0),
        (-200.0, -120.0, 1.0),
        lambda v: [2 * sigmoid(-x) for x in v],
    ),
    "the gradient of log(1 - sigmoid(x)) -> that of log_sigmoid(-x)": (
        lambda x: ef.sum(ef.log(1.0 - ef.sigmoid(x)) * 2.0),
        (200.0, 120.0, 1.0),
        lambda v: [-2 * sigmoid(x) for x in v],
    ),
    "the gradient of log(1 + exp(x)) -> that of softplus(x)": (
        lambda x: ef.sum(ef.log(1.0 + ef.exp(x)) * 3.0),
        (200.0, 120.0, 1.0),
        lambda v: [3 * sigmoid(x) for x in v],
    ),
    "the gradient of log(sum(exp(x))) -> that of logsumexp(x)": (
        lambda x: ef.sum(ef.log(ef.sum(ef.exp(x), axis=0))) * 3.0,
        (500.0, 499.0, -10.0),
        lambda v: [3 * p for p in softmax(v)],
    ),
}


def gradient_of(f):
    def g(x):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return g


@pytest.mark.parametrize("words", GRADIENTS)
def test_gradients(words):
    """Gradients that a tape has recorded are finite and right where as written they are not."""
    f, hard, truth = GRADIENTS[words]
    x = ef.tensor(np.asarray(hard, np.float32))
    graph = ef.capture.trace(gradient_of(f), x)
    found = graph.optimized()
    found.check()
    assert words in {r.words for r in found.rewrites}
    wanted = truth([mpmath.mpf(v) for v in x.numpy().tolist()])
    before, after = (errors(computed(g, [x])[0], wanted) for g in (graph, found))
    assert max(after) <= 16, f"{computed(found, [x])[0]} instead of {wanted}"
    assert max(before) > 1e6, "as written it is as good: the case is not hard"
    usual = ef.tensor(np.asarray([0.3, -0.7, 0.1], np.float32))
    a, b = computed(graph, [usual])[0], computed(found, [usual])[0]
    assert np.abs(a - b).max() < 1e-6


SCALED = {
    "softmax": lambda x: ef.log(ef.softmax(x)),
    "sigmoid": lambda x: ef.log(ef.sigmoid(x)),
    "complement": lambda x: ef.log(1.0 - ef.sigmoid(x)),
    "softplus": lambda x: ef.log(1.0 + ef.exp(x)),
}


@pytest.mark.parametrize("scale", [None, 1.0, 2.0, -0.5, "rows", "all"], ids=str)
@pytest.mark.parametrize("name", SCALED)
def test_gradients_of_scaled_results(name, scale):
    """The quotient that is replaced may divide any number, a row of them or the number one."""
    x = ef.tensor(np.random.default_rng(0).standard_normal((3, 4)))
    drawn = {"rows": x.numpy()[0], "all": x.numpy()[::-1].copy()}

    def pulled(x):
        y, pull = ef.vjp(SCALED[name], x)
        g = drawn.get(scale, 1.0 if scale is None else scale)
        return pull(ef.broadcast_to(ef.tensor(g, dtype="float64"), y.shape))[0]

    graph = ef.capture.trace(pulled, x)
    found = graph.optimized()
    assert any("the gradient of" in r.words for r in found.rewrites)
    np.testing.assert_allclose(computed(found, [x])[0], computed(graph, [x])[0], 1e-9, 1e-12)


@pytest.mark.parametrize("number", [1.0, 2.0, -1.0])
@pytest.mark.parametrize("f", [ef.sigmoid, ef.softmax], ids=["sigmoid", "softmax"])
def test_gradients_of_numbers_over_a_result(f, number):
    x = ef.tensor(np.random.default_rng(0).standard_normal((3, 4)))

    def pulled(x):
        y, pull = ef.vjp(f, x)
        return pull(number / y)[0]

    graph = ef.capture.trace(pulled, x)
    found = computed(graph.optimized(), [x])[0]
    np.testing.assert_allclose(found, computed(graph, [x])[0], 1e-9, 1e-12)


@pytest.mark.parametrize("shape, axis, keepdims", [
    ((3, 4), 0, False), ((3, 4), 1, False), ((3, 4), (0, 1), False), ((3, 4), 1, True),
    ((2, 3, 4), (0, 2), False), ((3, 3), 0, False), ((3, 3), 1, False), ((4,), None, False),
    ((1, 3), 1, False), ((3, 1), 1, False),
])  # fmt: skip
def test_gradients_of_logsumexp_over_any_axes(shape, axis, keepdims):
    """Sums over each axis line up with what they are sums of; other sizes would hide mistakes."""
    f = lambda x: ef.sum(ef.square(ef.log(ef.sum(ef.exp(x), axis=axis, keepdims=keepdims))))
    x = ef.asarray(np.random.default_rng(1).uniform(-1, 1, shape).astype("float32"))
    graph = ef.capture.trace(gradient_of(f), x)
    found = graph.optimized()
    assert "exp" not in [n.op.name for n in found.nodes if n.inputs[0] is found.inputs[0]]
    assert np.allclose(computed(graph, [x])[0], computed(found, [x])[0], rtol=1e-5, atol=1e-6)
    far = ef.asarray((x.numpy() + 300).astype("float32"))
    assert np.isfinite(computed(found, [far])[0]).all()


def test_every_rule_is_tested():
    known = {form.words for form in FORMS} | set(GRADIENTS)
    assert {words for found in STABILITY.values() for words, _ in found} == known


def test_sums_that_do_not_line_up_are_left_alone():
    """A square of exponentials over its sums by row, as a row, is no softmax."""
    x = ef.asarray(np.random.default_rng(2).uniform(-1, 1, (3, 3)).astype("float32"))
    for f in (
        lambda x: ef.exp(x) / ef.sum(ef.exp(x), axis=1),
        lambda x: ef.exp(x) / ef.sum(ef.exp(x)),
        lambda x: ef.exp(x) / ef.reshape(ef.sum(ef.exp(x), axis=0), (3, 1)),
    ):
        graph = ef.capture.trace(f, x)
        found = graph.optimized()
        assert "softmax" not in [n.op.name for n in found.nodes]
        assert np.allclose(computed(graph, [x])[0], computed(found, [x])[0], rtol=1e-6)


@pytest.mark.parametrize(
    "shape",
    [
        lambda s: ef.expand_dims(s, 1),
        lambda s: s.reshape((3, 1)),
        lambda s: ef.broadcast_to(s.reshape((3, 1)), (3, 4)),
    ],
)
def test_softmax_over_sums_that_were_brought_into_line(shape):
    x = ef.asarray(np.random.default_rng(3).uniform(400, 500, (3, 4)).astype("float32"))
    graph = ef.capture.trace(lambda x: ef.exp(x) / shape(ef.sum(ef.exp(x), axis=1)), x)
    found = graph.optimized()
    assert [n.op.name for n in found.nodes] == ["softmax"]
    assert np.array_equal(computed(found, [x])[0], ef.softmax(x, axis=1).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(dtype):
    """The forms keep their dtype; where numbers would change it they are left alone."""
    x = ef.tensor([0.25, 0.5, 1.5], dtype=dtype)
    for form in FORMS:
        graph = ef.capture.trace(lambda x, form=form: form.f(-x), x)
        found = graph.optimized()
        found.check()
        a, b = (np.asarray(computed(g, [x])[0], np.float64) for g in (graph, found))
        assert np.allclose(a, b, rtol=0.1, atol=0.05, equal_nan=True), form.words


def test_complex_numbers_and_epsilons_are_left_alone():
    """Not every form that looks alike means the same."""
    x = ef.TensorSpec((3,), "float32")
    z = ef.TensorSpec((3,), "complex64")
    for f, spec in (
        (lambda z: ef.log(1 + z), z),
        (lambda z: ef.log(ef.exp(z)), z),
        (lambda z: ef.sqrt(z * z), z),
        (lambda x: ef.log(ef.softmax(x) + 1e-7), x),
        (lambda x: ef.log(ef.clip(ef.sigmoid(x), 1e-6, 1.0)), x),
        (lambda x: ef.log(2.0 + x), x),
        (lambda x: ef.exp(x) - 2.0, x),
    ):
        graph = ef.capture.trace(f, spec)
        assert ALL["stability"](graph) is graph


def test_the_report_names_the_line():
    x = ef.TensorSpec((3,), "float32")
    graph = ef.capture.trace(lambda x: ef.log(ef.softmax(x)), x)
    line = graph.nodes[1].source[1]
    report = graph.optimized().rewrites
    words = f"stability: log(softmax(x)) -> log_softmax(x), test_stability.py:{line}"
    assert report.of("stability") == [words]
    assert words in str(report)
    assert graph.optimized("exact") is graph
    assert graph.optimized(without=["stability"]) is graph
