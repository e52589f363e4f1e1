"""Cost model: rates of devices, and predictions from them.

    time = call + max(work / rate, bytes / rate)

Products have rates by size, memory by bytes moved, elementwise ops by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eagerflow.devices import Device
from eagerflow.errors import ArgumentError
from eagerflow.fusion.kernels import FusedKernel, Step
from eagerflow.graph.costs import nbytes, stated_cost
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.op import Missing
from eagerflow.ops.nn import convolution, pooling

POOLING_OPS = frozenset(getattr(pooling, name).op for name in pooling.__all__)
"""Contractions that are no products: they read each window of an array."""
_CONVOLUTION_OPS = frozenset(
    f.op  # type: ignore[attr-defined]
    for f in (
        convolution.conv,
        convolution.conv_input_gradient,
        convolution.conv_filter_gradient,
    )
)

Points = tuple[tuple[float, float], ...]
"""Rates at some amounts of work; interpolated by the logarithm of the amount."""


@dataclass(frozen=True)
class Rates:
    """The performance of one device.

    ``products`` are operations per second of matrix products, by operations of one; ``memory``
    is bytes per second, by bytes of one call; both can be a single number. ``elements`` are
    seconds per element of op calls by name, ``statements`` the same for the instructions of
    generated kernels, where ``"add"`` stands for all that are not listed. ``call`` and
    ``region`` are the overheads of calls in seconds. ``convolution`` is the speed of a convolution
    with 3x3 filters relative to a product with as many operations; it uses faster
    algorithms.

    >>> ef.capture.Rates(products=1e11, memory=1e10).call
    1e-06
    """

    products: Points | float = 5e10
    memory: Points | float = 1e10
    elements: Mapping[str, float] = field(default_factory=lambda: {"add": 3e-10})
    statements: Mapping[str, float] = field(default_factory=lambda: {"add": 1e-10})
    call: float = 1e-6
    region: float = 2e-6
    convolution: float = 1.0

    def product_rate(self, work: float) -> float:
        """Operations per second of a product with this many operations."""
        return _between(self.products, work)

    def memory_rate(self, size: float) -> float:
        """Bytes per second of a call that moves this many bytes."""
        return _between(self.memory, size)


def _between(points: Points | float, at: float) -> float:
    if not isinstance(points, tuple):
        return points
    below = points[0]
    for point in points:
        if point[0] >= at:
            if point is below or at <= below[0]:
                return point[1]
            part = math.log(at / below[0]) / math.log(point[0] / below[0])
            return float(below[1] ** (1 - part) * point[1] ** part)
        below = point
    return below[1]


@dataclass(frozen=True)
class CostModel:
    """Predicts seconds of nodes, regions and transfers; made by hand, or by ``calibrate``.

    ``devices`` are the Rates by name, ``"*"`` for all others; ``latency`` is the time in seconds
    from the end of a piece until one on another device begins, ``bandwidth`` bytes a second of
    transfers between devices that do not share memory (infinite between those that do).

    >>> rates = ef.capture.Rates(products=1e11, memory=1e10)
    >>> model = ef.capture.CostModel({"*": rates}, latency=1e-5)
    >>> model.transfer(1 << 20, "cpu:0", "cpu:1")
    1e-05
    """

    devices: Mapping[str, Rates]
    latency: float = 3e-5
    bandwidth: float | Mapping[tuple[str, str], float] = math.inf
    run: float = 5e-5
    """The overhead of a run in seconds, before its first and after its last piece."""
    crowd: float = 1.0
    """The slowdown of work while the other devices of the machine are busy."""

    def rates(self, device: str) -> Rates:
        """The rates of a device; ArgumentError if there are none."""
        found = self.devices.get(device) or self.devices.get("*")
        if found is None:
            raise ArgumentError(
                f"there are no rates of {device}",
                op="CostModel",
                expected="one of " + ", ".join(self.devices),
            )
        return found

    def transfer(self, size: float, source: str, target: str) -> float:
        """Seconds until this many bytes of one device can be used on another."""
        if source == target:
            return 0.0
        rate = self.bandwidth
        if isinstance(rate, Mapping):
            rate = rate.get((source, target), math.inf)
        return self.latency + size / rate

    def node(self, node: Node, device: str, fused: bool = False) -> float:
        """Seconds of one call; ``fused``: probably in one kernel with its neighbours."""
        return self.seconds(work_of(node), node, device, fused)

    def seconds(self, work: Work, node: Node, device: str, fused: bool) -> float:
        """Seconds of a node with known work."""
        rates = self.rates(device)
        op = node.op
        if op.views:
            return rates.call / 2
        if op.family == "contraction" and op not in POOLING_OPS:
            arithmetic = work.flops / rates.product_rate(work.flops) if work.flops else 0.0
            if op in _CONVOLUTION_OPS and _has_square_filter(node):
                arithmetic /= rates.convolution
            return rates.call + max(arithmetic, work.bytes / rates.memory_rate(work.bytes))
        if fused and op.fills:
            return rates.call / 4  # a number in the kernel that uses it
        if fused and not isinstance(op.scalar, Missing):
            add = rates.statements["add"]
            each = max(
                rates.statements.get(op.name, add), work.flops / max(work.elements, 1) / 2 * add
            )
            moved = work.bytes / 2 / rates.memory_rate(work.bytes)
            return rates.call / 2 + max(work.elements * each, moved)
        each = rates.elements.get(op.name, 0.0)
        arithmetic = work.elements * each if each else work.flops * rates.elements["add"] / 2
        return rates.call + max(arithmetic, work.bytes / rates.memory_rate(work.bytes))

    def step(self, step: Step, device: str) -> float:
        """Seconds of a step of a plan: a node, or a region."""
        return (
            self.kernel(step, device) if isinstance(step, FusedKernel) else self.node(step, device)
        )

    def kernel(self, kernel: FusedKernel, device: str) -> float:
        """Seconds of a region: memory or arithmetic, whichever takes longer."""
        rates = self.rates(device)
        size = sum(nbytes(x) for x in {*kernel.inputs, *kernel.outputs})
        sizes = kernel.sizes
        work = 0.0
        region = kernel.region
        axes = {p.name: p.axes for p in region.inputs} | {s.name: s.axes for s in region.body}
        for one in region.body:
            along = set(one.axes)
            for x in one.operands:
                if isinstance(x, str):
                    along |= set(axes[x])
            each = rates.statements.get(one.instruction, rates.statements["add"])
            wide = 2 if one.dtype.endswith("64") else 1
            work += each * wide * math.prod(sizes[a] for a in along if a in sizes)
        return rates.region + max(work, size / rates.memory_rate(size))


TYPICAL = CostModel({"*": Rates()})
"""The default costs of devices without measurements."""


def _has_square_filter(node: Node) -> bool:
    """Whether a convolution, or one of its gradients, has filters of 3x3."""
    shapes = [v.shape for v in (*node.values(), *node.outputs)]
    return any(len(shape) == 4 and shape[:2] == (3, 3) for shape in shapes)


# Work of nodes -----------------------------------------------------------------------------------


class Work(NamedTuple):
    """Operations, bytes, and elements of the largest one of arguments and results."""

    flops: float
    bytes: float
    elements: float


def work_of(node: Node, known: dict[Any, Work] | None = None) -> Work:
    """The work of a node, by its op's cost; ``known`` caches it for similar nodes."""
    key = (
        node.op.name,
        tuple([(x.shape, x.dtype) if type(x) is Value else type(x) for x in node.inputs]),
        tuple([(v.shape, v.dtype) for v in node.outputs]),
        repr(node.attributes) if node.attributes else None,
    )
    if known is not None and key in known:
        return known[key]
    values = (*node.values(), *node.outputs)
    elements = float(max([v.size for v in values], default=1))
    try:
        flops = float(stated_cost(node).flops)
    except raised_here(Exception):  # an unsupported argument must not stop a placement
        flops = elements
    found = Work(flops, float(sum(nbytes(x) for x in values)), elements)
    if known is not None:
        known[key] = found
    return found


def shares_memory(source: Device, target: Device) -> bool:
    """Whether arrays of one device can be used directly on another one."""
    return source is target or (source.backend is target.backend and source.backend.host)
