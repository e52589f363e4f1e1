"""verify: run a function in all modes, and find the first value in which two modes differ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.capture.function import Function
from eagerflow.capture.placement.partition import partition
from eagerflow.capture.saving.file import load, save
from eagerflow.convert import as_tensor
from eagerflow.devices import current_device
from eagerflow.devices import devices as all_devices
from eagerflow.display import summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError, printable
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.walk import returned
from eagerflow.guard import ScopeGuard
from eagerflow.masks import opened
from eagerflow.op import Op
from eagerflow.plan.replay import NUMERICS, Replay
from eagerflow.recorder import Recorder, below
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, put_together

_VARIABLE, _DEVICE = "Variable ", "the device of "
MODES = ("eager", "captured", "loaded", "partitioned")


class Difference(NamedTuple):
    """The first value that differs between two modes."""

    mode: str
    name: str
    place: str
    reference: np.ndarray[Any, Any]
    found: np.ndarray[Any, Any]

    def __str__(self) -> str:
        a, b = self.reference, self.found
        at = f" at {self.place}" if self.place else ""
        head = printable(f"{self.mode}: {self.name}{at}: ")
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{head}{summary(b)} in place of {summary(a)}"
        wrong = ~_equal_bits(a, b)
        index = tuple(int(i) for i in np.argwhere(wrong)[0]) if a.ndim else ()
        return (
            f"{head}{int(wrong.sum())} of {a.size} elements differ, first at {index}: "
            f"{a[index]!r} and {b[index]!r}"
        )


class Verification:
    """The result of ``verify``; true if all modes gave the same.

    It prints a line for each mode. ``differences`` are the first ones of modes that differ.

    >>> x = ef.tensor([0.5])
    >>> found = ef.capture.verify(lambda x: ef.tanh(x), [x], modes=["eager", "loaded"])
    >>> bool(found), found.first_difference, found
    (True, None, <Verification of lambda: same>)
    """

    def __init__(self, name: str, lines: list[str], differences: list[Difference]) -> None:
        self.name = name
        self.lines = lines
        self.differences = differences

    @property
    def first_difference(self) -> Difference | None:
        """The first value that differs, None if all are the same."""
        return self.differences[0] if self.differences else None

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        verdict = "the same in all ways" if self else "different"
        lines = [f"{self.name}: {verdict}", *(f"  {line}" for line in self.lines)]
        return "\n".join([printable(x) for x in lines])

    def __repr__(self) -> str:
        return printable(f"<Verification of {self.name}: {'same' if self else 'different'}>")


class Listing(Recorder):
    """Keeps the results of each op call of an eager run."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        out = below(self.outer, op, args, attributes)
        self.calls.append((op.name, out if isinstance(out, tuple) else (out,)))
        return out


def verify(
    f: Callable[..., Any],
    args: Sequence[Any] = (),
    modes: Sequence[str] = MODES,
    numerics: str | None = None,
    devices: Sequence[Any] | None = None,
    rtol: float | None = None,
) -> Verification:
    """Run ``f(*args)`` in several modes, and compare results, their devices and Variables.

    ``modes`` are out of ``"eager"``, ``"captured"``, ``"loaded"`` (saved, loaded, run) and
    ``"partitioned"`` (over ``devices``, by default all of the current one's type); the first one
    is the reference. All start with the same Variables and random state, which
    are restored afterwards. Each runs with ``numerics="exact"``, where all bits must agree, and
    with ``"fast"``, which is what captured functions use, within ``rtol``: a tolerance relative to
    the largest element, by default by dtype (float32: 1e-3). ``numerics`` chooses one of the two,
    and ``rtol`` then applies to both. Raises ArgumentError for an unknown mode, and the errors
    of ``f``.

    >>> print(ef.capture.verify(lambda x: ef.tanh(x) * 2.0, [ef.tensor([0.5, 1.0])]))
    lambda: the same in all ways
      eager: the reference
      captured: 1 result, 0 Variables: same bits
      loaded: 1 result, 0 Variables: same bits
      partitioned: 1 result, 0 Variables: same bits
      captured, fast: 1 result, 0 Variables: within rounding
      loaded, fast: 1 result, 0 Variables: within rounding
      partitioned, fast: 1 result, 0 Variables: within rounding
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ArgumentError(
            f"{unknown[0] if unknown else ''!r} is not a way to run",
            op="verify",
            argument="modes",
            expected="some of " + ", ".join(MODES),
        )
    step = f if isinstance(f, Function) else Function(f, numerics=numerics or "exact")
    values = [as_tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    graph = step.graph(*values)
    leaves = step.inputs_of(*values)
    before = {c.variable: c.variable.current for c in graph.cells}

    def replayed(graph: Graph, numerics: str) -> tuple[Graph, Sequence[Any]]:
        return graph, Replay(graph, numerics).run(leaves)

    ways: dict[str, Callable[[str], tuple[Graph, Sequence[Any]]]] = {
        "eager": lambda numerics: (graph, _eager(step.python, values, graph)),
        "captured": lambda numerics: replayed(graph, numerics),
        "loaded": lambda numerics: replayed(_loaded(graph), numerics),
        "partitioned": lambda numerics: (graph, _partitioned(graph, numerics, leaves, devices)),
    }
    found: dict[str, _Run] = {}
    for kind in (numerics,) if numerics else NUMERICS[::-1]:
        # Bits may differ with fast arithmetic only, unless a tolerance is given.
        tolerance = (0.0 if numerics or kind == "exact" else None) if rtol is None else rtol
        for mode in modes:
            if kind == "fast" and not numerics and mode == "eager":
                continue  # it has already run
            with _Restored(before):
                # A partition chooses its own devices.
                values_of_run = _named(*ways[mode](kind), places=mode != "partitioned")
            label = mode if numerics or kind == "exact" else f"{mode}, {kind}"
            found[label] = _Run(values_of_run, tolerance)
    return _compared(graph.name, found, lambda: _search(step, graph, values, leaves, before))


class _Run(NamedTuple):
    """The values of a run, and their tolerance relative to the first; None means rounding."""

    values: dict[str, Any]
    rtol: float | None


class _Restored(ScopeGuard):
    """A context that restores given values of Variables at its end."""

    def __init__(self, values: dict[Variable, Tensor]) -> None:
        self._values = values

    def release(self) -> None:
        """Restore the values."""
        put_together([*self._values], [v.own(tensor) for v, tensor in self._values.items()])


def _named(graph: Graph, outputs: Sequence[Any], places: bool) -> dict[str, Any]:
    """The values of a run: results, their devices, and Variables."""
    names = returned(graph).names  # eager calls return no others
    results = outputs[: len(names)]
    found = {n: np.asarray(x) for n, x in zip(names, results, strict=True)}
    if places:
        devices = [np.array(str(as_tensor(x).device)) for x in results]
        found |= {_DEVICE + n: d for n, d in zip(names, devices, strict=True)}
    return found | {_VARIABLE + name: v.numpy() for name, v in graph.variables.items()}


def _eager(f: Callable[..., Any], values: Sequence[Any], graph: Graph) -> list[Any]:
    leaves = tree.flatten(opened(f(*values)))[0]
    return [x for x, known in zip(leaves, graph.results, strict=True) if type(known) is Value]


def _loaded(graph: Graph) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.ef"
        save(graph, path)
        return load(path)


def _partitioned(
    graph: Graph, numerics: str, leaves: Sequence[Any], places: Sequence[Any] | None
) -> Sequence[Any]:
    names = [str(d) for d in (all_devices(current_device().type) if places is None else places)]
    return partition(graph, names, numerics=numerics).run(leaves)


def _compared(name: str, found: dict[str, _Run], search: Callable[[], Any]) -> Verification:
    (first, reference), *others = found.items()
    lines, differences = [f"{first}: the reference"], []
    for mode, (values, rtol) in others:
        own = [
            Difference(mode, key, "", reference.values[key], value)
            for key, value in values.items()
            if not agree(reference.values[key], value, rtol)
        ]
        own_variables = sum(key.startswith(_VARIABLE) for key in values)
        count = sum(not key.startswith((_VARIABLE, _DEVICE)) for key in values)
        what = f"{count} result{'s' * (count != 1)}, {own_variables} Variables"
        if not own:
            near = "within rounding" if rtol is None else f"within {rtol:g}"
            lines.append(f"{mode}: {what}: " + ("same bits" if rtol == 0 else near))
            continue
        earliest = search() if mode == "captured" and first == "eager" else None
        shown = earliest or own[0]
        differences.append(shown)
        lines.append(f"{mode}: {what}: {shown}")
    return Verification(name, lines, differences)


def _search(
    step: Function,
    graph: Graph,
    values: Sequence[Any],
    leaves: Sequence[Any],
    before: dict[Variable, Tensor],
) -> Difference | None:
    """The first value of the graph that differs from the eager run."""
    with _Restored(before), Listing() as listing:
        step.python(*values)
    every = Values(v for node in graph.nodes for v in node.outputs)
    whole = Graph(graph.name, graph.inputs, graph.nodes, every, graph.cells)
    with _Restored(before):
        found = iter(Replay(whole, step.numerics).run(leaves))
    for node, (op, outs) in zip(graph.nodes, listing.calls, strict=False):
        if node.op.name != op:
            return None
        for value, out in zip(node.outputs, outs, strict=True):
            made = np.asarray(next(found))
            if not agree(np.asarray(out), made, 0.0):
                return Difference("captured", value.name, _place(node), np.asarray(out), made)
    return None


def _place(node: Node) -> str:
    return "" if node.source is None else "{}:{}".format(*node.source[:2])


ROUNDING = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3, "complex64": 1e-3}
"""Tolerated differences between fast and exact results, relative to the largest element."""


def agree(a: Any, b: Any, rtol: float | None) -> bool:
    """Whether two arrays are equal within the tolerance; None is that of their dtype."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if rtol is None:
        rtol = ROUNDING.get(a.dtype.name, 1e-9)
    if rtol and is_inexact(a.dtype):
        if a.dtype.kind not in "fc":  # NumPy cannot compare bfloat16 within a tolerance
            a, b = a.astype(np.float32), b.astype(np.float32)
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
        return bool(np.allclose(a, b, rtol=rtol, atol=rtol * largest, equal_nan=True))
    return bool(_equal_bits(a, b).all())


def _equal_bits(a: Any, b: Any) -> Any:
    """Whether two arrays have the same bits, by element; all NaNs are equal."""
    same = np.asarray(a == b)
    if is_inexact(a.dtype):
        return (same & (np.signbit(a.real) == np.signbit(b.real))) | ((a != a) & (b != b))
    return same
