"""Additional losses of layers, collected for the training step.

It is next to the recorders and not in ``nn``: collected losses belong to one run of a step,
and do not count as state read by a captured function.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from eagerflow.guard import ScopeGuard

_added: ContextVar[list[Any] | None] = ContextVar("eagerflow_losses", default=None)


def add_loss(loss: Any) -> None:
    """Pass a number to the enclosing context, if there is one."""
    added = _added.get()
    if added is not None:
        added.append(loss)


def losses_so_far() -> list[Any]:
    """The losses collected by the enclosing context."""
    return list(_added.get() or ())


class added_losses(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context with a list of the additional losses that layers add meanwhile.

    >>> layer = ef.nn.Dense(1, activity_regularizer="l2", kernel_initializer="ones")
    >>> with ef.nn.added_losses() as losses:
    ...     outputs = layer(ef.ones((2, 3)))
    >>> losses
    [Tensor(0.09, float32, cpu:0)]
    """

    _own: list[Any] | None = None

    def acquire(self) -> None:
        """Start collecting."""
        self._before = _added.get()
        self._own = []
        _added.set(self._own)

    def __enter__(self) -> Any:
        super().__enter__()
        return self._own

    def release(self) -> None:
        """Restore the previous collection, if there was one."""
        if self._own is not None and _added.get() is self._own:
            _added.set(self._before)
        self._own = None
