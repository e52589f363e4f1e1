"""Cases of eagerflow/ops/images/interpolation.py."""

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import ops
from eagerflow.ops.images.interpolation import interpolation_of, sizes_and_factors
from tests.cases import cases_of
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _interpolate_reference(
    x,
    size,
    scale_factor,
    mode,
    align_corners,
    recompute_scale_factor,
    antialias,
):
    sizes, scales = sizes_and_factors(x, size, scale_factor)
    how = interpolation_of(mode, align_corners, antialias)
    how |= {} if recompute_scale_factor or mode == "area" else {"scale": scales}
    whole = {**ops["resize"].attributes, **how, "size": sizes}
    reference = cases_of(ops["resize"]).reference
    return reference(x.astype(float), **whole)


_INTERPOLATIONS = (
    ((1, 4, 5, 2), {"size": (3, 7)}),
    ((1, 4, 5, 1), {"scale_factor": 1.6, "mode": "nearest-exact"}),
    ((1, 4, 5, 1), {"scale_factor": (2, 0.5), "mode": "bilinear"}),
    ((1, 5, 2), {"size": 8, "mode": "linear", "align_corners": True}),
    ((1, 5, 4, 1), {"size": (3, 6), "mode": "bicubic"}),
    ((1, 5, 4, 1), {"size": (2, 6), "mode": "bicubic", "antialias": True}),
    ((1, 5, 4, 1), {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
    ((1, 5, 7, 1), {"size": 3, "mode": "area"}),
    ((1, 2, 3, 2, 1), {"scale_factor": 2, "mode": "trilinear"}),
    ((0, 4, 4, 1), {"size": 2}),
)


def _scaled_reference(x, scale, translation, shape, axes, method, antialias):
    found = x.astype(float)
    for axis, s, t in zip(axes, np.atleast_1d(scale), np.atleast_1d(translation), strict=True):
        size, new = x.shape[axis], shape[axis]
        matrix = np.zeros((new, size))
        for i in range(new):
            middle = (i + 0.5 - float(t)) / float(s) - 0.5
            spread = max(1 / float(s), 1) if antialias else 1.0
            if -0.5 <= middle <= size - 0.5:
                row = [_kernel(abs(middle - j) / spread, method) for j in range(size)]
                matrix[i] = np.array(row) / (sum(row) if abs(sum(row)) > 1e-4 else np.inf)
        found = np.moveaxis(np.tensordot(found, matrix, (axis, 1)), -1, axis)
    return found


def _kernel(x, method):
    if method.endswith("linear"):
        return max(0.0, 1 - x)
    if method.endswith("cubic"):
        if x < 1:
            return 1.5 * x**3 - 2.5 * x**2 + 1
        return -0.5 * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0
    radius = int(method[-1])
    return float(np.sinc(x) * np.sinc(x / radius)) if x < radius else 0.0


def _scaled_samples(rng, dtype):
    found = []
    for shape, new, axes, more in (
        ((4, 5, 2), (6, 3, 2), (0, 1), {}),
        ((2, 5, 4, 1), (2, 4, 6, 1), (1, 2), {"method": "cubic"}),
        ((6, 2), (3, 2), (0,), {"antialias": True}),
        ((6, 2), (3, 2), (0,), {"antialias": False}),
        ((2, 7), (2, 5), (1,), {"method": "lanczos3"}),
        ((3, 4), (3, 0), (1,), {}),
        ((5, 4), (2, 9), (0, 1), {"method": "lanczos5"}),
    ):
        scale = rng.uniform(0.55, 1.9, len(axes)).astype(dtype)
        shift = rng.uniform(-0.9, 0.9, len(axes)).astype(dtype)
        found.append(
            Sample((make(rng, dtype, shape), scale, shift), {"shape": new, "axes": axes} | more)
        )
    return found


CASES = {
    "interpolate": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),), more) for shape, more in _INTERPOLATIONS
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((1, 4, 4, 1)),), {}, ShapeError, "sizes or the factors"),
            ErrorSample((np.ones((1, 4, 4, 1)),), {"size": 0}, ShapeError, "no elements"),
            ErrorSample((np.ones((1, 4, 4, 1)),), {"scale_factor": -1}, ShapeError, "not a factor"),
            ErrorSample(
                (np.ones((1, 4, 4, 1)),),
                {"size": 2, "mode": "cubic"},
                ArgumentError,
                "not one of them",
            ),
            ErrorSample((np.ones((4, 4)),), {"size": 2}, ShapeError, "too few"),
        ],
        reference=_interpolate_reference,
    ),
    "scale_and_translate": Cases(
        samples=_scaled_samples,
        errors=lambda rng: [
            ErrorSample(
                (np.ones((3, 4)), np.ones(n), np.ones(1)),
                {"shape": new, "axes": 0} | more,
                error,
                w,
            )
            for n, new, more, error, w in (
                (2, (3, 4), {}, ShapeError, "for 1 axes"),
                (1, (3, 5), {}, ShapeError, "differs from x"),
                (1, (3,), {}, ShapeError, "differs from x"),
                (1, (3, 4), {"method": "mean"}, ArgumentError, "not one of them"),
            )
        ],
        reference=_scaled_reference,
    ),
}
