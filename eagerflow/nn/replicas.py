"""Steps of replicas: one step for several parts of a batch, each on its own device.

While such a step is traced, gradients become their means over all replicas before an optimizer
uses them. So optimizers, layers and steps of users' own are the same with and without replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

from eagerflow.guard import call_with
from eagerflow.ops.communication.replicas import replica_concat, replica_mean
from eagerflow.ops.indexing.slices import IndexedSlices

__all__ = [
    "as_replica",
    "averaged",
    "averaged_gradients",
    "is_replica",
    "joining_rows",
    "summed",
    "unreplicated",
]

_share: ContextVar[float | None] = ContextVar("share", default=None)
"""The running replica's share of all examples; None without replicas."""

_times: ContextVar[Fraction | None] = ContextVar("times", default=None)
"""The ratio of the rows of all replicas to its own; None if rows are not joined."""


def as_replica(share: float, f: Any, *args: Any, **kwargs: Any) -> Any:
    """``f(...)`` as the step of a replica with this share of all examples."""
    return call_with(_share, share, f, *args, **kwargs)


def joining_rows(times: Fraction | None, f: Any, *args: Any, **kwargs: Any) -> Any:
    """``f(...)``, in which slices of all replicas are joined: they have ``times`` times the rows.

    With None they become tensors.
    """
    return call_with(_times, times, f, *args, **kwargs)


def unreplicated(f: Any, *args: Any, **kwargs: Any) -> Any:
    """``f(...)`` on values that are the same on all replicas."""
    return call_with(_share, None, f, *args, **kwargs)


def is_replica() -> bool:
    """Whether the running step is one of several replicas'."""
    return _share.get() is not None


def averaged(x: Any) -> Any:
    """The mean over all replicas, where each counts as much as it has examples."""
    share = _share.get()
    return x if share is None else replica_mean(x, share=share)


def summed(x: Any) -> Any:
    """The sum over all replicas."""
    share = _share.get()
    return x if share is None else averaged(x / share)  # its gradient is correct as well


def averaged_gradients(grads: Sequence[Any]) -> Sequence[Any]:
    """Gradients of a mean over all examples, for those of means over each replica's."""
    if _share.get() is None:
        return grads
    return [g if g is None else _averaged_gradient(g) for g in grads]


def _averaged_gradient(gradient: Any) -> Any:
    if not isinstance(gradient, IndexedSlices):
        return averaged(gradient)
    rows, times = gradient.indices.shape[0], _times.get()
    if times is None or not isinstance(rows, int) or (rows * times).denominator > 1:
        return averaged(gradient.to_dense())
    total = int(rows * times)
    values = replica_concat((gradient * _share.get()).values, rows=total)
    indices = replica_concat(gradient.indices, rows=total)
    return IndexedSlices(values, indices, gradient.dense_shape)
