"""Running regions: arrays are checked, outputs allocated, and a way chosen.

    y, = run(region, (x,))

On the CPU a region runs as machine code where llvmlite is there, else by NumPy in tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, DeviceError, DTypeError, IndexRangeError, ShapeError
from eagerflow.kernels import tiles
from eagerflow.kernels.buffers import empty
from eagerflow.kernels.builder import Builder
from eagerflow.kernels.llvm import compiler, launch
from eagerflow.kernels.region import Input, Output, Region

__all__ = ["Builder", "compute", "run", "sizes_of", "ways"]

Array = np.ndarray[Any, Any]

_WAYS: dict[str, Callable[..., None]] = {"llvm": launch.compute, "tiles": tiles.compute}


def ways() -> tuple[str, ...]:
    """The ways that regions can run on this machine's CPU, the preferred one first."""
    return ("llvm", "tiles") if compiler.available() else ("tiles",)


def _function(way: str) -> Callable[..., None]:
    if way not in _WAYS:
        raise ArgumentError(f"there is no way {way!r}", expected=" or ".join(_WAYS))
    return _WAYS[way]


def run(region: Region, inputs: Sequence[Array], way: str | None = None) -> tuple[Array, ...]:
    """The outputs of a region, in new arrays; ``inputs`` are NumPy arrays in its order.

    An output in place of an input is that input's array. Raises DTypeError, ShapeError,
    IndexRangeError (rows looked up) and ArgumentError as ``compute`` does.
    """
    sizes = sizes_of(region, inputs)
    outputs = []
    for part in region.outputs:
        if part.inplace is not None:
            source = next(i for i, p in enumerate(region.inputs) if p.name == part.inplace)
            outputs.append(inputs[source])
        else:
            outputs.append(empty(tuple(sizes[a] for a in part.axes), as_dtype(part.dtype)))
    _function(way or ways()[0])(region, inputs, outputs, sizes)
    return tuple(outputs)


def compute(
    region: Region,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    sizes: dict[str, int] | None = None,
    way: str | None = None,
) -> None:
    """Fill the arrays ``outputs`` with what a region computes from ``inputs``.

    Raises DTypeError and ShapeError for arrays that are not as the region says, IndexRangeError
    for rows that do not exist, ArgumentError for outputs that share memory with something else
    than the input in whose place they are.
    """
    found = sizes_of(region, inputs, sizes)
    _check_outputs(region, inputs, outputs, found)
    _function(way or ways()[0])(region, inputs, outputs, found)


# Checks ------------------------------------------------------------------------------------------


def sizes_of(
    region: Region, inputs: Sequence[Array], given: dict[str, int] | None = None
) -> dict[str, int]:
    """The extent of each axis, from the inputs' shapes; raises where they do not fit."""
    if len(inputs) != len(region.inputs):
        _refuse(region, ArgumentError, f"{len(region.inputs)} inputs, not {len(inputs)}")
    sizes = dict(region.sizes) | (given or {})
    for part, array in zip(region.inputs, inputs, strict=True):
        _check_type(region, part, array)
        for at, (axis, size) in enumerate(zip(part.axes, array.shape, strict=True)):
            if part.gather and at == 0:
                continue
            if sizes.setdefault(axis, size) != size:
                _refuse(
                    region, ShapeError, f"axis {axis} has size {sizes[axis]} elsewhere, and "
                    f"{size} in {part.name}, whose shape is {array.shape}",
                )  # fmt: skip
    for part, array in zip(region.inputs, inputs, strict=True):
        if part.gather:
            index = inputs[[p.name for p in region.inputs].index(part.gather)]
            _check_rows(region, part, array, index)
    missing = [a for a in region.axes if a not in sizes]
    if missing:
        _refuse(region, ShapeError, f"no input tells the size of {', '.join(missing)}")
    return sizes


def _check_type(region: Region, part: Input | Output, array: Array) -> None:
    if not isinstance(array, np.ndarray):
        _refuse(region, DeviceError, f"{part.name} is a {type(array).__name__}, not a NumPy array")
    if array.dtype.name != part.dtype or not array.dtype.isnative:
        _refuse(region, DTypeError, f"{part.name} has dtype {array.dtype}, not {part.dtype}")
    if array.ndim != len(part.axes):
        _refuse(
            region, ShapeError, f"{part.name} has shape {array.shape}, which is not one size for "
            f"each of {part.axes}",
        )  # fmt: skip


def _check_rows(region: Region, part: Input, array: Array, index: Array) -> None:
    if index.size and not (0 <= index.min() and index.max() < array.shape[0]):
        _refuse(
            region, IndexRangeError, f"{part.gather} holds numbers from {index.min()} to "
            f"{index.max()}, and {part.name} has {array.shape[0]} rows",
        )  # fmt: skip


def _check_outputs(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], sizes: dict[str, int]
) -> None:
    if len(outputs) != len(region.outputs):
        _refuse(region, ArgumentError, f"{len(region.outputs)} outputs, not {len(outputs)}")
    for number, (part, array) in enumerate(zip(region.outputs, outputs, strict=True)):
        _check_type(region, part, array)
        shape = tuple(sizes[a] for a in part.axes)
        if array.shape != shape:
            _refuse(region, ShapeError, f"{part.name} has shape {array.shape}, not {shape}")
        if not array.flags.writeable:
            _refuse(region, ArgumentError, f"{part.name} cannot be written to")
        if any(s == 0 and n > 1 for s, n in zip(array.strides, shape, strict=True)):
            _refuse(region, ArgumentError, f"{part.name} has several elements in one place")
        _check_overlap(region, inputs, outputs, number)


def _check_overlap(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], number: int
) -> None:
    part, array = region.outputs[number], outputs[number]
    for source, other in zip(region.inputs, inputs, strict=True):
        if source.name == part.inplace and _same_place(array, other):
            continue
        if _overlap(array, other):
            _refuse(region, ArgumentError, f"{part.name} shares memory with {source.name}", part)
    for second, other in zip(region.outputs[:number], outputs[:number], strict=True):
        if _overlap(array, other):
            _refuse(region, ArgumentError, f"{part.name} shares memory with {second.name}", part)


def _overlap(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)
    except np.exceptions.TooHardError:
        return True  # strides so entangled that nobody needs them


def _same_place(a: Array, b: Array) -> bool:
    start = a.__array_interface__["data"][0], a.strides
    return bool(start == (b.__array_interface__["data"][0], b.strides) and a.shape == b.shape)


def _refuse(region: Region, kind: Any, message: str, part: Output | None = None) -> None:
    lines = str(region).splitlines()
    for i, line in enumerate(lines):
        if part is not None and line.strip() == str(part):
            lines[i] = f"> {line.strip()}   <-- here"
    raise kind("\n".join([message, *lines]), op=f"region {region.name}")
