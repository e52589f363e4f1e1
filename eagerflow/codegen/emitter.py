"""The common base of emitters of scalar instructions, for any target language."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import INSTRUCTIONS, bit_width, is_float, is_signed

MATH_NAMES = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "fma": "fma",
    "copysign": "copysign",
}
"""From instructions on floats to their common name in C and LLVM."""


class ScalarEmitter:
    """The scalar instructions, each of which appends code and returns the operand of its result.

    Operands are those of the target language, or Python numbers, which take the type of the other
    operand. A subclass has tables of target names of instructions, and methods that write these:
    ``_binary`` for ``operators``, ``_compare`` for ``comparisons``, ``_call`` for ``math_names``;
    ``_function`` writes a function of ``functions/`` by name.
    """

    operators: ClassVar[dict[str, Any]]
    comparisons: ClassVar[dict[str, Any]]
    math_names: ClassVar[dict[str, str]] = MATH_NAMES
    literal: Callable[[Any, str], Any]
    """A number as an operand."""
    _together: Callable[[tuple[Any, ...]], list[Any]]
    """Operands of one type, some of which may be numbers."""

    def __init_subclass__(cls) -> None:
        assert {*cls.operators, *cls.comparisons, *cls.math_names} <= set(INSTRUCTIONS)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.operators:
            return partial(self._binary, self.operators[name])
        if name in self.comparisons:
            return partial(self._compare, self.comparisons[name])
        if name in self.math_names:
            return partial(self._call, self.math_names[name])
        if name in FUNCTIONS:
            return partial(self._function, name)
        raise AttributeError(f"{name!r} is not a scalar instruction")

    def constant(self, value: Any, dtype: str) -> Any:
        """A number with an explicit type."""
        return self.literal(value, dtype)

    def _call(self, name: str, *operands: Any) -> Any:
        known = self._together(operands)
        x, *_ = known
        if is_float(x.dtype):
            return self._call_of_floats(name, *known)
        assert name == "fabs", f"{name} of integers"
        return self._absolute(x) if is_signed(x.dtype) else x

    def quotient(self, a: Any, b: Any) -> Any:
        """Integer division, rounded towards 0; by 0 it gives 0, overflow wraps."""
        a, b = self._together((a, b))
        zero = self.equal(b, 0)
        guarded = zero
        if is_signed(a.dtype):
            least = self.equal(a, -(1 << (bit_width(a.dtype) - 1)))
            guarded = self.logical_or(zero, self.logical_and(least, self.equal(b, -1)))
        # Both trap on the machine; the least number divided by 1 is the wrapped result.
        b = self.select(guarded, 1, b)
        return self.select(zero, 0, self._divided(a, b))

    def negative(self, x: Any) -> Any:
        """The negated number; integers wrap."""
        return self._negated(x) if is_float(x.dtype) else self.subtract(0, x)

    def logical_not(self, x: Any) -> Any:
        """Logical negation."""
        return self.logical_xor(x, True)

    def bitwise_invert(self, x: Any) -> Any:
        """Bitwise complement."""
        return self.bitwise_xor(x, True if x.dtype == "bool" else -1)

    def convert(self, x: Any, dtype: str) -> Any:
        """The value in another type; floats beyond an integer's range saturate."""
        if dtype == x.dtype:
            return x
        if dtype == "bool":
            return self.not_equal(x, 0)
        if is_float(x.dtype) and not is_float(dtype):
            return self._saturated(x, dtype)
        return self._converted(x, dtype)
