"""Formulas: the definition of an op in public ops, from which its scalar instructions follow.

    @pointwise(partials=..., ...)
    def silu(x, /):
        \"\"\"...\"\"\"
        return x / (exp(-x) + 1)

A formula is called with symbols in place of tensors. Each op that it calls writes its instruction
on a namespace ``s``: the builder of a region, or the functions of an array library. The formula of
an op along axes is for one row, whose elements ``sum(x, axis=-1, keepdims=True)`` adds up; with
``axis=0`` it is a sum over all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from eagerflow.codegen.instructions import ARRAY_REDUCTIONS
from eagerflow.devices import Device, SymbolicKind, current_device
from eagerflow.dispatch import own_recorder
from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import CaptureError
from eagerflow.op import Op
from eagerflow.recorder import Recorder, below, recorder_state, with_recorder
from eagerflow.tensor import Tensor, new_tensor

__all__ = ["Formula", "Writer", "row_positions", "row_size"]

_NUMBERS = frozenset((bool, int, float, type(None)))
_AXES = {-1: "n", 0: "m"}
_REDUCTIONS = {name: instruction for instruction, name in ARRAY_REDUCTIONS.items()}


class Writer:
    """Writes the instruction of each op on ``s``."""

    def __init__(self, s: Any, usual: Any = "float64") -> None:
        self.s = s
        self.usual = usual
        """The dtype of values that have none, as numbers of a call."""
        self.recorder = recorder_state()[1]
        """The recorder that sees what ``s`` does, such as a trace where ``s`` has ops."""

    def write(self, op: Op, values: list[Any], attributes: dict[str, Any]) -> Any:
        """The value of an op's result; AttributeError if the op has no instruction."""
        if op.name == "astype":
            return self.s.convert(values[0], attributes["dtype"].name)
        if op.family == "reduction":
            axes = _AXES.get(attributes["axis"])
            if axes is None or not attributes["keepdims"]:
                raise AttributeError(f"{op.name} of other axes than rows, which are kept")
            return getattr(self.s, _REDUCTIONS[op.name])(values[0], axes)
        if op.family == "rows":
            if attributes["axis"] != -1:
                raise AttributeError(f"{op.name} of another axis than the last")
            more = {name: value for name, value in attributes.items() if name != "axis"}
            body: Any = getattr(op.scalar, "body", op.scalar)
            return body(self.s, *values, **more)
        if isinstance(op.scalar, str):
            return getattr(self.s, op.scalar)(*values)
        return op.scalar(self.s, *values, **attributes)  # type: ignore[operator]

    def tensor(self, value: Any, device: Device | None = None) -> Tensor:
        """The symbol for a value."""
        return _symbols.tensor(self, value, device or current_device())


class _Content:
    """The content of a symbol."""

    shape = (2, 2)  # a placeholder: formulas read no shape
    size = 4

    def __init__(self, writer: Writer, value: Any) -> None:
        self.writer, self.value = writer, value
        self.dtype = as_dtype(getattr(value, "dtype", writer.usual))

    def refuse(self, how: str) -> None:
        """Raise, since there is no number."""
        raise CaptureError(f"{how} needs numbers")


class _Symbols(Recorder):
    """Answers op calls on symbols."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[Device, DType], SymbolicKind] = {}

    def tensor(self, writer: Writer, value: Any, device: Device) -> Tensor:
        """The Tensor for a value."""
        content = _Content(writer, value)
        key = device, content.dtype
        if key not in self.kinds:
            self.kinds[key] = SymbolicKind(*key, self)
        return new_tensor(content, self.kinds[key])

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        like: Any = next((x for x in args if own_recorder((x,)) is self), None)
        if like is None:  # a call of a signal handler
            return below(None, op, args, attributes)
        write = like._array.writer.write
        return self.written(like, write, op, [value_of(x) for x in args], attributes)

    def written(self, like: Any, function: Callable[..., Any], *given: Any) -> Tensor:
        """The symbol for ``function(*given)``, which calls ``s``, on the device of ``like``."""
        writer: Writer = like._array.writer
        if writer.recorder is None:
            value = function(*given)
        else:
            value = with_recorder(writer.recorder, function, *given)
        return self.tensor(writer, value, like._kind.device)


_symbols = _Symbols()


def value_of(x: Any) -> Any:
    """The value that a symbol stands for; numbers unchanged."""
    return x._array.value if type(x) is Tensor else x


def row_size(x: Any) -> Any:
    """The number of elements of a row, as a symbol of the dtype of ``x``."""
    return _symbols.written(x, x._array.writer.s.extent, "n", value_of(x).dtype)


def row_positions(x: Any) -> Any:
    """The integers 0, 1, 2 ... along a row, as a symbol like ``x``."""
    return _symbols.written(x, x._array.writer.s.position, "n")


class Formula:
    """A formula as a function ``(s, *values, **attributes)`` of instructions on values.

    A single ``instruction`` may replace it.
    """

    __name__: str

    def __init__(self, formula: Callable[..., Any], instruction: str = "") -> None:
        update_wrapper(self, formula)
        self.formula = formula
        self.instruction = instruction

    def __call__(self, s: Any, /, *values: Any, **attributes: Any) -> Any:
        """The values of the results, written as instructions of ``s``."""
        if self.instruction:
            return getattr(s, self.instruction)(*values)
        typed = [dtype for x in values if (dtype := getattr(x, "dtype", None)) is not None]
        writer = Writer(s, *typed[:1])
        given = [x if type(x) in _NUMBERS else writer.tensor(x) for x in values]
        found = with_recorder(_symbols, self.formula, *given, **attributes)
        return tuple([value_of(x) for x in found]) if type(found) is tuple else value_of(found)
