"""Cases of eagerflow/capture/placement/communication.py."""

import numpy as np

from eagerflow.errors import DeviceError
from tests.cases.samples import Cases, ErrorSample, Sample, values


def _errors(name, **more):
    """Samples of wrong values of the attribute that names the receiving device."""
    return lambda rng: [
        ErrorSample((np.ones(2),), {name: "moon", **more}, DeviceError, "device type 'moon'"),
        ErrorSample((np.ones(2),), {name: "cpu:99", **more}, DeviceError, "device 'cpu:99'"),
    ]


CASES = {
    "send": Cases(
        samples=lambda rng, dtype: [Sample((x,), {"target": "cpu:0"}) for x in values(rng, dtype)],
        errors=_errors("target"),
        reference=lambda x, target: np.array(x),
    ),
    "recv": Cases(
        samples=lambda rng, dtype: [
            Sample((x,), {"source": "cpu:0", "device": "cpu:0"}) for x in values(rng, dtype)
        ],
        errors=_errors("device", source="cpu:0"),
        reference=lambda x, source, device: np.array(x),
    ),
}
