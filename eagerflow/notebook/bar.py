"""A progress bar in a notebook, which needs no widgets and stays in the saved notebook."""

from __future__ import annotations

import time

from eagerflow.notebook.markup import Markup, element
from eagerflow.notebook.shell import show

SECONDS_BETWEEN = 0.1  # between two updates of the page


class NotebookBar:
    """Shows the number of finished steps, of ``total`` if given, in the running cell.

    It has the methods of tqdm's bars that ``Progress`` calls.
    """

    def __init__(self, total: int | None = None, desc: str = "", unit: str = "step") -> None:
        self.total = total
        self.count = 0
        self._title, self._unit, self._words = desc, unit, ""
        self._start = self._shown = time.perf_counter()
        self._closed = False
        self._place = show(self._forms(), raw=True, display_id=True)

    def update(self) -> None:
        """Count one more step."""
        self.count += 1
        if time.perf_counter() - self._shown > SECONDS_BETWEEN:
            self._draw()

    def set_postfix_str(self, words: str) -> None:
        """Set the text behind the bar."""
        self._words = words

    def close(self) -> None:
        """Show the final state, which stays."""
        self._closed = True
        self._draw()

    def _draw(self) -> None:
        self._place.update(self._forms(), raw=True)
        self._shown = time.perf_counter()

    def _forms(self) -> dict[str, str]:
        seconds = f"{time.perf_counter() - self._start:.1f} s"
        steps = f"{self.count}{'' if self.total is None else f'/{self.total}'} {self._unit}"
        steps += "s" if (self.total or self.count) != 1 else ""
        words = ", ".join(filter(None, [steps, seconds, self._words]))
        return {"text/html": self._html(words), "text/plain": f"{self._title}: {words}"}

    def _html(self, words: str) -> Markup:
        known = self.total or self._closed  # else the bar shows activity only
        bar = element(
            "progress",
            value=self.count if known else None,
            max=max(self.total or self.count, 1) if known else None,
            aria_label=self._title,
            style="width:12em;vertical-align:middle",
        )
        return element("div", f"{self._title} ", bar, f" {words}")
