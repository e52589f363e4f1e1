"""Row-wise kernels on arrays, from the op's body.

A row-wise kernel reduces along an axis and then uses the result on the same elements. On arrays of
any library its body is called with that library's functions (``whole_rows``). On NumPy, large
arrays use machine code, others the program of the body's steps, some complete rows at a time: a
tile of rows stays in the cache from the first step to the last, and tiles are distributed to
threads. Tiles depend only on shapes, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import RowInstructions
from eagerflow.codegen.numpy.tiling import MAX_TURNED_WIDTH, MIN_TILED_ELEMENTS
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import run, run_if

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
        self._few: dict[Any, _Program] = {}  # programs by dtype and attributes
        self._many: dict[Any, _Program] = {}

    def __call__(self, axis: int, *arrays: Any, **attributes: Any) -> Any:
        """The output, or a tuple of all; ``axis`` is counted from the front."""
        x = arrays[0]
        size = x.size
        if generated.pays(size):
            return generated.rows(self.body, axis, *arrays, **attributes)
        known = self._few if size < MIN_TILED_ELEMENTS else self._many
        key = (x.dtype.char, *attributes.values()) if attributes else x.dtype.char
        program = known.get(key)
        if program is None:
            program = known[key] = self._program(arrays, attributes)
        make = np.empty if x.nbytes < buffers.MIN_POOLED_BYTES else buffers.empty
        if program.is_plain:
            out = make(x.shape, x.dtype)
            along_rows(program.fill, axis, arrays, (out,))
            return out
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        one = (*before, 1, *behind)
        wide = [a if a.ndim == x.ndim else a.reshape(one) for a in arrays]
        if not program.reduced:
            out = make(x.shape, x.dtype)
            along_rows(program.fill, axis, wide, (out,))
            return out
        outs = np.empty((program.reduced, *one), x.dtype)
        along_rows(program.fill, axis, wide, tuple(outs))
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
        fill = generated.program(region, x.size >= MIN_TILED_ELEMENTS)
        return _Program(fill, reduced, is_plain)


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


def along_rows(
    step: Callable[..., None], axis: int, inputs: Sequence[Array], outputs: Sequence[Array]
) -> None:
    """Let ``step(axis, *inputs, *outputs)`` fill the outputs, tile by tile.

    All arrays have the shape of ``inputs[0]``, except that those with one value per row have size 1
    along ``axis``, which is counted from the front. Outputs are contiguous.
    """
    shape = inputs[0].shape
    length, rows = shape[axis], inputs[0].size // (shape[axis] or 1)
    inner = math.prod(shape[axis + 1 :])
    narrow = inner == 1 and length <= MAX_TURNED_WIDTH and rows >= 64
    if not rows or not length:
        return
    if rows * length <= TILE_ELEMENTS and not narrow:
        step(axis, *inputs, *outputs)
        return
    arrays = [
        np.ascontiguousarray(a).reshape(-1, a.shape[axis], inner) for a in (*inputs, *outputs)
    ]
    if length * inner > TILE_ELEMENTS and inner > 1:
        _in_columns(step, arrays)
    elif inner > 1:
        each_tile(rows // inner, length * inner, lambda i, s: step(1, *(a[s] for a in arrays)))
    else:
        flat = [a[:, :, 0] for a in arrays]
        if narrow:
            _in_turned_tiles(step, rows, length, flat[: len(inputs)], flat[len(inputs) :])
        else:
            each_tile(rows, length, lambda i, s: step(1, *(a[s] for a in flat)))


def _in_columns(step: Callable[..., None], arrays: Sequence[Array]) -> None:
    """Tiles of some columns, if one plane of rows is larger than a tile."""
    outer, length, inner = arrays[0].shape
    width = tile_height(length)
    blocks = -(-inner // width)

    def one(i: int) -> None:
        plane, block = divmod(i, blocks)
        step(0, *(a[plane, :, block * width : (block + 1) * width] for a in arrays))

    run(one, outer * blocks)


def _in_turned_tiles(
    step: Callable[..., None],
    rows: int,
    length: int,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    """Transposed tiles, so that the inner loops run over many rows at once."""

    def one(i: int, s: slice) -> None:
        sources = [np.array(a[s].T, order="C") for a in inputs]
        results = [np.empty(a[s].T.shape, a.dtype) for a in outputs]
        step(0, *sources, *results)
        for whole, result in zip(outputs, results, strict=True):
            whole[s] = result.T

    each_tile(rows, length, one)
