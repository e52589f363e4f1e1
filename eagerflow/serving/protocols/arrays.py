"""NumPy's file formats as requests and responses: ``.npy`` for one array, ``.npz`` for several.

Source: NumPy's specification of the format (``numpy.lib.format``), and ZIP. Nothing is unpickled,
and no more is decompressed than the sizes in the headers, which are checked against the limit
first.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy

from eagerflow.errors import ArgumentError, DTypeError
from eagerflow.serving.errors import TooLargeError
from eagerflow.serving.protocols import inference
from eagerflow.serving.signature import Signature

__all__ = ["NPY", "NPZ", "form_of", "request", "wanted_form", "write"]

NPY = "application/x-npy"
NPZ = "application/x-npz"
MAX_HEADER = 10_000
MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([^']{1,40})',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(((?:\d{1,18} ?, ?){0,100}(?:\d{1,18})?)\),?\s*\}\s*"
)
_NUMBERS = re.compile(rb"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16)")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,  # another compression
    RuntimeError,  # encrypted
    ValueError,
)


def form_of(content_type: str | None) -> str | None:
    """The format named by a Content-Type header; None for others."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind if kind in (NPY, NPZ) else None


def wanted_form(accept: str | None, given: str | None, count: int) -> str | None:
    """The format of a response of ``count`` arrays; None for JSON.

    It is the first of those in the Accept header, else, for a request in one of them, the one that
    fits. ArgumentError for several arrays where only ``.npy`` is accepted.

    >>> from eagerflow.serving.protocols.arrays import NPY, wanted_form
    >>> wanted_form("application/x-npz", None, 1), wanted_form("*/*", NPY, 2)
    ('application/x-npz', 'application/x-npz')
    """
    for part in (accept or "").split(","):
        form = form_of(part)
        if form == NPY and count != 1:
            raise ArgumentError(
                f"{count} outputs are not one array",
                argument="accept",
                expected=NPZ,
                hint="?outputs=NAME asks for one of them",
            )
        if form is not None:
            return form
        if part.partition(";")[0].strip().lower() == "application/json":
            return None
    return None if given is None else NPY if count == 1 else NPZ


def request(
    body: bytes, form: str, signature: Signature, query: Mapping[str, str], most: int
) -> inference.Request:
    """Parse a body in one of the formats; ``outputs`` in the query are names, separated by commas.

    ``most`` limits the bytes of the decompressed arrays. Raises ArgumentError, DTypeError or
    TooLargeError.
    """
    if form == NPY:
        name = signature.only_input()
        inputs = {name: _array(body, name)}
    else:
        inputs = _arrays(body, most, len(signature.inputs))
    outputs = [name for name in query.get("outputs", "").split(",") if name] or None
    parameters: dict[str, Any] = {}
    if "signature_name" in query:
        parameters["signature_name"] = query["signature_name"]
    return inference.Request(inputs, outputs, frozenset(), None, parameters)


def _array(data: bytes, name: str) -> Any:
    """The array in a ``.npy``; ArgumentError or DTypeError for other bytes."""
    # NumPy's own reader evaluates headers as Python literals; here only one form is accepted.
    size = {b"\x01\x00": 2, b"\x02\x00": 4}.get(data[6:8], 0) if data[:6] == MAGIC else 0
    begin = 8 + size
    end = begin + int.from_bytes(data[8:begin], "little")
    found = _HEADER.fullmatch(data[begin:end]) if size and end - begin <= MAX_HEADER else None
    if found is None:
        raise ArgumentError(
            "this is not an array in NumPy's format, version 1 or 2",
            argument=name[:80],
            received=repr(data[:60]),
        )
    kind, by_columns, shape = found.groups()
    if not _NUMBERS.fullmatch(kind):
        raise DTypeError(
            f"arrays of {kind.decode('ascii', 'replace')[:40]!r} are not taken",
            argument=name[:80],
            expected="numbers; nothing is unpickled",
        )
    dtype = np.dtype(kind.decode())
    sizes = inference.shape_of([int(n) for n in shape.split(b",") if n.strip()], name)
    order = sizes[::-1] if by_columns == b"True" else sizes
    array = inference.array_of_bytes(memoryview(data)[end:], dtype.newbyteorder("="), order, name)
    if kind[:1] == b">":  # array_of_bytes takes them as little-endian
        array = array.byteswap()
    return array.T if by_columns == b"True" else array


def _arrays(data: bytes, most: int, count: int) -> dict[str, Any]:
    """The arrays in a ``.npz`` by name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            names = [part.filename.removesuffix(".npy") for part in parts]
            if len(parts) > count or len(set(names)) < len(names):
                raise ArgumentError(
                    f"the archive holds {len(parts)} arrays, or one of them twice",
                    expected=f"{count} with the names of the inputs",
                )
            size = sum(part.file_size for part in parts)
            if size > most:
                raise TooLargeError(
                    "the arrays are too large when they are decompressed",
                    received=f"{size:,} bytes",
                    expected=f"{most:,} bytes at most",
                )
            found = {}
            for name, part in zip(names, parts, strict=True):
                with archive.open(part) as file:  # a bare read() would decompress all of it
                    found[name] = _array(file.read(part.file_size), name)
            return found
    except (ArgumentError, DTypeError, TooLargeError):
        raise
    except _DAMAGED as error:
        raise ArgumentError(f"this is not an .npz file: {str(error)[:200]}") from None


def write(outputs: Mapping[str, Any], form: str) -> bytes:
    """Arrays in one of the formats; floats that NumPy lacks become float32."""
    file = io.BytesIO()
    if form == NPY:
        (array,) = outputs.values()
        _write(file, array)
        return file.getvalue()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in outputs.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as part:
                _write(part, array)
    return file.getvalue()


def _write(file: Any, array: Any) -> None:
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float32)
    npy.write_array(file, array, allow_pickle=False)
