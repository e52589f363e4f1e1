"""Random programs and random training with guard pages, a seed a test, all in one process.

The journal of a run names the seed that ended it; ``python -m tests.programs --seed N --list``
prints the program. ``EAGERFLOW_GUARDED_SEED`` is the first seed, today's number by default;
``EAGERFLOW_GUARDED_COUNTS`` tells how many programs and how many models there are, as in "20,6".
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
    """Arrays that NumPy's allocator does not make meet guard pages as well."""

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
