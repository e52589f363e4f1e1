"""Steps of many variables as one call of machine code, in eager code.

The variables' arrays are read in place, and all new values are written by one segment, whose parts
are the step's region for each variable. The result is bit-identical to separate steps: only
formulas of correctly rounded instructions are used, for which NumPy and machine code agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.codegen import generated, kernel
from eagerflow.codegen.instructions import SAME_BITS
from eagerflow.codegen.layout import like
from eagerflow.codegen.region import Region
from eagerflow.op import Op
from eagerflow.ops.nn.update_family import formula_numbers, formula_region
from eagerflow.plan.segments import Segment, SegmentStep
from eagerflow.runtime.buffers import empty

__all__ = ["JointStep", "joint_step"]

MAX_KNOWN = 64  # sets of variables with prepared calls
MAX_SMALL_ELEMENTS = 1 << 14  # of a variable whose new values share an array with others

_known: dict[Any, JointStep] = {}


class JointStep:
    """The step of an optimizer for contiguous variables of these sizes, as one call."""

    def __init__(
        self, op: Op, attributes: dict[str, Any], dtype: Any, sizes: Sequence[int]
    ) -> None:
        self.op, self.attributes, self.dtype, self.sizes = op, attributes, dtype, sizes
        region = formula_region(op, dtype, attributes)
        self.results = len(region.outputs)
        self._shared = sum(size for size in sizes if size < MAX_SMALL_ELEMENTS)
        self._segment = Segment([_part(region, size) for size in sizes])

    def __call__(self, columns: Sequence[Sequence[Any]], numbers: Sequence[Any]) -> list[list[Any]]:
        """For each variable its new values, flat, from its flat arrays."""
        found = formula_numbers(self.op, numbers, self.attributes)
        given = tuple([np.array(n, self.dtype) for n in found])
        outs = self._outputs()
        self._segment(
            tuple([(*own, *given, *made) for own, made in zip(columns, outs, strict=True)])
        )
        return outs

    def _outputs(self) -> list[list[Any]]:
        shared = [empty((self._shared,), self.dtype) for _ in range(self.results)]
        start, found = 0, []
        for size in self.sizes:
            if size < MAX_SMALL_ELEMENTS:
                found.append([whole[start : start + size] for whole in shared])
                start += size
            else:
                found.append([empty((size,), self.dtype) for _ in range(self.results)])
        return found


def _part(region: Region, size: int) -> SegmentStep:
    """The step of one variable as a part of a segment."""

    def call(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        generated.compute(region, inputs, outputs)

    def native(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return kernel.fixed_call(region, inputs, outputs, {"n": size}, like(*inputs, *outputs))

    return SegmentStep(region, len(region.inputs), call, native)


@lru_cache(MAX_KNOWN)
def _is_exact(region: Region) -> bool:
    return all(statement.instruction in SAME_BITS for statement in region.body)


def joint_step(
    op: Op, attributes: dict[str, Any], dtype: Any, sizes: tuple[int, ...]
) -> JointStep | None:
    """The step of variables of these sizes; None without bit-identical machine code.

    Empty variables are excluded.
    """
    key = op, dtype, sizes, *attributes.items()
    found = _known.get(key)
    if found is None:
        if dtype.char not in "fd" or 0 in sizes or not generated.enabled():
            return None
        if not kernel.has_segments() or not _is_exact(formula_region(op, dtype, attributes)):
            return None
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        found = _known[key] = JointStep(op, attributes, dtype, sizes)
    return found
