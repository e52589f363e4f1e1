"""Pooling beyond ``max_pool`` and ``avg_pool``: positions of maxima, and norms."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.powers import pow as power
from eagerflow.ops.elementwise.selection import where as chosen
from eagerflow.ops.nn.pooling import avg_pool, max_pool, max_pool_gather
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.primitives.windows import differ, per_axis, sizes_of, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["lp_pool", "max_pool_with_indices", "max_unpool"]

_EXACT = 1 << 24
"""Integers up to which float32 is exact."""


def positions_of(x: Any) -> Any:
    """The number of each spatial element, in the shape of x, in floats that hold it."""
    count = product(x.shape[1:-1])
    wide = isinstance(count, int) and count <= _EXACT
    line = arange(count, dtype="float32" if wide else "float64", device=str(x.device))
    return broadcast_to(reshape(line, (1, *x.shape[1:-1], 1)), x.shape)


# Places of the largest ----------------------------------------------------------------------------


@composed(
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


@composed(
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


@composed(
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
