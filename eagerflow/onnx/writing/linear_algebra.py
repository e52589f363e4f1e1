"""Linear algebra by loops over rows and columns.

ONNX has no operators for it but ``Det``. Sizes of matrices have to be known, those of stacks need
not. A singular matrix gives infinities or NaN, as a model cannot raise errors.
"""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.capture.control.scans import scan
from eagerflow.spec import broadcast

__all__ = ["cholesky", "det", "inv", "qr", "slogdet", "solve"]


def _counted(size: Any) -> Any:
    return ops.arange(int(size), dtype="int64")


def _picked(x: Any, which: Any, axis: int) -> Any:
    """The row or column of matrices that ``which`` selects."""
    return ops.sum(ops.where(which, x, 0), axis=axis)


def _column(x: Any) -> Any:
    return ops.expand_dims(x, -1)


def _row(x: Any) -> Any:
    return ops.expand_dims(x, -2)


def _eliminated(a: Any, right: Any) -> tuple[Any, Any]:
    """Gaussian elimination with pivoting: an upper triangle, the right side, and the sign.

    The part below the diagonal is arbitrary.
    """
    size = int(a.shape[-1])
    rows = _counted(size)

    def step(state: Any, i: Any) -> Any:
        (m, sign), here, below = state, rows == i, rows > i
        column = _picked(m[..., :size], here, -1)
        pivot = ops.argmax(ops.where(rows >= i, ops.abs(column), -1), axis=-1)
        there = _column(pivot) == rows
        top, other = _picked(m, _column(there), -2), _picked(m, _column(here), -2)
        m = ops.where(_column(here), _row(top), ops.where(_column(there), _row(other), m))
        head = _column(_picked(top[..., :size], here, -1))
        zero = head == 0
        factors = _picked(m[..., :size], here, -1) / ops.where(zero, 1, head)
        factors = ops.where(ops.logical_and(below, ops.logical_not(zero)), factors, 0)
        m = m - _column(factors) * _row(top)
        return (m, ops.where(pivot == i, sign, -sign)), None

    begin = ops.concat((a, right), axis=-1), ops.ones(a.shape[:-2], dtype=a.dtype)
    return scan(step, begin, rows)[0] if size else begin


def _triangle(a: Any) -> tuple[Any, Any]:
    """The diagonal after elimination, and the sign of the row exchanges."""
    found, sign = _eliminated(a, a[..., :0])
    rows = _counted(a.shape[-1])
    return _picked(found, _column(rows) == rows, -1), sign


def det(x: Any) -> Any:
    """Determinants."""
    diagonal, sign = _triangle(x)
    return ops.prod(diagonal, axis=-1) * sign


def slogdet(x: Any) -> tuple[Any, Any]:
    """Signs of determinants, and logarithms of their absolute values."""
    diagonal, sign = _triangle(x)
    logs = ops.sum(ops.log(ops.abs(diagonal)), axis=-1)
    return ops.prod(ops.sign(diagonal), axis=-1) * sign, logs


def solve(x1: Any, x2: Any) -> Any:
    """The solution of ``x1 @ x = x2``: elimination and back substitution."""
    right = _column(x2) if x2.ndim == 1 else x2
    stack = broadcast(x1.shape[:-2], right.shape[:-2])
    a, right = (ops.broadcast_to(m, (*stack, *m.shape[-2:])) for m in (x1, right))
    size = int(a.shape[-1])
    rows = _counted(size)

    def step(found: Any, given: Any) -> Any:
        i, row = given
        rest = row[..., size:] - ops.sum(_column(row[..., :size]) * found, axis=-2)
        own = rest / _column(_picked(row[..., :size], rows == i, -1))
        return ops.where(_column(rows == i), _row(own), found), None

    triangle, _ = _eliminated(a, right)
    columns = rows, ops.moveaxis(triangle, -2, 0)
    found, _ = scan(step, ops.zeros_like(right), columns, reverse=True)
    return found[..., 0] if x2.ndim == 1 else found


def inv(x: Any) -> Any:
    """Inverses: solutions for the identity."""
    return solve(x, ops.eye(int(x.shape[-1]), dtype=x.dtype))


def cholesky(x: Any, upper: bool) -> Any:
    """The Cholesky factor of ``x``, column by column."""
    rows = _counted(x.shape[-1])

    def step(found: Any, given: Any) -> Any:
        (i, column), here = given, rows == given[0]
        own = _picked(found, _column(here), -2)
        rest = column - ops.sum(found * _row(own), axis=-1)
        rest = rest / ops.sqrt(_column(_picked(rest, here, -1)))
        rest = ops.where(rows >= i, rest, 0)
        return ops.where(here, _column(rest), found), None

    found, _ = scan(step, ops.zeros_like(x), (rows, ops.moveaxis(x, -1, 0)))
    return ops.matrix_transpose(found) if upper else found


def qr(x: Any, mode: str) -> tuple[Any, Any]:
    """Householder's reflections, with LAPACK's signs."""
    *stack, m, n = x.shape
    rows, columns = _counted(m), _counted(n)

    def step(state: Any, i: Any) -> Any:
        q, r = state
        own = _picked(r, columns == i, -1)
        top = _column(_picked(own, rows == i, -1))
        tail = ops.where(rows > i, own, 0)
        length = ops.sqrt(ops.sum(tail * tail, axis=-1, keepdims=True))
        end = -ops.copysign(ops.hypot(top, length), top)
        done = length == 0
        along = ops.where(rows == i, 1, tail / ops.where(done, 1, top - end))
        factor = _column(ops.where(done, 0, (end - top) / ops.where(done, 1, end)))
        r = r - factor * _column(along) * _row(ops.sum(_column(along) * r, axis=-2))
        q = q - factor * _column(ops.sum(q * _row(along), axis=-1)) * _row(along)
        return (q, r), None

    begin = ops.broadcast_to(ops.eye(int(m), dtype=x.dtype), (*stack, m, m)), x
    (q, r), _ = scan(step, begin, _counted(max(min(int(m) - 1, int(n)), 0)))
    k = m if mode == "complete" else min(int(m), int(n))
    return q[..., :k], ops.triu(r[..., :k, :])
