"""Cases of eagerflow/ops/images/warping.py."""

from typing import Any

import numpy as np

from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.ops.images.coordinates import ORDERS
from eagerflow.ops.images.sampling import MODES
from tests.cases.images.coordinates import promoted, value_at
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _affine_reference(x, transform, order, mode, cval, size=None):
    size = x.shape[1:3] if size is None else size
    found = np.zeros((len(x), *size, x.shape[-1]), x.dtype)
    rows = np.broadcast_to(transform, (len(x), 8)).astype(float)
    for n, i, j in np.ndindex(found.shape[:-1]):
        a0, a1, a2, b0, b1, b2, c0, c1 = rows[n]
        k = c0 * j + c1 * i + 1
        place = (b0 * j + b1 * i + b2) / k, (a0 * j + a1 * i + a2) / k
        found[n, i, j] = value_at(x[n], place, ORDERS[order], mode, cval)
    return found


def _affine_samples(rng, dtype):
    def of(shape, rows, **more):
        transform = np.array([1, 0, 0, 0, 1, 0, 0, 0]) + rng.uniform(-0.4, 0.4, (*rows, 8))
        transform[..., 6:] *= 0.1
        return Sample((make(rng, dtype, shape), transform.astype(promoted(dtype))), more)

    return [
        *(of((2, 4, 3, 2), (2,), mode=mode) for mode in MODES if mode != "constant"),
        of((1, 3, 4, 1), (), cval=0.5),
        of((2, 3, 4, 1), (), order=0, mode="reflect"),
        of((1, 4, 3, 2), (1,), size=(2, 5), mode="nearest"),
        of((0, 4, 3, 2), (0,)),
    ]


def _affine_errors(rng):
    x, one = rng.standard_normal((2, 3, 4, 1)), np.ones(8)
    return [
        ErrorSample((x[0], one), {}, ShapeError, "are not those of images"),
        ErrorSample((x[:, :0], one), {}, ShapeError, "leave no points"),
        ErrorSample((x, one[:6]), {}, ShapeError, "a transform of shape"),
        ErrorSample((x, np.ones((3, 8))), {}, ShapeError, "a transform of shape"),
        ErrorSample((x, one), {"order": 3}, ArgumentError, "not one of them"),
        ErrorSample((x, one), {"mode": "edge"}, ArgumentError, "not one of them"),
        ErrorSample((x, one), {"size": (2, -1)}, ShapeError, "too small"),
    ]


_CORNERS = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0], [3.0, 2.0]])


def _corner_samples(rng, dtype, batches):
    return [
        [(_CORNERS + rng.uniform(-0.4, 0.4, (*b, 4, 2))).astype(dtype) for _ in range(2)]
        for b in batches
    ]


def _homography_reference(start_points, end_points):
    """The null space of the equations of all coordinates, scaled."""
    found = np.zeros((*start_points.shape[:-2], 8), start_points.dtype)
    for at in np.ndindex(start_points.shape[:-2]):
        rows = []
        for (u, v), (x, y) in zip(start_points[at], end_points[at], strict=True):
            rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y, -u], [0, 0, 0, x, y, 1, -v * x, -v * y, -v]]
        null = np.linalg.svd(np.array(rows, float))[2][-1]
        found[at] = null[:8] / null[8]
    return found


_POINTS_ERRORS = [
    ErrorSample((np.ones((4, 2)), np.ones((4, 3))), {}, ShapeError, "points of shape"),
    ErrorSample((np.ones((3, 2)), np.ones((3, 2))), {}, ShapeError, "points of shape"),
    ErrorSample((np.ones((1, 4, 2)), np.ones((2, 4, 2))), {}, ShapeError, "points of shape"),
]


def _perspective_reference(x, start_points, end_points, **more):
    wide = [p.astype("float64") for p in (start_points, end_points)]
    return _affine_reference(x, _homography_reference(*wide), **more)


def _perspective_samples(rng, dtype):
    options: list[dict[str, Any]]
    options = [{}, {"cval": 0.5}, {"order": 0}, {"mode": "reflect"}, {"mode": "wrap"}, {}]
    cases = zip(
        _corner_samples(rng, np.dtype(promoted(dtype)), ((2,), (), (1,), (2,), (1,), (0,))),
        ((2, 3, 4, 2), (2, 3, 4, 1), (1, 2, 4, 1), (2, 3, 3, 1), (1, 2, 3, 2), (0, 3, 4, 1)),
        options,
        strict=True,
    )
    return [Sample((make(rng, dtype, shape), *points), more) for points, shape, more in cases]


def _cropped_reference(x, boxes, box_indices, size, order, cval):
    found = np.zeros((len(boxes), *size, x.shape[-1]), x.dtype)
    for n, *at in np.ndindex(found.shape[:-1]):
        ends, place = boxes[n].astype(float), []
        for axis, (i, made) in enumerate(zip(at, size, strict=True)):
            part = i / (made - 1) if made > 1 else 0.5
            whole = ends[axis] + (ends[axis + 2] - ends[axis]) * part
            place.append(whole * (x.shape[axis + 1] - 1))
        found[n, *at] = value_at(x[box_indices[n]], place, ORDERS[order], "constant", cval)
    return found


def _cropped_samples(rng, dtype):
    found = []
    for shape, count, size, more in (
        ((2, 4, 3, 2), 3, (2, 3), {}),
        ((1, 4, 3, 1), 2, (1, 3), {"cval": 1.5}),
        ((3, 3, 3, 1), 2, (2, 2), {"order": 0}),
        ((2, 3, 4, 1), 0, (2, 2), {}),
        ((2, 3, 4, 1), 1, (1, 1), {}),
        ((2, 1, 4, 1), 2, (2, 1), {}),
    ):
        boxes = rng.uniform([-0.2, -0.2, 0.5, 0.5], [0.4, 0.4, 1.3, 1.3], (count, 4))
        which = rng.integers(0, shape[0], count)
        args = make(rng, dtype, shape), boxes.astype(promoted(dtype)), which
        found.append(Sample(args, {"size": size} | more))
    return found


def _cropped_errors(rng):
    x, boxes, which = rng.standard_normal((2, 3, 4, 1)), np.ones((2, 4)), np.array([0, 1])
    return [
        ErrorSample((x[0], boxes, which), {"size": 2}, ShapeError, "are not those of images"),
        ErrorSample((x, boxes[:, :3], which), {"size": 2}, ShapeError, "boxes of shape"),
        ErrorSample((x, boxes, which[:1]), {"size": 2}, ShapeError, "boxes of shape"),
        ErrorSample((x, boxes, which * 0.5), {"size": 2}, DTypeError, "cannot be indices"),
        ErrorSample((x, boxes, which), {"size": (2,)}, ShapeError, "for each spatial axis"),
        ErrorSample((x, boxes, which), {"size": 2, "order": 3}, ArgumentError, "not one of them"),
    ]


CASES = {
    "affine_transform": Cases(
        samples=_affine_samples, errors=_affine_errors, reference=_affine_reference
    ),
    "homography": Cases(
        samples=lambda rng, dtype: [
            Sample(tuple(points))
            for points in _corner_samples(rng, dtype, ((), (1,), (2,), (2, 1), (3,), (0,)))
        ],
        errors=lambda rng: _POINTS_ERRORS,
        reference=_homography_reference,
    ),
    "perspective_transform": Cases(
        samples=_perspective_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((1, 3, 4, 1)), *e.args), {}, e.error, e.words)
            for e in _POINTS_ERRORS
        ],
        reference=_perspective_reference,
    ),
    "crop_and_resize": Cases(
        samples=_cropped_samples, errors=_cropped_errors, reference=_cropped_reference
    ),
}
