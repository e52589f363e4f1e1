"""The interface from eager ops to generated kernels: thresholds, and deferred imports.

An op states the body of its region among its facts, in scalar instructions; the region is built for
the dtypes of a call, and cached. Small arrays, and machines without llvmlite, use the op's NumPy
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from eagerflow.guard import ScopeGuard
from eagerflow.settings import switched_off

MIN_COMPILED_ELEMENTS = 1 << 10
"""Elements from which a generated kernel's call is cheaper than NumPy's steps."""

Body = Callable[..., Any]
"""``body(s, *values, **attributes)`` returns the value of the output, or a tuple of values."""


@cache
def enabled() -> bool:
    """Whether there is a compiler: llvmlite is installed, and EAGERFLOW_LLVM is not 0."""
    if switched_off("EAGERFLOW_LLVM"):
        return False
    try:
        return find_spec("llvmlite") is not None
    except ImportError:  # an import hook of other code refuses it
        return False


calls: list[Any] | None = None
"""The calls made while they are recorded."""


def pays(size: int, border: int | None = None) -> bool:
    """Whether an array of this many elements is large enough."""
    least = MIN_COMPILED_ELEMENTS if border is None else border
    return (size >= least and enabled()) or calls is not None


def takes(x: Any) -> bool:
    """Whether an array's size and dtype are supported by generated kernels."""
    return x.dtype.char in "fd" and pays(x.size)


class watching(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which arrays of all sizes use generated kernels, and calls are recorded."""

    def __init__(self) -> None:
        self._before = calls
        self.calls: list[Any] = []

    def acquire(self) -> None:
        """Record calls from now on."""
        self._tell(self.calls)

    def release(self) -> None:
        """Restore the previous recording, if any."""
        self._tell(self._before)

    def _tell(self, listed: list[Any] | None) -> None:
        global calls
        _machinery().kernel.watch(listed)
        calls = listed


def text_of(call: Any, code: str) -> str:
    """The code of a recorded call."""
    from eagerflow.codegen import texts

    return texts.text_of(code, *call)


@cache
def _machinery() -> Any:
    """The module that runs regions in prepared calls, imported on first use."""
    from eagerflow.codegen import ready

    return ready


@cache
def _programs() -> Any:
    """The module that writes programs of NumPy steps, imported on first use."""
    from eagerflow.codegen.numpy import in_place

    return in_place


def program(found: Any, makes: bool = False) -> Callable[..., Any]:
    """``fill(*arrays, *outputs)`` by NumPy steps, for a region; see ``in_place``."""
    made: Callable[..., Any] = _programs().program_of(found, makes)
    return made


def region(*given: Any) -> Any:
    """The region of a body; see ``bodies.region_of``."""
    return _programs().region_of(*given)


def run(found: Any, *arrays: Any, **sizes: int) -> Any:
    """The outputs of a region in new arrays; a single output is not in a tuple.

    ``sizes`` are those of axes that no array has.
    """
    outputs = _machinery().kernel.run(found, arrays, sizes or None)
    return outputs[0] if len(outputs) == 1 else outputs


def compute(found: Any, inputs: Any, outputs: Any) -> None:
    """Fill the arrays ``outputs`` with the results of a region."""
    _machinery().kernel.compute(found, inputs, outputs)


# Calls that are kept ready -----------------------------------------------------------------------

_calls: dict[Any, Callable[..., Any]] = {}
MAX_CALLS = 1024  # each has some hundred bytes, besides code that is cached anyway


def ready(key: Any, arrays: tuple[Any, ...], make: Callable[[Any], Any]) -> Callable[..., Any]:
    """The result of ``make``, cached by the layouts of arrays and by ``key``.

    ``make`` takes the module ``ready``, and returns its ``ReadyCall``.
    """
    key = key, tuple([(a.shape, a.strides, a.dtype) for a in arrays])
    found = _calls.get(key)
    if found is None:
        if len(_calls) >= MAX_CALLS:
            _calls.clear()
        found = _calls[key] = make(_machinery())
    return found


def rows(body: Body, axis: int, *arrays: Any, **attributes: Any) -> Any:
    """The outputs of a body over rows ``n`` along ``axis``; a single one is not in a tuple.

    Arrays without the axis have one number for each row, as reduced outputs do.
    """
    key = body, axis, tuple(attributes.items())
    return ready(key, arrays, lambda made: made.rows_of(body, axis, arrays, key[2]))(arrays)


def elementwise(body: Body, *arrays: Any, **attributes: Any) -> Any:
    """An elementwise body of broadcasting arrays; a single output is not in a tuple.

    Outputs have the memory order of a ufunc's.
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
    """One number for each row of ``x``: a body over rows ``n``, along axes as for reductions.

    The ufunc's method ``instead`` may be faster for some layouts of rows.
    """
    key = body, axis, keepdims, instead, tuple(attributes.items())
    return ready(key, (x,), lambda made: made.reduced_of(*key[:3], x, *key[3:]))((x,))
