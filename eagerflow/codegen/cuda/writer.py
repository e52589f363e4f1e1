"""Common parts of all kernels: signatures, positions of operands, values and packs.

Invariants of the innermost loop are loaded and computed before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eagerflow.codegen.cuda.binding import BROADCAST, PACKED, CudaLayout, Names
from eagerflow.codegen.cuda.instructions import (
    CudaCode,
    CudaEmitter,
    CudaOperand,
    c_type,
    join,
    literal,
    memory_type,
    neutral,
)
from eagerflow.codegen.cuda.tasks import CHUNK, Task, identifier
from eagerflow.codegen.instructions import value_type
from eagerflow.codegen.region import REDUCTIONS, Constant, Input, Output, Statement, dependencies


class KernelWriter:
    """A kernel under construction; each kind of task has a subclass.

    ``fixed`` are invariants of the innermost loop. ``known`` are the operands available at the
    current position.
    """

    def __init__(
        self, task: Task, layout: CudaLayout, functions: dict[str, tuple[str, str]], name: str
    ) -> None:
        self.task, self.layout, self.name = task, layout, name
        self.code = CudaCode(functions)
        self.emit = CudaEmitter(self.code)
        self.names = Names(task)
        self.known: dict[str, CudaOperand] = {}
        self.kept: set[str] = set()  # values of elements that stay in registers for later passes
        self.walks = dict(zip(self.names.names, layout.walks, strict=True))
        self.moving = self._find_moving()
        self.index = "long long" if layout.wide else "unsigned int"

    def _find_moving(self) -> set[str]:
        """Names of the values that vary in the innermost loop."""
        found: set[str] = set()
        for part in self.parts():
            if isinstance(part, Input):
                if self.walks[self.names.of(part)] != BROADCAST or part.gather in found:
                    found.add(part.name)
            elif part.instruction in ("position", "random_bits"):
                if self.walks[self.names.of(part)] != BROADCAST or found & set(part.operands):
                    found.add(part.name)
            elif part.instruction not in REDUCTIONS and found & set(part.operands):
                found.add(part.name)
        return found

    def inputs(self) -> list[Input]:
        """The inputs; index inputs of lookups come first."""
        return sorted(self.task.inputs, key=lambda p: p.gather is not None)

    def parts(self) -> list[Input | Statement]:
        """Inputs and statements in a valid order of computation."""
        return [*self.inputs(), *self.task.body]

    # The head ------------------------------------------------------------------------------------

    def numbers(self) -> tuple[str, ...]:
        """Names of the numeric parameters."""
        names = ["rows", "width"]
        names += ["chunk"] if self.task.kind in ("chunks", "columns") else []
        names += [f"size_{n}" for n in range(len(self.task.extents))]
        names += [f"o_size{n}" for n in range(1, self.layout.outer)]
        names += [f"i_size{n}" for n in range(1, self.layout.inner)]
        for part, name in self.names.items():
            names += [f"{name}_o{n}" for n in range(self.layout.outer)]
            if self.task.kind == "columns" or self.walks[name] not in (BROADCAST, PACKED):
                names += [f"{name}_i{n}" for n in range(self.layout.inner)]
            if isinstance(part, Input) and part.gather:
                names.append(f"{name}_rows")
            cut = CHUNK not in self.task.space and CHUNK in part.axes
            if isinstance(part, Output) and cut:
                names.append(f"{name}_chunk")
        return tuple(names)

    def text(self) -> str:
        """The whole kernel."""
        apart = "" if self.task.inplace else "__restrict__ "
        given = []
        for part, name in self.names.items():
            if not isinstance(part, Statement):
                const = "const " if isinstance(part, Input) else ""
                given.append(f"{const}{memory_type(part.dtype)} *{apart}{name}")
        given += [f"const long long {n}" for n in self.numbers()]
        self.body()
        head = f'extern "C" __global__ void __launch_bounds__({self.layout.threads})'
        return "\n".join([f"{head} {self.name}(", _wrapped(given), ") {", *self.code.lines, "}"])

    def body(self) -> None:
        """Append the body of the kernel."""
        raise NotImplementedError

    # Places --------------------------------------------------------------------------------------

    def split_index(self, flat: str, side: str) -> None:
        """Append the indices along the outer (o) or inner (i) axes of a flat index."""
        count = self.layout.outer if side == "o" else self.layout.inner
        rest = flat
        for n in range(count - 1, 0, -1):
            size = f"({self.index}){side}_size{n}"
            self.code.line(f"const {self.index} {side}_rest{n} = {rest} / {size};")
            self.code.line(f"const {self.index} {side}{n} = {rest} - {side}_rest{n} * {size};")
            rest = f"{side}_rest{n}"
        if count:
            self.code.line(f"const {self.index} {side}0 = {rest};")

    def offset(self, name: str, side: str) -> str:
        """The offset in elements for indices along the axes of a side."""
        count = self.layout.outer if side == "o" else self.layout.inner
        return " + ".join(f"{side}{n} * {name}_{side}{n}" for n in range(count)) or "0"

    def row_places(self) -> None:
        """Append the start of each walk in the current row."""
        self.split_index("row", "o")
        for name in self.names.names:
            if self.layout.outer:
                self.code.line(f"const long long {name}_at = {self.offset(name, 'o')};")

    def place(self, name: str, *more: str) -> str:
        """The offset of a walk in its row, plus an amount."""
        terms = [f"{name}_at"] if self.layout.outer else []
        return " + ".join([*terms, *more]) or "0"

    def step(self, name: str, index: str) -> str:
        """The offset of an element in the row."""
        if self.walks[name] == BROADCAST or not self.layout.inner:
            return "0"
        if self.layout.inner > 1:  # split_index has been written
            return self.offset(name, "i")
        return index if self.walks[name] == PACKED else f"({index}) * {name}_i0"

    # Values --------------------------------------------------------------------------------------

    def operand(self, operand: str | Constant) -> CudaOperand:
        """A value that is known at this position, or a number."""
        if isinstance(operand, Constant):
            return literal(operand.value, operand.dtype)
        return self.known[operand]

    def looked_up(self, part: Input) -> list[str]:
        """The offset of the looked-up row, if there is a lookup."""
        if part.gather is None:
            return []
        return [f"(long long){self.known[part.gather].text} * {self.names.of(part)}_rows"]

    def load_fixed(self, part: Input) -> None:
        """Append the load of an invariant of the innermost loop."""
        name = self.names.of(part)
        text = f"widen({name}[{self.place(name, *self.looked_up(part))}])"
        self._name(part, text, value_type(part.dtype))

    def _name(self, part: Input | Statement, text: str, dtype: str) -> None:
        """Append the line that names a value."""
        self.known[part.name] = self.code.value(text, dtype, variable(part.name))

    def statement(self, part: Statement, index: str = "") -> None:
        """Append one statement; ``index`` is the element's in the row."""
        if part.instruction in ("position", "random_bits"):
            name = self.names.of(part)
            at = self.place(name, self.step(name, index))
            given = ", ".join(self.operand(o).text for o in part.operands)
            method = "half" if part.dtype == "uint32" else "word"
            text = f"{name}_draw.{method}({given}, {at})" if given else f"(long long)({at})"
            self._name(part, text, part.dtype)
        elif part.instruction == "extent":
            size = CudaOperand(f"size_{self.task.extents.index(part)}", "int64")
            self._keep(part, self.emit.convert(size, part.dtype))
        else:
            operands: list[Any] = [self.operand(o) for o in part.operands]
            if part.instruction in ("convert", "bitcast"):
                operands.append(part.dtype)
            self._keep(part, getattr(self.emit, part.instruction)(*operands))

    def _keep(self, part: Statement, result: CudaOperand) -> None:
        """Give a result the name of its value: in its own line, if that is the last one."""
        name, lines = variable(part.name), self.code.lines
        begin = f"const {c_type(result.dtype)} {result.text} = "
        if lines and lines[-1].strip().startswith(begin) and result.text.startswith("t"):
            lines[-1] = lines[-1].replace(f" {result.text} = ", f" {name} = ", 1)
            self.known[part.name] = CudaOperand(name, result.dtype)
        else:
            self._name(part, result.text, result.dtype)

    def draws(self) -> None:
        """Append a generator's block for each statement that draws from it."""
        for part in self.task.body:
            if part.instruction == "random_bits":
                self.code.line(f"Philox {self.names.of(part)}_draw;")

    def needs(self, names: Iterable[str]) -> list[Input | Statement]:
        """The loads and statements that these values need, in order, except known ones."""
        wanted = dependencies(
            names, lambda n: () if n in self.known else self.task.statement(n).operands
        )
        return [p for p in self.parts() if p.name in wanted and p.name not in self.known]

    def fixed_values(self, names: Iterable[str]) -> None:
        """Append all invariants of the innermost loop that these values need."""
        for part in self.needs(names):
            if part.name in self.moving or part in self.task.reductions:
                continue
            if isinstance(part, Input):
                self.load_fixed(part)
            elif all(o in self.known for o in part.operands if isinstance(o, str)):
                self.statement(part)

    # The innermost loop, of packs ----------------------------------------------------------------

    def is_packed_load(self, part: Input) -> bool:
        """Whether the elements of a pack are loaded before the loop over them."""
        return self.layout.inner <= 1 and (part.gather is None or part.gather not in self.moving)

    def neighbours(self, name: str, *more: str) -> tuple[str, str, str]:
        """The access to neighbors of a row from ``first`` on.

        The suffix of the load and store functions, the start, and the stride.
        """
        if self.walks[name] == PACKED:
            return "pack", f"{name} + {self.place(name, *more, 'first')}", ""
        step = f"{name}_i0" if self.layout.inner else "0ll"
        return "each", f"{name} + {self.place(name, *more, f'first * {step}')}", f" {step},"

    def load_pack(self, part: Input, into: str) -> None:
        """Append the load of neighboring elements of a row."""
        name, lanes = self.names.of(part), self.layout.vector
        kind, start, step = self.neighbours(name, *self.looked_up(part))
        self.code.line(f"load_{kind}<{lanes}>({into}, {start},{step} count);")

    def load_each(self, part: Input) -> None:
        """Append the load of one element, if it exists."""
        name, dtype = self.names.of(part), value_type(part.dtype)
        place = self.place(name, *self.looked_up(part), self.step(name, "first + k"))
        text = f"k < count ? widen({name}[{place}]) : ({c_type(dtype)})0"
        self._name(part, text, dtype)

    def count(self, end: str) -> None:
        """Append the number of existing elements of the pack."""
        lanes = self.layout.vector
        self.code.line(
            f"const int count = {end} - first < {lanes} ? (int)({end} - first) : {lanes};"
        )

    def pack(
        self, reductions: Sequence[Statement], outputs: Sequence[Output], held: dict[str, str]
    ) -> None:
        """Append the processing of a pack: loads, the loop over its elements, stores.

        ``held`` are inputs with packs that are loaded already.
        """
        roots = [*(str(s.operands[0]) for s in reductions), *(o.value for o in outputs)]
        parts = self.needs(roots)
        before = dict(self.known)
        lanes, packs = self.layout.vector, dict(held)
        for part in parts:
            if isinstance(part, Input) and part.name not in held and self.is_packed_load(part):
                packs[part.name] = f"{variable(part.name)}_pack"
                self.code.line(f"{c_type(value_type(part.dtype))} {packs[part.name]}[{lanes}];")
                self.load_pack(part, packs[part.name])
        for out in outputs:
            self.code.line(f"{c_type(value_type(out.dtype))} {self.names.of(out)}_pack[{lanes}];")
        self.code.line("#pragma unroll")
        self.code.open(f"for (int k = 0; k < {lanes}; ++k)")
        if self.layout.inner > 1:
            self.split_index(f"({self.index})(first + k)", "i")
        for part in parts:
            if isinstance(part, Statement):
                self.statement(part, "first + k")
                if part.name in self.kept:
                    name = variable(part.name)
                    self.code.line(f"{name}_row[step][k] = {self.known[part.name].text};")
            elif part.name in packs:
                self.known[part.name] = CudaOperand(
                    f"{packs[part.name]}[k]", value_type(part.dtype)
                )
            else:
                self.load_each(part)
        for s in reductions:
            total = f"{variable(s.name)}_parts[k]"
            which = join(self.code, s.instruction, s.dtype)
            # Combine with the neutral element instead of a branch, so that the loop stays
            # straight-line.
            nothing = neutral(s.instruction, s.dtype).text
            value = f"k < count ? {self.operand(s.operands[0]).text} : {nothing}"
            self.code.line(f"{total} = {which}({total}, {value});")
        for out in outputs:
            self.code.line(f"{self.names.of(out)}_pack[k] = {self.operand(out.value).text};")
            if self.layout.inner > 1:
                name = self.names.of(out)
                place = self.place(name, self.step(name, ""))
                self.code.line(f"if (k < count) narrow({name}[{place}], {name}_pack[k]);")
        self.code.close()
        for out in outputs if self.layout.inner <= 1 else ():
            self._store_pack(out)
        self.known = before

    def _store_pack(self, out: Output) -> None:
        name, lanes = self.names.of(out), self.layout.vector
        kind, start, step = self.neighbours(name)
        self.code.line(f"store_{kind}<{lanes}>({start}, {name}_pack,{step} count);")


def variable(name: str) -> str:
    """The identifier of a value in the code."""
    return f"v_{identifier(name)}"


def _wrapped(parts: Iterable[str]) -> str:
    """Parameters in lines of at most a hundred characters."""
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > 92:
            lines.append("")
        lines[-1] += f"{part}, "
    return "\n".join(f"    {line.rstrip()}" for line in lines).rstrip(",")
