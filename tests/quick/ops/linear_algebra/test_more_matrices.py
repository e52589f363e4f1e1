"""Triangles, elimination, eigenvalues, exponentials and least squares against SciPy and NumPy."""

import numpy as np
import pytest
import scipy.linalg

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.op import ops


def drawn(shape, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def residual(found, wanted):
    """The difference over the size, in units of the dtype's precision."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    scale = np.abs(wanted).max(initial=1e-300)
    return np.abs(found - wanted).max(initial=0) / scale / np.finfo(found.dtype).eps


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (70, 70), (130, 40), (40, 130)])
def test_triangles_of_elimination(shape, dtype):
    a = drawn(shape, dtype)
    p, low, up = (y.numpy() for y in ef.linalg.lu(a))
    assert residual(p @ low @ up, a) < 10 * max(shape)
    assert np.abs(low).max() <= 1 + 1e-6
    found, pivots = ef.linalg.lu_factor(a)
    if dtype != "complex128":  # whose magnitudes LAPACK takes for sums of both parts
        wanted = scipy.linalg.lu_factor(a)
        assert pivots.tolist() == wanted[1].tolist()
        assert residual(found, wanted[0]) < 3e3 * max(shape)
    order = ops["lu_permutation"].call(pivots, rows=shape[0]).numpy()
    assert residual(a[order], low @ up) < 10 * max(shape)


def test_stacks_are_eliminated_each_for_itself():
    a = drawn((2, 3, 40, 40))
    found, pivots = ef.linalg.lu_factor(a)
    for at in np.ndindex(2, 3):
        wanted = scipy.linalg.lu_factor(a[at])
        assert pivots.numpy()[at].tolist() == wanted[1].tolist()
        np.testing.assert_allclose(found.numpy()[at], wanted[0], rtol=1e-9, atol=1e-11)
    singular = ef.linalg.lu(np.ones((3, 3)))
    np.testing.assert_allclose(singular.P.numpy() @ singular.L.numpy() @ singular.U.numpy(), 1)


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("right", [(90,), (90, 3)])
def test_systems_by_their_triangles(trans, right):
    a, b = drawn((90, 90), "complex128"), drawn(right, "complex128", 1)
    x = ef.linalg.lu_solve(ef.linalg.lu_factor(a), b, trans=trans).numpy()
    whole = (a, a.T, a.conj().T)[trans]
    assert residual(whole @ x, b) < 1e4
    for lower in (False, True):
        for unit in (False, True):
            near = a / 90 + np.eye(90)
            form = {"lower": lower, "trans": trans, "unit_diagonal": unit}
            found = ef.linalg.solve_triangular(near, b, **form).numpy()
            wanted = scipy.linalg.solve_triangular(near, b, **form)
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_eigenvectors(dtype):
    a = drawn((4, 6, 6), dtype)
    values, vectors = (y.numpy() for y in ef.linalg.eig(a))
    assert residual(a @ vectors, vectors * values[:, None]) < 300
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1)
    assert ef.linalg.eigvals(a).dtype == "complex128"
    for found, one in zip(ef.linalg.eigvals(a).numpy(), a, strict=True):
        roots = np.roots(np.poly(one))
        assert np.abs(found[:, None] - roots).min(0).max() < 1e-8


def test_matrices_without_a_basis_of_eigenvectors_give_numbers():
    defective = np.array([[2.0, 1.0], [0.0, 2.0]])
    values, vectors = ef.linalg.eig(defective)
    np.testing.assert_allclose(values.numpy(), 2)
    assert np.isfinite(vectors.numpy()).all()


@pytest.mark.parametrize("size", [1e-9, 0.1, 1.0, 30.0, 800.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_exponentials(size, dtype):
    a = drawn((12, 12), dtype) * size / 12
    found = ef.linalg.expm(a).numpy()
    wanted = scipy.linalg.expm(a.astype("complex128" if dtype == "complex128" else "float64"))
    if np.abs(wanted).max() > np.finfo(dtype).max:
        return
    assert residual(found, wanted) < 100 * max(size, 1)
    shear = np.array([[1.0, 1e6], [0.0, -1.0]])  # whose norm asks for more halvings than it needs
    wanted = [[np.e, 1e6 * np.sinh(1)], [0, 1 / np.e]]
    np.testing.assert_allclose(ef.linalg.expm(shear).numpy(), wanted, rtol=1e-12)
    odd = np.stack([np.full((2, 2), np.inf), np.zeros((2, 2)), np.eye(2) * 1e4])
    mixed = ef.linalg.expm(odd).numpy()
    assert np.isnan(mixed[0]).all()
    np.testing.assert_array_equal(mixed[1], np.eye(2))
    assert not np.isfinite(mixed[2, 0, 0])


def test_gradient_of_the_exponential_is_frechets():
    a, g = drawn((5, 5)), drawn((5, 5), seed=1)
    found = ef.grad(lambda x: (ef.linalg.expm(x) * g).sum())(ef.tensor(a)).numpy()
    wanted = scipy.linalg.expm_frechet(a.T, g, compute_expm=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_least_squares(shape, rank):
    a = drawn((shape[0], rank)) @ drawn((rank, shape[1]), seed=1)
    for right in ((shape[0],), (shape[0], 3)):
        b = drawn(right, seed=2)
        found = ef.linalg.lstsq(a, b)
        wanted = np.linalg.lstsq(a, b, rcond=None)
        np.testing.assert_allclose(found.solution.numpy(), wanted[0], rtol=1e-9, atol=1e-10)
        assert found.rank.item() == wanted[2] == rank
        np.testing.assert_allclose(found.singular_values.numpy(), wanted[3], atol=1e-12)
        left = (np.abs(a @ wanted[0] - b) ** 2).sum(0)
        np.testing.assert_allclose(found.residuals.numpy(), left, rtol=1e-9, atol=1e-12)
    stack = ef.linalg.lstsq(np.stack([a, a]), drawn((2, shape[0], 1)))
    assert stack.solution.shape == (2, shape[1], 1)
    with pytest.raises(ef.errors.ShapeError, match="do not fit"):
        ef.linalg.lstsq(a, np.ones(shape[0] + 1))


def test_gradient_of_a_system_by_its_triangles():
    solve = lambda x, y: ef.linalg.lu_solve(ef.linalg.lu_factor(x), y)
    ef.testing.check_gradients(solve, (drawn((4, 4)), drawn((4, 2), seed=2)))


def test_products_of_several_matrices():
    parts = [drawn(s) for s in ((10, 100), (100, 5), (5, 50), (50, 3))]
    found = ef.linalg.multi_dot(parts).numpy()
    np.testing.assert_allclose(found, np.linalg.multi_dot(parts), rtol=1e-12)
    ends = [drawn(4), drawn((4, 3)), drawn(3)]
    np.testing.assert_allclose(ef.linalg.multi_dot(ends).item(), np.linalg.multi_dot(ends))
    with pytest.raises(ef.errors.ShapeError, match="not factors"):
        ef.linalg.multi_dot([np.ones((2, 2))])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "eigh", "eig", "matrix_rank", "cond"])
def test_iterations_refuse_nonfinite_values_and_print_nothing(name, value, capfd):
    x = np.eye(3)
    x[0, 2] = value
    with pytest.raises(EagerflowError, match="did not converge"):
        getattr(ef.linalg, name)(x)
    assert capfd.readouterr().out == ""
