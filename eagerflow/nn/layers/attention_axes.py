"""How axes of the inputs of attention become those that it is computed with."""

from __future__ import annotations

import math
from typing import Any

from eagerflow import ops
from eagerflow.errors import ShapeError
from eagerflow.tensor import Tensor


def _require_rank(ok: bool, mask: Tensor, expected: str) -> None:
    if not ok:
        raise ShapeError(
            "the mask does not fit the inputs of attention",
            received=f"a mask of shape {mask.shape}",
            expected=expected,
        )


class AttentionAxes:
    """The conversion of inputs' axes to (batch, heads, places, width) for attention, and back.

    Inputs have ``rank`` axes, of which the axes ``places`` are attended over; others except the
    last are free, and become the batch. With three axes, only heads and places are swapped.
    """

    def __init__(self, rank: int, places: tuple[int, ...]) -> None:
        self.places = places
        self.free = tuple(axis for axis in range(rank - 1) if axis not in places)
        self.plain = rank == 3
        self._order = (*self.free, rank - 1, *places, rank)  # projected inputs have one more axis

    def inward(self, x: Tensor) -> Tensor:
        """Projected inputs (free axes and places, heads, width) in the shape for attention."""
        moved = ops.permute_dims(x, self._order)
        if self.plain:
            return moved
        sizes, n = moved.shape, len(self.free)
        joined = math.prod(sizes[:n]), sizes[n], math.prod(sizes[n + 1 : -1]), sizes[-1]
        return ops.reshape(moved, joined)

    def outward(self, x: Tensor, like: Tensor) -> Tensor:
        """The inverse conversion, to the axes of the projected inputs ``like``."""
        back = sorted(range(len(self._order)), key=self._order.__getitem__)
        if not self.plain:
            x = ops.reshape(x, (*[like.shape[axis] for axis in self._order[:-1]], x.shape[-1]))
        return ops.permute_dims(x, back)

    def steps(self, mask: Any) -> Tensor:
        """Bools of the free axes and the places as (batch, places)."""
        mask = ops.astype(mask, "bool")
        rank = len(self.free) + len(self.places)
        _require_rank(mask.ndim == rank, mask, f"{rank} axes: inputs have them before their width")
        if self.plain:
            return mask
        moved = ops.permute_dims(mask, (*self.free, *self.places))
        n = len(self.free)
        return ops.reshape(moved, (math.prod(moved.shape[:n]), math.prod(moved.shape[n:])))

    def pairs(self, mask: Any, query: Tensor, value: Tensor) -> Tensor:
        """Bools of the free axes, heads, and places of queries and of keys, in the shape of scores.

        If there are fewer axes, leading ones are missing, beginning with the heads.
        """
        mask = ops.astype(mask, "bool")
        free, pairs = len(self.free), 2 * len(self.places)
        split = mask.ndim - pairs
        wanted = f"{pairs} to {pairs + free + 1} axes, at last those of queries and of keys"
        _require_rank(0 <= split <= free + 1, mask, wanted)
        ones = (1,) * (free + 1 - split)
        mask = ops.reshape(mask, (*mask.shape[:split], *ones, *mask.shape[split:]))
        if self.plain:
            return mask
        sizes = self._sizes(query, value, mask.shape[free])
        return ops.reshape(ops.broadcast_to(mask, sizes), self._joined_scores(sizes))

    def scores(self, weights: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """Weights (batch, heads, queries, keys) with all axes of the inputs."""
        sizes = self._sizes(query, value, weights.shape[1])
        return weights if self.plain else ops.reshape(weights, sizes)

    def _sizes(self, query: Tensor, value: Tensor, heads: Any) -> tuple[Any, ...]:
        free = [query.shape[axis] for axis in self.free]
        return (*free, heads, *[x.shape[axis] for x in (query, value) for axis in self.places])

    def _joined_scores(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        free, places = len(self.free), len(self.places)
        own = sizes[free + 1 : free + 1 + places], sizes[free + 1 + places :]
        return (math.prod(sizes[:free]), sizes[free], *map(math.prod, own))
