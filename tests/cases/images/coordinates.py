"""Cases of eagerflow/ops/images/coordinates.py."""

import itertools
import math

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.ops.images.coordinates import BESIDE, METHODS, ORDERS
from eagerflow.ops.images.sampling import MODES
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _fixed(p, n, mode):
    """The index of the point of n at position p of the extended line, by iteration; None: none."""
    while not 0 <= p < n:
        if mode in ("grid-constant", "constant", "zeros"):
            return None
        if mode in ("nearest", "border"):
            p = 0 if p < 0 else n - 1
        elif mode == "grid-wrap":
            p += n if p < 0 else -n
        elif mode == "reflect":
            p = -1 - p if p < 0 else 2 * n - 1 - p
        else:
            p = 0 if n == 1 else -p if p < 0 else 2 * (n - 1) - p
    return p


def _weights(f, method):
    """The weights of the points around a position, by their distance from the previous point."""
    if method == "nearest":
        return {math.floor(f + 0.5): 1.0}
    if method == "nearest-even":
        return {round(f): 1.0}
    if method == "linear":
        return {0: 1 - f, 1: f}
    a, found = -0.75, {}
    for i in range(-1, 3):
        x = abs(f - i)
        near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
        found[i] = near if x <= 1 else far
    return found


def value_at(x, place, method, mode, cval=0.0):
    """The value of a grid at one position, point by point; channels come last."""
    columns = []
    for c, n in zip(place, x.shape, strict=False):
        c = float(c)
        if mode == "constant" and not 0 <= c <= n - 1:
            return np.full(x.shape[len(place) :], cval)
        if mode == "wrap" and n == 1:
            c = 0.0
        elif mode == "wrap":
            while c < 0:
                c += n - 1
            while c > n - 1:
                c -= n - 1
        first = math.floor(c)
        weights = _weights(c - first, method)
        kind = "grid-wrap" if mode == "wrap" else mode
        columns.append([(_fixed(first + i, n, kind), w) for i, w in weights.items()])
    total = np.zeros(x.shape[len(place) :])
    for taps in itertools.product(*columns):
        weight = math.prod(w for _, w in taps)
        inside = all(p is not None for p, _ in taps)
        if weight:
            total = total + weight * (x[tuple(p for p, _ in taps)] if inside else cval)
    return total


def _map_reference(x, coordinates, order, mode, cval):
    rank = len(coordinates)
    found = np.zeros((*coordinates.shape[1:], *x.shape[rank:]), x.dtype)
    for at in np.ndindex(coordinates.shape[1:]):
        found[at] = value_at(x, coordinates[(slice(None), *at)], ORDERS[order], mode, cval)
    return found


def _map_samples(rng, dtype):
    def of(shape, places, **more):
        at = rng.uniform(-4, 7, places).astype("float32")
        at = np.floor(at) + np.clip(at - np.floor(at), 0.1, 0.4)  # no position with a kink
        return Sample((make(rng, dtype, shape), at.astype(promoted(dtype))), more)

    modes = [of((4, 3), (2, 5), order=1, mode=mode) for mode in MODES]
    return [
        *modes,
        *(of((4,), (1, 7), order=0, mode=mode, cval=1.5) for mode in MODES),
        of((3, 2, 4), (3, 2, 2), order=1, mode="constant", cval=-1.0),
        of((3, 4, 2), (2, 3), order=1, mode="grid-constant", cval=0.5),
        of((1, 1), (2, 3), order=1, mode="mirror"),
        of((1, 2), (2, 3), order=1, mode="wrap"),
        of((3,), (1, 0), order=1),
        of((3, 0), (1, 2), order=1),
        of((3,), (1,), order=1, mode="nearest"),
    ]


def promoted(dtype):
    """The dtype of positions for samples: float64 with float64."""
    return "float64" if dtype == np.dtype("float64") else "float32"


def _map_errors(rng):
    x, at = rng.standard_normal((3, 4)), np.zeros((2, 5))
    return [
        ErrorSample((x, at), {"order": 2}, ArgumentError, "not one of them"),
        ErrorSample((x, at), {"order": 1, "mode": "edge"}, ArgumentError, "not one of them"),
        ErrorSample((x, np.zeros((3, 5))), {"order": 1}, ShapeError, "coordinates of 3 axes"),
        ErrorSample((x, 0.5), {"order": 1}, ShapeError, "coordinates of no axes"),
        ErrorSample((x[:0], at), {"order": 1}, ShapeError, "leave no points"),
    ]


def _grid_reference(x, grid, mode, padding_mode, align_corners):
    found = np.zeros((*grid.shape[:-1], x.shape[-1]), x.dtype)
    for n, *at in np.ndindex(grid.shape[:-1]):
        place = []
        for c, size in zip(grid[(n, *at)][::-1].astype(float), x.shape[1:-1], strict=True):
            place.append((c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2)
        beside = BESIDE[padding_mode, align_corners]
        found[(n, *at)] = value_at(x[n], place, METHODS[mode], beside)
    return found


def _grid_samples(rng, dtype):
    found = []
    for shape, out, mode, padding_mode, align_corners in (
        ((2, 4, 3, 2), (3, 2), "bilinear", "zeros", False),
        ((2, 4, 3, 2), (3, 2), "bilinear", "border", True),
        ((1, 4, 5, 2), (2, 3), "bilinear", "reflection", False),
        ((1, 4, 5, 1), (2, 3), "nearest", "zeros", True),
        ((1, 4, 5, 1), (2, 3), "nearest", "reflection", True),
        ((1, 4, 5, 2), (2, 2), "bicubic", "zeros", False),
        ((1, 4, 5, 1), (2, 2), "bicubic", "border", True),
        ((1, 2, 3, 1), (2, 2), "bicubic", "reflection", False),
        ((2, 2, 3, 2, 1), (2, 1, 2), "bilinear", "zeros", False),
        ((1, 3, 2, 2, 2), (1, 2, 2), "nearest", "border", False),
        ((1, 3, 2), (4,), "bilinear", "reflection", True),
        ((0, 3, 2, 1), (2, 2), "bilinear", "zeros", False),
    ):
        grid = rng.uniform(-1.6, 1.6, (shape[0], *out, len(out))).astype(promoted(dtype))
        more = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
        found.append(Sample((make(rng, dtype, shape), grid), more))
    return found


def _grid_errors(rng):
    x, grid = rng.standard_normal((2, 3, 4, 1)), np.zeros((2, 5, 5, 2))
    return [
        ErrorSample((x, grid), {"mode": "cubic"}, ArgumentError, "not one of them"),
        ErrorSample((x, grid), {"padding_mode": "edge"}, ArgumentError, "not one of them"),
        ErrorSample((x, grid[..., :1]), {}, ShapeError, "a grid of shape"),
        ErrorSample((x, grid[:1]), {}, ShapeError, "a grid of shape"),
        ErrorSample((x[:, :0], grid), {}, ShapeError, "leave no points"),
        ErrorSample((x[0, 0], grid), {}, ShapeError, "too few"),
    ]


def _affine_reference(theta, size, align_corners):
    found = np.zeros((len(theta), *size, len(size)), theta.dtype)
    for n, *at in np.ndindex(found.shape[:-1]):
        place = [
            0.0
            if align_corners and m == 1
            else 2 * i / (m - 1) - 1
            if align_corners
            else (2 * i + 1) / m - 1
            for i, m in zip(at, size, strict=True)
        ]
        found[(n, *at)] = theta[n] @ [*place[::-1], 1.0]
    return found


def _affine_samples(rng, dtype):
    return [
        Sample(
            (make(rng, dtype, (n, len(size), len(size) + 1)),), {"size": size, "align_corners": a}
        )
        for n, size in ((2, (3, 4)), (1, (2, 3, 2)), (2, (5,)), (1, (1, 3)), (0, (2, 2)))
        for a in (False, True)
    ]


CASES = {
    "map_coordinates": Cases(samples=_map_samples, errors=_map_errors, reference=_map_reference),
    "grid_sample": Cases(samples=_grid_samples, errors=_grid_errors, reference=_grid_reference),
    "affine_grid": Cases(
        samples=_affine_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((1, 2, 2)),), {"size": (3, 4)}, ShapeError, "theta has shape"),
            ErrorSample((np.ones((2, 3)),), {"size": (3, 4)}, ShapeError, "theta has shape"),
            ErrorSample((np.ones((1, 2, 3)),), {"size": (3, -1)}, ShapeError, "too small"),
        ],
        reference=_affine_reference,
    ),
}
