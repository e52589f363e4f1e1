"""Everyday numerics beyond their contract: what depends on values, ties, captured code, batches."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, IndexRangeError, KeywordError, ShapeError

X = np.array([[3.0, -1.0, 2.0, 0.5], [0.25, 4.0, -2.0, 1.0]])


def test_bincount_counts_to_the_largest():
    x = ef.tensor([3, 1, 1])
    assert ef.bincount(x).tolist() == [0, 2, 0, 1]
    assert ef.bincount(x, minlength=6).tolist() == [0, 2, 0, 1, 0, 0]
    assert ef.bincount(x, ef.tensor([0.5, 1.0, 2.0])).tolist() == [0.0, 3.0, 0.0, 0.5]
    with pytest.raises(CaptureError):
        ef.function(ef.bincount)(x)
    assert ef.function(lambda x: ef.bincount(x, length=3))(x).tolist() == [0, 2, 0]


def test_gradients_pass_through_the_first_of_equal_ones():
    x = ef.tensor([3.0, 1.0, 3.0, 2.0])
    weights = ef.tensor([1.0, 10.0, 100.0])
    assert ef.grad(lambda x: (ef.unique(x) * weights).sum())(x).tolist() == [100.0, 1.0, 0.0, 10.0]


def test_running_extremes_with_ties_and_nan():
    x = ef.tensor([1.0, 3.0, 3.0, 2.0])
    assert ef.grad(lambda x: ef.cummax(x).sum())(x).tolist() == [1.0, 1.0, 2.0, 0.0]
    assert ef.grad(lambda x: ef.cummin(x, reverse=True).sum())(x).tolist() == [1.0, 0.0, 0.0, 3.0]
    found = ef.cummax(ef.tensor([1.0, ef.nan, 2.0])).numpy()
    assert found[0] == 1.0 and np.isnan(found[1:]).all()


def test_sums_of_exponentials_reach_far():
    x = ef.tensor([-ef.inf, 1e4, -1e4, 1e4], dtype="float64")
    wanted = [-np.inf, 1e4, 1e4, 1e4 + np.log(2)]
    np.testing.assert_allclose(ef.logcumsumexp(x).numpy(), wanted, rtol=1e-15)
    gradient = ef.grad(lambda x: ef.logcumsumexp(x)[-1])(x).numpy()
    np.testing.assert_allclose(gradient, [0.0, 0.5, 0.0, 0.5], atol=1e-15)


def test_smallest_elements():
    x = ef.tensor([2.0, ef.nan, -1.0, 2.0])
    values, places = ef.top_k(x, 3, largest=False)
    assert (values.tolist(), places.tolist()) == ([-1.0, 2.0, 2.0], [2, 0, 3])
    rows = ef.tensor(X)
    gradient = ef.grad(lambda x: ef.top_k(x, 1, axis=0, largest=False)[0].sum())(rows)
    assert gradient.tolist() == [[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
    with pytest.raises(ShapeError, match="top_k: k: 5 elements cannot be taken"):
        ef.top_k(x, 5, largest=False)


def test_quantiles_of_infinities_and_of_nothing_but_nan():
    x = ef.tensor([ef.inf, 1.0, ef.inf])
    assert ef.median(x).tolist() == ef.quantile(x, 0.9).tolist() == ef.inf
    nothing = ef.full((2, 3), ef.nan)
    assert np.isnan(ef.nanmedian(nothing, axis=1).numpy()).all()
    for name in ("nanmax", "nanmin", "nanmean", "nanvar"):
        assert np.isnan(getattr(ef, name)(nothing, axis=1).numpy()).all(), name
    assert ef.quantile(ef.tensor(X), ef.tensor([0.25])).shape == (1,)


def test_shares_of_many_elements_are_exact():
    """In float32, 0.3 times 1e6 elements would be off by one hundredth of an element."""
    x = ef.arange(1_000_001, dtype="float32")
    for method in ("lower", "higher", "nearest", "linear"):
        assert ef.quantile(x, 0.3, method=method).tolist() == 300_000.0


def test_places_of_parts_have_to_exist():
    x = ef.tensor([3.0, 1.0, 2.0])
    with pytest.raises(IndexRangeError, match="partition: kth: 3 is out of range"):
        np.partition(x, (0, 3))
    with pytest.raises(IndexRangeError, match=r"add\.reduceat: indices: 3 is out of range"):
        np.add.reduceat(x, [0, 3])


def test_divmod():
    x = ef.tensor([7, -7])
    assert [part.tolist() for part in divmod(x, 4)] == [[1, -2], [3, 1]]
    assert [part.tolist() for part in divmod(9, x)] == [[1, -2], [2, -5]]


def test_slopes_of_roots():
    """Each root r of p moves by -(the powers of r) / p'(r)."""
    p = np.array([2.0, -3.0, -11.0, 6.0])
    roots = np.roots(p)
    wanted = [(-(roots**k) / np.polyval(np.polyder(p), roots)).sum() for k in (3, 2, 1, 0)]
    found = ef.grad(lambda p: ef.real(np.roots(p)).sum())(ef.tensor(p)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    with pytest.raises(CaptureError, match="p needs a number that is not known"):
        ef.function(np.roots)(ef.tensor(p))


def test_rules_that_count_bins_need_values():
    x = ef.tensor([1.0, 2.0, 4.0])
    with pytest.raises(ArgumentError, match="histogram: bins: 'best' is not a valid estimator"):
        np.histogram(x, "best")
    with pytest.raises(ArgumentError, match="weights: rules for bins know no weights"):
        np.histogram(x, "auto", weights=[1, 2, 1])
    with pytest.raises(ArgumentError, match="not finite"):
        np.histogram(x / 0, "auto")
    with pytest.raises(CaptureError):
        ef.function(lambda x: np.histogram(x, "auto")[0])(x)


def test_invalid_numpy_pad_options_are_refused():
    x = ef.tensor([1.0, 2.0])
    with pytest.raises(KeywordError, match="end_values"):
        np.pad(x, 1, mode="mean", end_values=2.0)
    with pytest.raises(KeywordError, match="'reverse' is not taken"):
        np.pad(x, 1, mode="reverse")
    with pytest.raises(KeywordError, match="0 is not a number of elements"):
        np.pad(x, 1, mode="mean", stat_length=0)
    with pytest.raises(ShapeError, match="a pair for each of 1 axes"):
        np.pad(x, 1, constant_values=(1, 2, 3))
    for widths in (1, (1, 0), (0, 1)):
        with pytest.raises(ShapeError, match="no elements to pad with"):
            np.pad(x[:0], widths, mode="maximum")


def test_complex_logarithms_of_running_sums_are_principal():
    x = np.array([1.0 + 4.0j, -0.5 + 2.0j, 700.0 - 9.0j])
    found = ef.logcumsumexp(ef.tensor(x)).numpy()
    wanted = [*np.log(np.cumsum(np.exp(x[:2]))), 700.0 + (4 * np.pi - 9.0 - 2 * np.pi) * 1j]
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    assert abs(found.imag).max() <= np.pi


def test_distances_of_equal_points_have_gradients():
    x = ef.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert not np.isnan(ef.grad(lambda x: ef.cdist(x, x).sum())(x).numpy()).any()


def test_places_out_of_range_are_refused():
    with pytest.raises(IndexRangeError, match="out of range"):
        ef.ravel_multi_index((ef.tensor([2]), ef.tensor([0])), (2, 3))
    assert ef.ravel_multi_index((ef.tensor([2]), ef.tensor([4])), (2, 3), "wrap").tolist() == [1]
    with pytest.raises(ArgumentError, match="out of range"):
        ef.quantile(ef.tensor(X), 1.5)


JOINED = {
    "hstack": lambda x: ef.hstack([x, x * 2]),
    "vstack": lambda x: ef.vstack([x, x[:1]]),
    "dstack": lambda x: ef.dstack([x, x]),
    "column_stack": lambda x: ef.column_stack([x, x[:, 0]]),
    "block": lambda x: ef.block([[x, x], [x[:, :1], ef.ones((2, 7), x.dtype)]]),
    "block_diag": lambda x: ef.block_diag(x, x[0]),
    "atleast_3d": ef.atleast_3d,
    "array_split": lambda x: ef.array_split(x, 3, axis=1)[0],
    "gradient": lambda x: ef.gradient(x, axis=1),
    "ediff1d": lambda x: ef.ediff1d(x, to_end=1.0),
    "select": lambda x: ef.select([x > 1.1, x < 0], [x, x * x], 0.5),
    "union of shapes": lambda x: ef.append(x, x[:, 0]),
}


@pytest.mark.parametrize("name", JOINED)
def test_plain_functions_in_captured_code_and_batches(name):
    f, x = JOINED[name], ef.tensor(X)
    wanted = f(x).numpy()
    np.testing.assert_array_equal(ef.function(f)(x).numpy(), wanted)
    batch = ef.vmap(f)(ef.stack([x, x * 3])).numpy()
    np.testing.assert_array_equal(batch[0], wanted)
    np.testing.assert_array_equal(batch[1], f(x * 3).numpy())
    ef.testing.check_gradients(f, [x], order=1)


def test_numpy_calls_in_captured_code():
    def f(x):
        means = np.quantile(x, 0.4, axis=0), np.nanmean(x)
        return *means, np.add.reduce(x, axis=1), np.interp(x, [0, 1], [2, 5])

    for found, wanted in zip(ef.function(f)(ef.tensor(X)), f(X), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_free_sizes():
    f = lambda x: (ef.median(x, axis=0), ef.nanstd(x, axis=0), ef.flipud(x))
    rows = ef.function(f, input_signature=[ef.TensorSpec((None, 4), "float64")])
    for x in (X, np.concatenate([X, X + 1, X - 3])):
        median, spread, turned = rows(ef.tensor(x))
        np.testing.assert_allclose(median.numpy(), np.median(x, axis=0))
        np.testing.assert_allclose(spread.numpy(), np.std(x, axis=0))
        np.testing.assert_array_equal(turned.numpy(), x[::-1])


def test_logarithmic_spaces():
    np.testing.assert_allclose(ef.logspace(-1, 2, 7).numpy(), np.logspace(-1, 2, 7), rtol=1e-6)
    found = ef.geomspace(1, 1000, 4, endpoint=False, dtype="float64").numpy()
    np.testing.assert_allclose(found, np.geomspace(1, 1000, 4, endpoint=False))
    np.testing.assert_allclose(ef.geomspace(-1, -8, 4).numpy(), [-1, -2, -4, -8], rtol=1e-6)
    slope = ef.grad(lambda x: ef.geomspace(x, 8.0, 4, dtype="float64")[1])(ef.tensor(1.0))
    np.testing.assert_allclose(float(slope), 2 * 2 / 3, rtol=1e-6)
    with pytest.raises(ArgumentError, match="one sign"):
        ef.geomspace(0, 1)


def test_cosine_similarity_broadcasts_its_operands():
    x1, x2 = np.arange(1.0, 7).reshape(1, 2, 3), np.arange(2.0, 8).reshape(2, 1, 3)
    for axis in (0, 1, 2):
        a, b = np.broadcast_arrays(x1, x2)
        wanted = (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))
        np.testing.assert_allclose(ef.cosine_similarity(x1, x2, axis=axis), wanted, rtol=1e-12)
