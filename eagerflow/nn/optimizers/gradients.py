"""Gradients as optimizers take them: with their Variables, and within limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import GradientError, ShapeError
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Pair", "clipped", "pairs_of"]

Pair = tuple[Any, Variable]
"""A gradient, a Tensor, and its Variable."""


def pairs_of(
    name: str, grads: Sequence[Tensor | None], variables: Sequence[Variable]
) -> list[Pair]:
    """The gradients that are not None, with their Variables.

    Raises GradientError for lists of different lengths and for what is no Variable, ShapeError
    for gradients of other shapes.
    """
    if len(grads) != len(variables):
        raise GradientError(
            f"{len(grads)} gradients for {len(variables)} variables",
            op=name,
            argument="grads",
            expected="one gradient, or None, for each variable",
        )
    found: list[Pair] = []
    for gradient, variable in zip(grads, variables, strict=True):
        if (  # the usual case
            type(gradient) is Tensor
            and type(variable) is Variable
            and gradient._array.shape == variable.shape
        ):
            found.append((gradient, variable))
            continue
        if not isinstance(variable, Variable):
            raise GradientError(
                "only Variables can be changed",
                op=name,
                argument="variables",
                received=summary(variable),
                expected="Variables",
            )
        if gradient is None:
            continue
        if tuple(gradient.shape) != variable.shape:
            raise ShapeError(
                "the gradient has another shape than its variable",
                op=name,
                argument=variable.name,
                received=summary(gradient),
                expected=summary(variable),
            )
        found.append((as_tensor(gradient), variable))
    if variables and not found:
        raise GradientError(
            "no variable has a gradient",
            op=name,
            argument="grads",
            received=f"None for each of {len(variables)} variables",
            hint="tape.why(loss, variable) tells where the path breaks",
        )
    return found


def clipped(
    pairs: list[Pair],
    value: float | None = None,
    norm: float | None = None,
    global_norm: float | None = None,
) -> list[Pair]:
    """Gradients whose elements, norms, or norm of all together are bounded."""
    if value is not None:
        return [(ops.clip(g, -value, value), v) for g, v in pairs]
    if norm is not None:
        return [(g * _factor((g * g).sum(), norm), v) for g, v in pairs]
    if global_norm is not None and pairs:
        factor = _factor(reduce(ops.add, [(g * g).sum() for g, _ in pairs]), global_norm)
        return [(g * factor, v) for g, v in pairs]
    return pairs


def _factor(square: Any, limit: float) -> Any:
    """What a gradient with this sum of squares is multiplied by to keep its norm below a limit."""
    return limit / ops.maximum(ops.sqrt(square), limit)
