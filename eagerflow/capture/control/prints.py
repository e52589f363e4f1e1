"""``ef.print``: values shown when the code runs, also in captured code, loops and branches.

In a graph it is the op ``print``. It passes on a number, the value of a Variable that each call
reads and assigns: so calls stay in their order, and none is dropped or made twice.
"""

from __future__ import annotations

import builtins
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.batching import Batching
from eagerflow.capture.control.bodies import call, control_op, fresh
from eagerflow.capture.control.silence import ORDER
from eagerflow.convert import as_tensor, is_foreign_array
from eagerflow.dims import Dim
from eagerflow.dispatch import own_recorder
from eagerflow.display import known_values, options
from eagerflow.errors import ArgumentError, DTypeError, ShapeError, printable, short_repr
from eagerflow.handlers import raised_here
from eagerflow.number import Number, size_as_number
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import HINTS, tuple_of
from eagerflow.ops.family import ANY, op_of
from eagerflow.recorder import recorder_state, with_recorder
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Operators, Tensor
from eagerflow.variable import Variable

_PLACE = "\0"  # of a value in a text
COUNT = np.dtype("int64")
_LONG = re.compile(r"\d{4}")  # a width of thousands

Texts = tuple[str, ...]
Forms = tuple[str, ...]


def _is_form(x: Any) -> bool:
    """Whether a format may be in a file: it makes no more text than people read."""
    return type(x) is str and len(x) <= 16 and not _LONG.search(x)


HINTS["Texts"] = tuple_of(lambda x: type(x) is str), "a tuple of texts"
HINTS["Forms"] = tuple_of(_is_form), "a tuple of formats such as '.3f'"


# The op -------------------------------------------------------------------------------------------


def _spec(order: Any, *values: Any, texts: Any, forms: Any) -> tuple[TensorSpec]:
    if order.shape != () or order.dtype != COUNT:
        raise DTypeError("the order is not a number", argument="order", expected="int64()")
    for name, given in (("texts", texts), ("forms", forms)):
        fits, words = HINTS[name.capitalize()]
        if not fits(given):
            raise ArgumentError(f"{short_repr(given)} is not taken", argument=name, expected=words)
    if len(texts) != len(values) + 1 or len(forms) != len(values):
        raise ShapeError(
            f"there are {len(values)} values",
            argument="texts",
            received=f"{len(texts)} texts, {len(forms)} forms",
            expected=f"{len(values) + 1} texts, {len(values)} forms",
        )
    return (TensorSpec((), COUNT, None, order.device),)


def _batch(args: Any, flags: Any, size: Any, **attributes: Any) -> tuple[list[Tensor], list[bool]]:
    order, *values = args
    if flags[0]:
        order = order[0]
    return list(call(PRINT, order, *values, **attributes)), [False]


@control_op(
    name="print",
    dtypes=(frozenset({COUNT}), ANY),
    saves="",
    infer=_spec,
    batch=_batch,
    cost=lambda *operands, **facts: Cost(0, 0),
    split=Missing("the values are shown together"),
    onnx=lambda w, order, *values, **facts: (order,),  # exported graphs print nothing
)
def _print(xp: Any, order: Any, /, *values: Any, texts: Texts, forms: Forms) -> Any:
    """Show values between texts, and pass on the ``order``, an int64 number.

    ``texts`` are one more than the values, ``forms`` their formats. Users call ``ef.print``. Raises
    DTypeError and ShapeError for another order or number of texts.
    """
    _write(texts, forms, values)
    return fresh((order,)) if type(order) is Tensor else (order,)  # plans pass arrays


PRINT = op_of(_print)


class _Order(Variable):
    """The number that each call passes on: it is the same for all examples of ``vmap``."""

    __slots__ = ()

    def assign(self, value: Any) -> Any:
        """Assign it; where branches were taken for some examples, that of any."""
        level = recorder_state()[1]
        if isinstance(level, Batching) and level.holds(value):
            return with_recorder(level.outer, self.assign, value._array.tensor[0])
        return super().assign(value)


_order: Variable = with_recorder(None, _Order, 0, ORDER, False, "int64", "cpu:0")


def _write(texts: Sequence[str], forms: Sequence[str], values: Sequence[Any]) -> None:
    """Print the values between the texts, in one piece."""
    whole = texts[0]
    for text, form, value in zip(texts[1:], forms, values, strict=True):
        known = known_values(value if type(value) is Tensor else as_tensor(value))
        whole += _shown(known, form, whole.rpartition("\n")[2]) + text
    builtins.print(printable(whole, "\n\t"), end="")


def _shown(values: Any, form: str, before: str = "") -> str:
    """Values as text: a number, or an array as in the text of a tensor, each in this form."""
    if not values.ndim:
        return format(values.item(), form) if form else str(values[()])
    how = {"formatter": {"all": lambda x: format(x, form)}} if form else {}
    return np.array2string(values, separator=", ", prefix=before, **{**options, **how})


# For users ----------------------------------------------------------------------------------------


class _Line:
    """What one call shows: ``texts`` around values. It is the receiver of them, or the node."""

    def __init__(self, values: tuple[Any, ...], sep: str, end: str) -> None:
        self.tensors: list[Tensor] = []
        forms: list[str] = []
        words = _words(tuple(_Place.within(x, self.tensors, forms) for x in values), sep)
        self.texts = tuple((words + end).split(_PLACE))
        self.forms = tuple(forms)

    def __call__(self, *values: Tensor) -> None:
        _write(self.texts, self.forms, values)

    def node(self, *values: Tensor) -> None:
        """Add the op to the current trace."""
        (after,) = call(PRINT, _order.value, *values, texts=self.texts, forms=self.forms)
        _order.assign(after)


class _Place:
    """Stands for a tensor while the text around it is made; its formats give the order."""

    def __init__(self, x: Any, tensors: list[Tensor], forms: list[str]) -> None:
        self.x, self.tensors, self.forms = x, tensors, forms

    def __format__(self, form: str) -> str:
        tensor = as_tensor(self.x)
        try:
            _shown(np.zeros((1,) * min(tensor.ndim, 1), tensor.dtype), form)
        except raised_here(ValueError, TypeError) as error:
            raise ArgumentError(
                f"a format does not fit {tensor.dtype}: {error}",
                op="ef.print",
                argument="values",
                received=repr(form),
                hint="{:.3f} for floats, {:d} for integers",
            ) from None
        self.tensors.append(tensor)
        self.forms.append(form)
        return _PLACE

    def __repr__(self) -> str:
        return format(self, "")

    @classmethod
    def within(cls, value: Any, tensors: list[Tensor], forms: list[str]) -> Any:
        """A nest with these in place of its tensors, and of numbers not known while tracing."""
        if isinstance(value, str):
            return value.replace(_PLACE, "\\0")
        leaves, structure = tree.flatten(value)
        found = []
        for x in leaves:
            x = size_as_number(x) if type(x) is Dim else x
            x = x.tensor if type(x) is Number else x
            shown = isinstance(x, Operators | np.ndarray) or is_foreign_array(type(x))
            found.append(cls(x, tensors, forms) if shown else x)
        return tree.unflatten(structure, found)


def _words(values: tuple[Any, ...], sep: str) -> str:
    """The values as text; the first one may be a template for the others."""
    template, *given = values or ("",)
    fields = _fields(template) if isinstance(template, str) and given else 0
    if not fields:
        return sep.join([str(x) for x in values])
    if fields == len(given):
        return str(template).format(*given)
    raise ArgumentError(
        f"the text has {fields} places for {len(given)} values",
        op="ef.print",
        argument="values",
        received=short_repr(template),
        expected="a place {} for each value, or none",
        hint="{{ and }} are braces themselves",
    )


def _fields(text: str) -> int:
    """The number of places such as {} or {0:.2f}; 0 if braces mean something else."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except raised_here(ValueError):
        return 0
    if not all(n.isdigit() or not n for n in names):
        return 0
    return max([names.count(""), *(int(n) + 1 for n in names if n)])


def print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print values when the code runs: in captured code at each run, not while it is traced.

    ``values`` are tensors and nests of them, and anything else. A first text with places,
    ``"loss {:.3f}"``, is a template for the other values; else all are joined by ``sep``. Works in
    loops, branches, gradients and saved graphs, which print in the process that runs them; calls
    keep their order. In ``vmap`` the values of all examples are shown together. Exports for other
    libraries leave it out. Raises ArgumentError for a template or a format that does not fit.

    >>> @ef.function
    ... def halved(x):
    ...     ef.print("x is {}, its sum {:.2f}", x, x.sum())
    ...     return x / 2
    >>> y = halved(ef.tensor([1.0, 2.0]))
    x is [1., 2.], its sum 3.00
    >>> y = halved(ef.tensor([3.0, 4.0]))
    x is [3., 4.], its sum 7.00
    """
    line = _Line(values, sep, end)
    recorder = recorder_state()[1] or own_recorder(line.tensors)
    if recorder is None:
        line(*line.tensors)
    else:
        named = {str(i): x for i, x in enumerate(line.tensors)}
        recorder.emit("print", line, named)
