"""Kernels of ops that write an event for each call.

An op keeps its kernels in tables, by dtype and device. While a profile is open, each is wrapped
in a function that reads the clock before and after it. So calls from all
threads and under all recorders are seen, including those of kernels added meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from eagerflow import tape
from eagerflow.devices import Device, Kind
from eagerflow.dispatch import internal
from eagerflow.errors import MissingExtraError
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.profiling import device_events, log
from eagerflow.profiling.log import MAX_EVENTS, clock, events, here, leave_out
from eagerflow.profiling.memory import MIN_WATCHED_BYTES, watch
from eagerflow.profiling.rows import GradientSite, OpSite
from eagerflow.recorder import CODE, INSTRUCTION, OP, process
from eagerflow.runtime.listeners import learned

_frame = sys._getframe
_append = events.append
_shape_and_dtype = attrgetter("shape", "dtype")


def origin(frame: Any) -> tuple[Any, int]:
    """Code and instruction of the user's line for an internal frame.

    The computation of a gradient belongs to the line of the op that it is the gradient of.
    """
    while internal[frame.f_code.co_filename] and frame.f_back is not None:
        if frame.f_code is _PULL_BACK and _walk.entry is not None:
            return _walk.entry[CODE], _walk.entry[INSTRUCTION]
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


# Ops ---------------------------------------------------------------------------------------------


def _timed(op: Op, kernel: Callable[..., Any], place: Device) -> Callable[..., Any]:
    """A kernel that writes an event for each call."""
    site, kind = OpSite(op, place), place.backend.array_type
    # Some ops mostly have arguments other than arrays.
    views, mixed = bool(op.views), bool(op.attributes or op.optional)

    def given_of(args: tuple[Any, ...]) -> list[Any]:
        return [(a.shape, a.dtype) if a.__class__ is kind else a for a in args]

    def start(*args: Any, **attributes: Any) -> Any:
        detail = *origin(_frame(2)), given_of(args), attributes
        return device_events.start(place, site, detail, partial(kernel, *args, **attributes))

    def call(*args: Any, **attributes: Any) -> Any:
        begin = clock()
        out = kernel(*args, **attributes)
        end = clock()
        frame = _frame(2)  # of the caller of the public function
        code = frame.f_code
        if internal[code.co_filename]:
            code, at = origin(frame)
        else:
            at = frame.f_lasti
        if len(events) >= MAX_EVENTS:
            leave_out()
            return out
        try:
            given = given_of(args) if mixed else [*map(_shape_and_dtype, args)]
        except raised_here(AttributeError):
            given = given_of(args)
        detail = code, at, given, attributes
        _append((begin, end, here.thread, site, detail))
        if out.__class__ is not kind or (out.nbytes >= MIN_WATCHED_BYTES and not views):
            watch(out, end, site, detail)
        return out

    made = start if place.backend.marks else call
    made.untimed = kernel  # type: ignore[attr-defined]
    return made


# Gradients ---------------------------------------------------------------------------------------


class _Walk(threading.local):
    """The entry of a tape with the gradient that this thread computes."""

    entry: Any = None


_walk = _Walk()
_pull_back, _PULL_BACK = tape.pull_back, tape.pull_back.__code__


class _Noted(list[Any]):
    """Entries of a tape; records the entry taken last."""

    def pop(self, at: Any = -1) -> Any:
        """Take the last entry."""
        _walk.entry = found = super().pop(at)
        return found


def _noted_pull_back(entries: list[Any], *given: Any) -> Any:
    """The pull-back of a tape, with access to its entries for finding the user's line."""
    own, before = _Noted(entries), _walk.entry
    entries.clear()  # as in the original function
    try:
        return _pull_back(own, *given)
    finally:
        _walk.entry = before


def _timed_runner(run: Callable[..., Any]) -> Callable[..., Any]:
    """A runner for kernels that compute a derivative in one pass, outside of the tables of ops."""

    def call(kernel: Callable[..., Any], *arrays: Any) -> Any:
        begin = clock()
        out = run(kernel, *arrays)
        end = clock()
        entry = _walk.entry
        if entry is not None:
            given = [*map(_shape_and_dtype, arrays)]
            site, detail = GradientSite.of(entry[OP]), (entry[CODE], entry[INSTRUCTION], given)
            log.write(begin, end, site, detail)
            if getattr(out, "nbytes", 0) >= MIN_WATCHED_BYTES:
                watch(out, end, site, detail)
        return out

    return call


_gradients = log.Forms(
    (tape, "pull_back", _pull_back, _noted_pull_back),
    (process, "run", process.run, _timed_runner(process.run)),
)

# The switch --------------------------------------------------------------------------------------


def _is_there(place: Device) -> bool:
    """Whether a device still has its library; otherwise its kernels cannot be called."""
    try:
        return place.backend is not None
    except MissingExtraError:
        return False


def _is_kernel(x: Any) -> bool:
    return callable(x) and not hasattr(x, "untimed")


_timed_ops: dict[Op, None] = {}
"""The ops that may have timed kernels in their tables, in order of insertion."""


def _wrap(op: Op) -> None:
    """Replace other kernels in an op's tables by timed ones."""
    _timed_ops[op] = None

    def wrapped(x: Any, key: Any) -> Any:
        place = (key if isinstance(key, Kind) else key[0]).device
        return _timed(op, x, place) if _is_kernel(x) and _is_there(place) else x

    _replace(op, wrapped)


def _wrap_learned(op: Op) -> None:
    """Replace kernels added to an op by timed ones; unless the last profile is closed."""
    log.while_open(_wrap, op)


def unwrap(op: Op) -> None:
    """Restore the original kernels in an op's tables."""
    _replace(op, lambda x, key: getattr(x, "untimed", x))
    _timed_ops.pop(op, None)


def _replace(op: Op, new: Callable[[Any, Any], Any]) -> None:
    tables: tuple[dict[Any, Any], ...] = op.table, op.kernels, op.many
    for table in tables:
        for key, entry in table.copy().items():
            parts = entry if type(entry) is tuple else (entry,)
            found = tuple([new(x, key) for x in parts])
            if any(a is not b for a, b in zip(found, parts, strict=True)):
                table[key] = found if type(entry) is tuple else found[0]


class Kernels:
    """The switch of all ops' kernels."""

    def on(self) -> None:
        """Time them."""
        if _wrap_learned not in learned.hear:
            learned.hear.append(_wrap_learned)
        for op in list(learned.things):
            _wrap(op)
        _gradients.on()

    def off(self) -> None:
        """Restore all kernels. Work done before an interruption need not be repeated."""
        while _wrap_learned in learned.hear:
            learned.hear.remove(_wrap_learned)
        _gradients.off()
        while (op := next(reversed(_timed_ops), None)) is not None:
            unwrap(op)
