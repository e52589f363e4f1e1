"""Normalization of arrays so large that generated kernels take them, beside NumPy's steps."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.codegen.ready import ReadyCall
from eagerflow.ops.nn.batch_normalization import batch_norm_gradient, batch_norm_training
from eagerflow.ops.nn.normalization import norm_gradient
from eagerflow.primitives.llvm.staged_kernel import StagedKernel

pytestmark = pytest.mark.parametrize("compiled", [True, False], ids=["generated", "numpy"])


@pytest.fixture(autouse=True)
def _way(compiled, monkeypatch):
    if compiled and not generated.enabled():
        pytest.skip("needs llvmlite")
    monkeypatch.setattr(generated, "enabled", lambda: compiled)


def normal(rng, shape, dtype="float32", scale=1.0, offset=0.0):
    return (rng.standard_normal(shape) * scale + offset).astype(dtype)


def bound(dtype, steps):
    return steps * np.finfo(dtype).eps


def calls_of_kernels(monkeypatch):
    """A list that grows with each region, or program, that runs."""
    found = []
    start = StagedKernel.start
    spied = lambda *given: found.append("program") or start(*given)
    monkeypatch.setattr(StagedKernel, "start", spied)
    call = ReadyCall.__call__
    spied = lambda self, arrays: found.append(self.region.name) or call(self, arrays)
    monkeypatch.setattr(ReadyCall, "__call__", spied)
    for name in ("run", "compute"):
        original = getattr(generated, name)
        spied = lambda region, *arrays, f=original: found.append(region.name) or f(region, *arrays)
        monkeypatch.setattr(generated, name, spied)
    return found


# Rows --------------------------------------------------------------------------------------------


def norm_reference(x, scale, offset, axes, epsilon, center):
    x = x.astype(np.float64)
    axes = tuple(i % x.ndim for i in axes)
    middle = x - x.mean(axes, keepdims=True) if center else x
    factor = 1 / np.sqrt((middle**2).mean(axes, keepdims=True) + epsilon)
    h = middle * factor
    return h, factor, spread(scale, x, axes), spread(offset, x, axes)


def spread(parameter, x, axes):
    if parameter is None:
        return None
    order = np.argsort(axes)
    shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
    return parameter.astype(np.float64).transpose(order).reshape(shape)


SHAPES = [
    ((129, 257), (-1,)), ((16411,), (0,)), ((1, 70001), (1,)), ((5000, 7), (1,)), ((7, 5000), (0,)),
    ((3, 65, 130), (1,)), ((6, 5, 20, 30), (2, 3)), ((6, 5, 20, 30), (3, 1)),
    ((6, 50, 2, 30), (2, 1)), ((60, 70), ()),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_norm(shape, axes, dtype, compiled, monkeypatch):
    rng = np.random.default_rng(1)
    x = normal(rng, shape, dtype, 3, 2)
    sizes = [shape[i] for i in axes]
    scale, offset = normal(rng, sizes, dtype), normal(rng, sizes, dtype)
    used = calls_of_kernels(monkeypatch)
    y = ef.layer_norm(x, scale, offset, axis=axes, epsilon=0.1).numpy()
    assert bool(used) == compiled
    h, _, by, on = norm_reference(x, scale, offset, axes, 0.1, True)
    np.testing.assert_allclose(y, h * by + on, rtol=0, atol=bound(dtype, 64))
    r = ef.rms_norm(x, scale, axis=axes).numpy()
    right = norm_reference(x, None, None, axes, 1e-6, False)[0] * by
    np.testing.assert_allclose(r, right, rtol=0, atol=bound(dtype, 64))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_gradient_of_norm(shape, axes, center, scaled, compiled, monkeypatch):
    rng = np.random.default_rng(2)
    x, g = normal(rng, shape, scale=3, offset=2), normal(rng, shape)
    scale = normal(rng, [shape[i] for i in axes]) if scaled else None
    used = calls_of_kernels(monkeypatch)
    found = norm_gradient(x, g, scale, axis=axes, epsilon=0.1, center=center)
    assert bool(used) == compiled
    h, factor, by, _ = norm_reference(x, scale, None, axes, 0.1, center)
    at = tuple(i % x.ndim for i in axes)
    g = g.astype(np.float64)
    u = g * by if scaled else g
    of_x = u - h * (u * h).mean(at, keepdims=True)
    if center:
        of_x -= u.mean(at, keepdims=True)
    np.testing.assert_allclose(found[0].numpy(), of_x * factor, rtol=0, atol=2e-5)
    kept = tuple(i for i in range(x.ndim) if i not in at)
    back = [sorted(at).index(i) for i in at]
    for actual, terms in zip(found[1:], (g * h, g), strict=True):
        expected = terms.sum(kept).transpose(back)
        size = np.abs(terms).sum(kept).max()
        np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=4e-6 * size)


def test_views_of_arrays():
    rng = np.random.default_rng(3)
    whole = normal(rng, (300, 250))
    scale = normal(rng, (500,))[::-2]
    for x in (whole[::-1, ::-1], whole.T.copy().T, np.broadcast_to(whole[:1], whole.shape)):
        h, factor, by, _ = norm_reference(x, scale, None, (1,), 1e-5, True)
        y = ef.layer_norm(x, scale).numpy()
        np.testing.assert_allclose(y, h * by, rtol=0, atol=1e-5)
        of_x = norm_gradient(x, whole[::-1], scale)[0].numpy()
        u = whole[::-1] * by
        rest = u - h * (u * h).mean(1, keepdims=True) - u.mean(1, keepdims=True)
        np.testing.assert_allclose(of_x, rest * factor, rtol=0, atol=2e-5)


def test_rows_with_special_values():
    rng = np.random.default_rng(4)
    x = normal(rng, (200, 333))
    x[3, 5], x[4, 6], x[5, 7] = np.nan, np.inf, -np.inf
    x[6] = 0.0
    x[7] = 1e-41
    x[8] = rng.standard_normal(333) * 1e18
    x[9] = 1e30  # whose square overflows
    y = ef.layer_norm(x, epsilon=1e-5).numpy()
    assert np.isnan(y[3:6]).all()
    assert (y[6:8] == 0).all()
    h = norm_reference(x[8:9], None, None, (1,), 1e-5, True)[0]
    np.testing.assert_allclose(y[8:9], h, rtol=0, atol=1e-5)
    assert np.isfinite(np.delete(y, [3, 4, 5, 9], 0)).all()
    r = ef.rms_norm(x).numpy()
    assert (r[6] == 0).all()
    assert (r[9] == 0).all()
    of_x, of_scale, of_offset = norm_gradient(x, np.ones_like(x))
    assert np.isnan(of_x.numpy()[3:6]).all()
    assert np.isnan(of_scale.numpy()).all()
    assert (of_offset.numpy() == 200).all()


def test_group_norm_of_a_large_array():
    rng = np.random.default_rng(5)
    x, scale = normal(rng, (4, 12, 30, 31)), normal(rng, (12,))
    apart = x.astype(np.float64).reshape(4, 3, -1)
    h = (apart - apart.mean(-1, keepdims=True)) / np.sqrt(apart.var(-1, keepdims=True) + 1e-5)
    expected = h.reshape(x.shape) * scale.reshape(-1, 1, 1)
    first = ef.group_norm(x, 3, scale, axis=1).numpy()
    last = ef.group_norm(np.moveaxis(x, 1, -1), 3, scale).numpy()
    np.testing.assert_allclose(first, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(last, np.moveaxis(expected, 1, -1), rtol=0, atol=1e-5)


# Channels ----------------------------------------------------------------------------------------

CHANNELS = [
    ((70001, 3), -1), ((700, 101), -1), ((40, 1701), 1), ((9, 20, 21, 64), -1),
    ((5, 12, 40, 41), 1), ((3, 6000, 4), 1), ((17, 4096), 0), ((66000, 1), 1), ((2, 3, 100_000), 1),
]  # fmt: skip


def moments_of(x, at):
    """x with channels first, their means and their variances, in float64."""
    moved = np.ascontiguousarray(np.moveaxis(x.astype(np.float64), at, 0))
    moved = moved.reshape(x.shape[at], -1)
    return moved, moved.mean(1), moved.var(1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axis"), CHANNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm(shape, axis, dtype, compiled, monkeypatch):
    rng = np.random.default_rng(6)
    channels = shape[axis]
    x = normal(rng, shape, dtype, 3, 20)
    scale, offset = normal(rng, channels, dtype), normal(rng, channels, dtype)
    used = calls_of_kernels(monkeypatch)
    made = batch_norm_training(x, scale, offset, axis=axis, epsilon=0.1)
    y, mean, variance = (v.numpy() for v in made)
    assert bool(used) == compiled
    moved, center, spread = moments_of(x, axis)
    np.testing.assert_allclose(mean, center, rtol=bound(dtype, 4 if compiled else 64))
    np.testing.assert_allclose(variance, spread, rtol=bound(dtype, 64))
    h = (moved - center[:, None]) / np.sqrt(spread + 0.1)[:, None]
    expected = h * scale[:, None] + offset[:, None]
    actual = np.moveaxis(y, axis, 0).reshape(channels, -1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound(dtype, 128))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axis"), CHANNELS)
@pytest.mark.parametrize("scaled", [True, False])
def test_gradient_of_batch_norm(shape, axis, scaled, compiled, monkeypatch):
    rng = np.random.default_rng(7)
    channels = shape[axis]
    x, g = normal(rng, shape, scale=3, offset=5), normal(rng, shape)
    scale = normal(rng, channels) if scaled else None
    g_mean, g_variance = normal(rng, channels), normal(rng, channels)
    used = calls_of_kernels(monkeypatch)
    found = batch_norm_gradient(x, g, g_mean, g_variance, scale, axis=axis, epsilon=0.1)
    assert bool(used) == compiled
    moved, center, variance = moments_of(x, axis)
    above = moments_of(g, axis)[0]
    count = moved.shape[1]
    factor = 1 / np.sqrt(variance + 0.1)[:, None]
    apart = moved - center[:, None]
    h = apart * factor
    u = above * scale[:, None] if scaled else above
    of_x = u - u.mean(1, keepdims=True) - h * (u * h).mean(1, keepdims=True)
    of_x = of_x * factor + (g_mean[:, None] + 2 * g_variance[:, None] * apart) / count
    actual = np.moveaxis(found[0].numpy(), axis, 0).reshape(channels, -1)
    np.testing.assert_allclose(actual, of_x, rtol=0, atol=2e-5)
    for part, terms in zip(found[1:], (above * h, above), strict=True):
        size = np.abs(terms).sum(1).max()
        np.testing.assert_allclose(part.numpy(), terms.sum(1), rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize("axis", [0, 1])
def test_variances_far_from_zero(axis):
    """Means that are a thousand times the deviations, and values that come in order."""
    rng = np.random.default_rng(8)
    x = normal(rng, (70000, 4), scale=[1, 1e-3, 10, 1], offset=[1000, 1, -1e4, 0])
    x[:, 3] = np.sort(x[:, 3])
    x = x if axis else np.ascontiguousarray(x.T)
    _, mean, variance = (v.numpy() for v in batch_norm_training(x, axis=axis))
    _, center, spread = moments_of(x, axis)
    np.testing.assert_allclose(mean, center, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, spread, rtol=1e-4)


def test_a_sample_that_misleads():
    """Where the numbers that the mean is guessed from are all unlike the others."""
    x = normal(np.random.default_rng(9), (1 << 17, 1))
    lines = x.reshape(-1, 1024)
    lines[::64] += 1e4  # one line of 64, as many as are looked at
    _, mean, variance = (v.numpy() for v in batch_norm_training(x))
    _, center, spread = moments_of(x, 1)
    np.testing.assert_allclose(mean, center, rtol=1e-5)
    np.testing.assert_allclose(variance, spread, rtol=64 * 2**-20)


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_with_special_values(axis):
    x = normal(np.random.default_rng(10), (70000, 5))
    x[0, 0], x[69999, 1], x[0, 2], x[:, 3] = np.inf, np.inf, np.nan, 7.0
    x = x if axis else np.ascontiguousarray(x.T)
    y, mean, variance = (v.numpy() for v in batch_norm_training(x, axis=axis))
    by_channel = y if axis else y.T
    assert np.isnan(by_channel[:, :3]).all()
    assert (by_channel[:, 3] == 0).all()
    assert np.isfinite(by_channel[:, 4]).all()
    assert (mean[:2] == np.inf).all()
    assert np.isnan(mean[2])
    assert mean[3] == 7
    assert np.isnan(variance[:3]).all()
    assert variance[3] == 0


def test_results_of_both_ways_are_alike(compiled):
    x = normal(np.random.default_rng(11), (64, 33, 47), "float64")
    y = batch_norm_training(x, axis=1)[0].numpy()
    turned = batch_norm_training(np.moveaxis(x, 1, -1))[0].numpy()
    np.testing.assert_allclose(np.moveaxis(turned, -1, 1), y, rtol=0, atol=1e-13)
