"""Calibration: what ops, kernels and transfers cost on the devices of this machine.

    time = call + the longer one of  work / rate  and  bytes / rate

Rates are measured once for each machine and set of devices, in about a second, and kept on disk.
Products have rates by their size, memory by how much is moved, element-wise ops by name.
"""

from __future__ import annotations

import json
import math
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import numpy as np

from eagerflow.capture import executor
from eagerflow.capture.plan.clusters import Cluster
from eagerflow.capture.plan.plan import Plan
from eagerflow.capture.plan.regions import grow
from eagerflow.capture.plan.regions_rules import CREATIONS, FREE
from eagerflow.capture.trace import trace
from eagerflow.devices import Device, as_device
from eagerflow.devices import devices as all_devices
from eagerflow.errors import ArgumentError
from eagerflow.graph import Node, Value
from eagerflow.kernels import kernel
from eagerflow.kernels.cache import ObjectCache
from eagerflow.op import Missing, ops
from eagerflow.spec import TensorSpec

__all__ = ["CostModel", "Rates", "calibrate"]

Points = tuple[tuple[float, float], ...]
"""Rates at some amounts of work; between them they follow the logarithm of the amount."""

VIEWS = FREE | {"permute_dims", "to_device", "positive", "unstack", "split"}
"""Ops that touch no element, most of the time."""
EXPENSIVE = ("exp", "log", "tanh", "sin", "sqrt", "divide", "erf", "power")
"""Instructions of regions that are timed one by one; all others count as additions."""
ALIKE = {
    "exp": ("exp2", "expm1", "sigmoid"), "log": ("log1p", "log2", "log10"), "sin": ("cos", "tan"),
    "divide": ("reciprocal",), "sqrt": ("rsqrt",), "erf": ("erfc", "gelu"),
    "tanh": ("sinh", "cosh"),
}  # fmt: skip
"""Instructions that take about as long as one that is timed."""
VERSION = 4


@dataclass(frozen=True)
class Rates:
    """What one device can do.

    ``products`` are operations a second of matrix products, by operations of one; ``memory``
    bytes a second, by bytes of one call; both can be given as one number. ``elements`` are
    seconds an element of op calls by name, ``statements`` the same of the instructions of
    generated kernels, where ``"add"`` stands for all that are not listed. ``call`` and
    ``region`` are seconds that a call costs besides.

    >>> ef.capture.Rates(products=1e11, memory=1e10).call
    1e-06
    """

    products: Points | float = 5e10
    memory: Points | float = 1e10
    elements: Mapping[str, float] = field(default_factory=lambda: {"add": 3e-10})
    statements: Mapping[str, float] = field(default_factory=lambda: {"add": 1e-10})
    call: float = 1e-6
    region: float = 2e-6

    def product_rate(self, work: float) -> float:
        """Operations a second of a product of so many."""
        return _between(self.products, work)

    def memory_rate(self, size: float) -> float:
        """Bytes a second of a call that moves so many."""
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
    """Seconds that a run costs before its first and after its last piece."""

    def rates(self, device: str) -> Rates:
        """The rates of a device; ArgumentError where there are none."""
        found = self.devices.get(device) or self.devices.get("*")
        if found is None:
            raise ArgumentError(
                f"there are no rates of {device}", op="CostModel",
                expected="one of " + ", ".join(self.devices),
            )  # fmt: skip
        return found

    def transfer(self, size: float, source: str, target: str) -> float:
        """Seconds until so many bytes of one device can be used on another."""
        if source == target:
            return 0.0
        rate = self.bandwidth
        if isinstance(rate, Mapping):
            rate = rate.get((source, target), math.inf)
        return self.latency + size / rate

    def node(self, node: Node, device: str, fused: bool = False) -> float:
        """Seconds of one call; ``fused``: probably in one kernel with its neighbours."""
        return self.signature(_signature(node), node, device, fused)

    def signature(self, signature: Work, node: Node, device: str, fused: bool) -> float:
        """Seconds of a node of which flops, bytes and elements are known."""
        rates = self.rates(device)
        flops, size, elements = signature
        name = node.op.name
        if name in VIEWS:
            return rates.call / 2
        if node.op.family == "contraction" and "pool" not in name:
            work = flops / rates.product_rate(flops) if flops else 0.0
            return rates.call + max(work, size / rates.memory_rate(size))
        if fused and name in CREATIONS:
            return rates.call / 4  # a number in the kernel that uses it
        if fused and not isinstance(node.op.scalar, Missing):
            each = rates.statements.get(name, rates.statements["add"])
            work = elements * max(each, flops / max(elements, 1) / 2 * rates.statements["add"])
            return rates.call / 2 + max(work, size / 2 / rates.memory_rate(size))
        each = rates.elements.get(name, 0.0)
        work = elements * each if each else flops * rates.elements["add"] / 2
        return rates.call + max(work, size / rates.memory_rate(size))

    def step(self, step: Any, device: str) -> float:
        """Seconds of a step of a plan: a node, or a region."""
        return self.cluster(step, device) if isinstance(step, Cluster) else self.node(step, device)

    def cluster(self, cluster: Cluster, device: str) -> float:
        """Seconds of a region: memory or arithmetic, whichever takes longer."""
        rates = self.rates(device)
        size = sum(v.size * v.dtype.itemsize for v in {*cluster.inputs, *cluster.outputs})
        sizes = cluster._sizes
        work = 0.0
        region = cluster.region
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


# What a node does --------------------------------------------------------------------------------

Work = tuple[float, float, float]
"""Operations, bytes, and elements of the larger one of arguments and results."""


def _signature(node: Node) -> Work:
    """What a node does, from the cost that its op states."""
    sizes = []
    specs = []
    for x in node.inputs:
        if type(x) is Value:
            specs.append(_spec(x.shape, x.dtype))
            sizes.append((x.size, x.dtype.itemsize))
        else:
            specs.append(x)
    made = [(v.size, v.dtype.itemsize) for v in node.outputs]
    try:
        flops = float(node.op.cost(*specs, **node.attributes).flops)
    except Exception:  # a rule that does not know such arguments must not stop a placement
        flops = float(max([s for s, _ in sizes + made], default=1))
    total = float(sum(s * w for s, w in sizes + made))
    return flops, total, float(max([s for s, _ in sizes + made], default=1))


@lru_cache(maxsize=4096)
def _spec(shape: tuple[int, ...], dtype: Any) -> TensorSpec:
    return TensorSpec(shape, dtype)


class Works:
    """What nodes do, found once for all that look alike."""

    def __init__(self) -> None:
        self._known: dict[Any, Work] = {}

    def of(self, node: Node) -> Work:
        """What a node does."""
        key = (
            node.op.name,
            tuple([(x.shape, x.dtype) if type(x) is Value else type(x) for x in node.inputs]),
            tuple([(v.shape, v.dtype) for v in node.outputs]),
            tuple([x if type(x) is not slice else repr(x) for x in node.attributes.values()])
            if node.attributes and not node.inputs else
            repr(node.attributes) if node.attributes else None,
        )  # fmt: skip
        try:
            return self._known[key]
        except (KeyError, TypeError):
            found = _signature(node)
        try:
            self._known[key] = found
        except TypeError:  # an attribute that has no hash
            pass
        return found


# Measuring ---------------------------------------------------------------------------------------


def best(f: Callable[[], object], seconds: float = 0.004, least: int = 3) -> float:
    """The shortest of some calls, in seconds: what else the machine does only adds to it."""
    f()
    found, spent, calls = math.inf, 0.0, 0
    while calls < least or (spent < seconds and calls < 1000):
        begin = perf_counter()
        f()
        taken = perf_counter() - begin
        found, spent, calls = min(found, taken), spent + taken, calls + 1
    return found


def _products(place: Device) -> Points:
    xp, rng, found = place.backend.xp, np.random.default_rng(0), []
    for n in (8, 32, 96, 256, 512):
        a, b = (place.backend.asarray(rng.random((n, n), np.float32), None, place.index)
                for _ in range(2))  # fmt: skip
        out = xp.empty((n, n), np.float32)
        taken = best(_waiting(place, partial(a.dot, b, out)), 0.01)
        found.append((2.0 * n**3, 2.0 * n**3 / taken))
    return tuple(found)


def _memory(place: Device) -> Points:
    found = []
    for size in (1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26):
        n = size // 12
        a = place.backend.asarray(np.ones(n, np.float32), None, place.index)
        xp = place.backend.xp
        out = xp.empty(n, np.float32)
        taken = best(_waiting(place, partial(xp.add, a, a, out)), 0.004)
        found.append((float(size), 12.0 * n / taken))
    return tuple(found)


def _waiting(place: Device, f: Callable[[], object]) -> Callable[[], object]:
    """The call with the wait for its end, where devices work on their own."""
    if place.type == "cpu":
        return f

    def both() -> None:
        f()
        place.backend.synchronize()

    return both


_ELEMENTS = 1 << 14
_FEW = 1 << 9  # elements of a region of which nearly all time is the call


def _elements(place: Device, call: float) -> dict[str, float]:
    """Seconds an element of the ops that are one function of the array library."""
    values = np.random.default_rng(0).uniform(0.1, 0.9, _ELEMENTS).astype(np.float32)
    x = place.backend.asarray(values, None, place.index)
    found = {}
    for op in ops.values():
        if op.family not in ("elementwise", "reduction") or (
            op.attributes and (op.family == "elementwise")
        ):
            continue
        own = place.backend.bind(op, x.dtype)
        given = [x] * len(op.data)
        more = dict(op.attributes)
        if any(type(v) is object for v in more.values()):
            continue
        try:
            taken = best(_waiting(place, partial(own, *given, **more)), 0.0, 3)
        except Exception:  # an op of integers, or one that needs more: its stated cost is used
            continue
        found[op.name] = max(taken - call, 1e-7) / _ELEMENTS
    return found


def _plan(place: Device, f: Callable[[Any], Any], length: int) -> Callable[[], object]:
    """A run of a plan of one function of a vector."""
    graph = trace(f, TensorSpec((length,), "float32"))
    plan = Plan(graph, grow, place)
    values = np.random.default_rng(0).uniform(0.2, 0.9, length).astype(np.float32)
    x = place.backend.asarray(values, None, place.index)
    return _waiting(place, lambda: plan.run((x,)))


def _chain(name: str) -> Callable[[Any], Any]:
    """Four calls of an op, with cheap ones between them that keep numbers ordinary."""
    op = ops[name]

    def f(x: Any) -> Any:
        y = x
        for _ in range(4):
            y = (op.call(y, x) if len(op.data) == 2 else op.call(y)) * 0.25 + 0.5
        return y

    return f


def _statements(place: Device) -> tuple[float, dict[str, float]]:
    """Seconds that a call of a region costs, and seconds an element by instruction."""
    nothing = best(_plan(place, lambda x: x, 16), 0.001)
    call = best(_plan(place, _chain("add"), _FEW), 0.001) - nothing
    plain = best(_plan(place, lambda x: x * 0.25 + 0.5, _ELEMENTS), 0.002)
    cheap = best(_plan(place, _chain("add"), _ELEMENTS), 0.002) - plain
    each = {"add": max(cheap, 1e-6) / 10 / _ELEMENTS}
    for name in EXPENSIVE:
        taken = best(_plan(place, _chain(name), _ELEMENTS), 0.002) - plain
        each[name] = max(taken / _ELEMENTS / 4 - 2 * each["add"], each["add"])
    for name, others in ALIKE.items():
        each |= dict.fromkeys(others, each[name])
    return max(call, 2e-7), each


def _rates(place: Device) -> Rates:
    """What a device can do, measured with the cores that it has in a run."""
    b = place.backend
    few = b.asarray(np.ones(4, np.float32), None, place.index)
    out = b.xp.empty(4, np.float32)
    call = best(_waiting(place, lambda: b.xp.add(few, few, out)), 0.001) * 1.5
    region, statements = _statements(place)
    elements = _elements(place, call)
    return Rates(_products(place), _memory(place), elements, statements, call, region)


def _handing(places: Sequence[Device]) -> tuple[float, float]:
    """Seconds from one device's piece to the next one's, and those that a run costs."""
    count = 16
    tasks = [
        executor.Task(
            f"{i}", place, lambda given: given, (i,), (i + 1,), (i - 1,) if i else (),
            executor.mode_of(place),
        )
        for i, place in enumerate(islice(cycle(places), count))
    ]  # fmt: skip
    many = executor.Program(tasks, count + 1, [0], [count])
    two = executor.Program(tasks[:2], 3, [0], [2])
    short = best(lambda: two.run([None]), 0.01, 20)
    whole = best(lambda: many.run([None]), 0.01, 20)
    latency = max((whole - short) / (count - 2), 1e-6)
    return latency, max(short - latency, 1e-6)


def _bandwidth(places: Sequence[Device]) -> dict[tuple[str, str], float]:
    """Bytes a second between devices that share no memory."""
    found = {}
    for source in places:
        for target in places:
            if source is target or shares_memory(source, target):
                continue
            own = source.backend.asarray(np.ones(1 << 20, np.float32), None, source.index)
            taken = best(partial(target.backend.receive, own, target.index), 0.01)
            found[str(source), str(target)] = (4 << 20) / taken
    return found


def shares_memory(source: Device, target: Device) -> bool:
    """Whether arrays of one device can be used on another one as they are."""
    return source is target or (source.backend is target.backend and source.type == "cpu")


_disk = ObjectCache()
_known: dict[str, CostModel] = {}
_measuring = threading.Lock()


@cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
        return f"{names[0]} x{len(names)}" if names else platform.processor()
    except OSError:  # only Linux has it
        return platform.processor() or platform.machine()


def _key(places: Sequence[Device]) -> str:
    shares = ", ".join(f"{p} with {executor.share_of(p)} cores" for p in places)
    versions = f"numpy {np.__version__}, python {platform.python_version()}"
    shares += f", {len(all_devices('cpu'))} CPU devices"
    return f"rates {VERSION} of {shares} on {_processor()}, {versions}, {kernel.ways()[0]}"


def calibrate(devices: Sequence[Any], again: bool = False) -> CostModel:
    """What ops, kernels and transfers cost on these devices.

    ``devices`` are devices or their names. Measured at the first call, in about a second, and
    kept in memory and in the user's cache folder, as compiled kernels are
    (``EAGERFLOW_CACHE``); ``again=True`` measures anew.

    >>> model = ef.capture.calibrate(["cpu:0"])
    >>> model.rates("cpu:0").product_rate(2 * 256**3) > 1e8
    True
    """
    places = [as_device(d) for d in devices]
    key = _key(places)
    with _measuring:
        found = None if again else _known.get(key) or _read(key)
        if found is None:
            with np.errstate(all="ignore"):
                found = _measured(places)
            _disk.store(key, json.dumps(_plain(found)).encode())
        _known[key] = found
    return found


def _measured(places: Sequence[Device]) -> CostModel:
    """Rates by timing; logical devices of one kind are alike, and measured once."""
    rates: dict[str, Rates] = {}
    alike: dict[Any, Rates] = {}
    wide: dict[Any, Rates] = {}  # with all cores, for pieces that run alone
    for place in places:
        kind = place.type, place.index if place.type != "cpu" else None
        mode = executor.mode_of(place)
        if kind not in alike:
            alike[kind] = executor.run_at(mode, executor.share_of(place), _rates, place)
        rates[str(place)] = own = alike[kind]
        if mode == executor.SHARED:
            whole = wide.get(kind)
            if whole is None:
                wide[kind] = whole = replace(own, products=_products(place))
            rates[f"{place} alone"] = whole
    latency, run = _handing(places)
    return CostModel(rates, latency, _bandwidth(places) or math.inf, run)


def _plain(model: CostModel) -> Any:
    found = asdict(model)
    if isinstance(model.bandwidth, Mapping):
        found["bandwidth"] = [[*pair, rate] for pair, rate in model.bandwidth.items()]
    else:
        found["bandwidth"] = None
    return found


def _read(key: str) -> CostModel | None:
    """What was measured before, None where there is nothing that can be used."""
    content = _disk.load(key)
    if content is None:
        return None
    try:
        found = json.loads(content)
        rates = {
            name: Rates(
                tuple((float(a), float(b)) for a, b in own["products"]),
                tuple((float(a), float(b)) for a, b in own["memory"]),
                {k: float(v) for k, v in own["elements"].items()},
                {k: float(v) for k, v in own["statements"].items()},
                float(own["call"]), float(own["region"]),
            )
            for name, own in found["devices"].items()
        }  # fmt: skip
        pairs = found["bandwidth"]
        bandwidth = math.inf if pairs is None else {(a, b): float(r) for a, b, r in pairs}
        return CostModel(rates, float(found["latency"]), bandwidth, float(found["run"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
