"""Who watches ops being called: the thread's state and the protocol of recorders.

A recorder is put around code with ``with``. Each op call of the thread then goes to the
innermost recorder, which passes it on with ``below`` or answers it itself. A recorder that
only wants to know what was computed offers ``append``; the hot path then computes first and
appends an ``Entry`` on its own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from eagerflow.backends.numpy import quiet_runner
from eagerflow.errors import EagerflowError

if TYPE_CHECKING:
    from eagerflow.op import Op

__all__ = [
    "Recorder", "below", "custom_call", "next_key", "now", "outside", "process", "recording",
    "scope", "scopes", "under",
]  # fmt: skip

next_key = itertools.count().__next__
"""Gives the number that identifies one recorded value, in all tapes and threads."""


# An entry describes one recorded op call as one flat tuple, since the hot path makes it and a
# tuple of tuples costs twice as much:
#
#     (op, attributes, code, instruction, out, y, key, x, key, x, ...)
#
# ``code`` and ``instruction`` give the user's line; ``out`` is the key of the result, or a
# tuple of several; ``y`` is the result where the op's rules need it. For each argument follow
# its key (None: not watched) and its value where the rules need it, else its shape or spec.
OP, ATTRIBUTES, CODE, INSTRUCTION, OUT, RESULT = range(6)
FIRST_KEY, FIRST_VALUE = 6, 7


Append = Callable[[tuple[Any, ...]], None]


class Recorder:
    """Base of all recorders: a context that receives the op calls of its thread."""

    append: Append | None = None
    outer: Recorder | None = None
    _before: _State | None = None
    _thread = 0

    def __enter__(self) -> Self:
        if self._before is not None:
            raise EagerflowError(f"this {type(self).__name__} is entered already")
        self._before = before = now()
        self._thread = threading.get_ident()
        self.outer = before[1]
        self.opened()
        with _counting:
            process.recorders += 1
        _now.set((self.append, self, _runner.run))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before = self._before
        if before is None or self._thread != threading.get_ident():
            raise EagerflowError(f"this {type(self).__name__} was entered in another thread")
        innermost = inner = now()[1]
        while inner is not None and inner is not self:
            inner = inner.outer
        if inner is self:
            _now.set(before)
        self._before = None
        with _counting:
            process.recorders -= 1
        self.closed()
        if innermost is not self:  # as with a generator that is left while suspended
            raise EagerflowError(
                f"this {type(self).__name__} is left before one that was entered after it",
                hint="leave them in reverse order, as nested with statements do",
            )

    def opened(self) -> None:
        """Called before the first op call arrives; ``outer`` is set."""

    def closed(self) -> None:
        """Called when no more op calls can arrive."""

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The result of an op whose arguments are Tensors of fitting dtypes, or scalars."""
        return below(self.outer, op, args, attributes)

    def read(self, variable: Any) -> Any:
        """The Tensor that stands for the value of ``variable`` now."""
        return self.outer.read(variable) if self.outer else variable.current

    def assign(self, variable: Any, value: Any) -> None:
        """Make ``value`` the value of ``variable``."""
        if self.outer:
            self.outer.assign(variable, value)
        else:
            variable.current = value

    def custom_call(self, f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The value of ``f``, which returns it together with a backward function of its own."""
        return f(*args)[0]

    def leave(self, tensor: Any, how: str) -> None:
        """A value leaves for Python or NumPy, where it cannot be followed any more."""
        if self.outer:
            self.outer.leave(tensor, how)

    def created(self, what: str) -> None:
        """State was made that lasts: a Variable, the weights of a layer."""
        if self.outer:
            self.outer.created(what)

    def initial(self, tensor: Any) -> Any:
        """The number behind a Tensor that a Variable is to begin with."""
        return self.outer.initial(tensor) if self.outer else tensor

    def follow(self, origin: tuple[Any, int] | None) -> None:
        """The op calls to come belong to this place in the user's code; None: to their own."""
        if self.outer:
            self.outer.follow(origin)

    def explain(self, error: EagerflowError) -> None:
        """An op call has failed: complete its error with what only a recorder knows."""
        if self.outer:
            self.outer.explain(error)


class _Process:
    """How many recorders there are in all threads, and a quiet runner for when there is none.

    While nobody watches anywhere, which is most of the time, an op need not ask its own
    thread; the runner is then shared, and a thread that finds it taken uses its own.
    """

    __slots__ = ("recorders", "run")

    def __init__(self) -> None:
        self.recorders = 0
        self.run = quiet_runner()


process = _Process()
_counting = threading.Lock()


class _Runner(threading.local):
    """A quiet runner for each thread that records: one context can be entered once at a time."""

    def __init__(self) -> None:
        self.run = quiet_runner()


_runner = _Runner()

# A context variable is read twice as fast as a thread-local, gives each asyncio task its own
# recorders, and starts empty in a new thread.
_State = tuple[Append | None, "Recorder | None", Callable[..., Any]]
_now: ContextVar[_State] = ContextVar("eagerflow_recorder", default=(None, None, process.run))
now = _now.get
"""Gives the innermost recorder's ``append``, the recorder itself, and a quiet runner."""


def under(recorder: Recorder | None, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``f(...)`` with ``recorder`` as the innermost one."""
    before = now()
    try:  # nothing stands before it, so that Ctrl-C finds no gap
        _now.set((recorder.append if recorder else None, recorder, _runner.run))
        return f(*args, **kwargs)
    finally:
        _now.set(before)


def recording() -> bool:
    """Whether somebody watches the op calls of this thread."""
    return process.recorders > 0 and _now.get()[1] is not None


def outside(what: str, f: Callable[..., Any], *args: Any) -> Any:
    """``f(...)`` seen by no recorder, as for making state that lasts, such as weights."""
    recorder = now()[1]
    if recorder is None:
        return f(*args)
    result = under(None, f, *args)
    recorder.created(what)
    return result


def below(
    recorder: Recorder | None, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    """Call ``op`` as if ``recorder`` were the innermost one."""
    return under(recorder, op.call, *args, **attributes)


def custom_call(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The value of ``f``, which returns it together with a backward function of its own."""
    recorder = now()[1]
    return f(*args)[0] if recorder is None else recorder.custom_call(f, args)


# Named scopes ------------------------------------------------------------------------------------

_scope: ContextVar[str] = ContextVar("eagerflow_scope", default="")
scopes = _scope.get
"""Gives the prefix of names in the scopes entered now, such as ``"encoder/dense/"``."""


@contextmanager
def scope(name: str) -> Iterator[None]:
    """A context in which the nodes of graphs get names that begin with ``name``.

    ``name`` is any text without a slash. Scopes nest; layers are scopes by themselves.

    >>> def f(x):
    ...     with ef.capture.scope("encoder"):
    ...         return ef.tanh(x)
    >>> ef.capture.trace(f, ef.TensorSpec((3,), "float32")).nodes[0].name
    'encoder/tanh'
    """
    token = _scope.set(f"{_scope.get()}{name}/")
    try:
        yield
    finally:
        _scope.reset(token)
