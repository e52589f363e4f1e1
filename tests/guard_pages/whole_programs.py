"""Random programs and models with guard pages: a test for each seed, all in one process.

``python -m tests.programs --seed N --list`` prints the program of a seed. The first seed is
``EAGERFLOW_GUARDED_SEED`` or today's number; ``EAGERFLOW_GUARDED_COUNTS`` has the numbers of
programs and of models, such as "20,6".
"""

import ctypes
import datetime
import os
import signal

import numpy as np
import pytest

from tests.codegen.guards import Guarded
from tests.fits.__main__ import FITS
from tests.guard_pages.planted import ending
from tests.programs import helpers
from tests.programs.__main__ import PROGRAMS

SEED = int(os.environ.get("EAGERFLOW_GUARDED_SEED", datetime.date.today().toordinal() * 1000))
PROGRAM_COUNT, MODEL_COUNT = map(int, os.environ.get("EAGERFLOW_GUARDED_COUNTS", "20,6").split(","))
MEMORY_OF_OTHERS = ("bytearray_array", "in_ctypes", "in_shared_memory", "mapped")


@pytest.fixture(autouse=True)
def memory_of_others(request, monkeypatch):
    """Give guard pages to arrays that NumPy's allocator does not allocate."""

    def guarded(array):
        before = request.config.option.guard == "before"
        found = Guarded(array.shape, array.dtype, before=before).array
        found[...] = array
        return found

    for name in MEMORY_OF_OTHERS:
        monkeypatch.setattr(helpers, name, guarded)


@pytest.mark.parametrize("name", MEMORY_OF_OTHERS)
def test_memory_of_others_meets_its_guard(name, request):
    x = np.arange(5000, dtype="f4").reshape(50, 100)
    found = getattr(helpers, name)(x)
    np.testing.assert_array_equal(found, x)
    before = request.config.option.guard == "before"
    beside = found.ctypes.data + (-4 if before else found.nbytes)
    assert ending(lambda: ctypes.c_float.from_address(beside).value) == signal.SIGSEGV


@pytest.mark.parametrize("seed", range(SEED, SEED + PROGRAM_COUNT))
def test_program(seed):
    PROGRAMS.check(PROGRAMS.generate(seed))


@pytest.mark.parametrize("seed", range(SEED, SEED + MODEL_COUNT))
def test_model(seed):
    FITS.check(FITS.generate(seed))
