"""Cases of eagerflow/ops/nn/convolution.py."""

import itertools
from math import prod

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.nn.convolution import of_conv
from eagerflow.spec import TensorSpec
from tests.cases.samples import Cases, ErrorSample, Sample, make

# x, w, attributes
_CASES = (
    ((2, 5, 5, 2), (3, 3, 2, 3), {}),
    ((1, 5, 4, 1), (3, 2, 1, 2), {"strides": 2}),
    ((1, 6, 5, 2), (3, 3, 2, 2), {"strides": (1, 2), "padding": "valid"}),
    ((2, 5, 5, 2), (2, 2, 2, 1), {"dilation": 2, "padding": "valid"}),
    ((1, 4, 4, 4), (3, 3, 2, 2), {"groups": 2}),
    ((2, 4, 3, 3), (2, 3, 1, 3), {"groups": 3}),
    ((1, 4, 5, 2), (3, 3, 1, 4), {"groups": 2, "strides": 2, "padding": ((0, 1), (2, 0))}),
    ((2, 3, 3, 2), (1, 1, 2, 3), {}),
    ((2, 3, 4, 2), (1, 1, 2, 1), {"strides": 2}),
    ((2, 6, 2), (3, 2, 2), {}),
    ((1, 7, 1), (2, 1, 2), {"strides": 3, "padding": ((2, 2),), "dilation": 2}),
    ((1, 3, 3, 2, 2), (2, 3, 1, 2, 1), {"padding": "valid"}),
    ((0, 4, 4, 1), (3, 3, 1, 2), {}),
    ((2, 3, 3, 0), (2, 2, 0, 2), {"padding": "valid"}),
    ((1, 2, 2, 1), (3, 3, 1, 1), {"padding": 4}),
)


_DEFAULTS = {"strides": 1, "padding": "same", "dilation": 1, "groups": 1}


def _samples(given, result):
    """Calls with the arguments ``given`` for each case: ranks, strides, padding, dilation, groups,
    empty arrays.
    """

    def samples(rng, dtype):
        found = []
        for x, w, more in _CASES:
            specs = of_conv(TensorSpec(x, dtype), TensorSpec(w, dtype), **_DEFAULTS | more)
            arrays = {name: make(rng, dtype, s.shape) for name, s in specs._asdict().items()}
            size = {"x": {"size": x[1:-1]}, "w": {"size": w[:-2]}, "y": {}}[result]
            found.append(Sample(tuple(arrays[name] for name in given), size | more))
        return found

    return samples


def _conv_samples(rng, dtype):
    """The same with arrays in other orders in memory."""
    x, w = make(rng, dtype, (5, 4, 3, 2)), make(rng, dtype, (2, 3, 2, 3))
    return [
        *_samples("xw", "y")(rng, dtype),
        Sample((x.T[..., :3], w.T[::-1])),
        Sample((np.broadcast_to(x[:1, :, :1], (2, 4, 3, 2)), w), {"padding": "valid"}),
    ]


def _conv_errors(rng):
    """Calls of ``conv`` that are refused."""
    x, w = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((3, 3, 4, 2))
    bad = [
        ({"strides": 0}, "too small"),
        ({"strides": (1, 1, 1)}, "for each spatial axis"),
        ({"padding": "full"}, "is not a kind of padding"),
        ({"padding": ((0, -1), (0, 0))}, "negative"),
        ({"padding": ((0, 1),)}, "does not pad each spatial axis"),
        ({"dilation": 0}, "too small"),
        ({"dilation": 3, "padding": "valid"}, "does not fit"),
        ({"groups": 3}, "do not divide"),
        ({"groups": 2}, "the weights take 8"),
    ]
    found = [ErrorSample((x, w), more, ShapeError, words) for more, words in bad]
    return [
        *found,
        ErrorSample((x, w[:, :, :3]), {}, ShapeError, "x has 4 channels, the weights take 3"),
        ErrorSample((x[0, 0], w), {}, ShapeError, "too few"),
        ErrorSample((x, w[0]), {}, ShapeError, "w has 3 axes, x has 4"),
        ErrorSample((x[:, :2], w), {"padding": "valid"}, ShapeError, "does not fit"),
        ErrorSample((x, w[:0]), {}, ShapeError, "has no elements"),
    ]


def _input_errors(rng):
    """Calls of ``conv_input_gradient`` that are refused."""
    g, w = rng.standard_normal((2, 5, 5, 2)), rng.standard_normal((3, 3, 4, 2))
    return [
        ErrorSample((g, w), {"size": (6, 5)}, ShapeError, "the convolution gives (6, 5)"),
        ErrorSample((g, w), {"size": (5,)}, ShapeError, "for each spatial axis"),
        ErrorSample((g[..., :1], w), {"size": (5, 5)}, ShapeError, "g has 1 channels"),
        ErrorSample((g, w[0]), {"size": (5, 5)}, ShapeError, "w has 3 axes"),
        ErrorSample((g, w), {"size": 5, "strides": 0}, ShapeError, "too small"),
        ErrorSample((g, w), {"size": 5, "groups": (3,)}, ShapeError, "(3,) is no number"),
    ]


def _filter_errors(rng):
    """Calls of ``conv_filter_gradient`` that are refused."""
    x, g = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((2, 5, 5, 2))
    return [
        ErrorSample((x, g[:, 1:]), {"size": 3}, ShapeError, "the convolution gives (5, 5)"),
        ErrorSample((x, g[:1]), {"size": 3}, ShapeError, "x has 2 examples, g has 1"),
        ErrorSample((x, g[0]), {"size": 3}, ShapeError, "g has 3 axes"),
        ErrorSample((x, g), {"size": (3, 0)}, ShapeError, "no elements"),
        ErrorSample((x, g), {"size": 3, "groups": 4}, ShapeError, "do not divide"),
    ]


def windows_of(size, kernel, strides, padding, dilation):
    """Padding, positions, and for each: its index, and the padded elements in its window."""
    rank = len(size)
    steps, spread = (v if isinstance(v, tuple) else (v,) * rank for v in (strides, dilation))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    if padding == "valid":
        pads = [(0, 0)] * rank
    elif padding == "same":
        need = [
            max((-(-n // s) - 1) * s + e - n, 0)
            for n, s, e in zip(size, steps, extent, strict=True)
        ]
        pads = [(total // 2, total - total // 2) for total in need]
    else:
        items = padding if isinstance(padding, tuple) else (padding,) * rank
        pads = [(p, p) if isinstance(p, int) else p for p in items]
    columns = zip(size, pads, extent, steps, strict=True)
    out = [(n + a + b - e) // s + 1 for n, (a, b), e, s in columns]
    pieces = [
        (
            at,
            tuple(
                slice(i * s, i * s + e, d)
                for i, s, e, d in zip(at, steps, extent, spread, strict=True)
            ),
        )
        for at in itertools.product(*map(range, out))
    ]
    return pads, out, pieces


_AXES = {"x": "nkgi", "w": "kigo", "y": "ngo"}
"""The axes of a position's inputs: images, elements of the window, groups, inputs, outputs."""


def _reference(given, result):
    """One of the three ops, window by window."""
    equation = f"{_AXES[given[0]]},{_AXES[given[1]]}->{_AXES[result]}"

    def reference(a, b, groups, size=None, **where):
        found = {given[0]: a, given[1]: b}
        x, w, y = (found.get(name, np.empty(0)) for name in "xwy")
        whole = size if isinstance(size, tuple) else (size,) * (a.ndim - 2)
        sizes = whole if result == "x" else x.shape[1:-1]
        kernel = whole if result == "w" else w.shape[:-2]
        pads, out, pieces = windows_of(sizes, kernel, **where)
        dtype = np.result_type(a, b)
        if result == "x":
            x = np.zeros((len(y), *sizes, w.shape[-2] * groups), dtype)
        elif result == "w":
            w = np.zeros((*kernel, x.shape[-1] // groups, y.shape[-1]), dtype)
        else:
            y = np.zeros((len(x), *out, w.shape[-1]), dtype)
        images, inputs, outputs = len(x), x.shape[-1] // groups, w.shape[-1] // groups
        x = np.pad(x, [(0, 0), *pads, (0, 0)])
        sizes_of_axes = {"n": images, "k": prod(kernel), "g": groups, "i": inputs, "o": outputs}
        forms = {name: [sizes_of_axes[axis] for axis in axes] for name, axes in _AXES.items()}
        for at, piece in pieces:
            seen = {"x": x[(slice(None), *piece)], "w": w, "y": y[(slice(None), *at)]}
            aim = seen[result]
            terms = (seen[name].reshape(forms[name]) for name in given)
            aim += np.einsum(equation, *terms).reshape(aim.shape)
        crop = [slice(before, before + n) for n, (before, _) in zip(sizes, pads, strict=True)]
        return {"x": x[(slice(None), *crop)], "w": w, "y": y}[result]

    return reference


CASES = {
    "conv": Cases(_conv_samples, _conv_errors, _reference("xw", "y")),
    "conv_input_gradient": Cases(_samples("yw", "x"), _input_errors, _reference("yw", "x")),
    "conv_filter_gradient": Cases(_samples("xy", "w"), _filter_errors, _reference("xy", "w")),
}
