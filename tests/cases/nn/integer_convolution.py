"""Cases of eagerflow/ops/nn/integer_convolution.py."""

import numpy as np

from eagerflow.ops.linear_algebra.integer_products import SUMS
from tests.cases.linear_algebra.integer_products import of_bytes
from tests.cases.nn.convolution import CASES as CONVOLUTIONS
from tests.cases.samples import Cases, Sample

_CONV = CONVOLUTIONS["conv"]


def _samples(rng, dtype):
    """Those of ``conv``, with the whole range of numbers."""
    found = []
    for i, sample in enumerate(_CONV.samples(rng, np.dtype(np.float32))):
        kinds = dtype, np.dtype(("int8", "uint8")[i % 2])
        arrays = []
        for x, kind in zip(sample.args, kinds, strict=True):
            limits = np.iinfo(kind)
            whole = rng.integers(limits.min, limits.max, x.T.shape, endpoint=True).astype(kind)
            arrays.append(whole.T if i % 3 else np.ascontiguousarray(whole.T))
        found.append(Sample(tuple(arrays), sample.attributes))
    return found


def _reference(x, w, **attributes):
    found = _CONV.reference(x.astype(np.int64), w.astype(np.int64), **attributes)
    return found.astype(SUMS)


CASES = {
    "integer_conv": Cases(_samples, of_bytes(_CONV.errors), _reference),
}
