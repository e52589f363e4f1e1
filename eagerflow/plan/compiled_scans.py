"""Scans that are computed as a whole, in eager code and in exact plans alike.

The kernel of a long scan is a separate plan. If a tape records the scan, its steps are machine
code, and products that do not depend on the previous step are computed for all steps at once;
other rewrites are left to captured code, so that a result only depends on how it is computed, not
on other stored values. Without a tape, and without machine code, the plan makes the same calls as
eager code, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.codegen.kernel import has_segments
from eagerflow.devices import Device
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import nodes_within
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.op import Op
from eagerflow.plan.loop_buffers import order_of_segments
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import as_written
from eagerflow.runtime.clock_cache import ClockCache
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, new_tensor

MIN_CALLS = 64
"""The number of op calls, over all steps, from which a scan is compiled to a plan."""
MAX_PLANS = 64
PASSES = (
    *("constants", "no_ops", "subexpressions", "layout", "recurrences"),
    *("stop_gradients", "custom_gradients", "dead_code"),
)
"""Passes with rounding independent of other results of the scan, or none."""

_plans: ClockCache[Plan] = ClockCache(MAX_PLANS)
_lock = reentrant_lock()


@kept
def has_one_place(body: Graph) -> bool:
    """Whether no node in a body is pinned to a device."""
    return all(
        node.device is None and node.attributes.get("device") is None for node in nodes_within(body)
    )


def _key(operands: Sequence[Tensor], attributes: dict[str, Any]) -> Any:
    return (*attributes.values(), *[(x._kind, x._array.shape) for x in operands])


def known(operands: Sequence[Tensor], attributes: dict[str, Any]) -> Plan | None:
    """The cached plan of a scan for operands like these, if there is one."""
    try:
        plan = _plans.items.get(_key(operands, attributes))
    except raised_here(TypeError):  # invalid attributes
        return None
    if plan is not None:
        plan.used = True
    return plan


def plan_of(
    op: Op, operands: Sequence[Tensor], attributes: dict[str, Any], body: Graph, steps: int
) -> Plan | None:
    """The plan of a scan, made now; None for a short one, or one on several devices.

    ``body`` is that of the attributes, without named sizes.
    """
    if steps < 2 or steps * len(body.nodes) < MIN_CALLS or not operands:
        return None
    device = operands[0]._kind.device
    if not device.backend.host or not has_one_place(body):
        return None
    if any(x._kind.device is not device for x in operands):
        return None
    with Locked(_lock):
        plan = _plan(op, operands, attributes | {"body": body}, device)
        _plans.add(_key(operands, attributes), plan)
    return plan


def results(plan: Plan, body: Graph, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a scan with this body, by its plan; raises the errors of its ops."""
    kinds = [plan.device.kind(v.dtype) for v in body.outputs]
    found = plan.run([x._array for x in operands])
    return tuple([new_tensor(x, kind) for x, kind in zip(found, kinds, strict=True)])


def _plan(op: Op, operands: Sequence[Tensor], attributes: dict[str, Any], device: Device) -> Plan:
    """The plan of one scan."""
    body, name = attributes["body"], FreeNames().take
    inputs = [
        Value(name(v.name), x.shape, x.dtype) for v, x in zip(body.inputs, operands, strict=True)
    ]
    more = attributes | {"compiled": False}
    specs = op.infer(*[TensorSpec(v.shape, v.dtype, None, device) for v in inputs], **more)
    node = Node(op, tuple(inputs), more, name(op.name))
    node.outputs = tuple(
        Value(f"{node.name}:{i}", s.shape, s.dtype, None, node, i) for i, s in enumerate(specs)
    )
    outputs = Values(node.outputs, [f"output_{i}" for i in range(len(specs))])
    graph = Graph(body.name, Values(inputs), [node], outputs)
    if attributes["compiled"] and has_segments():
        return Plan(graph.optimized(only=PASSES), order_of_segments, device)
    return Plan(graph.optimized(numerics="exact", final=True), as_written, device, True)
