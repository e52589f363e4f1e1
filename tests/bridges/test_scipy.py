"""SciPy's solvers with functions that return tensors: the results of the same NumPy functions."""

import warnings

import numpy as np
import pytest

import eagerflow as ef

optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")
integrate = pytest.importorskip("scipy.integrate", reason="SciPy is not installed")

WAYS = {"eager": lambda f: f, "captured": ef.function}


def rosenbrock(x):
    x = ef.asarray(x)
    return ef.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def in_numpy(f, jac):
    """The same numbers as NumPy's: scalars, arrays, or a pair of both."""
    if jac is True:
        return lambda x: tuple(np.array(part) for part in f(x))
    return lambda x, *rest: np.array(f(x, *rest))


def outcome(call):
    """The result of a solver and its counts, or the class of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except Exception as error:
            return type(error), str(error)
    assert isinstance(found.x, np.ndarray)
    return found.x.dtype, found.x.tolist(), float(found.fun), found.nfev, found.success


FREE = ("Nelder-Mead", "Powell", "COBYLA", "COBYQA")  # without derivatives
SECOND = ("Newton-CG", "trust-constr", "dogleg", "trust-ncg", "trust-krylov", "trust-exact")
FIRST = ("CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", *SECOND)
ONLY_SECOND = SECOND[2:]
CASES = [
    *((m, "none") for m in (*FREE, *FIRST) if m not in ("Newton-CG", *ONLY_SECOND)),
    *((m, kind) for m in FIRST if m not in ONLY_SECOND for kind in ("jac", "jac=True")),
    *((m, kind) for m in SECOND for kind in ("hess", "jac=True, hess")),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method, derivatives", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minimize(method, derivatives, dtype, way):
    start = np.array([0.8, 0.9], dtype)
    made = WAYS[way]
    both = "jac=True" in derivatives
    f = made(ef.value_and_grad(rosenbrock) if both else rosenbrock)
    options = {"maxiter": 40}
    ours = {"method": method, "options": options}
    theirs = dict(ours)
    if derivatives != "none":
        gradient = made(ef.grad(rosenbrock))
        ours["jac"], theirs["jac"] = (True, True) if both else (gradient, in_numpy(gradient, None))
    if "hess" in derivatives:
        ours["hess"] = made(ef.hessian(rosenbrock))
        theirs["hess"] = in_numpy(ours["hess"], None)
    found = outcome(lambda: optimize.minimize(f, start, **ours))
    assert found == outcome(lambda: optimize.minimize(in_numpy(f, both), start, **theirs))
    if dtype == "float64" and (derivatives != "none" or method == "BFGS") and method != "dogleg":
        np.testing.assert_allclose(found[1], [1.0, 1.0], atol=1e-2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr", "COBYLA", "COBYQA"])
def test_constraints(method, way):
    made = WAYS[way]
    derivatives = method in ("SLSQP", "trust-constr")

    def square(x):
        return ef.sum(ef.asarray(x) ** 2)

    def above(x):
        return ef.asarray(x)[0] ** 2 - 1.0

    bound = {"type": "ineq", "fun": made(above)}
    if derivatives:
        bound["jac"] = made(ef.grad(above))
    found = optimize.minimize(
        made(square),
        [2.0, 0.5],
        jac=made(ef.grad(square)) if derivatives else None,
        method=method,
        constraints=[bound],
    )
    np.testing.assert_allclose(found.x, [1.0, 0.0], atol=1e-2)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-ncg", "trust-krylov", "trust-constr"])
def test_products_with_the_hessian(method):
    gradient = ef.grad(rosenbrock)

    def product(x, p):
        return ef.jvp(gradient, (ef.asarray(x),), (ef.asarray(p),))[1]

    found = optimize.minimize(
        rosenbrock, [0.8, 0.9], jac=gradient, hessp=ef.function(product), method=method
    )
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-3)


A = np.array([[3.0, 1.0], [1.0, 2.0]])


def residuals(x):
    x = ef.asarray(x)
    return x @ A + x**3 - 1.0


ROOT = [0.20668942, 0.37110185]


@pytest.mark.parametrize("way", WAYS)
def test_systems_of_equations(way):
    f, jac = WAYS[way](residuals), WAYS[way](ef.jacobian(residuals))
    for method in ("hybr", "lm", "broyden1", "broyden2", "anderson", "krylov", "df-sane"):
        np.testing.assert_allclose(optimize.root(f, [0.5, 0.5], method=method).x, ROOT, atol=1e-4)
    for method in ("hybr", "lm"):
        found = optimize.root(f, [0.5, 0.5], method=method, jac=jac)
        np.testing.assert_allclose(found.x, ROOT, atol=1e-6)
    for method in ("trf", "dogbox", "lm"):
        for given in ({}, {"jac": jac}, {"jac": jac, "loss": "soft_l1"}):
            if method == "lm" and "loss" in given:
                continue  # SciPy's has no other loss
            found = optimize.least_squares(f, [0.5, 0.5], method=method, **given)
            np.testing.assert_allclose(found.x, ROOT, atol=1e-6)
    np.testing.assert_allclose(optimize.fsolve(f, [0.5, 0.5], fprime=jac), ROOT, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_roots_of_numbers(way):
    def cubic(x):
        return ef.asarray(x, "float64") ** 3 - 2.0

    f, slope = WAYS[way](cubic), WAYS[way](ef.grad(cubic))
    curve = WAYS[way](ef.grad(ef.grad(cubic)))
    cases = [
        {"bracket": [0, 2], "method": m} for m in "brentq brenth bisect ridder toms748".split()
    ]
    cases += [
        {"x0": 1.0, "x1": 1.5, "method": "secant"},
        {"x0": 1.0, "fprime": slope, "method": "newton"},
        {"x0": 1.0, "fprime": slope, "fprime2": curve, "method": "halley"},
    ]
    for given in cases:
        assert float(optimize.root_scalar(f, **given).root) == pytest.approx(2 ** (1 / 3))
    assert optimize.brentq(f, 0, 2) == pytest.approx(2 ** (1 / 3))
    for method in ("brent", "golden", "bounded"):
        bounds = {"bounds": (0, 3)} if method == "bounded" else {}
        found = optimize.minimize_scalar(lambda x: (f(x) - 1.0) ** 2, method=method, **bounds)
        assert float(found.x) == pytest.approx(3 ** (1 / 3), abs=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_integrals_and_differential_equations(way):
    made = WAYS[way]
    sine = made(lambda x: ef.sin(ef.asarray(x, "float64")))
    assert integrate.quad(sine, 0, 1)[0] == pytest.approx(1 - np.cos(1))

    def decay(t, y):
        return -t * ef.asarray(y)

    expected = np.exp(-0.5) * np.array([1.0, 2.0])
    for method in ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"):
        found = integrate.solve_ivp(made(decay), (0, 1), [1.0, 2.0], method=method, rtol=1e-6)
        np.testing.assert_allclose(found.y[:, -1], expected, rtol=1e-4)
    jac = made(lambda t, y: -t * ef.eye(2, dtype="float64"))
    for method in ("Radau", "BDF", "LSODA"):
        found = integrate.solve_ivp(made(decay), (0, 1), [1.0, 2.0], method=method, jac=jac)
        np.testing.assert_allclose(found.y[:, -1], expected, rtol=1e-2)


def test_fitted_curves():
    x = np.linspace(0, 1, 9)
    model = ef.function(lambda x, a, b: a * ef.exp(-b * ef.asarray(x)))
    found, _ = optimize.curve_fit(model, x, 2 * np.exp(-3 * x))
    np.testing.assert_allclose(found, [2.0, 3.0], rtol=1e-6)
