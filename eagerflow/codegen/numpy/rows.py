"""Row-wise kernels on arrays, from the op's body.

A row-wise kernel reduces along an axis and then uses the result on the same elements. On arrays of
any library its body is called with that library's functions (``whole_rows``). On NumPy, large
arrays use machine code, others the program of the body's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import RowInstructions
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import run_if

TILE_ELEMENTS = 1 << 15  # smaller tiles contend for the interpreter's lock
MIN_SHARED_ELEMENTS = 1 << 17  # threshold for using another thread

Array = np.ndarray[Any, Any]

# Called with all five arguments by position, (array, axis, dtype, out, keepdims), which is fastest,
# but which the stubs of NumPy do not know.
add_up: Any = np.add.reduce
maximum_of: Any = np.maximum.reduce


# Kernels of bodies -------------------------------------------------------------------------------


def whole_rows(body: generated.Body, xp: Any, axis: int, *arrays: Any, **attributes: Any) -> Any:
    """The results of a body for rows along ``axis``, with a new array for each step.

    Arrays without the axis have one number for each row; reduced results have size 1 there.
    """
    x = arrays[0]
    wide = [a if a.ndim == x.ndim else xp.expand_dims(a, axis=axis) for a in arrays]
    return body(RowInstructions(xp, x, (axis,)), *wide, **attributes)


class _Program(NamedTuple):
    """``fill(axis, *arrays, *outputs)``, and the number of outputs if they are ``reduced``.

    Otherwise there is one, like the first array; ``is_plain`` if all arrays are like that.
    """

    fill: Callable[..., None]
    reduced: int
    is_plain: bool


class RowKernel:
    """Computes a body of rows "n" on NumPy arrays.

    Arrays have one shape, or lack the axis of the rows and have one number for each. The body
    returns one value for each element, or only reduced values: then outputs have one number for
    each row.
    """

    def __init__(self, body: generated.Body) -> None:
        self.body = body
        self._programs: dict[Any, _Program] = {}  # by dtype and attributes

    def __call__(self, axis: int, *arrays: Any, **attributes: Any) -> Any:
        """The output, or a tuple of all; ``axis`` is counted from the front."""
        x = arrays[0]
        if generated.pays(x.size):
            return generated.rows(self.body, axis, *arrays, **attributes)
        key = (x.dtype.char, *attributes.values()) if attributes else x.dtype.char
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._program(arrays, attributes)
        make = np.empty if x.nbytes < buffers.MIN_POOLED_BYTES else buffers.empty
        if program.is_plain:
            out = make(x.shape, x.dtype)
            self._fill(program, axis, arrays, (out,))
            return out
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        one = (*before, 1, *behind)
        wide = [a if a.ndim == x.ndim else a.reshape(one) for a in arrays]
        if not program.reduced:
            out = make(x.shape, x.dtype)
            self._fill(program, axis, wide, (out,))
            return out
        outs = np.empty((program.reduced, *one), x.dtype)
        self._fill(program, axis, wide, tuple(outs))
        numbers = outs.reshape(program.reduced, *before, *behind)
        found = tuple([numbers[i, ...] for i in range(program.reduced)])  # arrays, also of one row
        return found[0] if len(found) == 1 else found

    def _program(self, arrays: Sequence[Any], attributes: dict[str, Any]) -> _Program:
        x = arrays[0]
        operands = [(a.dtype.name, "m n" if a.ndim == x.ndim else "m") for a in arrays]
        region = generated.region(self.body, "m n", tuple(operands), tuple(attributes.items()))
        reduced = sum(out.axes != region.axes for out in region.outputs)
        assert reduced == len(region.outputs) or (not reduced and len(region.outputs) == 1)
        is_plain = not reduced and all(a.ndim == x.ndim for a in arrays)
        return _Program(generated.program(region), reduced, is_plain)

    def _fill(self, program: _Program, axis: int, arrays: Sequence[Any], outs: Any) -> None:
        if arrays[0].size:
            program.fill(axis, *arrays, *outs)


# Tiles -------------------------------------------------------------------------------------------


def each_tile(
    rows: int,
    width: int,
    work: Callable[[int, slice], None],
    tile: int = TILE_ELEMENTS,
    parallel: int = MIN_SHARED_ELEMENTS,
) -> None:
    """Call ``work(number, rows of the tile)`` for all tiles of ``rows`` rows of ``width``.

    A tile has about ``tile`` elements; several threads are used from ``parallel`` elements on.
    """
    height = tile_height(width, tile)

    def one(i: int) -> None:
        work(i, slice(i * height, min((i + 1) * height, rows)))

    run_if(rows * width >= parallel, one, -(-rows // height))


def tile_height(width: int, tile: int = TILE_ELEMENTS) -> int:
    """The number of rows of ``width`` elements in a tile."""
    return max(1, tile // max(width, 1))
