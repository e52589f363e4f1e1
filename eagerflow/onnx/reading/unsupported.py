"""The error that lists all unsupported nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, printable

SHOWN = 40
BIND = "import_onnx(..., values={name: ...}) binds inputs"


class Problem(NamedTuple):
    """A node that cannot be imported, with the reason."""

    operator: str
    domain: str
    node: str
    reason: str

    def __str__(self) -> str:
        where = f" of {self.domain}" if self.domain else ""
        return printable(f"{self.operator}{where}, node {self.node}: {self.reason}")


def label_of(node: Any) -> str:
    """The name of a node, or its operator and first output if it has none."""
    return node.name or f"{node.op_type} -> {next(iter(node.output), '')}"


def refusal(problems: Iterable[Problem]) -> ArgumentError:
    """The error with all problems; its attribute ``problems`` lists them one by one."""
    listed = list(problems)
    lines = [str(problem) for problem in listed[:SHOWN]]
    if len(listed) > SHOWN:
        lines.append(f"and {len(listed) - SHOWN} more")
    count = "one part" if len(listed) == 1 else f"{len(listed)} parts"
    error = ArgumentError(
        f"{count} of the model cannot be imported",
        op="import_onnx",
        received="\n    ".join(lines),
        hint=BIND if any(p.operator in ("input", "output") for p in listed) else None,
    )
    error.problems = tuple(listed)  # type: ignore[attr-defined]
    return error
