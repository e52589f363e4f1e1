"""Cases of eagerflow/ops/creation/cast.py."""

import numpy as np

from eagerflow.dtypes import is_complex
from eagerflow.errors import DeviceError, DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample, values

CASES = {
    "astype": Cases(
        samples=lambda rng, dtype: [
            Sample((x,), {"dtype": to})
            for x in values(rng, dtype)[:5]
            for to in ("complex128", dtype, *(() if is_complex(dtype) else ("float64", "int32")))
        ],
        errors=lambda rng: [
            ErrorSample((np.ones(2),), {"dtype": "words"}, DTypeError, "is not a dtype"),
            ErrorSample((np.ones(2) * 1j,), {"dtype": "float32"}, DTypeError, "imaginary"),
        ],
        reference=lambda x, dtype: np.array(
            [np.dtype(dtype).type(v) for v in x.ravel().tolist()], dtype
        ).reshape(x.shape),
    ),
    "stop_gradient": Cases(
        samples=lambda rng, dtype: [Sample((x,)) for x in values(rng, dtype)],
        reference=lambda x: np.array(x),
    ),
    "to_device": Cases(
        samples=lambda rng, dtype: [Sample((x,), {"device": "cpu:0"}) for x in values(rng, dtype)],
        errors=lambda rng: [
            ErrorSample((np.ones(2),), {"device": "moon"}, DeviceError, "no device type 'moon'"),
            ErrorSample((np.ones(2),), {"device": "cpu:99"}, DeviceError, "no device 'cpu:99'"),
        ],
        reference=lambda x, device: np.array(x),
    ),
}
