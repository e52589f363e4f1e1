"""Facts that the ops of recurrent networks share: shapes, batches, splits and cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Split
from eagerflow.ops.family import Batch, batch_first
from eagerflow.ops.nn.batching import call_merged
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
