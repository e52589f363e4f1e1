"""Pooling of each rank: windows, all positions, cells."""

import math

import numpy as np

from tests.nn.cases import case
from tests.nn.cases.convolution import IMAGES, SIGNALS, VOLUMES, pads_of, per_axis


def windows(function, size, strides=None, padding="valid"):
    """The function of each window, in which padding does not count."""

    def reference(weights, x):
        rank = x.ndim - 2
        window = per_axis(size, rank)
        steps = window if strides is None else per_axis(strides, rank)
        pads = pads_of(x, window, steps, (1,) * rank, padding)
        padded = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=np.nan)
        columns = zip(padded.shape[1:-1], window, steps, strict=True)
        sizes = [(n - k) // s + 1 for n, k, s in columns]
        y = np.empty((len(x), *sizes, x.shape[-1]))
        for at in np.ndindex(*sizes):
            ends = (slice(i * s, i * s + k) for i, s, k in zip(at, steps, window, strict=True))
            seen = padded[(slice(None), *ends)]
            y[(slice(None), *at)] = function(seen, tuple(range(1, rank + 1)))
        return y

    return reference


def everywhere(function, keepdims=False):
    return lambda weights, x: function(x, tuple(range(1, x.ndim - 1)), keepdims=keepdims)


def cells(function, size):
    """The function of each cell between rounded ends."""

    def reference(weights, x):
        sizes = per_axis(size, x.ndim - 2)
        y = np.empty((len(x), *sizes, x.shape[-1]))
        for at in np.ndindex(*sizes):
            ends = (
                slice(math.floor(i * n / m), math.ceil((i + 1) * n / m))
                for i, n, m in zip(at, x.shape[1:-1], sizes, strict=True)
            )
            y[(slice(None), *at)] = function(x[(slice(None), *ends)], tuple(range(1, x.ndim - 1)))
        return y

    return reference


INPUTS = {1: SIGNALS, 2: IMAGES, 3: VOLUMES}
WINDOWS = {
    1: [(2, {}), (3, {"strides": 2, "padding": "same"})],
    2: [(2, {}), ((3, 2), {"strides": (1, 2)}), (3, {"strides": 2, "padding": "same"})],
    3: [((2, 1, 2), {}), (2, {"strides": 1, "padding": "same"})],
}
CELLS = {1: [3, 4, 9], 2: [(2, 3), (3, 4), 1], 3: [2, (3, 4, 2)]}
COUNTS = np.array([[True, True, False, True, False, False, True, True, False]])
KINDS = {"Max": (np.nanmax, np.max), "Average": (np.nanmean, np.mean)}

CASES = [
    *(
        case(
            f"{kind}Pooling{rank}D",
            size,
            **options,
            inputs=INPUTS[rank],
            _reference=windows(function, size, **options),
        )
        for kind, (function, _) in KINDS.items()
        for rank in INPUTS
        for size, options in WINDOWS[rank]
    ),
    case(
        "GlobalAveragePooling1D",
        inputs=SIGNALS,
        call={"mask": COUNTS},
        _reference=lambda weights, x: x[:, COUNTS[0]].mean(1),
    ),
    case("MaxPooling2D", inputs=IMAGES, _reference=windows(np.nanmax, 2)),
    *(
        case(
            f"Global{kind}Pooling{rank}D",
            inputs=INPUTS[rank],
            keepdims=keepdims,
            _reference=everywhere(function, keepdims),
        )
        for kind, (_, function) in KINDS.items()
        for rank in INPUTS
        for keepdims in (False, True)
    ),
    *(
        case(
            f"Adaptive{kind}Pooling{rank}D",
            size,
            inputs=INPUTS[rank],
            _reference=cells(function, size),
        )
        for kind, (_, function) in KINDS.items()
        for rank in INPUTS
        for size in CELLS[rank]
    ),
]
