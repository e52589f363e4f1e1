"""What layers add to the loss, on its way to the step that trains them.

It stands beside the recorders and not in ``nn``: what is collected belongs to one run of a step,
and is nothing that a captured function could be said to read.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from eagerflow.guard import ScopeGuard

_added: ContextVar[list[Any] | None] = ContextVar("eagerflow_losses", default=None)


def add_loss(loss: Any) -> None:
    """Hand a number to the context around, if there is one."""
    added = _added.get()
    if added is not None:
        added.append(loss)


def losses_so_far() -> list[Any]:
    """What the context around has been handed."""
    return list(_added.get() or ())


class added_losses(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context that gives the list of what layers add to the loss meanwhile.

    >>> layer = ef.nn.Dense(1, activity_regularizer="l2", kernel_initializer="ones")
    >>> with ef.nn.added_losses() as losses:
    ...     outputs = layer(ef.ones((2, 3)))
    >>> losses
    [Tensor(0.09, float32, cpu:0)]
    """

    _own: list[Any] | None = None

    def acquire(self) -> None:
        """Begin to collect."""
        self._before = _added.get()
        self._own = []
        _added.set(self._own)

    def __enter__(self) -> Any:
        super().__enter__()
        return self._own

    def release(self) -> None:
        """Let calls add to what collected before, if anything did."""
        if self._own is not None and _added.get() is self._own:
            _added.set(self._before)
        self._own = None
