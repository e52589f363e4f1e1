"""The loops around the scalar instructions, as CUDA C: one kernel for each task of a region.

What is constant in the innermost loop is loaded and computed before it. Rows are walked once
for each level of reductions that depend on each other; where a row fits in the registers of
its threads it is loaded once, and what a later pass computes again from them the compiler finds
to be known. Nothing here was run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eagerflow.kernels.cuda.binding import (
    BROADCAST,
    COLUMNS,
    LINES,
    PACKED,
    Layout,
    Names,
)
from eagerflow.kernels.cuda.instructions import (
    Code,
    Emitter,
    Operand,
    c_type,
    identity,
    join,
    literal,
    memory_type,
)
from eagerflow.kernels.cuda.plan import CHUNK, Task
from eagerflow.kernels.cuda.support import SUPPORT
from eagerflow.kernels.region import (
    REDUCTIONS,
    Constant,
    Input,
    Output,
    Region,
    Statement,
    value_type,
)

__all__ = ["kernel_name", "parameters", "source"]


def kernel_name(region: Region, number: int) -> str:
    """The name of the kernel of a region's task."""
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in region.name)
    return f"{word}_{number}"


def source(region: Region, tasks: Sequence[Task], layouts: Sequence[Layout | None]) -> str:
    """The text of a module: a kernel for each task that has a layout."""
    functions: dict[str, tuple[str, str]] = {}
    kernels = []
    for number, (task, layout) in enumerate(zip(tasks, layouts, strict=True)):
        if layout is not None:
            name = kernel_name(region, number)
            kernels.append(_WRITERS[task.kind](task, layout, functions, name).text())
    heading = "\n".join(f"// {line}" for line in str(region).splitlines())
    bodies = [text for text, _ in functions.values()]
    return "\n\n".join([SUPPORT.rstrip(), heading, *bodies, *kernels]) + "\n"


def parameters(task: Task, layout: Layout) -> tuple[str, ...]:
    """Names of the numbers that a kernel is given, in order, after the pointers."""
    return _WRITERS[task.kind](task, layout, {}, "").numbers()


class _Writer:
    """One kernel while it is written; each kind of task has a subclass.

    ``fixed`` are values that the innermost loop does not change. ``known`` are the operands that
    may be used at the place that is being written.
    """

    def __init__(
        self, task: Task, layout: Layout, functions: dict[str, tuple[str, str]], name: str
    ) -> None:
        self.task, self.layout, self.name = task, layout, name
        self.code = Code(functions)
        self.emit = Emitter(self.code)
        self.names = Names(task)
        self.known: dict[str, Operand] = {}
        self.walks = dict(zip(self.names.names, layout.walks, strict=True))
        self.moving = self._find_moving()
        self.index = "long long" if layout.wide else "unsigned int"

    def _find_moving(self) -> set[str]:
        """Names of the values that differ from one step of the innermost loop to the next."""
        found: set[str] = set()
        for part in (*self._inputs(), *self.task.body):
            if isinstance(part, Input):
                if self.walks[self.names.of(part)] != BROADCAST or part.gather in found:
                    found.add(part.name)
            elif part.instruction in ("position", "random_bits"):
                if self.walks[self.names.of(part)] != BROADCAST or found & set(part.operands):
                    found.add(part.name)
            elif part.instruction not in REDUCTIONS and found & set(part.operands):
                found.add(part.name)
        return found

    def _inputs(self) -> list[Input]:
        """The inputs, those that are looked up after the others."""
        return sorted(self.task.inputs, key=lambda p: p.gather is not None)

    # The head ------------------------------------------------------------------------------------

    def numbers(self) -> tuple[str, ...]:
        """Names of the parameters that are numbers."""
        names = ["rows", "width"]
        names += ["chunk"] if self.task.kind in ("chunks", "columns") else []
        extents = [s for s in self.task.body if s.instruction == "extent"]
        names += [f"size_{n}" for n in range(len(extents))]
        names += [f"o_size{n}" for n in range(1, self.layout.outer)]
        names += [f"i_size{n}" for n in range(1, self.layout.inner)]
        for part, name in zip(self.names.parts, self.names.names, strict=True):
            names += [f"{name}_o{n}" for n in range(self.layout.outer)]
            if self.task.kind == "columns" or self.walks[name] not in (BROADCAST, PACKED):
                names += [f"{name}_i{n}" for n in range(self.layout.inner)]
            names += [f"{name}_rows"] if isinstance(part, Input) and part.gather else []
            names += [f"{name}_chunk"] if isinstance(part, Output) and CHUNK in part.axes and (
                CHUNK not in self.task.space) else []  # fmt: skip
        return tuple(names)

    def text(self) -> str:
        """The whole kernel."""
        apart = "" if self.task.inplace else " __restrict__"
        given = []
        for part, name in zip(self.names.parts, self.names.names, strict=True):
            if not isinstance(part, Statement):
                const = "const " if isinstance(part, Input) else ""
                given.append(
                    f"{const}{memory_type(part.dtype)} *{apart.strip()}{' ' * bool(apart)}{name}"
                )
        given += [f"const long long {n}" for n in self.numbers()]
        self.body()
        head = f'extern "C" __global__ void __launch_bounds__({self.layout.threads})'
        return "\n".join([f"{head} {self.name}(", _wrapped(given), ") {", *self.code.lines, "}"])

    def body(self) -> None:
        """Append what the kernel does."""
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
        """The elements that indices along the axes of a side lead away from the start."""
        count = self.layout.outer if side == "o" else self.layout.inner
        return " + ".join(f"{side}{n} * {name}_{side}{n}" for n in range(count)) or "0"

    def row_places(self) -> None:
        """Append where each walk begins in the row that is written about."""
        self.split_index("row", "o")
        for name in self.names.names:
            if self.layout.outer:
                self.code.line(f"const long long {name}_at = {self.offset(name, 'o')};")

    def place(self, name: str, *more: str) -> str:
        """The offset of a walk in its row, and more."""
        terms = [f"{name}_at"] if self.layout.outer else []
        return " + ".join([*terms, *more]) or "0"

    def step(self, name: str, index: str) -> str:
        """The offset of an element of the row."""
        if self.walks[name] == BROADCAST or not self.layout.inner:
            return "0"
        if self.layout.inner > 1:  # split_index has been written
            return self.offset(name, "i")
        return index if self.walks[name] == PACKED else f"({index}) * {name}_i0"

    # Values --------------------------------------------------------------------------------------

    def operand(self, operand: str | Constant) -> Operand:
        """A value that is known at this place, or a number."""
        if isinstance(operand, Constant):
            return literal(operand.value, operand.dtype)
        return self.known[operand]

    def looked_up(self, part: Input) -> list[str]:
        """The offset of the row that is looked up, if it is."""
        if part.gather is None:
            return []
        return [f"(long long){self.known[part.gather].text} * {self.names.of(part)}_rows"]

    def load_fixed(self, part: Input) -> None:
        """Append the load of a value that the innermost loop does not change."""
        name = self.names.of(part)
        text = f"widen({name}[{self.place(name, *self.looked_up(part))}])"
        self.known[part.name] = self._named(text, value_type(part.dtype), part.name)

    def _named(self, text: str, dtype: str, value: str) -> Operand:
        return self.code.value(text, dtype, _variable(value))

    def statement(self, part: Statement, index: str = "") -> None:
        """Append one statement; ``index`` is the element's in the row."""
        if part.instruction == "position":
            name = self.names.of(part)
            text = f"(long long)({self.place(name, self.step(name, index))})"
            self.known[part.name] = self._named(text, "int64", part.name)
        elif part.instruction == "random_bits":
            name = self.names.of(part)
            given = ", ".join(self.operand(o).text for o in part.operands)
            method = "half" if part.dtype == "uint32" else "word"
            text = f"{name}_draw.{method}({given}, {self.place(name, self.step(name, index))})"
            self.known[part.name] = self._named(text, part.dtype, part.name)
        elif part.instruction == "extent":
            extents = [s.name for s in self.task.body if s.instruction == "extent"]
            size = Operand(f"size_{extents.index(part.name)}", "int64")
            self._keep(part, self.emit.convert(size, part.dtype))
        else:
            operands: list[Any] = [self.operand(o) for o in part.operands]
            if part.instruction in ("convert", "bitcast"):
                operands.append(part.dtype)
            self._keep(part, getattr(self.emit, part.instruction)(*operands))

    def _keep(self, part: Statement, result: Operand) -> None:
        """Give a result the name of its value: in its own line, if that is the last one."""
        name, lines = _variable(part.name), self.code.lines
        begin = f"const {c_type(result.dtype)} {result.text} = "
        if lines and lines[-1].strip().startswith(begin) and result.text.startswith("t"):
            lines[-1] = lines[-1].replace(f" {result.text} = ", f" {name} = ", 1)
            self.known[part.name] = Operand(name, result.dtype)
        else:
            self.known[part.name] = self.code.value(result.text, result.dtype, name)

    def draws(self) -> None:
        """Append a generator's block for each statement that draws from it."""
        for part in self.task.body:
            if part.instruction == "random_bits":
                self.code.line(f"Philox {self.names.of(part)}_draw;")

    def needs(self, names: Iterable[str], also: Iterable[str] = ()) -> list[Input | Statement]:
        """What must be loaded or computed for these values, in order; known ones are left out."""
        wanted, todo = set(), [*names]
        while todo:
            name = todo.pop()
            if name in wanted or (name in self.known and name not in also):
                continue
            wanted.add(name)
            part = self.task.part(name)
            if isinstance(part, Input):
                todo += [part.gather] if part.gather else []
            else:
                todo += [o for o in part.operands if isinstance(o, str)]
        return [p for p in (*self._inputs(), *self.task.body) if p.name in wanted]

    def fixed_values(self, names: Iterable[str]) -> None:
        """Append all that these values need and the innermost loop does not change."""
        for part in self.needs(names):
            if part.name in self.moving or (
                isinstance(part, Statement) and part.instruction in REDUCTIONS
            ):
                continue
            if isinstance(part, Input):
                self.load_fixed(part)
            elif all(o in self.known for o in part.operands if isinstance(o, str)):
                self.statement(part)

    # The innermost loop, of packs ----------------------------------------------------------------

    def is_packed_load(self, part: Input) -> bool:
        """Whether the elements of a pack are loaded before the loop over them."""
        return self.layout.inner <= 1 and (part.gather is None or part.gather not in self.moving)

    def load_pack(self, part: Input, into: str) -> None:
        """Append the load of neighbours of a row, from ``first`` on."""
        name, lanes = self.names.of(part), self.layout.vector
        if self.walks[name] == PACKED:
            start = f"{name} + {self.place(name, *self.looked_up(part), 'first')}"
            self.code.line(f"load_pack<{lanes}>({into}, {start}, count);")
        else:
            start = f"{name} + {self.place(name, *self.looked_up(part), f'first * {name}_i0')}"
            self.code.line(f"load_each<{lanes}>({into}, {start}, {name}_i0, count);")

    def load_each(self, part: Input) -> None:
        """Append the load of one element, where it exists."""
        name, dtype = self.names.of(part), value_type(part.dtype)
        place = self.place(name, *self.looked_up(part), self.step(name, "first + k"))
        text = f"k < count ? widen({name}[{place}]) : ({c_type(dtype)})0"
        self.known[part.name] = self._named(text, dtype, part.name)

    def count(self, end: str) -> None:
        """Append how many elements of the pack exist."""
        lanes = self.layout.vector
        self.code.line(
            f"const int count = {end} - first < {lanes} ? (int)({end} - first) : {lanes};"
        )

    def pack(
        self, reductions: Sequence[Statement], outputs: Sequence[Output], held: dict[str, str]
    ) -> None:
        """Append what is done with a pack: loads, the loop over its elements, stores.

        ``held`` are inputs whose packs are loaded already.
        """
        roots = [*(str(s.operands[0]) for s in reductions), *(o.value for o in outputs)]
        parts = self.needs(roots)
        before = dict(self.known)
        lanes, packs = self.layout.vector, dict(held)
        for part in parts:
            if isinstance(part, Input) and part.name not in held and self.is_packed_load(part):
                packs[part.name] = f"{_variable(part.name)}_pack"
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
            elif part.name in packs:
                self.known[part.name] = Operand(f"{packs[part.name]}[k]", value_type(part.dtype))
            else:
                self.load_each(part)
        for s in reductions:
            total = f"{_variable(s.name)}_parts[k]"
            joined = f"{join(self.code, s.instruction, s.dtype)}({total}, {self.operand(s.operands[0]).text})"
            self.code.line(f"if (k < count) {total} = {joined};")
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
        if self.walks[name] == PACKED:
            start = f"{name} + {self.place(name, 'first')}"
            self.code.line(f"store_pack<{lanes}>({start}, {name}_pack, count);")
        else:
            step = f"{name}_i0" if self.layout.inner else "0ll"
            start = f"{name} + {self.place(name, f'first * {step}')}"
            self.code.line(f"store_each<{lanes}>({start}, {name}_pack, {step}, count);")


class _Elements(_Writer):
    """A loop over packs of elements, by as many threads as there are."""

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


class _Rows(_Writer):
    """Rows, each by some threads of a warp or by a block, in passes."""

    def body(self) -> None:
        lanes, line = self.layout.lanes, self.code.line
        each = self.layout.threads // lanes
        self._shared()
        start = f"long long base = (long long)blockIdx.x * {each}"
        self.code.open(f"for ({start}; base < rows; base += (long long)gridDim.x * {each})")
        if each > 1:
            # All lanes of a warp go on to its shuffles; those without a row repeat the last one.
            line("const bool there = base + threadIdx.y < rows;")
        if self.layout.outer:
            row = "(there ? base + threadIdx.y : rows - 1)" if each > 1 else "base"
            line(f"const {self.index} row = ({self.index}){row};")
        self.there = each > 1
        self.row_places()
        self.draws()
        self._passes()
        self.code.close()

    def _shared(self) -> None:
        if self.layout.lanes > 32:
            for s in self._reductions():
                count = self.layout.lanes // 32
                self.code.line(f"__shared__ {c_type(s.dtype)} {_variable(s.name)}_shared[{count}];")

    def _reductions(self) -> list[Statement]:
        return [s for s in self.task.body if s.instruction in REDUCTIONS]

    def _depths(self) -> dict[str, int]:
        """How many passes must have ended before a value can be computed."""
        depths = {p.name: 0 for p in self.task.inputs}
        for part in self.task.body:
            own = max((depths[o] for o in part.operands if isinstance(o, str)), default=0)
            depths[part.name] = own + (part.instruction in REDUCTIONS)
        return depths

    def _passes(self) -> None:
        depths = self._depths()
        reductions = self._reductions()
        inner = set(self.task.inner)
        outputs = [o for o in self.task.outputs if inner & set(o.axes)]
        single = [o for o in self.task.outputs if not inner & set(o.axes)]
        work = {depths[str(s.operands[0])] for s in reductions} | {depths[o.value] for o in outputs}
        # What is overwritten must have been read by all passes.
        when = {o.name: max(work) if o.inplace else depths[o.value] for o in outputs}
        held = self._hold([*reductions], [*outputs])
        for number in sorted(work):
            self._fixed_up_to(number, depths)
            own = [s for s in reductions if depths[str(s.operands[0])] == number]
            stored = [o for o in outputs if when[o.name] == number]
            self._pass(own, stored, held)
        self._fixed_up_to(max(depths.values()), depths)
        if single:
            self._single(single)

    def _fixed_up_to(self, number: int, depths: dict[str, int]) -> None:
        wanted = [n for n, depth in depths.items() if depth <= number and n not in self.moving]
        self.fixed_values(wanted)

    def _hold(self, reductions: list[Statement], outputs: list[Output]) -> dict[str, str]:
        """Append the loads of a whole row into registers, where it has few enough packs."""
        if not self.layout.steps:
            return {}
        self._fixed_up_to(0, self._depths())
        lanes, steps = self.layout.vector, self.layout.steps
        parts = [
            p for p in self._inputs() if p.name in self.moving and self.is_packed_load(p)
        ]  # fmt: skip
        for part in parts:
            kind = c_type(value_type(part.dtype))
            self.code.line(f"{kind} {_variable(part.name)}_row[{steps}][{lanes}];")
        self._open_steps()
        for part in parts:
            self.load_pack(part, f"{_variable(part.name)}_row[step]")
        self.code.close()
        return {p.name: f"{_variable(p.name)}_row[step]" for p in parts}

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
            name = f"{_variable(s.name)}_parts"
            start = identity(s.instruction, s.dtype).text
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
        begin = f"(long long)threadIdx.x * {self.layout.vector}"
        step = self.layout.lanes * self.layout.vector
        self.code.open(f"for (long long first = {begin}; first < width; first += {step})")
        self.count("width")

    def count(self, end: str) -> None:
        """Append how many elements of the pack exist."""
        super().count(end)
        if self.there:
            self.code.lines[-1] = self.code.lines[-1].replace("const int count", "int count")

    def _reduce(self, s: Statement) -> None:
        name, kind = _variable(s.name), c_type(s.dtype)
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
            # All threads must have read what is overwritten now.
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

    def body(self) -> None:
        self._shared()
        self.there = False
        self.code.line("const long long begin = (long long)blockIdx.x * chunk;")
        self.code.line("const long long end = begin + chunk < width ? begin + chunk : width;")
        self.code.open("for (long long base = blockIdx.y; base < rows; base += gridDim.y)")
        if self.layout.outer:
            self.code.line(f"const {self.index} row = ({self.index})base;")
        self.row_places()
        self.draws()
        self._passes()
        self.code.close()

    def _open_loop(self) -> None:
        begin = f"begin + (long long)threadIdx.x * {self.layout.vector}"
        step = self.layout.lanes * self.layout.vector
        self.code.open(f"for (long long first = {begin}; first < end; first += {step})")
        self.count("end")

    def _chunk_place(self, name: str) -> list[str]:
        return [f"blockIdx.x * {name}_chunk"]


class _Columns(_Writer):
    """Columns, a piece of each by each block: lines of threads share out its rows."""

    def body(self) -> None:
        line = self.code.line
        for s in self._reductions():
            name, kind = _variable(s.name), c_type(s.dtype)
            line(f"__shared__ {kind} {name}_shared[{LINES}][{COLUMNS + 1}];")
            line(f"{kind} {name}_parts = {identity(s.instruction, s.dtype).text};")
        line(f"const long long column = (long long)blockIdx.x * {COLUMNS} + threadIdx.x;")
        line("const long long begin = (long long)blockIdx.y * chunk;")
        line("const long long end = begin + chunk < rows ? begin + chunk : rows;")
        self.code.open("if (column < width)")
        self.split_index(f"({self.index})column", "i")
        self._loop()
        self.code.close()
        for s in self._reductions():
            name = _variable(s.name)
            line(f"{name}_shared[threadIdx.y][threadIdx.x] = {name}_parts;")
        line("__syncthreads();")
        self.code.open("if (threadIdx.y == 0 && column < width)")
        self.split_index(f"({self.index})column", "i")
        self._store()
        self.code.close()

    def _reductions(self) -> list[Statement]:
        return [s for s in self.task.body if s.instruction in REDUCTIONS]

    def _loop(self) -> None:
        roots = [str(s.operands[0]) for s in self._reductions()]
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
        for s in self._reductions():
            total = f"{_variable(s.name)}_parts"
            which = join(self.code, s.instruction, s.dtype)
            self.code.line(f"{total} = {which}({total}, {self.operand(s.operands[0]).text});")
        self.code.close()
        self.known = before

    def place(self, name: str, *more: str) -> str:
        """The offset of a walk at a row and column; what does not move with the rows is at row 0."""
        sides = [self.offset(name, "i")]
        if self.walks[name] != BROADCAST:
            sides.append(self.offset(name, "o"))
        return " + ".join([*sides, *(m for m in more if m != "0")])

    def step(self, name: str, index: str) -> str:
        """Nothing: ``place`` has told all."""
        return "0"

    def _store(self) -> None:
        for s in self._reductions():
            name, which = _variable(s.name), join(self.code, s.instruction, s.dtype)
            self.code.line(f"{c_type(s.dtype)} {name} = {name}_shared[0][threadIdx.x];")
            each = f"{name} = {which}({name}, {name}_shared[line][threadIdx.x]);"
            self.code.line("#pragma unroll")
            self.code.line(f"for (int line = 1; line < {LINES}; ++line) {each}")
            self.known[s.name] = Operand(name, s.dtype)
        for out in self.task.outputs:
            name = self.names.of(out)
            chunk = f" + blockIdx.y * {name}_chunk" if f"{name}_chunk" in self.numbers() else ""
            place = self.offset(name, "i") + chunk
            self.code.line(f"narrow({name}[{place}], {self.operand(out.value).text});")


_WRITERS: dict[str, type[_Writer]] = {
    "elements": _Elements, "rows": _Rows, "chunks": _Chunks, "columns": _Columns,
}  # fmt: skip


def _variable(name: str) -> str:
    """The name of a value in the code."""
    return "v_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def _wrapped(parts: Iterable[str]) -> str:
    """Parameters in lines of no more than a hundred characters."""
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > 92:
            lines.append("")
        lines[-1] += f"{part}, "
    return "\n".join(f"    {line.rstrip()}" for line in lines).rstrip(",")
