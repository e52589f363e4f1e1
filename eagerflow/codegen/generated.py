"""The door from eager ops to generated kernels: when they pay, and nothing loaded before.

An op states the body of its region beside its other facts, in scalar instructions; the region
is built for the dtypes it is called with, and kept. Small arrays, and machines without
llvmlite, take the op's NumPy kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from eagerflow.guard import ScopeGuard
from eagerflow.settings import switched_off

MIN_COMPILED_ELEMENTS = 1 << 10
"""Elements from which a generated kernel's call costs less than NumPy's steps."""

Body = Callable[..., Any]
"""``body(s, *values, **attributes)`` gives the value of the output, or a tuple of values."""


@cache
def enabled() -> bool:
    """Whether there is a compiler: llvmlite is installed, and EAGERFLOW_LLVM does not say 0."""
    if switched_off("EAGERFLOW_LLVM"):
        return False
    try:
        return find_spec("llvmlite") is not None
    except ImportError:  # a finder of other code refuses it
        return False


calls: list[Any] | None = None
"""Those made while they are watched."""


def pays(size: int, border: int | None = None) -> bool:
    """Whether an array of this many elements is large enough."""
    least = MIN_COMPILED_ELEMENTS if border is None else border
    return (size >= least and enabled()) or calls is not None


def takes(x: Any) -> bool:
    """Whether an array's size and dtype are those of generated kernels."""
    return x.dtype.char in "fd" and pays(x.size)


class watching(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which arrays of all sizes go to generated kernels, and calls are listed."""

    def __init__(self) -> None:
        self._before = calls
        self.calls: list[Any] = []

    def acquire(self) -> None:
        """List calls from now on."""
        self._tell(self.calls)

    def release(self) -> None:
        """List them where they were listed before, if anywhere."""
        self._tell(self._before)

    def _tell(self, listed: list[Any] | None) -> None:
        global calls
        _machinery().kernel.watch(listed)
        calls = listed


def text_of(call: Any, code: str) -> str:
    """The code of a call that was listed."""
    from eagerflow.codegen import texts

    return texts.text_of(code, *call)


@cache
def _machinery() -> Any:
    """The module that runs regions, in calls that are kept ready; a prompt needs none of it."""
    from eagerflow.codegen import ready

    return ready


@cache
def _programs() -> Any:
    """The module that writes programs of NumPy's steps; nor does a prompt need this one."""
    from eagerflow.codegen.numpy import in_place

    return in_place


def program(found: Any, tile: bool, makes: bool = False) -> Callable[..., Any]:
    """``fill(*arrays, *outputs)`` by steps of NumPy's, for a region; see ``in_place``."""
    made: Callable[..., Any] = _programs().program_of(found, tile, makes)
    return made


def region(*given: Any) -> Any:
    """The region of a body; see ``bodies.region_of``."""
    return _programs().region_of(*given)


def run(found: Any, *arrays: Any, **sizes: int) -> Any:
    """The outputs of a region in new arrays; one output comes without a tuple.

    ``sizes`` are those of axes along which no array lies.
    """
    outputs = _machinery().kernel.run(found, arrays, sizes or None)
    return outputs[0] if len(outputs) == 1 else outputs


def compute(found: Any, inputs: Any, outputs: Any) -> None:
    """Fill the arrays ``outputs`` with what a region computes."""
    _machinery().kernel.compute(found, inputs, outputs)


# Calls that are kept ready -----------------------------------------------------------------------

_calls: dict[Any, Callable[..., Any]] = {}
_MAX_CALLS = 1024  # what is kept of each is some hundred bytes, and code that is kept anyway


def ready(key: Any, arrays: tuple[Any, ...], make: Callable[[Any], Any]) -> Callable[..., Any]:
    """What ``make`` has made for arrays that lie in memory as these do, and for this ``key``.

    ``make`` gets the module whose ``ReadyCall`` it gives.
    """
    key = key, tuple([(a.shape, a.strides, a.dtype) for a in arrays])
    found = _calls.get(key)
    if found is None:
        if len(_calls) >= _MAX_CALLS:
            _calls.clear()
        found = _calls[key] = make(_machinery())
    return found


def rows(body: Body, axis: int, *arrays: Any, **attributes: Any) -> Any:
    """The outputs of a body over rows ``n`` that lie along ``axis``; one comes without a tuple.

    Arrays that lack the axis have one number for each row, as reduced outputs do.
    """
    key = body, axis, tuple(attributes.items())
    return ready(key, arrays, lambda made: made.rows_of(body, axis, arrays, key[2]))(arrays)


def elementwise(body: Body, *arrays: Any, **attributes: Any) -> Any:
    """A body of the elements of arrays that broadcast; one output comes without a tuple.

    Outputs lie in memory as those of a ufunc do.
    """
    key = body, tuple(attributes.items())
    return ready(key, arrays, lambda made: made.elements_of(body, arrays, key[1]))(arrays)


def reduced(
    body: Body,
    axis: Any,
    keepdims: bool,
    x: Any,
    instead: Callable[..., Any] | None = None,
    **attributes: Any,
) -> Any:
    """One number for each row of ``x``: a body over rows ``n``, along axes as reductions take.

    What such a method of a ufunc does ``instead`` may be quicker for rows that lie in some ways.
    """
    key = body, axis, keepdims, instead, tuple(attributes.items())
    return ready(key, (x,), lambda made: made.reduced_of(*key[:3], x, *key[3:]))((x,))
