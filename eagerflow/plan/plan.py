"""Plan: a graph compiled for given shapes, with its runs."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from eagerflow.backends.numpy import quiet_runner
from eagerflow.devices import Device
from eagerflow.display import html
from eagerflow.errors import (
    ArgumentError,
    CaptureError,
    DTypeError,
    EagerflowError,
    OutOfMemoryError,
    ShapeError,
    printable,
)
from eagerflow.fusion.kernels import FusedKernel, Step
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, place_of
from eagerflow.handlers import raised_here
from eagerflow.plan.device_buffers import Renewal
from eagerflow.plan.device_segments import DeviceSegment, start
from eagerflow.plan.in_place import Commit
from eagerflow.plan.lifetimes import ALIGNMENT_BYTES
from eagerflow.plan.lowering import Program
from eagerflow.plan.products import explained
from eagerflow.plan.programs import lower
from eagerflow.plan.segments import PythonPart
from eagerflow.profiling.profile import Profile
from eagerflow.profiling.rows import step_place, step_source
from eagerflow.runtime import buffers
from eagerflow.runtime.allocation import refusal_text
from eagerflow.runtime.python_code import compiled

_numbers = itertools.count()


class Frame:
    """The state of one run at a time: buffers, a quiet context, and its commit."""

    __slots__ = ("buffers", "commit", "first", "run")

    def __init__(self, program: Program) -> None:
        self.run = _runner(program.device)
        self.buffers: tuple[Any, ...] = self.run(_buffers_of, program)
        self.commit = Commit(program.updates) if program.updates else None
        self.first = (self.buffers,) if self.commit is None else (self.buffers, self.commit)


def _buffers_of(program: Program) -> tuple[Any, ...]:
    """The first arguments of a program: its arrays, in one block, and its Renewals."""
    own, size = program.device.backend, program.pool.size
    block: Any = None
    first = 0
    if size:
        allocate = buffers.empty if own.host else own.empty
        block = allocate((size + ALIGNMENT_BYTES,), np.dtype(np.uint8))
        first = -own.address(block) % ALIGNMENT_BYTES
    arrays = [
        _array_in(block[first + buffer.start :], *about)
        for buffer, *about in program.arrays.values()
    ]
    return (*arrays, *[Renewal(own, *about) for about in program.renewals.values()])


def _runner(device: Device) -> Callable[..., Any]:
    """``run(f, *args)`` calls ``f`` with warnings off, and allocates arrays on the device.

    Work started by the previous run may still use its memory: unless the next run is queued
    after it on the same stream, it waits for that work.
    """
    run, own = quiet_runner(), device.backend
    if own.host:
        return run
    last: Any = None

    def there(f: Callable[..., Any], *args: Any) -> Any:
        nonlocal last
        with own.on(device.index):
            queue = own.queue()
            if last not in (None, queue):
                own.synchronize()
            last = queue
            return run(f, *args)

    return there


def _array_in(block: Any, shape: tuple[int, ...], dtype: Any, order: tuple[int, ...]) -> Any:
    """An array in the first bytes of a block, with its axes in another order there."""
    count = prod(shape)
    found = block[: count * dtype.itemsize].view(dtype)
    if not order:
        return found.reshape(shape)
    inside = found.reshape([shape[axis] for axis in order])
    return inside.transpose([order.index(axis) for axis in range(len(order))])


class Plan:
    """A graph as a straight-line program for concrete shapes on one device.

    Made by ``graph.plan()``. ``order`` gives the steps of a graph, and of its bodies: its
    nodes, some of them fused into regions, in a valid order of execution. ``run`` takes
    arrays for the graph's entries, and returns those of its finals; nothing is checked or assigned.
    Values in ``published`` are passed on as soon as they are computed: the first argument of the
    program is then a function to call with the index of such a value and its array.
    ``memory`` has allocators for some finals on the host, called like ``np.empty``.
    Several threads may run a plan at once: each run has separate buffers. Errors of the ops
    name the user's line.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> plan = graph.plan()
    >>> plan, plan.buffer_bytes, len(plan.kernels)
    (<Plan of lambda: 2 steps on cpu:0>, ..., 0)
    >>> plan.run([np.zeros(3, "float32")])
    (array([0., 0., 0.], dtype=float32),)
    """

    used = True  # recently, for the cache of plans

    def __init__(
        self,
        graph: Graph,
        order: Callable[[Graph], Sequence[Step]],
        device: Device,
        exact: bool = False,
        published: Sequence[Value] = (),
        memory: Mapping[Value, Callable[..., Any]] | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        try:
            self._program = lower(graph, order, device, exact, published, memory)
        except EagerflowError:
            raise
        except raised_here(MemoryError) as error:
            raise OutOfMemoryError(
                f"there is too little memory to make a plan: {refusal_text(error)}",
                op=graph.name,
                hint="work on smaller batches",
            ) from error
        except raised_here(Exception) as error:  # rules of ops may raise any error
            raise CaptureError(
                f"no plan can be made: {type(error).__name__}: {error}", op=graph.name
            ) from error
        self.file = f"<eagerflow plan {next(_numbers)}>"
        self.shared = self._program.shared
        """Entries that may share memory with results of a run."""
        self.updates = tuple(self._program.updates)
        """The steps that update Variables in place."""
        self._function = self._compile()
        self._frames: list[Frame] = []
        self.timed: Plan | None = None
        """The same plan with event-writing functions, created by the first profile."""

    def __del__(self) -> None:
        function = getattr(self, "_function", None)
        if function is not None:
            # It refers to itself, and to kernels with their arrays: free them with the plan.
            function.__globals__.clear()

    def _compile(self) -> Any:
        """The program's function, with its source lines registered."""
        # For tracebacks and debuggers.
        shown = self.source()
        linecache.cache[self.file] = (len(shown), None, shown.splitlines(True), self.file)
        weakref.finalize(self, linecache.cache.pop, self.file, None)
        program = self._program
        code = compiled("\n".join(program.lines), self.file, program.identifiers)
        exec(code, program.globals)
        return program.globals["replay"]

    def source(self) -> str:
        """The program as text, with the user's line beside each step.

        The text is for display; it is not what runs.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
        >>> print(graph.plan(numerics="exact").source())
        def replay(buffers, x):
            ...
            tanh = _tanh(x, b0) ...
            multiply = _multiply(tanh, 2.0) ...
            return (multiply,)
        <BLANKLINE>
        """
        width = min(max((len(line) for line in self._program.lines), default=0), 68)
        rows = []
        for line, place in zip(self._program.lines, self._program.places, strict=True):
            where = _where(place)
            rows.append(f"{line:<{width}}  # {where}" if where else line)
        return "\n".join(rows) + "\n"

    def explain(self) -> str:
        """For each matrix product, its implementation with the reason, and the user's line.

        >>> def products(x, w):
        ...     return ef.tanh(x @ w) @ ef.ones((64,))
        >>> shapes = (32, 256), (256, 64)
        >>> graph = ef.capture.trace(products, *[ef.TensorSpec(s, "float32") for s in shapes])
        >>> print(graph.plan().explain())
        matmul    float32(32, 256) · float32(256, 64)  generated kernel: 1,048,576 operations  ...
        matmul_1  float32(32, 64) · float32(64,)       NumPy: a factor is a vector, and fewer ...
        """
        return explained(self._program.products)

    @property
    def kernels(self) -> list[FusedKernel]:
        """The regions that have machine code of their own, in the order in which they run."""
        return list(self._program.kernels)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of memory for intermediate values in one run of the plan."""
        return self._program.pool.size

    def run(
        self,
        arrays: Sequence[Any],
        finish: Callable[[tuple[Any, ...], Any], None] | None = None,
        owned: Sequence[bool] = (),
    ) -> tuple[Any, ...]:
        """The arrays of the graph's finals, from those of its entries.

        ``finish`` is called with them when nothing can fail any more, together with the ``Commit``
        of pending kernels if ``updates`` has any: then it must call its ``replace``.
        ``owned`` flags the Variables with values that it may overwrite; others are copied.
        """
        try:
            frame = self._frames.pop()
        except raised_here(IndexError):
            frame = self._frame()
        commit = frame.commit
        if commit is not None:
            commit.owned = owned
        try:
            found: tuple[Any, ...] = frame.run(self._function, *frame.first, *arrays)
        except raised_here(Exception) as error:
            raise error_of_step(error, self._failed(error)) from error
        if finish is not None:
            finish(found, commit)
        elif commit is not None:
            commit.run()
        self._frames.append(frame)
        return found

    def _frame(self) -> Frame:
        try:
            return Frame(self._program)
        except raised_here(MemoryError) as error:
            raise OutOfMemoryError(
                f"the buffers of the plan do not fit into memory: {refusal_text(error)}",
                op=self.graph.name,
                expected=f"{self.buffer_bytes:,} bytes",
                hint=buffers.HINT,
            ) from error

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        """``run`` as a plain call to step through: ``pdb.runcall(plan.function, x)``.

        ``arrays`` are NumPy arrays for the entries, in the order shown by ``source``.
        """
        frame = self._frame()
        commit = frame.commit
        if commit is not None:
            commit.owned = ()
        with np.errstate(all="ignore"), self.device.backend.on(self.device.index):
            found: tuple[Any, ...] = self._function(*frame.first, *arrays)
        if commit is not None:
            commit.run()
        return found

    def profile(self, arrays: Sequence[Any], rounds: int = 10) -> Profile:
        """A profile of ``rounds`` runs, step by step; figures are per run.

        ``arrays`` are as for ``run``; Variables keep their values. Raises ArgumentError for less
        than one round, and the errors of ``run``.

        >>> spec = ef.TensorSpec((64, 64), "float32")
        >>> plan = ef.capture.trace(lambda x: ef.tanh(x @ x), spec).plan()
        >>> [row.name for row in plan.profile([np.ones((64, 64), "float32")]).by("op")]
        ['...', ..., '...']
        """
        with Profile():  # prepares the steps to be timed
            self.run(arrays)
        with Profile(runs=rounds) as found:
            for _ in range(rounds):
                self.run(arrays)
        return found

    def rest(self) -> None:
        """Release the buffers; the next run allocates others."""
        self._frames.clear()

    def release(self) -> None:
        """Release the buffers, and recordings of segments; the next runs make new ones."""
        self.rest()
        for thing in self._program.globals.values():
            if isinstance(thing, DeviceSegment):
                thing.release()

    def _failed(self, error: Exception) -> Step | None:
        trace = error.__traceback__
        found = None
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_filename == self.file:
                found = self._program.places[trace.tb_lineno - 1]
            elif frame.f_code is PythonPart.run.__code__:
                found = frame.f_locals["self"].step
            elif frame.f_code is start.__code__:
                found = frame.f_locals["own"].step
            trace = trace.tb_next
        return found

    def _repr_html_(self) -> str:
        return html(self, "plans")

    def __repr__(self) -> str:
        count = sum(place is not None for place in self._program.places)
        return printable(f"<Plan of {self.graph.name}: {count} steps on {self.device}>")


def error_of_step(error: Exception, step: Step | None) -> EagerflowError:
    """The error of a step, if that is known, with the op and the user's line."""
    found: EagerflowError
    match error:
        case EagerflowError():
            found = error
        case MemoryError():
            found = OutOfMemoryError(refusal_text(error), hint=buffers.HINT)
        case _:
            kinds = {
                TypeError: DTypeError,
                OverflowError: DTypeError,  # a number outside the range of the dtype
                ValueError: ShapeError,
                Exception: ArgumentError,
            }
            cls = next(ours for theirs, ours in kinds.items() if isinstance(error, theirs))
            found = cls(f"{type(error).__name__}: {error}")
    if step is not None:
        found.op = found.op or _named(step, found.argument)
        found.at = found.at or _where(step, whole=True)
    return found


def _named(place: Step, argument: str | None) -> str:
    """The op of a step; in a region, the op with an argument of this name."""
    if isinstance(place, Node):
        return place.op.name
    return next((node.name for node in place.nodes if argument in node.op.data), place.name)


def _where(place: Step | None, whole: bool = False) -> str:
    """The user's line of a step; of a region, that of its last node."""
    if whole and (source := step_source(place)) is not None:
        return place_of(source)
    return step_place(place)
