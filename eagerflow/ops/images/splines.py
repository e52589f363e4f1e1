"""Cubic splines through the points of a grid: the coefficients of the B-splines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.dtypes import promote
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.nn.convolution import conv
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import moveaxis, reshape

__all__ = ["spline_coefficients"]

_POLE = math.sqrt(3) - 2
_REACH = 28
"""Elements after which the filter has decayed to the last bit of float64."""
_MARGIN = 12
"""Points that SciPy adds if the grid is extended by its edge or a constant."""
_ENDS = {"reflect": "symmetric", "grid-wrap": "wrap"}


def _filtered(x: Any, axis: int, mode: str) -> Any:
    """``x`` filtered along an axis by the inverse of the B-spline's samples (Unser, 1993)."""
    last = moveaxis(x, axis, -1)
    rows = reshape(last, (product(last.shape[:-1]), last.shape[-1], 1))
    rows = pad(rows, ((0, 0), (_REACH, _REACH), (0, 0)), mode)
    response = math.sqrt(3) * _POLE ** np.abs(np.arange(-_REACH, _REACH + 1))
    kernel = as_tensor(response.reshape((-1, 1, 1)), x.dtype, x.device)
    found = conv(rows, kernel, padding="valid")
    return moveaxis(reshape(found, last.shape), -1, axis)


def spline_coefficients(
    x: Any, places: Sequence[Any], mode: str, cval: float
) -> tuple[Any, list[Any]]:
    """Coefficients for ``x`` (batch, *points, channels), and the positions among them.

    As in SciPy, the grid is mirrored unless its extension has another form.
    """
    rank = x.ndim - 2
    x, places = astype(x, promote(x.dtype, np.dtype("float32"))), list(places)
    if mode in ("nearest", "grid-constant"):
        more = {"mode": "edge"} if mode == "nearest" else {"constant_values": cval}
        x = pad(x, ((0, 0), *((_MARGIN, _MARGIN),) * rank, (0, 0)), **more)
        places = [at + _MARGIN for at in places]
    for axis in range(1, rank + 1):
        x = _filtered(x, axis, _ENDS.get(mode, "reflect"))
    return x, places
