"""Evenly spaced numbers: ranges by step and by count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, COMPLEX, INEXACT, INTEGERS, NUMERIC, as_dtype, default_dtype
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Onnx, Sample
from eagerflow.ops.creation import creation
from eagerflow.ops.family import FLOAT8
from eagerflow.ops.shape import sized
from eagerflow.spec import TensorSpec

__all__ = ["arange", "linspace"]


def _plain_number(value: Any, op: str, name: str) -> Any:
    """A Python number (or symbolic size) of what may be a number of NumPy's or a tensor."""
    if type(value) in (int, float, complex, Dim):
        return value
    if isinstance(value, bool | np.bool_ | str | bytes) or not hasattr(value, "item"):
        raise DTypeError(
            f"a {type(value).__name__} is not a number", op=op, argument=name,
            received=summary(value), expected="a Python number",
        )  # fmt: skip
    if value.size != 1:
        raise ShapeError(
            "one number is needed", op=op, argument=name,
            received=summary(value), expected="a Python number, or a tensor of one element",
        )  # fmt: skip
    return _plain_number(value.item(), op, name)


def _arrange_range(*args: Any, **named: Any) -> tuple[Any, Any]:
    """``arange(stop)`` as ``arange(0, stop)``; a step that is absent is 1."""
    values = dict(zip(("start", "stop", "step", "dtype", "device"), args, strict=False))
    if len(args) > 5 or values.keys() & named.keys():
        raise TypeError(f"arange() got an unexpected argument: {args}, {named}")
    values |= named
    if "start" not in values and values.get("stop") is None:
        raise TypeError("arange() needs the argument 'stop'")
    if values.get("stop") is None:
        values |= {"start": 0, "stop": values["start"]}
    values = {"start": 0, "step": 1} | values
    for name in ("start", "stop", "step"):
        values[name] = _plain_number(values[name], "arange", name)
    return (), values


def _range_dtype(*numbers: Any) -> Any:
    whole = all(isinstance(n, int | Dim) for n in numbers)
    return default_dtype(int if whole else float)


def _range_size(start: Any, stop: Any, step: Any) -> Any:
    """Number of elements; the ends may be symbolic sizes."""
    numbers = (start, stop, step)
    if any(isinstance(n, complex) for n in numbers):
        raise DTypeError("a range has no complex ends", argument="stop", expected="real numbers")
    if not any(isinstance(n, Dim) for n in numbers):
        if any(isinstance(n, float) and not math.isfinite(n) for n in numbers):
            raise ShapeError(
                f"a range from {start} to {stop} by {step} has no length",
                argument="stop", expected="finite numbers",
            )  # fmt: skip
        if step == 0:
            raise ShapeError("the step is 0", argument="step", expected="another step")
        if all(isinstance(n, int) for n in numbers):
            return max(0, -((start - stop) // step))
        return max(0, math.ceil((stop - start) / step))
    if step == 1 and isinstance(stop - start, int):  # from n to n + 1
        return max(0, stop - start)
    if isinstance(step, int) and step > 0 and not isinstance(start, Dim) and start == 0:
        return stop if step == 1 else (stop + (step - 1)) // step
    raise CaptureError(
        f"the length of a range from {start} to {stop} by {step} is not known",
        argument="stop", hint="ef.arange(size) of a symbolic size, then scale and shift it",
    )  # fmt: skip


def _range_spec(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> TensorSpec:
    shape = sized(_range_size(start, stop, step), "stop")
    made = as_dtype(dtype) if dtype is not None else _range_dtype(start, stop, step)
    if made in BOOL:
        raise DTypeError("bools are not counted", argument="dtype", expected="a numeric dtype")
    last = start + (shape[0] - 1) * step if isinstance(shape[0], int) else start
    if made in INTEGERS and shape[0] != 0 and not isinstance(last, Dim):
        limits = np.iinfo(made)
        if not limits.min <= min(start, last) <= max(start, last) <= limits.max:
            raise DTypeError(
                f"numbers from {start} to {last} do not fit into {made.name}", argument="dtype",
                expected=f"numbers from {limits.min} to {limits.max}",
            )  # fmt: skip
    return TensorSpec(shape, made, None, device)


def _range_values(start: Any, stop: Any, step: Any) -> list[Any]:
    found: list[Any] = []
    while (start + len(found) * step - stop) * (1 if step > 0 else -1) < 0:
        found.append(start + len(found) * step)
    return found


@creation(
    arrange=_arrange_range,
    infer=_range_spec,
    cost=lambda *ends, **more: Cost(0, _range_spec(*ends, **more).size * 8),
    onnx=Onnx("Range"),
    samples=lambda rng, dtype: [
        Sample((), {"start": start, "stop": stop, "step": step, "dtype": dtype})
        for start, stop, step in (
            (0, 5, 1), (2, 9, 3), (5, 0, -2), (3, 3, 1), (0, -4, 1), (0, 1, 0.25), (1, 0, -0.3),
        )
        if dtype.kind != "b"
    ],
    errors=lambda rng: [
        ErrorSample((0, 5, 0), {}, ShapeError, "the step is 0"),
        ErrorSample((float("inf"),), {}, ShapeError, "finite"),
        ErrorSample((10**19,), {}, ShapeError, "too large"),
        ErrorSample((0, 300, 1), {"dtype": "int8"}, DTypeError, "do not fit into int8"),
        ErrorSample(("ten",), {}, DTypeError, "is not a number"),
    ],
    reference=lambda start, stop, step, dtype, device: np.array(
        _range_values(start, stop, step), dtype
    ),
    dtypes=NUMERIC | FLOAT8,
)  # fmt: skip
def arange(
    xp: Any, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> Any:
    """Numbers from ``start`` up to and without ``stop``, ``step`` apart.

    With one number that is ``stop``, and ``start`` is 0. Integers give int64, others
    float32, unless ``dtype`` is given. Element i is ``start + i * step``, computed in
    float64. Raises ShapeError for a step of 0 and for sizes that no memory holds, DTypeError
    for numbers that do not fit into ``dtype``.

    >>> ef.arange(3), ef.arange(1.0, 2.0, 0.25)
    (Tensor([0, 1, 2], int64, cpu:0), Tensor([1.  , 1.25, 1.5 , 1.75], float32, cpu:0))
    """
    size = _range_size(start, stop, step)
    made = dtype or _range_dtype(start, stop, step)
    if made in INTEGERS and all(isinstance(n, int) for n in (start, stop, step)):
        return xp.arange(start, start + size * step, step, dtype=made)
    return xp.astype(start + xp.arange(size, dtype=xp.float64) * step, made)


def _arrange_line(*args: Any, **named: Any) -> tuple[Any, Any]:
    values = dict(zip(("start", "stop", "num", "dtype", "device", "endpoint"), args, strict=False))
    if len(args) > 6 or values.keys() & named.keys():
        raise TypeError(f"linspace() got an unexpected argument: {args}, {named}")
    values |= named
    for name in ("start", "stop"):
        if name in values:
            values[name] = _plain_number(values[name], "linspace", name)
    return (), values


def _line_spec(
    start: Any, stop: Any, num: Any = 50, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> TensorSpec:  # fmt: skip
    if isinstance(num, bool | float | complex) or num is None:
        raise ShapeError(f"{num!r} is not a size", argument="num", expected="an integer from 0")
    made = as_dtype(dtype) if dtype is not None else _line_dtype(start, stop)
    if made in BOOL or (made not in COMPLEX and complex in (type(start), type(stop))):
        raise DTypeError(
            f"points from {start} to {stop} are no {made.name}s", argument="dtype",
            expected="a floating-point or complex dtype",
        )  # fmt: skip
    if made in INTEGERS:
        limits = np.iinfo(made)
        if not all(limits.min <= n <= limits.max for n in (start, stop)):
            raise DTypeError(
                f"numbers from {start} to {stop} do not fit into {made.name}", argument="dtype",
                expected=f"numbers from {limits.min} to {limits.max}",
            )  # fmt: skip
    return TensorSpec(sized(num, "num"), made, None, device)


def _line_dtype(start: Any, stop: Any) -> Any:
    return default_dtype(complex if complex in (type(start), type(stop)) else float)


@creation(
    arrange=_arrange_line,
    infer=_line_spec,
    cost=lambda *ends, **more: Cost(0, _line_spec(*ends, **more).size * 8),
    onnx=Missing("exported as Range, Mul and Add"),
    samples=lambda rng, dtype: [
        Sample((), {"start": start, "stop": stop, "num": num, "dtype": dtype, "endpoint": endpoint})
        for start, stop, num in ((0, 1, 5), (2.0, -1.0, 4), (3, 3, 3), (0, 9, 1), (1, 2, 0))
        for endpoint in (True, False)
    ],
    errors=lambda rng: [
        ErrorSample((0, 1), {"num": -1}, ShapeError, "negative"),
        ErrorSample((0, 1), {"num": 2.5}, ShapeError, "is not a size"),
        ErrorSample((0, 1), {"num": 10**19}, ShapeError, "too large"),
        ErrorSample(("zero", 1), {"num": 3}, DTypeError, "is not a number"),
        ErrorSample((0, 1j), {"num": 3, "dtype": "float32"}, DTypeError, "are no float32s"),
    ],
    reference=lambda start, stop, num, dtype, device, endpoint: np.array(
        [start + (stop - start) * i / max(1, num - endpoint) for i in range(num)], dtype
    ),
    dtypes=INEXACT,
)
def linspace(
    xp: Any, start: Any, stop: Any, num: Any = 50, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> Any:  # fmt: skip
    """Evenly spaced numbers from ``start`` to ``stop``.

    ``num`` is how many; ``stop`` is the last of them, or with ``endpoint=False`` the one
    after. ``dtype`` defaults to float32, complex64 for complex ends. Raises ShapeError for a
    ``num`` that is no size, DTypeError for ends that do not fit.

    >>> ef.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], float32, cpu:0)
    """
    made = dtype or _line_dtype(start, stop)
    steps = max(1, num - bool(endpoint))
    points = start + xp.arange(num, dtype=xp.float64) * ((stop - start) / steps)
    if endpoint and num > 1:
        points[-1] = stop  # rounding may miss it
    if made in INTEGERS:
        points = xp.floor(points)
    return xp.astype(points, made)
