"""Labels that a kernel reads: they have to be numbers of classes."""

from __future__ import annotations

from typing import Any, NoReturn

from eagerflow.errors import IndexRangeError


def has_others(labels: Any, classes: int) -> bool:
    """Whether some labels, of any array library, are no numbers of classes."""
    return bool(labels.size) and bool(labels.min() < 0 or labels.max() >= classes)


def refuse_labels(labels: Any, classes: int) -> NoReturn:
    """Raise IndexRangeError for labels of which some are no numbers of classes."""
    worst = int(labels.min() if labels.min() < 0 else labels.max())
    raise IndexRangeError(
        f"class {worst} is out of range",
        argument="labels",
        expected=f"integers from 0 to {classes - 1}",
    )
