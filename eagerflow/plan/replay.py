"""Replay: a graph run repeatedly on tensors, with a plan for each set of sizes.

A run reads the Variables of the graph at its start, and assigns new values to them
at its end, if there was no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from eagerflow import tree
from eagerflow.backends.numpy import copied_alike, is_shared, lent
from eagerflow.codegen.kernel import has_segments
from eagerflow.convert import as_tensor, number_type
from eagerflow.devices import Device, current_device
from eagerflow.dims import Dim, DimLike, product
from eagerflow.display import summary
from eagerflow.dtypes import DType, join_scalar
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.fusion.groups import fuse, fuse_for_device
from eagerflow.fusion.kernels import Step
from eagerflow.graph.cache import kept
from eagerflow.graph.costs import names_of
from eagerflow.graph.devices import homes
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Value
from eagerflow.graph.run import compute_nodes, evaluate
from eagerflow.graph.sizes import LATE, Sizes, bind, concrete
from eagerflow.handlers import raised_here
from eagerflow.masks import are_masks, masks_of_inputs, opened
from eagerflow.plan.in_place import Commit
from eagerflow.plan.loop_buffers import order_of_segments
from eagerflow.plan.owners import begin_run, owned
from eagerflow.plan.plan import Plan
from eagerflow.profiling.profile import Profile
from eagerflow.recorder import process, recorder_state
from eagerflow.runtime.clock_cache import ClockCache
from eagerflow.runtime.collector import young
from eagerflow.tensor import Tensor, known_masks, mask_of, new_tensor
from eagerflow.variable import (
    MIN_OWNED_BYTES,
    assign_together,
    held_together,
    put_together,
    read_together,
)

NUMERICS = ("fast", "exact")
CALLS_BEFORE_PLAN = 32
"""Calls with the same free sizes before they get a plan, if values are small: making one takes as
long as so many calls op by op. Four times as many where another plan has to go."""
SMALL_ELEMENTS = 8192
"""Elements of a value up to which the time of an op hardly depends on them."""
MAX_COUNTED_SIZES = 4096


class Replay:
    """A graph with the plans made for it."""

    def __init__(self, graph: Graph, numerics: str = "fast") -> None:
        if numerics not in NUMERICS:
            raise ArgumentError(
                f"{numerics!r} is not a choice", argument="numerics", expected="'fast' or 'exact'"
            )
        self.graph = graph
        self.numerics = numerics
        self.cells = graph.cells
        self.assigned = tuple(c for c in graph.cells if c.assigned is not None)
        self._variables = [c.variable for c in graph.cells]
        self._assigned = [c.variable for c in self.assigned]
        large = any(v.nbytes >= MIN_OWNED_BYTES for v in self._variables)
        self._reads = frozenset(map(id, self._variables)) if large else frozenset()
        self._optimized = graph.optimized(numerics=numerics, final=True)
        self.plans: ClockCache[Plan] = ClockCache()
        self._kinds: dict[Any, tuple[Any, ...]] = {}
        self._names = _size_names(graph)
        self._late = _late_sizes(graph)
        self._count = len(graph.inputs)
        self._calls: dict[Any, int] = {}  # that are left op by op, for sizes without a plan

    def _is_due(self, sizes: dict[str, int], device: Device) -> bool:
        """Whether these free sizes get a plan now: the first ones, and those of many calls."""
        plans, calls, key = self.plans, self._calls, (*sizes.values(), device)
        if not plans.items or self._late:
            return True
        left = calls.get(key)
        if left is None:
            if len(calls) >= MAX_COUNTED_SIZES:
                calls.clear()
            many = CALLS_BEFORE_PLAN * SMALL_ELEMENTS
            left = min(CALLS_BEFORE_PLAN, many // (1 + mean_elements(self._optimized, sizes)))
            left *= 4 if len(plans.items) >= plans.bound else 1
        calls[key] = left - 1
        if left <= 0:
            calls.pop(key, None)
        return left <= 0

    def _run_op_by_op(
        self, inputs: Sequence[Any], tensors: list[Tensor], sizes: dict[str, int]
    ) -> list[Tensor]:
        """The outputs by ordinary op calls, for sizes that may not come again."""
        entries = [x if type(x) is Tensor else as_tensor(x, copy=True) for x in inputs]
        found = compute_nodes(self._optimized, [*entries, *tensors], Sizes(sizes))
        count = len(found) - len(self._assigned)
        new = [v.own(x) for v, x in zip(self._assigned, found[count:], strict=True)]
        put_together(self._assigned, new)
        return found[:count]

    def plan(self, sizes: dict[str, int], device: Device) -> Plan:
        """The plan for these sizes of the graph's named dimensions."""
        key = (*sizes.values(), device)
        found = self.plans.items.get(key)
        if found is not None:
            found.used = True
        else:
            with young():
                graph = concrete(self._optimized, self._late | sizes)
                exact = self.numerics == "exact"
                order = order_for(device) if device.backend.fuses and not exact else as_written
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
        """The outputs for these Tensors or arrays; afterwards the Variables have their new values.

        ``inputs`` must fit the graph's inputs: they are not checked.
        """
        variables = self._variables
        # Until the run ends, other runs do not overwrite values that it uses.
        token = begin_run(self._reads) if self._reads else None
        tensors = held_together(variables) if variables else []
        plan, arrays = self._planned(inputs, tensors)
        if plan is None:
            return self._run_op_by_op(inputs, tensors, self.sizes(arrays))
        if plan.shared:
            self._share(plan, inputs, arrays)
        kinds = self._kinds.get(plan.device) or self._kinds_on(plan.device)
        made: list[Tensor] = []
        if not self._assigned:
            for array, kind in zip(plan.run(arrays), kinds):  # noqa: B905 - strict takes 0.1 us
                made.append(new_tensor(array, kind))
        else:
            finish = partial(self._finish, kinds, tensors, made)
            plan.run(arrays, finish, owned(variables, tensors) if plan.updates else ())
        del token
        return made

    def rest(self) -> None:
        """Release the buffers of its plans, for it is not to be run again soon."""
        for plan in list(self.plans.items.values()):
            plan.rest()

    def _planned(
        self, inputs: Sequence[Any], tensors: list[Tensor]
    ) -> tuple[Plan | None, list[Any]]:
        """The plan for these inputs and values of Variables, if any, and the arrays of all."""
        try:
            arrays = list(map(_array_of, inputs))
        except raised_here(AttributeError):
            arrays = [x._array if type(x) is Tensor else x for x in inputs]
        if inputs and type(inputs[0]) is Tensor:
            device = inputs[0]._kind.device
        else:
            device = tensors[0]._kind.device if tensors else current_device()
        arrays += map(_array_of, tensors)
        sizes = self.sizes(arrays) if self._names else {}
        plan = self.plans.items.get((*sizes.values(), device))
        if plan is not None:
            plan.used = True
        elif not sizes or self._is_due(sizes, device):
            plan = self.plan(sizes, device)
        return plan, arrays

    def profile(self, inputs: Sequence[Any], rounds: int) -> Profile:
        """A profile of ``run``; see ``Plan.profile``."""
        tensors = read_together(self._variables)
        plan, arrays = self._planned(inputs, tensors)
        while plan is None:
            plan, arrays = self._planned(inputs, tensors)
        return plan.profile(arrays, rounds)

    def _share(self, plan: Plan, inputs: Sequence[Any], arrays: list[Any]) -> None:
        """Prepare for results that share memory with inputs or with values of Variables.

        Arrays of callers, which may be changed, are copied, even if tensors share their memory;
        values are marked as read.
        """
        count = len(inputs)
        for i in plan.shared:
            if i >= count:
                self._variables[i - count]._owner = None
            if (i < count and type(inputs[i]) is not Tensor) or (lent and is_shared(arrays[i])):
                arrays[i] = copied_alike(arrays[i])

    def _finish(
        self,
        kinds: tuple[Any, ...],
        old: list[Tensor],
        made: list[Tensor],
        found: tuple[Any, ...],
        commit: Commit | None,
    ) -> None:
        """Append a run's outputs to ``made``, and give the Variables their new values."""
        count, new = len(found) - len(self._assigned), []
        for array, kind in zip(found, kinds):  # noqa: B905 - strict takes 0.1 us
            new.append(new_tensor(array, kind))
        if count:
            made += new[:count]
            del new[:count]
        if commit is None:
            # Small values have no owners: an existing mark belongs to an older value.
            put_together(self._assigned, new, None if self._reads else ())
        else:
            commit.replace(self._assigned, old, new, self._reads)

    def _kinds_on(self, device: Device) -> tuple[Any, ...]:
        places = homes(self.graph, device)
        finals = self.graph.all_outputs()
        kinds = tuple(d.kind(v.dtype) for d, v in zip(places, finals, strict=True))
        self._kinds[device] = kinds
        return kinds

    def checked(self, inputs: Sequence[Any]) -> list[Any]:
        """``inputs`` in the form for ``run``; ShapeError or DTypeError if they do not fit."""
        graph = self.graph
        if len(inputs) != self._count:
            raise ArgumentError(
                f"{len(inputs)} arguments for {self._count} inputs",
                op=graph.name,
                expected=", ".join(f"{n}: {v.spec}" for n, v in named(graph)),
            )
        if known_masks:
            _refuse_lost_masks(graph, inputs)
        return check_inputs(graph, inputs)


_array_of = attrgetter("_array")


def order_for(device: Device) -> Callable[[Graph], list[Step]]:
    """The fusion of a graph's steps for a device."""
    if not device.backend.host:
        return fuse_for_device
    return order_of_segments if has_segments() else fuse


def as_written(graph: Graph) -> Sequence[Step]:
    """The nodes themselves, one by one, as in eager calls."""
    return graph.nodes


def named(graph: Graph) -> list[tuple[str, Value]]:
    """The inputs of a graph with their names."""
    return list(zip(graph.inputs.names, graph.inputs, strict=True))


def _size_names(graph: Graph) -> dict[str, tuple[int, int]]:
    """For each named dimension, an input and its axis with that size."""
    found: dict[str, tuple[int, int]] = {}
    for i, value in enumerate(graph.all_inputs()):
        for axis, size in enumerate(value.shape):
            if isinstance(size, Dim) and str(size).isidentifier():
                found.setdefault(str(size), (i, axis))
    return found


def _late_sizes(graph: Graph) -> dict[str, Any]:
    """The named dimensions of results that are only known after a run."""
    shapes = [v.shape for node in graph.nodes if node.op.name in LATE for v in node.outputs]
    return {str(size): size for shape in shapes for size in shape if isinstance(size, Dim)}


def mean_elements(graph: Graph, sizes: dict[str, int]) -> int:
    """The elements of a value that a graph computes, on average."""
    total, count = _all_elements(graph)
    return (total.evaluate(sizes) if isinstance(total, Dim) else total) // (count or 1)


@kept
def _all_elements(graph: Graph) -> tuple[DimLike, int]:
    """The elements of all values whose sizes are known before a run, and their number."""
    given = _size_names(graph).keys()
    values = [v for node in graph.nodes for v in node.outputs if names_of(v.shape) <= given]
    total: DimLike = 0
    for value in values:
        total += product(value.shape)
    return total, len(values)


def check_inputs(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Tensors of the graph's dtypes; ShapeError or DTypeError for those that do not fit."""
    made = []
    sizes: dict[str, int] = {}
    for (name, value), given in zip(named(graph), inputs, strict=True):
        tensor = given if type(given) is Tensor else _as_input(given, value.dtype)
        if tensor.dtype != value.dtype:
            raise DTypeError(
                "dtype mismatch with the graph's input",
                op=graph.name,
                argument=name,
                received=summary(tensor),
                expected=str(value.spec),
                hint=f"{name}.astype({value.dtype.name!r})",
            )
        if not bind(sizes, value.shape, tensor.shape) or 0 in sizes.values():
            raise ShapeError(
                "shape mismatch with the graph's input",
                op=graph.name,
                argument=name,
                received=summary(tensor),
                expected=str(value.spec)
                + (f" where {', '.join(f'{n}={s}' for n, s in sizes.items())}" if sizes else "")
                + (", named sizes being at least 1" if 0 in sizes.values() else ""),
            )
        made.append(tensor)
    return made


def _with_masks(graph: Graph, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with masks beside their tensors if the graph takes masks."""
    known = graph.argument_structure
    return opened(args) if known is None or any(are_masks(known)) else args


def _refuse_lost_masks(graph: Graph, inputs: Sequence[Any]) -> None:
    """Raise ArgumentError for a tensor with a mask that the graph does not take."""
    taken = masks_of_inputs(graph)
    for (name, value), given in zip(named(graph), inputs, strict=True):
        if mask_of(given) is not None and value not in taken:
            raise lost_mask(graph.name, name, given)


def lost_mask(op: str, name: str, given: Any) -> ArgumentError:
    """The error for a tensor with a mask that no input takes."""
    return ArgumentError(
        "it has a mask, and the graph was made for a tensor without one",
        op=op,
        argument=name,
        received=summary(given),
        expected="a tensor that no layer has given a mask",
        hint=f"trace the function with such a tensor, or leave the mask out: {name} * 1",
    )


def _with_masks_named(graph: Graph, values: dict[str, Any]) -> dict[str, Any]:
    """Values by the names of inputs, including masks that the graph takes."""
    names = dict(zip(graph.inputs, graph.inputs.names, strict=True))
    masks = {names[m]: mask_of(values.get(names[x])) for x, m in masks_of_inputs(graph).items()}
    return {name: mask for name, mask in masks.items() if mask is not None} | values


def _as_input(given: Any, dtype: DType) -> Tensor:
    """A fed value as a tensor: numbers in this dtype, if its kind can represent them.

    A float is invalid for an input of integers, where an op would compute with floats.
    """
    kind = number_type(given)
    if kind is None:
        plain = not hasattr(given, "dtype") and not isinstance(given, list | tuple)
        return as_tensor(given, dtype if plain else None)
    own = as_tensor(given) if join_scalar(dtype, kind) != dtype else None
    return own if own is not None and own.size else as_tensor(given, dtype)


@kept
def replay_of(graph: Graph, numerics: str = "fast") -> Replay:
    """The replay of a graph, made at first use and cached on it."""
    return Replay(graph, numerics)


@graph_method
def run_graph(self: Graph, *args: Any, **named: Any) -> Any:
    """See ``Graph.__call__``."""
    leaves = leaves_of(self, args)
    if named and known_masks:
        named = _with_masks_named(self, named)
    if named:
        leaves += [named.pop(n) for n in self.inputs.names[len(leaves) :] if n in named]
    if named:
        raise ArgumentError(
            f"there is no input {next(iter(named))!r}, or it was given twice",
            op=self.name,
            expected=", ".join(self.inputs.names),
        )
    replay = replay_of(self)
    inputs = replay.checked(leaves)
    if process.recorders and recorder_state()[1] is not None:
        return self.nest(call_watched(self, inputs))
    return self.nest(replay.run(inputs))


def leaves_of(graph: Graph, args: tuple[Any, ...]) -> list[Any]:
    """The values for the inputs, from arguments in the nest of the traced function's."""
    if known_masks:
        args = _with_masks(graph, args)
    if len(args) == len(graph.inputs):
        plain = [tree.flatten(x)[0] for x in args]
        if any(len(leaves) != 1 for leaves in plain) and not any(
            hasattr(x, "shape") for leaves in plain for x in leaves
        ):
            return list(args)  # lists of Python numbers, one for each input
    leaves = tree.flatten(args)[0]
    if len(leaves) > len(graph.inputs):  # omit leaves that were static in the trace
        leaves = [x for x in leaves if hasattr(x, "shape") or isinstance(x, int | float | complex)]
    return leaves


def call_watched(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph run node by node for a recorder."""
    entries = [*inputs, *(cell.variable.value for cell in graph.cells)]
    # Sizes may be names again, in the trace of a function with free sizes.
    sizes = {name: entries[i].shape[axis] for name, (i, axis) in _size_names(graph).items()}
    outputs, assigned = evaluate(concrete(graph, _late_sizes(graph) | sizes), entries)
    cells = [c.variable for c in graph.cells if c.assigned is not None]
    assign_together(dict(zip(cells, assigned, strict=True)))
    return outputs


@graph_method
def plan(self: Graph, numerics: str = "fast", sizes: dict[str, int] | None = None) -> Plan:
    """See ``Graph.plan``."""
    replay = replay_of(self, numerics)
    given = sizes or {}
    missing = [name for name in replay._names if name not in given]
    if missing:
        raise ShapeError(
            f"the sizes of {', '.join(missing)} are not given",
            op="graph.plan",
            argument="sizes",
            hint=f"graph.plan(sizes={{{missing[0]!r}: 32}})",
        )
    return replay.plan({name: given[name] for name in replay._names}, current_device())
