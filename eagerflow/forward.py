"""Forward mode: a recorder that computes a tangent for each value."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

from eagerflow import provenance
from eagerflow.dtypes import is_inexact
from eagerflow.op import Missing, Op
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import add, multiply, multiply_no_nan
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.recorder import Recorder, below, next_key, with_recorder
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor


class Forward(Recorder):
    """Carries tangents from inputs to results, op by op.

    ``ends`` and ``left`` record where tangents ended: at ops without a derivative, as the entries
    of a tape, and where values left for Python, each with the sources that the value depends on.
    """

    def __init__(self) -> None:
        # The value is stored with its tangent so that its id stays in use; last the sources that
        # it depends on, one bit for each.
        self._tangents: dict[int, tuple[Any, Tensor, int]] = {}
        self.ends: dict[Any, int] = {}
        self.left: dict[Any, int] = {}

    def seed(self, value: Any, tangent: Tensor, sources: int) -> None:
        """Set the tangent of ``value``, a Tensor or a Variable."""
        self._tangents[id(value)] = (value, tangent, sources)
        if type(value) is Tensor and value._key is None:
            value._key = next_key()  # so that leaving is reported

    def tangent(self, value: Any) -> Tensor | None:
        """The tangent of ``value``, or None if it does not depend on the inputs."""
        return self._tangents.get(id(value), (None, None))[1]

    def sources(self, *values: Any) -> int:
        """The sources that the tangents of values depend on, one bit for each."""
        return reduce(or_, [self._tangents.get(id(x), (0, 0, 0))[2] for x in values], 0)

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        out = below(self.outer, op, args, attributes)
        tangents = [self.tangent(x) for x in args]
        if any(t is not None for t in tangents):
            if isinstance(op.jvp, Missing):
                place = (op, None, *provenance.caller())
                self.ends[place] = self.ends.get(place, 0) | self.sources(*args)
            else:
                moved = with_recorder(self.outer, push_forward, op, tangents, out, args, attributes)
                self._keep(out, moved, self.sources(*args))
        return out

    def read(self, variable: Any) -> Any:
        tensor = super().read(variable)
        known = self._tangents.get(id(variable))
        if known is not None:
            self.seed(tensor, *known[1:])
        return tensor

    def leave(self, tensor: Any, how: str) -> None:
        sources = self.sources(tensor)
        if sources:
            place = (how, *provenance.caller())
            self.left[place] = self.left.get(place, 0) | sources
        super().leave(tensor, how)

    def ended(self, source: int) -> str:
        """Why no result depends on the source with this number."""
        ends = [entry for entry, bits in self.ends.items() if bits >> source & 1]
        left = [(source, *place) for place, bits in self.left.items() if bits >> source & 1]
        return provenance.broken_path(ends, left, {source})

    def of_custom(self) -> Recorder | None:
        return self.outer  # tangents of intermediate values are not needed

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        outs = super().customized(name, args, results, rule)
        tangents = [self.tangent(x) for x in args]
        if any(t is not None for t in tangents):
            moved = with_recorder(self.outer, transpose, rule, outs, tangents)
            self._keep(outs, moved, self.sources(*args))
        return outs

    def _keep(self, out: Any, moved: Any, sources: int) -> None:
        outs = out if isinstance(out, tuple) else (out,)
        for y, tangent in zip(outs, moved if isinstance(out, tuple) else (moved,), strict=True):
            if tangent is not None and is_inexact(y.dtype):
                self.seed(y, tangent, sources)


def push_forward(
    op: Op, tangents: list[Any], y: Any, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    """The tangent of a result, from those of the arguments (None: constant)."""
    if callable(op.jvp):
        return op.jvp(tangents, y, *args, **attributes)
    if op.jvp == "linear":
        filled = [
            t if t is not None or x is None else zeros_like(x)
            for t, x in zip(tangents, args, strict=True)
        ]
        return op.call(*filled, **attributes)
    if op.jvp == "multilinear":
        parts = [
            op.call(*args[:i], t, *args[i + 1 :], **attributes)
            for i, t in enumerate(tangents)
            if t is not None
        ]
    elif op.jvp == "partials":
        parts = [p for p in _products(op, tangents, y, args, attributes) if p is not None]
    else:
        return _by_transposition(op, tangents, y, args, attributes)
    return reduce(add, parts) if parts else None


def _products(
    op: Op, tangents: list[Any], y: Any, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    product = multiply_no_nan if op.singular else multiply
    assert not isinstance(op.partials, Missing)
    for tangent, partial in zip(tangents, op.partials, strict=True):
        if tangent is not None and partial is not None:
            factor = partial if isinstance(partial, int) else partial(y, *args, **attributes)
            part = product(tangent, factor)
            yield part if part.shape == y.shape else broadcast_to(part, y.shape)


def _by_transposition(
    op: Op, tangents: list[Any], y: Any, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    def rules(units: tuple[Any, ...]) -> Any:
        g = units if isinstance(y, tuple) else units[0]
        if callable(op.vjp):
            parts = op.vjp(g, y, *args, **attributes)
            return [part() if callable(part) else part for part in parts]
        assert isinstance(op.vjp, tuple)
        return [
            None if t is None or rule is None else rule(g, y, *args, **attributes)
            for rule, t in zip(op.vjp, tangents, strict=True)
        ]

    moved = transpose(rules, y if isinstance(y, tuple) else (y,), tangents)
    return moved if isinstance(y, tuple) else moved[0]


def transpose(
    rules: Callable[[tuple[Any, ...]], Any], ys: tuple[Any, ...], tangents: list[Any]
) -> tuple[Any, ...]:
    """Tangents of ``ys`` from backward rules: these are linear in the gradients that they pull
    back, so their own gradient pushes tangents forward.
    """
    smooth = [is_inexact(y.dtype) for y in ys]  # integer results have no tangents
    units = tuple(zeros_like(y) for y in ys)  # any values will do
    sources = [unit for unit, moves in zip(units, smooth, strict=True) if moves]
    with GradientTape(persistent=True) as tape:
        tape.watch(sources)
        parts = rules(units)
    used = [
        (part, t)
        for part, t in zip(parts, tangents, strict=True)
        if part is not None and t is not None
    ]
    moved = iter(
        tape.gradient([part for part, _ in used], sources, [t for _, t in used], unconnected="zero")
    )
    return tuple(next(moved) if moves else None for moves in smooth)
