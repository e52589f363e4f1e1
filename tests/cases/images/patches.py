"""Cases of eagerflow/ops/images/patches.py."""

import math

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.nn.convolution import windows_of
from tests.cases.samples import Cases, ErrorSample, Sample, make

_CASES = (
    ((2, 4, 5, 2), 2, {}),
    ((1, 5, 4, 1), (3, 2), {"strides": 2}),
    ((1, 5, 4, 2), 2, {"strides": 2}),
    ((2, 5, 5, 1), 3, {"strides": 2, "padding": "same"}),
    ((1, 4, 4, 1), 2, {"dilation": 2, "padding": "same"}),
    ((1, 6, 4, 2), 2, {"strides": (1, 3), "dilation": (2, 1), "padding": ((1, 2), (0, 1))}),
    ((2, 5, 2), 3, {}),
    ((1, 3, 2, 3, 1), 2, {"strides": (1, 1, 2)}),
    ((0, 4, 4, 2), 2, {}),
)


_DEFAULTS = {"strides": 1, "padding": "valid", "dilation": 1}


def _unfold_reference(x, window, **where):
    sizes = x.shape[1:-1]
    kernel = window if isinstance(window, tuple) else (window,) * len(sizes)
    pads, out, pieces = windows_of(sizes, kernel, **where)
    whole = np.pad(x, [(0, 0), *pads, (0, 0)])
    found = np.zeros((len(x), *out, *kernel, x.shape[-1]), x.dtype)
    for at, piece in pieces:
        found[(slice(None), *at)] = whole[(slice(None), *piece)]
    return found


def _samples(rng, dtype):
    return [Sample((make(rng, dtype, s),), {"window": window} | more) for s, window, more in _CASES]


def _errors(rng):
    x = rng.standard_normal((2, 4, 4, 3))
    bad = [
        ({"window": 5}, "does not fit"),
        ({"window": 0}, "too small"),
        ({"window": (2,)}, "for each spatial axis"),
        ({"window": 2, "strides": 0}, "too small"),
        ({"window": 2, "dilation": 0}, "too small"),
        ({"window": 2, "padding": "full"}, "is not a kind of padding"),
    ]
    return [
        *(ErrorSample((x,), more, ShapeError, words) for more, words in bad),
        ErrorSample((x[0, 0],), {"window": 2}, ShapeError, "too few"),
    ]


def _fold_reference(patches, size, **where):
    rank = (patches.ndim - 2) // 2
    sizes = size if isinstance(size, tuple) else (size,) * rank
    pads, _, pieces = windows_of(sizes, patches.shape[1 + rank : -1], **where)
    room = [n + before + behind for n, (before, behind) in zip(sizes, pads, strict=True)]
    found = np.zeros((len(patches), *room, patches.shape[-1]), patches.dtype)
    for at, piece in pieces:
        found[(slice(None), *piece)] += patches[(slice(None), *at)]
    inside = [slice(before, before + n) for n, (before, _) in zip(sizes, pads, strict=True)]
    return found[(slice(None), *inside)]


def _fold_samples(rng, dtype):
    found = []
    for shape, window, more in _CASES:
        patches = _unfold_reference(np.zeros(shape), window, **_DEFAULTS | more)
        found.append(Sample((make(rng, dtype, patches.shape),), {"size": shape[1:-1]} | more))
    return found


def _fold_errors(rng):
    p = rng.standard_normal((2, 3, 3, 2, 2, 1))
    return [
        ErrorSample((p,), {"size": 5}, ShapeError, "positions"),
        ErrorSample((p[0],), {"size": 4}, ShapeError, "are not those of patches"),
        ErrorSample((p,), {"size": (4,)}, ShapeError, "for each spatial axis"),
        ErrorSample((p,), {"size": 1}, ShapeError, "does not fit"),
        ErrorSample((p,), {"size": 4, "strides": 0}, ShapeError, "too small"),
    ]


CASES = {
    "unfold": Cases(samples=_samples, errors=_errors, reference=_unfold_reference),
    "extract_patches": Cases(
        samples=lambda rng, dtype: [
            Sample(args, {"size": more.pop("window")} | more) for args, more in _samples(rng, dtype)
        ],
        errors=lambda rng: [
            e._replace(attributes={"size": e.attributes["window"]}) for e in _errors(rng)[:3]
        ],
        reference=lambda x, size, strides, **where: (
            y := _unfold_reference(x, size, strides=size if strides is None else strides, **where)
        ).reshape((*y.shape[: x.ndim - 1], math.prod(y.shape[x.ndim - 1 :]))),
    ),
    "fold": Cases(samples=_fold_samples, errors=_fold_errors, reference=_fold_reference),
}
