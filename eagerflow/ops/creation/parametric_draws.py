"""Random ops with tensors as parameters.

Parameters broadcast to the shape that is drawn. Numbers are made in float64 by rejection
(``codegen/numpy/rejection.py``), then rounded to the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import implicit, philox, rejection
from eagerflow.codegen.numpy.tiling import tiled_together
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, INTEGERS, as_dtype
from eagerflow.errors import ArgumentError, DTypeError, GradientError, ShapeError
from eagerflow.op import Cost, Missing, Split
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.draws import UINT64, host, shape_of
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import less
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.special import digamma
from eagerflow.ops.family import Batch, define, elementwise
from eagerflow.ops.shapes.reshaping import permute_dims, reshape, unbroadcast
from eagerflow.ops.special.incomplete_gamma import gamma_sample_gradient
from eagerflow.spec import Array, Namespace, TensorSpec, as_shape, broadcast

__all__ = ["random_binomial", "random_gamma", "random_poisson", "random_von_mises"]

_NOT_EXPORTED = Missing("its numbers are made by rejection, which is not written as operators")
_NO_GRADIENT = Missing("whole numbers do not move smoothly with the parameters")
_MOST = 2.0**62


def _drawn(xp: Namespace, state: Any, parameters: Any, shape: Any, dtype: Any, fill: Any) -> Any:
    """``fill(draw, *parameters)`` for each state, as one array of ``dtype``."""
    states = host(state)
    whole = (*states.shape[:-1], *as_shape(shape))
    rows = states.reshape(-1, philox.WORDS)
    columns = [
        np.broadcast_to(host(p), whole).astype(np.float64).reshape(len(rows), math.prod(shape))
        for p in parameters
    ]
    values = np.empty((len(rows), math.prod(shape)), dtype)
    for i, own in enumerate(rows):
        values[i] = fill(
            lambda count, retry, own=own: philox.bits(own, count, retry), *(c[i] for c in columns)
        )
    values = values.reshape(whole)
    return values if xp is np else xp.asarray(values)


def _demand(holds: Any, argument: str, expected: str) -> None:
    """ArgumentError unless a condition holds for all elements."""
    if not holds.all():
        raise ArgumentError(
            "the distribution has no such parameter", argument=argument, expected=expected
        )


def _spec(kinds: Any, usual: str | None) -> Callable[..., TensorSpec]:
    """The rule of shapes; results have a dtype of ``kinds``, ``usual`` or the parameters'."""

    def infer(state: TensorSpec, *rest: Any, **attributes: Any) -> TensorSpec:
        parameters = [x for x in rest if isinstance(x, TensorSpec)]
        whole = shape_of(state, attributes["shape"])
        given = broadcast(whole, *(p.shape for p in parameters))
        if given != whole:
            raise ShapeError(
                "the parameters do not broadcast to the shape to draw",
                argument="shape",
                received=" and ".join(str(p.shape) for p in parameters),
                expected=f"shapes that broadcast to {whole}",
            )
        dtype = as_dtype(attributes.get("dtype") or usual or parameters[0].dtype)
        if dtype not in kinds:
            raise DTypeError(
                f"{dtype.name} numbers cannot be drawn from this distribution",
                argument="dtype",
                expected=", ".join(sorted(kind.name for kind in kinds)),
            )
        return parameters[0].like(whole, dtype)

    return infer


def _batched(call: Any, args: Any, batched: Any, size: Any, shape: Any, **attributes: Any) -> Any:
    """One draw with an axis for the examples, after the axes of their common state."""
    (state, *parameters), (own, *flags) = args, batched
    lead, shape = state.ndim - 1 - own, as_shape(shape)
    at = 0 if own else lead
    lined = []
    for x, moves in zip(parameters, flags, strict=True):
        if moves:
            x = reshape(x, (size, *(1,) * (lead + len(shape) + 1 - x.ndim), *x.shape[1:]))
            x = permute_dims(x, (*range(1, at + 1), 0, *range(at + 1, x.ndim)))
        elif not own and x.ndim > len(shape):
            behind = x.ndim - len(shape)
            x = reshape(x, (*x.shape[:behind], 1, *x.shape[behind:]))
        lined.append(x)
    out = call(state, *lined, shape=shape if own else (size, *shape), **attributes)
    return permute_dims(out, (at, *(i for i in range(out.ndim) if i != at)))


def _split(state: TensorSpec, *parameters: Any, shape: Any, **attributes: Any) -> list[Split]:
    """Along the axes of the states, with parameters that have them."""
    rank = state.ndim - 1 + len(as_shape(shape))
    found = []
    for axis in range(state.ndim - 1):
        own = [axis - rank + p.ndim for p in parameters]
        cuts = [
            a if a >= 0 and p.shape[a] == state.shape[axis] else None
            for a, p in zip(own, parameters, strict=True)
        ]
        found.append(Split((axis, *cuts), axis))
    return found


def _cost(state: TensorSpec, *parameters: Any, shape: Any, **attributes: Any) -> Cost:
    size = product(as_shape(shape))
    return Cost(size * 200, size * 16)


def _random(count: int, **facts: Any) -> Callable[[Any], Any]:
    """A random op with a number of parameters."""
    own: dict[str, Any] = {
        "dtypes": (UINT64, *(FLOATS,) * count),
        "together": tuple(range(1, count + 1)),
        "batch": Batch(_batched),
        "split": _split,
        "cost": _cost,
        "onnx": _NOT_EXPORTED,
        "fails": True,
    } | facts
    return define("random", **own)


# Gamma -------------------------------------------------------------------------------------------


def no_second(*values: Any, **attributes: Any) -> Any:
    """The rule of parameters without a derivative."""
    raise GradientError(
        "random numbers have first derivatives by their parameters alone",
        op="random",
        argument="x1",
        hint="differentiate once, or stop_gradient",
    )


no_second.stated = "derivatives of numbers by their parameters are there once"  # type: ignore[attr-defined]


def _slope(kernel: Any, **facts: Any) -> Callable[[Any], Any]:
    """The element-wise op that computes ``kernel(xp, x1, x2, **attributes)`` in float64."""

    def on_numpy(xp: Any, x1: Any, x2: Any, **attributes: Any) -> Any:
        out = np.empty(np.broadcast_shapes(x1.shape, x2.shape), x1.dtype)
        wide = [np.asarray(x, np.float64) for x in (x1, x2)]
        if out.size:
            fill = lambda a, b, o: np.copyto(o, kernel(np, a, b, **attributes), casting="same_kind")
            tiled_together(fill, tuple(wide), (out,), elements=4096)
        return out

    own: dict[str, Any] = {
        "dtypes": FLOATS,
        "partials": Missing("see vjp"),
        "vjp": no_second,
        "jvp": "vjp",
        "saves": "x1",
        "scalar": Missing("an integral"),
        "onnx": _NOT_EXPORTED,
        "overrides": {"numpy": on_numpy},
        "trusted": True,
    } | facts
    return elementwise(**own)


def gamma_slope(alpha: Any, y: Any, log: bool) -> Any:
    """How fast numbers ``y``, or the logarithms that they are, move with the shape ``alpha``."""
    if not log:
        return gamma_sample_gradient(alpha, y)
    tiny = less(y, -30)  # where the power series is its first term
    x = exp(where(tiny, 0, y))
    near = divide(gamma_sample_gradient(alpha, x), x)
    return where(tiny, divide(subtract(digamma(add(alpha, 1)), y), alpha), near)


def _gamma_vjp(g: Any, y: Any, state: Any, alpha: Any, log: bool, **attributes: Any) -> Any:
    found = multiply(g, in_float32(gamma_slope)(alpha, y, log=log))
    return None, astype(unbroadcast(found, alpha.shape), alpha.dtype)


def _gamma_jvp(tangents: Any, y: Any, state: Any, alpha: Any, log: bool, **attributes: Any) -> Any:
    moved = multiply(tangents[1], in_float32(gamma_slope)(alpha, y, log=log))
    return astype(moved, y.dtype)


_gamma_vjp.stated = "its gradient is at fixed probability, not for fixed bits"  # type: ignore[attr-defined]


@_random(
    1,
    infer=_spec(FLOATS, None),
    vjp=_gamma_vjp,
    jvp=_gamma_jvp,
    saves="alpha y",
)
def random_gamma(
    xp: Namespace,
    state: Array,
    alpha: Array,
    /,
    shape: Sizes,
    log: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Numbers of the gamma distribution with scale 1, or their logarithms.

    ``state`` is a uint64 tensor of three words along its last axis, ``alpha`` a tensor of
    numbers of at least 0 that broadcasts to ``shape``; ``dtype`` defaults to its float dtype.
    With ``log`` no number is rounded to 0. Raises ShapeError, DTypeError, ArgumentError. Sources:
    Marsaglia and Tsang, 2000; for the gradient Figurnov, Mohamed and Mnih, 2018.

    >>> random_gamma(np.zeros(3, np.uint64), np.float64(2.5), 2)
    Tensor([2.5789, 1.7088], float64, cpu:0)
    """
    values = host(alpha)
    _demand(values >= 0, "alpha", "numbers of at least 0")
    fill = partial(_gamma_numbers, log=log)
    return _drawn(xp, state, (alpha,), as_shape(shape), as_dtype(dtype or alpha.dtype), fill)


def _gamma_numbers(draw: Any, alpha: Any, log: bool) -> Any:
    return rejection.gamma_numbers(draw, alpha, log)


# Counts ------------------------------------------------------------------------------------------

_COUNTS = FLOATS | INTEGERS


@_random(
    1,
    infer=_spec(_COUNTS, "int64"),
    vjp=_NO_GRADIENT,
)
def random_poisson(
    xp: Namespace, state: Array, rate: Array, /, shape: Sizes, dtype: DTypeLike = None
) -> Array:
    """Numbers of the Poisson distribution.

    ``state`` is a uint64 tensor of three words along its last axis, ``rate`` a tensor of
    expectations from 0 to 2^62 that broadcasts to ``shape``, ``dtype`` an integer or float dtype
    (default int64). Raises ShapeError, DTypeError, ArgumentError. Source: Hörmann, 1993 (PTRS).

    >>> random_poisson(np.zeros(3, np.uint64), np.float64(30.0), 4)
    Tensor([21, 36, 22, 22], int64, cpu:0)
    """
    values = host(rate)
    _demand((values >= 0) & (values <= _MOST), "rate", "numbers from 0 to 2**62")
    found = as_dtype(dtype or "int64")
    return _drawn(xp, state, (rate,), as_shape(shape), found, rejection.poisson_numbers)


@_random(
    2,
    infer=_spec(_COUNTS, "int64"),
    vjp=_NO_GRADIENT,
)
def random_binomial(
    xp: Namespace,
    state: Array,
    count: Array,
    probability: Array,
    /,
    shape: Sizes,
    dtype: DTypeLike = None,
) -> Array:
    """The number of successes in ``count`` trials, each with a ``probability``.

    ``state`` is a uint64 tensor of three words along its last axis; ``count``, whole numbers from
    0 to 2^53, and ``probability``, from 0 to 1, broadcast to ``shape``. ``dtype`` is an integer or
    float dtype (default int64). Raises ShapeError, DTypeError, ArgumentError. Source: Hörmann,
    1993 (BTRS).

    >>> random_binomial(np.zeros(3, np.uint64), np.float64(100), np.float64(0.5), 4)
    Tensor([54, 56, 44, 43], int64, cpu:0)
    """
    trials, p = host(count).astype(np.float64), host(probability)
    whole = (trials >= 0) & (trials <= 2.0**53) & (trials == np.floor(trials))
    _demand(whole, "count", "whole numbers from 0 to 2**53")
    _demand((p >= 0) & (p <= 1), "probability", "numbers from 0 to 1")
    found, given = as_dtype(dtype or "int64"), (count, probability)
    return _drawn(xp, state, given, as_shape(shape), found, rejection.binomial_numbers)


# Angles ------------------------------------------------------------------------------------------


@_slope(
    implicit.von_mises_slope,
    ulp=16,
)
def von_mises_sample_slope(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """How fast an angle of the von Mises distribution moves with the concentration.

    ``x1`` are concentrations and ``x2`` the angles, from -pi to pi, around 0. Within 1e-10 in
    float64. Source: Figurnov, Mohamed and Mnih, 2018.

    >>> von_mises_sample_slope(np.float64(2.0), np.float64(0.5))
    Tensor(-0.1555, float64, cpu:0)
    """
    wide = [xp.astype(x, xp.float64) for x in (x1, x2)]
    return xp.astype(implicit.von_mises_slope(xp, *wide), x1.dtype)


def _von_mises_vjp(g: Any, y: Any, state: Any, concentration: Any, **attributes: Any) -> Any:
    found = multiply(g, von_mises_sample_slope(concentration, y))
    return None, astype(unbroadcast(found, concentration.shape), concentration.dtype)


def _von_mises_jvp(tangents: Any, y: Any, state: Any, concentration: Any, **attributes: Any) -> Any:
    return astype(multiply(tangents[1], von_mises_sample_slope(concentration, y)), y.dtype)


_von_mises_vjp.stated = _gamma_vjp.stated  # type: ignore[attr-defined]


@_random(
    1,
    infer=_spec(FLOATS, None),
    vjp=_von_mises_vjp,
    jvp=_von_mises_jvp,
    saves="concentration y",
)
def random_von_mises(
    xp: Namespace, state: Array, concentration: Array, /, shape: Sizes, dtype: DTypeLike = None
) -> Array:
    """Angles of the von Mises distribution around 0, in radians from -pi to pi.

    ``state`` is a uint64 tensor of three words along its last axis, ``concentration`` a tensor of
    numbers of at least 0 that broadcasts to ``shape``; ``dtype`` defaults to its float dtype.
    Raises ShapeError, DTypeError, ArgumentError. Source: Best and Fisher, 1979.

    >>> random_von_mises(np.zeros(3, np.uint64), np.float64(3.0), 2)
    Tensor([-0.0793,  0.0916], float64, cpu:0)
    """
    _demand(host(concentration) >= 0, "concentration", "numbers of at least 0")
    found = as_dtype(dtype or concentration.dtype)
    return _drawn(xp, state, (concentration,), as_shape(shape), found, rejection.von_mises_numbers)
