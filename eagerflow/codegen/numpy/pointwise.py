"""Kernels of elementwise ops on arrays, from the op's body.

A body is a function ``(s, *values, **attributes)`` in scalar instructions (``scalar``). On arrays
of any library it is called with that library's functions (``whole``). On NumPy, small arrays use
the program of its steps, and from ``generated.MIN_COMPILED_ELEMENTS`` elements on machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.generated import MIN_COMPILED_ELEMENTS
from eagerflow.codegen.instructions import TYPES, instructions
from eagerflow.runtime import buffers

Call = Callable[..., Any]
_MAX_PROGRAMS = 256  # programs of one body
_TYPES: dict[type, tuple[type, ...]] = {bool: (bool,), float: (float, int)}
"""The accepted types of users' values, by the type of a default."""


def whole(body: generated.Body) -> Call:
    """``kernel(xp, *arrays, **attributes)``: a body on whole arrays, with a new array per step."""

    def kernel(xp: Any, /, *arrays: Any, **attributes: Any) -> Any:
        return body(instructions(xp), *arrays, **attributes)

    return kernel


def on_numpy(body: generated.Body) -> Call:
    """The NumPy kernel of a body."""
    slow = whole(body)
    programs: dict[Any, Call] = {}  # by dtype and attributes

    def program(key: Any, arrays: tuple[Any, ...], attributes: Any) -> Call:
        if key not in programs:
            if len(programs) > _MAX_PROGRAMS:  # attributes that change with each call
                programs.clear()
            operands = tuple([(a.dtype.name, "n") for a in arrays])
            region = generated.region(body, "n", operands, tuple(attributes.items()))
            programs[key] = generated.program(region, makes=True)
        return programs[key]

    def kernel(xp: Any, x: Any, /, *more: Any, **attributes: Any) -> Any:
        if more and not _alike(x, more):
            x, *rest = _as_arrays((x, *more))
            size = max([x.size, *[a.size for a in rest]])  # at least; so many are read
            if x.dtype.char in "fd" and generated.pays(size):
                return generated.elementwise(body, x, *rest, **attributes)
            x, *rest = np.broadcast_arrays(x, *rest)
            x, more = np.asarray(x, order="C"), tuple(rest)  # broadcast axes have no order
        char = x.dtype.char
        key = (char, *attributes.values()) if attributes else char
        steps = x.size < MIN_COMPILED_ELEMENTS or char not in "fd"  # integers: few steps
        if steps and (make := programs.get(key)) is not None and generated.calls is None:
            return make(x, *more) if x.ndim else _of_numbers(make, (x, *more))
        if char in "fd" and generated.pays(x.size):
            return generated.elementwise(body, x, *more, **attributes)
        if x.dtype.name not in TYPES:
            return slow(np, x, *more, **attributes)
        arrays = (x, *more)
        make = program(key, arrays, attributes)
        return make(*arrays) if x.ndim else _of_numbers(make, arrays)

    return kernel


def _of_numbers(make: Call, arrays: Any) -> Any:
    """The result of a program for arrays without axes, for which NumPy returns scalars."""
    return make(*[a.reshape(1) for a in arrays]).reshape(())


def _alike(x: Any, others: tuple[Any, ...]) -> bool:
    if type(x) is not np.ndarray:
        return False
    shape, dtype = x.shape, x.dtype
    for a in others:
        if type(a) is not np.ndarray or a.shape != shape or a.dtype != dtype:
            return False
    return True


def _as_arrays(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays, with Python numbers as arrays of the dtype."""
    dtype = next(a.dtype for a in operands if type(a) is np.ndarray)
    return tuple([np.asarray(a, dtype) for a in operands])


class UpdateKernel:
    """Computes a body of several results on NumPy arrays of one shape and Python numbers.

    The body is ``(s, *arrays, *numbers, **attributes)``; the results have the arrays' shape.
    """

    def __init__(self, body: generated.Body) -> None:
        self.body = body
        self._programs: dict[Any, tuple[Call, int]] = {}

    def __call__(self, arrays: Any, numbers: Any, **attributes: Any) -> tuple[Any, ...]:
        """The results, in new arrays."""
        x = arrays[0]
        if generated.takes(x):
            operands = (*arrays, *(np.array(n, x.dtype) for n in numbers))
            made: tuple[Any, ...] = generated.elementwise(self.body, *operands, **attributes)
            return made
        fill, results = self._program(x.dtype, len(arrays), len(numbers), attributes)
        make = np.empty if x.nbytes < buffers.MIN_POOLED_BYTES else buffers.empty
        outs = tuple([make(x.shape, x.dtype) for _ in range(results)])
        fill(*arrays, *numbers, *outs)
        return outs

    def _program(
        self, dtype: Any, arrays: int, numbers: int, attributes: dict[str, Any]
    ) -> tuple[Call, int]:
        key = (dtype.char, *attributes.values())
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) > _MAX_PROGRAMS:  # attributes that change with each call
                self._programs.clear()
            operands = ((dtype.name, "n"),) * arrays + ((dtype.name, ""),) * numbers
            region = generated.region(self.body, "n", operands, tuple(attributes.items()))
            found = self._programs[key] = generated.program(region), len(region.outputs)
        return found


def direct(formula: Call, body: generated.Body) -> Call:
    """The fact ``direct`` of an op with this formula, and one attribute with a default."""
    code, (default,) = formula.__code__, formula.__defaults__ or ()
    name = code.co_varnames[code.co_argcount - 1]
    types = _TYPES[type(default)]
    kernel = on_numpy(body)

    def bind(xp: Any) -> Call | None:
        def fast(x: Any, value: Any = default) -> Any:
            if type(value) not in types:
                raise TypeError(f"{name} needs conversion")
            return kernel(None, x, **{name: value})

        return fast if xp is np else None

    return bind
