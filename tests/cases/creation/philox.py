"""The numbers of the random generator, one by one in Python: an independent reference."""

import math

from eagerflow.codegen.numpy.philox import KEY_STEPS, MULTIPLIERS
from eagerflow.dtypes import float64

_ALL = 2**64 - 1


def slow_words(state, count, retry=0):
    """The words of ``bits``, computed in Python integers from the definition in the paper."""
    first, second, draw = (int(word) for word in state)
    found = []
    while len(found) < count:
        found += _slow_block([len(found) // 4, draw, retry, 0], first, second)
    return found[:count]


def _slow_block(counter, first, second):
    a, b, c, d = counter
    for _ in range(10):
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (
            (right >> 64) ^ b ^ first,
            right & _ALL,
            (left >> 64) ^ d ^ second,
            left & _ALL,
        )
        first, second = (first + KEY_STEPS[0]) & _ALL, (second + KEY_STEPS[1]) & _ALL
    return [a, b, c, d]


def slow_uniform(state, count, dtype):
    """The numbers of ``uniform``, one by one."""
    if dtype == float64:
        return [(word >> 11) / 2**53 for word in slow_words(state, count)]
    words = slow_words(state, (count + 1) // 2)
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    return [(half >> 8) / 2**24 for half in halves[:count]]


def slow_normal(state, count, dtype):
    """The numbers of ``normal``, one by one, in double precision."""
    u = slow_uniform(state, count + count % 2, dtype)
    found = []
    for a, b in zip(u[::2], u[1::2], strict=True):
        radius = math.sqrt(-2 * math.log(1 - a))
        found += [radius * math.cos(2 * math.pi * b), radius * math.sin(2 * math.pi * b)]
    return found[:count]


def slow_integers(state, count, low, high):
    """The numbers of ``integers``, one by one; retries are not needed in small samples."""
    return [low + word % (high - low) for word in slow_words(state, count)]


def slow_truncated(state, count, dtype):
    """The numbers of ``truncated``, each found by bisection of the distribution function."""
    half = 2.0**-54 if dtype == float64 else 2.0**-25
    below = 0.5 * math.erfc(math.sqrt(2.0))
    found = []
    for u in slow_uniform(state, count, dtype):
        wanted = below + (u + half) * (1 - 2 * below)
        found.append(_bisect(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), wanted))
    return found


def _bisect(function, wanted):
    low, high = -2.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
