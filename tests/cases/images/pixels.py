"""Cases of eagerflow/ops/images/pixels.py."""

import math

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _space_reference(last):
    def reference(x, factor):
        rank = x.ndim - 2
        factors = factor if isinstance(factor, tuple) else (factor,) * rank
        whole, left = math.prod(factors), x.shape[-1] // math.prod(factors)
        sizes = [n * r for n, r in zip(x.shape[1:-1], factors, strict=True)]
        found = np.zeros((len(x), *sizes, left), x.dtype)
        for n, *at, c in np.ndindex(found.shape):
            inner = int(
                np.ravel_multi_index([p % r for p, r in zip(at, factors, strict=True)], factors)
            )
            outer = [p // r for p, r in zip(at, factors, strict=True)]
            found[(n, *at, c)] = x[(n, *outer, inner * left + c if last else c * whole + inner)]
        return found

    return reference


def _channels_reference(last):
    def reference(x, factor):
        rank = x.ndim - 2
        factors = factor if isinstance(factor, tuple) else (factor,) * rank
        sizes = [n // r for n, r in zip(x.shape[1:-1], factors, strict=True)]
        shape = (len(x), *sizes, x.shape[-1] * math.prod(factors))
        places = np.arange(math.prod(shape)).reshape(shape)
        back = _space_reference(last)(places, factor)
        found = np.zeros(math.prod(shape), x.dtype)
        found[back.ravel()] = x.ravel()
        return found.reshape(shape)

    return reference


_BLOCKS = (
    ((2, 2, 3, 8), 2),
    ((1, 2, 2, 6), (3, 2)),
    ((2, 3, 4), 2),
    ((1, 2, 1, 2, 8), 2),
    ((1, 2, 2, 3), 1),
    ((0, 2, 2, 4), 2),
)


def _block_samples(back):
    def samples(rng, dtype):
        found = []
        for shape, factor in _BLOCKS:
            given = _space_reference(True)(np.zeros(shape), factor).shape if back else shape
            found.append(Sample((make(rng, dtype, given),), {"factor": factor}))
        return found

    return samples


def _block_errors(rng):
    return [
        ErrorSample((np.ones((1, 2, 3, 3)),), {"factor": 2}, ShapeError, "are not whole blocks"),
        ErrorSample((np.ones((1, 2, 4, 4)),), {"factor": 0}, ShapeError, "too small"),
        ErrorSample((np.ones((2, 4)),), {"factor": 2}, ShapeError, "too few"),
    ]


CASES = {
    "pixel_shuffle": Cases(_block_samples(False), _block_errors, _space_reference(False)),
    "pixel_unshuffle": Cases(_block_samples(True), _block_errors, _channels_reference(False)),
    "depth_to_space": Cases(_block_samples(False), _block_errors, _space_reference(True)),
    "space_to_depth": Cases(_block_samples(True), _block_errors, _channels_reference(True)),
}
