"""Images, volumes and other grids sampled at given positions."""

from __future__ import annotations

from operator import index
from typing import Any

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.images.sampling import MODES, check_places, places_dtype, sampled
from eagerflow.ops.images.splines import spline_coefficients
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.operands import chosen
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.repeating import meshgrid
from eagerflow.ops.shapes.reshaping import matrix_transpose, reshape
from eagerflow.primitives.windows import differ, sizes_of, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["affine_grid", "grid_sample", "map_coordinates"]

ORDERS = {0: "nearest", 1: "linear", 3: "spline"}

# References ---------------------------------------------------------------------------------------


# SciPy's ------------------------------------------------------------------------------------------


@composed(dtypes=FLOATS, singular=True)
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

METHODS = {"bilinear": "linear", "nearest": "nearest-even", "bicubic": "cubic"}
BESIDE = {
    ("zeros", True): "grid-constant",
    ("zeros", False): "grid-constant",
    ("border", True): "nearest",
    ("border", False): "nearest",
    ("reflection", True): "mirror",
    ("reflection", False): "reflect",
}


@composed(
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
    chosen(mode, "mode", tuple(METHODS))
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
    found = sampled(x, places, METHODS[mode], BESIDE[padding_mode, bool(align_corners)])
    return reshape(found, (x.shape[0], *out, x.shape[-1]))


@composed(
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
