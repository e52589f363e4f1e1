"""Gradients as optimizers take them: with their Variables, and within limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import GradientError, ShapeError
from eagerflow.global_norms import factor, squares, times
from eagerflow.ops.indexing.slices import IndexedSlices
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Gradient", "Pair", "clipped", "pairs_of"]

Gradient = Tensor | IndexedSlices
_ORDER = "optimizer.apply(gradients, variables), two lists in the order of tape.gradient"
_PAIRS = "optimizer.apply_gradients(zip(gradients, variables)) for pairs"

Pair = tuple[Any, Variable]
"""A gradient, a Tensor or IndexedSlices, and its Variable."""


def pairs_of(
    name: str, grads: Sequence[Gradient | None], variables: Sequence[Variable]
) -> list[Pair]:
    """The gradients that are not None, with their Variables.

    Raises GradientError for lists of different lengths and for objects other than Variables,
    ShapeError for gradients of other shapes.
    """
    if len(grads) != len(variables):
        raise GradientError(
            f"{len(grads)} gradients for {len(variables)} variables",
            op=name,
            argument="grads",
            expected="one gradient, or None, for each variable",
            hint=_PAIRS if grads and isinstance(grads[0], tuple) else _ORDER,
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
                hint=_ORDER,
            )
        if gradient is None:
            continue
        if not hasattr(gradient, "shape"):
            raise GradientError(
                f"a {type(gradient).__name__} is no gradient",
                op=name,
                argument="grads",
                received=summary(gradient),
                expected="tensors, or None",
                hint=_PAIRS if isinstance(gradient, tuple) else _ORDER,
            )
        if tuple(gradient.shape) != variable.shape:
            raise ShapeError(
                "the gradient and its variable differ in shape",
                op=name,
                argument=variable.name,
                received=summary(gradient),
                expected=summary(variable),
            )
        sparse = type(gradient) is IndexedSlices
        found.append((gradient if sparse else as_tensor(gradient), variable))
    if variables and not found:
        raise GradientError(
            "no variable has a gradient",
            op=name,
            argument="grads",
            received=f"None for each of {len(variables)} variables",
            hint="tape.why(loss, variable) shows where the path breaks",
        )
    return found


def clipped(
    pairs: list[Pair],
    value: float | None = None,
    norm: float | None = None,
    global_norm: float | None = None,
) -> list[Pair]:
    """Gradients clipped by elements, by norms, or by their global norm."""
    if value is not None:
        return [(_each(lambda x: ops.clip(x, -value, value), g), v) for g, v in pairs]
    if norm is not None:
        return [(times(g, factor(ops.sqrt(squares(g)), norm)), v) for g, v in pairs]
    if global_norm is not None and pairs:
        whole = ops.sqrt(reduce(ops.add, [squares(g) for g, _ in pairs]))
        scale = factor(whole, global_norm)
        return [(times(g, scale), v) for g, v in pairs]
    return pairs


def _each(function: Callable[[Any], Any], gradient: Any) -> Any:
    """A function of 0 at 0 of each element."""
    if type(gradient) is not IndexedSlices:
        return function(gradient)
    each_once = gradient.summed()
    return each_once.with_values(function(each_once.values))
