"""Callbacks that keep the numbers of each epoch: in memory, and in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.display import html
from eagerflow.errors import ArgumentError
from eagerflow.graph.text import aligned_columns
from eagerflow.nn.arguments import require
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.configured import arguments
from eagerflow.nn.progress import shown
from eagerflow.notebook.plots import page_colours

__all__ = ["CSVLogger", "History"]

COLUMNS = 3  # of charts in a row
ROWS = 20  # of epochs in the text
MARKED = 30  # numbers of a curve up to which points are marked


class History(Callback):
    """What ``fit`` returns: the numbers of each epoch, in ``history`` by name.

    >>> history = ef.nn.callbacks.History()
    >>> history.on_epoch_end(0, {"loss": 1.5})
    >>> history.history, history.epoch
    ({'loss': [1.5]}, [0])
    >>> print(history)
    epoch  loss
        1   1.5
    """

    def __init__(self) -> None:
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []
        self._epochs: dict[str, list[int]] = {}  # of each number; that of validation may be seldom

    def on_train_begin(self, logs: Logs = None) -> None:
        self.history.clear()
        self.epoch.clear()
        self._epochs.clear()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.epoch.append(epoch)
        for key, value in (logs or {}).items():
            self.history.setdefault(key, []).append(_plain(value))
            self._epochs.setdefault(key, []).append(epoch + 1)

    def forget(self, epoch: int) -> None:
        """Drop the numbers of this and later epochs, which are repeated.

        >>> history = ef.nn.callbacks.History()
        >>> for epoch in range(3):
        ...     history.on_epoch_end(epoch, {"loss": 1.5 - epoch})
        >>> history.forget(1)
        >>> history.history, history.epoch
        ({'loss': [1.5]}, [0])
        """
        self.epoch = [known for known in self.epoch if known < epoch]
        for key, numbers in self._epochs.items():
            kept = sum(number <= epoch for number in numbers)
            del numbers[kept:], self.history[key][kept:]

    def _repr_html_(self) -> str:
        return html(self, "curves")

    def plot(self, *names: str) -> list[Any]:
        """Draw a picture of each number, training and validation in one; returns matplotlib's axes.

        ``names`` selects the numbers; the default is all. The picture is transparent, in colours
        for light and dark pages, unless matplotlib has a style with colours. Raises ArgumentError
        for unknown names, MissingExtraError if matplotlib is not installed.

        >>> history = ef.nn.callbacks.History()
        >>> history.on_epoch_end(0, {"loss": 1.5, "val_loss": 1.7, "accuracy": 0.5})
        >>> [axes.get_title() for axes in history.plot()]
        ['loss', 'accuracy']
        """
        known = list(dict.fromkeys(key.removeprefix("val_") for key in self.history))
        for name in names:
            expected = "one of " + ", ".join(map(repr, known))
            require(name in known, name, "not in the history", "History.plot", "names", expected)
        if not known:
            raise ArgumentError("no epoch has ended yet", op="History.plot")
        with page_colours("History.plot"):
            return self._drawn(names or known)

    def _drawn(self, shown: Sequence[str]) -> list[Any]:
        pyplot = extras.load("matplotlib.pyplot", "plot", "History.plot")
        ticker = extras.load("matplotlib.ticker", "plot", "History.plot")
        rows = -(-len(shown) // COLUMNS)
        columns = min(len(shown), COLUMNS)
        _, grid = pyplot.subplots(
            rows, columns, figsize=(4.2 * columns, 3.0 * rows), squeeze=False, layout="constrained"
        )
        for name, axes in zip(shown, grid.flat, strict=False):
            self._draw(axes, name)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
            # The first ticks are made now, with the colours of now; later ones are like them.
            axes.get_xticklabels(), axes.get_yticklabels()
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        return list(grid.flat[: len(shown)])

    def _draw(self, axes: Any, name: str) -> None:
        for key, label in ((name, "training"), (f"val_{name}", "validation")):
            values = self.history.get(key)
            if values is not None:
                marker = "o" if len(values) < MARKED else None
                axes.plot(self._epochs[key], values, label=label, marker=marker, markersize=3)
        axes.set_title(name)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
        if len(axes.lines) > 1:
            axes.legend()

    def __str__(self) -> str:
        """A table of the numbers; of many epochs, some at even distances, and the last."""
        if not self.epoch:
            return repr(self)
        found = {
            name: dict(zip(self._epochs.get(name, ()), values, strict=False))
            for name, values in self.history.items()
        }
        every = -(-len(self.epoch) // ROWS)
        rows = [["epoch", *found]]
        for epoch in self.epoch[::-1][::every][::-1]:
            own = [numbers.get(epoch + 1) for numbers in found.values()]
            rows.append([str(epoch + 1), *("" if x is None else shown(x, ".4g") for x in own)])
        return "\n".join(aligned_columns(rows, ">" * len(rows[0])))

    def __repr__(self) -> str:
        last = ", ".join(
            f"{key} {shown(values[-1], '.4g')}" for key, values in self.history.items()
        )
        return f"<History: {len(self.epoch)} epochs{': ' + last if last else ''}>"


class CSVLogger(Callback):
    r"""Writes the numbers of each epoch into a file, one line per epoch.

    Columns are ``epoch``, counted from 0, and the names of the first epoch's numbers, sorted, with
    their ``val_`` forms if these are still missing; missing numbers are ``NA``. ``append``
    continues an existing file.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "log.csv")
    >>> log = ef.nn.callbacks.CSVLogger(path, separator=";")
    >>> log.on_train_begin()
    >>> log.on_epoch_end(0, {"loss": 1.5, "val_loss": 2.0})
    >>> open(path).read()
    'epoch;loss;val_loss\n0;1.5;2.0\n'
    """

    filename: str
    separator: str
    append: bool

    @arguments
    def __init__(
        self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False
    ) -> None:
        self.filename = os.fspath(filename)

    def on_train_begin(self, logs: Logs = None) -> None:
        self._keys: list[str] | None = None
        if not self.append:
            Path(self.filename).write_bytes(b"")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        numbers = logs or {}
        if self._keys is None:
            self._keys = sorted(numbers)
            if not any(key.startswith("val_") for key in self._keys):
                self._keys += [f"val_{key}" for key in self._keys]
        row = [_plain(numbers.get(key, "NA")) for key in self._keys]
        import csv  # of use here alone

        # Opened for each epoch, so that nothing is lost or left open if training ends.
        with open(self.filename, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self.separator, lineterminator="\n")
            if not file.tell():
                writer.writerow(["epoch", *self._keys])
            writer.writerow([epoch, *row])


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
