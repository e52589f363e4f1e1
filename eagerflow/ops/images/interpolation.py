"""Resizing in PyTorch's words, and by factors and shifts that may be tensors."""

from __future__ import annotations

import math
from operator import index
from types import SimpleNamespace
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.comparison import equal, logical_and
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.elementwise.trigonometric import sin
from eagerflow.ops.images.sampling import check_places
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.nn.resizing import KERNELS, resize
from eagerflow.ops.operands import chosen
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.ops.shapes.reshaping import moveaxis
from eagerflow.primitives.windows import sizes_of, spatial_rank
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["interpolate", "scale_and_translate"]

# PyTorch's ----------------------------------------------------------------------------------------

_LINEAR = ("linear", "bilinear", "trilinear")
_MODES = ("nearest", "nearest-exact", "area", "bicubic", *_LINEAR)


def interpolation_of(mode: str, align_corners: bool, antialias: bool) -> dict[str, Any]:
    """The attributes of ``resize`` for a mode."""
    coordinates = "align_corners" if align_corners else "half_pixel"
    if mode == "nearest":
        return {"method": "nearest", "coordinates": "asymmetric"}
    if mode == "nearest-exact":
        return {"method": "nearest"}
    if mode == "area":
        return {"method": "mean"}
    own = {"coordinates": coordinates, "antialias": antialias, "method": mode}
    if mode == "bicubic" and not antialias:
        own |= {"a": -0.75, "edge": True}
    return own


def sizes_and_factors(x: Any, size: Any, scale_factor: Any) -> tuple[tuple[Any, ...], Any]:
    """The sizes of the result, and the factor for each axis, if these are given."""
    rank = spatial_rank(x, "x")
    if (size is None) == (scale_factor is None):
        raise ShapeError(
            "either the sizes or the factors are needed",
            argument="size",
            expected="size=... or scale_factor=...",
        )
    if size is not None:
        return sizes_of(size, rank), None
    given = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * rank
    if len(given) != rank or not all(type(s) in (int, float) and 1e-6 < s < 1e6 for s in given):
        raise ShapeError(
            f"{scale_factor!r} is not a factor for each spatial axis",
            argument="scale_factor",
            expected=f"a number above 0, or {rank} of them",
        )
    scales = tuple(map(float, given))
    sizes = tuple(
        n * int(s) if s.is_integer() else math.floor(index(n) * s)
        for n, s in zip(x.shape[1:-1], scales, strict=True)
    )
    return sizes, scales


@composed(
    dtypes=FLOATS,
)
def interpolate(
    x: Any,
    /,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Channels-last images of another size, as PyTorch's function of this name has it.

    ``x`` is (batch, *spatial, channels); ``size`` an integer or one for each spatial axis, or
    ``scale_factor`` a number or one for each. ``mode`` is ``"nearest"`` (element i is at ``i /
    n``), ``"nearest-exact"``, ``"linear"``, ``"bilinear"``, ``"trilinear"``, ``"bicubic"`` (a =
    -0.75, and -0.5 with ``antialias``) or ``"area"``. With ``recompute_scale_factor`` positions
    depend on the sizes and not on the factor; None means False, as in PyTorch. Raises ShapeError
    for invalid sizes, ArgumentError for unknown modes. ``resize`` has more methods.

    >>> x = ef.tensor([0.0, 4.0]).reshape((1, 2, 1))
    >>> ef.interpolate(x, scale_factor=2, mode="linear").reshape((-1,))
    Tensor([0., 1., 3., 4.], float32, cpu:0)
    """
    chosen(mode, "mode", _MODES)
    sizes, scales = sizes_and_factors(x, size, scale_factor)
    how = interpolation_of(mode, bool(align_corners), bool(antialias))
    if scales is not None and not recompute_scale_factor and mode != "area":
        how["scale"] = scales
    return resize(x, sizes, **how)


# JAX's --------------------------------------------------------------------------------------------

_OPS = SimpleNamespace(maximum=maximum, where=where, sin=sin)
"""The common parts of the kernels of resizing."""


def _matrix(size: Any, new: Any, scale: Any, shift: Any, method: str, antialias: bool) -> Any:
    """The weight of each old element in each new one, (new, size)."""
    step = 1 / scale
    options = {"dtype": scale.dtype, "device": str(scale.device)}
    middle = ((arange(new, **options) + 0.5 - shift) * step - 0.5)[:, None]
    spread = maximum(step, 1) if antialias else 1.0
    distance = magnitude(middle - arange(size, **options)) / spread
    weights = KERNELS[method][1](_OPS, distance, -0.5)
    total = summed(weights, axis=1, keepdims=True)
    inside = logical_and(middle >= -0.5, middle <= size - 0.5)
    none = magnitude(total) <= 1000 * float(np.finfo(np.float32).eps)
    return where(logical_and(inside, equal(none, False)), weights / where(none, 1, total), 0)


@composed(
    dtypes=FLOATS,
    singular=True,
)
def scale_and_translate(
    x: Any,
    scale: Any,
    translation: Any,
    /,
    shape: Any,
    axes: Any,
    method: str = "linear",
    antialias: bool = True,
) -> Tensor:
    """A tensor scaled and shifted along some axes, as JAX has it.

    ``scale`` and ``translation`` are tensors with a number for each of ``axes``, and gradients pass
    to them: the position p, in elements from the edge of the first one, is mapped to ``p * scale +
    translation``. ``shape`` is that of the result, ``method`` one of the interpolating ones of
    ``resize``. Values from outside are 0. Raises ShapeError for shapes that do not fit,
    ArgumentError for other methods.

    >>> x = ef.tensor([1.0, 2.0, 3.0])
    >>> ef.scale_and_translate(x, [2.0], [0.0], (6,), 0)
    Tensor([1.  , 1.25, 1.75, 2.25, 2.75, 3.  ], float32, cpu:0)
    """
    chosen(method, "method", tuple(KERNELS))
    own = normalize_axes(axes, x.ndim)
    new = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    kept = len(new) == x.ndim and all(
        n == m for i, (n, m) in enumerate(zip(new, x.shape, strict=True)) if i not in own
    )
    if not kept:
        raise ShapeError(
            f"the shape {short_repr(new)} differs from x, {x.shape}, beyond the axes {own}",
            argument="shape",
            expected="as many axes, and equal sizes along all others",
        )
    check_places([x.shape[axis] for axis in own])
    wide = promote(x.dtype, np.dtype("float32"))
    numbers = []
    for name, given in (("scale", scale), ("translation", translation)):
        if given.ndim != 1 or (isinstance(given.shape[0], int) and given.shape[0] != len(own)):
            raise ShapeError(
                f"{name} has shape {given.shape}, for {len(own)} axes",
                argument=name,
                expected=f"shape ({len(own)},)",
            )
        numbers.append(astype(given, wide))
    found = astype(x, wide)
    for i, axis in enumerate(own):
        matrix = _matrix(
            x.shape[axis], new[axis], numbers[0][i], numbers[1][i], method, bool(antialias)
        )
        last = matmul(moveaxis(found, axis, -1), moveaxis(matrix, 0, 1))
        found = moveaxis(last, -1, axis)
    return astype(found, x.dtype)
