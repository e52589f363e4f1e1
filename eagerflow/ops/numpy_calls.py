"""NumPy's functions on tensors: ``np.f(tensor)`` is our function of that name.

Arguments are bound by NumPy's own signature, so they may have NumPy's order and names;
``ops/keywords.py`` handles those that ours lacks. If ours has another meaning, or is missing,
``ops/numpy_names`` has a replacement, or the reason that there is none.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dtypes import as_dtype
from eagerflow.errors import DTypeError, KeywordError
from eagerflow.handlers import raised_here
from eagerflow.op import ops
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.keywords import translate
from eagerflow.ops.late import load
from eagerflow.ops.other_names import table
from eagerflow.ops.plain import plain
from eagerflow.recorder import recorder_state
from eagerflow.tensor import Operators, Tensor, array_namespace, joining

__all__: list[str] = []

Call = Callable[..., Any]

# Names of NumPy's that we call otherwise; for methods of tensors see ops/methods.py.
_RENAMED = {
    "concat": "concat",
    "copy": "asarray",
    "fix": "trunc",
    "transpose": "permute_dims",
}
_CALLING = {"apply_along_axis", "apply_over_axes", "piecewise"}
"""Functions that call users' functions, whose errors are not translated."""
_OWN = ("reductions", "shapes", "choices", "polynomials", "linear_algebra", "padding")


@cache
def _own() -> dict[str, Call]:
    """Functions for NumPy's names, if ours of that name has another meaning."""
    found: dict[str, Call] = {}
    for module in _OWN:
        found |= load(f"numpy_names.{module}").FUNCTIONS
    return {name: f if name in _CALLING else plain(f, name) for name, f in found.items()}


# Which is which ----------------------------------------------------------------------------------


class _Counterpart(NamedTuple):
    """Our function for one of NumPy's, and how the arguments of the two belong together."""

    call: Call
    theirs: inspect.Signature | None  # None: they are the same
    lead: int
    """The number of positional arguments: those without a default."""
    names: dict[str, Any] | None  # None: any
    plain: Call
    """The fast path for calls with only arguments that ours has too."""
    same: frozenset[str]


def full_name(function: Any) -> str:
    """The qualified NumPy name of one of its functions, without ``numpy`` itself."""
    name: str = function.__name__
    for home in ("linalg", "fft"):
        if getattr(getattr(np, home), name, None) is function and (
            getattr(np, name, None) is not function
        ):
            return f"{home}.{name}"
    return name


def _ours(name: str) -> Call | None:
    own = _own().get(name)
    if own is not None:
        return own
    home, _, last = name.rpartition(".")
    place = getattr(array_namespace(), home, None) if home else array_namespace()
    last = _RENAMED.get(last, last)
    return getattr(place, last) if last in getattr(place, "__all__", ()) else None


@cache
def counterpart(function: Any) -> _Counterpart | None:
    name = full_name(function)
    refused = load("numpy_names.refused")
    if name in refused.on_values:
        return _of_values(function)
    call = None if name in refused.REASONS else _ours(name)
    if call is None:
        return None
    try:
        theirs = inspect.signature(function)
    except raised_here(ValueError):  # a C function without a signature
        theirs = None
    own = inspect.signature(call).parameters
    lead = len([p for p in own.values() if p.default is p.empty])
    plain = getattr(call, "plain", call)
    same = frozenset(inspect.signature(plain).parameters)
    return _Counterpart(call, theirs, lead, dict(own), plain, same)


def _of_values(function: Any) -> _Counterpart:
    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = [np.asarray(x) if isinstance(x, Operators) else x for x in args]
        named = {k: np.asarray(x) if isinstance(x, Operators) else x for k, x in kwargs.items()}
        return function(*arrays, **named)

    return _Counterpart(call, None, 0, None, call, frozenset())


def _arguments(name: str, found: _Counterpart, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments for our function, from those of NumPy's."""
    if found.names is None:
        return args, kwargs
    given: list[Any] = []
    named: dict[str, Any] = {}
    known: Any = {} if found.theirs is None else found.theirs.parameters
    places = list(known)
    if found.theirs is None:
        given, named, arguments = list(args), dict(kwargs), {}
    else:
        arguments = found.theirs.bind(*args, **kwargs).arguments
    for key, value in arguments.items():
        theirs = known[key]
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
        default = known[key].default if key in known else key
        if value is not default and value is not np._NoValue:
            meant = translate(name, key, value, found.names)
            named |= {} if meant is None else dict([meant])
    return given, {key: value for key, value in named.items() if value is not np._NoValue}


# NumPy's protocols -------------------------------------------------------------------------------


_UFUNCS = {
    "absolute": "abs",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
} | {f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")}
"""Our names of NumPy's elementwise functions, if they differ."""

_ufuncs: dict[Any, Any] = {}


def call_of(ufunc: Any) -> Any:
    """The equivalent of an elementwise function of NumPy; None if there is none."""
    name = ufunc.__name__
    if getattr(np, name, None) is not ufunc:
        return None
    found = load("numpy_names.ufuncs").FUNCTIONS.get(name)
    ours = _UFUNCS.get(name, name)
    if found is None and ours in array_namespace().__all__:
        found = getattr(array_namespace(), ours)
        found = _of_truths(found) if ours.startswith("logical_") else found
    if found is not None:
        _ufuncs[ufunc] = found
    return found


def _of_truths(call: Any) -> Call:
    """A logical function, for which nonzero values are true."""

    def of_truths(*inputs: Any) -> Any:
        return call(*(x if _is_truth(x) else ops["not_equal"].call(x, 0) for x in inputs))

    return of_truths


def _is_truth(x: Any) -> bool:
    return type(x) is bool or getattr(x, "dtype", None) == np.bool_


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if type(inputs[0]) is not Tensor or type(inputs[-1]) is not Tensor:
        for x in inputs:
            if not joining[type(x)]:
                return NotImplemented
    if kwargs and _into_arrays(kwargs.get("out")):  # such as array += tensor
        arrays = (np.asarray(x) if isinstance(x, Operators) else x for x in inputs)
        return getattr(ufunc, method)(*arrays, **kwargs)
    call = _ufuncs.get(ufunc) or call_of(ufunc)
    if method != "__call__" or call is None:
        return _ufunc_method(ufunc, method, call, inputs, kwargs)
    if kwargs:
        inputs = _with_keywords(ufunc.__name__, inputs, kwargs)
    return call(*inputs)


def _into_arrays(out: Any) -> bool:
    """Whether results go into NumPy arrays; gradients and captured programs would lose them."""
    arrays = out is not None and all(isinstance(x, np.ndarray) for x in out)
    return arrays and recorder_state()[1] is None


def _with_keywords(name: str, inputs: Any, kwargs: Any) -> Any:
    """The inputs in the requested dtype; other keywords must have no effect."""
    dtype = kwargs.pop("dtype", None)
    out = kwargs.pop("out", None)
    for one in out or ():
        translate(name, "out", one, ())
    for key, value in kwargs.items():
        translate(name, key, value, ())
    return inputs if dtype is None else [astype(x, as_dtype(dtype)) for x in inputs]


def _ufunc_method(ufunc: Any, method: str, call: Any, inputs: Any, kwargs: Any) -> Any:
    name = ufunc.__name__
    known = load("numpy_names.ufuncs").METHODS.get(method)
    if call is None or known is None:
        reason = load("numpy_names.refused").REASONS.get(name)
        if method == "at":
            reason = "tensors do not change: x.at[index].add(values) gives a new one"
        if getattr(np, name, None) is not ufunc:
            raise _of_scipy(ufunc)
        raise DTypeError(
            f"numpy.{name}{'' if method == '__call__' else '.' + method} does not take tensors"
            + (f": {reason}" if reason else ""),
            hint="np.asarray(x) for the values",
        )
    dropped = {"out": (None, (None,)), "order": ("K", "C"), "casting": ("same_kind",)}
    named = {k: x for k, x in kwargs.items() if x is not np._NoValue}
    for key in [key for key in named if key in dropped and named[key] in dropped[key]]:
        named.pop(key)
    try:
        return known(name, call, *inputs, **named)
    except raised_here(TypeError) as error:
        if "keyword" not in str(error) or isinstance(error, KeywordError | DTypeError):
            raise
        raise KeywordError(str(error).partition(" got ")[2], op=f"{name}.{method}") from None


_SCIPY = {"psi": "digamma", "gammaln": "lgamma", "_zeta": "zeta", "jn": "jv"}
"""SciPy's functions whose own name, or ours, is another one."""


def _of_scipy(ufunc: Any) -> DTypeError:
    """The error of an elementwise function of another library: SciPy's, as a rule."""
    special, name = sys.modules.get("scipy.special"), ufunc.__name__
    shown = name.lstrip("_")
    place = "scipy.special." if getattr(special, shown, None) is not None else ""
    ours = _SCIPY.get(name, shown)
    here = table("functions").get(name)
    if place and ours in array_namespace().__all__:
        own = inspect.signature(getattr(array_namespace(), ours)).parameters.values()
        here = f"ef.{ours}({', '.join([p.name for p in own if p.default is p.empty])})"
    return DTypeError(
        f"{place or 'the ufunc '}{shown} does not take tensors",
        hint=(f"{here}; or " if here else "")
        + "np.asarray(x) for the values; gradients do not pass through SciPy"
        if place
        else "np.asarray(x) for the values; gradients do not pass through it",
    )


def _array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    for cls in types:
        if not joining[cls]:
            return NotImplemented
    found = counterpart(func)
    if found is None:
        raise _refused(func)
    if len(args) <= found.lead and (not kwargs or kwargs.keys() <= found.same):
        return found.plain(*args, **kwargs)
    args, kwargs = _arguments(func.__name__, found, args, kwargs)
    return found.call(*args, **kwargs)


def _refused(func: Any) -> DTypeError:
    reason = load("numpy_names.refused").REASONS.get(full_name(func))
    here = table("eagerflow").get(func.__name__)
    return DTypeError(
        f"{func.__module__}.{func.__name__} does not take tensors"
        + (f": {reason}" if reason else ""),
        hint=(f"{here}; or " if here else "")
        + "np.asarray(x) for the values; gradients do not pass through NumPy",
    )


Operators.__array_ufunc__ = _array_ufunc  # type: ignore[method-assign]
Operators.__array_function__ = _array_function  # type: ignore[method-assign]
