"""Cases of eagerflow/ops/nn/quantization.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make

_SHAPES = (
    ((), ()),
    ((5,), ()),
    ((0,), ()),
    ((2, 3), (3,)),
    ((2, 3), (2, 1)),
    ((2, 3, 4), (1, 3, 1)),
    ((2, 4, 3), (2, 1, 3)),
    ((2, 4, 3), (2, 1, 1)),
    ((3, 5), (3, 5)),
    ((1, 1), (1, 1)),
    ((0, 3), (3,)),
)
"""Those of a tensor and of its scales."""


def _scales(rng, dtype, shape):
    """Scales with few bits, so that halves occur."""
    return np.asarray(2.0 ** rng.integers(-7, -1, shape) * rng.integers(1, 4, shape)).astype(dtype)


def _zeros(rng, dtype, shape):
    kind = np.dtype(dtype)
    limits = np.iinfo(kind)
    return np.asarray(rng.integers(limits.min, limits.max, shape, endpoint=True)).astype(kind)


def _quantize_samples(rng, dtype):
    names = ("int8", "uint8", "int16", "uint16")
    found = []
    for i, (shape, form) in enumerate(_SHAPES):
        to = names[i % 4]
        x, scale = make(rng, dtype, shape, -5, 5), _scales(rng, dtype, form)
        asked = {"dtype": to} if i % 3 else {}
        found.append(Sample((x, scale, _zeros(rng, to, form)), asked))
    x = make(rng, dtype, (4, 6))
    grid = (rng.integers(-9, 9, (4, 6)) / 4).astype(dtype)  # halves of the scale
    return [
        *found,
        Sample((x.T, _scales(rng, dtype, ()))),
        Sample((x[::2, ::-1], _scales(rng, dtype, (3,))[::-1].repeat(2)), {"dtype": "uint8"}),
        Sample((grid, np.asarray(0.5, dtype))),
        Sample((np.array([np.inf, -np.inf, np.nan], dtype), np.asarray(0.5, dtype))),
    ]


def _dequantize_samples(rng, dtype):
    found = []
    for i, (shape, form) in enumerate(_SHAPES):
        to = ("float32", "float64", "float16")[i % 3] if i < 6 else "float32"
        zero = _zeros(rng, "uint8" if dtype.kind == "u" else "int8", form).astype(dtype)
        x = make(rng, dtype, shape, -100, 100)
        found.append(Sample((x, _scales(rng, np.dtype(to), form), zero if i % 4 else None)))
    x = make(rng, dtype, (4, 6), -100, 100)
    return [*found, Sample((x[::-1].T, _scales(rng, np.dtype("float32"), (4,))))]


def _quantize_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x, x[0, :2]), {}, ShapeError, "broadcast"),
        ErrorSample((x[0], x), {}, ShapeError, "does not broadcast to (3,)"),
        ErrorSample((x, 0.5), {"dtype": "int64"}, DTypeError, "is not for quantized numbers"),
        ErrorSample((x, 0.5, 0.5), {}, DTypeError, "float"),
        ErrorSample((x, 0.5, 1), {}, DTypeError, "int64 is not for quantized numbers"),
    ]


def _dequantize_errors(rng):
    x = rng.integers(-9, 9, (2, 3), np.int8)
    return [
        ErrorSample((x, np.ones(2)), {}, ShapeError, "broadcast"),
        ErrorSample((x[0], np.ones((2, 3))), {}, ShapeError, "does not broadcast to (3,)"),
        ErrorSample((x * 0.5, 0.5), {}, DTypeError, "float"),
    ]


def _quantize_reference(x, scale, zero_point=None, dtype=None):
    """Element by element: the quotient in its dtype, the rest in Python integers."""
    wide = np.dtype("float64" if x.dtype == np.float64 else "float32")
    dtype = dtype or ("int8" if zero_point is None else zero_point.dtype)
    limits = np.iinfo(dtype)
    x, scale, zero = np.broadcast_arrays(x, scale, 0 if zero_point is None else zero_point)
    out = np.empty(x.shape, dtype)
    for at in np.ndindex(*x.shape):
        quotient = float(wide.type(x[at]) / wide.type(scale[at]))
        if math.isnan(quotient):
            quotient = -math.inf  # below all numbers
        low, high = int(limits.min) - 70000, int(limits.max) + 70000
        whole = round(min(max(quotient, low), high)) + int(zero[at])
        out[at] = min(max(whole, int(limits.min)), int(limits.max))
    return out


def _dequantize_reference(x, scale, zero_point=None):
    wide = x.astype(np.float64) - (0 if zero_point is None else zero_point.astype(np.float64))
    return (wide * scale.astype(np.float64)).astype(scale.dtype)


CASES = {
    "quantize": Cases(
        samples=_quantize_samples, errors=_quantize_errors, reference=_quantize_reference
    ),
    "dequantize": Cases(
        samples=_dequantize_samples, errors=_dequantize_errors, reference=_dequantize_reference
    ),
}
