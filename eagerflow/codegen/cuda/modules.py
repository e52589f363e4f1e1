"""Modules: kernels that are compiled together, at the first call of any of them."""

from __future__ import annotations

from typing import Any

from eagerflow.codegen.cuda.nest import Code, source
from eagerflow.locks import Locked, reentrant_lock

OPTIONS = ("--std=c++17", "--fmad=false")
"""The compiler's options: no contraction, so the GPU computes the CPU's bits."""


class Module:
    """Kernels in one text, which CuPy compiles at once and caches on disk.

    A plan collects its kernels in one module, so that their common parts are compiled once.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._codes: list[Code] = []
        self._text = ""
        self._loaded: dict[int, Any] = {}  # by device
        self._lock = reentrant_lock()

    def add(self, code: Code) -> Module:
        """The module for new kernels: this one, until it has been compiled."""
        with Locked(self._lock):
            if self._text:
                return Module(self._cupy).add(code)
            self._codes.append(code)
            return self

    def function(self, device: int, name: str) -> Any:
        """A kernel on this GPU, which is current."""
        loaded = self._loaded.get(device)
        if loaded is None:
            with Locked(self._lock):
                self._text = self._text or source(self._codes)
                loaded = self._loaded.get(device)
                if loaded is None:
                    loaded = self._cupy.RawModule(code=self._text, options=OPTIONS)
                    self._loaded[device] = loaded
        return loaded.get_function(name)
