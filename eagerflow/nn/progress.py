"""The progress of ``fit``: a bar in notebooks and terminals, otherwise a line for each epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.guard import ScopeGuard
from eagerflow.nn.arguments import require
from eagerflow.notebook.bar import Bar, NotebookBar, TerminalBar, is_terminal
from eagerflow.notebook.shell import kernel_shell

__all__ = ["Progress"]

MIN_SHOWN = 1e-3  # smaller numbers have an exponent


class Progress(ScopeGuard):
    """Shows the progress of epochs; a context manager that closes unfinished bars.

    ``verbose`` is 0 (silent), 1 (a bar for each epoch, where one can be shown), 2 (a line for each
    epoch) or "auto", which is 1.
    """

    def __init__(self, verbose: Any, epochs: int, op: str) -> None:
        known = verbose in ("auto", 0, 1, 2)
        require(known, verbose, "not a choice", op, "verbose", "'auto', 0, 1 or 2")
        self.level = 1 if verbose == "auto" else int(verbose)
        self.epochs = epochs
        self._make_bar = _kind_of_bar() if self.level == 1 else None
        self._bar: Bar | None = None
        self._start = 0.0

    def begin(self, epoch: int, steps: int | None, title: str | None = None) -> None:
        """Begin an epoch of a number of steps."""
        self._start = time.perf_counter()
        self._title = title or f"Epoch {epoch + 1}/{self.epochs}"
        if self._make_bar is not None:
            self._bar = self._make_bar(steps, self._title)

    def step(self, numbers: Callable[[], dict[str, Any]] | None = None) -> None:
        """A step is over; ``numbers`` gives those so far, and is called a few times a second."""
        if self._bar is not None:
            self._bar.step(None if numbers is None else lambda: _text(numbers()))

    def end(self, logs: dict[str, Any]) -> None:
        """The epoch is over; these are its numbers."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close(_text(logs))
        elif self.level:
            seconds = f"{time.perf_counter() - self._start:.1f} s"
            print(" - ".join(filter(None, [self._title, seconds, _text(logs)])))

    def release(self) -> None:
        """Close the bar, also when training ends early."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


def _text(logs: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {shown(value)}" for name, value in logs.items())


def shown(value: Any, form: str | None = None) -> str:
    """A formatted number, or the numbers of a metric with several.

    >>> from eagerflow.nn.progress import shown
    >>> shown(0.5), shown([2.25, 0.0]), shown(1.5e-6)
    ('0.5000', '[2.2500, 0.0000]', '1.50e-06')
    """
    if np.ndim(value):
        return f"[{', '.join(shown(x, form) for x in value)}]"
    return format(value, form or (".2e" if 0 < abs(value) < MIN_SHOWN else ".4f"))


def _kind_of_bar() -> type[Bar] | None:
    """The bar to show here; None if there is none."""
    if kernel_shell() is not None:
        return NotebookBar
    return TerminalBar if is_terminal() else None
