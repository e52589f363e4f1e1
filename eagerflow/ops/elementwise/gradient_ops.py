"""Gradients of elementwise functions as ops: the derivative times the result's gradient.

    @gradient_op(second_derivative=lambda x: ...)
    def silu_gradient(x, g, /):
        \"\"\"The gradient of silu: ...\"\"\"
        return chain_rule(g, derivative)

One pass over memory replaces two for the derivative and the product. A gradient of 0 stays 0, also
where the derivative is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.op import Missing
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import pointwise

__all__ = ["GradientOp", "chain_rule", "differentiated_by", "gradient_op"]

Call = Callable[..., Any]


def chain_rule(g: Any, derivative: Any) -> Any:
    """``g`` times a derivative; 0 stays 0."""
    return where(equal(g, 0), g, multiply(g, derivative))


def gradient_op(*, second_derivative: Call, **facts: Any) -> Callable[[Call], Call]:
    """An op ``(x, g, /, **attributes)``: g times the derivative of a function of x.

    ``second_derivative(x)`` is that of a Tensor; it takes the op's attributes.
    """

    def decorate(formula: Call) -> Call:
        own: dict[str, Any] = {
            "saves": f"{formula.__code__.co_varnames[0]} g",
            "ulp": 8,
            "direct": None,
        } | facts
        call: Any = pointwise(
            partials=(
                in_float32(lambda _, x, g, **more: second_derivative(x, **more) * g),
                lambda _, x, g, **more: call(x, 1.0, **more),
            ),
            **own,
        )(formula)
        return call

    return decorate


class GradientOp:
    """The rule ``vjp`` of an elementwise op with an op for its gradient."""

    __slots__ = ("gradient", "of")

    def __init__(self, gradient: Callable[[], Call], of: str) -> None:
        """``gradient()`` is that op, possibly defined later; it takes the argument or "y"."""
        self.gradient, self.of = gradient, of

    def along(self, tangents: Any, y: Any, x: Any, **attributes: Any) -> Any:
        """The rule ``jvp``: derivatives without conjugation.

        Of an element-wise op they are a diagonal matrix, so tangents move forward as gradients do
        backward.
        """
        return self.gradient()(y if self.of == "y" else x, tangents[0], **attributes)


def differentiated_by(gradient: Callable[[], Call], of: str = "x") -> dict[str, Any]:
    """The facts of an elementwise op with such a gradient op, ``of`` its argument or "y".

    They go with ``partials=Missing("see vjp")``.
    """
    rule = GradientOp(gradient, of)
    return {
        "partials": Missing("see vjp"),
        "vjp": (rule,),
        "jvp": rule.along,
        "saves": of,
    }
