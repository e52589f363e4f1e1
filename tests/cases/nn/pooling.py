"""Cases of eagerflow/ops/nn/pooling.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.nn.pooling import of_input
from eagerflow.spec import TensorSpec
from tests.cases.nn.convolution import windows_of
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make

_CASES = (
    ((2, 4, 4, 2), {"window": 2}),
    ((1, 5, 4, 3), {"window": 2}),
    ((1, 5, 5, 1), {"window": 3, "strides": 2, "padding": "same"}),
    ((2, 4, 5, 2), {"window": (2, 3), "strides": 1}),
    ((1, 5, 4, 2), {"window": 3, "strides": 1, "padding": "same"}),
    ((1, 6, 5, 1), {"window": (3, 2), "strides": (2, 3), "padding": ((1, 2), (0, 1))}),
    ((1, 7, 7, 1), {"window": 2, "strides": 3}),
    ((2, 6, 3), {"window": 2}),
    ((1, 5, 2), {"window": 3, "strides": 2, "padding": "same"}),
    ((1, 4, 2, 3, 2), {"window": (2, 2, 1)}),
    ((1, 3, 3, 2), {"window": 1}),
    ((1, 5, 6, 2), {"window": 2, "ceil_mode": True}),
    ((1, 6, 5, 1), {"window": 3, "strides": 2, "padding": 1, "ceil_mode": True}),
    ((1, 7, 6, 1), {"window": (2, 1), "strides": (3, 4), "ceil_mode": True}),
    ((1, 3, 5, 1), {"window": (4, 2), "strides": 2, "ceil_mode": True}),
    ((1, 6, 7, 2), {"window": 2, "strides": 1, "dilation": (2, 3)}),
    ((1, 7, 5, 1), {"window": 3, "strides": 2, "dilation": 2, "padding": ((2, 3), (1, 2))}),
    ((1, 6, 4, 1), {"window": 2, "dilation": 2, "padding": "same", "strides": 1}),
    ((1, 8, 1), {"window": 2, "strides": 3, "dilation": 3, "padding": 2, "ceil_mode": True}),
    ((1, 5, 5, 1), {"window": 2, "padding": "same"}),
    ((0, 4, 4, 2), {"window": 2}),
    ((2, 3, 3, 0), {"window": 2, "padding": "same"}),
)


_DEFAULTS = {
    "strides": None,
    "padding": "valid",
    "dilation": 1,
    "ceil_mode": False,
}


def _samples(given):
    """Calls with these arguments for each case: x, a tangent t of it, or g for the result."""

    def samples(rng, dtype):
        found = []
        for shape, more in _CASES:
            _, y = of_input(TensorSpec(shape, dtype), **_DEFAULTS | more)
            arrays = {"x": distinct(rng, dtype, shape), "t": make(rng, dtype, shape)}
            arrays["g"] = make(rng, dtype, y.shape)
            size = {} if "x" in given else {"size": shape[1:-1]}
            found.append(Sample(tuple(arrays[name] for name in given), size | more))
        if given == "x":
            x = distinct(rng, dtype, (3, 4, 5, 2))
            found += [Sample((a,), {"window": 2}) for a in (x.T, x[:, ::-1, ::2])]
        return found

    return samples


def _errors(rng):
    x = rng.standard_normal((2, 5, 5, 4))
    bad = [
        ({"window": 6}, "does not fit"),
        ({"window": 0}, "too small"),
        ({"window": (2, 2, 2)}, "for each spatial axis"),
        ({"window": 2, "strides": 0}, "too small"),
        ({"window": 2, "padding": "full"}, "is not a kind of padding"),
        ({"window": 2, "padding": ((0, -1), (0, 0))}, "negative"),
        ({"window": 2, "padding": 2}, "beside the input"),
        ({"window": 2, "dilation": 6}, "does not fit"),
        ({"window": 2, "dilation": 0}, "too small"),
        ({"window": 3, "dilation": 6, "padding": 4}, "beside the input"),
    ]
    return [
        *(ErrorSample((x,), more, ShapeError, words) for more, words in bad),
        ErrorSample((x[0, 0],), {"window": 2}, ShapeError, "too few"),
    ]


def _pair_errors(rng, words):
    x = rng.standard_normal((2, 4, 4, 3))
    return [
        ErrorSample((x, x[:, :3]), {"window": 2}, ShapeError, words),
        ErrorSample((x, x[0]), {"window": 2}, ShapeError, words),
        ErrorSample((x, x), {"window": 5}, ShapeError, "does not fit"),
        ErrorSample((x, x), {"window": 2, "padding": "full"}, ShapeError, "kind of padding"),
    ]


def _transpose_errors(rng):
    g = rng.standard_normal((2, 2, 2, 3))
    return [
        ErrorSample((g,), {"size": 6, "window": 2}, ShapeError, "pooling gives"),
        ErrorSample((g,), {"size": (4,), "window": 2}, ShapeError, "for each spatial axis"),
        ErrorSample((g,), {"size": 4, "window": 2, "strides": 0}, ShapeError, "too small"),
        ErrorSample((g[0, 0],), {"size": (), "window": 2}, ShapeError, "too few"),
    ]


def _starts(size, extent, stride, pad, ceil_mode):
    """Where a window starts along an axis, position by position."""
    before, after = pad
    at = -before
    while at + extent <= size + after:
        yield at
        at += stride
    if ceil_mode and at - stride + extent < size + after and at < size:
        yield at


def _pieces(shape, window, strides, padding, dilation, ceil_mode):
    """For each position: its index, and that of the elements of the input that a window covers."""
    sizes = shape[1:-1]
    rank = len(sizes)
    kernel, spread = (v if isinstance(v, tuple) else (v,) * rank for v in (window, dilation))
    steps = kernel if strides is None else strides
    steps = steps if isinstance(steps, tuple) else (steps,) * rank
    pads = windows_of(sizes, kernel, steps, padding, spread)[0]
    columns = []
    for n, k, s, d, pad in zip(sizes, kernel, steps, spread, pads, strict=True):
        starts = _starts(n, (k - 1) * d + 1, s, pad, ceil_mode and padding != "same")
        columns.append([[p for t in range(k) if 0 <= (p := i + t * d) < n] for i in starts])
    for at in np.ndindex(*map(len, columns)):
        inside = (places[i] for places, i in zip(columns, at, strict=True))
        yield (slice(None), *at), np.ix_(range(shape[0]), *inside, range(shape[-1]))


def _reference(function):
    def reference(x, **where):
        y = np.empty(of_input(TensorSpec(x.shape, x.dtype), **where).y.shape, x.dtype)
        for at, piece in _pieces(x.shape, **where):
            y[at] = function(x[piece], axis=tuple(range(1, x.ndim - 1)))
        return y

    return reference


def _places(x, **where):
    """For each window, image and channel: the index of the result and that of the maximum."""
    for at, piece in _pieces(x.shape, **where):
        part = x[piece]
        for n, c in np.ndindex(x.shape[0], x.shape[-1]):
            found = np.unravel_index(int(part[n, ..., c].argmax()), part.shape[1:-1])
            offsets = [int(p.flat[i]) for p, i in zip(piece[1:-1], found, strict=True)]
            yield (n, *at[1:], c), (n, *offsets, c)


def _gradient_reference(x, g, **where):
    result = np.zeros_like(x)
    for at, place in _places(x, **where):
        result[place] += g[at]
    return result


def _gather_reference(x, t, **where):
    y = np.zeros(of_input(TensorSpec(x.shape, x.dtype), **where).y.shape, x.dtype)
    for at, place in _places(x, **where):
        y[at] = t[place]
    return y


def _transpose_reference(g, size, **where):
    sizes = size if isinstance(size, tuple) else (size,) * (g.ndim - 2)
    x = np.zeros((g.shape[0], *sizes, g.shape[-1]), g.dtype)
    for at, piece in _pieces(x.shape, **where):
        count = np.prod(x[piece].shape[1:-1])
        x[piece] += g[at].reshape(len(g), *(1,) * (g.ndim - 2), g.shape[-1]) / count.astype(g.dtype)
    return x


CASES = {
    "max_pool": Cases(_samples("x"), _errors, _reference(np.max)),
    "max_pool_gradient": Cases(
        samples=_samples("xg"),
        errors=lambda rng: _pair_errors(rng, "pooling gives"),
        reference=_gradient_reference,
    ),
    "max_pool_gather": Cases(
        samples=_samples("xt"),
        errors=lambda rng: _pair_errors(rng, "t has shape")[:2] + _pair_errors(rng, "")[2:],
        reference=_gather_reference,
    ),
    "avg_pool": Cases(_samples("x"), _errors, _reference(np.mean)),
    "avg_pool_gradient": Cases(_samples("g"), _transpose_errors, _transpose_reference),
}
