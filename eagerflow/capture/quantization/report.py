"""The report of a quantization: sizes before and after, and errors on the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.text import aligned_columns, bytes_text


class Errors(NamedTuple):
    """Deviations from the original values: the ratio of signal to noise, and the largest."""

    decibels: float
    largest: float

    def words(self) -> tuple[str, str]:
        """Both as text."""
        return f"{self.decibels:.1f} dB", f"{self.largest:.2g}"


class Row(NamedTuple):
    """One quantized node: its name and op, bytes of its weights, and its errors."""

    name: str
    op: str
    bits: int
    before: int
    after: int
    errors: Errors | None


class QuantizationReport(NamedTuple):
    """The quantized nodes, and the effect on size and results; it prints as a table.

    ``rows`` are the nodes, ``before`` and ``after`` the bytes of all constants of the graph, and
    ``errors`` those of the outputs by name, if there were data to measure them.
    """

    rows: tuple[Row, ...]
    before: int
    after: int
    errors: dict[str, Errors]

    @property
    def ratio(self) -> float:
        """The size after divided by the size before."""
        return self.after / self.before if self.before else 1.0

    def __str__(self) -> str:
        table = [("op", "bits", "before", "after", "signal to noise", "largest error", "node")]
        for row in self.rows:
            words = ("", "") if row.errors is None else row.errors.words()
            sizes = bytes_text(row.before), bytes_text(row.after)
            table.append((row.op, str(row.bits), *sizes, *words, row.name))
        lines = [
            f"{len(self.rows)} ops quantized: {bytes_text(self.before)} of constants became "
            f"{bytes_text(self.after)} ({self.ratio:.0%})"
        ]
        lines += [f"  {line}" for line in aligned_columns(table, "<>>>>><")]
        for name, errors in self.errors.items():
            decibels, largest = errors.words()
            lines.append(f"  output {name}: {decibels}, {largest} at most")
        return "\n".join(lines)


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants."""
    return sum(nbytes(value) for value in graph.constants)


def errors_of(reference: Sequence[Any], found: Sequence[Any]) -> Errors:
    """The errors of some arrays, together."""
    signal = noise = largest = 0.0
    for a, b in zip(reference, found, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        signal += float(np.square(a).sum())
        noise += float(np.square(a - b).sum())
        largest = max(largest, float(np.abs(a - b).max(initial=0.0)))
    if noise == 0:
        return Errors(math.inf, 0.0)
    return Errors(10 * math.log10(signal / noise) if signal else -math.inf, largest)
