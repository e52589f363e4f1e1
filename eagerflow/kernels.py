"""Inspection of generated kernels: the regions that a call runs, and their code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.codegen import generated
from eagerflow.errors import ArgumentError

__all__ = ["Listing", "show"]


def __dir__() -> list[str]:
    return sorted(__all__)


CODES = ("region", "llvm", "assembly", "cuda")


class Listing(str):
    """Text that a prompt shows without quotes.

    >>> ef.kernels.Listing("region silu[n]")
    region silu[n]
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show(
    function: Callable[..., Any], *args: Any, code: str = "region", **attributes: Any
) -> Listing:
    """The generated kernels that ``function(*args, **attributes)`` runs, as readable text.

    ``code`` is "region" (the computation), "llvm" (its intermediate code),
    "assembly" (the code of this machine) or "cuda" (the code for an NVIDIA GPU). The function is
    called, with arrays of any size; each different kernel is shown once. Raises ArgumentError
    for another ``code``, and if no part of the call is a generated kernel; MissingExtraError
    if llvmlite is needed and not installed.

    >>> ef.kernels.show(ef.log_softmax, ef.tensor([[1.0, 2.0]]))
    region log_softmax[m, n]
      in x0: float32[m, n]
      %1: float32[m] = max %x0 over n
      %2: float32[m, n] = subtract %x0, %1
      %3: float32[m, n] = exp %2
      %4: float32[m] = sum %3 over n
      %5: float32[m] = log %4
      %6: float32[m, n] = subtract %2, %5
      out y0: float32[m, n] = %6
    """
    if code not in CODES:
        raise ArgumentError(f"code={code!r}", op="kernels.show", expected=f"one of {CODES}")
    with generated.watching() as watch:
        function(*args, **attributes)
    if not watch.calls:
        raise ArgumentError(
            "the call runs no generated kernel",
            op="kernels.show",
            expected="an op such as ef.softmax, on arrays of the CPU in float32 or float64",
        )
    return Listing(
        "\n\n".join(dict.fromkeys(generated.text_of(call, code) for call in watch.calls))
    )
