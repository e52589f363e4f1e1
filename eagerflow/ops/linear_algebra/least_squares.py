"""Systems of any shape, condition numbers, and products of several matrices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import divide, multiply, subtract
from eagerflow.ops.family import INEXACT, as_operands
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.linear_algebra.decompositions import svdvals
from eagerflow.ops.linear_algebra.matrices import matrix_rank
from eagerflow.ops.linear_algebra.systems import as_column, inv, matrices, pinv, solve
from eagerflow.ops.operands import wide
from eagerflow.ops.plain import plain
from eagerflow.ops.reductions.norms import matrix_norm
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["cond", "lstsq", "multi_dot", "tensorinv", "tensorsolve"]


class LstsqResult(NamedTuple):
    """The solution, squared residuals of each right side, rank and singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@composed(dtypes=INEXACT)
def lstsq(a: Any, b: Any, /, *, rcond: float | None = None) -> LstsqResult:
    """The least-squares solution ``x`` of ``a @ x = b`` with minimum norm.

    ``a`` is a tensor of floats or complex numbers, shape (..., m, n), of any rank; ``b`` has shape
    (m,) or (..., m, k). Singular values below ``rcond`` times the largest one count as 0; ``rcond``
    is ``max(m, n)`` times the precision of the dtype by default. The named tuple has the solution,
    shape (n,) or (..., n, k); the sums of squares of the residuals, one for each right side,
    for any rank; the rank; and the singular values. Gradients are those for a fixed rank.
    Raises ShapeError where the shapes do not fit.

    >>> a = ef.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> ef.linalg.lstsq(a, ef.tensor([1.0, 3.0, 5.0])).solution
    Tensor([1., 2.], float32, cpu:0)
    """
    if a.ndim < 2 or not b.ndim or b.shape[-2 if b.ndim > 1 else 0] != a.shape[-2]:
        raise ShapeError(
            "the right sides do not fit the matrices",
            argument="b",
            expected="shapes (..., m, n), and (m,) or (..., m, k)",
        )
    return LstsqResult(*wide(_least_squares, a, b, rcond=rcond))


def _least_squares(x: Any, y: Any, rcond: Any) -> tuple[Any, ...]:
    right = as_column(y) if y.ndim == 1 else y
    found = matmul(pinv(x, rtol=rcond), right)
    off = magnitude(subtract(matmul(x, found), right))
    left = total(multiply(off, off), axis=-2)
    if y.ndim == 1:
        found, left = found[..., 0], left[..., 0]
    return found, left, matrix_rank(x, rtol=rcond), svdvals(x)


_KINDS = (type(None), str, int, float)
_NORMS: Any = (None, 2, -2, 1, -1, "fro", "nuc", math.inf, -math.inf)


@composed(dtypes=INEXACT)
def cond(x: Any, /, p: Any = None) -> Tensor:
    """The condition number of matrices: the norm times that of the inverse.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n), of square matrices unless
    ``p`` is None, 2 or -2: then it is the largest singular value over the smallest, or the other
    way round. ``p`` may also be 1, -1, inf, -inf, "fro" or "nuc". The result has shape (...).
    Raises ShapeError, ArgumentError for another ``p``, EagerflowError for a singular matrix.

    >>> ef.linalg.cond(ef.tensor([[4.0, 0.0], [0.0, 1.0]]))
    Tensor(4., float32, cpu:0)
    """
    if isinstance(p, bool) or not isinstance(p, _KINDS) or p not in _NORMS:
        raise ArgumentError(
            f"{short_repr(p)} is not a norm of matrices",
            argument="p",
            expected="None, 1, 2, inf, 'fro' ...",
        )
    return wide(_condition, x, p=p)


def _condition(x: Any, p: Any) -> Any:
    if p in (None, 2, -2):
        values = svdvals(matrices(x))
        if values.shape[-1] == 0:
            raise ShapeError("empty matrices have no condition", argument="x")
        first, last = values[..., 0], values[..., -1]
        return divide(last, first) if p == -2 else divide(first, last)
    return multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))


@plain
def multi_dot(arrays: Any, /) -> Tensor:
    """The product of several matrices, in the order that takes the fewest multiplications.

    ``arrays`` is a sequence of at least two tensors of two axes; the first and the last may have
    one. Raises ShapeError where the shapes do not fit.

    >>> ef.linalg.multi_dot([ef.ones((2, 3)), ef.ones((3, 4)), ef.ones((4,))])
    Tensor([12., 12.], float32, cpu:0)
    """
    parts = as_operands(*arrays)
    ranks = [x.ndim for x in parts]
    if len(parts) < 2 or any(r != 2 for r in ranks[1:-1]) or {*ranks} - {1, 2}:
        raise ShapeError(
            "these are not factors of one product",
            op="multi_dot",
            argument="arrays",
            received=" and ".join(str(x.shape) for x in parts),
            expected="at least two matrices, of which the first and the last may be vectors",
        )
    if ranks[0] == 1:
        parts[0] = reshape(parts[0], (1, -1))
    if ranks[-1] == 1:
        parts[-1] = as_column(parts[-1])
    found = _product(parts, _best(parts))
    kept = [n for n, rank in zip(found.shape, (ranks[0], ranks[-1]), strict=True) if rank == 2]
    return reshape(found, tuple(kept))


def _best(parts: list[Any]) -> dict[tuple[int, int], int]:
    """The splits of runs of factors (T. Cormen and others, Introduction to Algorithms, 15.2)."""
    sizes = [*(x.shape[0] for x in parts), parts[-1].shape[1]]
    costs = {(i, i): 0 for i in range(len(parts))}
    cuts: dict[tuple[int, int], int] = {}
    known = all(isinstance(n, int) for n in sizes)
    for length in range(1, len(parts)):
        for i in range(len(parts) - length):
            j = i + length
            options = {
                k: costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            }
            cuts[i, j] = min(options, key=options.__getitem__) if known else j - 1
            costs[i, j] = options[cuts[i, j]]
    return cuts


def _product(parts: list[Any], cuts: dict[tuple[int, int], int]) -> Any:
    def run(i: int, j: int) -> Any:
        if i == j:
            return parts[i]
        k = cuts[i, j]
        return matmul(run(i, k), run(k + 1, j))

    return run(0, len(parts) - 1)


def _flat(sizes: Any) -> Any:
    return math.prod(sizes)


@composed(dtypes=INEXACT)
def tensorinv(a: Any, /, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a linear map from its last axes to its first ``ind`` ones.

    ``a`` is a tensor of floats or complex numbers whose first ``ind`` sizes have the product of the
    others. The result has the last axes first; ``tensordot(tensorinv(a), b, ind)`` is the ``x`` for
    which ``tensordot(a, x, a.ndim - ind)`` is ``b``. Raises ShapeError for other shapes, and
    EagerflowError for a singular map.

    >>> ef.linalg.tensorinv(ef.eye(4).reshape((2, 2, 4))).shape
    (4, 2, 2)
    """
    if isinstance(ind, bool) or not isinstance(ind, int) or not 0 < ind <= a.ndim:
        raise ArgumentError(
            f"{ind!r} is not a number of axes", argument="ind", expected="at least 1"
        )
    front, behind = a.shape[:ind], a.shape[ind:]
    if _flat(front) != _flat(behind):
        raise ShapeError(
            "the map is not square",
            argument="a",
            expected="axes in front and behind with the same product of sizes",
        )
    return reshape(inv(reshape(a, (_flat(front), _flat(behind)))), (*behind, *front))


@composed(dtypes=INEXACT)
def tensorsolve(a: Any, b: Any, /, axes: Any = None) -> Tensor:
    """The solution ``x`` of ``tensordot(a, x, x.ndim) == b``.

    ``a`` has the axes of ``b`` first, then those of ``x``; ``axes`` are moved to its end before.
    Raises ShapeError where the shapes do not fit, EagerflowError for a map without an inverse.

    >>> ef.linalg.tensorsolve(ef.eye(4).reshape((2, 2, 4)), ef.ones((2, 2)))
    Tensor([1., 1., 1., 1.], float32, cpu:0)
    """
    if axes is not None:
        last = normalize_axes(axes, a.ndim, "axes")
        a = permute_dims(a, (*(i for i in range(a.ndim) if i not in last), *last))
    size = _flat(b.shape)
    if a.shape[: b.ndim] != b.shape or _flat(a.shape[b.ndim :]) != size:
        raise ShapeError(
            "the map does not fit the right side",
            argument="b",
            expected="the axes of b first, then others with the same product of sizes",
        )
    found = solve(reshape(a, (size, size)), reshape(b, (size,)))
    return reshape(found, a.shape[b.ndim :])
