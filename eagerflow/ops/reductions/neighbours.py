"""Functions of neighbouring elements: integrals, slopes, interpolation, convolution of vectors."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor, number_type
from eagerflow.dtypes import FLOATS, INEXACT, NUMERIC, is_complex
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import abs, add, divide, multiply, remainder, subtract
from eagerflow.ops.elementwise.comparison import equal, greater, less
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.selection import clip, where
from eagerflow.ops.family import as_operand
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.operands import as_wide_integers, chosen, floating, vector, wide
from eagerflow.ops.plain import plain
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.cumulative import diff
from eagerflow.ops.reductions.sorting import argsort, searchsorted
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import flip, pad
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import normalize_axes, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["convolve", "correlate", "ediff1d", "gradient", "interp", "trapezoid"]


# Integrals and differences ------------------------------------------------------------------------


def _trapezoid(y: Any, x: Any, dx: Any, axis: int) -> Any:
    at = normalize_axis(axis, y.ndim)
    width = dx
    x = None if x is None else as_wide_integers(x)
    if x is not None and x.ndim == 1:
        width = reshape(diff(x), tuple(-1 if i == at else 1 for i in range(y.ndim)))
    elif x is not None:
        width = diff(x, axis=at)
    pairs = add(part_of(y, at, 1, None), part_of(y, at, None, -1))
    return total(divide(multiply(width, pairs), 2), axis=at)


@composed(dtypes=NUMERIC)
def trapezoid(y: Any, x: Any = None, /, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Integral along an axis by the trapezoidal rule.

    ``y`` is a numeric tensor; ``x`` are the sample points, a vector or of the shape of ``y``; by
    default they are ``dx`` apart. Raises ShapeError for an axis that does not exist.

    >>> ef.trapezoid(ef.tensor([1.0, 2.0, 3.0]), ef.tensor([0.0, 1.0, 3.0]))
    Tensor(6.5, float32, cpu:0)
    """
    return wide(_trapezoid, floating(y, "y", INEXACT), x, dx=dx, axis=axis)


def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Each element of a flattened tensor minus the one before it.

    ``x`` is a tensor; ``to_begin`` and ``to_end`` are prepended and appended to the differences:
    numbers or tensors.

    >>> ef.ediff1d(ef.tensor([1, 4, 9]), to_begin=0)
    Tensor([0, 3, 5], int64, cpu:0)
    """
    found = diff(reshape(as_tensor(x), (-1,)))
    ends = [None if end is None else as_operand(end, found) for end in (to_begin, to_end)]
    if ends == [None, None]:
        return found
    parts = (ends[0], found, ends[1])
    return concat([reshape(part, (-1,)) for part in parts if part is not None], axis=0)


# Slopes -------------------------------------------------------------------------------------------


def _weights(before: Any, after: Any) -> tuple[Any, Any, Any]:
    """Of an element and its neighbours at these distances, in its slope."""
    both = add(before, after)
    return (
        divide(multiply(after, -1), multiply(before, both)),
        divide(subtract(after, before), multiply(before, after)),
        divide(before, multiply(after, both)),
    )


def _end_weights(near: Any, far: Any) -> tuple[Any, Any, Any]:
    """Of the first three elements, in the slope at the first, to second order."""
    both = add(near, far)
    return (
        divide(multiply(add(near, both), -1), multiply(near, both)),
        divide(both, multiply(near, far)),
        divide(multiply(near, -1), multiply(far, both)),
    )


def _weighted(weights: Any, parts: Any) -> Any:
    a, b, c = (multiply(w, x) for w, x in zip(weights, parts, strict=True))
    return add(add(a, b), c)


def _slope(f: Any, spacing: Any, at: int, edge_order: int) -> Any:
    """The slope along one axis; ``spacing`` is a number or the coordinates."""

    def part(start: int | None, stop: int | None) -> Any:
        return part_of(f, at, start, stop)

    if spacing.ndim:
        along = tuple(-1 if i == at else 1 for i in range(f.ndim))
        steps = reshape(diff(vector(spacing, "varargs")), along)
    else:
        steps = reshape(spacing, (1,) * f.ndim)

    def step(start: int | None, stop: int | None) -> Any:
        return part_of(steps, at, start, stop) if spacing.ndim else steps

    if spacing.ndim:
        inner = _weighted(
            _weights(step(None, -1), step(1, None)), (part(None, -2), part(1, -1), part(2, None))
        )
    else:  # without the middle element, which may be infinite
        inner = divide(subtract(part(2, None), part(None, -2)), multiply(steps, 2))
    if edge_order == 1:
        first = divide(subtract(part(1, 2), part(0, 1)), step(0, 1))
        last = divide(subtract(part(-1, None), part(-2, -1)), step(-1, None))
    else:
        first = _weighted(
            _end_weights(step(0, 1), step(1, 2)), (part(0, 1), part(1, 2), part(2, 3))
        )
        last = multiply(
            _weighted(
                _end_weights(step(-1, None), step(-2, -1)),
                (part(-1, None), part(-2, -1), part(-3, -2)),
            ),
            -1,
        )
    return concat([first, inner, last], axis=at)


@plain
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes along axes, by central differences inside and one-sided ones at the ends.

    ``f`` is a numeric tensor; ``varargs`` is the distance of its points, or one for each axis: a
    number, or a vector of coordinates; ``axis`` is an integer, a tuple of integers or None for all;
    ``edge_order`` (1 or 2) is the order of the differences at the ends. Several axes give a tuple.
    ``ef.grad`` is the derivative of a function. Raises ShapeError for fewer than ``edge_order + 1``
    points.

    >>> ef.gradient(ef.tensor([1.0, 2.0, 4.0, 7.0]))
    Tensor([1. , 1.5, 2.5, 3. ], float32, cpu:0)
    """
    f = floating(as_tensor(f), "f", INEXACT)
    axes = normalize_axes(axis, f.ndim)
    if edge_order not in (1, 2):
        raise ArgumentError(
            f"{edge_order!r} is not taken", op="gradient", argument="edge_order", expected="1 or 2"
        )
    given = varargs or (1.0,)
    if len(given) == 1 and (number_type(given[0]) is not None or as_tensor(given[0]).ndim == 0):
        given = given * len(axes)
    if len(given) != len(axes):
        raise ShapeError(
            f"{len(given)} distances for {len(axes)} axes", op="gradient", argument="varargs"
        )
    found = []
    for at, distance in zip(axes, given, strict=True):
        size, spacing = f.shape[at], as_wide_integers(as_operand(distance, f))
        if type(size) is int and size < edge_order + 1:
            raise ShapeError(
                f"axis {at} has {size} points",
                op="gradient",
                argument="f",
                expected=f"at least {edge_order + 1}",
            )
        if spacing.ndim and spacing.shape != (size,):
            raise ShapeError(
                f"coordinates of shape {spacing.shape} for an axis of size {size}",
                op="gradient",
                argument="varargs",
            )
        found.append(wide(_slope, f, spacing, at=at, edge_order=edge_order))
    return found[0] if len(found) == 1 else tuple(found)


# Interpolation ------------------------------------------------------------------------------------


def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any, period: Any) -> Any:
    if period is not None:
        period = abs(as_operand(period, x))
        x, xp = remainder(x, period), remainder(xp, period)
        order = argsort(xp)
        xp, fp = take(xp, order, axis=0), take(fp, order, axis=0)
        xp = concat([subtract(xp[-1:], period), xp, add(xp[:1], period)], axis=0)
        fp = concat([fp[-1:], fp, fp[:1]], axis=0)
    after = clip(searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    before = subtract(after, 1)
    x0, x1 = take(xp, before, axis=0), take(xp, after, axis=0)
    f0, f1 = take(fp, before, axis=0), take(fp, after, axis=0)
    alone = equal(x0, x1)
    part = where(alone, 0, divide(subtract(x, x0), where(alone, 1, subtract(x1, x0))))
    found = add(f0, multiply(part, subtract(f1, f0)))
    if period is None:
        found = where(less(x, xp[0]), fp[0] if left is None else left, found)
        found = where(greater(x, xp[-1]), fp[-1] if right is None else right, found)
    return found


@composed(
    dtypes=FLOATS,
    sizes=Missing("points have to be counted"),
    small=Missing("points of 16 bits lie elsewhere than those of 32"),
)
def interp(
    x: Any, xp: Any, fp: Any, /, left: Any = None, right: Any = None, period: Any = None
) -> Tensor:
    """Values at points on the straight lines between known ones.

    ``x`` is a real tensor of any shape, ``xp`` a vector of rising points and ``fp`` one of the
    values there; ``left`` and ``right`` are the values outside, by default those at the ends; with
    ``period`` both ends meet. Gradients pass to all three. Raises ShapeError for vectors of
    different lengths.

    >>> ef.interp(ef.tensor([0.5, 2.0]), ef.tensor([0.0, 1.0]), ef.tensor([10.0, 20.0]))
    Tensor([15., 20.], float32, cpu:0)
    """
    if vector(xp, "xp").shape != vector(fp, "fp").shape:
        raise ShapeError("xp and fp have different lengths", argument="fp")
    if xp.shape[0] == 0:
        raise ShapeError("there are no points", argument="xp")
    x, xp, fp = floating(x), floating(xp, "xp"), floating(fp, "fp", INEXACT)
    return _interp(x, xp, fp, left, right, period)


# Convolution --------------------------------------------------------------------------------------

MODES = ("full", "same", "valid")


def _whole(a: Any, v: Any) -> Any:
    """All sums of products of one vector with another, reversed and sliding one."""
    n, m = a.shape[0], v.shape[0]
    products = multiply(reshape(a, (n, 1)), reshape(v, (1, m)))
    # Rows that are one longer than the result are shifted by one each after the ends are cut off.
    flat = reshape(pad(products, ((0, 0), (0, n))), (n * (n + m),))
    return total(reshape(flat[: n * (n + m - 1)], (n, n + m - 1)), axis=0, dtype=products.dtype)


def _cut(found: Any, longer: int, shorter: int, mode: str, first: int) -> Any:
    if mode == "same":
        return found[first : first + longer]
    return found if mode == "full" else found[shorter - 1 : longer]


def _checked(a: Any, v: Any, mode: str) -> tuple[int, int]:
    chosen(mode, "mode", MODES)
    sizes = tuple(vector(x, name).shape[0] for name, x in (("a", a), ("v", v)))
    if 0 in [n for n in sizes if isinstance(n, int)]:
        raise ShapeError("a vector is empty", argument="a" if sizes[0] == 0 else "v")
    return sizes


_CONVOLUTION: dict[str, Any] = {
    "dtypes": NUMERIC,
    "sizes": Missing("which vector is longer has to be known"),
}


@composed(**_CONVOLUTION)
def convolve(a: Any, v: Any, /, mode: str = "full") -> Tensor:
    """Convolution of two vectors: the coefficients of the product of two polynomials.

    ``a`` and ``v`` are numeric vectors of n and m elements; ``mode`` is ``"full"`` for all
    n + m - 1 sums, ``"same"`` for the middle ones, as many as the longer vector has, or ``"valid"``
    for those of all elements of the shorter one. It takes n times m numbers of memory; ``ef.conv``
    is for batches of signals. Raises ShapeError for tensors that are not vectors or empty.

    >>> ef.convolve(ef.tensor([1.0, 2.0]), ef.tensor([1.0, -1.0, 3.0]))
    Tensor([1., 1., 1., 6.], float32, cpu:0)
    """
    n, m = _checked(a, v, mode)
    shorter = min(n, m)
    return _cut(wide(_whole, a, v), max(n, m), shorter, mode, (shorter - 1) // 2)


@composed(**_CONVOLUTION)
def correlate(a: Any, v: Any, /, mode: str = "valid") -> Tensor:
    """Cross-correlation: sums of products of a vector with a sliding, conjugated one.

    ``a`` and ``v`` are numeric vectors; ``mode`` is that of ``ef.convolve``. Raises ShapeError for
    tensors that are not vectors or empty.

    >>> ef.correlate(ef.tensor([1.0, 2.0, 3.0]), ef.tensor([0.0, 1.0, 0.5]), mode="same")
    Tensor([2. , 3.5, 3. ], float32, cpu:0)
    """
    n, m = _checked(a, v, mode)
    shorter = min(n, m)
    turned = flip(conj(v) if is_complex(v.dtype) else v)
    first = (shorter - 1) // 2 if m <= n else shorter // 2
    return _cut(wide(_whole, a, turned), max(n, m), shorter, mode, first)
