"""Facts about this machine's processor and memory, from the system."""

from __future__ import annotations

import os
import platform
from functools import cache

from eagerflow.handlers import raised_here


@cache
def processor_name() -> str:
    """The processor's name.

    >>> processor_name() == processor_name()
    True
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except raised_here(OSError):  # only on Linux
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Bytes of memory of the machine; 0 if unknown.

    >>> memory_bytes() >= 0
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except raised_here(AttributeError, OSError, ValueError):
        return 0
