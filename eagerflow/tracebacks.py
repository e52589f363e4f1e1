"""Tracebacks of errors, without the frames of eagerflow that users did not write."""

from __future__ import annotations

from types import TracebackType

from eagerflow.dispatch import internal
from eagerflow.errors import EagerflowError


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without frames of eagerflow, and without those of IPython around a cell."""
    kept: list[TracebackType] = []
    while trace is not None:
        frame = trace.tb_frame
        is_shell = not kept and frame.f_globals.get("__name__", "").startswith("IPython.")
        if not is_shell and not internal[frame.f_code.co_filename]:
            kept.append(trace)
        trace = trace.tb_next
    made: TracebackType | None = None
    for part in reversed(kept):
        made = TracebackType(made, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return made


def hide_internal_frames(error: BaseException) -> None:
    """Leave the users' frames in the traceback of an error that their code or an op has raised.

    Other errors of eagerflow's code are not foreseen, and keep all frames.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    is_users = last is not None and not internal[last.tb_frame.f_code.co_filename]
    if is_users or isinstance(error, EagerflowError):
        error.__traceback__ = users_frames(error.__traceback__)
