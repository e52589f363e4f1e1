"""Constants: nodes with known inputs are computed once, when the pass runs."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.rewriting import Rewrite, Sweep, swept
from eagerflow.capture.passes.shared_constants import is_lent, owned
from eagerflow.devices import HOST_TYPE, Device, as_device, current_device, device
from eagerflow.dims import symbolic
from eagerflow.errors import DeviceError, EagerflowError
from eagerflow.fusion.lowering import without_inputs
from eagerflow.graph.costs import nbytes, stated_cost
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.sizes import is_symbolic
from eagerflow.graph.walk import bodies_of
from eagerflow.handlers import raised_here
from eagerflow.ops.nn.quantization import WIDENING
from eagerflow.recorder import with_recorder

MAX_BYTES = 2**20
"""The maximum size of a result kept as a constant, in bytes."""
SMALL_BYTES = 2**16
"""Results up to this many bytes may grow beyond ``MAX_GROWTH``."""
MAX_GROWTH = 4
"""The maximum growth of a result above ``SMALL_BYTES`` over its inputs."""
MAX_FLOPS = 10_000_000
"""The maximum floating-point operations for one node, by the op's cost."""


def folded(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with constants in place of the nodes that can be computed now.

    The ops themselves compute them, so the bits are those of eager calls. Nodes with results larger
    than ``MAX_BYTES``, with more growth than ``MAX_GROWTH`` or more than ``MAX_FLOPS`` operations
    are kept; so are nodes that widen compact data, nodes that fail, as they fail when the
    graph runs, with their line, and nodes that read memory shared with foreign arrays, which
    are read each time that the graph runs.

    >>> f = lambda x: x * ef.exp(ef.zeros((3,)))
    >>> graph = ef.capture.trace(f, ef.TensorSpec((3,), "float32"))
    >>> [node.op.name for node in graph.nodes]
    ['zeros', 'exp', 'multiply']
    >>> [node.op.name for node in ef.capture.passes.constants(graph).nodes]
    ['multiply']
    """
    return swept("constants", graph, {}, _Folding)


class _Folding(Sweep):
    def look(self, node: Node) -> bool:
        for x in node.inputs:
            if type(x) is Value and (x.constant is None or is_lent(x.constant)):
                if node.op.fills:
                    break
                return False
        place = _place(node)
        if place is None or not self._allowed(node, place):
            return False
        found = self._computed(node, place)
        if found is None:
            return False
        for value, tensor in zip(node.outputs, found, strict=True):
            known = value.like()
            known.constant, known.index = tensor, 0
            self.replace(value, known)
        self.note(f"{node.name} is computed once", node)
        return True

    def _allowed(self, node: Node, place: Device) -> bool:
        """Whether computing now is possible, cheap, and has no disadvantage."""
        op = node.op
        if (
            op.family in ("custom", "communication")
            or op.name in WIDENING
            or bodies_of(node.attributes)
        ):
            return False
        constants = [x.constant for x in node.values() if x.constant is not None]
        if any(x.device is not place for x in constants):
            return False
        if any(symbolic(v.shape) for v in node.outputs):
            return False
        if any(is_symbolic(x) for x in node.attributes.values()):
            return False
        size, given = sum(nbytes(x) for x in node.outputs), sum(nbytes(x) for x in node.values())
        if size > MAX_BYTES or size > max(SMALL_BYTES, MAX_GROWTH * given):
            return False
        return bool(stated_cost(node).flops <= MAX_FLOPS)

    def _computed(self, node: Node, place: Device) -> tuple[Any, ...] | None:
        """The results of a node; None if it fails."""
        node = without_inputs(node) if node.op.fills else node
        inputs = [x.constant if type(x) is Value else x for x in node.inputs]
        try:
            with device(place):
                found = with_recorder(None, node.op.call, *inputs, **node.attributes)
        except raised_here(EagerflowError):
            return None
        results = found if isinstance(found, tuple) else (found,)
        for value, tensor in zip(node.outputs, results, strict=True):
            if tensor.shape != value.shape or tensor.dtype != value.dtype:
                return None  # the shape depends on values, and differs from the graph's
        return tuple([owned(x) for x in results])


def _place(node: Node) -> Device | None:
    """The device of a node, if its arrays are in this process or in the memory of the host.

    An argument ``device`` pins a node to another one than the current.
    """
    pinned = node.attributes.get("device")
    if pinned is not None and {pinned, node.device} - {None} != {str(current_device())}:
        return None
    try:
        place = as_device(node.device)
    except raised_here(DeviceError):  # it exists where the graph runs
        return None
    return place if place.type == HOST_TYPE and place.backend.host else None
