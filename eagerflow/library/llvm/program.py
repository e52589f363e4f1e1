"""Kernels that are no regions: made from a writer's text, kept on disk, run by all threads.

Nothing is imported here that a program at a prompt does without: ``generated`` opens the door.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from eagerflow.codegen import generated, llvm
from eagerflow.library.llvm.shares import RUN, SLOTS, counters, driver
from eagerflow.runtime import machine_code, threads

__all__ = ["Program", "aligned", "kept", "machine", "processor"]


_package: Any = llvm
KEPT = 1024  # programs kept in memory


@cache
def machine() -> Any:
    """The package of modules that write, link and launch kernels, loaded now."""
    generated._machinery()
    return _package


@cache
def processor(dtype: str) -> tuple[int, int]:
    """Elements of a vector, and how many vectors the processor holds in registers."""
    target = machine_code.host()
    many = target.has_avx512 or target.triple.startswith(("aarch64", "arm64"))
    return target.vector_bytes // (8 if dtype == "float64" else 4), 32 if many else 16


class Program:
    """Functions of pieces of work, which threads share out among them stage by stage.

    ``write(code, slots)`` gives the text of ``stages``, functions as the driver calls them.
    """

    def __init__(
        self,
        key: str,
        write: Callable[[Any, list[str]], str],
        stages: list[str],
        names: tuple[str, ...],
    ) -> None:
        launch = machine().launch
        self.slots = [*SLOTS, *names]
        self.at = {name: i for i, name in enumerate(self.slots)}
        text = _text(write, stages, self.slots)
        target = machine_code.host()
        key = "\n".join([key, target.key, machine_code.version(), launch._generator()])
        content = launch._disk.load(key)
        if content is None:
            content = machine_code.compile_object(text(), target)
            launch._disk.store(key, content)
        library = machine_code.link(content, RUN)
        self.function = library.function(RUN, *[ctypes.c_void_p] * 3)
        self.stages = len(stages)
        self.frame = ctypes.c_int64 * len(self.slots)

    def run(
        self, cut: tuple[int, int, int, int], scratch: int, shared: bool = True, **values: Any
    ) -> None:
        """Work on rows and columns: their numbers, and those of a piece, are in ``cut``.

        ``values`` are numbers, or arrays whose addresses the functions get. Each thread gets
        ``scratch`` bytes of its own.
        """
        rows, whole, height, span = cut
        launch, at, frame = machine().launch, self.at, self.frame()
        blocks = -(-whole // span)
        count = -(-rows // height) * blocks
        many = min(count, 1 + threads.helpers()) if shared else 1
        frame[:7] = [rows, whole, height, span, blocks, count, many]
        for name, value in values.items():
            frame[at[name]] = value if isinstance(value, int) else launch.address(value)
        taken = (ctypes.c_int64 * counters(self.stages, many))()

        # Each power of two has memory of its own: small programs leave the large ones' alone.
        name = f"program {scratch.bit_length()}"

        own = (lambda: launch.own_scratch(name, 2 << scratch.bit_length())) if scratch else None
        launch.share(self.function, frame, taken, own, many - 1)


def _text(write: Any, stages: list[str], slots: list[str]) -> Callable[[], str]:
    def text() -> str:
        found, target = machine(), machine_code.host()
        pause, declaration = found.driver.pause_of(target.triple)
        code = found.instructions.Code
        return "\n".join([write(code(), slots), driver(code(), stages, pause), declaration])

    return text


_kept: dict[Any, Any] = {}
# Before the modules are taken apart, whose help a library needs to go.
atexit.register(_kept.clear)


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results, which hold programs, are kept by its arguments."""

    @wraps(make)
    def found(*key: Any) -> Any:
        result = _kept.get((make, key))
        if result is None:
            if len(_kept) >= KEPT:
                _kept.clear()
            result = _kept[make, key] = make(*key)
        return result

    return found


def aligned(name: str, size: int) -> Any:
    """Memory of so many bytes that this thread uses again, placed for vectors."""
    whole = threads.scratch(f"program {name}", (size + 64,), np.uint8)
    return whole[-machine().launch.address(whole) % 64 :]
