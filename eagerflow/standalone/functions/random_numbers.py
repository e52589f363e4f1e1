"""Random numbers as functions of a state of three words: Philox4x64-10."""

import math

import numpy as np

from eagerflow.codegen.numpy.rejection import (
    binomial_numbers,
    gamma_numbers,
    poisson_numbers,
    von_mises_numbers,
)


def random_words(state, count, retry=0):
    """Words of 64 bits: a counter, encrypted with the first two words of a state."""
    low, high, draw = state.tolist()
    counter = ((draw << 64 | retry << 128) - 1) % 2**256  # NumPy adds one before each block
    return np.random.Philox(counter=counter, key=low | high << 64).random_raw(count)


def drawn(state, shape, dtype, fill):
    """``fill(state, count)`` for each state, in a shape."""
    count = int(np.prod(shape))
    shape = shape if isinstance(shape, tuple) else (shape,)
    rows = [fill(one, count) for one in state.reshape(-1, 3)]
    return np.array(rows, dtype).reshape((*state.shape[:-1], *shape))


def uniform(state, count, dtype):
    """Numbers from 0 up to 1, with as many random bits as float64, or float32."""
    if dtype == np.float64:
        return (random_words(state, count) >> np.uint64(11)) * 2.0**-53
    halves = random_words(state, (count + 1) // 2).view(np.uint32)[:count]
    return (halves >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def random_bits(state, shape):
    """Words of 64 random bits."""
    return drawn(state, shape, np.uint64, random_words)


def random_uniform(state, shape, dtype):
    """Numbers from 0 up to, not including, 1."""

    def fill(one, count):
        numbers = uniform(one, count, dtype)
        return np.floor(numbers * 2**11) / 2**11 if dtype == np.float16 else numbers

    return drawn(state, shape, dtype, fill)


def random_normal(state, shape, dtype):
    """Numbers of the standard normal distribution, in pairs by Box and Muller."""

    def fill(one, count):
        pairs = uniform(one, count + count % 2, dtype).reshape(-1, 2)
        radius = np.sqrt(-2 * np.log(1 - pairs[:, 0]))
        angle = 2 * math.pi * pairs[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:count]

    return drawn(state, shape, dtype, fill)


def ratio(upper, lower, x):
    """The quotient of two polynomials, the highest coefficients first."""
    return np.polyval(upper, x) / np.polyval(lower, x)


def normal_quantile(p):
    """The quantile function of the standard normal distribution (Wichura, AS 241, 1988)."""
    q = p - 0.5
    r = 0.180625 - q * q
    middle = q * ratio(
        [
            2509.0809287301226727,
            33430.575583588128105,
            67265.770927008700853,
            45921.953931549871457,
            13731.693765509461125,
            1971.5909503065514427,
            133.14166789178437745,
            3.387132872796366608,
        ],
        [
            5226.495278852545925,
            28729.085735721942674,
            39307.89580009271061,
            21213.794301586595867,
            5394.1960214247511077,
            687.1870074920579083,
            42.313330701600911252,
            1.0,
        ],
        r,
    )
    outer = np.abs(q) > 0.425
    if not outer.any():
        return middle
    r = np.sqrt(-np.log(np.where(q < 0, p, 1 - p))) - 1.6
    tail = ratio(
        [
            7.7454501427834140764e-4,
            0.0227238449892691845833,
            0.24178072517745061177,
            1.27045825245236838258,
            3.64784832476320460504,
            5.7694972214606914055,
            4.6303378461565452959,
            1.42343711074968357734,
        ],
        [
            1.05075007164441684324e-9,
            5.475938084995344946e-4,
            0.0151986665636164571966,
            0.14810397642748007459,
            0.68976733498510000455,
            1.6763848301838038494,
            2.05319162663775882187,
            1.0,
        ],
        r,
    )
    return np.where(outer, np.copysign(tail, q), middle)


def random_truncated_normal(state, shape, dtype):
    """Numbers of the standard normal distribution between -2 and 2."""

    def fill(one, count):
        cell = 2.0**-54 if dtype == np.float64 else 2.0**-25
        below = 0.5 * math.erfc(math.sqrt(2.0))
        numbers = uniform(one, count, dtype).astype(np.float64) + cell
        return np.clip(normal_quantile(numbers * (1 - 2 * below) + below), -2, 2)

    return drawn(state, shape, dtype, fill)


def random_exponential(state, shape, dtype):
    """Numbers of the exponential distribution with mean 1."""
    return drawn(state, shape, dtype, lambda one, n: -np.log1p(-uniform(one, n, dtype)))


def random_keep(state, shape, rate, dtype):
    """Factors of dropout: 0 at the given rate, else 1 / (1 - rate)."""

    def fill(one, count):
        kept = uniform(one, count, np.float32) >= np.float32(rate)
        return np.where(kept, 1 / (1 - rate), 0)

    return drawn(state, shape, dtype, fill)


def random_integers(state, shape, low, high, dtype):
    """Integers from ``low`` up to, not including, ``high``."""

    def fill(one, count):
        words, retry = random_words(one, count), 0
        # Words from the last multiple of the range on are rejected.
        limit = 2**64 - 2**64 % (high - low)
        while (wrong := np.flatnonzero(words > np.uint64(limit - 1))).size:
            retry += 1
            words[wrong] = random_words(one, wrong.size, retry)
        if high - low < 2**64:
            words %= np.uint64(high - low)
        return (words + np.uint64(low % 2**64)).astype(dtype)

    return drawn(state, shape, dtype, fill)


def words_of(state):
    """A state's words as a function of their count and of the retry."""
    return lambda count, retry: random_words(state, count, retry)


def drawn_with(state, parameters, shape, dtype, numbers):
    """``numbers(draw, *parameters)`` for each state, in the shape that parameters broadcast to."""
    shape = (*state.shape[:-1], *(shape if isinstance(shape, tuple) else (shape,)))
    states = state.reshape(-1, 3)
    given = [np.broadcast_to(np.asarray(x, np.float64), shape) for x in parameters]
    rows = [x.reshape(len(states), -1) if x.size else [x.ravel()] * len(states) for x in given]
    found = [numbers(words_of(one), *(x[i] for x in rows)) for i, one in enumerate(states)]
    return np.array(found).reshape(shape).astype(dtype)


def random_gamma(state, alpha, shape, log, dtype):
    """Numbers of the gamma distribution, or their logarithms."""
    return drawn_with(state, [alpha], shape, dtype, lambda draw, a: gamma_numbers(draw, a, log))


def random_poisson(state, rate, shape, dtype):
    """Numbers of the Poisson distribution."""
    return drawn_with(state, [rate], shape, dtype, poisson_numbers)


def random_binomial(state, count, probability, shape, dtype):
    """Numbers of successes among independent trials."""
    return drawn_with(state, [count, probability], shape, dtype, binomial_numbers)


def random_von_mises(state, concentration, shape, dtype):
    """Angles of the von Mises distribution around 0."""
    return drawn_with(state, [concentration], shape, dtype, von_mises_numbers)


def random_permutation(state, shape):
    """The integers from 0 on in random order along the last axis."""

    def fill(one, count):
        return np.argsort(random_words(one, count).reshape(shape), axis=-1, stable=True).ravel()

    return drawn(state, shape, np.int64, fill)
