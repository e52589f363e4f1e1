"""Explanations of a tape: the user's line, the reason for a missing gradient, memory kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from eagerflow import tree
from eagerflow.cells import file_name
from eagerflow.devices import SymbolicKind
from eagerflow.dispatch import user_frame
from eagerflow.display import summary
from eagerflow.errors import GradientError, printable
from eagerflow.op import Missing
from eagerflow.recorder import CODE, FIRST_KEY, FIRST_VALUE, INSTRUCTION, OP, OUT, RESULT
from eagerflow.sources import path_in, unwatched
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable


def caller() -> tuple[Any, int]:
    """Code and instruction of the user's current line."""
    frame = user_frame(sys._getframe(1))
    return frame.f_code, frame.f_lasti


def line_of(code: Any, instruction: int) -> tuple[str, int]:
    """File and line of an instruction, as shown; ``code`` may also be the place itself."""
    if isinstance(code, tuple):
        return file_name(code[0]), code[1]
    positions = list(code.co_positions())
    at = instruction // 2
    line = positions[at][0] if 0 <= at < len(positions) else None
    return file_name(code.co_filename), line or code.co_firstlineno


def place(entry: Any) -> str:
    """Where the user called the op of an entry."""
    return _at(entry[CODE], entry[INSTRUCTION])


def _at(code: Any, instruction: int) -> str:
    file, line = line_of(code, instruction)
    return f"{file}:{line}"


def name_of(source: Any) -> str:
    """The name of a Variable or of a value in a graph, or a description of a source."""
    name: str | None = getattr(source, "name", None)
    name = name or getattr(getattr(source, "_array", None), "name", None)
    return name or f"tensor of shape {tuple(source.shape)}"


def _outs(entry: Any) -> tuple[int, ...]:
    return entry[OUT] if isinstance(entry[OUT], tuple) else (entry[OUT],)


def _reason(entry: Any) -> str:
    op = entry[OP]
    reason = op.vjp.reason if isinstance(op.vjp, Missing) else ""
    if isinstance(op.partials, Missing) and op.partials.reason != "see vjp":
        reason = op.partials.reason
    return f"{op.name} ({place(entry)}): {reason}"


NOT_RECORDED = "the target was not computed from watched values inside of the `with` block"
_LEFT = "a value computed from it left through"
_MEANT = "unconnected='zero' or 'none' where this is meant"
_REMEDIES = (
    (NOT_RECORDED, "with ef.GradientTape() as tape: loss = ..., all of it in the block"),
    (_LEFT, f"the functions of ef in place of those; {_MEANT}"),
)


def made_later(entries: list[Any], targets: Iterable[int]) -> bool:
    """Whether the targets with these keys were all computed after the tape's last record."""
    return bool(entries) and min(targets) > max(_outs(entries[-1]))


def broken_path(
    ends: Iterable[Any],
    left: Iterable[Any],
    keys: set[int],
    target: Any = None,
    is_later: bool = False,
) -> str:
    """Why the walk back from a target did not reach the values with these keys."""
    if tree.instances(target, (Variable,)):
        return "the target is a Variable: the loss comes first, tape.gradient(loss, variables)"
    lines = [f"the path breaks at {_reason(entry)}" for entry in ends]
    lines += _left_by(left, keys)
    none = "no path from the target back to it: it was used for other things"
    return "\n    ".join(lines or [NOT_RECORDED if is_later else none])


def _left_by(left: Iterable[Any], keys: set[int]) -> list[str]:
    return [
        f"{_LEFT} {how} ({_at(code, instruction)}),"
        " and computations in NumPy or Python are not recorded"
        for key, how, code, instruction in left
        if key in keys
    ]


def unconnected(
    source: Any, reason: str, structure: tree.Structure | None = None, i: int = 0
) -> GradientError:
    """The error for a source, leaf ``i`` of a nest, that no target depends on."""
    path = path_in(structure, i) or ""
    return GradientError(
        "the target does not depend on a source",
        argument=f"{path}: {name_of(source)}" if "'" in path else name_of(source),
        received=f"source {summary(source)}",
        expected=reason,
        hint=next((hint for start, hint in _REMEDIES if reason.startswith(start)), _MEANT),
    )


def why(entries: list[Any], left: list[Any], target: Any, source: Any, keys: set[int]) -> str:
    """How a target depends on the values with these keys, or where the path breaks."""
    key = getattr(target, "_key", None)
    if type(getattr(target, "_kind", None)) is SymbolicKind:
        return (
            "the target is a symbolic value of a model, and a tape records what is "
            "computed: call the model on tensors under the tape"
        )
    if not keys:
        return unwatched(entries, source)
    reached, blocked = _forward(entries, keys)
    gone = _left_by(left, reached)
    if key is None or not any(key in _outs(entry) for entry in entries):
        if key in keys:
            return "the target is the source itself"
        return "\n    ".join(gone or [NOT_RECORDED])
    if key in reached:
        steps = [f"{e[OP].name} ({place(e)})" for e in _path(entries, keys, key)]
        return "the target depends on the source through " + " -> ".join(steps)
    behind = _backward(entries, key)
    breaks = [f"the path breaks at {_reason(e)}" for e in blocked if set(_outs(e)) & behind]
    return "\n    ".join(
        breaks + gone or ["the target was computed from other values; the source was not used"]
    )


def _forward(entries: Iterable[Any], keys: set[int]) -> tuple[set[int], list[Any]]:
    """Keys that a gradient links to ``keys``, and the entries that break a link."""
    reached, blocked = set(keys), []
    for entry in entries:
        if not reached.isdisjoint(entry[FIRST_KEY::2]):
            if entry[OP].differentiable:
                reached.update(_outs(entry))
            else:
                blocked.append(entry)
    return reached, blocked


def _backward(entries: list[Any], key: int) -> set[int]:
    behind = {key}
    for entry in reversed(entries):
        if behind & set(_outs(entry)):
            behind.update(k for k in entry[FIRST_KEY::2] if k is not None)
    return behind


def _path(entries: list[Any], keys: set[int], key: int) -> list[Any]:
    on_path = _backward(entries, key)
    reached, path = set(keys), []
    for entry in entries:
        if on_path & set(_outs(entry)) and not reached.isdisjoint(entry[FIRST_KEY::2]):
            reached.update(_outs(entry))
            path.append(entry)
    return path


class MemoryReport:
    """Bytes that a tape keeps alive, by source line; prints as a table.

    ``total`` is the number of bytes, ``lines`` a list of (place, op, bytes), largest first.
    """

    def __init__(self, entries: Iterable[Any]) -> None:
        seen: set[int] = set()
        by_line: dict[tuple[str, str], int] = {}
        for entry in entries:
            kept = [entry[RESULT], *entry[FIRST_VALUE::2], *getattr(entry[OP].vjp, "kept", ())]
            for value in kept:
                for tensor in value if isinstance(value, tuple) else (value,):
                    if isinstance(tensor, Tensor) and id(tensor._array) not in seen:
                        seen.add(id(tensor._array))
                        line = (place(entry), entry[OP].name)
                        by_line[line] = by_line.get(line, 0) + tensor.nbytes
        ordered = sorted(by_line.items(), key=lambda item: -item[1])
        self.lines = [(where, op, size) for (where, op), size in ordered]
        self.total = sum(size for _, _, size in self.lines)

    def __str__(self) -> str:
        rows = [printable(f"{size:>14,}  {op:<20} {where}") for where, op, size in self.lines]
        return "\n".join([f"{self.total:>14,}  bytes kept by the tape", *rows])

    __repr__ = __str__
