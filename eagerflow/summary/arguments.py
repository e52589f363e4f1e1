"""The arguments of a Writer's methods: checked, and converted to tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, FLOATS, INTEGERS, REAL, DType
from eagerflow.errors import DTypeError, EagerflowError, ShapeError
from eagerflow.nn.arguments import is_count, require
from eagerflow.tensor import Tensor

MOST_STEPS = 1 << 62
BYTES = np.dtype("uint8")


def tensor(
    value: Any, op: str, argument: str = "value", dtypes: frozenset[DType] = REAL | BOOL
) -> Tensor:
    """A Tensor of ``value``; DTypeError for other dtypes."""
    try:
        found = as_tensor(value)
    except EagerflowError as error:
        error.op, error.argument = op, argument
        raise
    if found.dtype not in dtypes:
        raise DTypeError(
            f"{found.dtype.name} cannot be shown",
            op=op,
            argument=argument,
            received=summary(found),
            expected="one of " + ", ".join(sorted(t.name for t in dtypes)),
        )
    return found


def pixels(value: Any, op: str, argument: str = "value") -> Tensor:
    """A Tensor of pictures, each channel uint8 or a float from 0 to 1."""
    return tensor(value, op, argument, FLOATS | {BYTES})


def require_shape(ok: bool, value: Any, op: str, argument: str, expected: str) -> None:
    """Raise ShapeError unless ``ok``."""
    if not ok:
        raise ShapeError(
            "the shape does not fit",
            op=op,
            argument=argument,
            received=summary(value),
            expected=expected,
        )


def name(value: Any, op: str) -> None:
    """Raise ArgumentError unless a name is a nonempty text."""
    require(isinstance(value, str) and value != "", value, "not a name", op, "name", "a text")


def count(value: Any, op: str, argument: str, least: int = 1) -> int:
    """``value`` as an integer; ArgumentError unless it is one of at least ``least``."""
    expected = f"an integer of at least {least}"
    require(is_count(value, least), value, "not a count", op, argument, expected)
    return int(value)


def step(value: Any, op: str) -> int:
    """The number of a step; ArgumentError for other values."""
    expected = "an integer from 0 on, or an integer Tensor or Variable without axes"
    require(is_count(value, 0) and value < MOST_STEPS, value, "not a step", op, "step", expected)
    return int(value)


def step_tensor(value: Any, op: str) -> Tensor:
    """A step that is a Tensor, a Variable or an argument of a captured function."""
    found = tensor(value, op, "step", INTEGERS)
    require_shape(found.shape == (), found, op, "step", "no axes")
    return found


def columns(labels: Any, points: int, op: str) -> Mapping[str, Sequence[Any]] | None:
    """Columns by title, each with a text for every point."""
    if labels is None:
        return None
    found = labels if isinstance(labels, Mapping) else {"label": labels}
    for title, column in found.items():
        if isinstance(column, str) or len(column) != points:
            raise ShapeError(
                f"the column {title!r} has {len(column)} labels",
                op=op,
                argument="labels",
                expected=f"{points}, one for each point",
            )
    return found
