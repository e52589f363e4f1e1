"""Labels read by kernels: they must be valid class numbers."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from eagerflow.errors import IndexRangeError

UNSIGNED = {np.dtype(f"int{n}"): np.dtype(f"uint{n}") for n in (8, 16, 32, 64)}


def has_others(labels: Any, classes: int) -> bool:
    """Whether some labels, of any array library, are invalid class numbers.

    On a device, this waits once for the largest one: as unsigned numbers, negative ones are
    larger than any other.
    """
    unsigned = UNSIGNED.get(labels.dtype)
    if not labels.size:
        return False
    if unsigned is None:
        return bool(labels.min() < 0 or labels.max() >= classes)
    return bool(labels.view(unsigned).max() >= classes)


def refuse_labels(labels: Any, classes: int) -> NoReturn:
    """Raise IndexRangeError for labels with invalid class numbers."""
    worst = int(labels.min() if labels.min() < 0 else labels.max())
    raise IndexRangeError(
        f"class {worst} is out of range",
        argument="labels",
        expected=f"integers from 0 to {classes - 1}",
    )
