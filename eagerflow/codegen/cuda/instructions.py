"""The scalar instructions as CUDA C.

Nothing may be contracted or made approximate behind our back, or the GPU would compute other
bits than the CPU: the text is compiled with ``--fmad=false`` and without fast math. Integers
are added and multiplied as unsigned ones, which wrap. Not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import INSTRUCTIONS, bit_width, is_float, is_signed
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
_CALLS = {  # of floats: CUDA's names for float64; those for float32 end in f
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "fma": "fma",
    "copysign": "copysign",
    "nextafter": "nextafter",
    "fmod": "fmod",
}
_CASTS = {
    ("float32", "int32"): "__float_as_int",
    ("int32", "float32"): "__int_as_float",
    ("float64", "int64"): "__double_as_longlong",
    ("int64", "float64"): "__longlong_as_double",
}


class CudaOperand(NamedTuple):
    """A value in the code: an expression without effects, and its type."""

    text: str
    dtype: str


def c_type(dtype: str) -> str:
    """CUDA's name of a type of values."""
    return _TYPES[dtype]


def memory_type(dtype: str) -> str:
    """The name of a type in memory; some are structures of ``support``."""
    return _IN_MEMORY.get(dtype) or _TYPES[dtype]


def _unsigned(dtype: str) -> str:
    """The unsigned type in which integers of a type are computed."""
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
    """The text of a function while it is written; the functions it calls are written with it."""

    def __init__(self, functions: dict[str, tuple[str, str]] | None = None) -> None:
        self.lines: list[str] = []
        self.functions = {} if functions is None else functions  # name to text, type of result
        self.depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        """Append a line that begins a block."""
        self.line(f"{text} {{" if text else "{")
        self.depth += 1

    def close(self) -> None:
        """End the block."""
        self.depth -= 1
        self.line("}")

    def value(self, text: str, dtype: str, name: str = "") -> CudaOperand:
        """Append a line that names a value."""
        if not name:
            self._count += 1
            name = f"t{self._count}"
        self.line(f"const {_TYPES[dtype]} {name} = {text};")
        return CudaOperand(name, dtype)

    def define(self, name: str, write: Callable[..., CudaOperand], dtypes: list[str]) -> str:
        """The name of the device function that ``write`` writes for operands of these types."""
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
    """The name of the device function that joins two parts of a reduction."""

    def write(s: CudaEmitter, a: CudaOperand, b: CudaOperand) -> CudaOperand:
        return getattr(s, JOINS[reduction])(a, b)  # type: ignore[no-any-return]

    return code.define(f"join_{reduction}", write, [dtype, dtype])


def neutral(reduction: str, dtype: str) -> CudaOperand:
    """What a reduction gives of nothing."""
    return literal(identity(reduction, dtype), dtype)


class CudaEmitter:
    """The scalar instructions, each of which appends code and gives the CudaOperand of its result.

    Operands are Operands or Python numbers, which take the type of the other operand. The
    functions of ``functions/`` become device functions.
    """

    def __init__(self, code: CudaCode) -> None:
        self.code = code

    def __getattr__(self, name: str) -> Callable[..., CudaOperand]:
        if name in _OPERATORS:
            return partial(self._binary, _OPERATORS[name])
        if name in _COMPARISONS:
            return partial(self._compare, _COMPARISONS[name])
        if name in _CALLS:
            return partial(self._call, name)
        if name in ("minimum", "maximum"):
            return partial(self._extreme, name)
        if name in FUNCTIONS:
            return partial(self._function, name)
        raise AttributeError(f"{name!r} is not a scalar instruction")

    # Operands ------------------------------------------------------------------------------------

    @staticmethod
    def _together(operands: tuple[Any, ...]) -> list[CudaOperand]:
        """Operands, the numbers among them in the type of the first that has one."""
        dtype = next(x.dtype for x in operands if isinstance(x, CudaOperand))
        return [x if isinstance(x, CudaOperand) else literal(x, dtype) for x in operands]

    def constant(self, value: Any, dtype: str) -> CudaOperand:
        """A number of a type of its own."""
        return literal(value, dtype)

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

    def _call(self, name: str, *operands: Any) -> CudaOperand:
        known = self._together(operands)
        x = known[0]
        if not is_float(x.dtype):
            return self._of_integers(name, known)
        suffix = "f" if x.dtype == "float32" else ""
        given = ", ".join(o.text for o in known)
        return self.code.value(f"{_CALLS[name]}{suffix}({given})", x.dtype)

    def _of_integers(self, name: str, operands: list[CudaOperand]) -> CudaOperand:
        x = operands[0]
        if name == "abs" and is_signed(x.dtype):
            return self.select(self.less(x, 0), self.negative(x), x)
        if name == "fma":
            return self.add(self.multiply(x, operands[1]), operands[2])
        return x  # an integer already, or without a sign

    def _extreme(self, name: str, *operands: Any) -> CudaOperand:
        a, b = self._together(operands)
        operator = "<" if name == "minimum" else ">"
        chosen = f"{a.text} {operator} {b.text} ? {a.text} : {b.text}"
        text = f"{name}({a.text}, {b.text})" if is_float(a.dtype) else chosen
        return self.code.value(text, a.dtype)

    def quotient(self, a: Any, b: Any) -> CudaOperand:
        """Integers divided, rounded towards 0; by 0 gives 0, what overflows wraps."""
        a, b = self._together((a, b))
        return self.code.value(f"quotient<{_TYPES[a.dtype]}>({a.text}, {b.text})", a.dtype)

    def negative(self, x: CudaOperand) -> CudaOperand:
        """The number with its sign changed; integers wrap."""
        return self.code.value(f"-{x.text}", x.dtype) if is_float(x.dtype) else self.subtract(0, x)

    def select(self, condition: CudaOperand, a: Any, b: Any) -> CudaOperand:
        """``a`` where the condition holds, else ``b``."""
        a, b = self._together((a, b))
        return self.code.value(f"{condition.text} ? {a.text} : {b.text}", a.dtype)

    # Bits ----------------------------------------------------------------------------------------

    def logical_not(self, x: CudaOperand) -> CudaOperand:
        """Whether it does not hold."""
        return self.code.value(f"!{x.text}", "bool")

    def bitwise_invert(self, x: CudaOperand) -> CudaOperand:
        """All bits changed."""
        if x.dtype == "bool":
            return self.logical_not(x)
        return self.code.value(f"({_TYPES[x.dtype]})~{x.text}", x.dtype)

    def bitwise_left_shift(self, x: CudaOperand, count: Any) -> CudaOperand:
        """Bits moved up; counts beyond the width give 0."""
        wide = _unsigned(x.dtype)
        return self._shift(x, count, f"({wide}){x.text} <<", literal(0, x.dtype).text)

    def bitwise_right_shift(self, x: CudaOperand, count: Any) -> CudaOperand:
        """Bits moved down; signed numbers keep their sign."""
        beyond = f"{x.text} >> {bit_width(x.dtype) - 1}" if is_signed(x.dtype) else "0"
        return self._shift(x, count, f"{x.text} >>", beyond)

    def _shift(self, x: CudaOperand, count: Any, moved: str, beyond: str) -> CudaOperand:
        kind = _TYPES[x.dtype]
        if not isinstance(count, CudaOperand):
            inside = 0 <= count < bit_width(x.dtype)
            return self.code.value(f"({kind})({f'{moved} {count}' if inside else beyond})", x.dtype)
        # C leaves shifts by the width and more undefined; NumPy does not.
        inside = f"({_unsigned(x.dtype)}){count.text} < {bit_width(x.dtype)}u"
        return self.code.value(f"({kind})({inside} ? {moved} {count.text} : {beyond})", x.dtype)

    # Types ---------------------------------------------------------------------------------------

    def convert(self, x: CudaOperand, dtype: str) -> CudaOperand:
        """The value in another type; floats beyond an integer's range give its nearest end."""
        if dtype == x.dtype:
            return x
        if dtype == "bool":
            return self.not_equal(x, 0)
        if not is_float(x.dtype) or is_float(dtype):
            return self.code.value(f"({_TYPES[dtype]}){x.text}", dtype)
        info = np.iinfo(dtype)
        low, high = literal(info.min, dtype).text, literal(info.max, dtype).text
        below, above = literal(info.min, x.dtype).text, literal(float(info.max) + 1, x.dtype).text
        if info.bits == 64:  # the largest integer plus one is what float(...) rounds it to
            above = literal(float(info.max), x.dtype).text
        kinds = f"{_TYPES[dtype]}, {_TYPES[x.dtype]}"
        return self.code.value(
            f"saturate<{kinds}>({x.text}, {low}, {high}, {below}, {above})", dtype
        )

    def bitcast(self, x: CudaOperand, dtype: str) -> CudaOperand:
        """The bits as another type of the same size."""
        if is_float(x.dtype) == is_float(dtype):
            return self.code.value(f"({_TYPES[dtype]}){x.text}", dtype)
        bits = bit_width(dtype)
        if is_float(x.dtype):
            text = f"{_CASTS[x.dtype, f'int{bits}']}({x.text})"
            return self.code.value(f"({_TYPES[dtype]}){text}", dtype)
        text = f"{_CASTS[f'int{bits}', dtype]}(({_TYPES[f'int{bits}']}){x.text})"
        return self.code.value(text, dtype)


assert {*_OPERATORS, *_COMPARISONS, *_CALLS} <= set(INSTRUCTIONS)
