"""Execution of regions: validation of arrays, allocation of outputs, and choice of a backend.

    y, = run(region, (x,))

On the CPU a region runs as machine code if llvmlite is installed, otherwise in NumPy's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.codegen.layout import Like, imagined
from eagerflow.codegen.llvm import fixed, jobs, launch, parts
from eagerflow.codegen.llvm.reference_counts import counts_lie_open
from eagerflow.codegen.llvm.team import Team
from eagerflow.codegen.numpy import steps
from eagerflow.codegen.region import Input, Output, Region
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, DeviceError, DTypeError, IndexRangeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.runtime import machine_code
from eagerflow.runtime.buffers import empty

Array = np.ndarray[Any, Any]


def _steps(region: Region, inputs: Any, outputs: Any, sizes: dict[str, int]) -> Callable[..., None]:
    """The steps of NumPy, prepared like ``launch.KernelCall``."""
    return lambda inputs, outputs: steps.compute(region, inputs, outputs, sizes)


_WAYS: dict[str, Callable[..., Any]] = {"llvm": launch.KernelCall, "numpy": _steps}
MAX_PREPARED_SHAPES = 64  # cached per region


def ways() -> tuple[str, ...]:
    """The ways to run regions on this machine's CPU, the preferred one first."""
    return ("llvm", "numpy") if machine_code.available() else ("numpy",)


class _Prepared:
    """A region for arrays of certain shapes, strides and dtypes: validated, and ready to call."""

    def __init__(
        self,
        region: Region,
        inputs: Sequence[Array],
        outputs: Sequence[Array] | None,
        sizes: dict[str, int] | None,
        way: str,
    ) -> None:
        self.sizes = sizes_of(region, inputs, sizes)
        numbers = {part.name: number for number, part in enumerate(region.inputs)}
        self.gathers = [
            (p, numbers[p.name], numbers[p.gather]) for p in region.inputs if p.gather is not None
        ]
        self.inplace = [None if p.inplace is None else numbers[p.inplace] for p in region.outputs]
        self.made = [
            (tuple(self.sizes[a] for a in p.axes), as_dtype(p.dtype)) for p in region.outputs
        ]
        if outputs is None:
            outputs = [
                imagined(shape, dtype) if source is None else inputs[source]
                for (shape, dtype), source in zip(self.made, self.inplace, strict=True)
            ]
        _check_outputs(region, outputs, self.sizes)
        self.replacing = [i for i, source in enumerate(self.inplace) if source is not None]
        if way == "llvm" and not launch.can_run(region, self.sizes):
            way = "numpy"
        self.call = _WAYS[way](region, inputs, outputs, self.sizes)

    def check(self, region: Region, inputs: Sequence[Array]) -> None:
        """Raise IndexRangeError if an index input of a lookup has values out of range."""
        for part, number, index in self.gathers:
            _check_rows(region, part, inputs[number], inputs[index])

    def allocate(self, inputs: Sequence[Array]) -> list[Array]:
        """New arrays for the outputs; an in-place output is its input's array."""
        return [
            empty(shape, dtype) if source is None else inputs[source]
            for (shape, dtype), source in zip(self.made, self.inplace, strict=True)
        ]


def _prepared(
    region: Region,
    inputs: Sequence[Array],
    outputs: Sequence[Array] | None,
    sizes: dict[str, int] | None,
    way: str | None,
) -> _Prepared:
    table: dict[Any, _Prepared] = region.calls
    try:
        key = (
            way,
            _kinds(inputs),
            None if outputs is None else _kinds(outputs),
            None if sizes is None else tuple(sizes.items()),
        )
        found = table.get(key)
    except raised_here(AttributeError):  # not arrays: reported by the checks
        key, found = None, None
    if found is None:
        chosen = way or ways()[0]
        if chosen not in _WAYS:
            raise ArgumentError(f"there is no way {way!r}", expected=" or ".join(_WAYS))
        found = _Prepared(region, inputs, outputs, sizes, chosen)
        if len(table) >= MAX_PREPARED_SHAPES:
            table.clear()
        table[key] = found
    return found


def _kinds(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """The cache key of a call; includes types, as other libraries' arrays have similar dtypes."""
    return tuple([(a.__class__, a.shape, a.strides, a.dtype) for a in arrays])


def run(
    region: Region,
    inputs: Sequence[Array],
    sizes: dict[str, int] | None = None,
    way: str | None = None,
) -> Sequence[Array]:
    """The outputs of a region, in new arrays; ``inputs`` are NumPy arrays in its order.

    An output in place of an input is that input's array; ``sizes`` are the extents of axes that no
    input has. Raises DTypeError, ShapeError, IndexRangeError (rows looked up) and ArgumentError as
    ``compute`` does.
    """
    prepared = _prepared(region, inputs, None, sizes, way)
    prepared.check(region, inputs)
    outputs = prepared.allocate(inputs)
    for number in prepared.replacing:
        _check_memory(region, inputs, outputs, number)
    _note(region, inputs, outputs, prepared.sizes)
    prepared.call(inputs, outputs)
    return outputs


def compute(
    region: Region,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    sizes: dict[str, int] | None = None,
    way: str | None = None,
) -> None:
    """Fill the arrays ``outputs`` with the results of a region on ``inputs``.

    Raises DTypeError and ShapeError for arrays that do not match the region, IndexRangeError for
    rows that do not exist, ArgumentError for outputs that share memory with anything but the input
    that they replace.
    """
    prepared = _prepared(region, inputs, outputs, sizes, way)
    prepared.check(region, inputs)
    for number in range(len(outputs)):
        _check_memory(region, inputs, outputs, number)
    _note(region, inputs, outputs, prepared.sizes)
    prepared.call(inputs, outputs)


def fixed_call(
    region: Region,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    sizes: dict[str, int],
    likes: Sequence[Like],
    offsets: Sequence[int] = (),
    way: str | None = None,
    kept: int | None = None,
) -> Callable[[Sequence[Array], Sequence[Array]], int] | None:
    """A function of arrays of exactly these shapes and dtypes, with an overhead of a microsecond.

    ``inputs`` and ``outputs`` may be ``imagined``; the arrays of a call are read and written from
    their first element on, ``offsets`` bytes later for an input, so that other views of the same
    memory do as well. ``likes`` are the required layouts of the inputs of a call, and of outputs
    after them if there are more: otherwise the function does nothing and returns 1. None if the
    region depends on the actual views, or needs more than ``kept`` bytes of working memory. Raises
    the errors of ``compute``.
    """
    call = _prepared(region, inputs, outputs, sizes, way).call
    if not isinstance(call, launch.KernelCall) or not fixed.possible(call):
        return None
    if kept is not None and call.launch.scratch > kept:
        return None
    return fixed.FixedCall(call, likes, offsets, outputs)


def has_segments() -> bool:
    """Whether many jobs can be called at once, given the tuples of their arrays."""
    lie_open = jobs.arrays_lie_open() and jobs.items_offset() is not None
    return lie_open and machine_code.available()


def is_fixed(call: Any) -> bool:
    """Whether a call is a fixed one, with jobs that can be part of a segment."""
    return isinstance(call, fixed.FixedCall)


def can_wait(call: Any) -> bool:
    """Whether a fixed call can be prepared now and run later."""
    return isinstance(call, fixed.FixedCall) and call.can_wait


def can_defer() -> bool:
    """Whether jobs can be prepared now and run later by a ``team``."""
    return machine_code.available() and jobs.arrays_lie_open()


def can_count() -> bool:
    """Whether ``Holders`` can count the references to arrays on this machine."""
    return can_defer() and counts_lie_open()


def part_job() -> parts.PartJob:
    """A job that overwrites a part of an array, if ``can_defer``."""
    return parts.PartJob()


def team(ready: Sequence[Any]) -> Team:
    """Runs jobs of fixed calls."""
    return Team([job.address for job in ready], list(ready))


# Looking -----------------------------------------------------------------------------------------

listed: list[Any] | None = None
"""The calls while they are recorded."""


def _note(*call: Any) -> None:
    calls = listed  # another thread may end the recording at any moment
    if calls is not None:
        calls.append(call)


def watch(calls: list[Any] | None) -> None:
    """Record calls in a list from now on; None ends the recording."""
    global listed
    listed = calls


# Checks ------------------------------------------------------------------------------------------


def sizes_of(
    region: Region, inputs: Sequence[Array], given: dict[str, int] | None = None
) -> dict[str, int]:
    """The extent of each axis, from the inputs' shapes; raises if they do not match."""
    if len(inputs) != len(region.inputs):
        region.refuse(ArgumentError, f"{len(region.inputs)} inputs, not {len(inputs)}")
    sizes = dict(region.sizes) | (given or {})
    for part, array in zip(region.inputs, inputs, strict=True):
        _check_type(region, part, array)
        for at, (axis, size) in enumerate(zip(part.axes, array.shape, strict=True)):
            if part.gather and at == 0:
                continue
            if sizes.setdefault(axis, size) != size:
                here = f"{size} in {part.name}, whose shape is {array.shape}"
                message = f"axis {axis} has size {sizes[axis]} elsewhere, and {here}"
                region.refuse(ShapeError, message)
    missing = [a for a in region.axes if a not in sizes]
    if missing:
        region.refuse(ShapeError, f"no input determines the size of {', '.join(missing)}")
    return sizes


def _check_type(region: Region, part: Input | Output, array: Array) -> None:
    if not isinstance(array, np.ndarray):
        region.refuse(DeviceError, f"{part.name} is a {type(array).__name__}, not a NumPy array")
    if array.dtype.name != part.dtype or not array.dtype.isnative:
        region.refuse(DTypeError, f"{part.name} has dtype {array.dtype}, not {part.dtype}")
    if array.ndim != len(part.axes):
        message = f"{part.name} has shape {array.shape}, which is not one size for each of"
        region.refuse(ShapeError, f"{message} {part.axes}")


def _check_rows(region: Region, part: Input, array: Array, index: Array) -> None:
    if index.size and (index.min() < 0 or index.max() >= array.shape[0]):
        found = f"{part.gather} holds numbers from {index.min()} to {index.max()}"
        region.refuse(IndexRangeError, f"{found}, and {part.name} has {array.shape[0]} rows")


def _check_outputs(region: Region, outputs: Sequence[Array], sizes: dict[str, int]) -> None:
    if len(outputs) != len(region.outputs):
        region.refuse(ArgumentError, f"{len(region.outputs)} outputs, not {len(outputs)}")
    for part, array in zip(region.outputs, outputs, strict=True):
        _check_type(region, part, array)
        shape = tuple(sizes[a] for a in part.axes)
        if array.shape != shape:
            region.refuse(ShapeError, f"{part.name} has shape {array.shape}, not {shape}")
        shared = any(s == 0 and n > 1 for s, n in zip(array.strides, shape, strict=True))
        if shared and array.size:
            region.refuse(ArgumentError, f"{part.name} has several elements in one place")


def _check_memory(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], number: int
) -> None:
    part, array = region.outputs[number], outputs[number]
    if not array.flags.writeable:
        _refuse_output(region, number, f"{part.name} cannot be written to")
    for source, other in zip(region.inputs, inputs, strict=True):
        if source.name == part.inplace and _same_place(array, other):
            continue
        if _overlap(array, other):
            _refuse_output(region, number, f"{part.name} shares memory with {source.name}")
    for second, other in zip(region.outputs[:number], outputs[:number], strict=True):
        if _overlap(array, other):
            _refuse_output(region, number, f"{part.name} shares memory with {second.name}")


def _refuse_output(region: Region, number: int, message: str) -> None:
    region.refuse(ArgumentError, message, number - len(region.outputs))


def _overlap(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True  # strides so complex that the check is skipped


def _same_place(a: Array, b: Array) -> bool:
    start = a.__array_interface__["data"][0], a.strides
    return bool(start == (b.__array_interface__["data"][0], b.strides) and a.shape == b.shape)
