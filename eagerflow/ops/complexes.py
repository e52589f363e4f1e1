"""Complex numbers: parts, conjugates and angles."""

from __future__ import annotations

from typing import Any

from eagerflow.op import Missing
from eagerflow.ops.family import elementwise
from eagerflow.ops.samples import each, reals

__all__ = ["conj"]


@elementwise(
    partials=Missing("not complex-differentiable: see vjp"),
    vjp=(lambda g, y, x: conj(g),),
    jvp="linear",
    onnx=Missing("ONNX has no complex numbers"),
    samples=reals(),
    reference=each(lambda x: x.conjugate()),
)
def conj(xp: Any, x: Any, /) -> Any:
    """Complex conjugate; a real number is its own.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> ef.conj(ef.tensor([1 + 2j]))
    Tensor([1.-2.j], complex64, cpu:0)
    """
    return xp.conj(x)
