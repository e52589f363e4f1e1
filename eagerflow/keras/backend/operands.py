"""Conversion of operands by Keras's rules, and wrappers of our functions with its signatures.

Keras compares its signatures with the backend's, so functions of the backend have no type hints.
All rules about dtypes are here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras.src.backend import config
from keras.src.backend.common.dtypes import result_type

import eagerflow as ef
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import Rule, also_sparse

__all__ = [
    "axes_of",
    "binary",
    "floating",
    "is_integral",
    "joined",
    "promoted",
    "sizes_of",
    "summed_dtype",
    "unary",
]

_NUMBERS = frozenset((bool, int, float, complex))
_SUMMED = {
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "uint8": "uint32",
    "uint16": "uint32",
}


@functools.lru_cache(4096)
def _joined(floatx: str, *dtypes: Any) -> str:
    named = {dtype for dtype in dtypes if isinstance(dtype, str)}
    # Keras's rules are those of JAX without 64 bits; if all operands have 64 bits, they keep them.
    wide = len(named) == 1 and named <= {"float64", "complex128"} and complex not in dtypes
    found: str = named.pop() if wide else result_type(*dtypes)
    return found


def joined(*dtypes: Any) -> str:
    """The common dtype of names of dtypes, or of Python's types for numbers."""
    return _joined(config.floatx(), *dtypes)


def is_integral(x: ef.Tensor) -> bool:
    """Whether the dtype is integer or bool."""
    name = x.dtype.name
    return "int" in name or name == "bool"


def summed_dtype(x: ef.Tensor) -> str:
    """The dtype of sums and products: small integers become 32-bit integers."""
    name: str = x.dtype.name
    return _SUMMED.get(name, name)


def floating(x: Any) -> ef.Tensor:
    """A tensor; integers and bools become floats of Keras's default dtype."""
    x = convert_to_tensor(x)
    return cast(x, config.floatx()) if is_integral(x) else x


def _counted(x: Any) -> ef.Tensor:
    """A tensor; bools become integers."""
    x = convert_to_tensor(x)
    return cast(x, "int32") if x.dtype.name == "bool" else x


def promoted(*values: Any, also: tuple[Any, ...] = ()) -> list[Any]:
    """Tensors in the common dtype of all, and of ``also``.

    A Python number does not change the common dtype if possible, and stays a number beside a
    tensor.
    """
    given = [v if type(v) in _NUMBERS else convert_to_tensor(v) for v in values]
    kinds = [type(v) if type(v) in _NUMBERS else v.dtype.name for v in given]
    dtype = joined(*kinds, *also)
    if all(type(v) in _NUMBERS for v in given):
        return [convert_to_tensor(v, dtype) for v in given]
    return [v if type(v) in _NUMBERS else cast(v, dtype) for v in given]


def axes_of(axis: Any) -> Any:
    """An axis, a tuple of them or None."""
    return tuple(axis) if isinstance(axis, list) else axis


def _is_bool(x: Any) -> bool:
    return type(x) is bool or getattr(x, "dtype", None) == "bool"


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Sizes as integers or free dimensions; values of tensors are read."""
    sizes = shape if isinstance(shape, list | tuple) else (shape,)
    return tuple(int(n) if hasattr(n, "dtype") else n for n in sizes)


_READY: dict[str, Callable[[Any], ef.Tensor]] = {
    "floats": floating,
    "numbers": _counted,
    "all": convert_to_tensor,
}


def unary(name: str, kind: str, rule: Rule | None = None) -> Callable[..., Any]:
    """A function of one tensor: ``ef.<name>`` for ``"floats"``, ``"numbers"`` or ``"all"``.

    ``rule`` handles sparse tensors, which are densified without it.
    """
    ready = _READY[kind]

    def function(x):  # type: ignore[no-untyped-def]
        return getattr(ef, name)(ready(x))

    return function if rule is None else also_sparse(rule)(function)


def binary(
    name: str,
    *also: Any,
    bools: str | None = None,
    names: str = "x1 x2",
    rule: Rule | None = None,
) -> Callable[..., Any]:
    """A function of two tensors: ``ef.<name>`` in their common dtype, with ``also``.

    ``bools`` is the function for two bools, or ``"int32"`` to convert them; ``names`` are Keras's
    argument names, and ``rule`` is as for ``unary``.
    """

    def computed(x1: Any, x2: Any) -> Any:
        x1, x2 = promoted(x1, x2, also=also)
        if bools is None or not (_is_bool(x1) and _is_bool(x2)):
            return getattr(ef, name)(x1, x2)
        if bools == "int32":
            return getattr(ef, name)(cast(x1, "int32"), cast(x2, "int32"))
        return getattr(ef, bools)(x1, x2)

    if names == "x y":

        def function(x, y):  # type: ignore[no-untyped-def]
            return computed(x, y)

    else:

        def function(x1, x2):  # type: ignore[no-untyped-def]
            return computed(x1, x2)

    return function if rule is None else also_sparse(rule)(function)
