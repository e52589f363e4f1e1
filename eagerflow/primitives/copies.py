"""Copies of arrays into parts of another one, as steps of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.layout import like
from eagerflow.codegen.llvm.fixed import FixedCall, RegionJob
from eagerflow.codegen.region import Region
from eagerflow.dtypes import dtype_name
from eagerflow.spec import Array

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class _Part(NamedTuple):
    """A call that writes at a byte offset in the result, from arrays of the step."""

    call: FixedCall
    places: list[int]
    offset: int


class Copies(NamedTuple):
    """Copies that form a step; ``result`` is the index of the array that they write."""

    parts: list[_Part]
    result: int
    workspace: int = 0
    movable: bool = True
    chain_rows: None = None

    def member(self, rows: int) -> None:
        """Not part of chains."""

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """A job for each part."""
        found = []
        for call, places, offset in self.parts:
            offsets = [*[0] * len(places), offset]
            operands = call.operands._replace(places=[*places, self.result], offsets=offsets)
            found.append(RegionJob(call, step, operands))
        return found


def _written(sources: Sequence[Array], target: Array) -> FixedCall | None:
    """The kernel that copies an array, or zeros if there is none, to a view."""
    real = [i for i, n in enumerate(target.shape) if n != 1]
    at = (*(slice(None) if n != 1 else 0 for n in target.shape), ...)
    sizes = {_LETTERS[i]: target.shape[axis] for i, axis in enumerate(real)} or {"a": 1}
    inputs = [np.broadcast_to(x, target.shape)[at] for x in sources]
    region = _region(dtype_name(target.dtype), len(real), len(inputs))
    found = kernel.fixed_call(region, inputs, [target[at]], sizes, like(*sources))
    return found if isinstance(found, FixedCall) else None


def _region(dtype: str, rank: int, inputs: int) -> Region:
    axes = " ".join(_LETTERS[:rank])
    builder = Builder("copy", axes) if rank else Builder("copy", "a", a=1)
    if inputs:
        value = builder.input("x", dtype, axes)
    else:
        nothing = builder.constant(0, dtype)
        join = builder.logical_or if dtype == "bool" else builder.add
        value = join(nothing, nothing)
    builder.output("y", value, dtype, axes)
    return builder.region()


def _start(array: Array) -> int:
    start: int = array.__array_interface__["data"][0]
    return start


def copies(
    sources: Sequence[Array], targets: Sequence[Array], out: Array, clear: bool = False
) -> Copies | None:
    """Copies of arrays to as many views of ``out``, which is zeroed elsewhere if ``clear``.

    None if one of them has no kernel.
    """
    parts = [_Part(call, [], 0)] if clear and (call := _written([], out)) is not None else []
    if clear and not parts:
        return None
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if source.dtype != out.dtype:
            return None
        if target.size:
            call = _written([source], target)
            if call is None:
                return None
            parts.append(_Part(call, [place], _start(target) - _start(out)))
    return Copies(parts, len(sources)) if parts else None


def joined(*arrays: Array, axis: int) -> Copies | None:
    """The kernel that concatenates arrays into the last one, along an axis."""
    *sources, out = arrays
    ends = np.cumsum([x.shape[axis] for x in sources]).tolist()
    before = (slice(None),) * (axis % out.ndim)
    pairs = zip(sources, ends, strict=True)
    targets = [out[(*before, slice(end - x.shape[axis], end))] for x, end in pairs]
    return copies(sources, targets, out)


def copied(source: Array, out: Array) -> Copies | None:
    """The kernel that copies an array to another one."""
    return copies([source], [out], out)


def scattered(source: Array, out: Array, index: Any) -> Copies | None:
    """The kernel that writes an array to the indexed part of ``out``, and zeros elsewhere.

    ``index`` contains no arrays.
    """
    return copies([source], [out[index]], out, clear=True) if out.size else None
