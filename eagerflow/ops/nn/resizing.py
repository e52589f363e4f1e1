"""Resizing of images, signals and volumes, and its transpose.

Along each axis an element of the result is a sum of a few elements of the input, with weights that
the two sizes and the method decide. The transposed op has the same form, with other weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.attributes import Sizes
from eagerflow.ops.family import FLOATS, Batch, Split, define
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.samples import make
from eagerflow.primitives.windows import sizes_of, spatial_rank
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["resize", "resize_gradient"]

# Weights -----------------------------------------------------------------------------------------


def _triangle(x: Any) -> Any:
    return np.maximum(1 - x, 0)


def _cubic(x: Any) -> Any:
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Any], Any]:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0)


_KERNELS: dict[str, Callable[[Any], Any]] = {
    "bilinear": _triangle,
    "bicubic": _cubic,
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}
"""What an element at this distance from the middle of a new one counts."""
METHODS = ("nearest", "mean", *_KERNELS)


def _weights(size: int, new: int, method: str, antialias: bool) -> Any:
    """What each of the ``size`` elements counts in each of the ``new`` ones: (new, size)."""
    row, column = np.arange(new)[:, None], np.arange(size)
    if method == "nearest":
        return (column == (2 * row + 1) * size // (2 * new)).astype(float)
    if method == "mean":
        inside = (row * size // new <= column) & (column < -(-(row + 1) * size // new))
        return inside / inside.sum(1, keepdims=True)
    ratio = size / new
    spread = max(ratio, 1.0) if antialias else 1.0
    weights = _KERNELS[method](np.abs((row + 0.5) * ratio - 0.5 - column) / spread)
    weights[np.abs(weights) < 1e-12] = 0  # sinc is not exactly 0 where it should be
    return weights / weights.sum(1, keepdims=True)


@lru_cache(256)
def _terms(size: int, new: int, method: str, antialias: bool, transposed: bool) -> Any:
    """For each element of the result, which others it is the sum of, and their weights."""
    weights = _weights(size, new, method, antialias)
    if transposed:
        weights = weights.T
    count = max(1, int((weights != 0).sum(1).max(initial=0)))
    index = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(weights, index, 1)


def _resized(xp: Namespace, x: Any, sizes: Any, method: str, antialias: bool, back: bool) -> Any:
    """All spatial axes one after another, in float32 at least; ``back`` is the transposed map."""
    y = xp.astype(x, xp.float32) if x.dtype.itemsize < 4 else x
    for axis, new in enumerate(sizes, 1):
        old = y.shape[axis]
        if old != new:
            index, weights = _terms(*((new, old) if back else (old, new)), method, antialias, back)
            along = (-1, *(1,) * (x.ndim - 1 - axis))
            terms = (
                xp.take(y, xp.asarray(i), axis=axis)
                * xp.reshape(xp.asarray(w, dtype=y.dtype), along)
                for i, w in zip(index.T, weights.T, strict=True)
            )
            y = reduce(xp.add, terms)
    return xp.astype(y, x.dtype)


# Shapes ------------------------------------------------------------------------------------------


def _spec(
    x: TensorSpec, size: Any, method: str = "bilinear", antialias: bool = False
) -> TensorSpec:
    sizes = sizes_of(size, spatial_rank(x, "x"))
    if method not in METHODS:
        raise ShapeError(
            f"{method!r} is not a method",
            argument="method",
            expected="one of " + ", ".join(METHODS),
        )
    for what, given in (("x", x.shape[1:-1]), ("size", sizes)):
        if any(isinstance(n, int) and n < 1 for n in given):
            raise ShapeError(
                f"the sizes {tuple(given)} leave no elements", argument=what, expected="at least 1"
            )
    return x.like((x.shape[0], *sizes, x.shape[-1]))


# Samples and references --------------------------------------------------------------------------

_CASES: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    ((2, 4, 3), 8, {}),
    ((1, 5, 4, 2), (3, 7), {}),
    ((1, 5, 4, 2), (3, 7), {"method": "nearest"}),
    ((2, 5, 7, 1), (2, 3), {"method": "mean"}),
    ((1, 3, 2, 2), (5, 3), {"method": "mean"}),
    ((1, 6, 5, 1), (3, 4), {"method": "bicubic"}),
    ((1, 4, 5, 1), (7, 2), {"method": "lanczos3", "antialias": True}),
    ((1, 9, 2), 4, {"method": "lanczos5"}),
    ((1, 9, 2), 4, {"antialias": True}),
    ((1, 2, 3, 2, 2), (3, 2, 4), {}),
    ((1, 1, 1), 3, {}),
    ((0, 4, 4, 1), (2, 2), {}),
)


def _samples(back: bool) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = []
        for shape, size, more in _CASES:
            sizes = _spec(TensorSpec(shape, dtype), size).shape
            given, new = (sizes, shape[1:-1]) if back else (shape, size)
            found.append(Sample((make(rng, dtype, given),), {"size": new} | more))
        x = make(rng, dtype, (3, 4, 5, 2))
        return [*found, *(Sample((a,), {"size": (4, 6)}) for a in (x.T, x[:, ::-1, ::2]))]

    return samples


def _errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 4, 4, 3))
    bad: list[tuple[Any, dict[str, Any], str]] = [
        (x, {"size": 0}, "no elements"),
        (x[:, :0], {"size": 3}, "no elements"),
        (x, {"size": (2, 2, 2)}, "for each spatial axis"),
        (x, {"size": 2.5}, "for each spatial axis"),
        (x, {"size": 2, "method": "cubic"}, "is not a method"),
        (x[0, 0], {"size": 2}, "too few"),
    ]
    return [ErrorSample((a,), more, ShapeError, words) for a, more, words in bad]


def _weight(distance: float, method: str) -> float:
    """The weight of one element, by the formulas of the methods."""
    x = abs(distance)
    if method == "bilinear":
        return max(0.0, 1 - x)
    if method == "bicubic":
        a = -0.5
        if x < 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0
    radius = int(method[-1])
    if x >= radius or x == 0:
        return float(x == 0)
    return radius * math.sin(math.pi * x) * math.sin(math.pi * x / radius) / (math.pi * x) ** 2


def _row(values: Any, new: int, method: str, antialias: bool) -> list[float]:
    """One row of elements resized, element by element."""
    size, found = len(values), []
    for i in range(new):
        middle = (i + 0.5) * size / new
        if method == "nearest":
            weights = [float(j == math.floor(middle)) for j in range(size)]
        elif method == "mean":
            edges = math.floor(i * size / new), math.ceil((i + 1) * size / new)
            weights = [float(edges[0] <= j < edges[1]) for j in range(size)]
        else:
            spread = max(size / new, 1) if antialias else 1
            weights = [_weight((middle - j - 0.5) / spread, method) for j in range(size)]
        found.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
    return found


def _reference(back: bool) -> Callable[..., Any]:
    def reference(x: Any, size: Any, method: str, antialias: bool) -> Any:
        y = x
        for axis in range(1, x.ndim - 1):
            new = size[axis - 1] if isinstance(size, tuple) else size
            old, aim = (new, x.shape[axis]) if back else (x.shape[axis], new)
            matrix = np.array([_row(unit, aim, method, antialias) for unit in np.eye(old)])
            y = np.moveaxis(np.tensordot(y, matrix.T if back else matrix, (axis, 0)), -1, axis)
        return y

    return reference


# The ops -----------------------------------------------------------------------------------------


def _op(back: bool, **facts: Any) -> Any:
    return define(
        "contraction",
        dtypes=FLOATS,
        infer=_spec,
        jvp="linear",
        batch=Batch(
            lambda call, args, batched, size, /, **more: call_merged(
                call, args, batched, size, (0,), (0,), **more
            )
        ),
        split=lambda x, **attributes: [Split((i,), i) for i in (0, x.ndim - 1)],
        samples=_samples(back),
        errors=_errors,
        reference=_reference(back),
        ulp=64,  # sums of many products, in another order
        threaded=False,
        **facts,
    )


@_op(
    False,
    vjp=(lambda g, y, x, size, **more: resize_gradient(g, size=x.shape[1:-1], **more),),
)
def resize(
    xp: Namespace, x: Array, /, size: Sizes, method: str = "bilinear", antialias: bool = False
) -> Array:
    """Channels-last images, or signals or volumes, with other spatial sizes.

    ``x`` is (batch, *spatial, channels) and ``size`` an integer or one for each spatial axis.
    Pixels are areas: the middle of element i of n lies at ``(i + 0.5) / n`` of the axis.
    ``method`` is ``"nearest"``; ``"bilinear"``; ``"bicubic"`` (Keys, 1981, with a = -0.5);
    ``"lanczos3"`` or ``"lanczos5"``; or ``"mean"``, of all elements that a new one covers at least
    in part. With ``antialias`` the last but ``"mean"`` and ``"nearest"`` look at all that a smaller
    image leaves out. Raises ShapeError where sizes do not fit or there is no such method.

    >>> x = ef.tensor([0.0, 4.0]).reshape((1, 2, 1))
    >>> ef.resize(x, 4).reshape((-1,))
    Tensor([0., 1., 3., 4.], float32, cpu:0)
    """
    return _resized(xp, x, sizes_of(size, x.ndim - 2), method, antialias, False)


@_op(
    True,
    vjp=(lambda t, y, g, size, **more: resize(t, size=g.shape[1:-1], **more),),
)
def resize_gradient(
    xp: Namespace, g: Array, /, size: Sizes, method: str = "bilinear", antialias: bool = False
) -> Array:
    """Gradient of ``resize``: each element of ``g``, shared by those that it was made of.

    ``size`` gives the spatial sizes of what was resized (an integer or one for each axis); all
    else is as in ``resize``. Raises ShapeError where sizes do not fit.

    >>> ef.resize_gradient(ef.ones((1, 4, 1)), 2).reshape((-1,))
    Tensor([2., 2.], float32, cpu:0)
    """
    return _resized(xp, g, sizes_of(size, g.ndim - 2), method, antialias, True)
