"""Samples, error samples and slow references of the convolution ops."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.family import refused_objects
from eagerflow.ops.nn.convolution_shapes import conv_spec
from eagerflow.ops.samples import make
from eagerflow.spec import TensorSpec

__all__ = [
    "conv_errors",
    "conv_reference",
    "conv_samples",
    "filter_errors",
    "filter_reference",
    "filter_samples",
    "input_errors",
    "input_reference",
    "input_samples",
]


# x, w, attributes
_CASES: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
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
_DEFAULTS: dict[str, Any] = {"strides": 1, "padding": "same", "dilation": 1, "groups": 1}


def _case(rng: Any, dtype: Any, case: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Arrays x, w and g of a case, and its attributes."""
    x, w = (make(rng, dtype, shape) for shape in case[:2])
    specs = [TensorSpec(shape, "float32") for shape in case[:2]]
    g = make(rng, dtype, conv_spec(*specs, **_DEFAULTS | case[2]).shape)
    return x, w, g, dict(case[2])


def conv_samples(rng: Any, dtype: Any) -> list[Sample]:
    """Calls of ``conv``: ranks, strides, padding, dilation, groups, nothing to do."""
    found = [Sample((x, w), more) for x, w, _, more in (_case(rng, dtype, c) for c in _CASES)]
    x, w = make(rng, dtype, (5, 4, 3, 2)), make(rng, dtype, (2, 3, 2, 3))
    found.append(Sample((x.T[..., :3], w.T[::-1])))
    found.append(Sample((np.broadcast_to(x[:1, :, :1], (2, 4, 3, 2)), w), {"padding": "valid"}))
    return found


def input_samples(rng: Any, dtype: Any) -> list[Sample]:
    """The same for ``conv_input_gradient``."""
    found = []
    for x, w, g, more in (_case(rng, dtype, case) for case in _CASES):
        found.append(Sample((g, w), {"size": x.shape[1:-1], **more}))
    return found


def filter_samples(rng: Any, dtype: Any) -> list[Sample]:
    """The same for ``conv_filter_gradient``."""
    found = []
    for x, w, g, more in (_case(rng, dtype, case) for case in _CASES):
        found.append(Sample((x, g), {"size": w.shape[:-2], **more}))
    return found


def conv_errors(rng: Any) -> list[ErrorSample]:
    """Calls of ``conv`` that are refused."""
    x, w = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((3, 3, 4, 2))
    bad: list[tuple[dict[str, Any], str]] = [
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
        *refused_objects(rng, w),
        *found,
        ErrorSample((x, w[:, :, :3]), {}, ShapeError, "x has 4 channels, the weights take 3"),
        ErrorSample((x[0, 0], w), {}, ShapeError, "too few"),
        ErrorSample((x, w[0]), {}, ShapeError, "w has 3 axes, x has 4"),
        ErrorSample((x[:, :2], w), {"padding": "valid"}, ShapeError, "does not fit"),
        ErrorSample((x, w[:0]), {}, ShapeError, "has no elements"),
    ]


def input_errors(rng: Any) -> list[ErrorSample]:
    """Calls of ``conv_input_gradient`` that are refused."""
    g, w = rng.standard_normal((2, 5, 5, 2)), rng.standard_normal((3, 3, 4, 2))
    return [
        ErrorSample((g, w), {"size": (6, 5)}, ShapeError, "the convolution gives (6, 5)"),
        ErrorSample((g, w), {"size": (5,)}, ShapeError, "for each spatial axis"),
        ErrorSample((g[..., :1], w), {"size": (5, 5)}, ShapeError, "g has 1 channels"),
        ErrorSample((g, w[0]), {"size": (5, 5)}, ShapeError, "w has 3 axes"),
        ErrorSample((g, w), {"size": 5, "strides": 0}, ShapeError, "too small"),
    ]


def filter_errors(rng: Any) -> list[ErrorSample]:
    """Calls of ``conv_filter_gradient`` that are refused."""
    x, g = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((2, 5, 5, 2))
    return [
        ErrorSample((x, g[:, 1:]), {"size": 3}, ShapeError, "the convolution gives (5, 5)"),
        ErrorSample((x, g[:1]), {"size": 3}, ShapeError, "x has 2 examples, g has 1"),
        ErrorSample((x, g[0]), {"size": 3}, ShapeError, "g has 3 axes"),
        ErrorSample((x, g), {"size": (3, 0)}, ShapeError, "no elements"),
        ErrorSample((x, g), {"size": 3, "groups": 4}, ShapeError, "do not divide"),
    ]


# References --------------------------------------------------------------------------------------


def _pieces(size: Any, kernel: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    """For each output position: its index, and which padded elements its window covers."""
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


def _split_groups(x: Any, groups: int, axes: int) -> Any:
    """Channels by group, and the window's axes in one, after ``axes`` others."""
    return x.reshape(*x.shape[:axes], prod(x.shape[axes:-1]), groups, x.shape[-1] // groups)


def _split_filters(w: Any, groups: int) -> Any:
    """Filters (*window, inputs, outputs) as (window, inputs, groups, outputs)."""
    return w.reshape(prod(w.shape[:-2]), w.shape[-2], groups, w.shape[-1] // groups)


def conv_reference(x: Any, w: Any, groups: int, **where: Any) -> Any:
    """``conv``, window by window."""
    pads, out, pieces = _pieces(x.shape[1:-1], w.shape[:-2], **where)
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    y = np.zeros((x.shape[0], *out, w.shape[-1]), np.result_type(x, w))
    for at, piece in pieces:
        seen = _split_groups(padded[(slice(None), *piece)], groups, 1)
        part = np.einsum("nkgi,kigo->ngo", seen, _split_filters(w, groups))
        y[(slice(None), *at)] = part.reshape(len(x), w.shape[-1])
    return y


def input_reference(g: Any, w: Any, size: Any, groups: int, **where: Any) -> Any:
    """``conv_input_gradient``, window by window."""
    sizes = size if isinstance(size, tuple) else (size,) * (g.ndim - 2)
    pads, _, pieces = _pieces(sizes, w.shape[:-2], **where)
    wide = [n + a + b for n, (a, b) in zip(sizes, pads, strict=True)]
    dx = np.zeros((g.shape[0], *wide, w.shape[-2] * groups), np.result_type(g, w))
    for at, piece in pieces:
        weights = g[(slice(None), *at)].reshape(len(g), groups, g.shape[-1] // groups)
        part = np.einsum("ngo,kigo->nkgi", weights, _split_filters(w, groups))
        aim = dx[(slice(None), *piece)]
        aim += part.reshape(aim.shape)
    crop = [slice(a, a + n) for n, (a, _) in zip(sizes, pads, strict=True)]
    return dx[(slice(None), *crop)]


def filter_reference(x: Any, g: Any, size: Any, groups: int, **where: Any) -> Any:
    """``conv_filter_gradient``, window by window."""
    kernel = size if isinstance(size, tuple) else (size,) * (x.ndim - 2)
    pads, _, pieces = _pieces(x.shape[1:-1], kernel, **where)
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    dw = np.zeros((*kernel, x.shape[-1] // groups, g.shape[-1]), np.result_type(x, g))
    for at, piece in pieces:
        seen = _split_groups(padded[(slice(None), *piece)], groups, 1)
        weights = g[(slice(None), *at)].reshape(len(g), groups, g.shape[-1] // groups)
        dw += np.einsum("nkgi,ngo->kigo", seen, weights).reshape(dw.shape)
    return dw
