"""From LLVM's intermediate code to functions in memory, for the machine this runs on.

llvmlite is imported when the first kernel is compiled. Objects are kept on disk between
processes (``cache.py``); what is loaded lives as long as its ``Library``.
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
    """A processor to write code for: its name, its features, and the bytes of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @property
    def has_avx512(self) -> bool:
        """Whether the processor has the instructions of AVX-512, for vectors of all widths."""
        return self.vector_bytes == 64

    @property
    def has_halves(self) -> bool:
        """Whether the processor converts float16 itself."""
        return "+f16c" in self.features or self.triple.startswith(("aarch64", "arm64"))

    @property
    def has_byte_products(self) -> bool:
        """Whether the processor adds four products of bytes to each lane of its widest vectors."""
        name = {64: "+avx512vnni", 32: "+avxvnni"}.get(self.vector_bytes)
        return name in self.features.split(",")

    @property
    def key(self) -> str:
        """What a cached object depends on besides its code."""
        return f"{self.triple} {self.cpu} {self.features}"


@cache
def _llvm() -> Any:
    """The bindings of LLVM, ready to write code for this machine."""
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
    """Let a thread of the pool load LLVM's library: this one has other things to do first."""
    if not switched_off("EAGERFLOW_LLVM") and "llvmlite.binding" not in sys.modules:
        threads.invite(_load_library, min(threads.helpers(), 1))


def _load_library() -> None:
    """Load it as llvmlite will, which then finds it in memory; whatever fails is told there."""
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
    """This machine; EAGERFLOW_LLVM_FEATURES, like ``-avx512* -fma``, takes features away."""
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


# LLVM's bindings let one thread in at a time: calls are made under ``_lock``. LLVM itself makes
# code of several modules at once, and that is what takes long: there each thread has a place of its
# own. A child could never call what another thread was in when the process forked, and a process
# that ends takes LLVM apart: so both wait until all have left.
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
    """What makes code for a target: that of a place, or the one that is used under the lock."""
    found = _llvm().Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="default", jit=True
    )


@cache
def _passes(target: Target) -> tuple[Any, Any]:
    """What is done to a module before code is made of it; made once, as llvmlite frees it never."""
    binding = _llvm()
    # What is written is in vectors, unrolled and free of repetitions already; LLVM's usual passes
    # would take ten times as long and find nothing more.
    passes = binding.create_new_module_pass_manager()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_aggressive_dce_pass()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    return passes, binding.create_pass_builder(_machine(target), options)


def _optimized(code: str, target: Target) -> Any:
    """A module of the code, after the passes."""
    binding = _llvm()
    module = binding.parse_assembly(code, binding.create_context())
    module.triple = target.triple
    module.verify()
    passes, builder = _passes(target)
    passes.run(module, builder)
    return module


class _Module:
    """A module, optimized; it goes as it came, while no other code uses LLVM's bindings."""

    def __init__(self, code: str, target: Target) -> None:
        with Locked(_lock):
            self.own = _optimized(code, target)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # a thread that ended with the interpreter may hold the lock
            with Locked(_lock):
                vars(self).clear()


@cache
def _emitter() -> Any:
    """LLVM's function that makes code, without the lock around it; None where that is hidden."""
    return getattr(_llvm().ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)


def _object_beside_others(code: str, target: Target) -> bytes:
    """The object of a module, while other threads may make theirs."""
    module, library = _Module(code, target), _llvm().ffi.lib
    with Locked(_places[_local.place]):
        problem = ctypes.c_char_p()
        machine = _machine(target, _local.place)
        found = _emitter()(machine, module.own, 1, ctypes.byref(problem))
        if not found:
            raise RuntimeError(f"LLVM makes no code of a module: {problem.value!r}")
        try:
            start, size = library.LLVMPY_GetBufferStart(found), library.LLVMPY_GetBufferSize(found)
            return ctypes.string_at(start, size)
        finally:
            library.LLVMPY_DisposeMemoryBuffer(found)


def compile_object(code: str, target: Target | None = None) -> bytes:
    """The object file of a module in LLVM's text form."""
    target = target or host()
    # A signal handler may be here while its thread holds the lock, as no other one may.
    if _emitter() is not None and not _lock._is_owned():
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
    """The functions of one object file in memory; they are valid as long as this lives."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker

    def __del__(self) -> None:
        if sys.is_finalizing():  # a thread that ended with the interpreter may hold the lock
            return
        with Locked(_lock):
            del self._tracker

    def address(self, name: str) -> int:
        """Where a function begins."""
        where: int = self._tracker[name]
        return where

    def function(self, name: str, *arguments: Any) -> Any:
        """A function that returns nothing, callable without the interpreter's lock."""
        call: Any = ctypes.CFUNCTYPE(None, *arguments)(self.address(name))
        call.owner = self  # the code must outlive its callers
        return call


MAX_LINKED_LIBRARIES = 32  # libraries of one linker
_names = itertools.count()


@cache
def _linker(batch: int) -> Any:
    """What loads the libraries of a batch; the next one's takes its place.

    A linker keeps some memory of each library even when that is gone. It goes itself with the
    last of its libraries.
    """
    _linker.cache_clear()
    # LLVM's older linker puts code and its constants into memory of their own; where these come to
    # lie more than 2 GiB apart, it ends the process.
    together = sys.platform != "win32"  # where the newer one is not complete
    return _llvm().create_lljit_compiler(_machine(host()), use_jit_link=together)


def link(content: bytes, *names: str) -> Library:
    """Load an object file for this machine; ``names`` are the functions wanted from it."""
    with Locked(_lock):
        number = next(_names)
        builder = _llvm().JITLibraryBuilder().add_object_img(content).add_current_process()
        for name in names:
            builder.export_symbol(name)
        return Library(builder.link(_linker(number // MAX_LINKED_LIBRARIES), f"kernel{number}"))
