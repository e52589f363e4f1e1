"""Lowering for a device other than the host: work on its stream is recorded by segments.

Intermediate values are in memory of the plan, at fixed addresses. To fix other addresses as well,
the arguments of a call are copied to such memory first, results are copied out
of it at the end, and new values of Variables alternate with the old ones (``Renewal``):

    def replay(buffers, x, W):
        b0, b1, b2, renewed = buffers
        _store(b0, x)
        matmul = b0, W, b1                 # train.py:12
        W_next = renewed()
        update = W, b1, W_next, b2         # train.py:17
        _segment((matmul, update))
        loss = _copied(b2)
        return loss, W_next

Values on the host, such as states of random generators, are read there and stored in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eagerflow.devices import Device
from eagerflow.dtypes import NARROW
from eagerflow.fusion.device_calls import DeviceCall
from eagerflow.fusion.kernels import FusedKernel, Step
from eagerflow.fusion.lowering import fill_value
from eagerflow.graph.costs import nbytes
from eagerflow.graph.devices import places
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.plan.device_products import ProductCall
from eagerflow.plan.device_segments import Arrays, DeviceSegment, DeviceStep
from eagerflow.plan.epilogues import FusedProduct
from eagerflow.plan.layouts import Order
from eagerflow.plan.lowering import Lowering, Program

MIN_RECORDED_STEPS = 2  # steps from which a plan's memory is arranged for recordings
Start = Callable[[Arrays, Arrays], Any]


def starters(program: Program, graph: Graph, steps: Sequence[Step]) -> dict[Step, Start]:
    """Functions that start the steps to record.

    Empty if there are few such steps, or if a graph has devices other than one and the host.
    """
    device, homes = program.device, places(graph, program.device)
    others = any(home is not device and not home.backend.host for home in homes.values())
    if others or not device.backend.records:
        return {}
    found = {
        step: call
        for step in steps
        if is_there(step, homes) and _has_sizes(step) and (call := _starter(step, program))
    }
    return found if len(found) >= MIN_RECORDED_STEPS else {}


def is_there(step: Step, homes: dict[Value, Device]) -> bool:
    """Whether the results of a step are on a device, and not on the host."""
    return bool(step.outputs) and not homes[step.outputs[0]].backend.host


def _has_sizes(step: Step) -> bool:
    """Whether the sizes of all inputs and outputs of a step are known."""
    values = [x for x in (*step.inputs, *step.outputs) if type(x) is Value]
    return all(isinstance(n, int) for value in values for n in value.shape)


def _starter(step: Step, program: Program) -> Start | None:
    """A function that starts a step on a device without reading array contents; None for most.

    A library function qualifies if it is known to write into a given output, and to
    read no host memory, which a recording would read again after it has changed.
    """
    if isinstance(step, FusedKernel):
        return DeviceCall(step, program.device, program.module).fill
    if isinstance(step, FusedProduct):
        return ProductCall(step, program)
    backend, op = program.device.backend, step.op
    values = [*step.values(), *step.outputs]
    if op.fills and not any(step.values()):
        number = fill_value(step)
        return lambda inputs, outputs: outputs[0].fill(number)
    if step.attributes or len(step.outputs) != 1 or len(values) == 1:
        return None
    narrow = not NARROW.isdisjoint(v.dtype for v in values)
    if op.call is matmul and (backend.products(program.device.index) or not narrow):
        return ProductCall(step, program)
    if backend.name in op.overrides or narrow:
        return None
    function = op.ufunc and op.family == "elementwise" and getattr(backend.xp, op.ufunc, None)
    return _writing(function, step) if function else None


def _writing(function: Callable[..., Any], node: Node) -> Start:
    """A function with an ``out`` argument as the call of a node with numbers among its inputs."""
    numbers = [None if type(x) is Value else x for x in node.inputs]

    def call(inputs: Arrays, outputs: Arrays) -> None:
        arrays = iter(inputs)
        given = [next(arrays) if x is None else x for x in numbers]
        function(*given, out=outputs[0])

    return call


class DeviceLowering(Lowering):
    """Writes the steps of a graph with arrays on one device, or on the host."""

    def __init__(
        self, program: Program, graph: Graph, steps: Sequence[Step], started: dict[Step, Start]
    ) -> None:
        super().__init__(program, graph, steps)
        self._started = started
        self._homes = places(graph, program.device)
        self._new = set(graph.all_outputs()[len(graph.outputs) :])  # values of Variables
        self._still: set[str] = set()  # names of arrays at fixed addresses
        self._sent: dict[Value, str] = {}  # device names of host values
        self._lent: set[Value] = set()  # roots of values that leave the plan, in its memory
        self._hosting = False

    def write_steps(self) -> None:
        """Write all steps, after copies of the arguments that they read."""
        root = self.lifetimes.root
        read = {root(x) for step in self._started for x in step.inputs if type(x) is Value}
        for value in self.graph.inputs:
            if root(value) in read and not self._homes[value].backend.host:
                self.program.names[value] = self._stored(value)
                self._lent.add(root(value))
        super().write_steps()

    def _stored(self, value: Value) -> str:
        """The name of memory of the plan that an array is copied to here."""
        program = self.program
        name = program.buffer(value, program.pool.own(max(nbytes(value), 1)))
        self._still.add(name)
        store = program.known("_store", program.device.backend.store, "store")
        program.write(f"{store}({name}, {self.text(value)})", None, self.depth)
        return name

    def text(self, x: Any) -> str:
        """The text for a node's input; constants with axes are on the device."""
        if type(x) is Value and x.constant is not None and x.shape and not self._hosting:
            return self._there(x)
        return super().text(x)

    def _there(self, x: Value) -> str:
        """The name of an array on the device."""
        if x.constant is None and not self._homes[x].backend.host:
            return self.text(x)
        if x not in self._sent:
            self._sent[x] = self._stored(x) if x.constant is None else self._moved(x)
        return self._sent[x]

    def _moved(self, x: Value) -> str:
        """The name of a constant that is moved to the device now."""
        backend, index = self.program.device.backend, self.program.device.index
        with backend.on(index):
            found = self.program.known(
                x.name.lstrip("_"), backend.receive(x.constant._array, index)
            )
        self._still.add(found)
        return found

    # Steps ---------------------------------------------------------------------------------------

    def _fused_kernel(self, fused: FusedKernel, number: int) -> None:
        if is_there(fused, self._homes):
            self._start(fused, number)
        else:
            self._on_host(partial(super()._fused_kernel, fused, number), fused)

    def _node(self, node: Node, number: int) -> None:
        if not is_there(node, self._homes):
            self._on_host(partial(super()._node, node, number), node)
        elif node in self._started:
            self.layouts.note(node)
            self._start(node, number)
        else:
            super()._node(node, number)

    def _on_host(self, write: Callable[[], None], step: Step) -> None:
        """Write a step on the host, which waits for its inputs."""
        if any(self.waits(x) for x in step.inputs):
            self.flush()
        self._hosting = True
        write()
        self._hosting = False

    def _start(self, step: Step, number: int) -> None:
        """Add a step to the segment."""
        call = self._started[step]
        if isinstance(call, ProductCall):
            self.choose(call.node, *call.way())
        name = step.op.name if isinstance(step, Node) else step.name
        given = [self._there(x) for x in step.inputs if type(x) is Value]
        if isinstance(step, FusedKernel):
            self.program.kernels.append(step)
            if any(self.waits(step.inputs[i]) for i, _ in step.checks):
                self.flush()
            self.write_check(step, call.__self__, given)  # type: ignore[attr-defined]
        made = [self.place(value, step, number) for value in step.outputs]
        moving = [i for i, at in enumerate([*given, *made]) if at not in self._still]
        self.add(DeviceStep(step, len(given), call, tuple(moving)), name, given, made)

    def place(self, value: Value, step: Step, number: int, order: Order = ()) -> str:
        """The name of the output array of a step."""
        program = self.program
        if value in self._new:
            made = program.local(value)
            program.write(f"{made} = {self._renewal(value)}()", step, self.depth)
            self._new.discard(value)
            self.layouts.add(value)
            return made
        root = self.lifetimes.root(value)
        if root not in self.lifetimes.kept:
            found = super().place(value, step, number, order)
        else:
            self._lent.add(root)
            found = program.names[value] = program.buffer(value, program.pool.own(nbytes(value)))
            self.layouts.add(value)
        self._still.add(found)
        return found

    def _renewal(self, value: Value) -> str:
        """The name of the provider of arrays for new values of a Variable."""
        name = self.program.name("renewed")
        self.program.renewals[name] = value.shape, value.dtype
        return name

    # Segments ------------------------------------------------------------------------------------

    def is_call(self, step: Any) -> bool:
        """A single step is started directly: a recording would save nothing."""
        return True

    def segment(self, steps: list[Any]) -> DeviceSegment:
        """Steps as one function."""
        return DeviceSegment(steps, self.program.device.backend)

    def _shows(self, node: Node) -> bool:
        return self.layouts.shows(node)

    # Results -------------------------------------------------------------------------------------

    def outgoing(self, value: Value) -> str:
        """The text for a value returned to callers: a copy if it is in the plan's memory."""
        text = self.text(value)
        if self._homes[value].backend.host or self.lifetimes.root(value) not in self._lent:
            return text
        own = self.program.device.backend
        return f"{self.program.known('_copied', own.copy, 'copied')}({text})"

    def results(self) -> list[str]:
        """The names of the program's results, none of them in memory of the plan."""
        program, root = self.program, self.lifetimes.root
        entries = {root(v) for v in self.graph.all_inputs()}
        found: dict[Value, str] = {}
        for value in self.graph.all_outputs():
            if value in found or (self._homes[value].backend.host):
                continue
            text = self.text(value)
            if value in self._new and root(value) not in entries:
                name = program.local(value)
                store = program.known("_store", program.device.backend.store, "store")
                program.write(f"{name} = {self._renewal(value)}()", None, self.depth)
                program.write(f"{store}({name}, {text})", None, self.depth)
                found[value] = name
            elif root(value) in self._lent:
                copied, name = self.outgoing(value), program.local(value)
                program.write(f"{name} = {copied}", None, self.depth)
                found[value] = name
        return [found.get(v) or self.unshared(v) for v in self.graph.all_outputs()]
