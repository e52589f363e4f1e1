"""Numbers as a fraction times a power of two, and their cube roots."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, INTEGERS
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.arithmetic import divide, multiply, negative
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Missing, define, elementwise, split_elementwise, stacked, ufunc
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast

__all__ = ["cbrt", "frexp", "ldexp"]

_EXPONENTS = INTEGERS - {np.dtype("uint64"), np.dtype("uint32")}
_BITS = Missing("it has no operators for the bits of numbers")


@ufunc(
    partials=(in_float32(lambda y, x: divide(1, multiply(multiply(y, y), 3))),),
    saves="y",
    singular=True,
    dtypes=FLOATS,
    onnx=lambda w, x: w.Mul(w.Sign(x), w.Pow(w.Abs(x), w.constant(1 / 3, x.dtype))),
)
def cbrt(xp: Namespace, x: Array, /) -> Array:
    """Cube root of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.cbrt(ef.tensor([8.0, -27.0]))
    Tensor([ 2., -3.], float32, cpu:0)
    """
    return xp.sign(x) * xp.pow(xp.abs(x), xp.asarray(1 / 3, dtype=x.dtype))


# Fractions and powers of two ---------------------------------------------------------------------


def _scaled_spec(x1: Any, x2: Any) -> TensorSpec:
    specs = [x for x in (x1, x2) if isinstance(x, TensorSpec)]
    dtype = x1.dtype if isinstance(x1, TensorSpec) else np.dtype("float32")
    return specs[0].like(broadcast(*(spec.shape for spec in specs)), dtype)


def _scaled(xp: Namespace, x1: Any, x2: Any) -> Any:
    x1 = x1 if hasattr(x1, "dtype") else np.float32(x1)
    if not isinstance(x2, int) and x2.dtype.itemsize == 8:  # powers beyond 32 bits are all alike
        x2 = np.clip(x2, -(2**31), 2**31 - 1).astype(np.int32)
    return np.ldexp(x1, x2).astype(x1.dtype, copy=False)


@elementwise(
    overrides={"numpy": _scaled},
    partials=(lambda y, a, b: ldexp(ones_like(y, dtype=y.dtype), b), None),
    saves="x2 y",
    dtypes=(FLOATS, _EXPONENTS),
    together=(0,),
    infer=_scaled_spec,
    scalar=Missing("its arguments have two types"),
)
def ldexp(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Each element times two to the power of an integer.

    ``x1`` is a real tensor, integers are taken as float32; ``x2`` holds integers; the two shapes
    broadcast. Raises ShapeError where they do not, DTypeError for complex, and for an ``x2`` of
    floats.

    >>> ef.ldexp(ef.tensor([0.5, 0.75]), ef.tensor([2, 4]))
    Tensor([ 2., 12.], float32, cpu:0)
    """
    whole = xp.astype(x2, xp.int64)
    # In two steps: the power itself may overflow where the product does not.
    half = xp.astype(xp.floor_divide(whole, 2), x1.dtype)
    rest = xp.astype(whole, x1.dtype) - half
    return (
        x1
        * xp.pow(xp.asarray(2, dtype=x1.dtype), half)
        * xp.pow(xp.asarray(2, dtype=x1.dtype), rest)
    )


def _parts_spec(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return x, x.like(dtype="int32")


def _parts(xp: Namespace, x: Any) -> Any:
    fraction, exponent = np.frexp(x)
    finite = np.isfinite(x)  # C leaves the exponent of other numbers unspecified
    return fraction, exponent if finite.all() else np.where(finite, exponent, np.int32(0))


@define(
    "parts",
    dtypes=FLOATS,
    outputs=2,
    infer=_parts_spec,
    overrides={"numpy": _parts},
    aliases=False,
    vjp=lambda g, y, x: (ldexp(g[0], negative(y[1])),),
    jvp=lambda tangents, y, x: (ldexp(tangents[0], negative(y[1])), None),
    saves="y",
    batch=stacked,
    split=split_elementwise,
    onnx=_BITS,
)
def frexp(xp: Namespace, x: Array, /) -> Any:
    """Each element as a fraction of size 1/2 to 1, and a power of two.

    ``x`` is a real tensor of any shape; integers are taken as float32. The results are
    ``(fractions, exponents)``, the second one int32, with ``x = fractions * 2**exponents``; of 0,
    infinities and NaN the fraction is the number itself and the exponent 0. Raises DTypeError for
    complex.

    >>> ef.frexp(ef.tensor([3.0, -0.25]))
    (Tensor([ 0.75, -0.5 ], float32, cpu:0), Tensor([ 2, -1], int32, cpu:0))
    """
    usual = xp.isfinite(x) & (x != 0)
    size = xp.abs(xp.where(usual, x, 1))
    exponent = xp.floor(xp.log2(size)) + 1
    two = xp.asarray(2, dtype=x.dtype)
    for _ in range(2):  # the logarithm may be off by one on either side
        part = size / xp.pow(two, exponent)
        exponent = exponent + xp.astype(part >= 1, x.dtype) - xp.astype(part < 0.5, x.dtype)
    exponent = xp.where(usual, exponent, 0)
    return x / xp.pow(two, exponent), xp.astype(exponent, xp.int32)
