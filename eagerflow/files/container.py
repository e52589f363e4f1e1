"""The safetensors format: named arrays and short texts in one file, without executable contents.

Eight bytes with the length of the header, the header, which is JSON, and the bytes of the arrays.
The header has the dtype, shape and offsets of each array. Files are parsed here rather than by the
library, since headers are checked against the size of the file before memory is allocated, and
since bfloat16 and float8 are among our dtypes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from math import isfinite, prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import EagerflowError, FileFormatError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.spec import as_shape

MAX_HEADER = 100_000_000  # bytes; the library sets the same limit
MAX_ARRAYS = 50_000
MAX_TEXTS = 64
_MAX_WIDE_HEADER = 12_000_000  # characters, which may take four bytes each

_CODES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
_DTYPES = {code: as_dtype(name) for code, name in _CODES.items()}
_CODE_OF = {dtype: code for code, dtype in _DTYPES.items()}
_COMPLEX128 = as_dtype("complex128")  # missing in the format: stored as pairs of float64

# Possessive quantifiers, so that no text causes backtracking.
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"')
_PLAIN_STRING = re.compile(r'"[ !#-\[\]-~]*+(?:\\["\\n][ !#-\[\]-~]*+)*+"')
_BLANK = re.compile(r"[ \t\r\n]*+")
_ENTRY = re.compile(r"\{[^{}]{0,4000}\}")
_ENTRY_FIELDS = ("dtype", "shape", "data_offsets")  # of each tensor

_BEGINNINGS = {
    b"PK": "a zip archive, as .npz, .keras and .pt files are",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"\x89HDF": "HDF5, as .h5 files are",
    b"\x93NUMPY": "a NumPy array, as .npy files are",
    b"\x1f\x8b": "gzip",
    b"GGUF": "GGUF",
    b"{": "JSON",
}


class Place(NamedTuple):
    """The offset of an array in a file, counted from the end of the header, its dtype and shape."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int


class Container(NamedTuple):
    """The contents of a header: texts, and the places of the arrays."""

    texts: dict[str, str]
    places: dict[str, Place]
    begin: int  # of the arrays, in the file


def fail(problem: str, **more: Any) -> NoReturn:
    """Raise FileFormatError."""
    raise FileFormatError(problem, **more)


# Writing -----------------------------------------------------------------------------------------


def pack(texts: Mapping[str, str], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[Any]:
    """The pieces of a file with these texts and arrays: the header, and each array's bytes.

    The same contents give the same bytes: large items come first, so that all are aligned, and
    those of one size in the order of their names. FileFormatError beyond the limits of the format.
    """
    if len(arrays) > MAX_ARRAYS:
        fail(
            "the graph has too many tensors for one file",
            received=f"{len(arrays):,}",
            expected=f"at most {MAX_ARRAYS:,} Variables and constants",
        )
    order = sorted(arrays, key=lambda name: (-_item(arrays[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": {name: texts[name] for name in sorted(texts)}}
    start = 0
    for name in order:
        array = arrays[name]
        shape = [*array.shape, 2] if array.dtype == _COMPLEX128 else [*array.shape]
        dtype = as_dtype("float64") if array.dtype == _COMPLEX128 else array.dtype
        stop = start + array.nbytes
        entry = _CODE_OF[dtype], shape, [start, stop]
        header[name] = dict(zip(_ENTRY_FIELDS, entry, strict=True))
        start = stop
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    if len(words) > MAX_HEADER:
        fail(
            "the graph is too large for one file",
            received=f"a header of {len(words):,} bytes",
            expected=f"at most {MAX_HEADER:,} bytes",
        )
    yield len(words).to_bytes(8, "little") + words
    for name in order:
        array = np.ascontiguousarray(arrays[name]).reshape(-1)
        if sys.byteorder == "big":
            array = array.byteswap()
        yield array.view(np.uint8)


def _item(dtype: DType) -> int:
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


# Reading -----------------------------------------------------------------------------------------


def parse(size: int, read: Callable[[int, int], bytes | bytearray]) -> Container:
    """Parse the header of a file of ``size`` bytes; ``read(start, count)`` returns its bytes.

    Raises FileFormatError unless the arrays fill the file after the header without gaps.
    """
    start = read(0, min(8, size))
    length = int.from_bytes(start, "little")
    if size < 8 or length > min(size - 8, MAX_HEADER):
        _refuse_start(size, start, length)
    words = read(8, length)
    if not words.isascii() and length > _MAX_WIDE_HEADER:
        fail("the header is too large for one with letters beyond ASCII")
    try:
        text = words.decode()
    except raised_here(UnicodeDecodeError) as error:
        fail(f"the header is not UTF-8: {error.reason} at byte {error.start}")
    del words
    texts, places = _Header(text).parse()
    _check_layout(places, size - 8 - length)
    return Container(texts, places, 8 + length)


def _refuse_start(size: int, start: bytes | bytearray, length: int) -> NoReturn:
    known = next((what for mark, what in _BEGINNINGS.items() if start.startswith(mark)), None)
    if known is not None:
        fail(
            f"this is no saved graph or model: it begins like {known}",
            expected="a file that graph.save or model.save wrote",
        )
    if size < 8:
        fail(
            f"the file ends after {size} bytes",
            expected="a file that graph.save or model.save wrote",
        )
    fail(
        "the file is no safetensors file, or it is cut off",
        received=f"{size:,} bytes, of which the header is said to take {length:,}",
        expected=f"a header of at most {MAX_HEADER:,} bytes within the file",
    )


class _Header:
    """A parser of the one form of headers, which has no arbitrary nesting."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def parse(self) -> tuple[dict[str, str], dict[str, Place]]:
        texts: dict[str, str] = {}
        places: dict[str, Place] = {}
        for name in self._keys("the header has"):
            if name == "__metadata__":
                texts = self._texts()
                continue
            if len(places) == MAX_ARRAYS:
                fail(f"the file has more than {MAX_ARRAYS:,} tensors")
            places[name] = self._place(name)
        self._blank()
        if self.at < len(self.text):
            self._fail("the end of the header")
        return texts, places

    def _texts(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        for name in self._keys("the metadata have"):
            if len(texts) == MAX_TEXTS:
                fail(f"the metadata have more than {MAX_TEXTS} entries")
            texts[name] = self._string(_PLAIN_STRING if name == "graph" else _STRING)
        return texts

    def _keys(self, owner: str) -> Iterator[str]:
        """The keys of an object; the caller reads a key's value before it requests the next key."""
        known: set[str] = set()
        self._skip("{")
        if self._peek() == "}":
            self.at += 1
            return
        while True:
            name = self._string(_STRING)
            self._skip(":")
            if name in known:
                fail(f"{owner} {short_repr(name)} twice")
            known.add(name)
            yield name
            if self._peek() != ",":
                break
            self.at += 1
        self._skip("}")

    def _place(self, name: str) -> Place:
        self._blank()
        match = _ENTRY.match(self.text, self.at)
        if match is None:
            self._fail("a tensor's dtype, shape and data_offsets")
        self.at = match.end()
        try:
            found = loads(match[0])
        except raised_here(ValueError, RecursionError) as error:
            fail(f"the entry of tensor {short_repr(name)} is not JSON: {short_repr(error)}")
        if found.keys() != set(_ENTRY_FIELDS):
            fail(
                f"the entry of tensor {short_repr(name)} has other keys than it should",
                received=", ".join([short_repr(x) for x in found]),
                expected=", ".join(_ENTRY_FIELDS),
            )
        return _checked_place(name, found)

    def _string(self, form: re.Pattern[str]) -> str:
        self._blank()
        match = form.match(self.text, self.at)
        if match is None:
            self._fail("a text" if form is _STRING else "a text as graph.save writes it")
        self.at = match.end()
        # It decodes a text within a larger one without copying that.
        text: str = scanstring(self.text, match.start() + 1)[0]
        return text

    def _blank(self) -> None:
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # may be empty

    def _peek(self) -> str:
        self._blank()
        return self.text[self.at : self.at + 1]

    def _skip(self, sign: str) -> None:
        if self._peek() != sign:
            self._fail(repr(sign))
        self.at += 1

    def _fail(self, expected: str) -> NoReturn:
        fail(
            f"the header is damaged at letter {self.at}",
            received=short_repr(self.text[self.at : self.at + 30]),
            expected=expected,
        )


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; ValueError for a duplicate key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key")
    return found


def finite(digits: str) -> float:
    """A JSON number as a float; ValueError if it overflows."""
    found = float(digits)
    if not isfinite(found):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return found


loads = json.JSONDecoder(object_pairs_hook=unique, parse_float=finite, parse_constant=finite).decode
"""Parse JSON with finite numbers only; ValueError or RecursionError for invalid text."""


def _checked_place(name: str, found: dict[str, Any]) -> Place:
    code, sizes, ends = (found[field] for field in _ENTRY_FIELDS)
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        fail(
            f"tensor {short_repr(name)} has the dtype {short_repr(code)}",
            expected="one of " + ", ".join(_DTYPES),
        )
    if not _counts(sizes) or not _counts(ends) or len(ends) != 2:
        fail(f"tensor {short_repr(name)} has sizes or offsets that are none")
    try:
        shape: Any = as_shape(sizes)
    except raised_here(EagerflowError) as error:
        fail(f"tensor {short_repr(name)}: {error.problem}")
    start, stop = ends
    size = prod(shape) * dtype.itemsize
    if stop - start != size:
        fail(
            f"tensor {short_repr(name)} does not fit its place in the file",
            received=f"{stop - start:,} bytes from {start:,} to {stop:,}",
            expected=f"{size:,} bytes for {dtype.name}{list(shape)}",
        )
    return Place(dtype, shape, start, stop)


def _counts(found: Any) -> bool:
    return isinstance(found, list) and all(type(x) is int and 0 <= x < 2**63 for x in found)


def _check_layout(places: Mapping[str, Place], size: int) -> None:
    """Check that tensors are consecutive from the header's end to the end of the file."""
    at = 0
    for name, place in sorted(places.items(), key=lambda item: item[1][2:]):
        if place.start != at:
            fail(
                f"tensor {short_repr(name)} does not begin where the one before it ends",
                received=f"byte {place.start:,}",
                expected=f"byte {at:,}",
            )
        at = place.stop
    if at != size:
        fail(
            "the file is cut off" if at > size else "there is something after the last tensor",
            received=f"{size:,} bytes after the header",
            expected=f"{at:,} bytes",
        )


def as_array(place: Place, dtype: DType) -> np.ndarray[Any, Any]:
    """Memory for an array of a file with this dtype; FileFormatError if they do not match."""
    return np.empty(shape_as(place, dtype), dtype)


def shape_as(place: Place, dtype: DType) -> tuple[int, ...]:
    """The shape of an array of a file for this dtype; FileFormatError if they do not match."""
    whole = place.shape
    if dtype == _COMPLEX128 and place.dtype.name == "float64" and whole[-1:] == (2,):
        return whole[:-1]
    if dtype != place.dtype:
        fail("a tensor has another dtype than the graph says", received=place.dtype.name)
    return whole


def finished(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that was read, converted to native byte order, with valid booleans."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        fail("a tensor of truth values holds other bytes than 0 and 1")
    return array.byteswap() if sys.byteorder == "big" else array


def concatenated(parts: Iterable[Any]) -> bytes:
    """The pieces of a file, joined."""
    return b"".join(bytes(part) for part in parts)
