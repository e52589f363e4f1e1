"""Facts that the ops of recurrent networks share: shapes, batches, samples, the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, ErrorSample, Sample, Split
from eagerflow.ops.family import Batch, batch_first
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.samples import make
from eagerflow.primitives.recurrent_cells import Cell
from eagerflow.spec import TensorSpec

__all__: list[str] = []

STATES = ("h", "c")


def check_ranks(**values: tuple[TensorSpec, int]) -> None:
    """ShapeError where an argument has fewer axes than it needs."""
    for name, (value, rank) in values.items():
        if value.ndim < rank:
            raise ShapeError(f"{value.ndim} axes given", argument=name, expected=f"at least {rank}")


def check_shapes(lead: Any, **wanted: tuple[Any, tuple[Any, ...]]) -> None:
    """ShapeError if a given argument has another shape, after the axes ``lead``."""
    for name, (value, shape) in wanted.items():
        if value is not None and value.shape != (*lead, *shape):
            raise ShapeError(
                f"{name} has shape {value.shape}",
                argument=name,
                expected=f"shape {(*lead, *shape)}",
            )


def spec(cell: Cell, keep: bool) -> Callable[..., Any]:
    """The fact ``infer``; ``keep`` means that the gate values are a result as well."""

    def infer(
        x: TensorSpec,
        kernel: TensorSpec,
        recurrent_kernel: TensorSpec,
        bias: Any = None,
        *rest: Any,
        reverse: bool = False,
    ) -> Any:
        check_ranks(x=(x, 3), recurrent_kernel=(recurrent_kernel, 2))
        *lead, batch, steps, width = x.shape
        units = recurrent_kernel.shape[-2]
        wide = cell.gates * units
        given = (*rest, *(None,) * (cell.states + 1 - len(rest)))
        starts, mask = given[:-1], given[-1]
        own = {name: (s, (batch, units)) for name, s in zip(STATES, starts, strict=False)}
        check_shapes(
            lead,
            kernel=(kernel, (width, wide)),
            recurrent_kernel=(recurrent_kernel, (units, wide)),
            bias=(bias, (2, wide) if cell.apart else (wide,)),
            **own,
            mask=(mask, (batch, steps)),
        )
        found = [x.like((*lead, batch, steps, units))] * cell.states
        if keep:
            found.append(x.like((*lead, batch, steps, cell.values * units)))
        return tuple(found) if len(found) > 1 else found[0]

    return infer


def batching(weights: tuple[int, ...], results: int) -> Batch:
    """The fact ``batch``: examples become further ones, more weights a stack of networks.

    ``weights`` are the indices of arguments shared by all examples.
    """

    def batch(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
        shared = args[weights[0]].ndim - batched[weights[0]] > 2
        if shared or any(batched[at] for at in weights):
            return call(*batch_first(args, batched, size), **attributes)
        axes = [None if k in weights or x is None else 0 for k, x in enumerate(args)]
        return call_merged(call, args, batched, size, axes, (0,) * results, **attributes)

    return Batch(batch)


def splitting(weights: tuple[int, ...], like: int) -> Callable[..., list[Split]]:
    """The fact ``split``: examples, and networks of a stack, are independent of each other.

    The argument ``like`` has axes (..., batch, steps, features).
    """

    def split(*specs: Any, **attributes: Any) -> list[Split]:
        at = specs[like].ndim - 3
        own = [None if k in weights or x is None else at for k, x in enumerate(specs)]
        stacks = (tuple(None if x is None else i for x in specs) for i in range(at))
        return [Split(tuple(own), at), *(Split(cut, i) for i, cut in enumerate(stacks))]

    return split


def cost(x: TensorSpec, kernel: TensorSpec, recurrent_kernel: TensorSpec, *rest: Any) -> Cost:
    """The fact ``cost`` of a network."""
    examples = x.size // x.shape[-1] if x.shape[-1] else 0
    units, wide = recurrent_kernel.shape[-2:]
    weights = (x.shape[-1] + units) * wide
    size = x.size + weights + examples * units
    return Cost(2 * examples * weights + 20 * examples * wide, size * x.dtype.itemsize)


# Samples -----------------------------------------------------------------------------------------

SIZES: list[dict[str, Any]] = [
    {"lead": (2,), "steps": 3, "width": 2, "units": 2, "given": "b"},
    {"lead": (1,), "steps": 1, "width": 1, "units": 1},
    {"lead": (2,), "steps": 3, "width": 3, "units": 1, "given": "bs", "reverse": True},
    {"lead": (2,), "steps": 4, "width": 1, "units": 2, "given": "bsm"},
    {"lead": (3,), "steps": 3, "width": 2, "units": 1, "given": "m", "reverse": True},
    {"lead": (2, 2), "steps": 2, "width": 2, "units": 2, "given": "bsm"},
    {"lead": (5,), "steps": 3, "width": 2, "units": 1, "given": "bm"},
    {"lead": (1,), "steps": 2, "width": 4, "units": 1, "given": "s"},
    {"lead": (1,), "steps": 5, "width": 1, "units": 1, "given": "m"},
    {"lead": (1, 2), "steps": 2, "width": 1, "units": 2, "given": "bs", "reverse": True},
    {"lead": (2,), "steps": 0, "width": 2, "units": 2, "given": "s"},
    {"lead": (0,), "steps": 2, "width": 2, "units": 2, "given": "b"},
    {"lead": (2,), "steps": 2, "width": 0, "units": 1, "given": "b"},
]
"""For samples: the axes before the steps, and the given arguments: bias, states and mask."""


def samples(cell: Cell) -> Callable[..., list[Sample]]:
    """The fact ``samples`` of a network."""

    def made(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        return [_sample(cell, rng, dtype, **size) for size in SIZES]

    return made


def _sample(
    cell: Cell,
    rng: np.random.Generator,
    dtype: DType,
    *,
    lead: tuple[int, ...],
    steps: int,
    width: int,
    units: int,
    given: str = "",
    **more: Any,
) -> Sample:
    wide, own = cell.gates * units, lead[:-1]
    bias = (*own, 2, wide) if cell.apart else (*own, wide)
    shapes = [(*lead, steps, width), (*own, width, wide), (*own, units, wide)]
    args = [make(rng, dtype, shape, -1, 1) for shape in shapes]
    args.append(make(rng, dtype, bias, -1, 1) if "b" in given else None)
    for _ in range(cell.states):
        args.append(make(rng, dtype, (*lead, units), -1, 1) if "s" in given else None)
    args.append(rng.random((*lead, steps)) < 0.6 if "m" in given else None)
    return Sample(tuple(args), more)


def errors(cell: Cell) -> Callable[..., list[ErrorSample]]:
    """The fact ``errors`` of a network."""

    def made(rng: np.random.Generator) -> list[ErrorSample]:
        x, kernel = np.ones((2, 3, 4)), np.ones((4, 5 * cell.gates))
        recurrent = np.ones((5, 5 * cell.gates))
        none = (None,) * (cell.states - 1)
        return [
            ErrorSample((x[0], kernel, recurrent), {}, ShapeError, "2 axes given"),
            ErrorSample((x, kernel[0], recurrent), {}, ShapeError, "kernel has shape"),
            ErrorSample((x, kernel, recurrent[:3]), {}, ShapeError, "expected: shape (4,"),
            ErrorSample((x, kernel, recurrent, x[0]), {}, ShapeError, "bias has shape (3, 4)"),
            ErrorSample((x, kernel, recurrent, None, x), {}, ShapeError, "shape (2, 5)"),
            ErrorSample(
                (x, kernel, recurrent, None, None, *none, np.ones((2, 4), bool)),
                {},
                ShapeError,
                "mask has shape (2, 4)",
            ),
        ]

    return made


# The definition ----------------------------------------------------------------------------------


def reference(cell: Cell, one: Callable[..., Any], keep: bool) -> Callable[..., Any]:
    """The definition, one example, step and unit at a time, by ``one(a, u, j, *states)``.

    ``a`` and ``u`` have numbers for each gate and unit; ``one`` returns the kept gate values, and
    the states.
    """

    def computed(x: Any, kernel: Any, recurrent: Any, bias: Any, *rest: Any, reverse: bool) -> Any:
        *starts, mask = rest
        *lead, steps, _ = x.shape
        units = recurrent.shape[-2]
        out = np.zeros((cell.states, *lead, steps, units))
        gates = np.zeros((*lead, steps, cell.values, units))
        for at in np.ndindex(*lead):
            w, r = (np.asarray(k[at[:-1]], float) for k in (kernel, recurrent))
            b = np.zeros(w.shape[-1]) if bias is None else np.asarray(bias[at[:-1]], float)
            b = b if cell.apart else np.stack([b, b * 0])
            states = [np.zeros(units) if s is None else np.asarray(s[at], float) for s in starts]
            for t in range(steps)[:: -1 if reverse else 1]:
                a = (np.asarray(x[at][t], float) @ w + b[0]).reshape(cell.gates, units).tolist()
                u = (states[0] @ r + b[1]).reshape(cell.gates, units).tolist()
                found = [one(a, u, j, *(s[j] for s in states)) for j in range(units)]
                if cell.beside:
                    gates[at][t] = np.array([values for values, _ in found]).T
                if mask is None or mask[at][t]:
                    states = list(np.array([after for _, after in found]).T)
                for k, state in enumerate(states):
                    out[k][at][t] = state
        kept = [gates.reshape(*lead, steps, cell.values * units)] * keep
        results = (*out, *kept)
        return results if len(results) > 1 else results[0]

    return computed


def logistic(x: float) -> float:
    """1 / (1 + e^-x)."""
    return float(1 / (1 + np.exp(-x)))


def simple_one(a: Any, u: Any, j: int, h: float) -> Any:
    """A unit of a plain cell."""
    return (), (float(np.tanh(a[0][j] + u[0][j])),)


def lstm_one(a: Any, u: Any, j: int, h: float, c: float) -> Any:
    """A unit of an LSTM."""
    i, f, n, o = (a[k][j] + u[k][j] for k in range(4))
    i, f, n, o = logistic(i), logistic(f), float(np.tanh(n)), logistic(o)
    c = f * c + i * n
    return (i, f, n, o), (o * float(np.tanh(c)), c)


def gru_one(a: Any, u: Any, j: int, h: float) -> Any:
    """A unit of a GRU."""
    z, r = logistic(a[0][j] + u[0][j]), logistic(a[1][j] + u[1][j])
    n = float(np.tanh(a[2][j] + r * u[2][j]))
    return (z, r, n, u[2][j]), (z * h + (1 - z) * n,)
