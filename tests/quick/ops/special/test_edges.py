"""Special functions at 0, infinities, poles and outside of their domains, as SciPy has them."""

import itertools
import math

import numpy as np
import pytest
import scipy.special

import eagerflow as ef
from eagerflow.errors import DTypeError, GradientError

INF = math.inf
NUMBERS = [0.0, -0.0, 1e-20, 0.5, 1.0, 2.0, 20.0, 1e5, 1e300, INF, -INF, -1.0, -2.0, -0.5, math.nan]
ONE = "erfcinv erfcx exp1 expi gamma i0 i0e i1 i1e k0 k0e k1 k1e log_ndtr ndtr ndtri "
ONE += "y0 y1 j0 j1 entr"
TWO = "gammainc gammaincc rel_entr zeta"
# Where SciPy gives NaN for the limit, or loses what is small.
OWN = {
    ("j0", INF): 0.0, ("j0", -INF): 0.0, ("j1", INF): 0.0, ("j1", -INF): -0.0, ("i0", INF): INF,
    ("i0", -INF): INF, ("i1", INF): INF, ("i1", -INF): -INF, ("y0", INF): 0.0, ("y1", INF): 0.0,
    ("j0", 1e300): None, ("j1", 1e300): None, ("y0", 1e300): None, ("y1", 1e300): None,
}  # fmt: skip


def compare(name, columns):
    with np.errstate(all="ignore"):
        expected = getattr(scipy.special, name)(*columns)
    found = getattr(ef, name)(*map(ef.tensor, columns)).numpy()
    for y, wanted, *xs in zip(found, expected, *columns, strict=True):
        if name == "zeta" and not xs[0] < 1e300:
            continue  # SciPy has NaN for some limits, and infinity for NaN at a pole
        wanted = OWN.get((name, *xs), wanted)
        if wanted is not None:
            np.testing.assert_allclose(y, wanted, rtol=1e-10, err_msg=f"{name}{tuple(xs)}")


@pytest.mark.parametrize("name", ONE.split())
def test_one_argument(name):
    compare(name, [np.array(NUMBERS)])


@pytest.mark.parametrize("name", TWO.split())
def test_two_arguments(name):
    compare(name, np.array(list(itertools.product(NUMBERS, NUMBERS))).T)


def test_betainc():
    numbers = [0.0, 0.5, 1.0, 2.0, 1e-20, -1.0, math.nan]
    compare("betainc", np.array(list(itertools.product(numbers, numbers, numbers))).T)


def test_beta_at_its_poles():
    a, b = np.array([[0.0, 1.0], [-1.0, 2.5], [-0.5, 2.0], [math.nan, 1.0]]).T
    compare("beta", [a, b])
    compare("betaln", [a, b])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_small_floats_are_rounded_once(dtype):
    x = ef.tensor(np.linspace(0.1, 9, 500)).astype(dtype)
    for name in "gammainc gammaincc".split():
        wide = getattr(ef, name)(2.5, x.astype("float64")).astype(dtype)
        assert np.array_equal(getattr(ef, name)(2.5, x).numpy(), wide.numpy())
    for name in "gamma erfcx ndtr i0 i1e j0 j1 y0 y1 k0 exp1".split():
        wide = getattr(ef, name)(x.astype("float64")).astype(dtype)
        assert np.array_equal(getattr(ef, name)(x).numpy(), wide.numpy())


def test_many_elements_are_computed_as_few():
    x = np.random.default_rng(0).uniform(0.1, 40, (7, 11, 400))
    a = np.random.default_rng(1).uniform(0.1, 40, (11, 1))
    whole = ef.gammainc(ef.tensor(a), ef.tensor(x)).numpy()
    part = ef.gammainc(ef.tensor(a), ef.tensor(x[3, :, 100:103])).numpy()
    np.testing.assert_allclose(whole[3, :, 100:103], part, rtol=1e-15)
    assert whole.shape == x.shape


def test_missing_gradients_raise():
    x = ef.tensor(0.5)
    for call, words in (
        (ef.grad(lambda a: ef.betainc(a, 2.0, x)), "second derivatives by the parameters"),
        (ef.grad(lambda b: ef.betainc(2.0, b, x)), "second derivatives by the parameters"),
        (lambda a: ef.zeta(a, x), "no gradient by its exponent"),
        (ef.grad(lambda a: ef.gammainc(a, x)), "second derivatives by the shape"),
    ):
        with pytest.raises(GradientError, match=words):
            ef.grad(call)(ef.tensor(2.0))


def test_arguments_in_scipys_order_are_refused():
    with pytest.raises(DTypeError, match="n: a Tensor cannot be an attribute"):
        ef.eval_legendre(3, ef.tensor([0.5]))


def test_legendre_polynomials_are_orthogonal():
    nodes, weights = np.polynomial.legendre.leggauss(16)
    rows = [ef.eval_legendre(ef.tensor(nodes), n).numpy() for n in range(10)]
    inner = np.array([[np.sum(weights * a * b) for a in rows] for b in rows])
    np.testing.assert_allclose(inner, np.diag([2 / (2 * n + 1) for n in range(10)]), atol=1e-14)


def test_zeta_of_infinite_exponents_is_the_first_term():
    q = ef.tensor([0.5, 1.0, 2.0])
    assert ef.zeta(INF, q).tolist() == [INF, 1.0, 0.0]
    assert ef.zeta(1e300, q).tolist() == [INF, 1.0, 0.0]
