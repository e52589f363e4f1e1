"""Constant folding: ops on known values are computed during the import."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.capture.trace import Trace
from eagerflow.dims import Dim
from eagerflow.dispatch import check
from eagerflow.graph.ir import Value
from eagerflow.onnx.reading.calls import SizeVector, is_known
from eagerflow.op import Op
from eagerflow.ops.creation.filled import ones
from eagerflow.ops.nn.quantization import WIDENING
from eagerflow.ops.reductions.sums import sum as sum_of
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.recorder import Recorder, below, with_recorder
from eagerflow.tensor import Tensor

FREE_ELEMENTS = 2**24
"""The limit of the total folded size, besides a multiple of the file's size."""


class TooLarge(Exception):  # noqa: N818 - the value is computed when the graph runs
    """A small file would expand to a large value."""


class Budget(Recorder):
    """Computes ops on known values within a limit that is proportional to the file's size."""

    def __init__(self, file_size: int) -> None:
        self.left = FREE_ELEMENTS + 16 * file_size

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The result, or TooLarge."""
        specs = check(op, args, attributes)
        count = sum(s.size for s in (specs if isinstance(specs, tuple) else (specs,)))
        if not isinstance(count, int) or count > self.left:
            raise TooLarge
        self.left -= count
        return below(None, op, args, attributes)


class ImportTrace(Trace):
    """A trace that folds ops on known values, and names constants as in the file."""

    def __init__(self, name: str, free: FreeSizes, budget: Budget) -> None:
        super().__init__(name, free=free)
        self.budget = budget
        self.labels: dict[int, tuple[str, Tensor]] = {}

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The result, computed if all arguments are known, otherwise a node's.

        Values with a compact representation keep it.
        """
        kept = op.family in ("random", "control") or op.name in WIDENING
        if not kept and all(is_known(x) for x in args):
            try:
                return with_recorder(self.budget, op.call, *args, **attributes)
            except TooLarge:
                pass
        return super().call(op, args, attributes)

    def label(self, tensor: Tensor, name: str) -> None:
        """Set the name of a constant."""
        self.labels[id(tensor)] = name, tensor

    def _constant(self, tensor: Tensor) -> Value:
        known = self.labels.get(id(tensor))
        if known is None or id(tensor) in self._constants:
            return super()._constant(tensor)
        value = Value(self.unique(known[0]), tensor.shape, tensor.dtype, self, constant=tensor)
        self._constants[id(tensor)] = value
        return value


def as_plain(x: Any) -> Any:
    """A SizeVector as a Tensor that the graph computes; also within lists."""
    if isinstance(x, list):
        return [as_plain(part) for part in x]
    if not isinstance(x, SizeVector):
        return x
    counted = [_counted(size) for size in x.sizes.flat]
    return reshape(stack(*counted), x.shape)


def _counted(size: Any) -> Tensor:
    """A named dimension as a number computed by the graph: a sum of so many ones."""
    if isinstance(size, Dim):
        return sum_of(ones((size,), dtype="int64"))  # type: ignore[no-any-return]
    return sum_of(ones((), dtype="int64")) * int(size)  # type: ignore[no-any-return]
