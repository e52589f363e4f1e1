import pytest

import eagerflow as ef
from tests.backends.strict import DEVICES, StrictBackend

ef.register_device_type("strict", StrictBackend, lambda: len(DEVICES))


@pytest.fixture
def strict():
    """Name of the first device of the third-party backend."""
    return "strict:0"
