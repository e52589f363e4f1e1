"""NumPy's arrays at pages that end the process when they are touched: the C code, ready to use."""

import ctypes
import functools
import os
import pathlib
import platform
import shutil
import subprocess
import sysconfig
import tempfile

import pytest

from eagerflow.runtime import allocation

SOURCE = pathlib.Path(__file__).with_name("guarded_memory.c")
MODES = ("behind", "before")
CONTENTS = ("pattern", "nan", "denormal")
"""Contents of unwritten memory, in the order of the C code's numbers."""
MAX_MAPPINGS = pathlib.Path("/proc/sys/vm/max_map_count")


def why_not():
    """Why arrays cannot be guarded here; None where they can."""
    if platform.system() != "Linux" or os.sysconf("SC_PAGE_SIZE") != 4096:
        return "guard pages are written for Linux with pages of 4096 bytes"
    if compiler() is None:
        return "there is no C compiler"
    return None


def compiler():
    """The system's C compiler, or None."""
    named = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", named))), None)


@functools.cache
def library():
    """The C code, compiled now."""
    with tempfile.TemporaryDirectory(prefix="eagerflow-guard-") as folder:
        built = f"{folder}/guarded_memory.so"
        command = [compiler(), "-O2", "-shared", "-fPIC", "-pthread", str(SOURCE), "-o", built]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return ctypes.CDLL(built)


def install(mode, contents, errors):
    """Guard all arrays that NumPy makes in this process from now on, in any thread.

    ``mode`` says where an array meets the guard, ``contents`` the fill of new memory, ``errors`` is
    the file descriptor for explanations. The functions of NumPy's own allocator are replaced, so
    arrays made before go the way that they came; and in the one that kernels run with.
    """
    _, kernels, numpys = allocation.handlers()
    place = ctypes.byref(numpys, allocation.Handler.counters.offset)
    # A block of its own takes two mappings; others need some as well.
    most = int(MAX_MAPPINGS.read_text()) // 3
    given = MODES.index(mode), CONTENTS.index(contents), ctypes.c_size_t(most), errors
    if library().start(place, *given):
        raise OSError("the system refuses to reserve 128 GiB of addresses for guard pages")
    for name in (*allocation.MAKE, *allocation.END):
        setattr(kernels, name, getattr(numpys, name))
    # A limit would replace the guards by functions that count.
    allocation.limit = lambda size, lent: False


def watch():
    """Explain faults from now on, before the existing handlers run."""
    library().watch()


def figures():
    """How many arrays were guarded so far, how many of them live, and how many were not guarded."""
    found = (ctypes.c_size_t * 3)()
    library().figures(found)
    return dict(zip(("guarded", "live", "unguarded"), found, strict=True))


def took_denormals():
    """Whether arithmetic of this thread has taken in denormal numbers since the last call."""
    found = library().took_denormals()
    if found < 0:
        pytest.skip("this processor does not note denormal numbers")
    return bool(found)
