"""Progress bars: one line of a terminal, or an element in a notebook that stays when saved."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from eagerflow.errors import printable
from eagerflow.handlers import raised_here
from eagerflow.notebook.markup import Markup, element
from eagerflow.notebook.shell import show

SECONDS_BETWEEN = 0.1  # between two updates of the line or the page
_WIDTHS = 20, 8  # letters of a bar in a terminal, the widest and the narrowest
_LINE = 80, 24  # of a terminal whose size is unknown


class Bar:
    """Counts finished steps, of ``total`` if given, and shows them with the time and some words."""

    def __init__(self, total: int | None = None, title: str = "") -> None:
        self.total = total
        self.title = title
        self.count = 0
        self.words = ""
        self.closed = False
        self.start = self._shown = time.perf_counter()
        self._first = self.start  # the end of the first step, which is slower than others
        self.draw()

    def step(self, words: Callable[[], str] | None = None) -> None:
        """Count one more step; ``words`` gives the text behind the bar, if that is shown now."""
        self.count += 1
        now = time.perf_counter()
        if self.count == 1:
            self._first = now
        if now - self._shown > SECONDS_BETWEEN:
            self.words = self.words if words is None else words()
            self.draw()
            self._shown = time.perf_counter()

    def close(self, words: str | None = None) -> None:
        """Show the final state, which stays."""
        self.closed = True
        self.words = self.words if words is None else words
        self.draw()

    def draw(self) -> None:
        """Show the current state in place of the last one."""
        raise NotImplementedError

    def texts(self) -> list[str]:
        """The number of steps, the time taken and left, and the words."""
        steps = f"{self.count}{'' if self.total is None else f'/{self.total}'} step"
        steps += "s" if (self.total or self.count) != 1 else ""
        now = time.perf_counter()
        times = [short_time(now - self.start)]
        if self.total and 1 < self.count < self.total and not self.closed:
            left = (now - self._first) / (self.count - 1) * (self.total - self.count)
            times.append(f"{short_time(left)} left")
        return [text for text in (steps, *times, self.words) if text]


def short_time(seconds: float) -> str:
    """A time to read at a glance.

    >>> short_time(2.345), short_time(75), short_time(7300)
    ('2.3 s', '1:15 min', '2:01 h')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, more = divmod(minutes, 60)
    return f"{hours}:{more:02} h" if hours else f"{minutes}:{rest:02} min"


class TerminalBar(Bar):
    """A bar in the current line of a terminal, never longer than that."""

    def __init__(self, total: int | None = None, title: str = "") -> None:
        self._letters = 0
        super().__init__(total, title)

    def draw(self) -> None:
        """Overwrite the line."""
        line = self._line(shutil.get_terminal_size(_LINE).columns - 1)
        padding = " " * (self._letters - len(line))
        print(f"\r{line}{padding}", end="\n" if self.closed else "", flush=True)
        self._letters = len(line)

    def _line(self, width: int) -> str:
        """The texts, with a bar if there is room for one, and fewer texts if there is none.

        The final numbers are all there, even where the terminal has to break the line.
        """
        title, (steps, *more) = printable(self.title), map(printable, self.texts())
        texts = ", ".join([steps, *more])
        widest, narrowest = _WIDTHS
        room = min(width - len(title) - len(texts) - 4, widest)
        if self.total and room >= narrowest:
            done = room * min(self.count, self.total) // self.total
            return f"{title} [{'=' * done}{'.' * (room - done)}] {texts}"
        if len(title) + len(texts) < width:
            return f"{title} {texts}"
        words = [title, *", ".join([steps.partition(" ")[0], *more]).split(", ")]
        if self.closed:
            return f"{title} {', '.join(more)}"
        while len(words) > 2 and len(" ".join(words)) + len(words) - 2 > width:
            words.pop()
        return f"{title} {', '.join(words[1:])}"[: max(width, 0)]


class NotebookBar(Bar):
    """A bar below the running cell, without widgets."""

    def __init__(self, total: int | None = None, title: str = "") -> None:
        self._place = None
        super().__init__(total, title)

    def draw(self) -> None:
        """Show the forms of the bar, in the place of the last ones."""
        words = ", ".join(self.texts())
        forms = {"text/html": self._html(words), "text/plain": f"{self.title}: {words}"}
        if self._place is None:
            self._place = show(forms, raw=True, display_id=True)
        else:
            self._place.update(forms, raw=True)

    def _html(self, words: str) -> Markup:
        known = self.total or self.closed  # else the bar shows activity only
        bar = element(
            "progress",
            value=self.count if known else None,
            max=max(self.total or self.count, 1) if known else None,
            aria_label=self.title,
            style="width:12em;vertical-align:middle",
        )
        return element("div", f"{self.title} ", bar, f" {words}")


def is_terminal() -> bool:
    """Whether what is printed is shown in a terminal."""
    try:
        return sys.stdout.isatty()
    except raised_here(AttributeError, ValueError):  # no stream, or a closed one
        return False
