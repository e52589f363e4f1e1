"""The table that a profile prints as: it fits a screen of 100 columns and 30 lines."""

from __future__ import annotations

from eagerflow.errors import printable
from eagerflow.graph.text import aligned_columns, bytes_text, seconds_text
from eagerflow.profiling.machine import Machine
from eagerflow.profiling.results import Results
from eagerflow.profiling.rows import Row

MAX_ROWS = 20
MAX_LINES_OF_MEMORY = 3
MAX_THREADS = 4
_WIDTHS = {"what": 32, "line": 24}  # letters
_HEAD = ("share", "ms", "calls", "GFLOP/s", "peak", "GB/s", "peak", "what", "line")
OTHER = "(Python and other)"


def table_text(profile: Results) -> str:
    """A profile as a table, followed by a summary of omitted rows.

    Shares are those of the time of all threads together.
    """
    machine, runs = profile.machine, profile.runs
    own = [row for row in profile.rows if row.seconds > 0]
    other = Row(OTHER, 0, max(profile.other, 0.0))
    rows = sorted([*own, other], key=lambda row: -row.seconds)
    seconds = sum(row.seconds for row in rows)
    shown, left = rows[:MAX_ROWS], rows[MAX_ROWS:]
    cells = [_HEAD, *(_cells(row, seconds, runs, machine) for row in shown)]
    lines = aligned_columns(cells, ">>>>>>><<")
    if left:
        taken = sum(row.seconds for row in left)
        lines.append(f"and {len(left)} more: {taken / runs * 1e3:.3f} ms, {taken / seconds:.1%}")
    lines += ["", *_sums(profile), *_threads(profile), *_memory(profile)]
    cached = any(row.gigabytes > machine.gigabytes for row in shown)
    lines.append(
        f"peak: {machine.gigaflops:.0f} GFLOP/s, {machine.gigabytes:.0f} GB/s"
        + (" of memory; faster rates are those of caches" if cached else "")
    )
    if profile.left_out:
        lines.append(f"about {profile.left_out:,} calls more were too many to be kept")
    return "\n".join([printable(x) for x in lines])


def _cells(row: Row, seconds: float, runs: int, machine: Machine) -> tuple[str, ...]:
    rates: list[str] = []
    for rate, most in zip((row.gigaflops, row.gigabytes), machine, strict=True):
        rates += (f"{rate:.1f}", f"{min(rate / most, 1):.0%}") if rate else ("", "")
    calls = row.calls / runs
    return (
        f"{row.seconds / seconds:.1%}",
        f"{row.seconds / runs * 1e3:.3f}",
        "" if not calls else f"{calls:.0f}" if calls == int(calls) else f"{calls:.1f}",
        *rates,
        _short(row.name, _WIDTHS["what"]),
        _short(row.place, _WIDTHS["line"]),
    )


def _short(words: str, most: int) -> str:
    """Text shortened in the middle."""
    if len(words) <= most:
        return words
    half = (most - 3) // 2
    return f"{words[: most - 3 - half]}...{words[-half:]}"


def _sums(profile: Results) -> list[str]:
    kernels = sum(part.seconds for part in profile.own_parts if not part.facts.is_call)
    whole = profile.seconds
    runs = f" a run of {profile.runs}" if profile.runs > 1 else ""
    around = profile.accounted - kernels
    return [
        f"{seconds_text(whole / profile.runs)}{runs}: {kernels / whole:.1%} in ops and steps, "
        f"{around / whole:.1%} in calls around them, "
        f"{max(profile.other, 0.0) / whole:.1%} in Python and other"
    ]


def _threads(profile: Results) -> list[str]:
    rows = profile.by("thread")
    if all(part.event.thread is profile.thread for part in profile.parts):
        return []
    whole = seconds_text(sum(row.seconds for row in rows))
    shown = [f"{row.name} {seconds_text(row.seconds)}" for row in rows[:MAX_THREADS]]
    more = [f"{len(rows) - MAX_THREADS} more"] if len(rows) > MAX_THREADS else []
    return [f"threads, {whole} together: {', '.join([*shown, *more])}"]


def _memory(profile: Results) -> list[str]:
    peak = profile.memory.peak
    if not peak:
        return []
    lines = profile.memory.lines()[:MAX_LINES_OF_MEMORY]
    most = [f"{bytes_text(x.bytes)} by {x.name} {x.place}".rstrip() for x in lines if x.bytes]
    return [f"memory: {bytes_text(peak)} at most, of which", *(f"  {words}" for words in most)]
