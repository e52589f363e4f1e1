"""The random ops: each computes numbers from a state of three words, and nothing else.

Users call them through ``ef.random``, which keeps the state in a Variable. The numbers are made on
the host, from where a device receives them, so they are the same on every device. A state with
leading axes holds one state for each example. Inside ``vmap``, a state shared by all examples gives
one draw with an axis for the examples, so each gets its own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy import philox
from eagerflow.devices import device_of
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, INTEGERS, as_dtype, default_dtype
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import Cost, Missing, Split
from eagerflow.ops.attributes import DeviceName, DTypeLike, Sizes
from eagerflow.ops.family import Batch, define
from eagerflow.ops.shapes.reshaping import permute_dims
from eagerflow.spec import Array, Namespace, TensorSpec, as_shape

__all__ = [
    "random_bits",
    "random_exponential",
    "random_integers",
    "random_keep",
    "random_normal",
    "random_permutation",
    "random_truncated_normal",
    "random_uniform",
]

Fill = Callable[[Any, int], Any]
_NO_GRADIENT = Missing("random numbers do not depend smoothly on the state they are made from")
UINT64 = frozenset({np.dtype("uint64")})


def host(array: Any) -> Any:
    """An array, such as the state, in NumPy's memory, where the bits are made."""
    home = device_of(array)
    return array if home is None else home.backend.to_numpy(array)


def _drawn(xp: Namespace, state: Any, shape: Any, dtype: Any, fill: Fill) -> Any:
    """``fill(state, count)`` for each state, in ``shape`` and in the library of ``xp``."""
    states = host(state)
    count = math.prod(shape)
    if states.ndim == 1:
        values = fill(states, count).reshape(shape)
    else:
        rows = [fill(own, count) for own in states.reshape(-1, philox.WORDS)]
        whole = (*states.shape[:-1], *shape)
        values = np.stack(rows).reshape(whole) if rows else np.empty(whole, dtype)
    values = values.astype(dtype, copy=False)
    return values if xp is np else xp.asarray(values)


def shape_of(state: TensorSpec, shape: Any) -> tuple[Any, ...]:
    """The shape of a draw: the requested one, after the axes of the states."""
    if not state.ndim or state.shape[-1] != philox.WORDS:
        raise ShapeError(
            f"a state has {philox.WORDS} words along its last axis",
            argument="state",
            hint="ef.random.Generator(seed).state",
        )
    return (*state.shape[:-1], *as_shape(shape))


def _float_spec(
    state: TensorSpec, shape: Any, dtype: Any = None, device: Any = None, **more: Any
) -> TensorSpec:
    found = as_dtype(dtype) if dtype is not None else default_dtype(float)
    if found not in FLOATS:
        raise DTypeError(
            f"{found.name} numbers cannot be drawn from this distribution",
            argument="dtype",
            expected="float16, bfloat16, float32 or float64",
        )
    return TensorSpec(shape_of(state, shape), found, None, device)


def _random(**facts: Any) -> Callable[[Any], Any]:
    """An op of the random family: ``(xp, state, /, shape, ...)``."""
    own: dict[str, Any] = {
        "dtypes": UINT64,
        "vjp": _NO_GRADIENT,
        "batch": Batch(_batched),
        "split": lambda state, shape, **_: [Split((i,), i) for i in range(state.ndim - 1)],
        "cost": _cost,
        "infer": _float_spec,
    } | facts
    return define("random", **own)


def _batched(call: Any, args: Any, batched: Any, size: int, shape: Any, **attributes: Any) -> Any:
    if batched[0]:
        return call(args[0], shape, **attributes)
    out, lead = call(args[0], (size, *as_shape(shape)), **attributes), args[0].ndim - 1
    return permute_dims(out, (lead, *(i for i in range(out.ndim) if i != lead))) if lead else out


def _cost(state: TensorSpec, shape: Any, **attributes: Any) -> Cost:
    size = product(as_shape(shape))
    return Cost(size * 40, size * 8)  # ten rounds for each 32 bits


def _float(dtype: Any) -> Any:
    return default_dtype(float) if dtype is None else as_dtype(dtype)


@_random(
    infer=lambda state, shape, device=None: TensorSpec(
        shape_of(state, shape), "uint64", None, device
    ),
)
def random_bits(xp: Namespace, state: Array, /, shape: Sizes, device: DeviceName = None) -> Array:
    """Random 64-bit words.

    ``state`` is a uint64 tensor of three words along its last axis, ``shape`` a size or a
    tuple of sizes. Raises ShapeError or DTypeError for other states. Source: Philox4x64-10,
    Salmon and others, 2011.

    >>> random_bits(np.zeros(3, np.uint64), 1)
    Tensor([1609277786247541068], uint64, cpu:0)
    """
    return _drawn(xp, state, as_shape(shape), np.dtype("uint64"), philox.bits)


@_random()
def random_uniform(
    xp: Namespace, state: Array, /, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None
) -> Array:
    """Numbers from 0 up to, not including, 1, all equally likely.

    ``state`` is a uint64 tensor of three words along its last axis, ``dtype`` a float dtype
    (default float32). Raises ShapeError or DTypeError for other states, shapes or dtypes.

    >>> random_uniform(np.zeros(3, np.uint64), 2)
    Tensor([0.7899, 0.0872], float32, cpu:0)
    """
    found = _float(dtype)
    if found.itemsize == 2:
        # Rounding to fewer bits could reach 1: these are drawn with as many bits as they have.
        return _drawn(xp, state, as_shape(shape), found, lambda own, n: _short(own, n, found))
    return _drawn(xp, state, as_shape(shape), found, lambda own, n: philox.uniform(own, n, found))


def _short(state: Any, count: int, dtype: Any) -> Any:
    steps = 2.0**11 if dtype.name == "float16" else 2.0**8
    return np.floor(philox.uniform(state, count, dtype) * steps) / steps


@_random(
    # Near the zeros of sine and cosine the rounding of the angle shows.
    ulp=2**16,
)
def random_normal(
    xp: Namespace, state: Array, /, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None
) -> Array:
    """Numbers of the standard normal distribution.

    ``state`` is a uint64 tensor of three words along its last axis, ``dtype`` a float dtype
    (default float32). Raises ShapeError or DTypeError for other states, shapes or dtypes.
    Source: Box and Muller, 1958; no number is beyond 5.8 (float64: 8.6).

    >>> random_normal(np.zeros(3, np.uint64), 2)
    Tensor([1.5076, 0.9205], float32, cpu:0)
    """
    found = _float(dtype)
    return _drawn(xp, state, as_shape(shape), found, lambda own, n: philox.normal(own, n, found))


@_random(ulp=16)
def random_truncated_normal(
    xp: Namespace, state: Array, /, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None
) -> Array:
    """Numbers of the standard normal distribution cut off at -2 and 2.

    ``state`` is a uint64 tensor of three words along its last axis, ``dtype`` a float dtype
    (default float32). Raises ShapeError or DTypeError for other states, shapes or dtypes.
    Source: quantiles by Wichura, Algorithm AS 241, 1988.

    >>> random_truncated_normal(np.zeros(3, np.uint64), 2)
    Tensor([ 0.7611, -1.248 ], float32, cpu:0)
    """
    found = _float(dtype)
    return _drawn(xp, state, as_shape(shape), found, lambda own, n: philox.truncated(own, n, found))


@_random()
def random_exponential(
    xp: Namespace, state: Array, /, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None
) -> Array:
    """Numbers of the exponential distribution with mean 1.

    ``state`` is a uint64 tensor of three words along its last axis, ``dtype`` a float dtype
    (default float32). Raises ShapeError or DTypeError for other states, shapes or dtypes.

    >>> random_exponential(np.zeros(3, np.uint64), 2)
    Tensor([1.5601, 0.0913], float32, cpu:0)
    """
    found = _float(dtype)

    def fill(own: Any, count: int) -> Any:
        numbers = np.negative(philox.uniform(own, count, found))
        return np.negative(np.log1p(numbers, out=numbers), out=numbers)

    return _drawn(xp, state, as_shape(shape), found, fill)


def _integers_spec(
    state: TensorSpec, shape: Any, low: int, high: int, dtype: Any = None, device: Any = None
) -> TensorSpec:
    found = as_dtype(dtype or "int64")
    if found not in INTEGERS:
        raise DTypeError(f"{found.name} is not an integer dtype", argument="dtype")
    if type(low) is not int or type(high) is not int:
        wrong = low if type(low) is not int else high
        raise DTypeError(f"{wrong!r} is not an integer", argument="low" if wrong is low else "high")
    limits = np.iinfo(found)
    if not limits.min <= low < high <= int(limits.max) + 1:
        raise ShapeError(
            f"there is no {found.name} from {low} up to, not including, {high}",
            argument="high",
            expected=f"low < high, from {limits.min} to {int(limits.max) + 1}",
        )
    return TensorSpec(shape_of(state, shape), found, None, device)


@_random(
    infer=_integers_spec,
)
def random_integers(
    xp: Namespace,
    state: Array,
    /,
    shape: Sizes,
    low: int,
    high: int,
    dtype: DTypeLike = None,
    device: DeviceName = None,
) -> Array:
    """Integers from ``low`` up to, not including, ``high``, all equally likely.

    ``state`` is a uint64 tensor of three words along its last axis, ``dtype`` an integer
    dtype (default int64) that holds the range. Raises ShapeError for an empty range or one
    that the dtype does not hold, DTypeError for other states and dtypes.

    >>> random_integers(np.zeros(3, np.uint64), 4, 0, 10)
    Tensor([8, 0, 5, 5], int64, cpu:0)
    """
    found = as_dtype(dtype or "int64")
    return _drawn(
        xp,
        state,
        as_shape(shape),
        found,
        lambda own, count: philox.integers(own, count, low, high, found),
    )


def _keep_spec(
    state: TensorSpec, shape: Any, rate: float, dtype: Any = None, device: Any = None
) -> TensorSpec:
    if not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ArgumentError(
            f"{rate!r} is not a rate",
            argument="rate",
            expected="a number from 0 up to, not including, 1",
        )
    return _float_spec(state, shape, dtype, device)


def _keep_body(s: Any, key: Any, more: Any, draw: Any, rate: Any, factor: Any) -> Any:
    return s.select(s.greater_equal(s.uniform((key, more, draw)), rate), factor, 0)


def _kept(state: Any, count: int, rate: Any, factor: Any) -> Any:
    """``factor`` where a uniform number is at least ``rate``, else 0."""
    if generated.pays(count):
        kind = factor.dtype.name
        operands = (*(("uint64", ""),) * philox.WORDS, ("float32", ""), (kind, ""))
        found = generated.region(_keep_body, "n", operands)
        return generated.run(found, *map(np.asarray, (*state, rate, factor)), n=count)
    numbers = philox.uniform(state, count, np.dtype("float32"))
    return np.multiply(numbers >= rate, factor, dtype=factor.dtype)


@_random(
    infer=_keep_spec,
)
def random_keep(
    xp: Namespace,
    state: Array,
    /,
    shape: Sizes,
    rate: float,
    dtype: DTypeLike = None,
    device: DeviceName = None,
) -> Array:
    """Factors of dropout: 0 with probability ``rate``, else ``1 / (1 - rate)``.

    ``state`` is a uint64 tensor of three words along its last axis, ``rate`` a number from 0
    to below 1, ``dtype`` a float dtype (default float32). A float32 uniform number below
    ``rate`` gives 0. Raises ArgumentError for another rate, DTypeError for another dtype.

    >>> random_keep(np.zeros(3, np.uint64), 4, 0.5)
    Tensor([2., 0., 0., 2.], float32, cpu:0)
    """
    found = _float(dtype)
    factor = np.dtype("float32" if found.itemsize < 4 else found).type(1 / (1 - rate))
    least = np.float32(rate)
    return _drawn(xp, state, as_shape(shape), found, lambda own, n: _kept(own, n, least, factor))


def _permutation_spec(state: TensorSpec, shape: Any, device: Any = None) -> TensorSpec:
    whole = as_shape(shape)
    if not whole:
        raise ShapeError("a permutation has an axis", argument="shape", expected="a size")
    return TensorSpec(shape_of(state, whole), "int64", None, device)


@_random(
    infer=_permutation_spec,
)
def random_permutation(
    xp: Namespace, state: Array, /, shape: Sizes, device: DeviceName = None
) -> Array:
    """The integers from 0 up to the size of the last axis, in random order along it.

    ``state`` is a uint64 tensor of three words along its last axis, ``shape`` a size or a
    tuple of sizes. Raises ShapeError for a shape without axes.

    >>> random_permutation(np.zeros(3, np.uint64), 4)
    Tensor([0, 3, 2, 1], int64, cpu:0)
    """
    whole = as_shape(shape)

    def fill(own: Any, count: int) -> Any:
        words = philox.bits(own, count).reshape(whole)
        return np.argsort(words, axis=-1, kind="stable").ravel()

    return _drawn(xp, state, whole, np.dtype("int64"), fill)
