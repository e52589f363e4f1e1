"""How tensors are printed."""

from __future__ import annotations

from eagerflow.display import options
from eagerflow.errors import ArgumentError, short_repr

__all__ = ["set_printoptions"]

_DEFAULTS = dict(options)


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    suppress: bool | None = None,
) -> None:
    """How tensors are printed from now on; what is None stays, and without arguments all is reset.

    ``precision`` digits after the point (4), above ``threshold`` elements (100) only ``edgeitems``
    at each end of an axis (3 to 1, by the number of axes), lines of ``linewidth`` characters;
    ``suppress`` prints small numbers without exponents. Raises ArgumentError for other values. As
    in NumPy and PyTorch.

    >>> ef.set_printoptions(precision=2)
    >>> ef.tensor([1.23456, 2.0])
    Tensor([1.23, 2.  ], float32, cpu:0)
    >>> ef.set_printoptions()
    """
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "max_line_width": linewidth,
    }
    new = {name: value for name, value in given.items() if value is not None}
    for name, value in new.items():
        if type(value) is not int or value < 0:
            raise ArgumentError(
                "a whole number is needed",
                op="set_printoptions",
                argument="linewidth" if name == "max_line_width" else name,
                received=short_repr(value),
                expected="an int from 0 on",
            )
    if suppress is not None:
        new["suppress_small"] = bool(suppress)
    if not new:
        options.clear()
    options.update(new or _DEFAULTS)
