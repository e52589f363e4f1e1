"""Effects: side effects of traced code that do not influence its result.

Output streams, loggers and warnings run code of their own when something is written, especially
in notebooks, with state that changes each time. None of that is watched. Started threads
would run code that is not watched.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import sys
import warnings
from functools import cache
from types import CodeType
from typing import Any

from eagerflow.capture.guards.lookup import CORE, FOREIGN, LAYERS, Run, origins

_FOLDER = os.path.dirname(inspect.getfile(logging)) + os.sep
_WARNINGS = inspect.getfile(warnings)
_WRITERS = frozenset({"write", "writelines", "flush"})
_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
# Packages for display: state that they keep serves the next output.
_SHOWING = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("IPython", "ipykernel", "loguru", "rich", "tqdm")
)
STARTING = frozenset(
    """
    Thread.start ThreadPoolExecutor.submit ProcessPoolExecutor.submit BaseProcess.start
    Pool.apply_async Pool._map_async Pool.imap Pool.imap_unordered
    """.split()
)


@cache
def _shows(file: str) -> bool:
    """Whether a file belongs to a package that only displays things."""
    return file.startswith(_FOLDER) or file == _WARNINGS or any(s in file for s in _SHOWING)


def is_output(frame: Any, runs: dict[Any, Run], first: Any) -> bool:
    """Whether a function only runs because something is written, logged or shown.

    Frames below ``first``, which began the trace, do not count: a notebook runs cells.
    """
    while frame is not None and frame is not first and frame not in runs:
        code = frame.f_code
        if _shows(code.co_filename) or (code.co_name in _WRITERS and _writes(frame, code)):
            return True
        frame = frame.f_back
    return False


def _writes(frame: Any, code: CodeType) -> bool:
    """Whether a function is a method of an output stream."""
    if not code.co_argcount:
        return False
    own = frame.f_locals.get(code.co_varnames[0])
    return (
        isinstance(own, io.IOBase)
        or any(own is getattr(sys, name) for name in _STREAMS)
        or all(callable(getattr(type(own), name, None)) for name in ("write", "flush"))
    )


def starts_thread(code: CodeType) -> bool:
    """Whether a standard library function starts work in another thread."""
    return code.co_qualname in STARTING and origins[code.co_filename] == FOREIGN


def starter(frame: Any, runs: dict[Any, Run], first: Any) -> Any:
    """The watched function that has started a thread; None if output or eagerflow has."""
    if is_output(frame.f_back, runs, first):
        return None
    while frame is not None and frame not in runs:
        if origins[frame.f_code.co_filename] in (CORE, LAYERS):
            return None
        frame = frame.f_back
    return frame
