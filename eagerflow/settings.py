"""The environment variables that eagerflow reads, and their meaning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SETTINGS = {
    "EAGERFLOW_LLVM": "`0`, `off`, `no` or `false`: no machine code",
    "EAGERFLOW_LLVM_FEATURES": "processor features to leave out, such as `-avx512*`, `-avx* -fma`",
    "EAGERFLOW_CACHE": "the folder of the disk cache; `0`, `off`, `no` or `false`: none",
    "EAGERFLOW_CACHE_MB": "the megabytes that the disk cache may have; 256 if not set",
    "EAGERFLOW_BLAS_KERNELS": "`0`, `off`, `no` or `false`: OpenBLAS keeps the kernels it chose",
    "EAGERFLOW_NCCL": "`0`, `off`, `no` or `false`: tasks send nothing from GPU to GPU by NCCL",
    "OPENBLAS_CORETYPE": "the processor whose kernels OpenBLAS uses; eagerflow then leaves it so",
    "RAY_ADDRESS": "the Ray cluster of deployments that name none",
    "XDG_CACHE_HOME": "where the folder of the disk cache is, on Linux; `~/.cache` if not set",
    "LOCALAPPDATA": "where the folder of the disk cache is, on Windows",
}


def setting(name: str) -> str:
    """The value of an environment variable of the table, "" if it is not set."""
    if name not in SETTINGS:
        raise KeyError(name)
    return os.environ.get(name, "")


def named_by_user(name: str) -> str:
    """The value of a variable with a name chosen by the user, as for secrets; "" if not set."""
    return os.environ.get(name, "")


def for_child(changes: Mapping[str, str]) -> dict[str, str]:
    """All variables, with these changes, for a child process."""
    return os.environ | changes


def set_unless_said(name: str, value: str) -> None:
    """Set a variable that another library reads when it starts, unless the user has set it."""
    os.environ.setdefault(name, value)


@contextmanager
def changed(changes: Mapping[str, str]) -> Iterator[None]:
    """A block in which variables have these values, for libraries and processes started in it.

    >>> with changed({"EAGERFLOW_LLVM": "off"}):
    ...     switched_off("EAGERFLOW_LLVM")
    True
    """
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def switched_off(name: str) -> bool:
    """Whether an environment variable of the table says 0, off, no or false."""
    return setting(name).lower() in ("0", "off", "no", "false")
