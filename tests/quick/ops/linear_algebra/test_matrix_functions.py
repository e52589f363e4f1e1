"""Square roots and logarithms of matrices against SciPy, and where there is none."""

import numpy as np
import pytest
import scipy.linalg

import eagerflow as ef


def drawn(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def around(center, dtype, *shape, seed=0):
    """Matrices whose eigenvalues lie around a number, at half of the distance to 0."""
    x = drawn(dtype, *shape, seed=seed)
    return (x / (2 * np.sqrt(2 * shape[-1])) + np.eye(shape[-1])) * center


def turned(a):
    q = np.linalg.qr(drawn("float64", *a.shape))[0]
    return q @ a @ q.T


n = 12
MATRICES = {
    "of one number": np.array([[3.0]]),
    "complex": drawn("complex128", n, n),
    "Hermitian": around(2, "complex128", n, n) + np.conj(around(2, "complex128", n, n).T),
    "defective": turned(2 * np.eye(n) + np.eye(n, k=1)),
    "almost defective": turned(2 * np.eye(n) + np.eye(n, k=1)) + 1e-9 * drawn("float64", n, n),
    "defective on the cut": -np.eye(3) + np.eye(3, k=1) + 0j,
    "around -1": around(-1, "complex128", n, n),
    "blocks": np.kron(np.eye(2), around(2, "float64", 6, 6)) + np.eye(n, k=6),
    "of one eigenvalue, far from normal": np.array([[1, 1e3], [0, 1]]),
}


@pytest.mark.parametrize("name", MATRICES)
def test_they_are_those_of_scipy(name):
    a = MATRICES[name]
    for name in ("sqrtm", "logm"):
        found, wanted = (getattr(module, name)(a) for module in (ef.linalg, scipy.linalg))
        assert found.dtype == a.dtype
        error = np.abs(found.numpy() - wanted).max() / np.abs(wanted).max()
        assert error < 2e-13, error


@pytest.mark.parametrize("power", [-1000, 1000])
def test_size_costs_no_digits(power):
    a, scale = MATRICES["blocks"], 2.0**power
    root = ef.linalg.sqrtm(a).numpy() * 2.0 ** (power / 2)
    np.testing.assert_array_equal(ef.linalg.sqrtm(a * scale).numpy(), root)
    logarithm = ef.linalg.logm(a).numpy() + np.log(scale) * np.eye(n)
    np.testing.assert_allclose(ef.linalg.logm(a * scale).numpy(), logarithm, atol=1e-12)


def test_logarithms_next_to_1_keep_their_digits():
    e = drawn("float64", 5, 5) * 1e-9
    a = np.eye(5) + e
    e = a - np.eye(5)
    wanted = e - e @ e / 2 + e @ e @ e / 3
    np.testing.assert_allclose(ef.linalg.logm(a).numpy(), wanted, rtol=1e-14, atol=1e-24)


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e12])
def test_errors_grow_with_the_condition(condition):
    a = turned(np.diag(np.geomspace(1, 1 / condition, 6)))
    a = (a + a.T) / 2
    for x, bound in ((a, 1e-14), (np.kron(np.eye(2), a) + np.eye(12, k=6), 1e-15 * condition)):
        root = ef.linalg.sqrtm(x).numpy()
        assert np.abs(root @ root - x).max() / max(1, np.abs(root).max() ** 2) < bound


def test_roots_of_products_of_singular_covariances():
    c1, c2 = (x @ x.T for x in drawn("float64", 2, 60, 20))
    root = ef.linalg.sqrtm(c1 @ c2)
    assert np.abs((root @ root).numpy() - c1 @ c2).max() < 1e-12 * np.abs(c1 @ c2).max()
    values = np.sqrt(np.maximum(np.linalg.eigvals(c1 @ c2).real, 0))
    np.testing.assert_allclose(float(ef.linalg.trace(root)), values.sum(), rtol=1e-6)
    low = (c1 / 10).astype("float32")  # of which rounding makes small negative eigenvalues
    root = ef.linalg.sqrtm(low).numpy()
    np.testing.assert_allclose(root @ root, low, atol=1e-5 * low.max())


def test_matrices_without_real_sqrt_or_log_give_nan():
    others = [4 * np.eye(2), np.array([[0.0, 1.0], [-1.0, 0.0]])]
    without = [-np.eye(2), np.array([[0.0, 1.0], [0.0, 0.0]]), np.full((2, 2), np.nan)]
    stack = np.stack([*without, np.full((2, 2), np.inf), *others])
    for call in (ef.linalg.sqrtm, ef.linalg.logm):
        found = call(stack).numpy()
        assert np.isnan(found[:4]).all()
        assert np.isfinite(found[4:]).all()
    assert np.isnan(ef.linalg.logm(np.diag([1.0, 0.0])).numpy()).all()
    np.testing.assert_array_equal(ef.linalg.sqrtm(np.zeros((2, 2))), np.zeros((2, 2)))
    negative = ef.tensor([[-4.0, 1.0], [0.0, -1.0]]).astype("complex128")
    np.testing.assert_allclose(ef.linalg.sqrtm(negative).numpy(), [[2j, -1j / 3], [0, 1j]])
    wanted = scipy.linalg.logm(negative.numpy())
    np.testing.assert_allclose(ef.linalg.logm(negative).numpy(), wanted)


@pytest.mark.parametrize("name", ["Hermitian", "defective", "around -1", "complex"])
def test_gradients_of_roots_solve_sylvesters_equation(name):
    a, g = MATRICES[name], drawn(MATRICES[name].dtype, n, n, seed=1)
    root, pull = ef.vjp(ef.linalg.sqrtm, ef.tensor(a))
    star = np.conj(root.numpy().T)
    wanted = scipy.linalg.solve_sylvester(star, star, g * 1e6) / 1e6
    found = pull(ef.tensor(g))[0].numpy()
    assert np.abs(found - wanted).max() < 1e-11 * np.abs(wanted).max()
    # The exponential takes back what the logarithm does, and so do their derivatives.
    both = lambda x: ef.linalg.expm(ef.linalg.logm(x))
    found = ef.jvp(both, (ef.tensor(a),), (ef.tensor(g),))[1].numpy()
    assert np.abs(found - g).max() < 1e-10 * np.abs(g).max()
