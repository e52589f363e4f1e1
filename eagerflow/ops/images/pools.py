"""Pooling beyond ``max_pool`` and ``avg_pool``: positions of maxima, and norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import ErrorSample, Sample, ops
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.powers import pow as power
from eagerflow.ops.elementwise.selection import where as chosen
from eagerflow.ops.nn.pooling import avg_pool, max_pool, max_pool_gather
from eagerflow.ops.samples import distinct, make
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.primitives.windows import differ, per_axis, sizes_of, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["lp_pool", "max_pool_with_indices", "max_unpool"]

_EXACT = 1 << 24
"""Integers up to which float32 is exact."""
_CASES: tuple[tuple[Any, dict[str, Any]], ...] = (
    ((2, 4, 4, 2), {"window": 2}),
    ((1, 5, 4, 1), {"window": 2, "ceil_mode": True}),
    ((1, 5, 5, 1), {"window": 3, "strides": 2, "padding": "same"}),
    ((1, 6, 5, 2), {"window": (3, 2), "strides": 1, "dilation": (1, 2)}),
    ((2, 6, 1), {"window": 2, "padding": 1}),
    ((1, 4, 2, 3, 1), {"window": (2, 2, 1)}),
    ((0, 4, 4, 2), {"window": 2}),
)


def _reference_of(op: str) -> Any:
    return ops[op].reference


def _windows_samples(**more: Any) -> Any:
    return lambda rng, dtype: [
        Sample((distinct(rng, dtype, shape),), given | more) for shape, given in _CASES
    ]


def positions_of(x: Any) -> Any:
    """The number of each spatial element, in the shape of x, in floats that hold it."""
    count = product(x.shape[1:-1])
    wide = isinstance(count, int) and count <= _EXACT
    line = arange(count, dtype="float32" if wide else "float64", device=str(x.device))
    return broadcast_to(reshape(line, (1, *x.shape[1:-1], 1)), x.shape)


# Places of the largest ----------------------------------------------------------------------------


def _indices_reference(x: Any, **where: Any) -> Any:
    pool, gather = _reference_of("max_pool"), _reference_of("max_pool_gather")
    numbers = np.arange(math.prod(x.shape[1:-1]), dtype=float).reshape((1, *x.shape[1:-1], 1))
    wide, whole = x.astype(float), _DEFAULTS | where
    places = gather(wide, np.broadcast_to(numbers, x.shape), **whole)
    return pool(wide, **whole), places.astype(np.int64)


_DEFAULTS = {"strides": None, "padding": "valid", "dilation": 1, "ceil_mode": False}


@composed(
    samples=_windows_samples(),
    reference=_indices_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 5, 5, 1)),), {"window": 6}, ShapeError, "does not fit"),
        ErrorSample((np.ones((2, 5, 5, 1)),), {"window": 0}, ShapeError, "too small"),
        ErrorSample((np.ones((2, 5)),), {"window": 2}, ShapeError, "too few"),
    ],
    dtypes=FLOATS,
)
def max_pool_with_indices(
    x: Any,
    /,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its index: ``(values, indices)``.

    The arguments are those of ``max_pool``. ``indices`` are int64 numbers of elements among all
    spatial ones of the same image and channel, row after row, as in PyTorch; of equal elements the
    first one counts. Raises ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> [y.reshape((-1,)) for y in ef.max_pool_with_indices(x, 2)]
    [Tensor([5., 4.], float32, cpu:0), Tensor([1, 3], int64, cpu:0)]
    """
    where = {"strides": strides, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    spatial_rank(x, "x")
    values, numbers = max_pool(x, window, **where), positions_of(x)
    own = astype(stop_gradient(x), numbers.dtype)
    return values, astype(max_pool_gather(own, numbers, window, **where), "int64")


def _unpool_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for shape, where in _CASES:
        values, indices = _indices_reference(distinct(rng, np.dtype("float64"), shape), **where)
        if where.get("strides") is None:  # otherwise windows may share their largest element
            args = make(rng, dtype, values.shape), indices
            found.append(Sample(args, {"size": shape[1:-1]}))
    found.append(Sample((make(rng, dtype, (1, 2, 1)), np.array([[[3], [1]]])), {"size": 4}))
    return found


def _unpool_reference(x: Any, indices: Any, size: Any) -> Any:
    sizes = size if isinstance(size, tuple) else (size,) * (x.ndim - 2)
    found = np.zeros((len(x), math.prod(sizes), x.shape[-1]), x.dtype)
    for n, *at, c in np.ndindex(x.shape):
        found[n, indices[(n, *at, c)], c] = x[(n, *at, c)]
    return found.reshape((len(x), *sizes, x.shape[-1]))


@composed(
    samples=_unpool_samples,
    reference=_unpool_reference,
    errors=lambda rng: [
        ErrorSample(
            (np.ones((1, 2, 1)), np.ones((1, 3, 1), int)), {"size": 4}, ShapeError, "shape"
        ),
        ErrorSample((np.ones((1, 2, 1)), np.ones((1, 2, 1))), {"size": 4}, DTypeError, "indices"),
        ErrorSample((np.ones((1, 2)), np.ones((1, 2), int)), {"size": 4}, ShapeError, "too few"),
    ],
    dtypes=FLOATS,
)
def max_unpool(x: Any, indices: Any, /, size: Any) -> Tensor:
    """Elements scattered to the indices from ``max_pool_with_indices``, with zeros elsewhere.

    ``x`` is (batch, *spatial, channels), ``indices`` of the same shape, ``size`` has the spatial
    sizes of the result. Of several elements with one index the last stays. Raises ShapeError for
    mismatched shapes, IndexRangeError for indices out of range.

    >>> ef.max_unpool(ef.tensor([[[5.0], [4.0]]]), ef.tensor([[[1], [3]]]), 4).reshape((-1,))
    Tensor([0., 5., 0., 4.], float32, cpu:0)
    """
    sizes = sizes_of(size, spatial_rank(x, "x"))
    if differ(x.shape, indices.shape):
        raise ShapeError(
            f"indices have shape {indices.shape}, x has {x.shape}",
            argument="indices",
            expected="equal shapes",
        )
    if indices.dtype.kind not in "iu":
        raise DTypeError(
            f"{indices.dtype.name} values cannot be indices",
            argument="indices",
            expected="integers",
        )
    batch, channels, count = x.shape[0], x.shape[-1], product(x.shape[1:-1])
    rows = reshape(arange(batch, device=str(x.device)), (batch, 1, 1))
    columns = arange(channels, device=str(x.device))
    flat = (reshape(a, (batch, count, channels)) for a in (x, indices))
    values, places = flat
    blank = zeros((batch, product(sizes), channels), x.dtype, str(x.device))
    return reshape(blank.at[rows, places, columns].set(values), (batch, *sizes, channels))


# Norms --------------------------------------------------------------------------------------------


def _norm_reference(x: Any, norm_type: float, window: Any, **where: Any) -> Any:
    mean = _reference_of("avg_pool")(
        np.abs(x.astype(float)) ** norm_type, window=window, **_DEFAULTS | where
    )
    count = math.prod(window) if isinstance(window, tuple) else window ** (x.ndim - 2)
    return (mean * count) ** (1 / norm_type)


@composed(
    samples=lambda rng, dtype: (
        [
            Sample(args, {"norm_type": p} | more)
            for p, (args, more) in zip(
                (2, 3, 1.5, 1, 2, 2.5), _windows_samples()(rng, dtype), strict=False
            )
            if more.get("padding") is None
        ]
        + [
            Sample((distinct(rng, dtype, (2, 4, 2)),), {"norm_type": 2, "window": w})
            for w in (1, 2, 3)
        ]
    ),
    reference=_norm_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 5, 1)),), {"norm_type": 2, "window": 6}, ShapeError, "not fit"),
        ErrorSample((np.ones((2, 5, 1)),), {"norm_type": 0, "window": 2}, ShapeError, "norm_type"),
        ErrorSample((np.ones((2, 5)),), {"norm_type": 2, "window": 2}, ShapeError, "too few"),
    ],
    dtypes=FLOATS,
    singular=True,
)
def lp_pool(
    x: Any,
    /,
    norm_type: float,
    window: Any,
    strides: Any = None,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of channels-last images, signals or volumes.

    ``norm_type`` is p, above 0; the rest is as in ``max_pool``. In a window that exceeds the image,
    the rest is replaced by the mean of its elements, as in PyTorch. Raises ShapeError where shapes
    or attributes do not fit.

    >>> ef.lp_pool(ef.tensor([3.0, 4.0, 0.0, 1.0]).reshape((1, 4, 1)), 2, 2).reshape((-1,))
    Tensor([5., 1.], float32, cpu:0)
    """
    if not norm_type > 0:
        raise ShapeError(f"{norm_type!r} is no norm_type", argument="norm_type", expected="above 0")
    count = math.prod(per_axis(window, spatial_rank(x, "x"), "window"))
    wide = astype(x, "float32") if x.dtype.itemsize < 4 else x
    mean = avg_pool(
        power(magnitude(wide), norm_type), window, strides, dilation=dilation, ceil_mode=ceil_mode
    )
    safe = chosen(equal(mean, 0), 1, mean)  # the root of 0 has no slope
    root = power(safe * count, 1 / norm_type)
    return astype(chosen(equal(mean, 0), 0, root), x.dtype)
