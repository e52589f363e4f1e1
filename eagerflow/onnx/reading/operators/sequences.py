"""Sequences as Python lists of known lengths, and optional values."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import Call, known_number, operator
from eagerflow.onnx.reading.element_types import dtype_of


def _place(call: Call, xs: list[Any], position: Any, last: int) -> int:
    """A position within a sequence, counted from the front."""
    at = int(known_number(position))
    found = at + len(xs) if at < 0 else at
    if not 0 <= found <= last:
        call.refuse(f"the position {at} in a sequence of {len(xs)}")
    return found


@operator("SequenceEmpty")
def sequence_empty(call: Call, dtype: int = 1) -> list[Any]:
    """An empty sequence."""
    dtype_of(dtype)
    return []


@operator("SequenceConstruct", takes_sizes=True)
def sequence_construct(call: Call, *xs: Any) -> list[Any]:
    """A sequence of tensors."""
    return list(xs)


@operator("SequenceAt", takes_sizes=True)
def sequence_at(call: Call, xs: list[Any], position: Any) -> Any:
    """The tensor at a position."""
    return xs[_place(call, xs, position, len(xs) - 1)]


@operator("SequenceInsert", takes_sizes=True)
def sequence_insert(call: Call, xs: list[Any], tensor: Any, position: Any = None) -> list[Any]:
    """A sequence with one more tensor, at the end by default."""
    at = len(xs) if position is None else _place(call, xs, position, len(xs))
    return [*xs[:at], tensor, *xs[at:]]


@operator("SequenceErase", takes_sizes=True)
def sequence_erase(call: Call, xs: list[Any], position: Any = None) -> list[Any]:
    """A sequence without one of its tensors, the last by default."""
    at = len(xs) - 1 if position is None else _place(call, xs, position, len(xs) - 1)
    return [*xs[:at], *xs[at + 1 :]]


@operator("SequenceLength", takes_sizes=True)
def sequence_length(call: Call, xs: list[Any]) -> Any:
    """The length of a sequence."""
    return as_tensor(len(xs), dtype="int64")


@operator("SequenceMap", takes_sizes=True)
def sequence_map(call: Call, xs: list[Any], *more: Any) -> tuple[Any, ...]:
    """A graph applied to each tensor of a sequence, possibly of several in parallel."""
    body = call.graph("body")
    rows = []
    for i, x in enumerate(xs):
        others = [part[i] if isinstance(part, list) else part for part in more]
        rows.append(body(x, *others))
    return tuple([row[i] for row in rows] for i in range(body.output_count))


@operator("Optional", takes_sizes=True)
def optional(call: Call, x: Any = None, type: Any = None) -> Any:
    """An optional value."""
    return x


@operator("OptionalHasElement", takes_sizes=True)
def optional_has_element(call: Call, x: Any = None) -> Any:
    """Whether an optional value is present."""
    return as_tensor(x is not None)


@operator("OptionalGetElement", takes_sizes=True)
def optional_get_element(call: Call, x: Any = None) -> Any:
    """The value of an optional, which has to be present."""
    if x is None:
        call.refuse("the value is missing")
    return x
