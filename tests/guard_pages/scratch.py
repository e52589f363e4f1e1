"""Memory that the library keeps, made new at each use, so that guard pages and contents reach it.

Pools and kept buffers hide faults: reads beyond a block of a pool find other memory of the pool,
and reads of unwritten memory find values of the call before.
"""

import functools
import sys
import threading

import numpy as np

from eagerflow.codegen.llvm import fixed, launch, standby
from eagerflow.plan import segments, while_loops
from eagerflow.primitives import matrix_product
from eagerflow.primitives.llvm import staged_kernel
from eagerflow.runtime import buffers, threads
from tests.guard_pages.memory import CONTENTS

LINE = launch.VECTOR_ALIGNMENT_BYTES
BITS = dict(zip(CONTENTS, (0xA5A5, 0xFFFF, 0x0001), strict=True))


class Forgetful(dict):
    """A table of buffers that are used once."""

    def __setitem__(self, name, buffer):
        """Keep nothing."""


class _Local(threads._Local):
    def __init__(self):
        super().__init__()
        self.memory = Forgetful()


def new_lines(size):
    """New memory of so many bytes, and no line more, placed for vectors."""
    return np.empty(max(launch.whole_lines(size), LINE), np.uint8)


def scratch_of_segment(size):
    """A function that gives a thread scratch memory of exactly that size for a segment's jobs."""

    def own():
        memory = new_lines(size)
        return memory, launch.address(memory)

    return own if size else None


def without_pool(pool, size, dtype, count):
    """An array of NumPy's own in place of one from the pool."""
    return np.empty(count, dtype)


def replace(module, name, new):
    """Put a function in the place of another, wherever that was imported by name."""
    old = getattr(module, name)
    for other in [m for n, m in sys.modules.items() if n.startswith("eagerflow") and m]:
        for own in [n for n, value in vars(other).items() if value is old]:
            setattr(other, own, new)


class Filled(threading.local):
    """Fills the scratch memory of layouts of segments and loops before each run."""

    def __init__(self, mode, contents):
        self.behind, self.bits = mode == "behind", BITS[contents]
        self.owners = []  # the lists that memory is noted in which is being prepared

    def aligned_address(self, memory):
        """An address in memory with a spare line: the last line is left unused."""
        if self.owners:
            self.owners[-1].append(memory)
        start = launch.address(memory)
        return (start + LINE) // LINE * LINE if self.behind else launch.whole_lines(start)

    def noting(self, method):
        """A constructor of a layout that notes its memory."""

        @functools.wraps(method)
        def init(layout, *given):
            self.owners.append([])
            try:
                method(layout, *given)
            finally:
                layout.scratch_memory = self.owners.pop()

        return init

    def noting_reserved(self, method):
        """``Launch.reserve``: values passed between stages are scratch as well."""

        @functools.wraps(method)
        def reserve(own, frame):
            held = method(own, frame)
            if self.owners:
                self.owners[-1].extend(held)
            return held

        return reserve

    def filling(self, method):
        """A layout's run."""

        @functools.wraps(method)
        def run(layout, arrays, start=0, *limit):
            if start == 0:  # later slices of a loop read the values packed by the first one
                for memory in layout.scratch_memory:
                    whole = memory.reshape(-1).view(np.uint8)
                    whole[: len(whole) & -2].view("<u2").fill(self.bits)
            return method(layout, arrays, *([start] if limit else []), *limit)

        return run


def afresh(method):
    """A ``FixedCall`` that prepares all memory again."""

    @functools.wraps(method)
    def call(self, *given):
        self._jobs.clear()
        return method(self, *given)

    return call


def install(mode, contents):
    """Let all memory that kernels work in be new, or filled, at each use."""
    buffers.BufferPool.lend = without_pool
    threads._local = _Local()
    filled = Filled(mode, contents)
    for module, name, new in (
        (launch, "aligned_address", filled.aligned_address),
        (launch, "scratch_of_segment", scratch_of_segment),
        (staged_kernel, "aligned", lambda name, size: new_lines(size)),
        (matrix_product, "new_lines", new_lines),
        # Helpers that stand by have kept memory; others ask for it.
        (standby, "can_work_in", lambda memory: memory is None),
    ):
        replace(module, name, new)
    launch.Launch.reserve = filled.noting_reserved(launch.Launch.reserve)
    for layout in (segments.Layout, while_loops.LoopLayout):
        layout.__init__ = filled.noting(layout.__init__)
        layout.run = filled.filling(layout.run)
    fixed.FixedCall.__call__ = afresh(fixed.FixedCall.__call__)
