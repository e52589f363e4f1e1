"""Formulas of functions that array libraries have, but ONNX or ONNX Runtime lacks.

They are written in scalar instructions, as the formulas of ops are, and close to those of
generated code (``codegen/functions``), but for steps on the bits of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eagerflow.codegen.functions import inverse_trigonometric

LARGE = 2.0**28
"""From here on x² + 1 rounds to x², also in float64."""


def _tan(s: Any, x: Any) -> Any:
    return s.divide(s.sin(x), s.cos(x))


def _cosh(s: Any, x: Any) -> Any:
    """Computed from exp(x / 2), which overflows only if the result does."""
    root = s.exp(s.multiply(s.abs(x), 0.5))
    return s.add(s.multiply(s.multiply(root, 0.5), root), s.divide(0.5, s.multiply(root, root)))


def _sinh(s: Any, x: Any) -> Any:
    return s.multiply(s.tanh(x), _cosh(s, x))


def _asinh(s: Any, x: Any) -> Any:
    size = s.abs(x)
    large = s.greater(size, LARGE)
    near = s.select(large, 0, size)
    square = s.multiply(near, near)
    rest = s.divide(square, s.add(s.sqrt(s.add(square, 1)), 1))
    found = s.select(large, _log_of_double(s, size), s.log1p(s.add(near, rest)))
    return s.copysign(found, x)


def _acosh(s: Any, x: Any) -> Any:
    large = s.greater(x, LARGE)
    t = s.select(large, 0, s.subtract(x, 1))
    near = s.log1p(s.add(t, s.sqrt(s.multiply(t, s.add(t, 2)))))
    found = s.select(large, _log_of_double(s, x), near)
    return s.select(s.less(x, 1), math.nan, found)


def _log_of_double(s: Any, x: Any) -> Any:
    return s.add(s.log(x), math.log(2))


def _atanh(s: Any, x: Any) -> Any:
    size = s.abs(x)
    found = s.log1p(s.divide(s.add(size, size), s.subtract(1, size)))
    return s.copysign(s.multiply(found, 0.5), x)


FORMULAS: dict[str, Callable[..., Any]] = {
    "acos": inverse_trigonometric.acos,
    "acosh": _acosh,
    "asin": inverse_trigonometric.asin,
    "asinh": _asinh,
    "atan": inverse_trigonometric.atan,
    "atan2": inverse_trigonometric.atan2,
    "atanh": _atanh,
    "cosh": _cosh,
    "sinh": _sinh,
    "tan": _tan,
}
"""Formulas by op, which is also the name of the scalar instruction."""
