"""Images, volumes and other grids sampled at given positions."""

from __future__ import annotations

import itertools
import math
from operator import index
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.images.sampling import (
    MODES,
    check_places,
    places_dtype,
    sampled,
)
from eagerflow.ops.images.splines import spline_coefficients
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.operands import chosen
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.repeating import meshgrid
from eagerflow.ops.shapes.reshaping import matrix_transpose, reshape
from eagerflow.primitives.windows import differ, sizes_of, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["affine_grid", "grid_sample", "map_coordinates"]

ORDERS = {0: "nearest", 1: "linear", 3: "spline"}

# References ---------------------------------------------------------------------------------------


def _fixed(p: int, n: int, mode: str) -> int | None:
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


def _weights(f: float, method: str) -> dict[int, float]:
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


def value_at(x: Any, place: Any, method: str, mode: str, cval: float = 0.0) -> Any:
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


# SciPy's ------------------------------------------------------------------------------------------


def _map_reference(x: Any, coordinates: Any, order: int, mode: str, cval: float) -> Any:
    rank = len(coordinates)
    found = np.zeros((*coordinates.shape[1:], *x.shape[rank:]), x.dtype)
    for at in np.ndindex(coordinates.shape[1:]):
        found[at] = value_at(x, coordinates[(slice(None), *at)], ORDERS[order], mode, cval)
    return found


def _map_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    def of(shape: Any, places: Any, **more: Any) -> Sample:
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


def promoted(dtype: Any) -> Any:
    """The dtype of positions for samples: float64 with float64."""
    return "float64" if dtype == np.dtype("float64") else "float32"


def _map_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x, at = rng.standard_normal((3, 4)), np.zeros((2, 5))
    return [
        ErrorSample((x, at), {"order": 2}, ArgumentError, "not one of them"),
        ErrorSample((x, at), {"order": 1, "mode": "edge"}, ArgumentError, "not one of them"),
        ErrorSample((x, np.zeros((3, 5))), {"order": 1}, ShapeError, "coordinates of 3 axes"),
        ErrorSample((x, 0.5), {"order": 1}, ShapeError, "coordinates of no axes"),
        ErrorSample((x[:0], at), {"order": 1}, ShapeError, "leave no points"),
    ]


@composed(
    samples=_map_samples, reference=_map_reference, errors=_map_errors, dtypes=FLOATS, singular=True
)
def map_coordinates(
    x: Any, coordinates: Any, /, order: int, mode: str = "constant", cval: float = 0.0
) -> Tensor:
    """Values of a tensor at positions between its elements, like SciPy's function of this name.

    ``coordinates`` (axes, *out) has the positions along each of the first axes of ``x``, in
    elements; further axes of ``x`` stay whole, after those of ``out``. ``order`` is 0 (nearest), 1
    (linear) or 3 (cubic splines). ``mode`` extends the elements, in SciPy's terms: ``"constant"``
    (``cval`` for positions outside), ``"grid-constant"`` (``cval`` at all points outside),
    ``"nearest"``, ``"mirror"``, ``"reflect"``, ``"wrap"`` or ``"grid-wrap"``. Raises ShapeError for
    shapes that do not fit, and axes without elements, ArgumentError for other choices.

    >>> x = ef.tensor([0.0, 10.0, 20.0])
    >>> ef.map_coordinates(x, [[0.5, 1.0, 1.25, 3.0]], order=1)
    Tensor([ 5. , 10. , 12.5,  0. ], float32, cpu:0)
    """
    chosen(order, "order", tuple(ORDERS))
    chosen(mode, "mode", MODES)
    rank = index(coordinates.shape[0]) if coordinates.ndim else 0
    if not 1 <= rank <= x.ndim:
        raise ShapeError(
            f"there are coordinates of {rank or 'no'} axes, x has {x.ndim}",
            argument="coordinates",
            expected="a tensor (axes, *out)",
        )
    out, points, rest = coordinates.shape[1:], x.shape[:rank], x.shape[rank:]
    check_places(points)
    at = reshape(astype(coordinates, places_dtype(x, coordinates)), (rank, 1, product(out)))
    whole = reshape(x, (1, *points, product(rest)))
    places = [at[i] for i in range(rank)]
    if order == 3:
        whole, places = spline_coefficients(whole, places, mode, cval)
    found = astype(sampled(whole, places, ORDERS[order], mode, cval), x.dtype)
    return reshape(found, (*out, *rest))


# PyTorch's ----------------------------------------------------------------------------------------

_METHODS = {"bilinear": "linear", "nearest": "nearest-even", "bicubic": "cubic"}
_BESIDE = {
    ("zeros", True): "grid-constant",
    ("zeros", False): "grid-constant",
    ("border", True): "nearest",
    ("border", False): "nearest",
    ("reflection", True): "mirror",
    ("reflection", False): "reflect",
}


def _grid_reference(x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
    found = np.zeros((*grid.shape[:-1], x.shape[-1]), x.dtype)
    for n, *at in np.ndindex(grid.shape[:-1]):
        place = []
        for c, size in zip(grid[(n, *at)][::-1].astype(float), x.shape[1:-1], strict=True):
            place.append((c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2)
        beside = _BESIDE[padding_mode, align_corners]
        found[(n, *at)] = value_at(x[n], place, _METHODS[mode], beside)
    return found


def _grid_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
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


def _grid_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x, grid = rng.standard_normal((2, 3, 4, 1)), np.zeros((2, 5, 5, 2))
    return [
        ErrorSample((x, grid), {"mode": "cubic"}, ArgumentError, "not one of them"),
        ErrorSample((x, grid), {"padding_mode": "edge"}, ArgumentError, "not one of them"),
        ErrorSample((x, grid[..., :1]), {}, ShapeError, "a grid of shape"),
        ErrorSample((x, grid[:1]), {}, ShapeError, "a grid of shape"),
        ErrorSample((x[:, :0], grid), {}, ShapeError, "leave no points"),
        ErrorSample((x[0, 0], grid), {}, ShapeError, "too few"),
    ]


@composed(
    samples=_grid_samples,
    reference=_grid_reference,
    errors=_grid_errors,
    dtypes=FLOATS,
    singular=True,
)
def grid_sample(
    x: Any,
    grid: Any,
    /,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Channels-last images sampled at the positions of a grid, like PyTorch's function of this
    name.

    ``x`` is (batch, *spatial, channels), with any number of spatial axes, ``grid`` (batch, *out,
    axes) has positions from -1 to 1, columns before rows before planes; the result is (batch, *out,
    channels). ``mode`` is ``"bilinear"``, ``"nearest"`` or ``"bicubic"`` (a = -0.75). The image is
    extended by ``"zeros"``, its ``"border"``, or its ``"reflection"``. With ``align_corners`` -1
    and 1 are the centers of the first and the last pixel, otherwise their outer edges. Gradients
    pass to both. Raises ShapeError for shapes that do not fit, ArgumentError for other choices.

    >>> x = ef.tensor([0.0, 10.0, 20.0]).reshape((1, 1, 3, 1))
    >>> grid = ef.tensor([[-0.5, 0.0], [1.0, 0.0]]).reshape((1, 1, 2, 2))
    >>> ef.grid_sample(x, grid, align_corners=True).reshape((-1,))
    Tensor([ 5., 20.], float32, cpu:0)
    """
    chosen(mode, "mode", tuple(_METHODS))
    chosen(padding_mode, "padding_mode", ("zeros", "border", "reflection"))
    rank = spatial_rank(x, "x")
    wanted = (x.shape[0], rank)
    if grid.ndim != rank + 2 or differ((grid.shape[0], grid.shape[-1]), wanted):
        raise ShapeError(
            f"a grid of shape {grid.shape} was given for x of shape {x.shape}",
            argument="grid",
            expected=f"({x.shape[0]}, *out, {rank}), as many axes as x",
        )
    check_places(x.shape[1:-1])
    grid = astype(grid, places_dtype(x, grid))
    out, places = grid.shape[1:-1], []
    for i, n in enumerate(x.shape[1:-1]):
        c = reshape(grid[..., rank - 1 - i], (grid.shape[0], product(out)))
        places.append((c + 1) * ((n - 1) / 2) if align_corners else ((c + 1) * n - 1) / 2)
    found = sampled(x, places, _METHODS[mode], _BESIDE[padding_mode, bool(align_corners)])
    return reshape(found, (x.shape[0], *out, x.shape[-1]))


def _affine_reference(theta: Any, size: Any, align_corners: bool) -> Any:
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


def _affine_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        Sample(
            (make(rng, dtype, (n, len(size), len(size) + 1)),), {"size": size, "align_corners": a}
        )
        for n, size in ((2, (3, 4)), (1, (2, 3, 2)), (2, (5,)), (1, (1, 3)), (0, (2, 2)))
        for a in (False, True)
    ]


@composed(
    samples=_affine_samples,
    reference=_affine_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((1, 2, 2)),), {"size": (3, 4)}, ShapeError, "theta has shape"),
        ErrorSample((np.ones((2, 3)),), {"size": (3, 4)}, ShapeError, "theta has shape"),
        ErrorSample((np.ones((1, 2, 3)),), {"size": (3, -1)}, ShapeError, "too small"),
    ],
    dtypes=FLOATS,
)
def affine_grid(theta: Any, /, size: Any, align_corners: bool = False) -> Tensor:
    """The grid for ``grid_sample`` that turns, scales and shifts images.

    ``theta`` (batch, axes, axes + 1) has a matrix, and a shift in its last column, for positions
    from -1 to 1, columns before rows; ``size`` are the spatial sizes of the result. The grid is
    (batch, *size, axes). Raises ShapeError for shapes that do not fit.

    >>> ef.affine_grid(ef.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 2))
    Tensor([[[[0., 0.],
              [1., 0.]]]], shape=(1, 1, 2, 2), float32, cpu:0)
    """
    rank = len(size) if isinstance(size, tuple | list) else 2
    if theta.ndim != 3 or tuple(map(index, theta.shape[1:])) != (rank, rank + 1):
        raise ShapeError(
            f"theta has shape {theta.shape}, for {rank} spatial axes",
            argument="theta",
            expected=f"(batch, {rank}, {rank + 1})",
        )
    sizes = sizes_of(size, rank)
    wide = places_dtype(theta, theta)
    lines = [_line(n, align_corners, wide, theta.device) for n in sizes]
    places = [reshape(a, (-1,)) for a in meshgrid(*lines, indexing="ij")]
    points = stack([*places[::-1], places[0] * 0 + 1], axis=-1)
    found = matmul(points, matrix_transpose(astype(theta, wide)))
    return astype(reshape(found, (theta.shape[0], *sizes, rank)), theta.dtype)


def _line(n: Any, align_corners: bool, dtype: Any, device: Any) -> Any:
    """The positions of n elements from -1 to 1."""
    steps = arange(n, dtype=dtype, device=str(device))
    if not align_corners:
        return (steps * 2 + 1) / n - 1
    return steps * 0 if isinstance(n, int) and n == 1 else steps * 2 / (n - 1) - 1
