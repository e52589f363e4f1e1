"""Functions of images against SciPy, and against PyTorch and JAX where they are installed."""

import itertools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.ops.images.pools import positions_of
from tests.nn.peers import torch

RNG = np.random.default_rng(0)


def first(x):
    """Channels first, as PyTorch has them."""
    return torch.tensor(np.ascontiguousarray(np.moveaxis(np.asarray(x), -1, 1)))


def last(y):
    return np.moveaxis(y.detach().numpy(), 1, -1)


def close(actual, wanted, atol=1e-10):
    np.testing.assert_allclose(np.asarray(actual), wanted, rtol=0, atol=atol)


# Sampling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 3])
@pytest.mark.parametrize(
    "mode", ["constant", "grid-constant", "nearest", "mirror", "reflect", "wrap", "grid-wrap"]
)
def test_map_coordinates(order, mode):
    scipy = pytest.importorskip("scipy.ndimage")
    for shape in ((5, 4), (7,), (9, 8, 4), (1, 6)):
        x, at = RNG.standard_normal(shape), RNG.uniform(-9, 14, (len(shape), 40))
        wanted = scipy.map_coordinates(x, at, order=order, mode=mode, cval=0.7)
        # SciPy's filter for "reflect" is not exact on short axes.
        atol = 1e-3 if mode == "reflect" and order == 3 else 1e-6
        close(ef.map_coordinates(x, at, order=order, mode=mode, cval=0.7), wanted, atol)


def test_splines_hit_their_points():
    x = RNG.standard_normal((2, 3))
    for mode in ("reflect", "mirror", "grid-wrap", "nearest", "constant"):
        close(ef.map_coordinates(x, np.indices(x.shape), order=3, mode=mode), x, 1e-6)


def test_map_coordinates_keeps_the_other_axes():
    x, at = RNG.standard_normal((5, 4, 3)), RNG.uniform(0, 3, (2, 6))
    wanted = [ef.map_coordinates(x[..., c], at, order=1).numpy() for c in range(3)]
    close(ef.map_coordinates(x, at, order=1), np.stack(wanted, -1))


@pytest.mark.parametrize("order", [0, 1])
def test_places_that_are_no_numbers_or_far_away(order):
    x = np.ones((3, 4))
    at = np.array([[np.nan, np.inf, -np.inf, 1e30, 1.0], [1.0, 1.0, np.nan, -1e30, 1.0]])
    for mode in ("constant", "grid-constant", "nearest", "mirror", "reflect", "wrap", "grid-wrap"):
        assert ef.map_coordinates(x, at, order=order, mode=mode)[-1] == 1


def test_values_beside_the_image_do_not_reach_in():
    x = np.array([np.nan, 1.0, np.inf])
    found = ef.map_coordinates(x, [[-5.0, 9.0]], order=1, mode="grid-constant", cval=2.0)
    close(found, [2.0, 2.0])


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(rank, mode):
    if (rank, mode) == (3, "bicubic"):
        pytest.skip("PyTorch has no bicubic volumes")
    sample = torch.nn.functional.grid_sample
    for beside, corners in itertools.product(("zeros", "border", "reflection"), (False, True)):
        x = RNG.standard_normal((2, *(5, 6, 4)[:rank], 3))
        grid = RNG.uniform(-1.7, 1.7, (2, *(3, 4, 2)[:rank], rank))
        given = first(x).requires_grad_(), torch.tensor(grid, requires_grad=True)
        wanted = sample(*given, mode, beside, corners)
        weights = RNG.standard_normal(wanted.shape)
        (wanted * torch.tensor(weights)).sum().backward()

        def loss(x, grid, weights=weights, how=(mode, beside, corners)):
            return ef.sum(ef.grid_sample(x, grid, *how) * np.moveaxis(weights, 1, -1))

        close(ef.grid_sample(x, grid, mode, beside, corners), last(wanted))
        found = ef.grad(loss, argnums=(0, 1), unconnected="zero")(ef.tensor(x), ef.tensor(grid))
        close(found[0], last(given[0].grad))
        close(found[1], given[1].grad.numpy())


def test_affine_grid():
    for size, corners in itertools.product(((3, 4), (2, 3, 4), (2, 3)), (False, True)):
        theta = RNG.standard_normal((2, len(size), len(size) + 1))
        wanted = torch.nn.functional.affine_grid(torch.tensor(theta), (2, 1, *size), corners)
        close(ef.affine_grid(theta, size, corners), wanted.numpy())


# Sizes --------------------------------------------------------------------------------------------

SIZES = ((5, 7), (9, 3), (12, 14), (6, 1))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "bilinear", "bicubic"])
def test_interpolate(mode):
    interpolate = torch.nn.functional.interpolate
    x = RNG.standard_normal((2, 6, 7, 2))
    weighted = mode in ("bilinear", "bicubic")
    for size, antialias in itertools.product(SIZES, (False, True) if weighted else (False,)):
        for corners in (False, True) if weighted else (None,):
            wanted = interpolate(first(x), size, None, mode, corners, antialias=antialias)
            found = ef.interpolate(x, size, mode=mode, align_corners=corners, antialias=antialias)
            close(found, last(wanted))
    if mode != "area":
        for factor, again in itertools.product((1.7, 0.6, 2, (0.5, 3.2)), (False, True)):
            more = {"mode": mode, "recompute_scale_factor": again}
            wanted = interpolate(first(x), scale_factor=factor, **more)
            close(ef.interpolate(x, scale_factor=factor, **more), last(wanted), 1e-6)


@pytest.mark.parametrize("method", ["bilinear", "nearest", "lanczos3", "lanczos5", "bicubic"])
def test_resize_as_jax(method):
    jax = pytest.importorskip("jax")
    x = RNG.standard_normal((2, 6, 7, 2)).astype("float32")
    for size, antialias in itertools.product(SIZES, (False, True)):
        wanted = jax.image.resize(x, (2, *size, 2), method, antialias=antialias)
        close(ef.resize(x, size, method, antialias), np.asarray(wanted), 2e-5)


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3", "lanczos5"])
def test_scale_and_translate_as_jax(method):
    jax = pytest.importorskip("jax")
    x = RNG.standard_normal((6, 7, 2)).astype("float32")
    for antialias, scale in itertools.product((False, True), ((1.5, 0.6), (0.3, 2.5))):
        scale, shift = np.float32(scale), np.float32([0.7, -1.2])
        theirs = jax.image.scale_and_translate
        wanted = theirs(x, (8, 5, 2), (0, 1), scale, shift, method, antialias)
        found = ef.scale_and_translate(x, scale, shift, (8, 5, 2), (0, 1), method, antialias)
        close(found, np.asarray(wanted), 2e-5)


# Windows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "stride", "padding", "dilation", "ceil"), [
    (2, 2, 0, 1, True), (3, 2, 1, 1, True), (3, 2, 1, 2, False), (2, 3, 1, 2, True),
    (4, 2, 2, 1, True), (3, 1, 1, 3, False),
])  # fmt: skip
def test_max_pools_with_indices(window, stride, padding, dilation, ceil):
    x = RNG.standard_normal((2, 9, 10, 3))
    wanted, places = torch.nn.functional.max_pool2d_with_indices(
        first(x), window, stride, padding, dilation, ceil, return_indices=True
    )
    values, indices = ef.max_pool_with_indices(x, window, stride, padding, dilation, ceil)
    close(values, last(wanted))
    close(indices, last(places))
    if dilation == 1 and stride >= window:
        back = torch.nn.functional.max_unpool2d(wanted, places, window, output_size=(9, 10))
        close(ef.max_unpool(values, indices, (9, 10)), last(back))


@pytest.mark.parametrize(
    ("window", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (2, 3, 0), (4, 2, 2)]
)
def test_avg_pools_with_ceil_mode(window, stride, padding):
    x = RNG.standard_normal((2, 9, 10, 3))
    wanted = torch.nn.functional.avg_pool2d(first(x), window, stride, padding, True, False)
    close(ef.avg_pool(x, window, stride, padding, ceil_mode=True), last(wanted))


def test_other_pools():
    functional = torch.nn.functional
    x = RNG.standard_normal((2, 7, 10, 3))
    close(ef.lp_pool(np.abs(x), 3, 2), last(functional.lp_pool2d(first(np.abs(x)), 3.0, 2)))
    whole = functional.lp_pool2d(first(np.abs(x)), 2.0, 3, 2, True)
    close(ef.lp_pool(np.abs(x), 2, 3, 2, ceil_mode=True), last(whole))
    close(ef.adaptive_avg_pool(x, (3, 4)), last(functional.adaptive_avg_pool2d(first(x), (3, 4))))
    wanted, places = functional.adaptive_max_pool2d(first(x), (3, 4), True)
    values, indices = ef.adaptive_max_pool(x, (3, 4), return_indices=True)
    close(values, last(wanted))
    close(indices, last(places))


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation"), [(2, 1, 0, 1), (3, 2, 1, 2), ((2, 3), 2, 0, 1)]
)
def test_unfold_and_fold(window, stride, padding, dilation):
    functional, x = torch.nn.functional, RNG.standard_normal((2, 7, 8, 3))
    wanted = functional.unfold(first(x), window, dilation, padding, stride)
    patches = ef.unfold(x, window, stride, padding, dilation)
    close(ef.reshape(ef.permute_dims(patches, (0, 5, 3, 4, 1, 2)), wanted.shape), wanted.numpy())
    back = functional.fold(wanted, (7, 8), window, dilation, padding, stride)
    close(ef.fold(patches, (7, 8), stride, padding, dilation), last(back))


def test_pixels_and_channels():
    functional, x = torch.nn.functional, RNG.standard_normal((2, 4, 6, 8))
    close(ef.pixel_shuffle(x, 2), last(functional.pixel_shuffle(first(x), 2)))
    close(ef.pixel_unshuffle(x, 2), last(functional.pixel_unshuffle(first(x), 2)))
    norm = functional.local_response_norm(first(x), 5, 0.1, 0.6, 1.5)
    close(ef.local_response_norm(x, 5, 0.1, 0.6, 1.5), last(norm))


@pytest.mark.parametrize("shape", [(1, 5, 5, 2), (1, 7, 4, 1)])
def test_gradients_of_squares_on_odd_sizes(shape):
    """A window that hangs over the edge is no square of four elements."""
    x = RNG.standard_normal(shape)
    found = ef.grad(lambda x: ef.sum(ef.max_pool(x, 2, 2, "same")))(ef.tensor(x))
    wanted = np.zeros(shape)
    for i, j, c in itertools.product(range(0, shape[1], 2), range(0, shape[2], 2), range(shape[3])):
        part = x[0, i : i + 2, j : j + 2, c]
        at = np.unravel_index(part.argmax(), part.shape)
        wanted[0, i + at[0], j + at[1], c] = 1
    close(found, wanted)


def test_positions_of_large_images_are_exact():
    rows, columns = 2**12, 2**12 + 1  # the last position is no float32
    image = ef.broadcast_to(ef.tensor(0.0), (1, rows, columns, 1))
    assert positions_of(image)[0, -1, -2:, 0].tolist() == [rows * columns - 2, rows * columns - 1]
