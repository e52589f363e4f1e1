"""Named scopes: prefixes of node names in graphs."""

from __future__ import annotations

from contextvars import ContextVar

from eagerflow.guard import ScopeGuard

_scope: ContextVar[str] = ContextVar("eagerflow_scope", default="")
scopes = _scope.get
"""Returns the prefix of names in the current scopes, such as ``"encoder/dense/"``."""


class scope(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which the nodes of graphs get names that begin with ``name``.

    ``name`` is any text without a slash. Scopes nest; layers are scopes by themselves.

    >>> def f(x):
    ...     with ef.capture.scope("encoder"):
    ...         return ef.tanh(x)
    >>> ef.capture.trace(f, ef.TensorSpec((3,), "float32")).nodes[0].name
    'encoder/tanh'
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: str | None = None

    def acquire(self) -> None:
        """Extend the prefix of names."""
        self._before = _scope.get()
        _scope.set(f"{self._before}{self._name}/")

    def release(self) -> None:
        """Restore the previous prefix."""
        if self._before is not None:
            _scope.set(self._before)
            self._before = None
