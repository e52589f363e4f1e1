"""Evenly spaced numbers: ranges by step and by count."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor, join_numbers, number_type, own_dtype
from eagerflow.dims import Dim
from eagerflow.dispatch import check
from eagerflow.display import summary
from eagerflow.dtypes import (
    BOOL,
    COMPLEX,
    INEXACT,
    INTEGERS,
    NUMERIC,
    as_dtype,
    default_dtype,
    promote,
)
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.number import Number
from eagerflow.ops.attributes import DeviceName, DTypeLike, NumberLike, Size
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import creation
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.rounding import floor
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import FLOAT8
from eagerflow.ops.shapes.reshaping import reshape, sized
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Operators, Tensor

__all__ = ["arange", "linspace"]


def _plain_number(value: Any, op: str, name: str) -> Any:
    """A Python number (or symbolic size) from a NumPy number or a tensor."""
    if type(value) in (int, float, complex, Dim):
        return value
    if type(value) is Number:
        value.refuse("int()")
    if isinstance(value, bool | np.bool_ | str | bytes) or not hasattr(value, "item"):
        raise DTypeError(
            f"a {type(value).__name__} is not a number",
            op=op,
            argument=name,
            received=summary(value),
            expected="a Python number",
        )
    if value.size != 1:
        raise ShapeError(
            "one number is needed",
            op=op,
            argument=name,
            received=summary(value),
            expected="a Python number, or a tensor of one element",
        )
    return _plain_number(value.item(), op, name)


def _by_name(op: str, names: str, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call by their names."""
    known = names.split()
    values = dict(zip(known, args, strict=False))
    if len(args) > len(known) or values.keys() & named.keys():
        raise TypeError(f"{op}() got an unexpected argument; it takes {', '.join(known)}")
    return values | named


def _arrange_range(*args: Any, **named: Any) -> tuple[Any, Any]:
    """``arange(stop)`` as ``arange(0, stop)``; a step that is absent is 1."""
    values = _by_name("arange", "start stop step dtype device", args, named)
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
    """NumberLike of elements; the ends may be symbolic sizes."""
    numbers = (start, stop, step)
    if any(isinstance(n, complex) for n in numbers):
        raise DTypeError("a range has no complex ends", argument="stop", expected="real numbers")
    if not any(isinstance(n, Dim) for n in numbers):
        if any(isinstance(n, float) and not math.isfinite(n) for n in numbers):
            raise ShapeError(
                f"a range from {start} to {stop} by {step} has no length",
                argument="stop",
                expected="finite numbers",
            )
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
        argument="stop",
        hint="ef.arange(size) of a symbolic size, then scale and shift it",
    )


def _range_spec(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> TensorSpec:
    shape = sized(_range_size(start, stop, step), "stop")
    made = as_dtype(dtype) if dtype is not None else _range_dtype(start, stop, step)
    if made in BOOL:
        raise DTypeError("bools are not counted", argument="dtype", expected="a numeric dtype")
    last = start + (shape[0] - 1) * step if isinstance(shape[0], int) else start
    if made in INTEGERS and shape[0] != 0 and not isinstance(last, Dim):
        _check_limits(made, start, last)
    return TensorSpec(shape, made, None, device)


def _check_limits(dtype: Any, first: Any, last: Any) -> None:
    limits = np.iinfo(dtype)
    if not all(limits.min <= n <= limits.max for n in (first, last)):
        raise DTypeError(
            f"numbers from {first} to {last} do not fit into {dtype.name}",
            argument="dtype",
            expected=f"numbers from {limits.min} to {limits.max}",
        )


def _range_operator(w: Any, **attributes: Any) -> Any:
    """The rule of ONNX, where sizes that are known by name are read from the inputs."""
    numbers = [attributes[name] for name in ("start", "stop", "step")]
    if not any(isinstance(n, Dim) for n in numbers):
        return w.evaluated(arange, **attributes)
    return w.Range(*[w.number(x) for x in numbers], dtype="int64")


@creation(
    arrange=_arrange_range,
    infer=_range_spec,
    onnx=_range_operator,
    dtypes=NUMERIC | FLOAT8,
)
def arange(
    xp: Namespace,
    start: NumberLike | Size,
    stop: NumberLike | Size = None,
    step: NumberLike = 1,
    dtype: DTypeLike = None,
    device: DeviceName = None,
) -> Array:
    """Numbers from ``start`` up to and without ``stop``, ``step`` apart.

    A single number is ``stop``, with a ``start`` of 0. Integers give int64, others float32, unless
    ``dtype`` is given. Element i is ``start + i * step``, computed in float64. Where ``start`` or
    ``step`` are tensors of one element, gradients pass to them, and the dtype is theirs; that of
    ``stop`` decides the size alone. Raises ShapeError for a step of 0 and for sizes beyond memory,
    DTypeError for numbers that do not fit into ``dtype``, CaptureError for tensors with unknown
    values during tracing.

    >>> ef.arange(3), ef.arange(1.0, 2.0, 0.25)
    (Tensor([0, 1, 2], int64, cpu:0), Tensor([1.  , 1.25, 1.5 , 1.75], float32, cpu:0))
    """
    size = _range_size(start, stop, step)
    made = dtype or _range_dtype(start, stop, step)
    if made in INTEGERS and all(isinstance(n, int) for n in (start, stop, step)):
        return xp.arange(start, start + size * step, step, dtype=made)
    return xp.astype(start + xp.arange(size, dtype=xp.float64) * step, made)


def _arrange_line(*args: Any, **named: Any) -> tuple[Any, Any]:
    values = _by_name("linspace", "start stop num dtype device endpoint", args, named)
    for name in ("start", "stop"):
        if name in values:
            values[name] = _plain_number(values[name], "linspace", name)
    return (), values


def _line_spec(
    start: Any,
    stop: Any,
    num: Any = 50,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> TensorSpec:
    if isinstance(num, bool | float | complex) or num is None:
        raise ShapeError(f"{num!r} is not a size", argument="num", expected="an integer from 0")
    made = as_dtype(dtype) if dtype is not None else _line_dtype(start, stop)
    if made in BOOL or (made not in COMPLEX and complex in (type(start), type(stop))):
        raise DTypeError(
            f"points from {start} to {stop} are no {made.name}s",
            argument="dtype",
            expected="a floating-point or complex dtype",
        )
    if made in INTEGERS:
        _check_limits(made, start, stop)
    return TensorSpec(sized(num, "num"), made, None, device)


def _line_dtype(start: Any, stop: Any) -> Any:
    return default_dtype(complex if complex in (type(start), type(stop)) else float)


@creation(
    arrange=_arrange_line,
    infer=_line_spec,
    dtypes=INEXACT,
)
def linspace(
    xp: Namespace,
    start: NumberLike,
    stop: NumberLike,
    num: Size = 50,
    dtype: DTypeLike = None,
    device: DeviceName = None,
    endpoint: bool = True,
) -> Array:
    """Evenly spaced numbers from ``start`` to ``stop``.

    ``num`` is their number; ``stop`` is the last one, or with ``endpoint=False`` the one after.
    ``dtype`` defaults to float32, complex64 for complex ends, and to the dtype of ends that are
    tensors of one element, which get gradients. Raises ShapeError for an invalid ``num``,
    DTypeError for ends that do not fit.

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


# Ends that are tensors ----------------------------------------------------------------------------


def _or_of_tensors(call: Any, rule: Callable[..., Tensor]) -> Any:
    """``call`` if all ends are numbers, ``rule`` if one of them is a tensor or an array."""

    @wraps(call)
    def either(*args: Any, **named: Any) -> Any:
        ends = (*args[:3], named.get("start"), named.get("stop"), named.get("step"))
        if any(isinstance(x, Operators | np.ndarray) for x in ends):
            return rule(*args, **named)
        return call(*args, **named)

    return either


def _met(op: str, dtype: Any, **ends: Any) -> Any:
    """The dtype of a range between such ends."""
    for name, x in ends.items():
        if not isinstance(x, Operators | np.ndarray):
            _plain_number(x, op, name)  # which refuses all but numbers
    if dtype is not None:
        return as_dtype(dtype)
    firm = [own_dtype(x) for x in ends.values() if number_type(x) is None]
    numbers = [x for x in ends.values() if number_type(x) is not None]
    if not firm:  # plain numbers, whose own dtypes do not matter here
        return default_dtype(number_type(numbers) or float)
    return join_numbers(reduce(promote, firm), numbers)


def _wide(value: Any, made: Any, op: str, name: str) -> Tensor:
    """An end without axes, in the widest dtype of the kind that ``made`` is."""
    if own_dtype(value) in COMPLEX and made not in COMPLEX:
        raise DTypeError(
            f"complex ends do not fit into {made.name}",
            op=op,
            argument=name,
            received=summary(value),
            expected="a complex dtype, or real ends",
        )
    tensor = as_tensor(value, "complex128" if made in COMPLEX else "float64")
    if tensor.size != 1:
        raise ShapeError(
            "one number is needed",
            op=op,
            argument=name,
            received=summary(value),
            expected="a number, or a tensor of one element",
        )
    return tensor if tensor.ndim == 0 else reshape(tensor, ())


def _line_of_tensors(
    start: Any,
    stop: Any,
    num: Any = 50,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    made = _met("linspace", dtype, start=start, stop=stop)
    if dtype is None and made not in INEXACT:
        made = default_dtype(float)
    spec = check(
        _line.op, (), {"start": 0, "stop": 1, "num": num, "dtype": made, "endpoint": endpoint}
    )
    a, b = _wide(start, made, "linspace", "start"), _wide(stop, made, "linspace", "stop")
    (size,) = spec.shape
    count = arange(size, dtype="float64", device=str(a.device))
    steps = max(1, size - bool(endpoint))
    points = add(a, multiply(count, divide(subtract(b, a), steps)))
    if endpoint and size > 1:
        points = where(equal(count, size - 1), b, points)  # rounding may miss it
    found = astype(floor(points) if made in INTEGERS else points, made)
    return as_tensor(found, None, device)


def _range_of_tensors(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> Tensor:
    if stop is None:
        start, stop = 0, start
    numbers = {"start": start, "stop": stop, "step": step}
    made = _met("arange", dtype, **numbers)
    known = {name: _plain_number(x, "arange", name) for name, x in numbers.items()}
    place = device or next(
        (str(x.device) for x in numbers.values() if isinstance(x, Operators)), None
    )
    if made not in INEXACT or (own_dtype(start) not in INEXACT and own_dtype(step) not in INEXACT):
        found: Tensor = _range(**known, dtype=made, device=place)
        return found
    (size,) = check(_range.op, (), {**known, "dtype": made}).shape
    first, by = _wide(start, made, "arange", "start"), _wide(step, made, "arange", "step")
    count = arange(size, dtype="float64", device=str(first.device))
    return as_tensor(astype(add(first, multiply(count, by)), made), None, device)


_range, _line = arange, linspace
arange = _or_of_tensors(_range, _range_of_tensors)
linspace = _or_of_tensors(_line, _line_of_tensors)
