"""Errors in a notebook: the problem, the user's line, and a hint."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from eagerflow.cells import shell_here
from eagerflow.dispatch import internal
from eagerflow.notebook.markup import FAINT, MONOSPACE, RED, Markup, element, folded, text_block
from eagerflow.tracebacks import users_frames

MAX_CAUSES = 8
_MAX_FRAMES = 200
_AROUND = 2  # lines of context before and after
_MARK = f"border-left:3px solid {RED};padding-left:.6em"
_CODE = "white-space:pre-wrap"
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def view(error: Any, name_of: Callable[[str], str] = str) -> Markup:
    """An EagerflowError: its parts, the line that caused it, and the folded traceback.

    ``name_of`` maps files to displayed names, as cells of notebooks have their own.
    """
    place = f"{error.op}: " if error.op else ""
    head = element("div", element("strong", type(error).__name__), f": {place}{error.problem}")
    rows = [
        element(
            "div", element("span", f"{title}: ", style=FAINT), element("code", words, style=_CODE)
        )
        for title, words in (
            ("argument", error.argument),
            ("received", error.received),
            ("expected", error.expected),
            ("in captured code at", error.at),
        )
        if words
    ]
    if error.hint:
        rows.append(
            element("div", element("strong", "try: "), element("code", error.hint, style=_CODE))
        )
    parts = [head, *rows, *_user_line(error, name_of), *_causes(error)]
    whole = "".join(traceback.format_exception(error, limit=-_MAX_FRAMES))
    parts.append(folded("traceback", text_block(whole)))
    return element("div", *parts, role="alert", style=_MARK)


def lines(error: BaseException) -> list[str]:
    """The traceback as IPython shows it, or as Python does, of the frames outside of eagerflow."""
    whole = {x: x.__traceback__ for x in _chain(error)}
    try:
        for x, trace in whole.items():
            x.__traceback__ = users_frames(trace)
        show = getattr(getattr(shell_here(), "InteractiveTB", None), "structured_traceback", None)
        if show is None:
            return traceback.format_exception(error, limit=-_MAX_FRAMES)
        shown: list[str] = show(type(error), error, error.__traceback__, tb_offset=0)
        return shown
    finally:
        for x, trace in whole.items():
            x.__traceback__ = trace


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _user_line(error: BaseException, name_of: Callable[[str], str]) -> Iterator[Markup]:
    """The user's innermost line, or one of a library in between, with context."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    places = [place for place in places if not internal[place[0]]]
    if not places:
        return
    own = [place for place in places if not place[0].startswith(_INSTALLED)]
    file, at = (own or places)[-1]
    lines = linecache.getlines(file)
    shown = []
    for number in range(max(1, at - _AROUND), min(len(lines), at + _AROUND) + 1):
        words = f"{'→' if number == at else ' '} {number:>4}  {lines[number - 1].rstrip()}\n"
        shown.append(element("strong", words) if number == at else words)
    yield element("div", element("span", f"{name_of(file)}, line {at}", style=FAINT))
    if shown:
        yield element("pre", *shown, style=f"{MONOSPACE};overflow:auto;margin:.2em 0")


def _causes(error: BaseException) -> Iterator[Markup]:
    """The chain of causes, a line for each."""
    seen = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen and len(seen) <= MAX_CAUSES:
        seen.add(id(cause))
        first = str(cause).partition("\n")[0]
        yield element(
            "div",
            element("span", "caused by ", style=FAINT),
            element("code", f"{type(cause).__name__}: {first}"),
        )
        cause = cause.__cause__
