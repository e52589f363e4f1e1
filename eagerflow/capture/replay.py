"""Replay: a graph run on tensors again and again, with a plan for each set of sizes.

The Variables that the graph reads give their values when a run begins, and those that it assigns
have their new ones when it has ended without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt
from sys import getrefcount
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.capture.concrete import concrete
from eagerflow.capture.evaluate import evaluate
from eagerflow.capture.homes import homes
from eagerflow.capture.plan.plan import Plan
from eagerflow.capture.plan.regions import grow
from eagerflow.capture.recent import Recent
from eagerflow.convert import as_tensor
from eagerflow.devices import Device, current_device
from eagerflow.dims import Dim
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.graph import Graph, Value, graph_method
from eagerflow.kernels import buffers as memory
from eagerflow.recorder import now, process
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable

__all__ = ["NUMERICS", "Replay", "replay_of"]

NUMERICS = ("fast", "exact")


class Replay:
    """A graph with the plans that were made for it."""

    def __init__(self, graph: Graph, numerics: str = "fast") -> None:
        if numerics not in NUMERICS:
            raise ArgumentError(
                f"{numerics!r} is not a choice", argument="numerics", expected="'fast' or 'exact'"
            )
        self.graph = graph
        self.numerics = numerics
        self.cells = graph.cells
        self.assigned = tuple(c for c in graph.cells if c.assigned is not None)
        self._optimized = graph.optimized(numerics=numerics, final=True)
        self.plans: Recent[Plan] = Recent()
        self._kinds: dict[Any, tuple[Any, ...]] = {}
        self._names = _size_names(graph)
        self._count = len(graph.inputs)

    def plan(self, sizes: dict[str, int], device: Device) -> Plan:
        """The plan for these sizes of the graph's named dimensions."""
        key = (tuple(sizes.values()), device)
        found = self.plans.items.get(key)
        if found is not None:
            found.used = True
        else:
            graph = concrete(self._optimized, sizes)
            exact = self.numerics == "exact"
            # Regions run on the CPU; elsewhere each node is a call of the device's library.
            order = _as_written if exact or device.type != "cpu" else grow
            found = Plan(graph, order, device, exact)
            self.plans.add(key, found)
        return found

    def sizes(self, arrays: Sequence[Any]) -> dict[str, int]:
        """The sizes of the graph's named dimensions in these arrays."""
        if not self._names:
            return {}
        shapes = [a.shape for a in arrays]
        return {name: shapes[i][axis] for name, (i, axis) in self._names.items()}

    def run(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The outputs for these Tensors or arrays; then the Variables have their new values.

        ``inputs`` fit the graph's inputs: nothing is checked here.
        """
        tensors = [cell.variable.current for cell in self.cells]
        arrays = [x._array if type(x) is Tensor else x for x in inputs]
        first = (
            inputs[0] if inputs and type(inputs[0]) is Tensor else tensors[0] if tensors else None
        )
        device = current_device() if first is None else first._kind.device
        del first
        arrays += [t._array for t in tensors]
        plan = self.plan(self.sizes(arrays) if self._names else _NO_SIZES, device)
        for i in plan.shared:
            if i < len(inputs) and type(inputs[i]) is not Tensor:
                arrays[i] = arrays[i].copy()  # its owner may change it, and a result may be it
        if plan.replaced:
            del tensors
            found = replace_variables(plan, arrays)
        else:
            found = plan.run(arrays)
        kinds = self._kinds.get(device)
        if kinds is None:
            places = homes(self.graph, device)
            finals = self.graph.finals()
            kinds = tuple(d.kind(v.dtype) for d, v in zip(places, finals, strict=True))
            self._kinds[device] = kinds
        made = [new_tensor(a, k) for a, k in zip(found, kinds, strict=True)]
        if self.assigned:
            count = len(made) - len(self.assigned)
            for cell, tensor in zip(self.assigned, made[count:], strict=True):
                cell.variable.current = tensor
            del made[count:]
        return made

    def checked(self, inputs: Sequence[Any]) -> list[Any]:
        """``inputs`` as what ``run`` takes; ShapeError or DTypeError where they do not fit."""
        graph = self.graph
        if len(inputs) != self._count:
            raise ArgumentError(
                f"{len(inputs)} arguments for {self._count} inputs", op=graph.name,
                expected=", ".join(f"{n}: {v.spec}" for n, v in named(graph)),
            )  # fmt: skip
        return check_inputs(graph, inputs)


_NO_SIZES: dict[str, int] = {}


def _as_written(graph: Graph) -> Sequence[Any]:
    """The nodes themselves: what eager would call, one by one."""
    return graph.nodes


def are_exclusive(tensors: list[Tensor]) -> bool:
    """Whether nobody but ``replace_variables`` holds tensors, their arrays, or views of these."""
    for tensor in tensors:  # noqa: SIM110 (the frame of a generator would hold one more)
        if any(map(gt, _references(tensor), _ALONE)):
            return False
    return True


def _references(tensor: Tensor) -> tuple[int, int, int]:
    """How often the tensor, its array and the owner of the array's memory are referred to."""
    array = tensor._array
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    held = getrefcount(owner) if owner is not array else 0
    return getrefcount(tensor), getrefcount(array) - (owner is array), held


def replace_variables(plan: Plan, arrays: list[Any]) -> tuple[Any, ...]:
    """Run a plan that updates Variables in place where nobody else holds their values.

    Meanwhile the Variables are taken: who reads one in another thread waits for the new value.
    """
    held: dict[Variable, Tensor] = {}
    try:
        for variable in plan.lent:  # in one order everywhere, so that no two runs wait in a ring
            held[variable] = variable.lend()
        for group, update in plan.replaced:
            own = [held[cell.variable] for cell, _, _ in group]
            if are_exclusive(own):
                arrays += [t._array for t in own]
            else:
                update.get_ready()
                arrays += [memory.empty(t.shape, t.dtype) for t in own]
            del own
        return plan.run(arrays)
    finally:
        for variable, tensor in held.items():
            variable.give_back(tensor)


def _probe() -> tuple[int, int, int]:
    """What ``_references`` gives for a tensor that nobody else holds, in this Python."""
    seen: list[tuple[int, int, int]] = []

    def count(tensors: list[Tensor]) -> None:
        for tensor in tensors:
            seen.append(_references(tensor))

    for make in (lambda: np.zeros(3), lambda: np.zeros(6).reshape(2, 3)):
        variable = Variable(0.0)
        variable.current = new_tensor(make(), variable.current._kind)
        arrays = [variable.current._array]
        held = {variable: variable.lend()}
        own = [held[variable]]
        count(own)
        del arrays
    return max(c[0] for c in seen), max(c[1] for c in seen), max(c[2] for c in seen)


_ALONE = _probe()


def named(graph: Graph) -> list[tuple[str, Value]]:
    """The inputs of a graph with their names."""
    return list(zip(graph.inputs.names, graph.inputs, strict=True))


def _size_names(graph: Graph) -> dict[str, tuple[int, int]]:
    """For each named dimension an input, and the axis of it, that shows its size."""
    found: dict[str, tuple[int, int]] = {}
    for i, value in enumerate(graph.entries()):
        for axis, size in enumerate(value.shape):
            if isinstance(size, Dim) and str(size).isidentifier():
                found.setdefault(str(size), (i, axis))
    return found


def check_inputs(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Tensors of the graph's dtypes; ShapeError or DTypeError names what does not fit."""
    made = []
    sizes: dict[str, int] = {}
    for (name, value), given in zip(named(graph), inputs, strict=True):
        plain = not hasattr(given, "dtype")  # Python's numbers, and lists of them, fit any dtype
        tensor = as_tensor(given, value.dtype if plain else None)
        if tensor.dtype != value.dtype:
            raise DTypeError(
                "the dtype is another one than the graph's", op=graph.name, argument=name,
                received=summary(tensor), expected=str(value.spec),
                hint=f"{name}.astype({value.dtype.name!r})",
            )  # fmt: skip
        if not _fits(tensor.shape, value.shape, sizes):
            raise ShapeError(
                "the shape is another one than the graph's", op=graph.name, argument=name,
                received=summary(tensor), expected=str(value.spec)
                + (f" where {', '.join(f'{n}={s}' for n, s in sizes.items())}" if sizes else "")
                + (", named sizes being at least 1" if 0 in sizes.values() else ""),
            )  # fmt: skip
        made.append(tensor)
    return made


def _fits(shape: tuple[int, ...], wanted: tuple[Any, ...], sizes: dict[str, int]) -> bool:
    if len(shape) != len(wanted):
        return False
    for size, dim in zip(shape, wanted, strict=True):
        if not isinstance(dim, Dim):
            if size != dim:
                return False
        elif str(dim).isidentifier():
            if sizes.setdefault(str(dim), size) != size or size == 0:
                return False
        elif dim.evaluate(sizes) != size:
            return False
    return True


def replay_of(graph: Graph, numerics: str = "fast") -> Replay:
    """The replay of a graph, made at first use and kept with it."""
    key = ("replay", numerics)
    found = graph.learned.get(key)
    if found is None:
        found = graph.learned[key] = Replay(graph, numerics)
    return found  # type: ignore[no-any-return]


def run_graph(self: Graph, *args: Any, **named: Any) -> Any:
    """The results for these arguments, in the nest that the traced function returned.

    ``args`` have the nest of the traced function's, or are one value for each input; inputs may
    also be given by their names, all after those that are given in order. Variables
    have their new values afterwards. Raises ArgumentError, ShapeError or DTypeError for
    arguments that do not fit; under a tape the call is recorded.
    """
    leaves = _leaves(self, args)
    if named:
        leaves += [named.pop(n) for n in self.inputs.names[len(leaves) :] if n in named]
    if named:
        raise ArgumentError(
            f"there is no input {next(iter(named))!r}, or it came twice", op=self.name,
            expected=", ".join(self.inputs.names),
        )  # fmt: skip
    replay = replay_of(self)
    inputs = replay.checked(leaves)
    if process.recorders and now()[1] is not None:
        return self.nest(call_watched(self, inputs))
    return self.nest(replay.run(inputs))


def _leaves(graph: Graph, args: tuple[Any, ...]) -> list[Any]:
    """The values for the inputs, from arguments in the nest of the traced function's."""
    if len(args) == len(graph.inputs):
        plain = [tree.flatten(x)[0] for x in args]
        if any(len(leaves) != 1 for leaves in plain) and not any(
            hasattr(x, "shape") for leaves in plain for x in leaves
        ):
            return list(args)  # lists of Python numbers, one for each input
    leaves = tree.flatten(args)[0]
    if len(leaves) > len(graph.inputs):  # what was static when it was traced is left out
        leaves = [x for x in leaves if hasattr(x, "shape") or isinstance(x, int | float | complex)]
    return leaves


Graph.__call__ = run_graph  # type: ignore[method-assign,assignment]


def call_watched(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph that a recorder sees node by node."""
    entries = [*inputs, *(cell.variable.value for cell in graph.cells)]
    # The sizes may be names again, of a function that is traced for sizes of its own.
    sizes = {name: entries[i].shape[axis] for name, (i, axis) in _size_names(graph).items()}
    outputs, assigned = evaluate(concrete(graph, sizes), entries)
    cells = [c for c in graph.cells if c.assigned is not None]
    for cell, tensor in zip(cells, assigned, strict=True):
        cell.variable.assign(tensor)
    return outputs


@graph_method
def plan(self: Graph, numerics: str = "fast", sizes: dict[str, int] | None = None) -> Plan:
    """The plan by which the graph runs on the current device.

    ``numerics`` is ``"fast"`` or ``"exact"``; ``sizes`` gives the graph's named dimensions.
    Raises ShapeError where one is missing.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("n",), "float32"))
    >>> graph.plan(sizes={"n": 3})
    <Plan of lambda: 1 steps on cpu:0>
    """
    replay = replay_of(self, numerics)
    given = sizes or {}
    missing = [name for name in replay._names if name not in given]
    if missing:
        raise ShapeError(
            f"the sizes of {', '.join(missing)} are not given", op="graph.plan", argument="sizes",
            hint=f"graph.plan(sizes={{{missing[0]!r}: 32}})",
        )  # fmt: skip
    return replay.plan({name: given[name] for name in replay._names}, current_device())
