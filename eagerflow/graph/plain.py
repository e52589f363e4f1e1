"""Plain values, sizes and nests as JSON, and back: the data of saved graphs besides tensors.

===================  ==================================================
Python               JSON
===================  ==================================================
None, bool, int,     the same; an int is no float, so ``2`` and ``2.0``
str, float           are two values
inf, -inf, nan       ``{"float": "inf"}``
complex              ``{"complex": [1.0, 2.0]}``
tuple                ``[...]``
slice, Ellipsis      ``{"slice": [1, null, 2]}``, ``{"ellipsis": true}``
dtype                ``{"dtype": "float32"}``
ef.Dim               ``{"dim": [[3, "batch"], [1]]}`` for ``3*batch + 1``
quotients in a Dim   ``{"quotient": [7, {"dim": ...}]}`` beside names
Graph                ``{"graph": 0}``, its number in the file
===================  ==================================================
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import as_dtype
from eagerflow.errors import short_repr
from eagerflow.fields import fields_of
from eagerflow.files.container import fail
from eagerflow.graph.graph import Graph
from eagerflow.masks import MASKED_KEYS, Masked
from eagerflow.op import MAX_DEPTH
from eagerflow.spec import MAX_RANK
from eagerflow.tree import Structure

MAX_BITS = 1024  # of an integer: no float is larger
MAX_TERMS = 256  # of a multiplied size, to bound the work

Number = Callable[[Graph], int]
Find = Callable[[int], Graph]


# Writing -----------------------------------------------------------------------------------------


def encode_plain(value: Any, number: Number, depth: int = 0) -> Any:
    """A plain value as JSON data; ``number`` gives the index of a graph in the file.

    Raises FileFormatError for values that are not plain.
    """
    cls = type(value)
    if cls is str or cls is bool or value is None:
        return value
    if cls is int:
        if value.bit_length() > MAX_BITS:
            fail(f"the integer {short_repr(value)} is too large to be saved")
        return value
    if cls is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if depth > MAX_DEPTH:
        fail("values nested this deeply cannot be saved", expected=f"at most {MAX_DEPTH} levels")
    if cls is tuple:
        _bounded_terms(value)
        return [encode_plain(item, number, depth + 1) for item in value]
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if cls is slice:
        ends = (value.start, value.stop, value.step)
        return {"slice": [encode_plain(end, number, depth + 1) for end in ends]}
    if cls is Dim:
        return _encode_dim(value)
    if value is Ellipsis:
        return {"ellipsis": True}
    if cls is complex:
        return {"complex": [encode_plain(x, number) for x in (value.real, value.imag)]}
    if isinstance(value, Graph):
        return {"graph": number(value)}
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, complex):
        return encode_plain(value.item(), number, depth)
    if hasattr(cls, "not_saved"):  # a class with a reason of its own
        fail(cls.not_saved, hint=cls.hint)
    fail(
        f"a {cls.__name__} cannot be saved in a graph",
        received=short_repr(value),
        expected="numbers, texts, dtypes, None, slices, sizes, or tuples of these",
    )


def _encode_dim(dim: Any, depth: int = 0) -> Any:
    if not isinstance(dim, Dim):
        return dim
    if depth > MAX_DEPTH:
        fail("a size is divided too often to be saved", expected=f"at most {MAX_DEPTH} times")
    terms = []
    for atoms, factor in dim._terms.items():
        found: list[Any] = [factor]
        for atom in atoms:
            ends = dim._quotients.get(atom)
            if ends is None:
                found.append(atom)
            else:
                found.append({"quotient": [_encode_dim(end, depth + 1) for end in ends]})
        terms.append(found)
    return {"dim": terms}


def encode_shape(shape: tuple[Any, ...]) -> list[Any]:
    """A shape as JSON data."""
    _bounded_terms(shape)
    return [_encode_dim(size) for size in shape]


def _bounded_terms(shape: Any) -> None:
    terms = 1
    for size in shape:
        if isinstance(size, Dim):
            terms *= len(size._terms)
    if terms > MAX_TERMS:
        fail(
            "the sizes of a shape are too complicated to be saved",
            received=short_repr(shape),
            expected=f"at most {MAX_TERMS} terms when they are multiplied",
        )


def encode_structure(structure: Structure | None, number: Number, depth: int = 0) -> Any:
    """A nest as JSON data: null for none, ``"*"`` for a leaf.

    Objects of classes made from tuples, lists and dicts, such as named tuples, become plain ones,
    and those of dataclasses dicts, since classes are code; other classes raise FileFormatError.
    """
    if structure is None:
        return None
    cls: Any = structure.container
    if cls is None:
        return "*"
    if depth > MAX_DEPTH:
        fail("a nest so deep cannot be saved", expected=f"at most {MAX_DEPTH} levels")
    children = [encode_structure(child, number, depth + 1) for child in structure.children]
    if issubclass(cls, tuple):
        return {"masked" if cls is Masked else "tuple": children}
    if issubclass(cls, list):
        return {"list": children}
    if issubclass(cls, dict) or fields_of(cls):
        kind = "OrderedDict" if cls is OrderedDict else "dict"
        keys = [_encode_key(key, number) for key in structure.keys]
        return {kind: [list(pair) for pair in zip(keys, children, strict=True)]}
    fail(
        f"a {cls.__name__} among the arguments or results of a graph cannot be saved",
        expected="tuples, lists, dicts, named tuples and dataclasses",
    )


def _encode_key(key: Any, number: Number) -> Any:
    if not _is_key(key):
        fail(
            f"a dict with the key {short_repr(key)} cannot be saved",
            expected="texts, integers, flags, None, or tuples of these",
        )
    return encode_plain(key, number)


def _is_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(_is_key(x) for x in key)
    return key is None or type(key) in (str, int, bool) or (type(key) is float and key == key)


# Reading -----------------------------------------------------------------------------------------


def decode_plain(data: Any, find: Find, depth: int = 0) -> Any:
    """The value of JSON data; FileFormatError if there is none."""
    cls = type(data)
    if cls is str or cls is bool or data is None or cls is float:
        return data
    if cls is int:
        if data.bit_length() > MAX_BITS:
            fail("an integer is too large", expected=f"at most {MAX_BITS} bits")
        return data
    if depth > MAX_DEPTH:
        fail("the values are nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    if cls is list:
        found = tuple([decode_plain(item, find, depth + 1) for item in data])
        _bounded_terms(found)
        return found
    kind, inner = _only(data)
    if kind == "dtype" and type(inner) is str:
        return as_dtype(inner)
    if kind == "slice" and _is_list(inner, 3):
        return slice(*(decode_plain(end, find, depth + 1) for end in inner))
    if kind == "dim":
        return _decode_dim(data)
    if kind == "ellipsis" and inner is True:
        return Ellipsis
    if kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind == "complex" and _is_list(inner, 2):
        parts = [decode_plain(part, find, depth + 1) for part in inner]
        if all(type(part) is float for part in parts):
            return complex(*parts)
    if kind == "graph" and type(inner) is int:
        return find(inner)
    fail(f"{short_repr(data)} stands for no value")


def _only(data: Any) -> tuple[str, Any]:
    """Key and value of a dict with one item."""
    if type(data) is not dict or len(data) != 1:
        fail(f"{short_repr(data)} stands for no value")
    ((kind, inner),) = data.items()
    return kind, inner


def _is_list(data: Any, count: int) -> bool:
    return type(data) is list and len(data) == count


def _decode_dim(data: Any, depth: int = 0) -> Any:
    if type(data) is int and data.bit_length() <= 64:
        return data
    kind, terms = _only(data)
    if depth > MAX_DEPTH or kind != "dim" or type(terms) is not list or len(terms) > MAX_TERMS:
        fail(f"{short_repr(data)} stands for no size")
    total: Any = 0
    for term in terms:
        if type(term) is not list or not 0 < len(term) <= MAX_DEPTH or type(term[0]) is not int:
            fail(f"{short_repr(term)} is no part of a size")
        product: Any = _decode_dim(term[0], depth)
        for atom in term[1:]:
            product = product * _decode_atom(atom, depth)
        total = total + product
    return total


def _decode_atom(atom: Any, depth: int) -> Any:
    if type(atom) is str:
        return Dim(atom)
    kind, ends = _only(atom)
    if kind != "quotient" or not _is_list(ends, 2):
        fail(f"{short_repr(atom)} is no part of a size")
    upper, lower = (_decode_dim(end, depth + 1) for end in ends)
    if not isinstance(upper, Dim) and not isinstance(lower, Dim):
        fail("a quotient of sizes has no size in it")
    found = upper // lower
    if isinstance(found, Dim) and len(found._terms) > 1:
        fail("a quotient of sizes is none")
    return found


def decode_shape(data: Any) -> tuple[Any, ...]:
    """The shape of JSON data."""
    if type(data) is not list or len(data) > MAX_RANK:
        fail(f"{short_repr(data)} stands for no shape", expected=f"at most {MAX_RANK} sizes")
    shape = tuple([_decode_dim(size) for size in data])
    _bounded_terms(shape)
    return shape


_LEAF = Structure(None, (), ())
_KINDS: Mapping[str, type] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "OrderedDict": OrderedDict,
    "masked": Masked,
}


def decode_structure(data: Any, find: Find, depth: int = 0) -> Structure | None:
    """The nest of JSON data."""
    if data is None and depth == 0:
        return None
    if data == "*":
        return _LEAF
    kind, items = _only(data)
    cls = _KINDS.get(kind)
    if cls is None or type(items) is not list or depth > MAX_DEPTH:
        fail(f"{short_repr(data)} stands for no nest of arguments or results")
    keys: tuple[Any, ...] = ()
    if issubclass(cls, dict):
        if not all(_is_list(pair, 2) for pair in items):
            fail(f"{short_repr(data)} stands for no dict")
        keys = tuple([decode_plain(key, find) for key, _ in items])
        if not all(_is_key(x) for x in keys) or len(set(keys)) < len(keys):
            fail("a dict among the arguments or results has keys that are none, or twice the same")
        items = [item for _, item in items]
    if cls is Masked:
        if items != ["*", "*"]:
            fail(f"{short_repr(data)} stands for no tensor with its mask")
        keys = MASKED_KEYS
    children = [decode_structure(item, find, depth + 1) for item in items]
    return Structure(cls, keys, tuple(child for child in children if child is not None))
