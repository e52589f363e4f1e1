"""NumPy's OpenBLAS: its kernels, and its number of threads.

OpenBLAS chooses kernels by the processor's name, and treats an unknown one as an older
model: AVX2 kernels on a processor with AVX-512 reach half of its speed. In that case they are
replaced. Setting OPENBLAS_CORETYPE, or EAGERFLOW_BLAS_KERNELS=0, keeps the original ones.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from eagerflow.guard import ScopeGuard, in_one_call
from eagerflow.handlers import raised_here
from eagerflow.settings import switched_off

CORE_TYPE = "OPENBLAS_CORETYPE"
KEEP_KERNELS = "EAGERFLOW_BLAS_KERNELS"
AVX512_KERNELS = "SkylakeX"
# Kernels for processors without AVX-512, by OpenBLAS's names.
OLDER_KERNELS = frozenset(("Haswell", "Zen", "Sandybridge", "Nehalem", "Prescott", "Excavator"))


# Kernels -----------------------------------------------------------------------------------------


def choose_kernels() -> bool:
    """Switch OpenBLAS to AVX-512 kernels if the processor supports them and it uses older ones.

    The functions for this are undocumented, and no product may run meanwhile: so they are only
    called if available, while no other Python thread is active, and called again to restore the
    kernels if the result is wrong. Returns whether the kernels have changed.
    """
    if CORE_TYPE in os.environ or switched_off(KEEP_KERNELS):
        return False
    is_outdated.cache_clear()
    library = openblas()
    if library is None or not is_outdated() or threading.active_count() > 1:
        return False
    try:
        calls = library.gotoblas_dynamic_quit, library.gotoblas_dynamic_init
    except AttributeError:
        return False
    for call in calls:
        call.restype = None  # garbage in the return register would stop ``in_one_call``
    os.environ[CORE_TYPE] = AVX512_KERNELS
    try:
        in_one_call(calls)
    finally:
        del os.environ[CORE_TYPE]
    is_outdated.cache_clear()
    if kernels() == AVX512_KERNELS:
        return True
    in_one_call(calls)
    return False


@cache
def is_outdated() -> bool:
    """Whether OpenBLAS uses kernels without AVX-512 although the processor supports it."""
    return has_avx512() and kernels() in OLDER_KERNELS


def has_avx512() -> bool:
    """Whether NumPy's own kernels use AVX-512, as shown by ``numpy.show_runtime``."""
    core = getattr(sys.modules["numpy"], "_core", None)
    features = getattr(getattr(core, "_multiarray_umath", None), "__cpu_features__", {})
    return bool(features.get("AVX512_SKX"))


def kernels() -> str:
    """The processor name of OpenBLAS's kernels; "" if OpenBLAS is not found."""
    function = _function("get_corename")
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return str(function().decode())


# The library -------------------------------------------------------------------------------------


_IF_LOADED = getattr(os, "RTLD_NOLOAD", 0)


@cache
def openblas() -> Any:
    """NumPy's OpenBLAS; None if NumPy uses another library."""
    for path in _paths():
        try:
            library = ctypes.PyDLL(path, mode=_IF_LOADED)  # calls keep the interpreter lock
        except raised_here(OSError):
            continue
        if _found_in(library, "set_num_threads") is not None:
            return library
    return None


def _found_in(library: Any, name: str) -> Any:
    """A function of an OpenBLAS library; names have a prefix and a suffix in some builds."""
    for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "", "64")):
        function = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
        if function is not None:
            return function
    return None


def _function(name: str) -> Any:
    library = openblas()
    return None if library is None else _found_in(library, name)


def _paths() -> Iterator[str]:
    """Files that may be the BLAS in use: beside NumPy in its wheels, else mapped files."""
    package = os.path.dirname(sys.modules["numpy"].__file__ or "")
    folders = (package + ".libs", os.path.join(package, ".dylibs"), os.path.join(package, ".libs"))
    for folder in (f for f in folders if os.path.isdir(f)):
        for file in sorted(os.listdir(folder)):
            if "openblas" in file:
                yield os.path.join(folder, file)
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = {line.split(maxsplit=5)[5].strip() for line in maps if "blas" in line}
    except raised_here(OSError):  # only on Linux
        return
    yield from sorted(p for p in mapped if ".so" in p)


# Threads -----------------------------------------------------------------------------------------


@cache
def thread_functions() -> tuple[Any, Any] | None:
    """Functions that set and get the number of threads; None without an OpenBLAS."""
    setter, getter = _function("set_num_threads"), _function("get_num_threads")
    if setter is None or getter is None:
        return None
    setter.argtypes, setter.restype = (ctypes.c_int,), None
    getter.argtypes, getter.restype = (), ctypes.c_int
    return setter, getter


_users: set[single_threaded] = set()
_before = 1


class single_threaded(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which BLAS calls use one thread; the first user switches, the last restores.

    It does nothing without an OpenBLAS.
    """

    def acquire(self) -> None:
        """Set one thread."""
        global _before
        functions = thread_functions()
        if functions is not None:
            setter, getter = functions
            before = getter()
            if not _users:
                if before == 1:
                    return
                _before = before
            in_one_call((partial(_users.add, self), partial(setter, 1)))

    def release(self) -> None:
        """Restore the number of BLAS threads, unless others still want one thread."""
        functions = thread_functions()
        if functions is not None and self in _users:
            forget = partial(_users.discard, self)
            in_one_call((forget, _users.__len__, partial(functions[0], _before)))


def _after_fork() -> None:
    # Only the forking thread lives on in the child, and it may not be one that uses BLAS.
    if _users:
        _users.clear()
        functions = thread_functions()
        if functions is not None and _before != 1:
            functions[0](_before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
