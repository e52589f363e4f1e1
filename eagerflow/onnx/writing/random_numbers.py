"""Random numbers by integer ops, with the bits that ``codegen/numpy/philox.py`` defines.

Words are int64 with the bits of unsigned ones. Uniform numbers, integers and permutations are
bit-identical; distributions that use logarithms, sines or quantiles are as exact as these
functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eagerflow import ops
from eagerflow.capture.control.loops import while_loop
from eagerflow.capture.control.scans import scan
from eagerflow.codegen.numpy import philox
from eagerflow.dims import product
from eagerflow.dtypes import as_dtype, default_dtype, float32, float64
from eagerflow.spec import as_shape

_ROUNDS = 10
_LOW = 2**32 - 1  # the low half of a word
_LOWEST = -(2**63)


def _signed(word: int) -> int:
    """The signed number with the bits of an unsigned word."""
    return word - 2**64 if word >= 2**63 else word


def _unsigned(x: Any, f: Callable[[Any], Any]) -> Any:
    """``f`` of words as unsigned integers, which it also returns."""
    return f(x.astype("uint64")).astype("int64")


def _shifted_down(x: Any, places: int) -> Any:
    return _unsigned(x, lambda word: word >> places)


def _high_product(x: Any, factor: int) -> Any:
    """The upper word of the product of words and an unsigned number, by products of halves."""
    low, high = x & _LOW, _shifted_down(x, 32)
    factor_low, factor_high = factor & _LOW, factor >> 32
    across, other = low * factor_high, high * factor_low
    carried = _shifted_down(low * factor_low, 32) + (across & _LOW) + (other & _LOW)
    whole = high * factor_high + _shifted_down(across, 32) + _shifted_down(other, 32)
    return whole + _shifted_down(carried, 32)


def _round(words: Any, row: None) -> Any:
    """A round of the cipher on the words of counters and of the key."""
    a, b, c, d, first, second = words
    left, right = philox.MULTIPLIERS
    words = (
        _high_product(c, right) ^ b ^ first,
        c * _signed(right),
        _high_product(a, left) ^ d ^ second,
        a * _signed(left),
    )
    steps = [_signed(x) for x in philox.KEY_STEPS]
    return (*words, *(key + step for key, step in zip((first, second), steps, strict=True))), None


def _first(x: Any, count: Any) -> Any:
    """The first elements of the last axis, which has at least as many; sizes may be named."""
    return x if x.shape[-1] == count else ops.take(x, ops.arange(count, dtype="int64"), axis=-1)


def words(state: Any, count: int, retry: Any = 0) -> Any:
    """The first ``count`` words of each state's draw, along a new last axis."""
    first, second, draw = (state.astype("int64")[..., k : k + 1] for k in range(philox.WORDS))
    blocks = (count + philox.BLOCK_WORDS - 1) // philox.BLOCK_WORDS
    a = ops.arange(blocks, dtype="int64") + first * 0
    none = a * 0
    found, _ = scan(_round, (a, none + draw, none + retry, none, first, second), length=_ROUNDS)
    flat = ops.stack(found[: philox.BLOCK_WORDS], axis=-1)
    return _first(flat.reshape((*flat.shape[:-2], blocks * philox.BLOCK_WORDS)), count)


def _count(shape: Any) -> Any:
    """The number of elements of a shape, possibly with free sizes."""
    return product(as_shape(shape))


def _shaped(numbers: Any, shape: Any, dtype: Any) -> Any:
    return numbers.reshape((*numbers.shape[:-1], *as_shape(shape))).astype(dtype)


def _uniform(state: Any, count: int, dtype: Any) -> Any:
    if dtype == float64:
        return _shifted_down(words(state, count), 11).astype(float64) * 2.0**-53
    found = words(state, (count + 1) // 2)
    halves = ops.stack((found & _LOW, _shifted_down(found, 32)), axis=-1)
    flat = _first(halves.reshape((*found.shape[:-1], 2 * found.shape[-1])), count)
    return (flat >> 8).astype(float32) * 2.0**-24


def _short(state: Any, count: int, dtype: Any) -> Any:
    """Uniform numbers with as many digits as the dtype has, so that none is rounded to 1."""
    numbers = _uniform(state, count, dtype)
    if dtype.itemsize > 2:
        return numbers
    steps = 2.0**11 if dtype.name == "float16" else 2.0**8
    return ops.floor(numbers * steps) / steps


def _normal(state: Any, count: int, dtype: Any) -> Any:
    numbers = _uniform(state, 2 * ((count + 1) // 2), dtype)
    pairs = numbers.reshape((*numbers.shape[:-1], (count + 1) // 2, 2))
    radius = ops.sqrt(ops.log(1 - pairs[..., 0]) * -2)
    angle = pairs[..., 1] * (2 * math.pi)
    found = ops.stack((radius * ops.cos(angle), radius * ops.sin(angle)), axis=-1)
    return _first(found.reshape(numbers.shape), count)


def _truncated(state: Any, count: int, dtype: Any) -> Any:
    numbers = _uniform(state, count, dtype).astype(float64)
    numbers = numbers + (2.0**-54 if dtype == float64 else 2.0**-25)
    below = 0.5 * math.erfc(math.sqrt(2.0))
    found = philox.quantile(ops, numbers * (1 - 2 * below) + below)
    return ops.clip(found, -2.0, 2.0)


def _exponential(state: Any, count: int, dtype: Any) -> Any:
    return -ops.log1p(-_uniform(state, count, dtype))


def _keep(state: Any, count: int, dtype: Any, rate: float) -> Any:
    kept = _uniform(state, count, float32) >= rate
    wide = float32 if dtype.itemsize < 4 else dtype
    return ops.where(kept, ops.full((), 1 / (1 - rate), dtype=wide), 0)


def _floats(draw: Callable[..., Any]) -> Callable[..., Any]:
    """An op that draws floats, from a function that draws a number of them for each state."""

    def drawn(state: Any, shape: Any, dtype: Any = None, device: Any = None, **more: Any) -> Any:
        kind = default_dtype(float) if dtype is None else as_dtype(dtype)
        return _shaped(draw(state, _count(shape), kind, **more), shape, kind)

    return drawn


def _bits(state: Any, shape: Any, device: Any = None) -> Any:
    return _shaped(words(state, _count(shape)), shape, "uint64")


def _permutation(state: Any, shape: Any, device: Any = None) -> Any:
    found = _shaped(words(state, _count(shape)), shape, "int64")
    return ops.argsort(found ^ _LOWEST, axis=-1, stable=True)  # in the order of unsigned words


def _integers(
    state: Any, shape: Any, low: int, high: int, dtype: Any = None, device: Any = None
) -> Any:
    size = high - low
    found = words(state, _count(shape))
    if 2**64 % size:
        found = _drawn_again(state, found, 2**64 - 2**64 % size)
    if size < 2**64:
        found = _unsigned(found, lambda word: word % ops.full((), size, dtype="uint64"))
    return _shaped(found + _signed(low % 2**64), shape, as_dtype(dtype or "int64"))


def _drawn_again(state: Any, found: Any, limit: int) -> Any:
    """Words below a limit: others are replaced by the next draw, in order."""
    most = _signed(limit) ^ _LOWEST

    def wrong(found: Any) -> Any:
        return (found ^ _LOWEST) >= most

    def again(now: Any) -> Any:
        (retry, found), bad = now, wrong(now[1])
        retry = retry + 1
        places = ops.cumulative_sum(bad.astype("int64"), axis=-1) - 1
        new = words(state, found.shape[-1], retry)
        new = ops.take_along_axis(new, ops.maximum(places, 0), axis=-1)
        return retry, ops.where(bad, new, found)

    start = ops.zeros((), dtype="int64"), found
    return while_loop(lambda now: ops.any(wrong(now[1])), again, start)[1]


DRAWS: dict[str, Callable[..., Any]] = {
    "random_bits": _bits,
    "random_exponential": _floats(_exponential),
    "random_integers": _integers,
    "random_keep": _floats(_keep),
    "random_normal": _floats(_normal),
    "random_permutation": _permutation,
    "random_truncated_normal": _floats(_truncated),
    "random_uniform": _floats(_short),
}
"""The implementations of random ops by name."""
