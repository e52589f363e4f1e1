"""map: a function of each row of tensors, one after the other."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.control.nests import callable_of
from eagerflow.capture.control.scans import over


def map(f: Any, xs: Any) -> Any:
    """``f`` of each row of tensors, with the results along a first axis.

    ``xs`` is a tensor or a nest of them, iterated along their first axes; ``f`` returns a tensor
    or a nest. The rows are computed one after the other, with the memory of one; ``ef.vmap``
    computes them together. All else is as for ``scan``, with its errors.

    >>> ef.map(lambda x: x * x, ef.tensor([1.0, 2.0, 3.0]))
    Tensor([1., 4., 9.], float32, cpu:0)
    """
    callable_of(f, "map", "f", "x", 1)
    return over("map", lambda carry, x: ((), f(x)), f, (), xs, None, False)[1]
