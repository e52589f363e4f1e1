"""Composed functions: public functions over ops.

    @composed(dtypes=FLOATS)
    def nan_to_zero(x, /, nan=0.0):
        \"\"\"...\"\"\"
        return where(isnan(x), nan, x)

A tape, a trace and vmap see the ops that such a function calls. Composed functions need no kernel,
no rules and no file format; the contract tests check values, gradients, batches and graphs as those
of ops (``tests/contract/test_compositions.py``), by their cases in ``tests/cases``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from numbers import Real
from operator import index
from typing import Any, ParamSpec, TypeVar

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dispatch import foreign_error
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, NUMERIC, REAL, DType, default_dtype
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, KeywordError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.number import Number
from eagerflow.op import Missing, Rule
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.family import as_operands
from eagerflow.ops.keywords import translate
from eagerflow.records import Record
from eagerflow.tensor import Operators, Tensor

__all__ = ["Composition", "composed", "compositions"]

P = ParamSpec("P")
R = TypeVar("R")
_EMPTY = inspect.Parameter.empty
_PLAIN = {Tensor}


def _is_whole(x: Any) -> bool:
    """Also integers in arrays and tensors without axes, free sizes and numbers of a trace."""
    if isinstance(x, Number):
        return issubclass(x.python, int)
    try:
        return isinstance(x, Dim) or index(x) is not None
    except raised_here(TypeError):
        return False


def _is_real(x: Any) -> bool:
    """Also numbers in arrays and tensors without axes, free sizes and numbers of a trace."""
    if isinstance(x, Tensor | np.ndarray | np.generic):
        return not x.ndim and x.dtype in BOOL | REAL
    return isinstance(x, Real | Dim) or (isinstance(x, Number) and x.python is not complex)


def _is_truth(x: Any) -> bool:
    if isinstance(x, np.ndarray | np.generic):
        return not x.ndim and x.dtype in BOOL | INTEGERS
    return isinstance(x, int) or (isinstance(x, Number) and issubclass(x.python, int))


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (_is_truth, "True or False"),
    "float": (_is_real, "a number"),
    "int": (_is_whole, "an integer"),
    "str": (_is_text, "a text"),
}
"""The allowed values of an attribute, by its type hint; attributes without one are unchecked."""


def _asked(hint: Any) -> tuple[Callable[[Any], bool], str] | None:
    """The test for a type hint, and its description; None if any value is allowed."""
    kind, _, rest = str(hint).partition(" | ")
    found = _KINDS.get(kind)
    if found is None or rest not in ("", "None"):
        return None
    test, words = found
    return (lambda x: x is None or test(x), f"{words}, or None") if rest else found


class Composition(Record):
    """A public function over ops, with the facts that its tests need.

    ``data`` names its arguments that are tensors, ``attributes`` all others. ``gradient`` is
    Missing if none passes, ``small`` if 16-bit floats are not supported, ``whole`` is True if the
    first argument has integers, regardless of ``dtypes`` of the rest; ``sizes`` is Missing if sizes
    have to be known during tracing, ``batch`` where vmap cannot pass.
    """

    name: str
    call: Rule
    data: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: dict[str, Any]
    asked: dict[str, tuple[Callable[[Any], bool], str]]
    dtypes: frozenset[DType] = NUMERIC
    gradient: Missing | None = None
    small: Missing | None = None
    whole: bool = False
    sizes: Missing | None = None
    batch: Missing | None = None
    singular: bool = False

    def bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """Tensors, and all attributes, of a call by the user."""
        names = (*self.data, *self.attributes)
        if len(args) > len(names):
            raise self._refused(f"{len(names)} arguments at most, {len(args)} given")
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            meant = (name, value) if name in names else translate(self.name, name, value, names)
            if meant is not None and meant[0] in given:
                raise self._refused("this argument was given twice", meant[0])
            given |= [] if meant is None else [meant]
        for name in names:
            if name not in given and self.defaults[name] is _EMPTY:
                raise self._refused("this argument is missing", name)
        whole = [given.get(name, self.defaults[name]) for name in names]
        count = len(self.data)
        for name, value in zip(names[:count], whole, strict=False):
            if value is None and self.defaults[name] is not None:
                raise DTypeError("None is not a tensor, an array or a number", argument=name)
        return _tensors(whole[:count]), dict(zip(self.attributes, whole[count:], strict=True))

    def check(self, named: dict[str, Any]) -> None:
        """Raise ArgumentError if an attribute does not match its type hint."""
        for name, value in named.items():
            if name in self.asked:
                test, words = self.asked[name]
                if not test(value):
                    problem = f"{short_repr(value)} is not taken"
                    raise ArgumentError(problem, argument=name, expected=words)

    def _refused(self, problem: str, argument: str | None = None) -> KeywordError:
        usage = f"{self.name}({', '.join((*self.data, *self.attributes))})"
        return KeywordError(problem, op=self.name, argument=argument, expected=usage)

    def told(self, error: EagerflowError, args: tuple[Any, ...]) -> EagerflowError:
        """An error of an op inside, as one of this function and of its arguments."""
        if error.op != self.name:
            error.op = self.name
            if error.argument and error.argument.partition("[")[0] not in self.defaults:
                error.argument = None
            names = (*self.data, *self.attributes)
            given = zip(names, args, strict=False)
            error.received = ", ".join(f"{name} {summary(x)}" for name, x in given)
        return error


compositions: list[Composition] = []
"""All composed functions in imported modules."""


def _tensors(data: list[Any]) -> tuple[Any, ...]:
    """The tensor arguments; omitted ones stay None."""
    found = iter(as_operands(*(x for x in data if x is not None)))
    return tuple(None if x is None else next(found) for x in data)


def composed(
    *, tensors: int | None = None, method: bool = False, **facts: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that makes a function over ops public, with its facts.

    The first ``tensors`` arguments, or else those in front of the function's "/", become tensors;
    numbers among them take the dtype of the first tensor. Errors of inner ops report the function's
    name and its arguments, and so do errors of Python or NumPy about an argument.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        leading = len([p for p in parameters.values() if p.kind is p.POSITIONAL_ONLY])
        count = leading if tensors is None else tensors
        data, attributes = tuple(parameters)[:count], tuple(parameters)[count:]
        placed = tuple(parameters)[count:leading]  # attributes that are taken by position alone
        own, enough = set(attributes), -1 if placed else count

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                if len(args) != enough or not own >= named.keys() or set(map(type, args)) - _PLAIN:
                    args, named = composition.bind(args, named)
                    composition.check(named)
                    args = *args, *(named.pop(name) for name in placed)
                elif named:
                    composition.check(named)
                return function(*floats_first(args), **named)
            except raised_here(EagerflowError) as error:
                raise composition.told(error, args) from error.__cause__
            except raised_here(ArithmeticError, RecursionError, TypeError, ValueError) as error:
                raise composition.told(foreign_error(error), args) from error

        def floats_first(args: tuple[Any, ...]) -> tuple[Any, ...]:
            """Integers given to a function of real numbers are computed in float32, as by ops.

            Small dtypes would wrap in between: in uint8, 3 - 4 is 255.
            """
            first = args[0] if args else None
            if type(first) is not Tensor or first.dtype not in integers:
                return args
            return astype(first, default_dtype(float)), *args[1:]

        composition = Composition(
            name=function.__name__,
            call=call,
            data=data,
            attributes=attributes,
            defaults={name: p.default for name, p in parameters.items()},
            asked={n: found for n in attributes if (found := _asked(parameters[n].annotation))},
            **facts,
        )
        integers = frozenset() if composition.whole else BOOL | INTEGERS
        integers = integers if composition.dtypes.isdisjoint(integers) else frozenset()
        compositions.append(composition)
        if method:
            setattr(Operators, function.__name__, call)
        return call

    return decorate
