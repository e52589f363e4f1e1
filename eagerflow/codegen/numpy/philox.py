"""Random bits from a counter, and numbers from bits; all functions of the state only.

The generator is Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
easy as 1, 2, 3", 2011). A state is three 64-bit words ``(key, key, draw)``. Block ``i`` of a
draw is the cipher of the counter ``(i, draw, retry, 0)`` under the key and gives the words
``4 i`` to ``4 i + 3``; ``retry`` counts the rounds of rejection, and is 0 in most draws.

The conversion of words to numbers, which generated kernels reproduce:

* 32-bit halves: word ``w`` holds number ``2 w`` in its low half and ``2 w + 1`` in its high
  half; float32, float16 and bfloat16 use halves, float64 whole words.
* uniform: the top 24 bits of a half times 2^-24, or the top 53 of a word times 2^-53.
* normal: uniforms ``u`` and ``v``, neighbours ``2 i`` and ``2 i + 1``, give the neighbours
  ``r cos(2 pi v)`` and ``r sin(2 pi v)`` with ``r = sqrt(-2 log(1 - u))`` (Box and Muller,
  1958). float16 and bfloat16 are rounded from float32.
* gamma, Poisson, binomial and von Mises numbers: by rejection, two words for each try; see
  ``rejection.py``.
* integers below ``n``: the word modulo ``n``; words from the last multiple of ``n`` on are
  drawn again in the next retry, so that all integers are equally likely.
"""

from __future__ import annotations

import math
import threading
from functools import reduce
from typing import Any

import numpy as np

from eagerflow.dtypes import DType, float32, float64

WORDS = 3
"""Words of a state."""
BLOCK_WORDS = 4
"""Words per counter from the cipher."""
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
"""The factors of the first and the third word of a counter in a round."""
KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
"""The increments of the key's words in a round."""

_ALL = 2**64 - 1


class _Local(threading.local):
    """One generator per thread: making one asks the system for entropy, which takes time."""

    philox: Any = None


_local = _Local()


def bits(state: Any, count: int, retry: int = 0, first: int = 0) -> Any:
    """``count`` words, from index ``first`` on, of the draw identified by three words."""
    low, high, draw = state.tolist()
    block, skipped = divmod(first, 4)
    # NumPy adds one to its counter before each block, so it starts one before (block, draw, retry).
    counter = (block | draw << 64 | retry << 128) - 1
    philox = _local.philox
    if philox is None:  # the first draw imports numpy.random, which NumPy itself does not
        philox = _local.philox = np.random.Philox(key=0)
    start: Any = {
        "bit_generator": "Philox",
        "state": {
            "counter": [counter >> shift & _ALL for shift in (0, 64, 128, 192)],
            "key": [low, high],
        },
        "buffer": [0, 0, 0, 0],
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    philox.state = start
    words = philox.random_raw(skipped + count)
    return words[skipped:] if skipped else words


def _halves(state: Any, count: int) -> Any:
    words = bits(state, (count + 1) // 2)
    return words.astype("<u8", copy=False).view("<u4")[:count]


def uniform(state: Any, count: int, dtype: DType) -> Any:
    """Numbers from 0 up to, not including, 1: float64, or float32 for all other dtypes."""
    if dtype == float64:
        words = bits(state, count)
        words >>= np.uint64(11)
        numbers = words.view(np.int64).astype(float64)
        numbers *= 2.0**-53
        return numbers
    halves = _halves(state, count)
    halves >>= np.uint32(8)
    numbers = halves.view(np.int32).astype(float32)  # signed: converted four times faster
    numbers *= np.float32(2.0**-24)
    return numbers


def normal(state: Any, count: int, dtype: DType) -> Any:
    """Numbers of the standard normal distribution, in the precision of ``uniform``."""
    pairs = uniform(state, count + count % 2, dtype).reshape(-1, 2)
    radius = np.subtract(1, pairs[:, 0])
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = np.multiply(pairs[:, 1], 2 * math.pi)
    np.multiply(radius, np.cos(angle), out=pairs[:, 0])
    np.multiply(radius, np.sin(angle, out=angle), out=pairs[:, 1])
    return pairs.ravel()[:count]


def integers(state: Any, count: int, low: int, high: int, dtype: DType) -> Any:
    """Integers from ``low`` up to, not including, ``high``, with equal probabilities."""
    size = high - low
    words = bits(state, count)
    excess = 2**64 % size
    retry = 0
    if excess:
        limit = np.uint64(2**64 - excess)
        while (wrong := np.flatnonzero(words >= limit)).size:
            retry += 1
            words[wrong] = bits(state, wrong.size, retry)
    if size <= _ALL:
        words %= np.uint64(size)
    # Modulo 2^64 throughout, in two's complement.
    words += np.uint64(low % 2**64)
    return words.astype(dtype)


def truncated(state: Any, count: int, dtype: DType) -> Any:
    """Standard normal numbers between -2 and 2: the quantiles of uniform numbers.

    Computed in float64 from the middle of each cell of the uniform numbers, so that neither
    end is reached by rounding.
    """
    numbers = uniform(state, count, dtype).astype(float64)
    numbers += 2.0**-54 if dtype == float64 else 2.0**-25
    below = 0.5 * math.erfc(math.sqrt(2.0))
    numbers *= 1 - 2 * below
    numbers += below
    return np.clip(normal_quantile(numbers), -2, 2)


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988 (PPND16):
# numerators and denominators for the middle, the nearer tails and the far tails.
_MIDDLE = (
    (
        2509.0809287301226727,
        33430.575583588128105,
        67265.770927008700853,
        45921.953931549871457,
        13731.693765509461125,
        1971.5909503065514427,
        133.14166789178437745,
        3.387132872796366608,
    ),
    (
        5226.495278852545925,
        28729.085735721942674,
        39307.89580009271061,
        21213.794301586595867,
        5394.1960214247511077,
        687.1870074920579083,
        42.313330701600911252,
        1.0,
    ),
)
_NEAR = (
    (
        7.7454501427834140764e-4,
        0.0227238449892691845833,
        0.24178072517745061177,
        1.27045825245236838258,
        3.64784832476320460504,
        5.7694972214606914055,
        4.6303378461565452959,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.475938084995344946e-4,
        0.0151986665636164571966,
        0.14810397642748007459,
        0.68976733498510000455,
        1.6763848301838038494,
        2.05319162663775882187,
        1.0,
    ),
)
_FAR = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        0.0012426609473880784386,
        0.026532189526576123093,
        0.29656057182850489123,
        1.7848265399172913358,
        5.4637849111641143699,
        6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15,
        1.4215117583164458887e-7,
        1.8463183175100546818e-5,
        7.868691311456132591e-4,
        0.0148753612908506148525,
        0.13692988092273580531,
        0.59983220655588793769,
        1.0,
    ),
)


def _ratio(coefficients: Any, x: Any) -> Any:
    upper, lower = (reduce(lambda total, c: total * x + c, row) for row in coefficients)
    return upper / lower


def quantile(xp: Any, p: Any) -> Any:
    """``normal_quantile`` in any library: all branches are computed, then selected."""
    q = p - 0.5
    middle = q * _ratio(_MIDDLE, 0.180625 - q * q)
    r = xp.sqrt(-xp.log(xp.where(q < 0, p, 1 - p)))
    size = xp.where(r <= 5, _ratio(_NEAR, r - 1.6), _ratio(_FAR, r - 5))
    return xp.where(xp.abs(q) > 0.425, xp.copysign(size, q), middle)


def normal_quantile(p: Any) -> Any:
    """The quantile of the standard normal distribution at ``p``, to about 1e-16."""
    q = p - 0.5
    result = q * _ratio(_MIDDLE, 0.180625 - q * q)
    outer = np.abs(q) > 0.425
    if outer.any():
        tail = np.where(q[outer] < 0, p[outer], 1 - p[outer])
        r = np.sqrt(-np.log(tail))
        size = np.where(r <= 5, _ratio(_NEAR, r - 1.6), _ratio(_FAR, r - 5))
        result[outer] = np.copysign(size, q[outer])
    return result
