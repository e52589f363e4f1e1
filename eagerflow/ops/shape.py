"""Ops that change shape or order and leave the values alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Onnx, Sample, Split
from eagerflow.ops.family import FLOAT8, STANDARD, Call, Cost, define, refused_objects
from eagerflow.ops.samples import make
from eagerflow.spec import TensorSpec, as_shape, broadcast, normalize_axes
from eagerflow.tensor import Operators

__all__ = ["broadcast_to", "permute_dims", "reshape"]

ANY = STANDARD | FLOAT8


def no_work(x: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
    """Views cost nothing."""
    return Cost(0, 0)


def shape_op(method: bool | str = True, **facts: Any) -> Any:
    """A linear op of one tensor that only moves values."""
    own: dict[str, Any] = {"dtypes": ANY, "jvp": "linear", "cost": no_work, "trusted": True} | facts
    return define("shape", own, None, method)


def known_shape(x: TensorSpec, shape: Any) -> tuple[Any, ...]:
    """``shape`` with the size that -1 stands for; ShapeError if the sizes do not match."""
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    wanted = as_shape(tuple(1 if isinstance(d, int) and d == -1 else d for d in given))
    unknown = [i for i, d in enumerate(given) if isinstance(d, int) and d == -1]
    rest = product(wanted)
    if len(unknown) == 1 and rest != 0 and x.size % rest == 0:
        at = unknown[0]
        wanted = (*wanted[:at], x.size // rest, *wanted[at + 1 :])
    elif unknown or rest != x.size:
        raise ShapeError(
            f"{x.size} elements do not fit into shape {given}",
            argument="shape",
            expected=f"sizes whose product is {x.size}, at most one of them -1",
        )
    return wanted


def _reshape_samples(rng: Any, dtype: Any) -> list[Sample]:
    x = make(rng, dtype, (2, 3, 4))
    shapes = ((24,), (4, 6), (-1,), (2, -1), (1, 2, 3, 4), (2, 3, 4), 24)
    found = [Sample((x,), {"shape": shape}) for shape in shapes]
    found.append(Sample((make(rng, dtype, (0, 3)),), {"shape": (3, 0)}))
    found.append(Sample((make(rng, dtype, ()),), {"shape": (1, 1)}))
    found.append(Sample((make(rng, dtype, (1,)),), {"shape": ()}))
    found.append(Sample((x.T[:, ::-1],), {"shape": (6, 4)}))
    return found


def _reshape_errors(rng: Any) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"shape": (4, 2)}, ShapeError, "6 elements do not fit"),
        ErrorSample((x,), {"shape": (-1, -1)}, ShapeError, "at most one"),
        ErrorSample((x,), {"shape": (-2, 3)}, ShapeError, "negative"),
        ErrorSample((x,), {"shape": "six"}, ShapeError, "is not a size"),
    ]


@shape_op(
    infer=lambda x, shape: x.like(known_shape(x, shape)),
    direct=lambda xp: xp.ndarray.reshape,
    vjp=(lambda g, y, x, shape: reshape(g, x.shape),),
    batch=lambda args, batched, size, shape: _batched_reshape(args[0], size, shape),
    onnx=Onnx("Reshape"),
    samples=_reshape_samples,
    errors=_reshape_errors,
    reference=lambda x, shape: x.ravel().reshape(shape),
    method=False,
)
def reshape(xp: Any, x: Any, /, shape: Any) -> Any:
    """The same values, in row-major order, in another shape.

    ``shape`` is a tuple of sizes whose product is ``x.size``; one size may be -1 and is
    then computed. Raises ShapeError where the sizes do not fit.

    >>> ef.reshape(ef.arange(6), (2, -1)).shape
    (2, 3)
    """
    return xp.reshape(x, shape)


def _batched_reshape(x: Any, size: int, shape: Any) -> Any:
    logical = TensorSpec(x.shape[1:], x.dtype)
    return reshape(x, (size, *known_shape(logical, shape)))


def _reshape_method(self: Any, *shape: Any) -> Any:
    """The same values in another shape, given as a tuple or as several sizes."""
    return reshape(self, shape[0] if len(shape) == 1 else shape)


Operators.reshape = _reshape_method  # type: ignore[attr-defined]


def _permuted(x: TensorSpec, axes: Any) -> TensorSpec:
    order = normalize_axes(tuple(axes), x.ndim, "axes")
    if len(order) != x.ndim:
        raise ShapeError(
            f"axes {tuple(axes)} do not name each axis once",
            argument="axes",
            expected=f"a permutation of {x.ndim} axes",
        )
    return x.like(tuple(x.shape[i] for i in order))


def _inverse(axes: Any) -> tuple[int, ...]:
    order = normalize_axes(tuple(axes), len(axes))
    return tuple(order.index(i) for i in range(len(order)))


@shape_op(
    infer=_permuted,
    direct=lambda xp: xp.ndarray.transpose,
    vjp=(lambda g, y, x, axes: permute_dims(g, _inverse(axes)),),
    batch=lambda args, batched, size, axes: permute_dims(
        args[0], (0, *(i + 1 for i in normalize_axes(axes, len(axes))))
    ),
    split=lambda x, axes: [
        Split((i,), at) for at, i in enumerate(normalize_axes(axes, x.ndim))
    ],
    onnx=Onnx("Transpose", {"axes": "perm"}),
    samples=lambda rng, dtype: [
        Sample((make(rng, dtype, (2, 3, 4)[: len(axes)]),), {"axes": axes})
        for axes in ((), (0,), (1, 0), (-1, -2), (2, 0, 1), (0, 1, 2), (1, -3, 2))
    ],
    errors=lambda rng: [
        *refused_objects(rng),
        ErrorSample((rng.random((2, 3)),), {"axes": (0, 0)}, ShapeError, "repeat"),
        ErrorSample((rng.random((2, 3)),), {"axes": (0,)}, ShapeError, "each axis once"),
        ErrorSample((rng.random((2, 3)),), {"axes": (0, 2)}, ShapeError, "axis 2 does not exist"),
    ],
    reference=lambda x, axes: np.einsum(x, list(range(x.ndim)), [a % x.ndim for a in axes]),
)
def permute_dims(xp: Any, x: Any, /, axes: Any) -> Any:
    """The axes in another order.

    ``axes`` is a tuple that names each axis once. Raises ShapeError otherwise.

    >>> ef.permute_dims(ef.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return xp.permute_dims(x, axes)


def _broadcast_spec(x: TensorSpec, shape: Any) -> TensorSpec:
    wanted = as_shape(shape)
    if broadcast(x.shape, wanted) != wanted:
        raise ShapeError(
            f"shape {x.shape} does not broadcast to {wanted}", argument="shape",
            expected="sizes that are equal or 1 in x, counted from the last axis",
        )  # fmt: skip
    return x.like(wanted)


def _unbroadcast(g: Any, y: Any, x: Any, shape: Any) -> Any:
    extra = g.ndim - x.ndim
    axes = [i for i in range(g.ndim) if i < extra or (x.shape[i - extra] == 1 != g.shape[i])]
    return (g.sum(axis=tuple(axes)) if axes else g).reshape(x.shape)


@shape_op(
    infer=_broadcast_spec,
    direct=lambda xp: xp.broadcast_to,
    vjp=(_unbroadcast,),
    batch=lambda args, batched, size, shape: broadcast_to(
        args[0].reshape(
            (size, *(1,) * (len(as_shape(shape)) - args[0].ndim + 1), *args[0].shape[1:])
        ),
        (size, *as_shape(shape)),
    ),
    onnx=Onnx("Expand"),
    samples=lambda rng, dtype: [
        Sample((make(rng, dtype, a),), {"shape": b})
        for a, b in (
            ((), ()), ((), 3), ((3,), (2, 3)), ((2, 1), (2, 4)), ((1, 1), (0, 3)), ((0,), (2, 0)),
            ((2, 3), (2, 3)), ((1, 3, 1), (2, 2, 3, 4)),
        )
    ],  # fmt: skip
    errors=lambda rng: [
        *refused_objects(rng),
        ErrorSample((rng.random((2, 3)),), {"shape": (2, 4)}, ShapeError, "broadcast"),
        ErrorSample((rng.random((2, 3)),), {"shape": (3,)}, ShapeError, "broadcast"),
        ErrorSample((rng.random((2, 3)),), {"shape": (-1, 3)}, ShapeError, "negative"),
    ],
    reference=lambda x, shape: x + np.zeros(shape, x.dtype),
)
def broadcast_to(xp: Any, x: Any, /, shape: Any) -> Any:
    """The values repeated along axes of size 1, and along new axes in front.

    ``shape`` is a tuple of sizes. Raises ShapeError where ``x.shape`` does not broadcast to it.

    >>> ef.broadcast_to(ef.tensor([1.0, 2.0]), (2, 2))
    Tensor([[1., 2.],
            [1., 2.]], shape=(2, 2), float32, cpu:0)
    """
    return xp.broadcast_to(x, shape)
