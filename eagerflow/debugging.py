"""debug_nans: find the first op that makes a NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import provenance
from eagerflow.display import is_known, known_values, summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import EagerflowError
from eagerflow.op import Op
from eagerflow.recorder import Recorder, below, recorder_state
from eagerflow.tensor import Tensor


class NanWatch(Recorder):
    """Checks the result of each op; made by ``debug_nans``."""

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        out = below(self.outer, op, args, attributes)
        for y in out if isinstance(out, tuple) else (out,):
            if _has_nan(y) and not any(_has_nan(x) for x in args):
                code, instruction = provenance.caller()
                file, line = provenance.line_of(code, instruction)
                raise EagerflowError(
                    f"the first NaN is made here, at {file}:{line}",
                    op=op.name,
                    received=", ".join(
                        f"{op.argument(i)} {_described(x)}" for i, x in enumerate(args)
                    ),
                    expected="values for which the result is a number",
                )
        return out


def nans_are_watched() -> bool:
    """Whether ``debug_nans`` is active in this thread, including outside of a trace."""
    recorder = recorder_state()[1]
    while recorder is not None and not isinstance(recorder, NanWatch):
        recorder = recorder.outer
    return recorder is not None


def _has_nan(value: Any) -> bool:
    if not isinstance(value, Tensor) or not is_inexact(value.dtype):
        return False
    return is_known(value) and bool(np.isnan(known_values(value)).any())


def _described(value: Any) -> str:
    if not isinstance(value, Tensor) or value.size == 0 or value.dtype.kind not in "fiu":
        return summary(value)
    values = known_values(value)
    return f"{summary(value)} with values from {values.min():g} to {values.max():g}"


def debug_nans() -> NanWatch:
    """Context in which the first op that makes a NaN from numbers raises, with its line.

    Gradients are checked as well. Every result is checked, so code runs slower.
    Raises EagerflowError with the op, its arguments' ranges and the user's file and line.

    >>> with ef.debug_nans():
    ...     ef.log(ef.tensor([-1.0]))
    Traceback (most recent call last):
    ...
    eagerflow.errors.EagerflowError: log: the first NaN is made here, at ...
    """
    return NanWatch()
