"""The scalar instructions as CUDA C.

The compiler must neither contract nor approximate operations, or the GPU's bits would differ from
the CPU's: the text is compiled with ``--fmad=false`` and without fast math. Integers are added and
multiplied as unsigned ones, which wrap. Not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from eagerflow.codegen.emitter import MATH_NAMES, ScalarEmitter
from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import bit_width, is_float, is_signed
from eagerflow.codegen.reductions import JOINS, identity

_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
_IN_MEMORY = {"bool": "bool_byte", "float16": "half_bits", "bfloat16": "bfloat_bits"}
_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
}
_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_CASTS = {
    ("float32", "int32"): "__float_as_int",
    ("int32", "float32"): "__int_as_float",
    ("float64", "int64"): "__double_as_longlong",
    ("int64", "float64"): "__longlong_as_double",
}


class CudaOperand(NamedTuple):
    """A value in the code: a side-effect-free expression, and its type."""

    text: str
    dtype: str


def c_type(dtype: str) -> str:
    """CUDA's name of a type of values."""
    return _TYPES[dtype]


def memory_type(dtype: str) -> str:
    """The name of a type in memory; some are structures in ``prelude``."""
    return _IN_MEMORY.get(dtype) or _TYPES[dtype]


def _unsigned(dtype: str) -> str:
    """The unsigned type for computations with integers of a type."""
    return "unsigned long long" if bit_width(dtype) == 64 else "unsigned int"


def literal(value: Any, dtype: str) -> CudaOperand:
    """A constant.

    >>> literal(0.1, "float32").text
    '0.1f'
    >>> literal(-(2**31), "int32").text
    '(-2147483647 - 1)'
    """
    if dtype == "bool":
        return CudaOperand("true" if value else "false", dtype)
    if is_float(dtype):
        return CudaOperand(_float(value, dtype), dtype)
    number = int(value)
    suffix = {"uint32": "u", "int64": "ll", "uint64": "ull"}.get(dtype, "")
    if is_signed(dtype) and number == -(2 ** (bit_width(dtype) - 1)):
        text = f"({number + 1}{suffix} - 1)"  # C has no negative literals, only negated ones
    else:
        text = f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"
    return CudaOperand(f"({_TYPES[dtype]}){text}" if bit_width(dtype) < 32 else text, dtype)


def _float(value: Any, dtype: str) -> str:
    number = np.dtype(dtype).type(value)
    if np.isfinite(number):
        text = repr(float(number)) if dtype == "float64" else f"{number!s}f"
        return f"({text})" if text.startswith("-") else text
    if dtype == "float64":
        bits = 0x7FF8 if np.isnan(number) else 0x7FF0 if number > 0 else 0xFFF0
        return f"__longlong_as_double((long long)0x{bits:04x}000000000000ull)"
    bits = 0x7FC0 if np.isnan(number) else 0x7F80 if number > 0 else 0xFF80
    return f"__int_as_float((int)0x{bits:04x}0000u)"


class CudaCode:
    """The text of a function under construction; functions that it calls are written with it."""

    def __init__(self, functions: dict[str, tuple[str, str]] | None = None) -> None:
        self.lines: list[str] = []
        self.functions = {} if functions is None else functions  # name to text, type of result
        self.depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        """Append a line that opens a block."""
        self.line(f"{text} {{" if text else "{")
        self.depth += 1

    def close(self) -> None:
        """End the block."""
        self.depth -= 1
        self.line("}")

    def value(self, text: str, dtype: str, name: str = "") -> CudaOperand:
        """Append a line that assigns a value to a new name."""
        if not name:
            self._count += 1
            name = f"t{self._count}"
        self.line(f"const {_TYPES[dtype]} {name} = {text};")
        return CudaOperand(name, dtype)

    def define(self, name: str, write: Callable[..., CudaOperand], dtypes: list[str]) -> str:
        """The name of the device function written by ``write`` for operands of these types."""
        full = "_".join([name, *dict.fromkeys(dtypes)])
        if full not in self.functions:
            inner = CudaCode(self.functions)
            operands = [CudaOperand("abcdefgh"[i], dtype) for i, dtype in enumerate(dtypes)]
            result = write(CudaEmitter(inner), *operands)
            inner.line(f"return {result.text};")
            given = ", ".join(f"{_TYPES[o.dtype]} {o.text}" for o in operands)
            head = f"static __device__ __forceinline__ {_TYPES[result.dtype]} {full}({given}) {{"
            text = "\n".join([head, *inner.lines, "}"])
            self.functions[full] = text, result.dtype
        return full


def join(code: CudaCode, reduction: str, dtype: str) -> str:
    """The name of the device function that combines two parts of a reduction."""

    def write(s: CudaEmitter, a: CudaOperand, b: CudaOperand) -> CudaOperand:
        return getattr(s, JOINS[reduction])(a, b)  # type: ignore[no-any-return]

    return code.define(f"join_{reduction}", write, [dtype, dtype])


def neutral(reduction: str, dtype: str) -> CudaOperand:
    """The result of a reduction of nothing."""
    return literal(identity(reduction, dtype), dtype)


class CudaEmitter(ScalarEmitter):
    """The scalar instructions on CudaOperands; those of ``functions/`` become device functions."""

    operators, comparisons = _OPERATORS, _COMPARISONS
    # These are the names for float64; those for float32 end in f.
    math_names: ClassVar[dict[str, str]] = MATH_NAMES | {"nextafter": "nextafter", "fmod": "fmod"}
    literal = staticmethod(literal)

    def __init__(self, code: CudaCode) -> None:
        self.code = code

    # Operands ------------------------------------------------------------------------------------

    @staticmethod
    def _together(operands: tuple[Any, ...]) -> list[CudaOperand]:
        """Operands, with numbers in the type of the first typed one."""
        dtype = next(x.dtype for x in operands if isinstance(x, CudaOperand))
        return [x if isinstance(x, CudaOperand) else literal(x, dtype) for x in operands]

    def _function(self, name: str, *operands: Any) -> CudaOperand:
        known = self._together(operands)
        full = self.code.define(name, FUNCTIONS[name], [x.dtype for x in known])
        given = ", ".join(x.text for x in known)
        return self.code.value(f"{full}({given})", self.code.functions[full][1])

    # Arithmetic ----------------------------------------------------------------------------------

    def _binary(self, operator: str, *operands: Any) -> CudaOperand:
        a, b = self._together(operands)
        text = f"{a.text} {operator} {b.text}"
        if a.dtype == "bool" or is_float(a.dtype):
            return self.code.value(text, a.dtype)
        wide = _unsigned(a.dtype)
        text = f"({_TYPES[a.dtype]})(({wide}){a.text} {operator} ({wide}){b.text})"
        return self.code.value(text, a.dtype)

    def _compare(self, operator: str, *operands: Any) -> CudaOperand:
        a, b = self._together(operands)
        return self.code.value(f"{a.text} {operator} {b.text}", "bool")

    def _call_of_floats(self, name: str, *operands: CudaOperand) -> CudaOperand:
        suffix = "f" if operands[0].dtype == "float32" else ""
        given = ", ".join(o.text for o in operands)
        return self.code.value(f"{name}{suffix}({given})", operands[0].dtype)

    def _absolute(self, x: CudaOperand) -> CudaOperand:
        return self.select(self.less(x, 0), self.negative(x), x)

    def minimum(self, a: Any, b: Any) -> CudaOperand:
        """The smaller number; NaN if one is, and -0 is less than 0."""
        return self._extreme("minimum", "<", a, b)

    def maximum(self, a: Any, b: Any) -> CudaOperand:
        """The larger number; NaN if one is, and -0 is less than 0."""
        return self._extreme("maximum", ">", a, b)

    def _extreme(self, name: str, operator: str, *operands: Any) -> CudaOperand:
        a, b = self._together(operands)
        chosen = f"{a.text} {operator} {b.text} ? {a.text} : {b.text}"
        text = f"{name}({a.text}, {b.text})" if is_float(a.dtype) else chosen
        return self.code.value(text, a.dtype)

    def _divided(self, a: CudaOperand, b: CudaOperand) -> CudaOperand:
        return self.code.value(f"({_TYPES[a.dtype]})({a.text} / {b.text})", a.dtype)

    def _negated(self, x: CudaOperand) -> CudaOperand:
        return self.code.value(f"-{x.text}", x.dtype)

    def select(self, condition: CudaOperand, a: Any, b: Any) -> CudaOperand:
        """``a`` where the condition is true, else ``b``."""
        a, b = self._together((a, b))
        return self.code.value(f"{condition.text} ? {a.text} : {b.text}", a.dtype)

    # Bits ----------------------------------------------------------------------------------------

    def bitwise_left_shift(self, x: CudaOperand, count: Any) -> CudaOperand:
        """Left shift; counts beyond the width give 0."""
        wide = _unsigned(x.dtype)
        return self._shift(x, count, f"({wide}){x.text} <<", literal(0, x.dtype).text)

    def bitwise_right_shift(self, x: CudaOperand, count: Any) -> CudaOperand:
        """Right shift; signed numbers keep their sign."""
        beyond = f"{x.text} >> {bit_width(x.dtype) - 1}" if is_signed(x.dtype) else "0"
        return self._shift(x, count, f"{x.text} >>", beyond)

    def _shift(self, x: CudaOperand, count: Any, moved: str, beyond: str) -> CudaOperand:
        kind = _TYPES[x.dtype]
        if not isinstance(count, CudaOperand):
            inside = 0 <= count < bit_width(x.dtype)
            return self.code.value(f"({kind})({f'{moved} {count}' if inside else beyond})", x.dtype)
        # In C, shifts by the width or more are undefined; in NumPy they are not.
        inside = f"({_unsigned(x.dtype)}){count.text} < {bit_width(x.dtype)}u"
        return self.code.value(f"({kind})({inside} ? {moved} {count.text} : {beyond})", x.dtype)

    # Types ---------------------------------------------------------------------------------------

    def _converted(self, x: CudaOperand, dtype: str) -> CudaOperand:
        return self.code.value(f"({_TYPES[dtype]}){x.text}", dtype)

    def _saturated(self, x: CudaOperand, dtype: str) -> CudaOperand:
        info = np.iinfo(dtype)
        low, high = literal(info.min, dtype).text, literal(info.max, dtype).text
        below, above = literal(info.min, x.dtype).text, literal(float(info.max) + 1, x.dtype).text
        if info.bits == 64:  # float(...) rounds the largest integer to the next one
            above = literal(float(info.max), x.dtype).text
        kinds = f"{_TYPES[dtype]}, {_TYPES[x.dtype]}"
        return self.code.value(
            f"saturate<{kinds}>({x.text}, {low}, {high}, {below}, {above})", dtype
        )

    def bitcast(self, x: CudaOperand, dtype: str) -> CudaOperand:
        """The bits as another type of the same size."""
        if is_float(x.dtype) == is_float(dtype):
            return self._converted(x, dtype)
        bits = bit_width(dtype)
        if is_float(x.dtype):
            text = f"{_CASTS[x.dtype, f'int{bits}']}({x.text})"
            return self.code.value(f"({_TYPES[dtype]}){text}", dtype)
        text = f"{_CASTS[f'int{bits}', dtype]}(({_TYPES[f'int{bits}']}){x.text})"
        return self.code.value(text, dtype)
