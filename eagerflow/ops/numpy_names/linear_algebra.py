"""Linear algebra with NumPy's arguments."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.dtypes import as_dtype
from eagerflow.errors import KeywordError, ShapeError
from eagerflow.ops import linalg
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import add
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.family import as_operands
from eagerflow.ops.linear_algebra.einstein import einsum
from eagerflow.ops.shapes.diagonals import tril, triu
from eagerflow.ops.shapes.reshaping import moveaxis, reshape
from eagerflow.spec import normalize_axis

__all__ = ["FUNCTIONS"]


def _whole(a: Any, triangle: str) -> Any:
    """The symmetric (Hermitian) matrices given by one triangle."""
    if triangle not in ("L", "U", "l", "u"):
        raise KeywordError(
            f"{triangle!r} is not a triangle", op="eigh", argument="UPLO", expected="'L' or 'U'"
        )
    a = as_tensor(a)
    part, rest = (tril(a), tril(a, -1)) if triangle in "Ll" else (triu(a), triu(a, 1))
    return add(part, conj(rest).mT)


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return linalg.svd(a, full_matrices=full_matrices) if compute_uv else linalg.svdvals(a)


def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    a, b = as_operands(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    found = linalg.cross(moveaxis(a, axisa, -1), moveaxis(b, axisb, -1))
    return moveaxis(found, -1, axisc)


def _einsum(*operands: Any, optimize: Any = False, dtype: Any = None) -> Any:
    """Subscripts first, or, as in NumPy, integers for the axes after each operand."""
    if not isinstance(operands[0], str):
        tensors, rest = operands[0 : len(operands) - 1 : 2], operands[1::2]
        given = [*rest, operands[-1]] if len(operands) % 2 else [*rest]
        words = ["".join(_letter(i) for i in axes) for axes in given]
        result = f"->{words.pop()}" if len(operands) % 2 else ""
        operands = (",".join(words) + result, *tensors)
    found = einsum(*operands)
    return found if dtype is None else astype(found, as_dtype(dtype))


def _letter(axis: Any) -> str:
    return "..." if axis is Ellipsis else string.ascii_letters[axis]


def _tensorinv(a: Any, ind: int = 2) -> Any:
    a = as_tensor(a)
    if not isinstance(ind, int) or not 0 < ind < a.ndim:
        raise ShapeError(f"{ind!r} axes are not some of {a.ndim}", op="tensorinv", argument="ind")
    first, rest = a.shape[:ind], a.shape[ind:]
    inverse = linalg.inv(reshape(a, (product(first), product(rest))))
    return reshape(inverse, (*rest, *first))


def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = as_operands(a, b)
    for axis in axes or ():
        a = moveaxis(a, normalize_axis(axis, a.ndim), a.ndim - 1)
    found = a.shape[b.ndim :] if a.ndim > b.ndim else ()
    matrix = reshape(a, (b.size, product(found)))
    return reshape(linalg.solve(matrix, reshape(b, (-1,))), found)


def _qr(a: Any, mode: str = "reduced") -> Any:
    return linalg.qr(a)[1] if mode == "r" else linalg.qr(a, mode=mode)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cross": _cross,
    "einsum": _einsum,
    "linalg.eigh": lambda a, UPLO="L": linalg.eigh(_whole(a, UPLO)),
    "linalg.eigvalsh": lambda a, UPLO="L": linalg.eigvalsh(_whole(a, UPLO)),
    "linalg.qr": _qr,
    "linalg.svd": _svd,
    "linalg.tensorinv": _tensorinv,
    "linalg.tensorsolve": _tensorsolve,
}
