"""Constants in memory that other code may write: passes must not rely on their values."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

from eagerflow.backends.numpy import is_shared, owner_of, unshared
from eagerflow.devices import as_device
from eagerflow.tensor import Tensor, new_tensor


def is_lent(tensor: Tensor) -> bool:
    """Whether other code still refers to the array that a tensor shares its memory with.

    Arrays passed through ``ef.asarray`` that only the tensor holds do not count.

    >>> array = np.ones(3)
    >>> is_lent(ef.asarray(array)), is_lent(ef.asarray(np.ones(3))), is_lent(ef.tensor(array))
    (True, False, False)
    """
    if not is_shared(tensor._array):
        return False
    foreign = owner_of(tensor._array).base is not None  # another library's memory, or a buffer
    return foreign or _holders(tensor) > (_WHOLE if tensor._array.base is None else _VIEW)


def owned(tensor: Tensor) -> Tensor:
    """A tensor of the same values and layout, with memory of its own."""
    array = unshared(tensor._array)
    return tensor if array is tensor._array else new_tensor(array, tensor._kind)


def _holders(tensor: Tensor) -> int:
    """References to the array of a tensor and to the owner of its memory."""
    array: Any = tensor._array
    return getrefcount(array) + getrefcount(array if array.base is None else array.base)


def _alone(array: Any) -> int:
    kind = as_device("cpu:0").kind(array.dtype)
    made = [new_tensor(array, kind)]
    del array
    return _holders(made[0])


_WHOLE = _alone(np.empty(1))
_VIEW = _alone(np.empty(2)[1:])
