"""The progress of ``fit``: a bar in notebooks and if tqdm is installed, otherwise lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.guard import ScopeGuard
from eagerflow.nn.arguments import require
from eagerflow.notebook.bar import NotebookBar
from eagerflow.notebook.shell import kernel_shell

__all__ = ["Progress"]


class Progress(ScopeGuard):
    """Shows the progress of epochs; a context manager that closes unfinished bars.

    ``verbose`` is 0 (silent), 1 (a bar for each epoch), 2 (a line for each epoch) or "auto",
    which is 1.
    """

    def __init__(self, verbose: Any, epochs: int, op: str) -> None:
        known = verbose in ("auto", 0, 1, 2)
        require(known, verbose, "not a choice", op, "verbose", "'auto', 0, 1 or 2")
        self.level = 1 if verbose == "auto" else int(verbose)
        self.epochs = epochs
        self._make_bar = _bars() if self.level == 1 else None
        self._bar: Any = None
        self._start = 0.0

    def begin(self, epoch: int, steps: int | None, title: str | None = None) -> None:
        """Begin an epoch of a number of steps."""
        self._start = time.perf_counter()
        self._title = title or f"Epoch {epoch + 1}/{self.epochs}"
        if self._make_bar is not None:
            self._bar = self._make_bar(total=steps, desc=self._title, unit="step")

    def end(self, logs: dict[str, Any]) -> None:
        """The epoch is over; these are its numbers."""
        text = ", ".join(f"{name}: {shown(value)}" for name, value in logs.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text)
            self.release()
        elif self.level:
            print(f"{self._title} - {time.perf_counter() - self._start:.1f} s - {text}")

    def release(self) -> None:
        """Close the bar, also when training ends early."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def watch(self, items: Iterator[Any]) -> Iterator[Any]:
        """``items``, with a step counted after each."""
        return items if self._bar is None else self._counted(items)

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            yield item
            if self._bar is not None:
                self._bar.update()


def shown(value: Any, form: str = ".4f") -> str:
    """A formatted number, or the numbers of a metric with several."""
    if np.ndim(value):
        return f"[{', '.join(shown(x, form) for x in value)}]"
    return format(value, form)


def _bars() -> Any:
    """The constructor of bars here; None if there is none."""
    if kernel_shell() is not None:
        return NotebookBar  # tqdm's needs widgets, and is lost when the notebook is saved
    found = extras.load_if_there("tqdm")
    return found and found.tqdm
