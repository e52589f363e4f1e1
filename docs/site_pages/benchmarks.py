"""The page of the benchmarks: the newest results of each, from ``benchmarks/results``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from site_pages.folder import Folder
from site_pages.project import PAGES, relinked

# What the results call a measure, and its unit; the first one of a row is shown.
_UNITS = {
    "milliseconds": "ms",
    "microseconds": "µs",
    "seconds": "s",
    "first_seconds": "s",
    "peak": "MB",
    "megabytes": "MB",
    "requests_per_second": "a second",
}


def write(folder: Folder, root: Path) -> None:
    """Write the page: the benchmarks' README, and a section for each file of results."""
    source = "benchmarks/README.md"
    page = PAGES[source]
    parts = [relinked((root / source).read_text(encoding="utf-8"), source, page)]
    parts.append("## Results\n\nThe newest row of each name; ratios are ours / the peer's.")
    for path in sorted((root / "benchmarks" / "results").glob("*.jsonl")):
        parts += _section(path)
    folder.write(page.removeprefix("generated/"), "\n\n".join(parts) + "\n")


def newest_rows(path: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Name to its newest row, and the run that it is of."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            run = json.loads(line)
            for row in run.pop("rows"):
                found[row["name"]] = row, run
    return found


def _section(path: Path) -> Iterator[str]:
    found = newest_rows(path)
    rows = [row for row, _ in found.values()]
    yield f"### {path.stem}"
    yield "\n".join(sorted({f"- {_run(run)}" for _, run in found.values()}))
    yield table(rows)


def _run(run: dict[str, Any]) -> str:
    versions = run["versions"]
    told = (
        (f"{name} {version}" for name, version in versions.items() if name != "peak_gigaflops")
        if isinstance(versions, dict)
        else versions
    )
    return f"{run['date']}, {run['processor']}, Python {run['python']}, {', '.join(told)}"


def table(rows: list[dict[str, Any]]) -> str:
    """A table of the measures of all contestants, and how they compare."""
    measures = [next((key for key in _UNITS if key in row), None) for row in rows]
    contestants: dict[str, None] = {}
    for row, key in zip(rows, measures, strict=True):
        if key is not None:
            contestants |= dict.fromkeys(row[key] if isinstance(row[key], dict) else ["time"])
    compared = [key for key in ("ratio", "target") if any(row.get(key) for row in rows)]
    lines = [["", *contestants, *compared], ["---"] + ["--:"] * (len(contestants) + len(compared))]
    for row, key in zip(rows, measures, strict=True):
        values = row[key] if key is not None else {}
        values = values if isinstance(values, dict) else {"time": values}
        cells = [_measure(values.get(who), _UNITS.get(key or "", "")) for who in contestants]
        lines.append([row["name"], *cells, *(_ratio(row, key) for key in compared)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _measure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def _ratio(row: dict[str, Any], key: str) -> str:
    return "" if row.get(key) is None else f"{row[key]:.2f}"
