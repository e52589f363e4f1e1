"""Contractions: matrix products and operations that reduce to them.

A product with a matrix that all examples share is one product of two matrices, in the
kernel and in the gradient; NumPy alone would call BLAS once for each example.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from eagerflow.codegen.generated import enabled
from eagerflow.dims import product
from eagerflow.dtypes import is_complex
from eagerflow.errors import AxisError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.op import Cost, Into, Onnx, Split
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.family import (
    NUMERIC,
    Batch,
    as_operands,
    batch_elementwise,
    define,
    split_elementwise,
)
from eagerflow.ops.plain import plain
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.shapes.reshaping import permute_dims, reshape, unbroadcast
from eagerflow.runtime import blas, threads
from eagerflow.runtime.buffers import empty
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast, normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["matmul", "outer", "tensordot", "vecdot"]


# Pieces that the gradient rules of all contractions share ----------------------------------------


def transposed(x: Any) -> Any:
    """``x`` with its last two axes exchanged."""
    last = len(x.shape) - 1
    return permute_dims(x, (1, 0) if last == 1 else (*range(last - 1), last, last - 1))


def adjoint(x: Any) -> Any:
    """The conjugate of ``x`` with its last two axes exchanged."""
    return transposed(conjugate(x))


# matmul ------------------------------------------------------------------------------------------


def _matmul_spec(x1: TensorSpec, x2: TensorSpec) -> TensorSpec:
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim == 0:
            raise ShapeError(
                "a tensor without axes cannot be multiplied as a matrix",
                argument=name,
                expected="at least one axis",
                hint="ef.multiply(x1, x2), or x1 * x2",
            )
    inner1, inner2 = x1.shape[-1], x2.shape[-2 if x2.ndim > 1 else 0]
    if inner1 != inner2:
        axis = "second to last" if x2.ndim > 1 else "only"
        raise ShapeError(
            f"the inner dimensions differ: the last axis of x1 has size {inner1}, "
            f"the {axis} axis of x2 has size {inner2}",
            expected=f"x2 of shape (..., {inner1}, n) or ({inner1},)",
            hint="ef.matmul(x1, x2.mT)" if x2.shape[-1] == inner1 else None,
        )
    try:
        batch = broadcast(x1.shape[:-2], x2.shape[:-2])
    except raised_here(ShapeError):
        raise ShapeError(
            f"the axes before the last two do not broadcast: {x1.shape[:-2]} and {x2.shape[:-2]}",
            expected="sizes that are equal or 1, counted from the last axis",
        ) from None
    rows = x1.shape[-2:-1]
    columns = x2.shape[-1:] if x2.ndim > 1 else ()
    return x1.like((*batch, *rows, *columns))


# From so many multiplications on, using other threads pays (about 0.2 ms). Smaller products use one
# thread, so that their bits do not depend on BLAS's number of threads.
MIN_SHARED_MULTIPLICATIONS = 2**23
# From here on OpenBLAS divides the work among threads in a way that changes the bits:
MIN_BLAS_MULTIPLICATIONS = 2**18
MIN_BLAS_VECTOR_MULTIPLICATIONS = 2**13  # of two vectors, and of complex matrices and vectors
# A matrix product of this size keeps all cores busy by itself.
LARGE_MULTIPLICATIONS = 256**3
# So many are faster with generated kernels if BLAS has none for the processor,
MIN_GENERATED_MULTIPLICATIONS = 2**21
# and for types that BLAS lacks: int8, uint8, float16 and bfloat16 (besides float32 products).
MIN_GENERATED_OF = {"b": 2**15, "B": 2**15, "e": 2**17, "E": 2**22}
LEAST_GENERATED = min(MIN_GENERATED_OF.values())
# Stacks are divided into this many parts, for any number of threads.
STACK_PARTS = 8


def _matmul_numpy(xp: Namespace, a: Any, b: Any) -> Any:
    if a.ndim == 2 == b.ndim:
        return matrix_product(a, b)
    if not a.ndim or not b.ndim:
        return np.matmul(a, b)
    if b.ndim > 2:
        return _stacked(a, b) if a.ndim > 1 else _stacked(a[None], b)[..., 0, :]
    if a.ndim < 3:
        if a.dtype.char in MIN_GENERATED_OF and a.ndim + b.ndim > 2:
            columns = b if b.ndim > 1 else b[:, None]
            return matrix_product(np.atleast_2d(a), columns).reshape(a.shape[:-1] + b.shape[1:])
        work = max(a.size, b.size)
        return _product_of(np.dot, work, a, b, a.ndim == b.ndim)
    rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    return _matmul_numpy(xp, rows, b).reshape(a.shape[:-1] + b.shape[1:])


def matrix_product(a: Any, b: Any, out: Any = None) -> Any:
    """Product of two matrices; ``dot`` needs a third of np.matmul's time before it computes.

    ``out`` is C-contiguous memory for it, of its dtype.
    """
    work = a.size * b.shape[1]
    if work >= LEAST_GENERATED and _generated(a, b, work):
        made = empty((a.shape[0], b.shape[1]), a.dtype) if out is None else out
        return _kernels().multiply(a, b, made)
    if work >= MIN_SHARED_MULTIPLICATIONS:
        threads.dismiss()
        return a.dot(b, out)
    if work <= MIN_BLAS_VECTOR_MULTIPLICATIONS:
        return a.dot(b, out)
    if work <= MIN_BLAS_MULTIPLICATIONS and a.dtype.kind != "c":
        return a.dot(b, out)
    return _product_of(np.dot, work, a, b, False, out)


def _product_of(
    multiply: Any, work: int, a: Any, b: Any, vectors: bool = False, out: Any = None
) -> Any:
    """A product of many multiplications, with bits that depend only on shapes.

    Where BLAS computes several, ``work`` is that of each.
    """
    least = (
        MIN_BLAS_VECTOR_MULTIPLICATIONS
        if vectors or a.dtype.kind == "c"
        else MIN_BLAS_MULTIPLICATIONS
    )
    if least < work < MIN_SHARED_MULTIPLICATIONS:
        with blas.single_threaded():
            return multiply(a, b, out)
    return multiply(a, b, out)


def _stacked(a: Any, b: Any, out: Any = None) -> Any:
    """Products of two stacks of matrices, on all cores where BLAS would use one."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    if min(m, n) >= 16:
        a, b = _compact(a), _compact(b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count, each = math.prod(batch), m * k * n
    if _generated(a, b, count * each):
        return _kernels().multiply(a, b, empty((*batch, m, n), a.dtype) if out is None else out)
    if each >= LARGE_MULTIPLICATIONS or (
        each >= MIN_SHARED_MULTIPLICATIONS and count < STACK_PARTS
    ):
        threads.dismiss()
        return np.matmul(a, b, out)
    if count * each < MIN_SHARED_MULTIPLICATIONS:
        return _product_of(np.matmul, each, a, b, False, out)
    if out is None:
        out = np.empty((*batch, m, n), a.dtype)
    a, b, _ = met(a, b)
    axis = batch.index(max(batch))
    before, length = (slice(None),) * axis, batch[axis]
    parts = min(STACK_PARTS, length)

    def multiply_part(i: int) -> None:
        at = (*before, slice(length * i // parts, length * (i + 1) // parts))
        np.matmul(a[at], b[at], out=out[at])

    threads.run(multiply_part, parts)
    return out


def product_into(a: Any, b: Any, out: Any = None) -> Any:
    """The product of vectors, matrices or stacks of them, in C-contiguous memory of its dtype."""
    if a.dtype.char in "eE":
        return _small_matmul(np, a, b, out)
    if out is None:
        return _matmul_numpy(np, a, b)
    if a.ndim == 2 == b.ndim:
        return matrix_product(a, b, out)
    if min(a.ndim, b.ndim) < 2:
        if max(a.ndim, b.ndim) < 3:
            _product_of(np.dot, max(a.size, b.size), a, b, a.ndim == b.ndim, out)
            return out  # NumPy returns a scalar for two vectors
        out[...] = _matmul_numpy(np, a, b)
        return out
    if b.ndim > 2:
        return _stacked(a, b, out)
    rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    matrix_product(rows, b, out.reshape(rows.shape[0], b.shape[1]))
    return out


def _small_matmul(xp: Namespace, a: Any, b: Any, out: Any = None) -> Any:
    """A product of float16 or bfloat16, with float32 sums that are rounded once."""
    if a.ndim + b.ndim > 2:
        rows, columns = np.atleast_2d(a), b if b.ndim > 1 else b[:, None]
        batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
        shape = (*batch, rows.shape[-2], columns.shape[-1])
        if _generated(rows, columns, math.prod(shape) * rows.shape[-1]):
            made = empty(shape, a.dtype) if out is None else out
            _kernels().multiply(rows, columns, made)
            return made.reshape(batch + a.shape[-2:-1] + b.shape[-1:] * (b.ndim > 1))
    wide = _matmul_numpy(xp, a.astype(np.float32), b.astype(np.float32))
    if out is None:
        return wide.astype(a.dtype)
    out[...] = wide
    return out


@cache
def _kernels() -> Any:
    """Generated products, loaded when they are first wanted."""
    from eagerflow.primitives import matrix_product

    return matrix_product


def _generated(a: Any, b: Any, work: int) -> bool:
    """Whether generated kernels are faster than NumPy, which raises for mismatches."""
    if a.dtype != b.dtype or a.shape[-1] != b.shape[-2]:
        return False
    kind = a.dtype.char
    if kind in "fd":
        large = work >= MIN_GENERATED_MULTIPLICATIONS
        return large and blas.is_outdated() and enabled() and not _kernels().is_thin(a, b)
    least = MIN_GENERATED_OF.get(kind)
    return least is not None and work >= least and enabled()


_PRODUCT = Into(product_into, lambda a, b, out: _kernels().fixed(a, b, out), "fdeEbB")
_PRODUCT_OF_VECTOR = _PRODUCT._replace(types="fd")


def _compact(a: Any) -> Any:
    """``a`` with each of its matrices in one piece of memory, as BLAS reads them fastest."""
    rows, columns = a.strides[-2:]
    item, (m, n) = a.itemsize, a.shape[-2:]
    if (columns == item and rows == n * item) or (rows == item and columns == m * item):
        return a
    if 0 in a.strides:
        return a  # repeated values take no room as they are
    if abs(rows) < abs(columns):
        return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    return np.ascontiguousarray(a)


def _matmul_vjp1(g: Any, y: Any, a: Any, b: Any) -> Any:
    b = conjugate(b)
    if g.ndim == 2 == b.ndim:
        return matmul(g, transposed(b))
    if b.ndim == 1:  # y = sum over the last axis of a
        return multiply(reshape(g, (*g.shape, 1)), b)
    if a.ndim == 1:
        part = matmul(b, reshape(g, (*g.shape, 1)))
        return unbroadcast(reshape(part, part.shape[:-1]), a.shape)
    if a.ndim == 2 < b.ndim:
        # One product over examples and columns, which includes the sum over examples.
        return matmul(_rows_first(g), transposed(_rows_first(b)))
    return unbroadcast(matmul(g, transposed(b)), a.shape)


def _rows_first(x: Any) -> Any:
    """A stack of matrices side by side, as one matrix with their rows."""
    last = x.ndim - 1
    moved = permute_dims(x, (last - 1, *range(last - 1), last))
    return reshape(moved, (moved.shape[0], product(moved.shape[1:])))


def _matmul_vjp2(g: Any, y: Any, a: Any, b: Any) -> Any:
    a = conjugate(a)
    if g.ndim == 2 == a.ndim:
        return matmul(transposed(a), g)
    if a.ndim == 1:
        if b.ndim == 1:
            return multiply(g, a)
        g = reshape(g, (*g.shape[:-1], 1, g.shape[-1]))
        return multiply(reshape(a, (a.shape[0], 1)), g)
    if b.ndim == 1:
        part = matmul(transposed(a), reshape(g, (*g.shape, 1)))
        return unbroadcast(reshape(part, part.shape[:-1]), b.shape)
    if b.ndim == 2 < a.ndim:
        rows = product(a.shape[:-1])
        return matmul(transposed(reshape(a, (rows, a.shape[-1]))), reshape(g, (rows, g.shape[-1])))
    return unbroadcast(matmul(transposed(a), g), b.shape)


def batch_of_products(call: Any, args: Any, batched: Any, size: Any) -> Any:
    """Products of examples, by one ``call`` of the op."""
    a, b = args
    rank1, rank2 = a.ndim - batched[0], b.ndim - batched[1]
    if not batched[1] and rank2 <= 2:
        return call(a, b)  # the weight of all examples stays whole
    if not batched[0] and rank1 <= 2 <= rank2:
        return call(a, b)
    if not batched[0] and rank1 <= 2:
        return call(b, transposed(a) if rank1 == 2 else a)
    rank = max(rank1, rank2, 2)
    left = _aligned(a, rank1, batched[0], rank, before=True)
    right = _aligned(b, rank2, batched[1], rank, before=False)
    out = call(left, right)
    shape = list(out.shape)
    if rank2 == 1:
        del shape[-1]
    if rank1 == 1:
        del shape[-1 if rank2 == 1 else -2]
    return reshape(out, tuple(shape))


def _aligned(x: Any, own: int, is_batched: bool, rank: int, before: bool) -> Any:
    """Vectors as matrices, and axes of size 1 so that the batch axes of both meet in front."""
    front = x.shape[:1] if is_batched else ()
    shape = x.shape[len(front) :]
    if own == 1:
        shape = (1, *shape) if before else (*shape, 1)
    return reshape(x, (*front, *(1,) * (rank - len(shape)), *shape))


def _matmul_split(x1: TensorSpec, x2: TensorSpec) -> list[Split]:
    y = _matmul_spec(x1, x2)
    batch = y.ndim - (x1.ndim > 1) - (x2.ndim > 1)
    found = split_elementwise(x1.like(x1.shape[:-2]), x2.like(x2.shape[:-2]))
    if x1.ndim > 1:
        found.append(Split((x1.ndim - 2, None), batch))
    if x2.ndim > 1:
        found.append(Split((None, x2.ndim - 1), y.ndim - 1))
    found.append(Split((x1.ndim - 1, max(x2.ndim - 2, 0)), None, "add"))
    return found


def _matmul_cost(x1: TensorSpec, x2: TensorSpec) -> Cost:
    y = _matmul_spec(x1, x2)
    width = x1.dtype.itemsize
    return Cost(2 * y.size * x1.shape[-1], (x1.size + x2.size + y.size) * width)


def met(left: Any, right: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """Two arrays of matrices in stacks of one shape, and that shape."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (left, right))
    return left, right, batch


def _are_matrices(x1: Any, x2: Any) -> bool:
    return len(x1.shape) == 2 == len(x2.shape)


def _is_shared(x1: Any, x2: Any) -> bool:
    """Whether BLAS may use several threads for a product of two matrices."""
    return bool(x1.size * x2.shape[1] >= MIN_SHARED_MULTIPLICATIONS)


@define(
    "contraction",
    dtypes=NUMERIC,
    infer=_matmul_spec,
    trusted=True,
    overrides={"numpy": _matmul_numpy, "numpy, small floats": _small_matmul},
    keeps_order=True,
    into=lambda x1, x2: _PRODUCT_OF_VECTOR if min(len(x1.shape), len(x2.shape)) < 2 else _PRODUCT,
    threaded=lambda x1, x2: not _are_matrices(x1, x2) or _is_shared(x1, x2),
    vjp=(_matmul_vjp1, _matmul_vjp2),
    saves="x1 x2",
    jvp="multilinear",
    batch=Batch(batch_of_products),
    split=_matmul_split,
    cost=_matmul_cost,
    onnx=Onnx("MatMul"),
    ulp=16,
    operator="matmul",
)
def matmul(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Matrix product.

    ``x1`` is a numeric tensor of shape (..., m, k) or (k,), ``x2`` one of shape (..., k, n)
    or (k,). Leading axes are stacks of matrices and broadcast; the axis of a vector is
    summed away. Integers are summed in their own dtype. Raises ShapeError where the inner
    dimensions differ or a tensor has no axes.

    >>> ef.matmul(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), ef.tensor([1.0, 10.0]))
    Tensor([21., 43.], float32, cpu:0)
    """
    return xp.matmul(x1, x2)


# vecdot ------------------------------------------------------------------------------------------


def _vecdot_axis(x1: Any, x2: Any, axis: int) -> int:
    """The summed axis, counted from the last one of both arguments."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ShapeError(f"{axis!r} is not an axis", argument="axis", expected="an integer")
    for name, x in (("x1", x1), ("x2", x2)):
        if not -x.ndim <= axis < x.ndim:
            raise AxisError(
                f"axis {axis} does not exist in {name}",
                argument="axis",
                expected="an axis of both, such as -1",
            )
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ShapeError(
            f"axis {axis} is not the same in tensors with {x1.ndim} and {x2.ndim} axes",
            argument="axis",
            expected="a negative number",
        )
    return axis - x1.ndim if axis >= 0 else axis


def _vecdot_spec(x1: TensorSpec, x2: TensorSpec, axis: int = -1) -> TensorSpec:
    at = _vecdot_axis(x1, x2, axis)
    if x1.shape[at] != x2.shape[at]:
        raise ShapeError(
            f"the vectors have {x1.shape[at]} and {x2.shape[at]} elements",
            expected=f"equal sizes along axis {axis}",
        )
    shape = broadcast(x1.shape, x2.shape)
    return x1.like(shape[:at] + shape[len(shape) + at + 1 :])


def _widened(g: Any, x1: Any, x2: Any, axis: int) -> Any:
    """The gradient with the summed axis back as size 1."""
    cut = g.ndim + 1 + _vecdot_axis(x1, x2, axis)
    return reshape(g, (*g.shape[:cut], 1, *g.shape[cut:]))


def _vecdot_vjp1(g: Any, y: Any, x1: Any, x2: Any, axis: int) -> Any:
    return unbroadcast(multiply(conjugate(_widened(g, x1, x2, axis)), x2), x1.shape)


def _vecdot_vjp2(g: Any, y: Any, x1: Any, x2: Any, axis: int) -> Any:
    return unbroadcast(multiply(_widened(g, x1, x2, axis), x1), x2.shape)


def _vecdot_batch(call: Any, args: Any, batched: Any, size: Any, axis: int) -> Any:
    x1, x2 = (x.ndim - is_batched for x, is_batched in zip(args, batched, strict=True))
    at = axis - x1 if axis >= 0 and x1 == x2 else axis
    return batch_elementwise(call, args, batched, size, axis=at)


def _vecdot_split(x1: TensorSpec, x2: TensorSpec, axis: int = -1) -> list[Split]:
    rank = max(x1.ndim, x2.ndim)
    summed = rank + _vecdot_axis(x1, x2, axis)
    return [
        Split(cut.inputs, None, "add") if i == summed else Split(cut.inputs, i - (i > summed))
        for i, cut in enumerate(split_elementwise(x1, x2))
    ]


def _vecdot_numpy(xp: Namespace, a: Any, b: Any, axis: int) -> Any:
    along = max(a.shape[axis], b.shape[axis])
    return _product_of(lambda a, b, out: xp.vecdot(a, b, axis=axis), along, a, b, True)


@define(
    "contraction",
    dtypes=NUMERIC,
    infer=_vecdot_spec,
    vjp=(_vecdot_vjp1, _vecdot_vjp2),
    saves="x1 x2",
    # Conjugate-linear in x1, and the tangent is conjugated as x1 is.
    jvp="multilinear",
    batch=Batch(_vecdot_batch),
    split=_vecdot_split,
    cost=lambda x1, x2, axis=-1: Cost(
        2 * product(broadcast(x1.shape, x2.shape)), (x1.size + x2.size) * x1.dtype.itemsize
    ),
    # CuPy has no vecdot of its own.
    overrides={"numpy": _vecdot_numpy},
    ulp=16,
)
def vecdot(xp: Namespace, x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Dot products of the vectors along one axis of two tensors.

    ``x1`` and ``x2`` are numeric tensors of shapes that broadcast and agree along ``axis``,
    which is counted from the last axis if the ranks differ. Complex values of ``x1`` are
    conjugated. Raises ShapeError where the vectors differ in size or ``axis`` does not exist.

    >>> ef.vecdot(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), ef.tensor([1.0, 10.0]))
    Tensor([21., 43.], float32, cpu:0)
    """
    products = (xp.conj(x1) if is_complex(x1.dtype) else x1) * x2
    return xp.sum(products, axis=axis, dtype=products.dtype)


# Compositions ------------------------------------------------------------------------------------


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Product of each element of one vector with each element of another.

    ``x1`` and ``x2`` are tensors of shapes (n,) and (m,); the result has shape (n, m).
    Raises ShapeError for tensors of another rank.

    >>> ef.outer(ef.tensor([1.0, 2.0]), ef.tensor([1.0, 10.0]))
    Tensor([[ 1., 10.],
            [ 2., 20.]], shape=(2, 2), float32, cpu:0)
    """
    a, b = as_operands(x1, x2)
    for name, x in (("x1", a), ("x2", b)):
        if x.ndim != 1:
            raise ShapeError(
                f"{name} has {x.ndim} axes",
                op="outer",
                argument=name,
                expected="a vector",
                hint=f"{name}.reshape(-1)",
            )
    return multiply(reshape(a, (a.shape[0], 1)), b)


@plain
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Sum of products over axes of two tensors.

    ``x1`` and ``x2`` are numeric tensors; ``axes`` is the number of last axes of ``x1`` that are
    summed with as many first axes of ``x2``, or a pair of tuples of axes of each. The result has
    the other axes of ``x1``, then those of ``x2``. Raises ShapeError where the axes do not exist or
    differ in size.

    >>> ef.tensordot(ef.ones((2, 3, 4)), ef.ones((4, 3)), axes=((2, 1), (0, 1)))
    Tensor([12., 12.], float32, cpu:0)
    """
    a, b = as_operands(x1, x2)
    summed1, summed2 = _contracted(a, b, axes)
    free1 = [i for i in range(a.ndim) if i not in summed1]
    free2 = [i for i in range(b.ndim) if i not in summed2]
    rows, columns = (tuple(x.shape[i] for i in free) for x, free in ((a, free1), (b, free2)))
    inner = product(a.shape[i] for i in summed1)
    left = reshape(_permuted(a, (*free1, *summed1)), (product(rows), inner))
    right = reshape(_permuted(b, (*summed2, *free2)), (inner, product(columns)))
    return reshape(matmul(left, right), (*rows, *columns))


def _permuted(x: Any, axes: tuple[int, ...]) -> Any:
    return x if axes == tuple(range(len(axes))) else permute_dims(x, axes)


def _contracted(a: Any, b: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of each argument that ``tensordot`` sums over."""
    if hasattr(axes, "__index__"):
        count = int(axes)
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"{count} axes cannot be summed",
                op="tensordot",
                argument="axes",
                received=f"x1 with {a.ndim} axes, x2 with {b.ndim}",
                expected=f"0 to {min(a.ndim, b.ndim)}, or a pair of tuples of axes",
            )
        axes = (tuple(range(a.ndim - count, a.ndim)), tuple(range(count)))
    if not isinstance(axes, tuple | list) or len(axes) != 2:
        raise ShapeError(
            f"{axes!r} does not name axes",
            op="tensordot",
            argument="axes",
            expected="an integer, or a pair of tuples of axes",
        )
    first = normalize_axes(axes[0] if isinstance(axes[0], int) else tuple(axes[0]), a.ndim, "axes")
    second = normalize_axes(axes[1] if isinstance(axes[1], int) else tuple(axes[1]), b.ndim, "axes")
    sizes1, sizes2 = [a.shape[i] for i in first], [b.shape[i] for i in second]
    if sizes1 != sizes2:
        raise ShapeError(
            f"the summed axes have sizes {tuple(sizes1)} in x1 and {tuple(sizes2)} in x2",
            op="tensordot",
            argument="axes",
            expected="equal sizes, pair by pair",
        )
    return first, second
