"""Gradients that people complain about elsewhere: finite, and as derived by hand."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError
from eagerflow.op import ops
from tests.contract.cases import FLOAT64, dtypes_of, samples

INF = float("inf")


def masked_mean(x):
    mask = ef.tensor([1.0, 0.0, 1.0])
    return (ef.log(x) * mask).sum() / mask.sum()


def where_sum(condition, taken, other=0.0):
    return lambda x: ef.where(condition(x), taken(x), other).sum()


CASES = {
    # name: (function, x, gradient by hand)
    "where with sqrt": (where_sum(lambda x: x > 0, ef.sqrt), [0.0, 4.0], [0.0, 0.25]),
    "where with log": (where_sum(lambda x: x > 0, ef.log), [0.0, -1.0, 2.0], [0.0, 0.0, 0.5]),
    "where with division": (where_sum(lambda x: x != 0, lambda x: 1 / x), [0.0, 2.0], [0.0, -0.25]),
    "where with x / x": (where_sum(lambda x: x != 0, lambda x: x / x), [0.0, 2.0], [0.0, 0.0]),
    "where with overflowing exp": (where_sum(lambda x: x < 10, ef.exp), [1000.0, 0.0], [0.0, 1.0]),
    "where, two steps behind": (where_sum(lambda x: x > 0, lambda x: ef.sqrt(x * 2.0) * 3.0),
                                [0.0, 2.0], [0.0, 1.5]),
    "norm at zero": (ef.linalg.vector_norm, [0.0, 0.0], [0.0, 0.0]),
    "norm by hand at zero": (lambda x: ef.sqrt((x * x).sum()), [0.0, 0.0], [0.0, 0.0]),
    "clip inside and outside": (lambda x: ef.clip(x, -1.0, 1.0).sum(), [-2.0, 0.5, 3.0],
                                [0.0, 1.0, 0.0]),
    "log of clip": (lambda x: ef.log(ef.clip(x, 0.0, 1.0) + 1e-30).sum(), [-1.0, 0.5], [0.0, 2.0]),
    "masked mean": (masked_mean, [1.0, 0.0, 2.0], [0.5, 0.0, 0.25]),
    "max with ties": (lambda x: ef.max(x), [3.0, 1.0, 3.0], [0.5, 0.0, 0.5]),
    "min with ties": (lambda x: ef.min(x), [1.0, 1.0, 3.0], [0.5, 0.5, 0.0]),
    "maximum of equals": (lambda x: ef.maximum(x, 1.0).sum(), [1.0, 2.0], [0.5, 1.0]),
    "abs at zero": (lambda x: ef.abs(x).sum(), [0.0, -2.0], [0.0, -1.0]),
    "logsumexp of -inf": (ef.logsumexp, [-INF, 0.0], [0.0, 1.0]),
    "logsumexp of all -inf": (ef.logsumexp, [-INF, -INF], [0.0, 0.0]),
    "softmax of huge values": (lambda x: (ef.softmax(x) * ef.tensor([1.0, 0.0])).sum(),
                               [1e30, 1e30], [0.25, -0.25]),
    "log_softmax of huge values": (lambda x: ef.log_softmax(x)[0], [1e30, -1e30], [0.0, 0.0]),
    "std of a constant": (ef.std, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
    "power with zero base": (lambda x: (x**2.0).sum(), [0.0, 3.0], [0.0, 6.0]),
    "power 0 of zero": (lambda x: (x**0.0).sum(), [0.0, 3.0], [0.0, 0.0]),
    "exponent of zero base": (lambda x: (ef.tensor([0.0, 2.0]) ** x).sum(), [2.0, 1.0],
                              [0.0, 2 * np.log(2)]),
    "product with a zero": (ef.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    "product with two zeros": (ef.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    "sigmoid of huge values": (lambda x: ef.sigmoid(x).sum(), [-1000.0, 1000.0], [0.0, 0.0]),
    "softplus of huge values": (lambda x: ef.softplus(x).sum(), [-1000.0, 1000.0], [0.0, 1.0]),
    "log_sigmoid of huge values": (lambda x: ef.log_sigmoid(x).sum(), [-1000.0, 1000.0],
                                   [1.0, 0.0]),
    "relu at zero": (lambda x: ef.relu(x).sum(), [0.0, 1.0], [0.0, 1.0]),
    "log1p of tiny values": (lambda x: ef.log1p(x).sum(), [1e-20], [1.0]),
    "atan2 on an axis": (lambda x: ef.atan2(x, ef.tensor([1.0])).sum(), [0.0], [1.0]),
    "xlogy by where": (lambda p: ef.where(p > 0, p * ef.log(p), 0.0).sum(), [0.0, 1.0], [0.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_finite_and_right(name):
    function, x, expected = CASES[name]
    gradient = ef.grad(function)(ef.tensor(x, dtype="float64")).numpy()
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("where", "clip", "masked"))])
def test_gradient_is_right_under_vmap_and_twice(name):
    function, x, expected = CASES[name]
    rows = ef.tensor([x, x], dtype="float64")
    each = ef.vmap(ef.grad(function))(rows).numpy()
    np.testing.assert_allclose(each, [expected, expected], rtol=1e-12, atol=1e-300)
    derivative = ef.jacobian(ef.grad(function), unconnected="zero")  # some are linear
    second = derivative(ef.tensor(x, dtype="float64"))
    assert np.isfinite(second.numpy()).all()


def powers_of(x):
    return ef.power(x[0], x[1])


SECOND = {
    # name: (function, point, matrix of second derivatives by hand)
    "logaddexp of equals": (lambda x: ef.logaddexp(x[0], x[1]), [0.4, 0.4],
                            [[0.25, -0.25], [-0.25, 0.25]]),
    "logaddexp of equal infinities": (lambda x: ef.logaddexp(x[0], x[1]), [INF, INF],
                                      [[0.0, 0.0], [0.0, 0.0]]),
    "power with exponent 0": (powers_of, [2.0, 0.0], [[0.0, 0.5], [0.5, np.log(2) ** 2]]),
    "power with exponent 0 of zero": (powers_of, [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_where_a_rule_has_branches(name):
    function, x, expected = SECOND[name]
    found = ef.jacobian(ef.grad(function))(ef.tensor(x, dtype="float64")).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("x", [0.0, 1e-8, 0.0099, 0.0101])
@pytest.mark.parametrize(("name", "sign"), [("j1", -1), ("i1", 1)])
def test_third_derivatives_of_bessel_functions_next_to_0(name, sign, x):
    """Of the series x/2 + s x^3/16 + x^5/384 + s x^7/18432."""
    function = getattr(ef, name)
    for _ in range(3):
        function = ef.grad(function)
    wanted = sign * 3 / 8 + x**2 * 5 / 32 + sign * x**4 * 210 / 18432
    found = function(ef.tensor(x, dtype="float64")).tolist()
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0]
SMOOTH = [
    name
    for name, op in ops.items()
    if op.family == "elementwise" and op.differentiable and dtypes_of(op, (FLOAT64,))
]


REFUSING = {"betainc_slope", "gamma_sample_gradient", "hurwitz_zeta", "von_mises_sample_slope"}
"""Ops with arguments by which no derivative is written."""


@pytest.mark.parametrize("name", SMOOTH)
def test_both_modes_agree_at_singular_points(name):
    """For each argument alone, at all combinations of edges; decision 11 says why not in sums."""
    op, sample = ops[name], samples(ops[name], FLOAT64)[0]
    count = sum(getattr(x, "dtype", None) == FLOAT64 for x in sample.args)
    grid = np.stack(np.meshgrid(*[EDGES] * count, indexing="ij")).reshape(count, -1)
    rows = iter(grid)
    args = [
        next(rows) if getattr(x, "dtype", None) == FLOAT64 else np.resize(x, grid.shape[1])
        for x in sample.args
    ]
    for i, x in enumerate(args):
        if x.dtype != FLOAT64:
            continue

        def alone(x):
            return op.call(*args[:i], x, *args[i + 1 :], **sample.attributes)  # noqa: B023

        for weight in (1.0, 0.0, -2.0):
            y, pull = ef.vjp(alone, ef.tensor(x))
            try:
                (backward,) = pull(ef.full(y.shape, weight, dtype="float64"))
            except GradientError as error:  # by that argument there is none, and it says why
                assert name in REFUSING, error
                break
            forward = ef.jvp(alone, (ef.tensor(x),), (np.full(x.shape, weight),))[1]
            np.testing.assert_allclose(forward, backward, rtol=1e-12)


def test_infinities_of_both_signs_are_not_taken_for_0():
    x = ef.tensor(2.0)
    for f in (lambda x: ef.sqrt(x - x), lambda x: ef.sqrt(x - 2 * x + x)):
        assert np.isnan(float(ef.grad(f)(x)))
        assert float(ef.jvp(f, (x,), (ef.tensor(1.0),))[1]) == 0
    both = lambda x: ef.sqrt(x) - ef.sqrt(x)
    zero = ef.tensor(0.0)
    assert np.isnan(float(ef.grad(both)(zero)))
    assert np.isnan(float(ef.jvp(both, (zero,), (ef.tensor(1.0),))[1]))
