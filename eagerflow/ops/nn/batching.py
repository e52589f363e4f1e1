"""Batches of ops on images and sequences: the axis of vmap becomes a part of an axis they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.ops.shapes.reshaping import broadcast_to, moveaxis, reshape

__all__: list[str] = []


def call_merged(
    call: Callable[..., Any],
    args: Any,
    batched: Any,
    size: Any,
    axes: Sequence[int | None],
    gives: Sequence[int],
    /,
    **attributes: Any,
) -> Any:
    """``call`` of arguments with the axis of vmap merged into their axes ``axes``.

    None is an unchanged or omitted argument. The axis is split off from the results' axes
    ``gives``.
    """
    merged = []
    for x, own, at in zip(args, batched, axes, strict=True):
        if x is not None and at is not None:
            x = moveaxis(x if own else broadcast_to(x, (size, *x.shape)), 0, at)
            x = reshape(x, (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]))
        merged.append(x)
    y = call(*merged, **attributes)
    apart = []
    for part, at in zip(y if isinstance(y, tuple) else (y,), gives, strict=True):
        shape = (*part.shape[:at], size, part.shape[at] // size, *part.shape[at + 1 :])
        apart.append(moveaxis(reshape(part, shape), at, 0))
    return tuple(apart) if isinstance(y, tuple) else apart[0]
