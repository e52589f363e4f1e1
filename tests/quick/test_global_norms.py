"""Norms over nests of gradients: eager, captured, in narrow dtypes, and inside optimizers."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError


def nest(dtype, scale=1.0):
    rng = np.random.default_rng(3)
    draw = lambda *shape: ef.tensor((scale * rng.standard_normal(shape)).astype(dtype))
    return {"w": draw(5, 4), "parts": [draw(7), None, (draw(),)]}


def arrays(gradients):
    w, (first, _, (last,)) = gradients["w"], gradients["parts"]
    return [x.numpy().astype("float64") for x in (w, first, last)]


def norm_of(gradients):
    return np.sqrt(sum((x**2).sum() for x in arrays(gradients)))


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_nests_are_scaled_to_the_limit(dtype, limit, captured):
    given = nest(dtype, 100.0)  # the squares of which overflow float16
    clip = ef.function(ef.clip_by_global_norm) if captured else ef.clip_by_global_norm
    clipped, norm = clip(given, limit)
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(float(norm), norm_of(given), 1e-6)
    assert norm.dtype == ("float64" if dtype == "float64" else "float32")
    scale = min(1.0, limit / norm_of(given))
    for found, x in zip(arrays(clipped), arrays(given), strict=True):
        np.testing.assert_allclose(found, x * scale, tolerance)
    assert clipped["parts"][1] is None and clipped["w"].dtype == dtype
    assert float(ef.global_norm(given)) == float(norm)


def test_repeated_rows_count_together():
    table = ef.Variable(np.eye(3, dtype="f4"))
    rows = ef.IndexedSlices(ef.ones((2, 3)), ef.tensor([1, 1]), (3, 3))
    clipped, norm = ef.clip_by_global_norm([rows], 1.0)
    np.testing.assert_allclose(float(norm), np.sqrt(3 * 2.0**2), 1e-6)
    assert type(clipped[0]) is ef.IndexedSlices
    ef.nn.optimizers.SGD(1.0).apply(clipped, [table])
    np.testing.assert_allclose(table.numpy()[1], np.eye(3)[1] - 1 / np.sqrt(3), 1e-6)


def test_complex_numbers_count_by_their_magnitude():
    assert float(ef.global_norm(ef.tensor([3 + 4j]))) == 5.0


@pytest.mark.parametrize("gradients", [[], [None, {}]])
def test_without_gradients_there_is_no_norm(gradients):
    for call in (ef.global_norm, lambda g: ef.clip_by_global_norm(g, 1.0)):
        with pytest.raises(ArgumentError, match="there is no gradient"):
            call(gradients)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_limits_are_positive(limit):
    with pytest.raises(ArgumentError, match=r"limit: a limit of norms is above 0"):
        ef.clip_by_global_norm(nest("float32"), limit)
