"""Partitions in a notebook: a timeline of devices, the costs, and the placement of nodes."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import SessionError
from eagerflow.graph.text import bytes_text, seconds_text
from eagerflow.notebook.markup import (
    BLUE,
    FAINT,
    ORANGE,
    Markup,
    element,
    folded,
    label,
    picture,
    text_block,
)

MAX_BOXES, MAX_ARROWS = 400, 200
_WIDTH, _LEFT, _ROW, _BAR, _TOP = 720.0, 130.0, 34.0, 24.0, 8.0
_LETTER = 6.2  # pixels


def view(plan: Any) -> Markup:
    """A Partition: the timeline of its last run, if any, the costs, the listing."""
    try:
        shown = timeline(plan.timeline())
    except SessionError:
        shown = element("div", "Nothing has run yet: a run has a timeline.", style=FAINT)
    cuts = plan.cuts
    sent = sum(cut.bytes for cut in cuts)
    words = (
        f"{len(plan.pieces)} pieces, {len(cuts)} values sent, {bytes_text(sent)}, "
        f"{len(plan.kernels)} generated kernels"
    )
    return element(
        "div",
        element("code", repr(plan)),
        element("div", words),
        shown,
        folded("devices, nodes and costs", text_block(str(plan))),
    )


def timeline(trace: dict[str, Any]) -> Markup:
    """A Chrome trace as a picture: a row for each device, boxes for pieces, lines for transfers.

    Of more than ``MAX_BOXES`` boxes the longest are drawn.
    """
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    boxes = [e for e in events if e["ph"] == "X"]
    whole = max((e["ts"] + e["dur"] for e in boxes), default=0.0)
    scale = (_WIDTH - _LEFT - 10) / whole if whole else 0.0
    rows = {number: i for i, number in enumerate(names)}
    longest = sorted(boxes, key=lambda e: -e["dur"])[:MAX_BOXES]
    parts = [label(4, _middle(rows[n]) + 4, _cut(name, _LEFT)) for n, name in names.items()]
    for box in longest:
        parts += _box(box, rows[box["tid"]], scale)
    parts += _arrows(events, rows, scale)
    height = _TOP + len(rows) * _ROW + 22
    title = f"{len(boxes)} pieces and transfers on {len(rows)} rows in {seconds_text(whole * 1e-6)}"
    if len(longest) < len(boxes):
        title += f", the longest {MAX_BOXES} shown"
    parts += [
        label(_LEFT, height - 6, "0", font_size=10),
        label(_WIDTH - 10, height - 6, seconds_text(whole * 1e-6), "end", font_size=10),
    ]
    return element("div", picture(_WIDTH, height, title, *parts))


def _middle(row: int) -> float:
    return _TOP + row * _ROW + _BAR / 2


def _box(event: dict[str, Any], row: int, scale: float) -> list[Markup]:
    colour = ORANGE if event["cat"] == "transfer" else BLUE
    x, width = _LEFT + event["ts"] * scale, max(event["dur"] * scale, 1.0)
    story = "\n".join(
        [f"{event['name']}: {seconds_text(event['dur'] * 1e-6)}", *event["args"]["nodes"]]
    )
    top = _middle(row) - _BAR / 2
    box = element(
        "rect", x=f"{x:.1f}", y=f"{top:.1f}", width=f"{width:.1f}", height=_BAR, rx=3,
        fill=colour, fill_opacity=".3", stroke=colour,
    )  # fmt: skip
    words = _cut(event["name"], width)
    inside = [label(x + width / 2, _middle(row) + 4, words, "middle")] if words else []
    return [element("g", element("title", story), box, *inside)]


def _arrows(events: list[dict[str, Any]], rows: dict[int, int], scale: float) -> list[Markup]:
    """Lines from the sender to the receiver of each value."""
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = [e for e in events if e["ph"] == "f" and e["id"] in starts]
    found = []
    for end in ends[:MAX_ARROWS]:
        start = starts[end["id"]]
        one, other = rows[start["tid"]], rows[end["tid"]]
        down = (other > one) - (other < one)
        line = element(
            "line",
            x1=f"{_LEFT + start['ts'] * scale:.1f}",
            y1=f"{_middle(one) + down * _BAR / 2:.1f}",
            x2=f"{_LEFT + end['ts'] * scale:.1f}",
            y2=f"{_middle(other) - down * _BAR / 2:.1f}",
            stroke="currentColor",
            stroke_opacity=".6",
        )
        words = f"{end['name']}, {bytes_text(end['args']['bytes'])}"
        found.append(element("g", element("title", words), line))
    return found


def _cut(words: str, width: float) -> str:
    """Truncate a text to a width; empty if next to nothing would remain."""
    letters = int((width - 6) / _LETTER)
    if len(words) <= letters:
        return words
    return words[: letters - 1] + "…" if letters > 3 else ""
