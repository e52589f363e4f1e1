"""Cases of eagerflow/ops/images/colors.py."""

import colorsys

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.images.colors import GRAY
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make

_SHAPES = ((2, 3, 4, 3), (5, 3), (3,), (1, 2, 3), (0, 2, 3), (2, 1, 3, 3))


def _pixels(function):
    """A reference: ``function`` of three numbers, pixel by pixel."""

    def reference(x):
        rows = [function(*pixel) for pixel in x.reshape((-1, 3)).astype(float).tolist()]
        return np.array(rows, float).reshape((*x.shape[:-1], -1) if rows else x.shape)

    return reference


def _errors(rng):
    return [
        ErrorSample((np.ones((2, 4)),), {}, ShapeError, "three colors"),
        ErrorSample((1.0,), {}, ShapeError, "three colors"),
    ]


def _color_samples(rng, dtype):
    return [Sample((distinct(rng, dtype, shape) / 4 + dtype.type(0.5),)) for shape in _SHAPES]


CASES = {
    "rgb_to_grayscale": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, (*shape[:-1], n)),)) for shape in _SHAPES[:3] for n in (3, 1)
        ],
        errors=_errors,
        reference=lambda x: (
            x if x.shape[-1] == 1 else (x.astype(float) @ np.array(GRAY))[..., None]
        ),
    ),
    "rgb_to_hsv": Cases(
        samples=_color_samples, errors=_errors, reference=_pixels(colorsys.rgb_to_hsv)
    ),
    "hsv_to_rgb": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape, 0.02, 0.98),)) for shape in _SHAPES
        ],
        errors=_errors,
        reference=_pixels(colorsys.hsv_to_rgb),
    ),
}
