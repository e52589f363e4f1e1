"""Random numbers by rejection sampling, as functions of NumPy only.

``draw(count, retry)`` returns words of 64 bits. A trial uses two of them for each number. Rejected
numbers are drawn again from the words of the next ``retry``, in order; so each number is a function
of the words and the parameters. Parameters are float64, with one axis; invalid ones give NaN. These
functions are copied into exported NumPy programs, so they have no type annotations.
"""

import math

import numpy as np


def unit_numbers(words):
    """Numbers from 0 up to, not including, 1, from the 53 highest bits of words."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def drawn_until_taken(found, left, attempt):
    """Fill ``found`` at ``left`` by ``attempt(left, retry)``: numbers, and their acceptance."""
    retry = 0
    while left.size:
        numbers, taken = attempt(left, retry)
        found[left[taken]] = numbers[taken]
        left = left[~taken]
        retry += 1
    return found


def gamma_numbers(draw, shape, log):
    """Numbers of gamma distributions, or their logarithms.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): normal numbers by
    Box and Muller, two from four words, the other two of which decide acceptance. Below 1 the
    number for ``shape + 1`` is multiplied by ``u ** (1 / shape)``, from the words of retry 2^32.
    """
    small = shape < 1
    d = np.where(small, shape + 1, shape) - 1 / 3

    def attempt(left, retry):
        u = unit_numbers(draw(4 * ((left.size + 1) // 2), retry)).reshape(-1, 4)
        radius = np.sqrt(-2 * np.log1p(-u[:, :1]))
        angle = 2 * math.pi * u[:, 1:2]
        x = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
        x, own = x.ravel()[: left.size], d[left]
        t = x / (3 * np.sqrt(own))
        inside = t > -1
        t = np.where(inside, t, 0)
        change = np.log1p(t)
        # d - d v + d log v for v = (1 + t)³, without cancellation.
        limit = x * x / 2 + own * (3 * (change - t) - t * t * (3 + t))
        taken = inside & (np.log1p(-u[:, 2:].ravel()[: left.size]) < limit)
        return (np.log(own) + 3 * change if log else own * (1 + t) ** 3), taken

    found = np.full(shape.shape, np.nan)
    found[shape == np.inf] = np.inf
    found[shape == 0] = -np.inf if log else 0
    found = drawn_until_taken(found, np.flatnonzero((shape > 0) & (shape < np.inf)), attempt)
    at = np.flatnonzero(small & (shape > 0))
    if at.size:
        power = np.log1p(-unit_numbers(draw(shape.size, 2**32)[at])) / shape[at]
        found[at] = found[at] + power if log else found[at] * np.exp(power)
    return found


def stirling_rest(k):
    """log(k!) - k log(k) + k for nonnegative integers."""
    few = np.arange(16.0)
    table = np.cumsum(np.log(np.maximum(few, 1))) - few * np.log(np.maximum(few, 1)) + few
    n = np.maximum(k, 16)
    inverse = 1 / (n * n)
    series = 1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))
    large = 0.5 * np.log(2 * math.pi * n) + series / n
    return np.where(k < 16, table[np.clip(k, 0, 15).astype(np.int64)], large)


def deviance(k, mean):
    """The sum k log(k / mean) + mean - k, which is 0 if both are equal."""
    n = np.maximum(k, 1)
    e = (mean - n) / n
    return np.where(k > 0, n * (e - np.log1p(np.maximum(e, 2.0**-53 - 1))), mean)


def counted(u, first, ratio, most):
    """The first counts at which cumulative probabilities exceed ``u``.

    ``first`` is the probability of 0, ``ratio(k, at)`` that of k divided by that of k - 1.
    """
    found, at = np.zeros(u.size), np.arange(u.size)
    term, total = first, first
    for k in range(1, 160):  # means are below 10
        going = (u[at] >= total) & (k <= most[at])
        at, term, total = at[going], term[going], total[going]
        if not at.size:
            break
        found[at] = k
        term = term * ratio(k, at)
        total = total + term
    return found


def poisson_numbers(draw, mean):
    """Numbers of Poisson distributions.

    From a mean of 10 on by Hörmann, "The transformed rejection method for generating Poisson
    random variables" (1993), PTRS; below by cumulative probabilities.
    """

    def attempt(left, retry):
        u, v = unit_numbers(draw(2 * left.size, retry)).reshape(-1, 2).T
        few = mean[left] < 10
        own = np.where(few, 10, mean[left])
        b = 0.931 + 2.53 * np.sqrt(own)
        a = -0.059 + 0.02483 * b
        near = 0.5 - np.abs(u - 0.5)
        safe = np.maximum(near, 2.0**-54)
        k = np.floor((2 * a / safe + b) * (u - 0.5) + own + 0.43)
        height = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (safe * safe) + b)
        kept = np.maximum(k, 0)
        density = -stirling_rest(kept) - deviance(kept, own)
        taken = (k >= 0) & (near > 0) & (np.log(np.maximum(height, 1e-300)) <= density)
        rare = mean[left][few]
        ratio = lambda n, at: rare[at] / n
        k[few] = counted(u[few], np.exp(-rare), ratio, np.full(rare.size, np.inf))
        return k, taken | few

    found = np.full(mean.shape, np.nan)
    return drawn_until_taken(found, np.flatnonzero((mean >= 0) & (mean < np.inf)), attempt)


def binomial_numbers(draw, trials, probability):
    """Numbers of binomial distributions.

    From an expectation of 10 on by Hörmann, "The generation of binomial random variates" (1993),
    BTRS; below by cumulative probabilities. Above a probability of 1/2, failures are counted
    instead.
    """
    rarer = np.minimum(probability, 1 - probability)

    def attempt(left, retry):
        u, v = unit_numbers(draw(2 * left.size, retry)).reshape(-1, 2).T
        n, p = trials[left], rarer[left]
        few = n * p < 10
        n, p = np.where(few, 40, n), np.where(few, 0.25, p)
        root = np.sqrt(n * p * (1 - p))
        b = 1.15 + 2.53 * root
        a = -0.0873 + 0.0248 * b + 0.01 * p
        near = 0.5 - np.abs(u - 0.5)
        safe = np.maximum(near, 2.0**-54)
        k = np.floor((2 * a / safe + b) * (u - 0.5) + n * p + 0.5)
        height = v * (2.83 + 5.1 / b) * root / (a / (safe * safe) + b)
        middle = np.floor((n + 1) * p)
        kept = np.clip(k, 0, n)
        density = binomial_log(kept, n, p) - binomial_log(middle, n, p)
        taken = (k == kept) & (near > 0) & (np.log(np.maximum(height, 1e-300)) <= density)
        n, p = trials[left][few], rarer[left][few]
        first = np.exp(n * np.log1p(-p))
        k[few] = counted(u[few], first, lambda i, at: (n[at] - i + 1) / i * p[at] / (1 - p[at]), n)
        return k, taken | few

    found = np.full(trials.shape, np.nan)
    valid = (trials >= 0) & (trials < np.inf) & (rarer >= 0) & (trials == np.floor(trials))
    found = drawn_until_taken(found, np.flatnonzero(valid), attempt)
    return np.where(probability > 0.5, trials - found, found)


def binomial_log(k, n, p):
    """Logarithms of the probabilities of k out of n, by terms that are small near the mean."""
    rest = stirling_rest(n) - stirling_rest(k) - stirling_rest(n - k)
    return rest - deviance(k, n * p) - deviance(n - k, n * (1 - p))


def von_mises_numbers(draw, concentration):
    """Angles of von Mises distributions around 0, from -pi to pi.

    Best and Fisher, "Efficient simulation of the von Mises distribution" (1979), in a form without
    cancellation.
    """

    def attempt(left, retry):
        words = draw(2 * left.size, retry).reshape(-1, 2)
        u, v = unit_numbers(words).T
        k = np.minimum(concentration[left], 1e100)
        root = np.sqrt(1 + 4 * k * k)
        whole = 1 + root + np.sqrt(2 * (1 + root))
        rho = 2 * k / whole
        gap = (1 + 1 / (root + 2 * k) + np.sqrt(2 * (1 + root))) / whole  # 1 - rho
        sine, cosine = np.sin(math.pi / 2 * u), np.cos(math.pi / 2 * u)
        below = gap * gap + 4 * rho * cosine * cosine
        half = gap * gap * sine * sine / below  # (1 - cos angle) / 2
        c = whole / 4 * (gap * (1 + rho)) ** 2 / below
        taken = np.log(c) - np.log1p(-v) + 1 - c >= 0
        angle = 2 * np.arcsin(np.sqrt(np.minimum(half, 1)))
        return np.where(words[:, 0] & np.uint64(1), angle, -angle), taken

    found = np.full(concentration.shape, np.nan)
    found[concentration == np.inf] = 0
    valid = (concentration >= 0) & (concentration < np.inf)
    return drawn_until_taken(found, np.flatnonzero(valid), attempt)
