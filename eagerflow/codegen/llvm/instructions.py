"""The scalar instructions as LLVM IR, on scalars and vectors."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.emitter import ScalarEmitter
from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import bit_width, is_float, is_signed

_TYPES = {
    "bool": "i1",
    "float16": "half",
    "bfloat16": "bfloat",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}
_OPCODES = {  # float, signed, unsigned; bool counts as unsigned
    "add": ("fadd", "add", "add"),
    "subtract": ("fsub", "sub", "sub"),
    "multiply": ("fmul", "mul", "mul"),
    "divide": ("fdiv", "", ""),
    "fmod": ("frem", "", ""),
    "bitwise_and": ("", "and", "and"),
    "bitwise_or": ("", "or", "or"),
    "bitwise_xor": ("", "xor", "xor"),
    "logical_and": ("", "", "and"),
    "logical_or": ("", "", "or"),
    "logical_xor": ("", "", "xor"),
}
_COMPARISONS = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
    "greater": ("ogt", "sgt", "ugt"),
    "greater_equal": ("oge", "sge", "uge"),
}


class Operand(NamedTuple):
    """A value in the code: its name, its type, and its lanes (0: a scalar)."""

    text: str
    dtype: str
    lanes: int

    @property
    def type(self) -> str:
        """LLVM's name of its type."""
        return llvm_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        """Its type and its name, as an operand of instructions."""
        return f"{self.type} {self.text}"


def llvm_type(dtype: str, lanes: int = 0) -> str:
    """LLVM's name of a type, or of a vector of it."""
    return f"<{lanes} x {_TYPES[dtype]}>" if lanes else _TYPES[dtype]


def literal(value: Any, dtype: str, lanes: int = 0) -> Operand:
    """A constant; broadcast in vectors."""
    if dtype == "bool":
        text = "true" if value else "false"
    elif is_float(dtype):
        # A float constant is written as the bits of the double of the same value.
        exact = float(np.dtype(dtype).type(value))
        text = f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    else:
        text = str(int(value))
    return Operand(f"splat ({_TYPES[dtype]} {text})" if lanes else text, dtype, lanes)


class Code:
    """The text of a function under construction: lines, and unique names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # helpers that the code calls
        self.current = ""  # the current block
        self._entry = 0
        self._count = 0

    def name(self, hint: str = "v") -> str:
        """A name that no other value or label has."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append a line without a result."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Append a line with a result; returns its name."""
        name = "%" + self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Begin a block."""
        self.current = name
        self.lines.append(f"{name}:")
        if name == "entry":
            self._entry = len(self.lines) - 1

    def entry(self, text: str) -> str:
        """A value computed at the function's entry; returns its name."""
        name = "%" + self.name()
        self.lines[self._entry] += f"\n  {name} = {text}"
        return name

    def entry_line(self, text: str) -> None:
        """A line at the function's entry, after earlier ones."""
        self.lines[self._entry] += f"\n  {text}"

    def reserve(self) -> int:
        """Reserve a line that ``fill`` writes later; returns its index."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, line: int, text: str) -> None:
        """Write a line that was reserved."""
        self.lines[line] = f"  {text}"

    @contextmanager
    def loop(
        self,
        hint: str,
        first: str | int,
        end: str | int,
        step: str | int = 1,
        sums: list[Operand] | None = None,
    ) -> Iterator[tuple[str, list[Operand]]]:
        """A loop that counts from ``first`` up to ``end``; yields the counter, and the sums.

        The body of the ``with`` replaces elements of the sums' list by their next values. After it,
        the list holds the final sums.
        """
        first_sums = sums or []
        head, body, done = (self.name(f"{hint}_{word}_") for word in ("head", "body", "end"))
        before, counter = self.current, "%" + self.name(f"{hint}_")
        self.line(f"br label %{head}")
        self.label(head)
        lines = [self.reserve() for _ in range(1 + len(first_sums))]
        carried = [x._replace(text="%" + self.name("sum")) for x in first_sums]
        more = self.value(f"icmp ult i64 {counter}, {end}")
        self.line(f"br i1 {more}, label %{body}, label %{done}")
        self.label(body)
        found = list(carried)
        yield counter, found
        after = self.value(f"add i64 {counter}, {step}")
        self.fill(lines[0], f"{counter} = phi i64 [{first}, %{before}], [{after}, %{self.current}]")
        for line, held, x, new in zip(lines[1:], carried, first_sums, found, strict=True):
            text = f"[{x.text}, %{before}], [{new.text}, %{self.current}]"
            self.fill(line, f"{held.text} = phi {held.type} {text}")
        self.line(f"br label %{head}")
        self.label(done)
        found[:] = carried

    @contextmanager
    def function(self, head: str, result: str = "") -> Iterator[None]:
        """Context manager: the code within is a function of this name and arguments.

        It returns the 64-bit integer ``result``, or nothing.
        """
        self.lines.append(f"define {'i64' if result else 'void'} @{head} nounwind {{")
        self.label("entry")
        yield
        self.line(f"ret i64 {result}" if result else "ret void")
        self.lines.append("}")

    def text(self) -> str:
        """The complete text, with declarations of called functions."""
        parts = [*self.lines, *self.functions.values(), *self.declarations.values()]
        return "\n".join([*parts, ""])

    def number(self, operation: str, a: str | int, b: str | int) -> str:
        """Append arithmetic of 64-bit integers."""
        if operation == "mul" and b == 1:
            return str(a)
        return self.value(f"{operation} i64 {a}, {b}")

    def at(self, pointer: str, count: str | int, unit: str = "i8") -> str:
        """The address advanced by bytes, or by elements of another type."""
        if count == 0:
            return pointer
        return self.value(f"getelementptr {unit}, ptr {pointer}, i64 {count}")

    def step(self, pointer: str, count: str, size: str | int) -> str:
        """The address advanced by ``count`` times ``size`` bytes."""
        return self.at(pointer, self.number("mul", count, size))

    def word(self, kind: str, base: str, index: str | int, unit: str = "i64") -> str:
        """Load the word at an offset in words from an address, or in bytes if ``unit`` is i8."""
        return self.value(f"load {kind}, ptr {self.at(base, index, unit)}, align 8")

    def go_on(self, condition: str, otherwise: str) -> None:
        """Branch to another block if a condition is false."""
        after = self.name("on_")
        self.line(f"br i1 {condition}, label %{after}, label %{otherwise}")
        self.label(after)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Context manager: the code within runs if a condition is true; "" means always."""
        if not condition:
            yield
            return
        end = self.name("end_")
        self.go_on(condition, end)
        yield
        self.line(f"br label %{end}")
        self.label(end)

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """Append a call of an external function or intrinsic; the name of its result, if any."""
        kinds = ", ".join(kind for kind, _ in arguments)
        self.declarations[function] = f"declare {result} @{function}({kinds})"
        given = ", ".join(f"{kind} {text}" for kind, text in arguments)
        call = f"call {result} @{function}({given})"
        if result == "void":
            self.line(call)
            return ""
        return self.value(call)


class Emitter(ScalarEmitter):
    """The scalar instructions, on Operands; scalars are broadcast to vectors."""

    operators, comparisons = _OPCODES, _COMPARISONS
    literal = staticmethod(literal)

    def __init__(self, code: Code, avx512: bool = False) -> None:
        self.code = code
        self._avx512 = avx512

    # Operands ------------------------------------------------------------------------------------

    def _together(self, operands: tuple[Any, ...]) -> list[Operand]:
        """Operands of one type and the same number of lanes."""
        known = [x for x in operands if isinstance(x, Operand)]
        lanes = max(x.lanes for x in known)
        dtype = known[0].dtype
        found = []
        for x in operands:
            if not isinstance(x, Operand):
                x = literal(x, dtype, lanes)
            found.append(self.splat(x, lanes))
        return found

    def splat(self, x: Operand, lanes: int) -> Operand:
        """A scalar broadcast to a vector; a vector is returned as it is."""
        if x.lanes == lanes or not lanes:
            return x
        if not x.text.startswith("%"):
            return Operand(f"splat ({x.typed})", x.dtype, lanes)
        vector = llvm_type(x.dtype, lanes)
        one = self.code.value(f"insertelement {vector} poison, {x.typed}, i64 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        text = self.code.value(f"shufflevector {vector} {one}, {vector} poison, {mask}")
        return Operand(text, x.dtype, lanes)

    def value(self, text: str, like: Operand, dtype: str = "") -> Operand:
        """Append a line with a result of the type and lanes of another value, or of ``dtype``."""
        return Operand(self.code.value(text), dtype or like.dtype, like.lanes)

    def _function(self, name: str, *operands: Any) -> Any:
        return FUNCTIONS[name](self, *operands)

    def _call_of_floats(
        self, name: str, *operands: Operand, more: tuple[tuple[str, str], ...] = ()
    ) -> Operand:
        """An LLVM intrinsic on operands of one type, which is also the result type."""
        x = operands[0]
        full = f"llvm.{name}.{type_suffix(x.dtype, x.lanes)}"
        return x._replace(
            text=self.code.call(x.type, full, *((o.type, o.text) for o in operands), *more)
        )

    # Instructions that LLVM has ------------------------------------------------------------------

    def _binary(self, opcodes: tuple[str, str, str], a: Any, b: Any) -> Operand:
        a, b = self._together((a, b))
        return self.value(f"{opcodes[_kind_of(a.dtype)]} {a.typed}, {b.text}", a)

    def _compare(self, conditions: tuple[str, str, str], a: Any, b: Any) -> Operand:
        a, b = self._together((a, b))
        opcode = "fcmp" if is_float(a.dtype) else "icmp"
        return self.value(
            f"{opcode} {conditions[_kind_of(a.dtype)]} {a.typed}, {b.text}", a, "bool"
        )

    def _absolute(self, x: Operand) -> Operand:
        return self._call_of_floats("abs", x, more=(("i1", "false"),))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Operand:
        """A * b + c, rounded once if the processor has an instruction for it."""
        return self._call_of_floats("fmuladd", *self._together((a, b, c)))

    def maximum(self, a: Any, b: Any) -> Operand:
        """The larger number; NaN if one is NaN. Of two zeros it is either."""
        return self._extreme("maximum", "ogt", a, b)

    def minimum(self, a: Any, b: Any) -> Operand:
        """The smaller number; NaN if one is NaN. Of two zeros it is either."""
        return self._extreme("minimum", "olt", a, b)

    def larger(self, a: Operand, b: Operand) -> Operand:
        """The larger of two numbers; ``b`` if one is NaN."""
        return self.select(self.greater(a, b), a, b)

    def smaller(self, a: Operand, b: Operand) -> Operand:
        """The smaller of two numbers; ``b`` if one is NaN."""
        return self.select(self.less(a, b), a, b)

    def _extreme(self, name: str, condition: str, a: Any, b: Any) -> Operand:
        a, b = self._together((a, b))
        if not is_float(a.dtype):
            return self._call_of_floats(f"{'s' if is_signed(a.dtype) else 'u'}{name[:3]}", a, b)
        # The machine instruction returns ``b`` if a number is NaN, so only ``a`` is tested. LLVM's
        # own maximum also orders zeros by their sign, which takes twice as long.
        larger = self.select(self._compare((condition, "", ""), a, b), a, b)
        return self.select(self.not_equal(a, a), a, larger)

    def _divided(self, a: Operand, b: Operand) -> Operand:
        return self._binary(("", "sdiv", "udiv"), a, b)

    def _negated(self, x: Operand) -> Operand:
        return self.value(f"fneg {x.typed}", x)

    def select(self, condition: Operand, a: Any, b: Any) -> Operand:
        """``a`` where the condition is true, else ``b``."""
        if not isinstance(a, Operand) and not isinstance(b, Operand):
            raise TypeError("select needs a value of known type")
        a, b = self._together((a, b)) if isinstance(a, Operand) else self._together((b, a))[::-1]
        lanes = max(a.lanes, condition.lanes)
        condition, a, b = (self.splat(x, lanes) for x in (condition, a, b))
        return self.value(f"select {condition.typed}, {a.typed}, {b.typed}", a)

    def any_lane(self, x: Operand) -> Operand:
        """Whether any lane of a bool vector is true."""
        bits = self.code.value(f"bitcast {x.typed} to i{x.lanes}")
        return Operand(self.code.value(f"icmp ne i{x.lanes} {bits}, 0"), "bool", 0)

    def bitwise_left_shift(self, x: Operand, count: Any) -> Operand:
        """Left shift; counts beyond the width give 0."""
        return self._shift("shl", x, count)

    def bitwise_right_shift(self, x: Operand, count: Any) -> Operand:
        """Right shift; signed numbers keep their sign."""
        return self._shift("ashr" if is_signed(x.dtype) else "lshr", x, count)

    def _shift(self, opcode: str, x: Operand, count: Any) -> Operand:
        bits = bit_width(x.dtype)
        x, by = self._together((x, count))
        if isinstance(count, int):
            return self.value(f"{opcode} {x.typed}, {by.text}", x)
        # In LLVM, shifts by the width or more are undefined; in NumPy they are not.
        beyond = literal(bits - 1, x.dtype, x.lanes)
        wide = self._compare(("", "ugt", "ugt"), by, beyond)
        moved = self.value(f"{opcode} {x.typed}, {self.select(wide, beyond, by).text}", x)
        return moved if opcode == "ashr" else self.select(wide, 0, moved)

    def scale(self, x: Operand, exponent: Operand) -> Operand | None:
        """A number times 2^exponent, rounded once; None without an instruction for it."""
        bits = x.lanes * bit_width(x.dtype)
        if not self._avx512 or bits not in (128, 256, 512):
            return None
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if x.dtype == 'float32' else 'pd'}.{bits}"
        texts, mask = (x.text, exponent.text, "zeroinitializer"), f"i{max(x.lanes, 8)}"
        given = [*((x.type, text) for text in texts), (mask, "-1")]
        if bits == 512:
            given.append(("i32", "4"))  # rounded in the current mode
        return x._replace(text=self.code.call(x.type, name, *given))

    # Types ---------------------------------------------------------------------------------------

    def _saturated(self, x: Operand, dtype: str) -> Operand:
        target, sign = llvm_type(dtype, x.lanes), "s" if is_signed(dtype) else "u"
        types = f"{type_suffix(dtype, x.lanes)}.{type_suffix(x.dtype, x.lanes)}"
        name = f"llvm.fpto{sign}i.sat.{types}"
        return Operand(self.code.call(target, name, (x.type, x.text)), dtype, x.lanes)

    def _converted(self, x: Operand, dtype: str) -> Operand:
        target = llvm_type(dtype, x.lanes)
        return self.value(f"{_conversion(x.dtype, dtype)} {x.typed} to {target}", x, dtype)

    def bitcast(self, x: Operand, dtype: str) -> Operand:
        """The bits as another type of the same size."""
        target = llvm_type(dtype, x.lanes)
        if x.type == target:
            return x._replace(dtype=dtype)
        return self.value(f"bitcast {x.typed} to {target}", x, dtype)


def _kind_of(dtype: str) -> int:
    """0 for floats, 1 for signed integers, 2 for unsigned ones and bool."""
    return 0 if is_float(dtype) else 1 if is_signed(dtype) else 2


def type_suffix(dtype: str, lanes: int) -> str:
    """The suffix of LLVM's intrinsics for a type, or for a vector of it."""
    kind = _TYPES[dtype]
    return (f"v{lanes}" if lanes else "") + _SUFFIX.get(kind, kind)


def _conversion(source: str, target: str) -> str:
    """The opcode of a conversion that loses only precision, or high bits."""
    wider = bit_width(target) > bit_width(source)
    if is_float(source):
        return "fpext" if wider else "fptrunc"
    signed = is_signed(source)
    if is_float(target):
        return "sitofp" if signed else "uitofp"
    if bit_width(target) == bit_width(source):
        return "bitcast"
    return ("sext" if signed else "zext") if wider else "trunc"
