"""Associated Legendre functions and spherical harmonics: SciPy's values, integrals, the poles."""

import numpy as np
import pytest
import scipy.special

import eagerflow as ef

ORDERS = [(n, m) for n in range(5) for m in range(-n - 1, n + 2)]


@pytest.mark.parametrize("norm", [False, True])
def test_functions_are_those_of_scipy(norm):
    x = np.linspace(-0.97, 0.97, 9)
    for n, m in ORDERS:
        (wanted,) = scipy.special.assoc_legendre_p(n, m, x, norm=norm)
        found = ef.assoc_legendre_p(x, n, m, norm=norm).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13, err_msg=f"{n}, {m}")


def test_harmonics_are_those_of_scipy():
    theta, phi = np.meshgrid(np.linspace(0.0, np.pi, 7), np.linspace(-1.0, 5.0, 4))
    for n, m in ORDERS:
        found = ef.sph_harm_y(theta, phi, n, m).numpy()
        wanted = scipy.special.sph_harm_y(n, m, theta, phi)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13, err_msg=f"{n}, {m}")


def test_harmonics_are_orthonormal():
    """By Gauss's rule in cos(theta) and equal steps in phi, which are exact for these degrees."""
    x, weights = np.polynomial.legendre.leggauss(8)
    phi = np.arange(12) * (2 * np.pi / 12)
    theta = np.arccos(x)[:, None]
    area = np.broadcast_to(weights[:, None] * (2 * np.pi / 12), (8, 12)).ravel()
    inside = [(n, m) for n, m in ORDERS if abs(m) <= n]
    rows = np.stack([ef.sph_harm_y(theta, phi, n, m).numpy().ravel() for n, m in inside])
    np.testing.assert_allclose((rows.conj() * area) @ rows.T, np.eye(len(inside)), atol=1e-13)


@pytest.mark.parametrize("end", [0.0, np.pi])
def test_slopes_at_the_poles(end):
    """Of degree 1: dY/dtheta is -sqrt(3 / 8 pi) cos(theta) e^(i phi) for m = 1, 0 for m = 0."""
    theta = ef.tensor(end, dtype="float64")
    slope = ef.grad(lambda t: ef.real(ef.sph_harm_y(t, 0.25, 1, 1)))(theta).tolist()
    wanted = -np.sqrt(3 / (8 * np.pi)) * np.cos(end) * np.cos(0.25)
    np.testing.assert_allclose(slope, wanted, rtol=1e-12)
    flat = ef.grad(lambda t: ef.real(ef.sph_harm_y(t, 0.25, 1, 0)))(theta).tolist()
    np.testing.assert_allclose(flat, 0.0, atol=1e-15)


def test_slopes_of_polynomials_at_the_ends():
    """d P_n / dx is n (n + 1) / 2 at 1, and even orders are polynomials beyond as well."""
    for n in range(6):
        slope = ef.grad(lambda x, n=n: ef.assoc_legendre_p(x, n, 0), unconnected="zero")
        assert slope(ef.tensor(1.0, dtype="float64")).tolist() == n * (n + 1) / 2
    assert ef.assoc_legendre_p(ef.tensor([2.0, -2.0]), 2, 2).tolist() == [-9.0, -9.0]
    assert np.isnan(ef.assoc_legendre_p(ef.tensor([2.0]), 2, 1).numpy()).all()
