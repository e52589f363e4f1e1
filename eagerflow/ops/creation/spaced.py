"""Numbers evenly spaced on a logarithmic scale."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dtypes import as_dtype, default_dtype
from eagerflow.errors import ArgumentError
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import linspace
from eagerflow.ops.elementwise.arithmetic import multiply, sign
from eagerflow.ops.elementwise.exponential import exp, log
from eagerflow.ops.elementwise.powers import power
from eagerflow.ops.operands import floating
from eagerflow.ops.plain import plain
from eagerflow.tensor import Operators, Tensor

__all__ = ["geomspace", "logspace"]


@plain
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Powers of ``base`` whose exponents are evenly spaced from ``start`` to ``stop``.

    ``start`` and ``stop`` are numbers or tensors without axes, ``num`` is their number;
    ``endpoint`` is whether ``stop`` is the last exponent. Raises the errors of ``ef.linspace``.

    >>> ef.logspace(0, 2, 3)
    Tensor([  1.,  10., 100.], float32, cpu:0)
    """
    made = None if dtype is None else as_dtype(dtype)
    ends = [x if isinstance(x, Operators) else None for x in (start, stop)]
    wide = "float64" if ends == [None, None] and not isinstance(base, Operators) else None
    exponents = linspace(start, stop, num, wide, device, endpoint)
    found = power(as_tensor(base, exponents.dtype, exponents.device), exponents)
    return astype(found, made or (default_dtype(float) if wide else found.dtype))


@plain
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Numbers from ``start`` to ``stop`` with a constant ratio (a geometric sequence).

    ``start`` and ``stop`` are real numbers of one sign, or tensors without axes; ``num`` is their
    number; ``endpoint`` is whether ``stop`` is the last. Raises ArgumentError for 0 and for
    different signs, and the errors of ``ef.linspace``.

    >>> ef.geomspace(1, 8, 4)
    Tensor([1., 2., 4., 8.], float32, cpu:0)
    """
    plain = not isinstance(start, Operators) and not isinstance(stop, Operators)
    if plain and (isinstance(start, complex) or isinstance(stop, complex) or not start * stop > 0):
        raise ArgumentError(
            f"{start!r} and {stop!r} have no numbers of one sign between them",
            op="geomspace",
            argument="start",
            expected="real numbers of one sign, not 0",
        )
    if plain:
        low, high, turn = math.log(abs(start)), math.log(abs(stop)), 1 if start > 0 else -1
        found = multiply(exp(linspace(low, high, num, "float64", device, endpoint)), turn)
        return astype(found, default_dtype(float) if dtype is None else as_dtype(dtype))
    first, last = (floating(as_tensor(x)) for x in (start, stop))
    turn = sign(first)
    low, high = log(multiply(first, turn)), log(multiply(last, turn))
    found = multiply(exp(linspace(low, high, num, None, device, endpoint)), turn)
    return found if dtype is None else astype(found, as_dtype(dtype))
