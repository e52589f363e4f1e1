"""Operators on sizes: computations on the shapes of inputs stay symbolic."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from eagerflow.errors import CaptureError
from eagerflow.handlers import raised_here
from eagerflow.onnx.reading.calls import SizeVector, as_sizes, is_known, known
from eagerflow.onnx.reading.folding import as_plain

MAX_SIZES = 64
"""The largest number of elements combined with named dimensions."""


def with_sizes(rule: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorator of an operator's function that also takes SizeVectors.

    ``rule`` gets NumPy arrays of ints and Dims in place of the inputs and returns such an array, or
    an array of booleans. Operations that Dims do not support, such as undecidable comparisons, are
    left to the graph.
    """

    def decorate(function: Any) -> Any:
        @wraps(function)
        def found(call: Any, *given: Any, **attributes: Any) -> Any:
            flat = [x for part in given for x in (part if isinstance(part, list) else [part])]
            if not any(isinstance(x, SizeVector) for x in flat):
                return function(call, *given, **attributes)
            if all(_is_small(x) for x in flat):
                try:
                    result = rule(*[_objects(x) for x in given], **attributes)
                    is_answer = getattr(result, "dtype", None) == np.dtype(bool)
                    return result if is_answer else as_sizes(result)
                except raised_here(CaptureError):
                    pass
            return function(call, *[as_plain(x) for x in given], **attributes)

        return found

    return decorate


def _is_small(x: Any) -> bool:
    if x is None or isinstance(x, SizeVector) or not hasattr(x, "dtype"):
        return True
    return is_known(x) and x.dtype.kind in "iub" and x.size <= MAX_SIZES


def _objects(x: Any) -> Any:
    """A NumPy array of ints and Dims; values that are not tensors are returned unchanged."""
    if isinstance(x, list):
        return [_objects(part) for part in x]
    if isinstance(x, SizeVector):
        return x.sizes
    if not hasattr(x, "dtype"):
        return x
    values = known(x)
    return values if values.dtype == bool else values.astype(object)


def answers(test: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """The rule of a comparison, from a function of two sizes."""
    each = np.vectorize(test, otypes=[bool])
    return lambda a, b, **_: np.asarray(each(a, b))
