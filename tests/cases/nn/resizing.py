"""Cases of eagerflow/ops/nn/resizing.py."""

import math

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.nn.resizing import MEANS, resized_spec
from eagerflow.spec import TensorSpec
from tests.cases.samples import Cases, ErrorSample, Sample, make

_CASES = (
    ((2, 4, 3), 8, {}),
    ((1, 5, 4, 2), (3, 7), {}),
    ((1, 5, 4, 2), (3, 7), {"method": "nearest"}),
    ((2, 5, 7, 1), (2, 3), {"method": "mean"}),
    ((1, 3, 2, 2), (5, 3), {"method": "mean"}),
    ((1, 6, 5, 1), (3, 4), {"method": "bicubic"}),
    ((1, 4, 5, 1), (7, 2), {"method": "lanczos3", "antialias": True}),
    ((1, 9, 2), 4, {"method": "lanczos5"}),
    ((1, 9, 2), 4, {"antialias": True}),
    ((1, 2, 3, 2, 2), (3, 2, 4), {}),
    ((1, 1, 1), 3, {}),
    ((0, 4, 4, 1), (2, 2), {}),
    ((1, 5, 4, 1), (3, 7), {"method": "linear", "coordinates": "align_corners"}),
    ((1, 5, 1), 1, {"coordinates": "align_corners"}),
    ((1, 5, 4, 1), (3, 7), {"coordinates": "asymmetric"}),
    ((1, 5, 4, 1), (3, 7), {"method": "nearest", "coordinates": "asymmetric"}),
    ((1, 4, 3, 1), (6, 5), {"method": "nearest", "coordinates": "align_corners"}),
    ((1, 5, 4, 1), (3, 7), {"method": "cubic", "a": -0.75, "edge": True}),
    ((1, 6, 1), 2, {"method": "lanczos3", "edge": True, "antialias": True}),
    ((1, 5, 4, 1), (7, 4), {"scale": (1.5, 1.2)}),
    ((1, 5, 1), 7, {"method": "nearest", "scale": 1.5}),
)


def _samples(back):
    def samples(rng, dtype):
        found = []
        for shape, size, more in _CASES:
            sizes = resized_spec(TensorSpec(shape, dtype), size).shape
            given, new = (sizes, shape[1:-1]) if back else (shape, size)
            found.append(Sample((make(rng, dtype, given),), {"size": new} | more))
        x = make(rng, dtype, (3, 4, 5, 2))
        return [*found, *(Sample((a,), {"size": (4, 6)}) for a in (x.T, x[:, ::-1, ::2]))]

    return samples


def _errors(rng):
    x = rng.standard_normal((2, 4, 4, 3))
    bad = [
        (x, {"size": 0}, "no elements"),
        (x[:, :0], {"size": 3}, "no elements"),
        (x, {"size": (2, 2, 2)}, "for each spatial axis"),
        (x, {"size": 2.5}, "for each spatial axis"),
        (x, {"size": 2, "method": "quintic"}, "is not a method"),
        (x, {"size": 2, "coordinates": "corners"}, "is not a coordinate"),
        (x, {"size": 2, "scale": 0.0}, "is not a factor"),
        (x, {"size": 2, "scale": (0.5, 0.5, 0.5)}, "is not a factor"),
        (x[0, 0], {"size": 2}, "too few"),
    ]
    return [ErrorSample((a,), more, ShapeError, words) for a, more, words in bad]


def _weight(distance, method, a):
    """The weight of one element, by the formulas of the methods."""
    x = abs(distance)
    if method.endswith("linear"):
        return max(0.0, 1 - x)
    if method.endswith("cubic"):
        if x < 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0
    radius = int(method[-1])
    if x >= radius or x == 0:
        return float(x == 0)
    return radius * math.sin(math.pi * x) * math.sin(math.pi * x / radius) / (math.pi * x) ** 2


def _row(
    values,
    new,
    method,
    antialias,
    coordinates,
    a,
    edge,
    scale,
):
    """One row of elements resized, element by element."""
    size, found = len(values), []
    for i in range(new):
        step = size / new if scale is None else 1 / scale
        middle = (i + 0.5) * step
        if coordinates == "asymmetric":
            middle = i * step + 0.5 * (method != "nearest")
        elif coordinates == "align_corners":
            middle = (i * (size - 1) / (new - 1) if new > 1 else 0.0) + 0.5
        if method == "nearest":
            weights = [float(j == min(math.floor(middle), size - 1)) for j in range(size)]
        elif method in MEANS:
            edges = math.floor(i * size / new), math.ceil((i + 1) * size / new)
            weights = [float(edges[0] <= j < edges[1]) for j in range(size)]
        else:
            spread = max(step, 1) if antialias else 1
            weights = [0.0] * size
            for j in range(-30, size + 30):
                if edge or 0 <= j < size:
                    at = min(max(j, 0), size - 1)
                    weights[at] += _weight((middle - j - 0.5) / spread, method, a)
        found.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
    return found


def _reference(back):
    def reference(x, size, scale, **how):
        y = x
        for axis in range(1, x.ndim - 1):
            new = size[axis - 1] if isinstance(size, tuple) else size
            factor = scale[axis - 1] if isinstance(scale, tuple) else scale
            old, aim = (new, x.shape[axis]) if back else (x.shape[axis], new)
            matrix = np.array([_row(unit, aim, **how, scale=factor) for unit in np.eye(old)])
            y = np.moveaxis(np.tensordot(y, matrix.T if back else matrix, (axis, 0)), -1, axis)
        return y

    return reference


CASES = {
    "resize": Cases(_samples(False), _errors, _reference(False)),
    "resize_gradient": Cases(_samples(True), _errors, _reference(True)),
}
