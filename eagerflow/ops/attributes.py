"""Validation of ops' attributes by the type hints in their signatures.

Users' calls are checked by the ops as they run. Graphs also come from files and passes: ``unfit``
finds an attribute that does not match its hint. The names below are hints for constraints beyond
Python's types. An attribute with an unknown hint may be any plain value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.op import Op

__all__ = [
    "HINTS",
    "Axes",
    "Axis",
    "DTypeLike",
    "DeviceName",
    "Index",
    "NumberLike",
    "Numbers",
    "Padding",
    "Size",
    "Sizes",
    "Widths",
    "is_stated",
    "tuple_of",
    "unfit",
]

Axis = Any
Axes = Any
DTypeLike = Any
DeviceName = Any
Index = Any
NumberLike = Any
Numbers = Any
Padding = Any
Size = Any
Sizes = Any
Widths = Any

Test = Callable[[Any], bool]


def _whole(x: Any) -> bool:
    return type(x) is int and -(2**63) <= x <= 2**64


def _truth(x: Any) -> bool:
    return type(x) is bool or (type(x) is int and x in (0, 1))


def _of(*types: type) -> Test:
    return lambda x: type(x) in types


def tuple_of(of: Test) -> Test:
    """The test of a tuple whose elements pass another test."""
    return lambda x: type(x) is tuple and all(of(part) for part in x)


def _any(*tests: Test) -> Test:
    """The test that one of several passes; without a generator, as files may hold long tuples."""
    return reduce(lambda one, other: lambda x: one(x) or other(x), tests)


_none, _text = _of(type(None)), _of(str)
_real = _any(_whole, _of(float, bool))
_number = _any(_real, _of(complex))
_size = _any(_whole, _of(Dim))
_sizes = _any(_size, tuple_of(_size))
_widths = _any(_sizes, tuple_of(_sizes))
_bound = _any(_none, _size)


def _numbers(x: Any) -> bool:
    return _real(x) or (type(x) is tuple and all(_numbers(part) for part in x))


def _slice(x: Any) -> bool:
    return type(x) is slice and _bound(x.start) and _bound(x.stop) and _bound(x.step)


_TENSORS = ("array", "mask")


def _place(x: Any) -> bool:
    """The elements of an index; ``"array"`` and ``"mask"`` are the places of tensors."""
    return _size(x) or _slice(x) or _truth(x) or x is None or x is Ellipsis or x in _TENSORS


HINTS: dict[str, tuple[Test, str]] = {
    "None": (_none, "None"),
    "bool": (_truth, "True or False"),
    "int": (_whole, "an integer of 64 bits"),
    "float": (_real, "a number"),
    "str": (_text, "a text"),
    "tuple[bool, ...]": (tuple_of(_truth), "a tuple of True or False"),
    "Axis": (_any(_none, _whole), "an axis or None"),
    "Axes": (_any(_none, _whole, tuple_of(_whole)), "an axis, a tuple of axes or None"),
    "DTypeLike": (_any(_none, lambda x: isinstance(x, np.dtype)), "a dtype or None"),
    "DeviceName": (_any(_none, _text), "the name of a device or None"),
    "Index": (
        _any(_place, tuple_of(_place)),
        "integers, slices, truth values, None, Ellipsis, 'array' or 'mask' for a tensor, "
        "or a tuple of these",
    ),
    "NumberLike": (_any(_none, _number), "a number or None"),
    "Numbers": (_any(_none, _numbers), "a number, tuples of numbers, or None"),
    "Padding": (_any(_text, _widths), "a text, or sizes, or pairs of sizes"),
    "Size": (_bound, "a size or None"),
    "Sizes": (_any(_none, _sizes), "a size, a tuple of sizes or None"),
    "Widths": (_widths, "a size, sizes, or pairs of sizes"),
}
"""For each hint: the test of a value, and its description. Modules add their own."""
_CHOICES = re.compile(r"Literal\[(.*)\]")


def _parsed(hint: str) -> tuple[Test, str] | None:
    """The test for a type hint, and its description; None for unknown hints."""
    found = HINTS.get(hint)
    if found is not None:
        return found
    if (choices := _CHOICES.fullmatch(hint)) is not None:
        allowed = {choice.strip(" '\"") for choice in choices[1].split(",")}
        return lambda x: type(x) is str and x in allowed, "one of " + ", ".join(sorted(allowed))
    parts = [HINTS.get(part) for part in hint.split(" | ")]
    if len(parts) < 2 or None in parts:
        return None
    known = [part for part in parts if part is not None]
    return _any(*(test for test, _ in known)), " or ".join(words for _, words in known)


@lru_cache(maxsize=1024)
def _tests(op: Op) -> dict[str, tuple[Test, str]]:
    """For each attribute of an op with a known hint: its test, and its description."""
    hints = op.kernel.__annotations__
    found = {name: _parsed(str(hints.get(name, ""))) for name in op.attributes}
    return {name: test for name, test in found.items() if test is not None}


def is_stated(op: Op, name: str) -> bool:
    """Whether an op has a type hint for an attribute.

    >>> from eagerflow.ops.attributes import is_stated
    >>> is_stated(ef.sum.op, "axis")
    True
    """
    return name in _tests(op)


def unfit(op: Op, attributes: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first of an op's attributes that does not match its hint, and the expected values.

    >>> from eagerflow.ops.attributes import unfit
    >>> unfit(ef.sum.op, {"axis": "0", "dtype": None, "keepdims": False})
    ('axis', 'an axis, a tuple of axes or None')
    """
    for name, (test, words) in _tests(op).items():
        if not test(attributes[name]):
            return name, words
    return None
