"""Recorders, which watch ops being called: the thread's state and their protocol.

A recorder is put around code with ``with``. Each op call of the thread then goes to the
innermost recorder, which passes it on with ``below`` or answers it itself. A recorder that
only needs the results offers ``append``; the hot path then computes first and
appends an ``Entry`` on its own.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from eagerflow.backends.numpy import quiet_runner
from eagerflow.errors import EagerflowError
from eagerflow.guard import ScopeGuard, call_with

if TYPE_CHECKING:
    from eagerflow.op import Op

next_key = itertools.count().__next__
"""Returns a new number that identifies one recorded value, in all tapes and threads."""


# An entry describes one recorded op call as one flat tuple, since the hot path makes it and a
# tuple of tuples costs twice as much:
#
#     (op, attributes, code, instruction, out, y, key, x, key, x, ...)
#
# ``code`` and ``instruction`` give the user's line; ``out`` is the key of the result, or a
# tuple of several; ``y`` is the result if the op's rules need it. For each argument follow
# its key (None: not watched) and its value if the rules need it, else its shape or spec.
OP, ATTRIBUTES, CODE, INSTRUCTION, OUT, RESULT = range(6)
FIRST_KEY, FIRST_VALUE = 6, 7


Append = Callable[[tuple[Any, ...]], None]


class Recorder(ScopeGuard):
    """Base of all recorders: a context that receives the op calls of its thread."""

    append: Append | None = None
    outer: Recorder | None = None
    derives: bool | None = None  # True: as a tape does; False: it only records; None: otherwise
    _before: _State | None = None
    _thread = 0

    def acquire(self) -> None:
        """Become the innermost recorder of this thread."""
        if self._before is not None:
            raise EagerflowError(f"this {type(self).__name__} is entered already")
        before = recorder_state()
        self._thread = threading.get_ident()
        self.outer = before[1]
        self.opened()
        self._before = before
        process.recorders.add(self)
        _now.set((self.append, self, _runner.run))

    def release(self) -> Exception | None:
        """Restore the previous recorder; an error if it is not the innermost one."""
        before = self._before
        if before is None:
            return None
        if self._thread != threading.get_ident():
            return EagerflowError(f"this {type(self).__name__} was entered in another thread")
        innermost = inner = recorder_state()[1]
        while inner is not None and inner is not self:
            inner = inner.outer
        if inner is self:
            _now.set(before)
        process.recorders.discard(self)
        self.closed()
        self._before = None
        if innermost is self:
            return None
        return EagerflowError(  # as with a generator that is left while suspended
            f"this {type(self).__name__} is left before one that was entered after it",
            hint="leave them in reverse order, as nested with statements do",
        )

    def opened(self) -> None:
        """Called before the first op call arrives; ``outer`` is set."""

    def closed(self) -> None:
        """Called when no more op calls can arrive."""

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The result of an op with arguments that are Tensors of valid dtypes, or scalars."""
        return below(self.outer, op, args, attributes)

    def read(self, variable: Any) -> Any:
        """The Tensor for the current value of ``variable``."""
        return self.outer.read(variable) if self.outer else variable.current

    def assign(self, variable: Any, value: Any) -> None:
        """Make ``value`` the value of ``variable``."""
        if self.outer:
            self.outer.assign(variable, value)
        else:
            variable.current = value

    def exchange(self, variable: Any, old: Any, new: Any) -> bool:
        """Make ``new`` the value of ``variable`` if ``old`` still is; whether it was."""
        if type(self).assign is not Recorder.assign:  # recorders of assignments handle them
            self.assign(variable, new)
            return True
        return self.exchange_below(variable, old, new)

    def exchange_below(self, variable: Any, old: Any, new: Any) -> bool:
        """The same, as if this recorder were not there."""
        below: Any = self.outer
        return bool(below.exchange(variable, old, new) if below else variable.replace(old, new))

    def of_custom(self) -> Recorder | None:
        """The innermost recorder that sees the ops of a function with a custom gradient."""
        return self

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        """The ``results`` of a function of ``args``, with the gradient given by ``rule``.

        They are new Tensors, which nothing has been computed from. The rule takes a
        gradient for each of them and returns one for each argument.
        """
        if self.outer is None:
            return results
        return with_recorder(self.outer, self.outer.customized, name, args, results, rule)

    def leave(self, tensor: Any, how: str) -> None:
        """A value leaves for Python or NumPy, where it cannot be followed any more."""
        if self.outer:
            self.outer.leave(tensor, how)

    def changing(self, tensor: Any) -> None:
        """An operator returns a new value in place of this one; it would change an array."""
        if self.outer:
            self.outer.changing(tensor)

    def created(self, what: str) -> None:
        """Lasting state was created: a Variable, the weights of a layer."""
        if self.outer:
            self.outer.created(what)

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        """Call ``sink`` with these values once they are known; no recorder sees its work.

        ``tensors`` has them by labels, in order: in a graph they are called ``name/label``, or
        ``name`` if the label is empty. A trace adds them to the results of its graph. A sink with
        a method ``node`` runs within the graph, in bodies too: the method, given the values, adds
        its op. In ``vmap`` it receives those of all examples.
        """
        if self.outer:
            self.outer.emit(name, sink, tensors)
        else:
            with_recorder(None, sink, *tensors.values())

    def aside(self, f: Callable[..., Any], *args: Any) -> Any:
        """``f(...)`` without being seen by a recorder, or by the monitor of a trace."""
        return self.outer.aside(f, *args) if self.outer else with_recorder(None, f, *args)

    def initial(self, tensor: Any) -> Any:
        """The value of a Tensor that initializes a Variable."""
        return self.outer.initial(tensor) if self.outer else tensor

    def follow(self, origin: tuple[Any, int] | None) -> None:
        """Assign the next op calls to this place in the user's code; None: to their own."""
        if self.outer:
            self.outer.follow(origin)

    def explain(self, error: EagerflowError) -> None:
        """Complete the error of a failed op call with facts that only a recorder knows."""
        if self.outer:
            self.outer.explain(error)


class _Process:
    """The recorders of all threads, and a quiet runner for use without any.

    While there are no recorders, which is most of the time, an op need not check its own
    thread; the runner is then shared, and a thread that finds it in use takes its own.
    ``of_sizes`` answers calls with sizes that are known by name only, while there are none.
    """

    __slots__ = ("of_sizes", "recorders", "run")

    def __init__(self) -> None:
        self.recorders: set[Recorder] = set()  # a count could miss one if threads interleave
        self.run = quiet_runner()
        self.of_sizes: Recorder | None = None


process = _Process()


def _forget_other_threads() -> None:
    # Only the forking thread lives on in the child.
    own = threading.get_ident()
    process.recorders.difference_update([r for r in process.recorders if r._thread != own])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


class _Runner(threading.local):
    """A quiet runner for each thread that records: a context can be entered only once at a time."""

    def __init__(self) -> None:
        self.run = quiet_runner()


_runner = _Runner()

# A context variable is read twice as fast as a thread-local, gives each asyncio task its own
# recorders, and starts empty in a new thread.
_State = tuple[Append | None, "Recorder | None", Callable[..., Any]]
_now: ContextVar[_State] = ContextVar("eagerflow_recorder", default=(None, None, process.run))
recorder_state = _now.get
"""Returns the innermost recorder's ``append``, the recorder itself, and a quiet runner."""


def with_recorder(
    recorder: Recorder | None, f: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """``f(...)`` with ``recorder`` as the innermost one, in a context that ends with the call."""
    state = recorder.append if recorder else None, recorder, _runner.run
    return call_with(_now, state, f, *args, **kwargs)


def recording() -> bool:
    """Whether a recorder watches the op calls of this thread."""
    return bool(process.recorders) and _now.get()[1] is not None


def prepared(f: Callable[..., Any], *args: Any) -> Any:
    """``f(...)``, which creates lasting state if there is none, and otherwise does nothing.

    Its creation is not seen, only the resulting state. So the code around it must go
    the same way whether it existed or not.
    """
    recorder = recorder_state()[1]
    return f(*args) if recorder is None else recorder.aside(f, *args)


def unrecorded(what: str, f: Callable[..., Any], *args: Any) -> Any:
    """``f(...)``, which creates lasting state, such as weights: a trace around it is repeated."""
    result = prepared(f, *args)
    recorder = recorder_state()[1]
    if recorder is not None:
        recorder.created(what)
    return result


def below(
    recorder: Recorder | None, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    """Call ``op`` as if ``recorder`` were the innermost one."""
    return with_recorder(recorder, op.call, *args, **attributes)
