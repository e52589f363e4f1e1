"""The scalar instructions: what an element-wise op may do to one element.

The set is small and closed. A scalar rule is a function of a namespace ``s`` that has these
names, and of one operand per argument: ``lambda s, x: s.multiply(x, s.sigmoid(x))``. The
namespace decides what calling them means; ``NUMPY`` computes on NumPy arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["INSTRUCTIONS", "NUMPY", "Instruction", "NumpyInstructions"]


class Instruction(NamedTuple):
    """A scalar instruction: number of operands, and NumPy's function where it has one."""

    operands: int
    numpy: str | None


_SAME_NAME = {
    1: "negative abs sign floor ceil trunc sqrt square reciprocal exp exp2 expm1 log log2 log10 "
    "log1p sin cos tan sinh cosh tanh isfinite isinf isnan logical_not bitwise_invert signbit "
    "real imag conj",
    2: "add subtract multiply divide floor_divide remainder maximum minimum equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift copysign nextafter hypot",
}

INSTRUCTIONS: dict[str, Instruction] = {
    name: Instruction(count, name) for count, names in _SAME_NAME.items() for name in names.split()
} | {
    "power": Instruction(2, "power"),
    "round": Instruction(1, "rint"),
    "asin": Instruction(1, "arcsin"),
    "acos": Instruction(1, "arccos"),
    "atan": Instruction(1, "arctan"),
    "atan2": Instruction(2, "arctan2"),
    "asinh": Instruction(1, "arcsinh"),
    "acosh": Instruction(1, "arccosh"),
    "atanh": Instruction(1, "arctanh"),
    "select": Instruction(3, "where"),
    "fma": Instruction(3, None),
    "erf": Instruction(1, None),
    "erfc": Instruction(1, None),
    "lgamma": Instruction(1, None),
    "digamma": Instruction(1, None),
    "sigmoid": Instruction(1, None),
    "rsqrt": Instruction(1, None),
}


class NumpyInstructions:
    """The instructions on NumPy arrays; those that NumPy lacks are spelled out."""

    def __getattr__(self, name: str) -> Any:
        instruction = INSTRUCTIONS.get(name)
        if instruction is None or instruction.numpy is None:
            raise AttributeError(f"{name!r} is not a scalar instruction that NumPy computes")
        return getattr(np, instruction.numpy)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """A * b + c."""
        return a * b + c

    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + exp(-x)), without overflow."""
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1, small) / (1 + small)

    def rsqrt(self, x: Any) -> Any:
        """1 / sqrt(x)."""
        return 1 / np.sqrt(x)


NUMPY = NumpyInstructions()
