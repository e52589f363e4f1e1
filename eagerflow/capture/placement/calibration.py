"""Calibration: measured performance of the devices of this machine.

Rates are measured once per machine and kind of device, in about a second, and stored on disk.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import numpy as np

from eagerflow.capture.placement import executor
from eagerflow.capture.placement.cost_model import CostModel, Points, Rates, shares_memory
from eagerflow.capture.trace import trace
from eagerflow.codegen import kernel
from eagerflow.devices import Device, as_device
from eagerflow.fusion.groups import fuse
from eagerflow.graph.costs import stated_cost
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.op import ops
from eagerflow.ops.nn.convolution import conv
from eagerflow.plan.plan import Plan
from eagerflow.runtime.measured import remembered
from eagerflow.runtime.processor import processor_name
from eagerflow.spec import TensorSpec

TIMED_INSTRUCTIONS = {
    "exp": ("exp2", "expm1", "sigmoid"),
    "log": ("log1p", "log2", "log10"),
    "tanh": ("sinh", "cosh"),
    "sin": ("cos", "tan"),
    "sqrt": ("rsqrt",),
    "divide": ("reciprocal",),
    "erf": ("erfc", "gelu"),
    "power": (),
}
"""Timed instructions of regions, and those of about the same cost; others count as
additions."""
FORMAT_VERSION = 6  # of the data on disk


# Measuring ---------------------------------------------------------------------------------------


def shortest_time(f: Callable[[], object], seconds: float = 0.004, least: int = 3) -> float:
    """The shortest time of several calls, in seconds: other load only adds to it."""
    f()
    found, spent, calls = math.inf, 0.0, 0
    while calls < least or (spent < seconds and calls < 1000):
        begin = perf_counter()
        f()
        taken = perf_counter() - begin
        found, spent, calls = min(found, taken), spent + taken, calls + 1
    return found


def _time(place: Device, f: Callable[[], object], seconds: float = 0.004) -> float:
    """The shortest time of a call on a device, with the wait for its end."""
    if place.backend.host:
        return shortest_time(f, seconds)

    def both() -> None:
        f()
        place.backend.synchronize()

    return shortest_time(both, seconds)


def _array(place: Device, values: Any) -> Any:
    """These values as a float32 array of a device."""
    return place.backend.asarray(np.asarray(values, np.float32), None, place.index)


def _products(place: Device) -> Points:
    rng, found = np.random.default_rng(0), []
    for n in (8, 32, 96, 256, 512):
        a, b, out = (_array(place, rng.random((n, n))) for _ in range(3))
        taken = _time(place, partial(a.dot, b, out), 0.01)
        found.append((2.0 * n**3, 2.0 * n**3 / taken))
    return tuple(found)


def _memory(place: Device) -> Points:
    found = []
    for size in (1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26):
        n = size // 12
        a, out = (_array(place, np.ones(n)) for _ in range(2))
        found.append(
            (float(size), 12.0 * n / _time(place, partial(place.backend.xp.add, a, a, out)))
        )
    return tuple(found)


MAX_CROWD_FACTOR = 1.3
_TIMED_ELEMENTS = 1 << 14
_FEW_ELEMENTS = 1 << 9  # of a region dominated by the call overhead


def _elements(place: Device, call: float) -> dict[str, float]:
    """Seconds per element of ops that are one function of the array library."""
    x = _array(place, np.random.default_rng(0).uniform(0.1, 0.9, _TIMED_ELEMENTS))
    found = {}
    for op in ops.values():
        plain = not op.attributes if op.family == "elementwise" else op.family == "reduction"
        if not plain or op.required:
            continue
        own = place.backend.bind(op, x.dtype)
        try:
            taken = _time(place, partial(own, *[x] * len(op.data), **op.attributes), 0.0)
        except raised_here(Exception):  # integer or multi-operand op: by its stated cost
            continue
        found[op.name] = max(taken - call, 1e-7) / _TIMED_ELEMENTS
    return found


def _plan(place: Device, f: Callable[[Any], Any], length: int) -> Callable[[], object]:
    """A run of a plan for one function of a vector."""
    graph = trace(f, TensorSpec((length,), "float32"))
    plan = Plan(graph, fuse, place)
    x = _array(place, np.random.default_rng(0).uniform(0.2, 0.9, length))
    return lambda: plan.run((x,))


def _chain(name: str) -> Callable[[Any], Any]:
    """Four calls of an op, with cheap ones between them that keep numbers in range."""
    op = ops[name]

    def f(x: Any) -> Any:
        y = x
        for _ in range(4):
            y = (op.call(y, x) if len(op.data) == 2 else op.call(y)) * 0.25 + 0.5
        return y

    return f


def _statements(place: Device) -> tuple[float, dict[str, float]]:
    """The call overhead of a region in seconds, and seconds per element by instruction."""
    nothing = _time(place, _plan(place, lambda x: x, 16), 0.001)
    call = _time(place, _plan(place, _chain("add"), _FEW_ELEMENTS), 0.001) - nothing
    plain = _time(place, _plan(place, lambda x: x * 0.25 + 0.5, _TIMED_ELEMENTS), 0.002)
    cheap = _time(place, _plan(place, _chain("add"), _TIMED_ELEMENTS), 0.002) - plain
    each = {"add": max(cheap, 1e-6) / 10 / _TIMED_ELEMENTS}
    for name, alike in TIMED_INSTRUCTIONS.items():
        taken = _time(place, _plan(place, _chain(name), _TIMED_ELEMENTS), 0.002) - plain
        seconds = max(taken / _TIMED_ELEMENTS / 4 - 2 * each["add"], each["add"])
        each |= dict.fromkeys((name, *alike), seconds)
    return max(call, 2e-7), each


def _rates(place: Device) -> Rates:
    """The rates of a device, measured with the cores that it has in a run."""
    b = place.backend
    few, out = _array(place, np.ones(4)), _array(place, np.ones(4))
    call = _time(place, lambda: b.xp.add(few, few, out), 0.001) * 1.5
    region, statements = _statements(place)
    products = _products(place)
    own = Rates(products, _memory(place), _elements(place, call), statements, call, region)
    return replace(own, convolution=_convolution(place, own))


def _convolution(place: Device, rates: Rates) -> float:
    """The speed of a convolution relative to a product with as many operations."""
    specs = [TensorSpec(s, "float32") for s in ((8, 32, 32, 32), (3, 3, 32, 32))]
    graph = trace(conv, *specs)
    rng = np.random.default_rng(0)
    arrays = [_array(place, rng.standard_normal(s.shape)) for s in specs]
    plan = Plan(graph, fuse, place)
    taken = _time(place, lambda: plan.run(arrays), 0.01)
    flops = float(stated_cost(graph.nodes[0]).flops)
    return flops / taken / rates.product_rate(flops)


def _handover(places: Sequence[Device]) -> tuple[float, float]:
    """Seconds from one device's piece to the next one's, and the overhead of a run."""
    count = 16
    tasks = [
        executor.Task(
            f"{i}",
            place,
            lambda given: given,
            (i,),
            (i + 1,),
            executor.mode_of(place),
        )
        for i, place in enumerate(islice(cycle(places), count))
    ]
    many = executor.Program(tasks, [0], [count])
    two = executor.Program(tasks[:2], [0], [2])
    short = shortest_time(lambda: two.run([None]), 0.01, 20)
    whole = shortest_time(lambda: many.run([None]), 0.01, 20)
    latency = max((whole - short) / (count - 2), 1e-6)
    return latency, max(short - latency, 1e-6)


def _crowd(places: Sequence[Device]) -> float:
    """The slowdown of work while all CPU devices are busy: they share resources.

    Bounded, since other load on the machine would be counted as well.
    """
    own = [p for p in places if p.backend.host]
    if len(own) < 2:
        return 1.0
    rng = np.random.default_rng(0)

    def work(given: Any) -> Any:
        a, b, out = given[0]
        for _ in range(2):
            a.dot(b, out)
            for _ in range(8):
                np.sin(a, out)
        return [None]

    arrays = [rng.random((3, 256, 256), np.float32) for _ in own]
    tasks = [
        executor.Task(f"{i}", place, work, (i,), (len(own) + i,), executor.mode_of(place))
        for i, place in enumerate(own)
    ]
    together = executor.Program(tasks, range(len(own)), [])
    alone = executor.Program(tasks[:1], [0], [])
    lone = crowded = math.inf
    for _ in range(12):
        (event,) = alone.run(arrays[:1])[1]
        lone = min(lone, event.end - event.begin)
        events = together.run(arrays)[1]
        crowded = min(crowded, max(e.end - e.begin for e in events))
    return min(max(crowded / lone, 1.0), MAX_CROWD_FACTOR)


def _bandwidth(places: Sequence[Device]) -> list[tuple[int, int, float]]:
    """Bytes per second between devices without shared memory, by their indices."""
    found = []
    for i, source in enumerate(places):
        for k, target in enumerate(places):
            if not shares_memory(source, target):
                own = _array(source, np.ones(1 << 20))
                taken = shortest_time(partial(target.backend.receive, own, target.index), 0.01)
                found.append((i, k, (4 << 20) / taken))
    return found


# Remembering -------------------------------------------------------------------------------------

_measuring = reentrant_lock()


def _machine() -> str:
    processor = f"{processor_name()} x{os.cpu_count()}"
    versions = f"numpy {np.__version__}, python {platform.python_version()}"
    return f"on {processor}, {versions}, {kernel.ways()[0]}, format {FORMAT_VERSION}"


def calibrate(devices: Sequence[Any], again: bool = False) -> CostModel:
    """The costs of ops, kernels and transfers on these devices, as a CostModel.

    ``devices`` are devices or their names. Measured at the first call, in about a second, and
    kept in memory and in the user's cache folder, as compiled kernels are
    (``EAGERFLOW_CACHE``); ``again=True`` measures anew.

    >>> model = ef.capture.calibrate(["cpu:0"])
    >>> model.rates("cpu:0").product_rate(2 * 256**3) > 1e8
    True
    """
    places = [as_device(d) for d in devices]
    rates: dict[str, Rates] = {}
    done: set[str] = set()
    with Locked(_measuring), np.errstate(all="ignore"):
        for place in places:
            kind = _kind(place)
            for suffix, own in rates_of(place, again and kind not in done).items():
                rates[f"{place}{suffix}"] = own
            done.add(kind)  # logical devices are equal
        key = f"links of {', '.join([_kind(x) for x in places])} {_machine()}"
        links = remembered(key, partial(all_links, places), _as_links, again)
    latency, run, crowd, pairs = links
    bandwidth = {(str(places[i]), str(places[k])): rate for i, k, rate in pairs}
    return CostModel(rates, latency, bandwidth or math.inf, run, crowd)


def rates_of(place: Device, again: bool = False) -> dict[str, Rates]:
    """The rates of a device, measured once: by "", and by " alone" with all cores available."""
    key = f"rates of {_kind(place)} {_machine()}"
    with Locked(_measuring), np.errstate(all="ignore"):
        own, whole = remembered(key, partial(both_rates, place), _as_both, again)
    return {"": own, " alone": whole} if executor.mode_of(place) == executor.SHARED else {"": own}


def _kind(place: Device) -> str:
    """The properties that decide a device's speed: equal for logical devices of one machine."""
    if not place.backend.host:
        return str(place)
    return f"{place.type} with {executor.share_of(place)} cores {executor.mode_of(place)}"


def both_rates(place: Device) -> list[Any]:
    """The rates of a device with its share of the cores, and with all."""
    own = executor.run_at(executor.mode_of(place), executor.share_of(place), _rates, place)
    return [asdict(own), asdict(replace(own, products=_products(place)))]


def all_links(places: Sequence[Device]) -> list[Any]:
    """Latency, run overhead, slowdown by neighbours, and rates between separate memories."""
    return [*_handover(places), _crowd(places), _bandwidth(places)]


def _field(found: Any) -> Any:
    """A field of Rates from JSON: rates at amounts of work, seconds by name, or one number."""
    if isinstance(found, list):
        return tuple((float(amount), float(rate)) for amount, rate in found)
    if isinstance(found, dict):
        return {name: float(seconds) for name, seconds in found.items()}
    return float(found)


def as_rates(found: Any) -> Rates:
    """Rates from JSON."""
    return Rates(**{f.name: _field(found[f.name]) for f in fields(Rates)})


def _as_both(found: Any) -> list[Rates]:
    own, whole = found
    return [as_rates(own), as_rates(whole)]


def _as_links(found: Any) -> tuple[float, float, float, list[tuple[int, int, float]]]:
    latency, run, crowd, pairs = found
    rates = [(int(i), int(k), float(rate)) for i, k, rate in pairs]
    return float(latency), float(run), float(crowd), rates
