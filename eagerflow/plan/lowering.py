"""Lowering: the steps of a plan as the lines of a straight-line Python program over arrays.

    def replay(buffers, commit, x, labels, W):
        b0, b1 = buffers
        matmul = _matmul(x, W, b0)                       # train.py:12
        _tanh_multiply((matmul,), (b1,))                 # train.py:12
        ...
        (W_next,) = _adam_update(commit, (W, gradient))  # train.py:17
        return loss, W_next

Names are like those of the graph's values, but made here of ASCII letters, digits and underscores;
no other text of the graph's author is in it: anything but small numbers is referred to by name.
Results of steps are in buffers of the plan if possible; values that leave the plan are
newly allocated on each run. Kernels that update Variables in place are only prepared here
(``commit``), and run in one call at the end. Differences for devices other than the
host are in ``device_lowering``.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from math import isfinite, prod
from typing import Any

import numpy as np

from eagerflow.backends.numpy import is_shared, owner_of
from eagerflow.codegen.kernel import has_segments
from eagerflow.devices import Device, Kind
from eagerflow.dtypes import default_dtype
from eagerflow.errors import CaptureError
from eagerflow.fusion.device_calls import DeviceCall, kernel_at_home
from eagerflow.fusion.groups import into_of
from eagerflow.fusion.kernels import FusedKernel, Step
from eagerflow.graph.costs import nbytes
from eagerflow.graph.devices import said
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames, tuple_of
from eagerflow.graph.sizes import LATE
from eagerflow.op import Into
from eagerflow.plan.control import CONTROL
from eagerflow.plan.in_place import Update
from eagerflow.plan.layouts import Layouts, Order
from eagerflow.plan.lifetimes import MAX_SPARE_BYTES, Buffer, Lifetimes, Pool, own_result
from eagerflow.plan.loop_buffers import is_loop, native_steps, scan_length
from eagerflow.plan.products import PRODUCTS, ProductChoice, why_generated, why_numpy
from eagerflow.plan.segments import Segment, SegmentStep
from eagerflow.primitives.matrix_product import FixedProduct
from eagerflow.runtime.buffers import MIN_POOLED_BYTES
from eagerflow.spec import MAX_RANK

MIN_DELETED_BYTES = 1 << 15  # arrays from this size are deleted after their last use
PROGRAM_NAMES = frozenset(
    {"asarray", "buffers", "commit", "empty", "int", "max", "min", "publish", "range", "replay"}
)
RESERVED = PROGRAM_NAMES | frozenset((*keyword.kwlist, *keyword.softkwlist))
IDENTIFIER = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")  # not normalized by Python
MAX_NAME_LENGTH = 80  # letters
MAX_NESTED_BLOCKS = 16  # loops and branches inside each other in a function; Python takes 20 loops


class Program:
    """The text of a plan during lowering: lines, their origins, and the objects they refer to."""

    def __init__(
        self, device: Device, order: Callable[[Graph], Sequence[Step]], exact: bool
    ) -> None:
        self.device = device
        self.order = order
        self.exact = exact
        own = device.backend
        self.segments = own.host and not exact and has_segments()
        self.module = None if own.host or exact or not own.fuses else own.kernel_module()
        self.straight: set[Value] = set()  # values known to be in row-major order
        self.lines: list[str] = []
        self.places: list[Step | None] = []  # of each line
        self.globals: dict[str, Any] = {"asarray": device.backend.wrapper(device.index)}
        # For small arrays the pool would call NumPy as well, in three times the time.
        self.globals["empty"] = np.empty if own.host else own.empty
        self.pool = Pool()
        self.arrays: dict[str, tuple[Buffer, tuple[int, ...], Any, Order]] = {}
        self.renewals: dict[str, tuple[tuple[int, ...], Any]] = {}  # shapes and dtypes by name
        self.names: dict[Value, str] = {}
        self.constants: list[Any] = []  # arrays that own the memory of the graph's constants
        self.kernels: list[FusedKernel] = []
        self.shared: tuple[int, ...] = ()  # entries that may share memory with results
        self.updates: list[Update] = []  # of Variables, in place
        self.published: dict[Value, int] = {}  # values passed on as soon as they are computed
        self.memory: Mapping[Value, Callable[..., Any]] = {}  # allocators of some finals
        self.products: list[ProductChoice] = []
        self._own: set[str] = set()  # names in use
        self._free_name = FreeNames(RESERVED).take
        self._known: dict[Any, str] = {}
        self.keywords = {"out"}  # keyword names in calls
        self.parts: list[tuple[list[str], list[Step | None]]] = []  # functions beside replay

    def name(self, base: str) -> str:
        """A free identifier like ``base``, of ASCII letters, digits and underscores only."""
        if not IDENTIFIER.fullmatch(base) or len(base) > MAX_NAME_LENGTH:
            plain = re.sub(r"[^A-Za-z0-9_]", "_", base[:MAX_NAME_LENGTH]).lstrip("_")
            start = "" if plain[:1].isalpha() else "v"
            base = f"{'_' if base[:1] == '_' else ''}{start}{plain}"
        found = self._free_name(base)
        self._own.add(found)
        return found

    @property
    def identifiers(self) -> set[str]:
        """Every name that may occur in the text."""
        return self._own | PROGRAM_NAMES | self.keywords

    def argument(self, key: str) -> str | None:
        """The text of an attribute's name before its value; None if it cannot be a keyword."""
        if not IDENTIFIER.fullmatch(key):
            return None
        self.keywords.add(key)
        return f"{key}="

    def local(self, value: Value) -> str:
        """The local name of a value, assigned now."""
        found = self.names[value] = self.name(value.name.lstrip("_"))
        return found

    def known(self, base: str, thing: Any, key: Any = None) -> str:
        """The global name of an object that the program refers to."""
        key = id(thing) if key is None else key
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.name(base)
            self.globals[found] = thing
        return found

    def write(self, line: str, place: Step | None = None, depth: int = 1) -> None:
        """Append a line of the program."""
        self.lines.append("    " * depth + line)
        self.places.append(place)

    def buffer(self, value: Value, buffer: Buffer, order: Order = ()) -> str:
        """The name of the array of a buffer that holds a value of this shape and dtype."""
        order = order if list(order) != sorted(order) else ()
        key = value.shape, value.dtype, order
        found = buffer.arrays.get(key)
        if found is None:
            base = f"b{buffer.number}" if not buffer.arrays else f"b{buffer.number}_0"
            found = buffer.arrays[key] = self.name(base)
            self.arrays[found] = (buffer, value.shape, value.dtype, order)
        return found


class _Pending:
    """The steps of a segment that is not written yet."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.names: list[str] = []  # of the tuples of their arrays
        # Of the last step: its line, and the texts of its inputs and outputs.
        self.last = (0, "", "")
        self.roots: set[Value] = set()  # roots of the values that they make
        self.gone: list[str] = []  # names of arrays to delete after the segment


def _is_view(lifetimes: Lifetimes, value: Value) -> bool:
    """Whether a value may share the memory of another one."""
    if value.node is None or lifetimes.root(value) is not value:
        return True
    return value.node.op.family in ("control", "custom")


class Lowering:
    """Writes the steps of one graph, or of the body of a loop or branch, into a program."""

    def __init__(
        self,
        program: Program,
        graph: Graph,
        steps: Sequence[Step],
        depth: int = 1,
        updates: dict[Step, Update] | None = None,
    ) -> None:
        self.program = program
        self.updates = updates or {}
        self.graph = graph
        self.steps = steps
        self.depth = depth
        ends = graph.all_inputs(), graph.all_outputs()
        self.lifetimes = Lifetimes(steps, *ends, is_loop if program.segments else None)
        self.memory = {self.lifetimes.root(v): own for v, own in program.memory.items()}
        self.held: dict[Value, Buffer] = {}  # by the root of the values' group
        self.sizes: dict[Value, int] = {}  # bytes written there
        self.loose: dict[Value, list[str]] = {}  # names of arrays allocated by a step
        self.pending = _Pending()
        self.layouts = Layouts()
        self.placed: dict[Value, str] = {}  # destinations of values that have one already
        self.native = native_steps(steps) if program.segments else set()

    def run(self) -> None:
        """Write all steps."""
        self.write_steps()
        self.flush()

    def write_steps(self) -> None:
        """Write all steps, except for the final call of the last segment."""
        for number, step in enumerate(self.steps):
            if isinstance(step, Node) and step.op.name in CONTROL:
                self._control(step)
            elif isinstance(step, Node):
                self._node(step, number)
            else:
                self._fused_kernel(step, number)
            self.publish(step)
            self._release(number)

    def publish(self, step: Step) -> None:
        """Pass on results of a step that are published."""
        published = self.program.published
        for value in step.outputs if published else ():
            if value in published:
                self.flush()
                line = f"publish({published[value]}, {self.outgoing(value)})"
                self.program.write(line, step, self.depth)

    def outgoing(self, value: Value) -> str:
        """The text for a value that leaves the plan."""
        return self.text(value)

    def _control(self, node: Node) -> None:
        """Write a branch or loop; in a separate function if deeply nested."""
        write, program = CONTROL[node.op.name], self.program
        texts = [self.text(x) for x in node.inputs]
        if self.depth <= MAX_NESTED_BLOCKS:
            write(self, node, texts)
            return
        self.flush()
        names = {self.text(x) for x in node.values()} - program.globals.keys()
        given = tuple_of(["buffers", *sorted(names)])
        lines, places, depth = program.lines, program.places, self.depth
        program.lines, program.places, self.depth = [], [], 1
        name = program.name("_part")
        program.write(f"def {name}{given}:", node, 0)
        write(self, node, texts)
        made = tuple_of([program.names[v] for v in node.outputs])
        program.write(f"return {made}", node)
        program.parts.append((program.lines, program.places))
        program.lines, program.places, self.depth = lines, places, depth
        program.write(f"{made} = {name}{given}" if node.outputs else f"{name}{given}", node, depth)

    def body(self, graph: Graph, given: Sequence[str], depth: int) -> list[str]:
        """Write a body with these names for its inputs; returns the names of its results."""
        inner = Lowering(self.program, graph, self.program.order(graph), depth)
        self.program.names.update(zip(graph.inputs, given, strict=True))
        inner.run()
        return [inner.text(v) for v in graph.outputs]

    # Values --------------------------------------------------------------------------------------

    def new(self, value: Value, *rows: int) -> str:
        """An expression for fresh memory of a value's shape and dtype, or of rows of such."""
        dtype = self.program.known(value.dtype.name, value.dtype, ("dtype", value.dtype))
        own, name = self.program.device.backend, "empty"
        if own.host and (given := self.memory.get(self.lifetimes.root(value))) is not None:
            name = self.program.known("allocate", given)
        elif own.host and nbytes(value) * prod(rows) >= MIN_POOLED_BYTES:
            name = self.program.known("pool_empty", own.empty)
        return f"{name}({self.attribute('shape', (*rows, *value.shape))}, {dtype})"

    def text(self, x: Any) -> str:
        """The text for a node's input."""
        if type(x) is not Value:
            return _literal(x) or self.program.known("number", x, ("number", repr(x), type(x)))
        found = self.program.names.get(x)
        if found is None:
            if x.constant is None:
                raise CaptureError(f"{x.name} is used before it is computed", op=self.graph.name)
            array = x.constant._array
            found = self.program.known(x.name.lstrip("_"), array, ("constant", x))
            self.program.constants.append(owner_of(array))
            self.program.names[x] = found
        return found

    def place_for(
        self, value: Value, number: int, reuse: Sequence[Any] = (), order: Order = ()
    ) -> str | None:
        """Memory of the plan for a step's result; None if it leaves the plan.

        ``reuse`` are inputs that it may overwrite, if they are not needed any more;
        ``order`` is that of its axes in memory, if it is not row-major.
        """
        lifetimes = self.lifetimes
        root = lifetimes.root(value)
        if root in lifetimes.kept or value.dtype.hasobject:
            return None
        size = max(nbytes(value), 1)
        for given in reuse:
            if type(given) is not Value or (given.shape, given.dtype) != (value.shape, value.dtype):
                continue
            above = lifetimes.root(given)
            held = self.held.get(above)
            # An entry may be a broadcast view of a smaller array.
            if held is not None and lifetimes.last[above] == number and self.sizes[above] == size:
                del self.held[above]
                self.held[root], self.sizes[root] = held, size
                return self.program.buffer(value, held)
        buffer = self.program.pool.take(size)
        self.held[root], self.sizes[root] = buffer, size
        return self.program.buffer(value, buffer, order)

    def _release(self, number: int) -> None:
        """Free the memory of values that no later step needs."""
        gone: list[str] = []
        for root in self.lifetimes.ending[number]:
            if root in self.lifetimes.kept:
                continue
            buffer = self.held.pop(root, None)
            if buffer is not None:
                self.program.pool.give(buffer)
            gone += self.loose.pop(root, ())
        self.pending.gone += gone
        if not self.pending.steps:
            self._delete()

    def _delete(self) -> None:
        """Delete arrays that no step needs any more."""
        if self.pending.gone:
            self.program.write(f"del {', '.join(self.pending.gone)}", None, self.depth)
            self.pending.gone = []

    # Segments ------------------------------------------------------------------------------------

    def add(self, step: Any, name: str, given: list[str], made: list[str]) -> None:
        """Add a step to the pending segment, with arrays of these names."""
        pending, program = self.pending, self.program
        pending.steps.append(step)
        pending.names.append(program.name(name))
        pending.last = (len(program.lines), tuple_of(given), tuple_of(made))
        row = tuple_of([*given, *made])
        program.write(f"{pending.names[-1]} = {row}", step.step, self.depth)
        pending.roots.update([self.lifetimes.root(x) for x in step.step.outputs])

    def flush(self) -> None:
        """Write the call of the pending steps; a single kernel is called directly."""
        program, pending = self.program, self.pending
        self.pending = _Pending()
        self.pending.gone = pending.gone
        if len(pending.steps) == 1 and self.is_call(pending.steps[0].step):
            (own,), (at, given, made) = pending.steps, pending.last
            name = own.step.op.name if isinstance(own.step, Node) else own.step.name
            name = program.known(f"_{name}", own.call)
            program.lines[at] = f"{'    ' * self.depth}{name}({given}, {made})"
        elif pending.steps:
            segment = self.segment(pending.steps)
            name = program.known("_segment", segment)
            program.write(f"{name}({tuple_of(pending.names)})", pending.steps[-1].step, self.depth)
            self.pending.gone = pending.names + pending.gone
        self._delete()

    def is_call(self, step: Any) -> bool:
        """Whether a single step is called directly, without a segment."""
        return isinstance(step, FusedKernel)

    def segment(self, steps: list[Any]) -> Any:
        """Steps as one function."""
        return Segment(steps)

    def results(self) -> list[str]:
        """The results of the program: copies of constants, and of small parts of large arrays."""
        program, finals = self.program, self.graph.all_outputs()
        if not program.device.backend.host:
            return [self.unshared(x) for x in finals]
        texts = [self.text(x) for x in finals]
        parts = [self._is_part(v) for v in finals]
        if not any(parts):
            return texts
        own = program.known("_own_result", own_result)
        known = program.known("constants", frozenset(map(id, program.constants)))
        return [f"{own}({t}, {known})" if p else t for t, p in zip(texts, parts, strict=True)]

    def unshared(self, value: Value) -> str:
        """The text for a result on a device: a copy if all calls would return one array."""
        is_constant = self.lifetimes.root(value).constant is not None
        return f"{self.text(value)}.copy()" if is_constant else self.text(value)

    def _is_part(self, value: Value) -> bool:
        """Whether a result may be a constant, or a view of a part of its memory."""
        node = value.node
        if node is None:
            return value.constant is not None
        if node.op.name != "scan":
            return _is_view(self.lifetimes, value)
        number, body = node.outputs.index(value), node.attributes["body"]
        if number >= node.attributes["carries"]:
            return False
        rows, inner = scan_length(node), Lifetimes(body.nodes, body.inputs, body.outputs)
        # Its last carries may be the end of a row for each iteration, or an input of the body.
        is_large = rows * nbytes(value) > MAX_SPARE_BYTES
        return is_large or not rows or _is_view(inner, body.outputs[number])

    def waits(self, x: Any) -> bool:
        """Whether an input of a step is made by the pending segment."""
        return type(x) is Value and self.lifetimes.root(x) in self.pending.roots

    def _shows(self, node: Node) -> bool:
        return self.program.device.backend.host and self.layouts.shows(node)

    # Steps ---------------------------------------------------------------------------------------

    def _kind(self, node: Node) -> Kind:
        like = next(node.values(), None)
        place = self.program.device
        return place.kind(default_dtype(float) if like is None else like.dtype)

    def _node(self, node: Node, number: int) -> None:
        if node in self.updates:
            self._update(node, node.op.name)
            return
        self.layouts.note(node)
        kind = self._kind(node)
        kernel = kernel_at_home(node, kind)
        into = into_of(node) if type(kernel) is partial and kind.device.backend.host else None
        if into is not None and node in self.native:
            self._native_node(node, number, into, kernel)
            return
        if node.op.name in PRODUCTS:
            has_code = self.program.segments
            reason = why_numpy(node, into, self.program.exact, has_code)
            host = kind.device.backend.host
            self.choose(node, *("NumPy", reason) if host else ("the device's library", "as eager"))
        if any(self.waits(x) for x in node.inputs) and not self._shows(node):
            self.flush()
        given = [self.text(x) for x in node.inputs]
        straight = self._keeps_order(node)
        if straight and type(kernel) is np.ufunc and kernel.nout == 1 and len(node.outputs) == 1:
            reuse = node.inputs if node.op.in_place else ()
            self._into(node, number, kernel, given, reuse)
            return
        op = node.op
        if into is not None and into.call is not None:
            self._into(node, number, into.call, given, ())
            return
        if op.views == "all" and not op.attributes:
            call = given[0]
        elif op.views and op.direct is not None and kind.device.backend.host:
            own = self.program.known(f"_{op.name}", op.direct(np), ("direct", op))
            more = [self.attribute(*item) for item in node.attributes.items()]
            call = f"{own}({', '.join([given[0], *more])})"
        else:
            call = self._call(node, kernel, kind, given)
        self.assign(node, call)

    def _native_node(self, node: Node, number: int, into: Into, kernel: Any) -> None:
        """Add a node as a step of a segment."""
        if node.op.name in PRODUCTS:
            self.choose(node, "generated kernel", why_generated(node))
        values = list(node.values())
        if into.call is None:  # a kernel's arrays are distinguished by their addresses
            values = list(dict.fromkeys(values))
        given = [self.text(x) for x in values]
        order = self.layouts.order(values[0]) if into.like_first else ()
        made = [self.place(v, node, number, order * (i == 0)) for i, v in enumerate(node.outputs)]
        call = _NodeCall(node, into, kernel, values)
        self.add(SegmentStep(node, len(given), call, call.native), node.op.name, given, made)

    def choose(self, node: Node, way: str, reason: str) -> None:
        """Note how a product is computed, for a caller."""
        choice = ProductChoice(node.outputs[0].name, node, way, reason)
        self.program.products.append(choice)

    def place(self, value: Value, step: Step, number: int, order: Order = ()) -> str:
        """The name of the output array of a step: of the plan, or allocated here."""
        if value in self.placed:
            self.program.names[value] = self.placed[value]
            self.layouts.add(value)
            return self.placed[value]
        place = self.place_for(value, number, order=order)
        if place is None:
            place = self.program.local(value)
            self.program.write(f"{place} = {self.new(value)}", step, self.depth)
            order = ()
        else:
            self.program.names[value] = place
        self.layouts.add(value, order)
        return place

    def _call(self, node: Node, kernel: Any, kind: Kind, given: list[str]) -> str:
        """A call of an op's own kernel, with all attributes."""
        more = node.attributes
        own: tuple[Any, ...] = ("kernel", node.op, kind, said(node))
        keys = [self.program.argument(key) for key in more]
        if None in keys:  # a name in other scripts stays out of the text
            kernel, more, keys, own = partial(kernel, **more), {}, [], ("kernel", node)
        name = self.program.known(f"_{node.op.name}", kernel, own)
        pairs = zip(keys, more.items(), strict=True)
        given = given + [f"{key}{self.attribute(*item)}" for key, item in pairs]
        return f"{name}({', '.join(given)})"

    def _keeps_order(self, node: Node) -> bool:
        """Whether results are in row-major order, as in memory of the plan.

        NumPy gives the result of an element-wise function the order of its arguments, and sums
        round by the order of their terms. So an exact plan uses its own memory only for
        results that have that order in eager code as well.
        """
        program = self.program
        if not program.exact:
            return True
        into = into_of(node)
        fresh = node.op.family == "random" or (into is not None and into.call is not None)
        found = fresh or (node.op.keeps_order and all(self._is_straight(x) for x in node.values()))
        if found:
            program.straight.update(node.outputs)
        return found

    def _is_straight(self, value: Value) -> bool:
        if len(value.shape) < 2 or value in self.program.straight:
            return True
        return value.constant is not None and value.constant._array.flags.c_contiguous

    def attribute(self, key: str, value: Any) -> str:
        """The text for an attribute: a number, or a name of the object."""
        return _literal(value) or self.program.known(f"{key}_", value, ("attribute", id(value)))

    def _into(
        self, node: Node, number: int, kernel: Any, given: list[str], reuse: Sequence[Any]
    ) -> None:
        """A call of a function that writes into the memory it is given."""
        (value,) = node.outputs
        name = self.program.known(f"_{node.op.name}", kernel, ("into", id(kernel)))
        place = self.place_for(value, number, reuse)
        if place is None:
            self.assign(node, f"{name}({', '.join(given)})")
            return
        self.flush()  # a pending step may still have to read that memory
        into = f"out={place}" if kernel in _BY_KEYWORD else place
        call = f"{name}({', '.join([*given, into])})"
        if not value.shape:
            call = f"asarray({call})"  # NumPy may return a scalar instead of the array it fills
        self.program.write(f"{self.program.local(value)} = {call}", node, self.depth)

    def assign(self, node: Node, call: str) -> None:
        """Write a line that assigns the results of a call to names."""
        program = self.program
        names = [program.local(v) for v in node.outputs]
        if len(names) == 1 and node.op.outputs == 1:
            (value,) = node.outputs
            if not value.shape and node.op.family != "shape":
                call = f"asarray({call})"  # NumPy returns scalars if no axis is left
            program.write(f"{names[0]} = {call}", node, self.depth)
        else:
            program.write(f"{', '.join(names)}{',' * (len(names) == 1)} = {call}", node, self.depth)
            for value, name in zip(node.outputs, names, strict=True):
                if not value.shape:
                    program.write(f"{name} = asarray({name})", node, self.depth)
        self._let_go(node.outputs, names, node.op.name in LATE)

    def _let_go(self, values: Sequence[Value], names: list[str], late: bool = False) -> None:
        """Note arrays allocated by a step, to be deleted after their last use."""
        for value, name in zip(values, names, strict=True):
            if late or nbytes(value) >= MIN_DELETED_BYTES:
                self.loose.setdefault(self.lifetimes.root(value), []).append(name)

    def _fused_kernel(self, fused: FusedKernel, number: int) -> None:
        """Write a region, which has output arguments: as a call, or a step of a segment."""
        program = self.program
        program.kernels.append(fused)
        if fused in self.updates:
            self._update(fused, fused.name)
            return
        given = [self.text(x) for x in fused.inputs]
        if not program.device.backend.host:
            there = DeviceCall(fused, program.device, program.module)
            name = program.known(f"_{fused.name}", there)
            names = [program.local(v) for v in fused.outputs]
            line = f"{tuple_of(names)} = {name}({tuple_of(given)})"
            program.write(line, fused, self.depth)
            self._let_go(fused.outputs, names)
            return
        if fused.checks and any(self.waits(fused.inputs[i]) for i, _ in fused.checks):
            self.flush()
        made = [self.place(value, fused, number) for value in fused.outputs]
        if not program.segments:
            name = program.known(f"_{fused.name}", fused.prepare())
            program.write(f"{name}({tuple_of(given)}, {tuple_of(made)})", fused, self.depth)
            return
        call = fused.prepare()
        self.write_check(fused, call, given)
        own = SegmentStep(fused, len(given), call, call.native)
        self.add(own, fused.name, given, made)

    def write_check(self, fused: FusedKernel, call: Any, given: list[str]) -> None:
        """Write the check of labels, which exist before the segment begins."""
        if fused.checks:
            check = self.program.known(f"_check_{fused.name}", call.check)
            self.program.write(f"{check}({tuple_of(given)})", fused, self.depth)

    def _update(self, step: Step, base: str) -> None:
        """Write a step deferred to the commit, which overwrites the old values of Variables."""
        self.flush()
        program, update = self.program, self.updates[step]
        update.number = len(program.updates)
        program.updates.append(update)
        given = tuple_of([self.text(x) for x in step.inputs])
        made = tuple_of([program.local(v) for v in step.outputs])
        name = program.known(f"_{base}", update)
        program.write(f"{made} = {name}(commit, {given})", step, self.depth)


class _NodeCall:
    """A node that writes its results into given arrays.

    It is called with arrays of ``values``: all of the node's, or each of them once.
    """

    def __init__(self, node: Node, into: Into, kernel: Any, values: list[Value]) -> None:
        self.into, self.kernel, self.attributes = into, kernel, node.attributes
        # Whether its second array is constant, and no other code can write it.
        constant = values[1].constant if len(values) == 2 else None
        self._is_constant = constant is not None and not is_shared(constant._array)
        numbers = count()
        self._places = [
            None if x is None else next(numbers) if into.call else values.index(x)
            for x in node.inputs
        ]

    def native(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The machine code call for arrays of these layouts; or None."""
        found = self.into.native(*self._arguments(inputs), *outputs)
        if self._is_constant and isinstance(found, FixedProduct):
            return found.held(inputs[1])
        if self.into.call is None and found is not None:
            return found.fixed(*inputs, *outputs)
        return found

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Do it."""
        arguments = self._arguments(inputs)
        if self.into.call is not None:
            self.into.call(*arguments, *outputs)
            return
        straight = [x if x is None else np.ascontiguousarray(x) for x in arguments]
        staged = self.into.native(*straight, *outputs)
        if staged is not None:
            flags = staged.run()
            if flags is None or not flags.any():
                return
        found = self.kernel(*arguments, **self.attributes)
        for out, x in zip(outputs, found if len(outputs) > 1 else [found], strict=True):
            np.copyto(out, x)

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        return [None if i is None else inputs[i] for i in self._places]


_BY_KEYWORD = (np.maximum, np.minimum)
"""Functions that need their output as a keyword; others are faster without."""


def _literal(value: Any) -> str | None:
    """A number, None or a tuple of these as program text; None for everything else."""
    cls = type(value)
    if value is None or cls is bool or (cls is int and -(2**63) <= value < 2**64):
        return repr(value)
    if cls is float:
        return repr(value) if isfinite(value) else None
    if cls is tuple and len(value) <= MAX_RANK:
        parts = [_literal(item) for item in value]
        return None if None in parts else tuple_of([p for p in parts if p is not None])
    return None
