"""Linear systems: solve, inverses and determinants of stacks of matrices.

The gradients are the standard ones; M. B. Giles, An extended collection of matrix derivative
results for forward and reverse mode algorithmic differentiation, Oxford 2008, lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import real_dtype
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.op import Cost, Missing, Onnx, Split
from eagerflow.ops.attributes import Numbers
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import multiply, negative, subtract
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import INEXACT, define, split_elementwise, stacked
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul, transposed
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.shapes.reshaping import permute_dims, reshape, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast
from eagerflow.tensor import Tensor

__all__ = ["det", "inv", "pinv", "slogdet", "solve"]

Results = TypeVar("Results")
_SINGULAR = "add a small multiple of ef.eye(n), or use ef.linalg.pinv"


# Common parts of ops on stacks of matrices --------------------------------------------------------


def matrices(x: Any, argument: str = "x") -> Any:
    """``x``, if it has the two axes of a matrix; otherwise ShapeError."""
    if len(x.shape) < 2:
        raise ShapeError(
            f"{len(x.shape)} axes are not enough for a matrix",
            argument=argument,
            expected="shape (..., m, n)",
        )
    return x


def square(x: Any, argument: str = "x") -> Any:
    """``x``, if it has square matrices; otherwise ShapeError."""
    rows, columns = matrices(x, argument).shape[-2:]
    if rows != columns:
        raise ShapeError(
            f"the matrices have {rows} rows and {columns} columns",
            argument=argument,
            expected="square matrices, shape (..., n, n)",
        )
    return x


def factorization(**facts: Any) -> Any:
    """An op on each matrix of a stack, of floats or complex numbers.

    Ops with several results are not split.
    """
    vjp = facts["vjp"]
    own: dict[str, Any] = {
        "dtypes": INEXACT,
        "batch": stacked,
        "split": Missing("the whole input is needed") if "outputs" in facts else along_stack,
        "cost": cubic,
        "fails": True,
        "ulp": 256,
        "onnx": Missing("it has no operator, and what converges is not written as a loop"),
    } | facts
    own["vjp"] = in_float32(vjp) if callable(vjp) else tuple([in_float32(x) for x in vjp])
    return define("contraction", **own)


def gives(results: type[Results]) -> Callable[[Any], Callable[..., Results]]:
    """An op of several results as a function that returns them as a named tuple."""

    def decorate(call: Any) -> Callable[..., Results]:
        @wraps(call)
        def named(*args: Any, **attributes: Any) -> Results:
            return results(*call(*args, **attributes))

        return named

    return decorate


def along_stack(x: TensorSpec, **attributes: Any) -> list[Split]:
    """The work can be cut along the axes in front of the matrices."""
    return [Split((i,), i) for i in range(x.ndim - 2)]


def cubic(*specs: TensorSpec, flops: int = 1, **attributes: Any) -> Cost:
    """The cost of a factorisation: the size of the matrices times their width."""
    x = specs[0]
    moved = 2 * x.size * x.dtype.itemsize
    return Cost(flops * x.size * x.shape[-1], moved)


def not_converged() -> EagerflowError:
    """The error of an iteration that found no values."""
    return EagerflowError(
        "the iteration did not converge",
        argument="x",
        expected="finite values",
        hint="ef.isfinite(x) shows where they are not",
    )


def finite(xp: Namespace, x: Any) -> Any:
    """``x``, if all its values are finite: iterations need not end otherwise."""
    if x.size and not xp.all(xp.isfinite(x)):
        raise not_converged()
    return x


def as_column(x: Any) -> Any:
    """``x`` with an axis of size 1 appended."""
    return reshape(x, (*x.shape, 1))


def as_matrix(x: Any) -> Any:
    """Numbers as matrices of one element."""
    return reshape(x, (*x.shape, 1, 1))


def identity_like(x: Any, dtype: Any = None) -> Any:
    """The identity matrix of the width, dtype and device of ``x``."""
    return eye(x.shape[-1], dtype=dtype or x.dtype, device=str(x.device))


# solve -------------------------------------------------------------------------------------------


def solve_shape(x1: Any, x2: Any) -> tuple[Any, ...]:
    """The shape of the solution of systems."""
    square(x1, "x1")
    if x2.ndim == 0:
        raise ShapeError(
            "the right side has no axes", argument="x2", expected="shape (n,) or (..., n, k)"
        )
    rows = x2.shape[-2 if x2.ndim > 1 else 0]
    if rows != x1.shape[-1]:
        raise ShapeError(
            f"the matrices have {x1.shape[-1]} rows, the right side has {rows}",
            argument="x2",
            expected=f"shape ({x1.shape[-1]},) or (..., {x1.shape[-1]}, k)",
            hint="ef.linalg.solve(a, b.reshape((*b.shape, 1))) for a stack of vectors",
        )
    batch = broadcast(x1.shape[:-2], x2.shape[:-2])
    return (*batch, rows, *x2.shape[-1:]) if x2.ndim > 1 else (*batch, rows)


def _solve_vjp(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    shape = b if isinstance(b, tuple) else b.shape  # the tape keeps only the shape
    vector = len(shape) == 1
    if vector:
        g, y = as_column(g), as_column(y)
    right = solve(adjoint(a), g)
    left = unbroadcast(negative(matmul(right, adjoint(y))), a.shape)
    if vector:
        right = reshape(right, right.shape[:-1])
    return left, unbroadcast(right, shape)


def lined_up(args: Any, batched: Any) -> tuple[Any, Any, bool]:
    """Both sides of systems with the batch axes in line, and whether one vector was right."""
    a, b = args
    vector = b.ndim - batched[1] == 1
    if vector:
        b = as_column(b)
    rank = max(a.ndim - batched[0], b.ndim - batched[1])
    a, b = (
        reshape(x, (*x.shape[:1], *(1,) * (rank + 1 - x.ndim), *x.shape[1:])) if own else x
        for x, own in zip((a, b), batched, strict=True)
    )
    return a, b, vector


def _solve_batch(args: Any, batched: Any, size: Any) -> Any:
    a, b = args
    vector = b.ndim - batched[1] == 1
    if not batched[0] and a.ndim == 2:  # one factorisation for the right sides of all examples
        last = b.ndim - 1
        if vector:
            return transposed(solve(a, transposed(b)))
        rows_first = permute_dims(b, (last - 1, *range(last - 1), last))
        out = solve(a, reshape(rows_first, (a.shape[0], product(rows_first.shape[1:]))))
        return permute_dims(reshape(out, rows_first.shape), (*range(1, last), 0, last))
    a, b, _ = lined_up(args, batched)
    out = solve(a, b)
    return reshape(out, out.shape[:-1]) if vector else out


def solve_split(x1: TensorSpec, x2: TensorSpec) -> list[Split]:
    """Along the stack, and along the right sides."""
    found = split_elementwise(x1.like(x1.shape[:-2]), x2.like(x2.shape[:-2]))
    if x2.ndim == 1:
        return found
    return [*found, Split((None, x2.ndim - 1), len(solve_shape(x1, x2)) - 1)]


@define(
    "contraction",
    dtypes=INEXACT,
    infer=lambda x1, x2: x1.like(solve_shape(x1, x2)),
    vjp=in_float32(_solve_vjp),
    saves="x1 y",
    batch=_solve_batch,
    split=solve_split,
    cost=cubic,
    ulp=256,
    fails=True,
)
def solve(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The solution ``x`` of ``x1 @ x == x2``.

    ``x1`` is a tensor of square matrices, shape (..., n, n), ``x2`` one of shape (n,) or
    (..., n, k), both of floats or complex numbers; leading axes broadcast. Raises ShapeError
    where the shapes do not fit, and EagerflowError for a matrix that is exactly singular.

    >>> ef.linalg.solve(ef.tensor([[2.0, 0.0], [0.0, 4.0]]), ef.tensor([1.0, 2.0]))
    Tensor([0.5, 0.5], float32, cpu:0)
    """
    try:
        return xp.linalg.solve(x1, x2)
    except np.linalg.LinAlgError as error:
        solve_shape(x1, x2)  # raises if the shapes are the problem
        raise EagerflowError("a matrix is singular", argument="x1", hint=_SINGULAR) from error


# Inverses ----------------------------------------------------------------------------------------


@factorization(
    infer=lambda x: square(x).like(),
    vjp=(lambda g, y, x: negative(matmul(matmul(adjoint(y), g), adjoint(y))),),
    saves="y",
    onnx="body",
    jvp=lambda tangents, y, x: negative(matmul(matmul(y, tangents[0]), y)),
    cost=lambda x: cubic(x, flops=2),
)
def inv(xp: Namespace, x: Array, /) -> Array:
    """Inverse of square matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n). ``solve`` is faster and
    more accurate where the inverse would only be multiplied. Raises ShapeError for matrices
    that are not square, EagerflowError for one that is exactly singular.

    >>> ef.linalg.inv(ef.tensor([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], shape=(2, 2), float32, cpu:0)
    """
    try:
        return xp.linalg.inv(x)
    except np.linalg.LinAlgError as error:
        square(x)  # raises if the shape is the problem
        raise EagerflowError("a matrix is singular", argument="x", hint=_SINGULAR) from error


def _pinv_vjp(g: Any, y: Any, x: Any, rtol: Any) -> tuple[Any]:
    """Adjoint of the differential of G. H. Golub and V. Pereyra, SIAM J. Numer. Anal. 10, 1973."""
    left = subtract(eye(x.shape[-2], dtype=x.dtype, device=str(x.device)), matmul(x, y))
    right = subtract(identity_like(x), matmul(y, x))
    back = adjoint(y)
    first = matmul(matmul(back, g), back)
    second = matmul(matmul(left, adjoint(g)), matmul(y, back))
    third = matmul(matmul(back, y), matmul(adjoint(g), right))
    return (subtract(second + third, first),)


def _pinv_spec(x: TensorSpec, rtol: Any = None) -> TensorSpec:
    *stack, rows, columns = matrices(x).shape
    return x.like((*stack, columns, rows))


def _arrange_limits(*args: Any, **named: Any) -> tuple[Any, Any]:
    """An array with a limit for each matrix as the numbers in it."""

    def numbers(limit: Any) -> Any:
        return limit.tolist() if hasattr(limit, "tolist") else limit

    named = {name: x if name == "x" else numbers(x) for name, x in named.items()}
    return (*args[:1], *[numbers(x) for x in args[1:]]), named


@factorization(
    infer=_pinv_spec,
    vjp=_pinv_vjp,
    saves="x y",
    cost=lambda x, **more: cubic(x, flops=20),
    arrange=_arrange_limits,
    split=lambda x, rtol: [] if isinstance(rtol, tuple) else along_stack(x),
    ulp=1024,
)
def pinv(xp: Namespace, x: Array, /, *, rtol: Numbers = None) -> Array:
    """Moore-Penrose pseudo-inverse of matrices of any shape and rank.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); the result has shape
    (..., n, m). Singular values below ``rtol`` times the largest one count as 0; ``rtol`` is a
    number, or has one for each matrix, by default ``max(m, n)`` times the precision of the dtype.
    The gradient is that for a fixed rank. Raises ShapeError for tensors with less than two axes.

    >>> ef.linalg.pinv(ef.tensor([[2.0, 0.0], [0.0, 0.0]]))
    Tensor([[0.5, 0. ],
            [0. , 0. ]], shape=(2, 2), float32, cpu:0)
    """
    if rtol is None:
        rtol = max(matrices(x).shape[-2:]) * float(xp.finfo(x.dtype).eps)
    if x.size == 0:
        return xp.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype=x.dtype)
    try:
        return xp.linalg.pinv(finite(xp, x), rtol=xp.asarray(rtol))
    except np.linalg.LinAlgError as error:
        raise not_converged() from error


# Determinants ------------------------------------------------------------------------------------


@factorization(
    infer=lambda x: square(x).like(x.shape[:-2]),
    vjp=(lambda g, y, x: multiply(as_matrix(multiply(g, conjugate(y))), adjoint(inv(x))),),
    saves="x y",
    onnx=Onnx("Det"),
    fails=False,
)
def det(xp: Namespace, x: Array, /) -> Array:
    """Determinant of square matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n); the result has shape
    (...). It soon overflows for large matrices, where ``slogdet`` does not. The gradient
    needs matrices that are not singular. Raises ShapeError for matrices that are not square.

    >>> ef.linalg.det(ef.tensor([[2.0, 0.0], [0.0, 4.0]]))
    Tensor(8., float32, cpu:0)
    """
    return xp.linalg.det(square(x))


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the absolute value of determinants."""

    sign: Tensor
    logabsdet: Tensor


def _slogdet_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (g_sign, g_log), (sign, _) = g, y
    factor = g_log
    if x.dtype.kind == "c":
        # With t = tr(inv(x) dx), the logarithm moves by the real part of t, and the sign
        # turns by its imaginary part.
        turn = multiply(conjugate(g_sign), sign)
        factor = subtract(g_log, multiply(subtract(turn, conjugate(turn)), 0.5))
    return (multiply(as_matrix(factor), adjoint(inv(x))),)


@gives(SlogdetResult)
@factorization(
    infer=lambda x: (square(x).like(x.shape[:-2]), x.like(x.shape[:-2], real_dtype(x.dtype))),
    vjp=_slogdet_vjp,
    saves="x y",
    onnx="body",
    outputs=2,
    fails=False,
)
def slogdet(xp: Namespace, x: Array, /) -> Array:
    """Sign, and logarithm of the absolute value, of the determinant of square matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n). The result is a named
    tuple ``(sign, logabsdet)`` of shape (...); for a singular matrix it is (0, -inf), and
    there is no gradient. The sign of a complex determinant has absolute value 1. Raises
    ShapeError for matrices that are not square.

    >>> ef.linalg.slogdet(ef.tensor([[1.0, 0.0], [0.0, -1.0]]))
    SlogdetResult(sign=Tensor(-1., float32, cpu:0), logabsdet=Tensor(0., float32, cpu:0))
    """
    return tuple(xp.linalg.slogdet(square(x)))
