"""The functions of ``keras.ops.numpy`` that reduce, sort, count or search along axes."""

import builtins
import math

import eagerflow as ef
from eagerflow.errors import CaptureError
from eagerflow.keras.backend.numpy_elementwise import maximum, minimum
from eagerflow.keras.backend.operands import (
    axes_of,
    floating,
    is_integral,
    joined,
    promoted,
    summed_dtype,
)
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import (
    also_sparse,
    as_sparse,
    at_places,
    averaged,
    is_concrete,
    on_values,
    summed,
)

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "average",
    "bincount",
    "corrcoef",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "digitize",
    "histogram",
    "isin",
    "max",
    "mean",
    "median",
    "min",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "ndim",
    "nonzero",
    "percentile",
    "prod",
    "ptp",
    "quantile",
    "searchsorted",
    "size",
    "sort",
    "std",
    "sum",
    "trace",
    "trapezoid",
    "var",
]

# Sums and extremes --------------------------------------------------------------------------------


@also_sparse(summed)
def sum(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    return ef.sum(x, axis=axes_of(axis), keepdims=keepdims, dtype=summed_dtype(x))


def prod(x, axis=None, keepdims=False, dtype=None):
    x = convert_to_tensor(x)
    return ef.prod(x, axis=axes_of(axis), keepdims=keepdims, dtype=dtype or summed_dtype(x))


@also_sparse(averaged)
def mean(x, axis=None, keepdims=False):
    return ef.mean(floating(x), axis=axes_of(axis), keepdims=keepdims)


def var(x, axis=None, keepdims=False):
    return ef.var(floating(x), axis=axes_of(axis), keepdims=keepdims)


def std(x, axis=None, keepdims=False):
    return ef.std(floating(x), axis=axes_of(axis), keepdims=keepdims)


def average(x, axis=None, weights=None):
    if weights is None:
        return mean(x, axis)
    x, weights = promoted(convert_to_tensor(x), convert_to_tensor(weights), also=(float,))
    if axis is not None and weights.ndim == 1 and x.ndim > 1:
        line = [1] * x.ndim
        line[axis] = -1
        weights = ef.reshape(weights, tuple(line))
    total = ef.sum(ef.broadcast_to(weights, x.shape), axis=axes_of(axis))
    return ef.divide(ef.sum(ef.multiply(x, weights), axis=axes_of(axis)), total)


def max(x, axis=None, keepdims=False, initial=None):
    return _extreme(ef.max, maximum, x, axis, keepdims, initial)


def min(x, axis=None, keepdims=False, initial=None):
    return _extreme(ef.min, minimum, x, axis, keepdims, initial)


def _extreme(reduced, joining, x, axis, keepdims, initial):
    x, axis = convert_to_tensor(x), axes_of(axis)
    if initial is None:
        return reduced(x, axis=axis, keepdims=keepdims)
    if 0 in x.shape:
        shape = ef.sum(ef.zeros(x.shape), axis=axis, keepdims=keepdims).shape
        return ef.broadcast_to(convert_to_tensor(initial, x.dtype), shape)
    return joining(reduced(x, axis=axis, keepdims=keepdims), convert_to_tensor(initial, x.dtype))


def amax(x, axis=None, keepdims=False):
    return max(x, axis, keepdims)


def amin(x, axis=None, keepdims=False):
    return min(x, axis, keepdims)


def ptp(x, axis=None, keepdims=False):
    return ef.subtract(max(x, axis, keepdims), min(x, axis, keepdims))


def all(x, axis=None, keepdims=False):
    return ef.all(cast(x, "bool"), axis=axes_of(axis), keepdims=keepdims)


def any(x, axis=None, keepdims=False):
    return ef.any(cast(x, "bool"), axis=axes_of(axis), keepdims=keepdims)


def count_nonzero(x, axis=None):
    return cast(ef.count_nonzero(convert_to_tensor(x), axis=axes_of(axis)), "int32")


def cumsum(x, axis=None, dtype=None):
    return _cumulative(ef.cumulative_sum, x, axis, dtype)


def cumprod(x, axis=None, dtype=None):
    return _cumulative(ef.cumulative_prod, x, axis, dtype)


def _cumulative(scanned, x, axis, dtype):
    x = convert_to_tensor(x)
    dtype = joined(dtype or x.dtype.name)
    x = ef.reshape(x, (-1,)) if axis is None else x
    dtype = "int32" if dtype == "bool" else dtype
    return scanned(cast(x, dtype), axis=0 if axis is None else axis, dtype=dtype)


def trace(x, offset=0, axis1=0, axis2=1):
    x = convert_to_tensor(x)
    found = ef.diagonal(x, offset=offset, axis1=axis1, axis2=axis2)
    return ef.sum(found, axis=-1, dtype=summed_dtype(x))


# Places of extremes, and orders -------------------------------------------------------------------


def argmax(x, axis=None, keepdims=False):
    return _place(ef.argmax, x, axis, keepdims)


def argmin(x, axis=None, keepdims=False):
    return _place(ef.argmin, x, axis, keepdims)


def _place(found, x, axis, keepdims):
    x = convert_to_tensor(x)
    if not is_integral(x) and x.ndim:  # -0.0 is below 0.0
        x = cast(x, joined(x.dtype.name, "float32"))
        is_negative_zero = ef.logical_and(ef.equal(x, 0), ef.signbit(x))
        x = ef.where(is_negative_zero, -float(ef.finfo(x.dtype).smallest_normal), x)
    return cast(found(x, axis=axis, keepdims=keepdims), "int32")


def nanargmax(x, axis=None, keepdims=False):
    return _place_of_numbers(argmax, -math.inf, x, axis, keepdims)


def nanargmin(x, axis=None, keepdims=False):
    return _place_of_numbers(argmin, math.inf, x, axis, keepdims)


def _place_of_numbers(found, least, x, axis, keepdims):
    x = convert_to_tensor(x)
    if is_integral(x):
        return found(x, axis, keepdims)
    missing = ef.isnan(x)
    place = found(ef.where(missing, least, x), axis, keepdims)
    return ef.where(ef.all(missing, axis=axis, keepdims=keepdims), -1, place)


def sort(x, axis=-1):
    x = convert_to_tensor(x)
    return ef.sort(ef.reshape(x, (-1,)), axis=0) if axis is None else ef.sort(x, axis=axis)


def argsort(x, axis=-1):
    x = convert_to_tensor(x)
    if axis is None or not x.ndim:
        x, axis = ef.reshape(x, (-1,)), 0
    return cast(ef.argsort(x, axis=axis), "int32")


def argpartition(x, kth, axis=-1):
    return argsort(x, axis)  # in a sorted array, the kth element is in its place


def searchsorted(sorted_sequence, values, side="left"):
    if ndim(sorted_sequence) != 1:
        raise ValueError(
            "`searchsorted` only supports 1-D sorted sequences. You can use "
            "`keras.ops.vectorized_map` to extend it to N-D sequences. Received: "
            f"sorted_sequence.shape={sorted_sequence.shape}"
        )
    ordered, values = promoted(convert_to_tensor(sorted_sequence), convert_to_tensor(values))
    return cast(ef.searchsorted(ordered, values, side=side), "int32")


@also_sparse(on_values)
def digitize(x, bins):
    x, bins = promoted(convert_to_tensor(x), convert_to_tensor(bins))
    return cast(ef.searchsorted(bins, x, side="right"), "int32")


def isin(x1, x2, assume_unique=False, invert=False):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    return ef.isin(x1, x2, invert=invert)


def nonzero(x):
    return tuple(cast(place, "int32") for place in ef.nonzero(convert_to_tensor(x)))


# Quantiles, and statistics of numbers among NaNs --------------------------------------------------


def median(x, axis=None, keepdims=False):
    return ef.median(floating(x), axis=axes_of(axis), keepdims=keepdims)


def quantile(x, q, axis=None, method="linear", keepdims=False):
    return _at_quantiles(ef.quantile, x, q, axis, method, keepdims)


def percentile(x, q, axis=None, method="linear", keepdims=False):
    return _at_quantiles(ef.percentile, x, q, axis, method, keepdims)


def nanquantile(x, q, axis=None, method="linear", keepdims=False):
    return _at_quantiles(ef.nanquantile, x, q, axis, method, keepdims)


def nanpercentile(x, q, axis=None, method="linear", keepdims=False):
    return _at_quantiles(ef.nanpercentile, x, q, axis, method, keepdims)


def _at_quantiles(found, x, q, axis, method, keepdims):
    x = floating(x)
    q = convert_to_tensor(q, joined(x.dtype.name, "float32"))
    return cast(found(x, q, axis=axes_of(axis), method=method, keepdims=keepdims), x.dtype)


def nanmax(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanmax, max, x, axis, keepdims)


def nanmin(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanmin, min, x, axis, keepdims)


def nansum(x, axis=None, keepdims=False):
    return _of_numbers(ef.nansum, sum, x, axis, keepdims)


def nanprod(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanprod, prod, x, axis, keepdims)


def nanmean(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanmean, mean, x, axis, keepdims)


def nanmedian(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanmedian, median, x, axis, keepdims)


def nanstd(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanstd, std, x, axis, keepdims)


def nanvar(x, axis=None, keepdims=False):
    return _of_numbers(ef.nanvar, var, x, axis, keepdims)


def _of_numbers(found, plain, x, axis, keepdims):
    x = convert_to_tensor(x)
    if is_integral(x):
        return plain(x, axis, keepdims)
    return found(x, axis=axes_of(axis), keepdims=keepdims)


def nancumsum(x, axis=None, dtype=None):
    return cumsum(_without_nans(x, 0), axis, dtype)


def nancumprod(x, axis=None, dtype=None):
    return cumprod(_without_nans(x, 1), axis, dtype)


def _without_nans(x, number):
    x = convert_to_tensor(x)
    return x if is_integral(x) else ef.where(ef.isnan(x), number, x)


def corrcoef(x):
    return ef.corrcoef(floating(x))


def trapezoid(y, x=None, dx=1.0, axis=-1):
    y = floating(y)
    x = None if x is None else cast(x, y.dtype)
    return ef.trapezoid(
        y, x, dx=dx if isinstance(dx, int | float) else cast(dx, y.dtype), axis=axis
    )


# What depends on values: sizes that only concrete numbers give ------------------------------------


def bincount(x, weights=None, minlength=0, sparse=False):
    stored = as_sparse(x)
    if stored is None:
        x = convert_to_tensor(x)
        whole, row = x.shape, ef.arange(x.size)
    else:
        weights = weights if weights is None else _weights_of(stored, as_sparse(weights))
        stored = stored.elements()
        if not is_concrete(stored.values):
            raise CaptureError(
                "how often values are stored is not known while a graph is captured",
                op="bincount",
                received=repr(stored),
                hint="make it dense, or compile(run_eagerly=True)",
            )
        x, whole, row = stored.values, stored.shape, stored.slices.indices
    rows = 1 if len(whole) == 1 else whole[0]
    length = int(minlength)
    if x.size and (is_concrete(x) or not length):  # values in captured functions are assumed to fit
        length = builtins.max(length, 1 + int(ef.max(x)))
    if weights is None:
        weights, dtype = ef.ones(x.shape, dtype="int32"), "int32"
    else:
        weights = convert_to_tensor(weights)
        dtype = joined(x.dtype.name, weights.dtype.name)
    row = row // builtins.max(math.prod(whole) // builtins.max(rows, 1), 1)
    places = ef.add(ef.reshape(cast(x, "int64"), (-1,)), row * length)
    shape = (length,) if len(whole) == 1 else (rows, length)
    found = at_places(ef.reshape(cast(weights, dtype), (-1,)), places, shape)
    return found if sparse or stored is not None else found.to_dense()


def _weights_of(x, weights):
    """The weights at the positions of a sparse tensor, from a tensor with equal positions."""
    alike = weights is not None and weights.slices.indices.shape == x.slices.indices.shape
    if not alike or not bool(ef.all(ef.equal(x.slices.indices, weights.slices.indices))):
        raise ValueError("`x` and `weights` must both be sparse and have the same indices")
    return weights.elements().values


def histogram(x, bins=10, range=None):
    return ef.histogram(floating(x), bins=bins, range=range)


def ndim(x):
    return len(x.shape) if hasattr(x, "shape") else convert_to_tensor(x).ndim


def size(x):
    return math.prod(x.shape if hasattr(x, "shape") else convert_to_tensor(x).shape)
