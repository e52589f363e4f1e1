"""Functions of each element, and along one axis."""

import math

import numpy as np


def sigmoid(x):
    """The logistic function."""
    return 1 / (1 + np.exp(-x))


def erf(x):
    """The error function."""
    return np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype)


def erfc(x):
    """1 - erf(x), also where that is tiny."""
    return np.vectorize(math.erfc, otypes=[float])(x).astype(x.dtype)


def floor_quotient(x1, x2):
    """The quotient of floats rounded down, also where one of them is infinite."""
    infinite = np.isinf(x1) | np.isinf(x2)
    return np.where(infinite, np.floor(x1 / x2), x1 // x2)


def complex_logaddexp(x1, x2):
    """The principal logarithm of the sum of two exponentials."""
    largest = np.maximum(x1.real, x2.real)
    return largest + np.log(np.exp(x1 - largest) + np.exp(x2 - largest))


def complex_sigmoid(x):
    """The logistic function of complex numbers."""
    small = np.exp(np.where(x.real < 0, x, -x))
    return np.where(x.real < 0, small, 1) / (1 + small)


def sort_descending(x, axis):
    """Elements from the largest to the smallest."""
    return np.flip(np.sort(np.flip(x, axis), axis, stable=True), axis)


def argsort_descending(x, axis):
    """Positions of elements from the largest to the smallest; equal elements keep their order."""
    places = np.argsort(np.flip(x, axis), axis, stable=True)
    return np.flip(x.shape[axis] - 1 - places, axis)


def cumulative(accumulate, x, axis, include_initial=False, reverse=False):
    """Running sums or products, from the end if ``reverse``, optionally with the initial value."""
    x = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    found = accumulate(x, 0)
    if include_initial:
        start = np.full((1, *x.shape[1:]), accumulate is np.cumprod, found.dtype)
        found = np.concatenate([start, found])
    return np.moveaxis(found[:: -1 if reverse else 1], 0, axis)


def places_in_rows(x, values, side="left", sorter=None):
    """Positions at which values would be inserted into sorted rows, row by row."""
    if sorter is not None:
        x = np.take_along_axis(x, sorter, -1)
    found = np.zeros(values.shape, np.int64)
    for at in np.ndindex(values.shape[:-1]):
        found[at] = np.searchsorted(x[at], values[at], side)
    return found
