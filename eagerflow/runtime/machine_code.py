"""Compiles LLVM IR to functions in memory, for the machine this runs on.

llvmlite is imported when the first kernel is compiled. Objects are kept on disk between
processes (``cache.py``); loaded code lives as long as its ``Library``.
"""

from __future__ import annotations

import atexit
import ctypes
import fnmatch
import itertools
import operator
import os
import sys
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any

from eagerflow.errors import MissingExtraError
from eagerflow.extras import load_if_there
from eagerflow.guard import in_one_call
from eagerflow.handlers import raised_here, suppress
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.records import Frozen
from eagerflow.runtime import threads
from eagerflow.settings import setting, switched_off


class Target(Frozen):
    """A processor to generate code for: its name, its features, and the bytes of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @property
    def has_avx512(self) -> bool:
        """Whether the processor supports AVX-512 for vectors of all widths."""
        return self.vector_bytes == 64

    @property
    def has_halves(self) -> bool:
        """Whether the processor converts float16 in hardware."""
        return "+f16c" in self.features or self.triple.startswith(("aarch64", "arm64"))

    @property
    def has_byte_products(self) -> bool:
        """Whether the processor adds four products of bytes to each lane of its widest vectors."""
        name = {64: "+avx512vnni", 32: "+avxvnni"}.get(self.vector_bytes)
        return name in self.features.split(",")

    @property
    def key(self) -> str:
        """The part of a cache key besides the code."""
        return f"{self.triple} {self.cpu} {self.features}"


@cache
def _llvm() -> Any:
    """The bindings of LLVM, ready to generate code for this machine."""
    binding = load_if_there("llvmlite.binding")
    if binding is None:
        raise MissingExtraError(
            "machine code needs the package 'llvmlite', which is not installed",
            hint="pip install llvmlite",
        )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def load_ahead() -> None:
    """Load LLVM's library in a thread of the pool, in parallel with other work."""
    if not switched_off("EAGERFLOW_LLVM") and "llvmlite.binding" not in sys.modules:
        threads.invite(_load_library, min(threads.helpers(), 1))


def _load_library() -> None:
    """Load it as llvmlite will, which then finds it in memory; errors are reported there."""
    with suppress(Exception), Locked(_places[0]):
        spec = find_spec("llvmlite")
        for package in (spec and spec.submodule_search_locations) or ():
            folder = os.path.join(package, "binding")
            for name in os.listdir(folder):
                if name.endswith((".so", ".dylib", ".dll")):
                    ctypes.CDLL(os.path.join(folder, name))


@cache
def available() -> bool:
    """Whether code can be generated here: llvmlite is installed, and not switched off.

    The environment variable EAGERFLOW_LLVM=0 switches it off.
    """
    if switched_off("EAGERFLOW_LLVM"):
        return False
    try:
        _llvm()
    except raised_here(MissingExtraError):
        return False
    return True


def version() -> str:
    """LLVM's version."""
    return ".".join(map(str, _llvm().llvm_version_info))


@cache
def host() -> Target:
    """This machine; EAGERFLOW_LLVM_FEATURES, like ``-avx512* -fma``, removes features."""
    binding = _llvm()
    features = binding.get_host_cpu_features()
    for word in setting("EAGERFLOW_LLVM_FEATURES").replace(",", " ").split():
        for name in fnmatch.filter(features, word[1:]):
            features[name] = word[0] == "+"
    return Target(
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        features.flatten(),
        _vector_bytes(features),
    )


def _vector_bytes(features: Any) -> int:
    if features.get("avx512f") and features.get("avx512vl") and features.get("avx512bw"):
        return 64
    return 32 if features.get("avx2") else 16


# LLVM's bindings admit one thread at a time: calls are made under ``_lock``. LLVM itself compiles
# several modules in parallel, and that is the slow part: each thread has a place of its own there.
# A forked child could never call functions that another thread was in, and exiting the process
# destroys LLVM: so both wait until all threads have left.
MAX_PLACES = 8
_lock = reentrant_lock()
_places = [reentrant_lock() for _ in range(MAX_PLACES)]
_waits = [lock.acquire for lock in (*_places, _lock)]
_releases = [lock.release for lock in (*_places, _lock)]


def _keep_out() -> None:
    all(map(operator.call, _waits))


def _let_in() -> None:
    in_one_call(_releases)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_keep_out, after_in_parent=_let_in, after_in_child=_let_in)
atexit.register(_keep_out)


class _Local(threading.local):
    """Per thread: its place."""

    def __init__(self) -> None:
        self.place = next(_threads) % MAX_PLACES


_threads = itertools.count()
_local = _Local()


@cache
def _machine(target: Target, place: int = -1) -> Any:
    """A target machine: that of a place, or the one used under the lock."""
    found = _llvm().Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="default", jit=True
    )


@cache
def _passes(target: Target) -> tuple[Any, Any]:
    """The passes before code generation; cached, as llvmlite never frees them."""
    binding = _llvm()
    # Generated code is vectorized, unrolled and without redundancies already; LLVM's usual passes
    # would take ten times as long and find nothing more.
    passes = binding.create_new_module_pass_manager()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_aggressive_dce_pass()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    return passes, binding.create_pass_builder(_machine(target), options)


def _optimized(code: str, target: Target) -> Any:
    """The module of some code, after the passes."""
    binding = _llvm()
    module = binding.parse_assembly(code, binding.create_context())
    module.triple = target.triple
    module.verify()
    passes, builder = _passes(target)
    passes.run(module, builder)
    return module


class _Module:
    """An optimized module; it is created and freed while no other code uses LLVM's bindings."""

    def __init__(self, code: str, target: Target) -> None:
        with Locked(_lock):
            self.own = _optimized(code, target)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # a thread that ended with the interpreter may hold the lock
            with Locked(_lock):
                vars(self).clear()


@cache
def emitter() -> Any:
    """LLVM's code generation function, without the lock around it; None if inaccessible."""
    return getattr(_llvm().ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)


def _object_beside_others(code: str, target: Target) -> bytes:
    """The object of a module, while other threads may compile theirs."""
    module, library = _Module(code, target), _llvm().ffi.lib
    with Locked(_places[_local.place]):
        problem = ctypes.c_char_p()
        machine = _machine(target, _local.place)
        found = emitter()(machine, module.own, 1, ctypes.byref(problem))
        if not found:
            raise RuntimeError(f"LLVM cannot compile a module: {problem.value!r}")
        try:
            start, size = library.LLVMPY_GetBufferStart(found), library.LLVMPY_GetBufferSize(found)
            return ctypes.string_at(start, size)
        finally:
            library.LLVMPY_DisposeMemoryBuffer(found)


def compile_object(code: str, target: Target | None = None) -> bytes:
    """The object file of a module in LLVM's text form."""
    target = target or host()
    # A signal handler may get here while its thread holds the lock, unlike other threads.
    if emitter() is not None and not _lock._is_owned():
        return _object_beside_others(code, target)
    with Locked(_lock):
        content: bytes = _machine(target).emit_object(_optimized(code, target))
    return content


def assembly(code: str, target: Target | None = None) -> str:
    """The same as ``compile_object``, as text for people."""
    target = target or host()
    with Locked(_lock):
        text: str = _machine(target).emit_assembly(_optimized(code, target))
    return text


class Library:
    """The functions of one object file in memory; valid as long as this object lives."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker

    def __del__(self) -> None:
        if sys.is_finalizing():  # a thread that ended with the interpreter may hold the lock
            return
        with Locked(_lock):
            del self._tracker

    def address(self, name: str) -> int:
        """The address of a function."""
        where: int = self._tracker[name]
        return where

    def function(self, name: str, *arguments: Any) -> Any:
        """A function without result, callable without the interpreter lock."""
        call: Any = ctypes.CFUNCTYPE(None, *arguments)(self.address(name))
        call.owner = self  # the code must outlive its callers
        return call


MAX_LINKED_LIBRARIES = 32  # libraries of one linker
_names = itertools.count()


@cache
def _linker(batch: int) -> Any:
    """The linker for the libraries of a batch; replaced by that of the next batch.

    A linker keeps some memory of each library even after it is freed. It is freed itself with the
    last of its libraries.
    """
    _linker.cache_clear()
    # LLVM's older linker allocates code and constants separately; if they are more than
    # 2 GiB apart, it aborts the process.
    together = sys.platform != "win32"  # the newer one is incomplete there
    return _llvm().create_lljit_compiler(_machine(host()), use_jit_link=together)


def link(content: bytes, *names: str) -> Library:
    """Load an object file for this machine; ``names`` are the required functions."""
    with Locked(_lock):
        number = next(_names)
        builder = _llvm().JITLibraryBuilder().add_object_img(content).add_current_process()
        for name in names:
            builder.export_symbol(name)
        return Library(builder.link(_linker(number // MAX_LINKED_LIBRARIES), f"kernel{number}"))
