"""NumPy's functions on tensors: ``np.f(tensor)`` is our function of that name.

NumPy's own signature says which argument is which, so they may come in NumPy's order and with
NumPy's names; ``ops/keywords.py`` says what becomes of those that ours does not have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.errors import DTypeError, KeywordError
from eagerflow.op import ops
from eagerflow.ops import linalg
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.selection import maximum, minimum
from eagerflow.ops.elementwise.selection import where as select
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.keywords import translate
from eagerflow.ops.other_names import table
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import all, any, max, min, prod, sum
from eagerflow.ops.shapes.diagonals import tril, triu
from eagerflow.tensor import Operators, Tensor, array_namespace, joining

__all__: list[str] = []

Call = Callable[..., Any]


# Functions that take more in NumPy, or mean something else ----------------------------------------


def _whole(a: Any, triangle: str) -> Any:
    """The symmetric (Hermitian) matrices of which one triangle is told."""
    if triangle not in ("L", "U", "l", "u"):
        raise KeywordError(
            f"{triangle!r} is no triangle", op="eigh", argument="UPLO", expected="'L' or 'U'"
        )
    a = as_tensor(a)
    part, rest = (tril(a), tril(a, -1)) if triangle in "Ll" else (triu(a), triu(a, 1))
    return add(part, conj(rest).mT)


def _svd(a: Any, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return linalg.svd(a, full_matrices=full_matrices) if compute_uv else linalg.svdvals(a)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    return nonzero(condition) if x is None and y is None else select(condition, x, y)


def _mean(
    a: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True
) -> Any:
    a = as_tensor(a) if dtype is None else astype(a, dtype)
    if where is True:
        return mean(a, axis=axis, keepdims=keepdims)
    count = sum(select(where, ones_like(a), 0), axis=axis, keepdims=keepdims)
    return divide(sum(select(where, a, 0), axis=axis, keepdims=keepdims), count)


def _reduced(ours: Call, neutral: Any, join: Any) -> Call:
    """A reduction that takes NumPy's ``where`` and ``initial`` as well."""

    def call(
        a: Any,
        /,
        axis: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
        dtype: Any = None,
    ) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        if where is not True:
            fill = neutral if neutral is not None else initial
            if fill is None:
                raise KeywordError(
                    "nothing may be left of an axis",
                    op=ours.__name__,
                    argument="where",
                    hint="initial=..., what the result is then",
                )
            a = select(where, a, fill)
        y = ours(a, axis=axis, keepdims=keepdims, **options)
        return y if initial is None or join is None else join(y, initial)

    call.plain = ours  # type: ignore[attr-defined]
    return call


_OWN: dict[Any, Call] = {
    np.shape: lambda a, /: a.shape,
    np.ndim: lambda a, /: a.ndim,
    np.size: lambda a, /, axis=None: a.size if axis is None else a.shape[axis],
    np.linalg.eigh: lambda a, /, UPLO="L": linalg.eigh(_whole(a, UPLO)),
    np.linalg.eigvalsh: lambda a, /, UPLO="L": linalg.eigvalsh(_whole(a, UPLO)),
    np.linalg.svd: _svd,
    np.where: _where,
    np.mean: _mean,
    np.all: _reduced(all, True, None),
    np.any: _reduced(any, False, None),
    np.max: _reduced(max, None, maximum),
    np.min: _reduced(min, None, minimum),
    np.prod: _reduced(prod, 1, multiply),
    np.sum: _reduced(sum, 0, add),
}


def _method(name: str) -> Call:
    method = getattr(Operators, name)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(as_tensor(self), *args, **kwargs)

    return call


# The method of a tensor means the same as NumPy's function, ours of that name does not.
_METHODS = (np.argsort, np.cumprod, np.cumsum, np.diagonal, np.dot, np.ravel, np.round, np.trace)


# Which is which ----------------------------------------------------------------------------------


class _Counterpart(NamedTuple):
    """Our function for one of NumPy's, and how the arguments of the two belong together."""

    call: Call
    theirs: inspect.Signature | None  # None: they are the same
    lead: int
    """How many arguments are given by position: those without a default."""
    names: dict[str, Any]
    plain: Call
    """What is called where only arguments come that ours has too."""
    same: frozenset[str]


@cache
def _counterparts() -> dict[Any, Call]:
    found: dict[Any, Call] = {}
    for home, numpys in (("", np), ("linalg", np.linalg), ("fft", np.fft)):
        ours = getattr(array_namespace(), home, None) if home else array_namespace()
        for name in getattr(ours, "__all__", ()):
            if callable(function := getattr(numpys, name, None)):
                found[function] = getattr(ours, name)
    return found | {f: _method(f.__name__) for f in _METHODS} | _OWN


@cache
def _counterpart(function: Any) -> _Counterpart | None:
    call = _counterparts().get(function)
    if call is None:
        return None
    try:
        theirs = inspect.signature(function)
    except ValueError:  # a function in C that does not tell
        theirs = None
    own = inspect.signature(call).parameters
    lead = len([p for p in own.values() if p.default is p.empty])
    plain = getattr(call, "plain", call)
    same = frozenset(inspect.signature(plain).parameters)
    return _Counterpart(call, theirs, lead, dict(own), plain, same)


def _arguments(name: str, found: _Counterpart, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments for our function, from those of NumPy's."""
    if found.theirs is None:
        return args, kwargs
    given: list[Any] = []
    named: dict[str, Any] = {}
    places = list(found.theirs.parameters)
    for key, value in found.theirs.bind(*args, **kwargs).arguments.items():
        theirs = found.theirs.parameters[key]
        if theirs.kind is theirs.VAR_POSITIONAL:
            given += value
        elif theirs.kind is theirs.VAR_KEYWORD:
            named |= value
        elif places.index(key) < found.lead and theirs.kind is not theirs.KEYWORD_ONLY:
            given.append(value)
        else:
            named[key] = value
    for key in [key for key in named if key not in found.names]:
        value = named.pop(key)
        default = found.theirs.parameters[key].default if key in found.theirs.parameters else key
        if value is not default and value is not np._NoValue:
            meant = translate(name, key, value, found.names)
            named |= {} if meant is None else dict([meant])
    return given, {key: value for key, value in named.items() if value is not np._NoValue}


# NumPy's protocols -------------------------------------------------------------------------------


_ufuncs: dict[Any, Any] = {}


def _op_of(ufunc: Any) -> Any:
    """The op that means the same as an element-wise function of NumPy's; None if there is none."""
    if not _ufuncs:
        # By object: np.acos is np.arccos, and np.bitwise_left_shift is np.left_shift.
        named = {getattr(np, op.ufunc or name, None): op for name, op in ops.items()}
        _ufuncs.update({f: op for f, op in named.items() if isinstance(f, np.ufunc)})
    return _ufuncs.get(ufunc)


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if type(inputs[0]) is not Tensor or type(inputs[-1]) is not Tensor:
        for x in inputs:
            if not joining[type(x)]:
                return NotImplemented
    op = _ufuncs.get(ufunc) or _op_of(ufunc)
    if method != "__call__" or op is None:
        raise DTypeError(
            f"numpy.{ufunc.__name__}{'' if method == '__call__' else '.' + method}"
            " does not take tensors",
            hint="np.asarray(x) for the values" + (f", or ef.{op.name}(...)" if op else ""),
        )
    if kwargs:
        for key, value in kwargs.items():
            translate(op.name, key, value, op.data)
    return op.call(*inputs)


def _array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    for cls in types:
        if not joining[cls]:
            return NotImplemented
    found = _counterpart(func)
    if found is None:
        here = table("eagerflow").get(func.__name__)
        raise DTypeError(
            f"{func.__module__}.{func.__name__} does not take tensors",
            hint=(f"{here}; or " if here else "")
            + "np.asarray(x) for the values; gradients do not pass through NumPy",
        )
    if len(args) <= found.lead and (not kwargs or kwargs.keys() <= found.same):
        return found.plain(*args, **kwargs)
    args, kwargs = _arguments(func.__name__, found, args, kwargs)
    return found.call(*args, **kwargs)


Operators.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Operators.__array_function__ = _array_function  # type: ignore[attr-defined]
