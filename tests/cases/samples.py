"""Sample arguments for the contract tests: ``samples(rng, dtype)`` returns a list of calls.

Every family of shapes that tends to break kernels is here once: no axes, size 0, size 1,
strided, reversed, transposed, broadcast (stride 0).
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Cases",
    "ErrorSample",
    "Sample",
    "clear_of",
    "distinct",
    "each",
    "make",
    "moved_from",
    "pairs",
    "reals",
    "reduced",
    "rows",
    "shaped",
    "triples",
    "values",
]


class Sample(NamedTuple):
    """Arguments of a call that must work; arrays are NumPy's."""

    args: tuple[Any, ...]
    attributes: dict[str, Any] = {}


class ErrorSample(NamedTuple):
    """Arguments of a call that must raise ``error`` with ``words`` in its message."""

    args: tuple[Any, ...]
    attributes: dict[str, Any]
    error: type[Exception]
    words: str


class Cases(NamedTuple):
    """The cases of an op; what is None follows from its family (families.py).

    ``samples(rng, dtype)`` gives calls, ``errors(rng)`` refused ones; ``reference`` computes the
    results from arrays and all attributes, or is ``Missing`` with the reason.
    """

    samples: Any = None
    errors: Any = None
    reference: Any = None


SHAPES = ((), (1,), (5,), (0,), (2, 3), (0, 3), (3, 1, 4), (1, 1))
PAIRS = (
    ((), ()),
    ((3,), ()),
    ((), (2, 2)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((4,), (4,)),
    ((0, 3), (3,)),
    ((2, 1, 3), (4, 1)),
    ((1,), (5,)),
    ((2, 2, 2), (2, 1, 2)),
)


ROWS = (
    ((4,), 0),
    ((1,), -1),
    ((2, 3), -1),
    ((2, 3), 0),
    ((0, 3), -1),
    ((5, 1), 1),
    ((2, 3, 4), 1),
    ((2, 3, 4), -3),
    ((70, 4), 1),
)
"""Shapes, and the axis of nonempty rows."""
EMPTY_ROWS = (((0,), 0), ((3, 0), 1))


def rows(dtype, *, empty):
    """Shapes and axes of samples of a dtype; with many short rows where no gradient is checked."""
    for shape, axis in (*ROWS, *(EMPTY_ROWS if empty else ())):
        yield shape if shape[0] < 70 or dtype.itemsize < 8 else (5, 4), axis


def make(
    rng,
    dtype,
    shape,
    low=-2,
    high=2,
):
    """An array of values between ``low`` and ``high``, complex in a square around them."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        low = max(low, 0) if dtype.kind == "u" else low
        return np.asarray(rng.integers(int(np.ceil(low)), int(high) + 1, shape)).astype(dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


def distinct(rng, dtype, shape):
    """Values without close floats: difference quotients would see a crossing."""
    if dtype.kind in "bui":
        return make(rng, dtype, shape)
    size = int(np.prod(shape))
    return rng.permutation(np.linspace(-2, 2, size)).reshape(shape).astype(dtype)


def values(rng, dtype, low=-2, high=2):
    """Arrays of all the shapes and memory layouts."""
    found = [make(rng, dtype, shape, low, high) for shape in SHAPES]
    base = make(rng, dtype, (4, 6), low, high)
    found += [base[::2, ::3], base[::-1, 1:-1], base.T]
    found += [np.broadcast_to(make(rng, dtype, (3,), low, high), (2, 3))]
    return found


def reals(low=-2, high=2, **attributes):
    """Samples of a function of one array with values from ``low`` to ``high``."""
    return lambda rng, dtype: [
        Sample((x,), dict(attributes)) for x in values(rng, dtype, low, high)
    ]


def moved_from(kink, x):
    """Floats without those close to a point, which go to its right."""
    close = np.abs(x - kink) < 0.05
    return np.where(close, np.asarray(kink + 0.2, x.dtype), x) if close.any() else x


def clear_of(kinks, low, high, **attributes):
    """Samples of a function of one array, away from points without a derivative."""

    def samples(rng, dtype):
        found = values(rng, dtype, low, high)
        if np.dtype(dtype).kind == "f":
            for kink in kinks:
                found = [moved_from(kink, x) for x in found]
        return [Sample((x,), dict(attributes)) for x in found]

    return samples


def pairs(low=-2, high=2, low2=None, high2=None):
    """Samples of a function of two arrays that broadcast, with a range for each."""

    def samples(rng, dtype):
        second = (low if low2 is None else low2, high if high2 is None else high2)
        found = [
            Sample((make(rng, dtype, a, low, high), make(rng, dtype, b, *second))) for a, b in PAIRS
        ]
        base = make(rng, dtype, (4, 6), low, high)
        other = make(rng, dtype, (6, 4), *second)
        found.append(Sample((base[::2, ::-1], other.T[1::2])))
        found.append(Sample((base.T, other)))
        return found

    return samples


def triples(low=-2, high=2):
    """Samples of a function of three arrays that broadcast."""
    of_two = pairs(low, high)
    return lambda rng, dtype: [
        Sample((*sample.args, make(rng, dtype, sample.args[0].shape, low, high)))
        for sample in of_two(rng, dtype)
    ]


def reduced(low=-2, high=2, empty=True, **attributes):
    """Samples of a reduction: all kinds of axes, kept or not."""

    def samples(rng, dtype):
        x = make(rng, dtype, (2, 3, 4), low, high)
        found = [Sample((make(rng, dtype, (), low, high),), dict(attributes))]
        for axis in (None, 0, 1, -1, (0, 2), (-1, 1), ()):
            for keepdims in (False, True):
                found.append(Sample((x,), {"axis": axis, "keepdims": keepdims} | attributes))
        found.append(Sample((x[:, ::-2].T,), {"axis": 1} | attributes))
        if empty:
            found.append(Sample((make(rng, dtype, (0, 3)),), {"axis": 0} | attributes))
        found.append(Sample((make(rng, dtype, (0, 3)),), {"axis": 1} | attributes))
        return found

    return samples


def shaped(names, *rows, turned, repeated):
    """Samples of one array: each row is a shape, and values of the attributes ``names``.

    ``turned`` are the attributes for an array of shape (3, 4) whose memory has gaps and another
    order, ``repeated`` those for one of shape (2, 6) that is a broadcast row.
    """

    def samples(rng, dtype):
        found = [
            Sample((make(rng, dtype, shape),), dict(zip(names.split(), given, strict=True)))
            for shape, *given in rows
        ]
        base = make(rng, dtype, (4, 6))
        wide = np.broadcast_to(base[0], (2, 6))
        return [*found, Sample((base.T[::2],), dict(turned)), Sample((wide,), dict(repeated))]

    return samples


def each(function):
    """An independent reference: ``function`` of Python numbers, element by element."""

    def reference(*args, **attributes):
        columns = np.broadcast_arrays(*args)
        flat = zip(*(column.ravel().tolist() for column in columns), strict=True)
        results = [function(*row, **attributes) for row in flat]
        return np.array(results).reshape(columns[0].shape)

    return reference
