"""The body of softmax, which the gradients of cross-entropies reuse."""

from __future__ import annotations

from typing import Any


def softmax_body(s: Any, logits: Any) -> Any:
    """Softmax of rows "n", in scalar instructions."""
    powers = s.exp(s.subtract(logits, s.max(logits, "n")))
    return s.multiply(powers, s.reciprocal(s.sum(powers, "n")))
