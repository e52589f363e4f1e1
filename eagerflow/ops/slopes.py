"""Gradients of element-wise functions as ops: the derivative times what comes from above.

    @slope(into=_derivative_into, body=_derivative_body, second=lambda x: ..., ...)
    def silu_gradient(xp, x, g, /):
        \"\"\"The gradient of silu: ...\"\"\"

One pass over memory computes what the derivative and a product would need two for. A gradient
of 0 stays 0, also where the derivative is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS
from eagerflow.kernels import generated
from eagerflow.kernels.tiling import tiled
from eagerflow.op import Missing, Sample
from eagerflow.ops.family import elementwise
from eagerflow.ops.precision import in_float32
from eagerflow.ops.samples import each, pairs

__all__ = ["pulls", "slope"]

Call = Callable[..., Any]


def slope(
    *,
    into: Call,
    body: generated.Body,
    second: Call,
    number: Callable[..., float],
    low: float,
    high: float,
    step: bool = False,
    attributes: Iterable[dict[str, Any]] = ({},),
    **facts: Any,
) -> Callable[[Call], Call]:
    """An op ``(xp, x, g, /, **attributes)``: g times the derivative of a function of x.

    ``into(x, out)`` and ``body(s, x)`` compute the derivative, on NumPy and in scalar
    instructions, ``number(x)`` on a Python number; of a ``step`` they say where it is 1 and not 0.
    ``second(x)`` is the derivative of that, of Tensors. Samples of x are between ``low`` and
    ``high``. All of them take the op's attributes.
    """

    def pulled(s: Any, x: Any, g: Any, **more: Any) -> Any:
        factor = body(s, x, **more)
        if step:
            return s.select(factor, g, 0)
        return s.select(s.equal(g, 0), g, s.multiply(g, factor))

    def on_numpy(xp: Any, x: Any, g: Any, **more: Any) -> Any:
        if type(x) is not np.ndarray or type(g) is not np.ndarray:  # one may be a Python number
            x, g = (
                np.asarray(x, getattr(g, "dtype", None)),
                np.asarray(g, getattr(x, "dtype", None)),
            )
        if x.shape == g.shape and generated.takes(x):
            return generated.elementwise(pulled, x, g, **more)
        factor = tiled(into, x, **more)
        return np.where(factor, g, g.dtype.type(0)) if step else np.where(g, factor * g, g)

    def samples(rng: Any, dtype: Any) -> list[Sample]:
        found = [
            Sample(sample.args, dict(more))
            for more in attributes
            for sample in pairs(low, high, -2, 2)(rng, dtype)
        ]
        return found

    def decorate(kernel: Call) -> Call:
        pulled.__name__ = kernel.__name__
        own: dict[str, Any] = {
            "saves": f"{kernel.__code__.co_varnames[1]} g",
            "dtypes": FLOATS,
            "scalar": pulled,
            "overrides": {"numpy": on_numpy},
            "samples": samples,
            "reference": each(lambda x, g, **more: g * number(x, **more)),
            "ulp": 8,
            "onnx": Missing("exported as the ops that it consists of"),
        } | facts
        call: Any = elementwise(
            partials=(
                in_float32(lambda _, x, g, **more: second(x, **more) * g),
                lambda _, x, g, **more: call(x, 1.0, **more),
            ),
            **own,
        )(kernel)
        return call

    return decorate


def pulls(gradient: Callable[[], Call], of: str = "x") -> dict[str, Any]:
    """The facts of an element-wise op whose gradient is such an op, ``of`` its argument or "y".

    They go with ``partials=Missing("see vjp")``.
    """
    if of == "y":
        pull = lambda g, y, x, **more: gradient()(y, g, **more)
    else:
        pull = lambda g, y, x, **more: gradient()(x, g, **more)
    # The matrix of derivatives is diagonal, so tangents move forward as gradients do backward.
    return {
        "partials": Missing("see vjp"),
        "vjp": (pull,),
        "jvp": lambda tangents, y, x, **more: pull(tangents[0], y, x, **more),
        "saves": of,
    }
