"""The loops around the scalar instructions, as CUDA C: one kernel for each task of a region.

Rows are traversed once for each level of dependent reductions; a row that fits in the registers of
its threads is loaded once, and the compiler eliminates recomputation from registers in later
passes. Nothing here was run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from eagerflow.codegen.cuda.binding import BROADCAST, COLUMNS, LINES, CudaLayout
from eagerflow.codegen.cuda.instructions import CudaOperand, c_type, join, neutral
from eagerflow.codegen.cuda.prelude import SUPPORT
from eagerflow.codegen.cuda.tasks import Task, identifier
from eagerflow.codegen.cuda.writer import KernelWriter, variable
from eagerflow.codegen.instructions import value_type
from eagerflow.codegen.region import Input, Output, Region, Statement


class Code(NamedTuple):
    """The text of kernels, and of the functions that they call, for use in any module."""

    functions: tuple[str, ...]
    kernels: tuple[str, ...]


def kernel_names(
    region: Region, tasks: Sequence[Task], layouts: Sequence[CudaLayout | None]
) -> list[str]:
    """Names of the kernels of a region's tasks, unique to their text."""
    about = f"{region.key} {[task.kind for task in tasks]} {layouts}"
    tag = blake2b(about.encode(), digest_size=6).hexdigest()
    return [f"{identifier(region.name)}_{number}_{tag}" for number in range(len(tasks))]


def code(region: Region, tasks: Sequence[Task], layouts: Sequence[CudaLayout | None]) -> Code:
    """A kernel for each task that has a layout."""
    functions: dict[str, tuple[str, str]] = {}
    kernels = ["\n".join(f"// {line}" for line in str(region).splitlines())]
    names = kernel_names(region, tasks, layouts)
    for name, task, layout in zip(names, tasks, layouts, strict=True):
        if layout is not None:
            kernels.append(_WRITERS[task.kind](task, layout, functions, name).text())
    return Code(tuple(text for text, _ in functions.values()), tuple(kernels))


def source(codes: Iterable[Code]) -> str:
    """The text of a module of all these kernels."""
    codes = list(codes)
    functions = dict.fromkeys(text for own in codes for text in own.functions)
    kernels = dict.fromkeys(text for own in codes for text in own.kernels)
    return "\n\n".join([SUPPORT.rstrip(), *functions, *kernels]) + "\n"


def parameters(task: Task, layout: CudaLayout) -> tuple[str, ...]:
    """Names of a kernel's numbers, in order, after the pointers."""
    return _WRITERS[task.kind](task, layout, {}, "").numbers()


class _Elements(KernelWriter):
    """A loop over packs of elements, with a thread for each."""

    def body(self) -> None:
        lanes, threads = self.layout.vector, self.layout.threads
        line, kind = self.code.line, self.index
        line(f"const {kind} packs = ({kind})((width + {lanes - 1}) / {lanes});")
        line(f"const {kind} items = ({kind})rows * packs;")
        line(f"const {kind} stride = ({kind})gridDim.x * {threads};")
        start = f"{kind} item = ({kind})blockIdx.x * {threads} + threadIdx.x"
        self.code.open(f"for ({start}; item < items; item += stride)")
        if self.layout.outer:
            line(f"const {kind} row = item / packs;")
            line(f"const long long first = (long long)(item - row * packs) * {lanes};")
        else:
            line(f"const long long first = (long long)item * {lanes};")
        self.count("width")
        self.row_places()
        self.draws()
        self.fixed_values(o.value for o in self.task.outputs)
        self.pack([], self.task.outputs, {})
        self.code.close()


class _Rows(KernelWriter):
    """Rows, each by some threads of a warp or by a block, in passes."""

    begin, end = "", "width"
    """The start and the end of the part of a row that is traversed."""

    def body(self) -> None:
        self._shared()
        self._open_rows()
        self.row_places()
        self.draws()
        self._passes()
        self.code.close()

    def _open_rows(self) -> None:
        """Append the loop over rows; ``there`` is whether some threads may have none."""
        lanes, line = self.layout.lanes, self.code.line
        each = self.layout.threads // lanes
        start = f"long long base = (long long)blockIdx.x * {each}"
        self.code.open(f"for ({start}; base < rows; base += (long long)gridDim.x * {each})")
        self.there = each > 1
        if self.there:
            # All lanes of a warp take part in its shuffles; those without a row repeat the last
            # one.
            line("const bool there = base + threadIdx.y < rows;")
        if self.layout.outer:
            row = "(there ? base + threadIdx.y : rows - 1)" if self.there else "base"
            line(f"const {self.index} row = ({self.index}){row};")

    def _shared(self) -> None:
        if self.layout.lanes > 32:
            for s in self.task.reductions:
                count = self.layout.lanes // 32
                self.code.line(f"__shared__ {c_type(s.dtype)} {variable(s.name)}_shared[{count}];")

    def _passes(self) -> None:
        plan, single = self.task.schedule, self.task.schedule.row_outputs()
        held = self._hold()
        # Expensive values that are needed again stay in registers, if a row fits in them.
        keeping = self.moving.intersection(plan.kept if self.layout.steps else ())
        registers = {name: f"{variable(name)}_row" for name in sorted(keeping)}
        for name, row in registers.items():
            self._row_of_packs(self.task.statement(name).dtype, row)
        for number, own in enumerate(plan.passes):
            self._fixed_up_to(number)
            self.kept = keeping.intersection(own.kept)
            self._pass(own.reductions, own.outputs, held)
            for name in self.kept:
                dtype = self.task.statement(name).dtype
                self.known[name] = CudaOperand(f"{registers[name]}[step][k]", dtype)
        self._fixed_up_to(len(plan.passes))
        if single:
            self._single(single)

    def _row_of_packs(self, dtype: str, name: str) -> None:
        """Append registers for a row."""
        self.code.line(f"{c_type(dtype)} {name}[{self.layout.steps}][{self.layout.vector}];")

    def _fixed_up_to(self, number: int) -> None:
        """Append values that are invariant in the innermost loop, after a number of passes."""
        depths = self.task.schedule.depths
        wanted = [n for n, depth in depths.items() if depth <= number and n not in self.moving]
        self.fixed_values(wanted)

    def _hold(self) -> dict[str, str]:
        """Append the loads of a whole row into registers, if it has few enough packs."""
        if not self.layout.steps:
            return {}
        self._fixed_up_to(0)
        parts = [p for p in self.inputs() if p.name in self.moving and self.is_packed_load(p)]
        for part in parts:
            self._row_of_packs(value_type(part.dtype), f"{variable(part.name)}_row")
        self._open_steps()
        for part in parts:
            self.load_pack(part, f"{variable(part.name)}_row[step]")
        self.code.close()
        return {p.name: f"{variable(p.name)}_row[step]" for p in parts}

    def _open_steps(self) -> None:
        lanes, steps = self.layout.lanes, self.layout.steps
        self.code.line("#pragma unroll")
        self.code.open(f"for (int step = 0; step < {steps}; ++step)")
        at = f"((long long)step * {lanes} + threadIdx.x) * {self.layout.vector}"
        self.code.line(f"const long long first = {at};")
        self.count("width")

    def _pass(
        self, reductions: list[Statement], outputs: list[Output], held: dict[str, str]
    ) -> None:
        lanes = self.layout.vector
        for s in reductions:
            name = f"{variable(s.name)}_parts"
            start = neutral(s.instruction, s.dtype).text
            self.code.line(f"{c_type(s.dtype)} {name}[{lanes}];")
            self.code.line("#pragma unroll")
            self.code.line(f"for (int k = 0; k < {lanes}; ++k) {name}[k] = {start};")
        if self.layout.steps:
            self._open_steps()
        else:
            self._open_loop()
        if self.there and outputs:
            self.code.line("if (!there) count = 0;")
        self.pack(reductions, outputs, held)
        self.code.close()
        for s in reductions:
            self._reduce(s)

    def _open_loop(self) -> None:
        begin = f"{self.begin}(long long)threadIdx.x * {self.layout.vector}"
        step = self.layout.lanes * self.layout.vector
        self.code.open(f"for (long long first = {begin}; first < {self.end}; first += {step})")
        self.count(self.end)

    def count(self, end: str) -> None:
        """Append the number of existing elements of the pack."""
        super().count(end)
        if self.there:
            self.code.lines[-1] = self.code.lines[-1].replace("const int count", "int count")

    def _reduce(self, s: Statement) -> None:
        name, kind = variable(s.name), c_type(s.dtype)
        which = join(self.code, s.instruction, s.dtype)
        if self.layout.lanes > 32:
            text = (
                f"reduce_block<{kind}, {which}, {self.layout.lanes}>({name}_parts, {name}_shared)"
            )
        else:
            text = f"reduce_lanes<{kind}, {which}, {self.layout.lanes}>({name}_parts)"
        self.known[s.name] = self.code.value(text, s.dtype, name)

    def _single(self, outputs: list[Output]) -> None:
        """One number for each row, by its first thread."""
        if any(o.inplace for o in outputs):
            # All threads must have read the values that are overwritten now.
            self.code.line("__syncthreads();" if self.layout.lanes > 32 else "__syncwarp();")
        self.code.open(f"if (threadIdx.x == 0{' && there' if self.there else ''})")
        for out in outputs:
            name = self.names.of(out)
            place = self.place(name, *self._chunk_place(name))
            self.code.line(f"narrow({name}[{place}], {self.operand(out.value).text});")
        self.code.close()

    def _chunk_place(self, name: str) -> list[str]:
        return []


class _Chunks(_Rows):
    """Long rows, a piece of each by each block, in one pass: one number for each piece."""

    begin, end = "begin + ", "end"

    def _open_rows(self) -> None:
        self.there = False
        self.code.line("const long long begin = (long long)blockIdx.x * chunk;")
        self.code.line("const long long end = begin + chunk < width ? begin + chunk : width;")
        self.code.open("for (long long base = blockIdx.y; base < rows; base += gridDim.y)")
        if self.layout.outer:
            self.code.line(f"const {self.index} row = ({self.index})base;")

    def _chunk_place(self, name: str) -> list[str]:
        return [f"blockIdx.x * {name}_chunk"]


class _Columns(KernelWriter):
    """Columns, a piece of each by each block: lines of threads divide its rows."""

    def body(self) -> None:
        line = self.code.line
        for s in self.task.reductions:
            name, kind = variable(s.name), c_type(s.dtype)
            line(f"__shared__ {kind} {name}_shared[{LINES}][{COLUMNS + 1}];")
            line(f"{kind} {name}_parts = {neutral(s.instruction, s.dtype).text};")
        line(f"const long long column = (long long)blockIdx.x * {COLUMNS} + threadIdx.x;")
        line("const long long begin = (long long)blockIdx.y * chunk;")
        line("const long long end = begin + chunk < rows ? begin + chunk : rows;")
        self.code.open("if (column < width)")
        self.split_index(f"({self.index})column", "i")
        self._loop()
        self.code.close()
        for s in self.task.reductions:
            name = variable(s.name)
            line(f"{name}_shared[threadIdx.y][threadIdx.x] = {name}_parts;")
        line("__syncthreads();")
        self.code.open("if (threadIdx.y == 0 && column < width)")
        self.split_index(f"({self.index})column", "i")
        self._store()
        self.code.close()

    def _loop(self) -> None:
        roots = [str(s.operands[0]) for s in self.task.reductions]
        self.draws()
        self.fixed_values(roots)
        before = dict(self.known)
        self.code.open(f"for (long long at = begin + threadIdx.y; at < end; at += {LINES})")
        self.split_index(f"({self.index})at", "o")
        for part in self.needs(roots):
            if isinstance(part, Input):
                self.load_fixed(part)
            else:
                self.statement(part)
        for s in self.task.reductions:
            total = f"{variable(s.name)}_parts"
            which = join(self.code, s.instruction, s.dtype)
            self.code.line(f"{total} = {which}({total}, {self.operand(s.operands[0]).text});")
        self.code.close()
        self.known = before

    def place(self, name: str, *more: str) -> str:
        """The offset of a walk at a row and column; at row 0 if it does not vary with rows."""
        sides = [self.offset(name, "i")]
        if self.walks[name] != BROADCAST:
            sides.append(self.offset(name, "o"))
        return " + ".join([*sides, *(m for m in more if m != "0")])

    def step(self, name: str, index: str) -> str:
        """Nothing: ``place`` has done it."""
        return "0"

    def _store(self) -> None:
        for s in self.task.reductions:
            name, which = variable(s.name), join(self.code, s.instruction, s.dtype)
            self.code.line(f"{c_type(s.dtype)} {name} = {name}_shared[0][threadIdx.x];")
            each = f"{name} = {which}({name}, {name}_shared[line][threadIdx.x]);"
            self.code.line("#pragma unroll")
            self.code.line(f"for (int line = 1; line < {LINES}; ++line) {each}")
            self.known[s.name] = CudaOperand(name, s.dtype)
        for out in self.task.outputs:
            name = self.names.of(out)
            chunk = f" + blockIdx.y * {name}_chunk" if f"{name}_chunk" in self.numbers() else ""
            place = self.offset(name, "i") + chunk
            self.code.line(f"narrow({name}[{place}], {self.operand(out.value).text});")


_WRITERS: dict[str, type[KernelWriter]] = {
    "elements": _Elements,
    "rows": _Rows,
    "chunks": _Chunks,
    "columns": _Columns,
}
