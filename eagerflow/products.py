"""Products of gradients in which 0 wins over infinity and NaN, where derivatives can be these.

That product costs twice as much as a plain one, and is the same unless a NaN results. So on
small arrays the tape multiplies as usual, keeps the entries it has visited, and checks gradients
later: if there is a NaN, it returns to the checkpoint, and uses the careful product from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.backends.numpy import is_shared, quietly
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.family import op_of
from eagerflow.pulls import CAREFUL, PLAIN, WATCHED, product_of
from eagerflow.recorder import OP, OUT, recording
from eagerflow.tensor import Tensor, new_tensor

__all__ = ["Products", "of_many"]

MAX_TRUSTED_ELEMENTS = 1 << 10
MAX_TRUSTED_ENTRIES = 1 << 8  # entries with small arrays kept alive until the check


class Products:
    """The mode of a walk over ``entries``, which selects the rules for each, and its product.

    ``fit`` is called for each entry from the first one whose op may have an infinite derivative.
    ``state`` is the changing state of the walk besides the entries: gradients by key, and a list
    and a set that grow.
    """

    __slots__ = (
        "_back",
        "_done",
        "_entries",
        "_state",
        "_trusts",
        "_unwatched",
        "mode",
        "times",
    )

    def __init__(
        self, entries: list[Any], state: tuple[dict[int, Any], list[Any], set[int]], unwatched: bool
    ) -> None:
        self._entries, self._state = entries, state
        self._unwatched = self._trusts = unwatched  # a recorder would see discarded calls
        self._done: list[Any] = []  # since the checkpoint
        self._back: tuple[dict[int, Any], int, set[int]] | None = None
        self._take(PLAIN)

    def _take(self, mode: int) -> None:
        self.mode = mode if self._unwatched else mode | WATCHED
        self.times = product_of(mode)

    def fit(self, entry: Any, g: Any) -> bool:
        """Select the product for an entry, which was taken from the walk with its gradient.

        False if the walk has returned to the checkpoint instead, before this entry.
        """
        small = (
            self._trusts
            and g.__class__ is Tensor
            and g._array.__class__ is np.ndarray
            and g._array.size < MAX_TRUSTED_ELEMENTS
            and g._kind.dtype.char in "fd"
            and entry[OP].family != "custom"  # the user's code is called once
        )
        done = self._done
        done.append(entry)
        if small and self._back is not None and len(done) <= MAX_TRUSTED_ENTRIES:
            return True  # like the previous entry
        if not self.hold(g):
            return False
        done.clear()
        if small:
            grads, ends, lost = self._state
            self._back = {**grads, entry[OUT]: g}, len(ends), lost.copy()
            done.append(entry)
        self._take(PLAIN if small else CAREFUL)
        return True

    def hold(self, *taken: Any) -> bool:
        """Whether there is no NaN; otherwise the walk goes back, and uses the careful product.

        ``taken`` are the gradients taken out for the next entry.
        """
        if self._back is None:
            return True
        grads, ends, lost = self._state
        before, count, known = self._back
        self._back = None
        new = [g._array for key, g in grads.items() if before.get(key) is not g]
        for g in taken:
            new += [x._array for x in (g if g.__class__ is tuple else (g,)) if x is not None]
        if not any(quietly(has_nan, array) for array in new):
            self._done.clear()
            return True
        self._trusts = False
        self._entries += self._done[::-1]
        self._done.clear()
        grads.clear()
        grads.update(before)
        del ends[count:]
        lost.clear()
        lost |= known
        return False


def has_nan(array: Any) -> bool:
    """Whether there is a NaN, or possibly infinities of both signs."""
    if array.dtype.kind in "biu":
        return False
    if array.size < MAX_TRUSTED_ELEMENTS and array.dtype.char in "fd":
        flat = array.ravel()
        total = flat.dot(flat)
    else:
        total = np.add.reduce(array, None)
    return bool(total != total)


# Large arrays ------------------------------------------------------------------------------------


def of_many(product: Callable[..., Any]) -> Callable[..., Any]:
    """A function that multiplies large arrays like this product, without recorders."""
    return _shared if product is multiply and not recording() else product


def _shared(g: Any, p: Any) -> Any:
    many = op_of(multiply).many.get(g._kind)
    if many is None or type(p) is not Tensor or p._kind is not g._kind:
        return multiply(g, p)
    a, b = g._array, p._array
    if not any(a.strides) and a.item(0) == 1 and a.shape == b.shape and not is_shared(b):
        return new_tensor(b, g._kind)  # 1 times an immutable value, and not p, which has a key
    return new_tensor(quietly(many, a, b), g._kind)
