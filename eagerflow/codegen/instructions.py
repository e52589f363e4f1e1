"""The scalar instructions: the operations on elements in generated kernels and elementwise ops.

The set is small, closed and typed. A scalar rule is a function of a namespace ``s`` that has these
names, and of one operand per argument: ``lambda s, x: s.multiply(x, s.sigmoid(x))``. The namespace
defines the meaning of calls: a region's builder records them, the emitters of ``llvm`` and ``cuda``
turn them into code, ``NUMPY`` computes on NumPy arrays.

No machine has instructions for the elementary functions among them: ``functions/`` implements each
in terms of the other instructions, once for all kinds of generated code.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.numpy import special

TYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
"""The types of values. float16 and bfloat16 exist in memory only: values of them are float32."""

_NARROW = ("float16", "bfloat16")
MEMORY_TYPES = (*TYPES, *_NARROW)
"""The types that inputs and outputs may have in memory."""

_ITEM_BYTES = {name: np.dtype(name).itemsize for name in TYPES} | dict.fromkeys(_NARROW, 2)


def is_float(dtype: str) -> bool:
    """Whether a type of ``TYPES`` holds floating-point numbers."""
    return dtype.startswith("float")


def is_signed(dtype: str) -> bool:
    """Whether a type is a signed integer."""
    return dtype.startswith("int")


def item_size(dtype: str) -> int:
    """Bytes of an element in memory."""
    return _ITEM_BYTES[dtype]


def bit_width(dtype: str) -> int:
    """The number of bits of a value."""
    return 1 if dtype == "bool" else 8 * _ITEM_BYTES[dtype]


def value_type(dtype: str) -> str:
    """The type of values read from a type in memory: small floats are widened."""
    return "float32" if dtype in _NARROW else dtype


class Instruction(NamedTuple):
    """A scalar instruction: number of operands, operand types, result type, NumPy's function.

    ``takes`` is "number", "float", "integer" (with bool), "bool" or "any"; all operands have one
    type, except that a select's first is bool. ``gives`` is "same" (the type of the last operand),
    "bool", or "stated" (given by an attribute).
    """

    operands: int
    takes: str
    gives: str
    numpy: str | None


def _rows(takes: str, gives: str, operands: int, names: str) -> dict[str, Instruction]:
    """Instructions of one signature; ``name=other`` is NumPy's name, ``name=`` means none."""
    found = {}
    for word in names.split():
        name, given, numpy = word.partition("=")
        found[name] = Instruction(operands, takes, gives, (numpy or None) if given else name)
    return found


INSTRUCTIONS: dict[str, Instruction] = {
    **_rows("number", "same", 1, "negative abs sign square"),
    **_rows("number", "same", 2, "add subtract multiply floor_divide remainder maximum minimum"),
    **_rows("float", "same", 1, "floor ceil trunc round=rint sqrt reciprocal rsqrt="),
    **_rows("float", "same", 2, "divide copysign fmod nextafter hypot"),
    **_rows("float", "same", 3, "fma="),
    **_rows("any", "bool", 2, "equal not_equal less less_equal greater greater_equal"),
    **_rows("float", "bool", 1, "isfinite isinf isnan signbit"),
    **_rows("bool", "bool", 1, "logical_not"),
    **_rows("bool", "bool", 2, "logical_and logical_or logical_xor"),
    **_rows("integer", "same", 1, "bitwise_invert"),
    **_rows("integer", "same", 2, "bitwise_and bitwise_or bitwise_xor"),
    **_rows("integer", "same", 2, "bitwise_left_shift bitwise_right_shift quotient="),
    **_rows("any", "same", 3, "select=where"),
    **_rows("any", "stated", 1, "convert= bitcast="),
    # Elementary and special functions, implemented in functions/.
    **_rows("float", "same", 1, "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh"),
    **_rows("float", "same", 1, "asin=arcsin acos=arccos atan=arctan"),
    **_rows("float", "same", 1, "asinh=arcsinh acosh=arccosh atanh=arctanh"),
    **_rows("float", "same", 1, "erf= erfc= lgamma= sigmoid="),
    **_rows("float", "same", 2, "power atan2=arctan2"),
}


SAME_BITS = frozenset(
    "abs add ceil copysign divide equal floor greater greater_equal isfinite isinf isnan less"
    " less_equal logical_and logical_not logical_or logical_xor multiply negative not_equal"
    " reciprocal round select sign signbit sqrt square subtract trunc".split()
)
"""Correctly rounded instructions, on which NumPy and machine code agree."""


GENERATORS = ("position", "extent", "random_bits")
"""Instructions that make values from the index space itself."""


_STANDARD = {"power": "pow", "rint": "round"}  # the array standard's names, if not NumPy's


class ArrayInstructions:
    """The instructions on arrays of NumPy or a similar library; missing ones are implemented."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def __getattr__(self, name: str) -> Any:
        instruction = INSTRUCTIONS.get(name)
        if instruction is None or instruction.numpy is None:
            raise AttributeError(f"{name!r} is not a scalar instruction that NumPy computes")
        found = getattr(self.xp, instruction.numpy, None)
        return found or getattr(self.xp, _STANDARD.get(instruction.numpy, instruction.numpy))

    # Missing in NumPy.

    def constant(self, value: Any, dtype: str) -> Any:
        """A number of a type."""
        return self.xp.asarray(value, dtype=dtype)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """A * b + c, rounded twice."""
        return a * b + c

    def rsqrt(self, x: Any) -> Any:
        """1 / sqrt(x)."""
        return 1 / self.xp.sqrt(x)

    def quotient(self, a: Any, b: Any) -> Any:
        """Integer division, rounded towards 0; by 0 it gives 0."""
        xp = self.xp
        with np.errstate(divide="ignore", over="ignore"):
            down = xp.floor_divide(a, b)
            # Rounded down: correct by one if that was away from 0.
            found = down + ((down < 0) & (xp.remainder(a, b) != 0))
            return xp.asarray(found).astype(xp.result_type(a, b))

    def convert(self, x: Any, dtype: str) -> Any:
        """The value in another type."""
        return self.xp.asarray(x).astype(dtype)

    def bitcast(self, x: Any, dtype: str) -> Any:
        """The bits as another type of the same size."""
        return self.xp.asarray(x).view(dtype)

    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + exp(-x)); 0 if the exponential overflows."""
        return 1 / (1 + self.xp.exp(-x))

    def erf(self, x: Any) -> Any:
        """The error function."""
        return special.erf(self.xp, x)

    def erfc(self, x: Any) -> Any:
        """1 - erf(x)."""
        return special.erfc(self.xp, x)

    def lgamma(self, x: Any) -> Any:
        """The logarithm of |gamma(x)|."""
        return special.lgamma(self.xp, x)


ARRAY_REDUCTIONS = {name: name for name in ("all", "any", "max", "mean", "min", "sum")}
ARRAY_REDUCTIONS["product"] = "prod"
"""The reductions of rows, with the names of array libraries."""


class RowInstructions(ArrayInstructions):
    """The instructions on arrays like ``x``, with rows "n" along some of its axes.

    ``axes`` are counted from the front. Reductions keep these axes, with size 1.
    """

    def __init__(self, xp: Any, x: Any, axes: tuple[int, ...]) -> None:
        super().__init__(xp)
        self.shape = x.shape
        self.axes = {"n": axes, "m": tuple(i for i in range(x.ndim) if i not in axes)}

    def __getattr__(self, name: str) -> Any:
        function = ARRAY_REDUCTIONS.get(name)
        if function is None:
            return super().__getattr__(name)
        reduce = getattr(self.xp, function)
        return lambda x, axes: reduce(x, axis=self.axes[axes], keepdims=True)

    def extent(self, axes: str, dtype: Any) -> Any:
        """The number of elements along axes, as an array without axes."""
        return self.xp.asarray(math.prod(self.shape[i] for i in self.axes[axes]), dtype=dtype)

    def position(self, axes: str) -> Any:
        """The index along an axis, for each element of a row."""
        (axis,) = self.axes[axes]
        size = self.shape[axis]
        shape = tuple(size if i == axis else 1 for i in range(len(self.shape)))
        return self.xp.reshape(self.xp.arange(size), shape)


@cache
def instructions(xp: Any) -> ArrayInstructions:
    """The instructions on arrays of a library."""
    return ArrayInstructions(xp)


NUMPY = instructions(np)
