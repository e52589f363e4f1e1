"""Small pictures of arrays: colours for numbers, and PNG files of them inside the page."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np

from eagerflow.notebook.markup import BLUE, MAGENTA, ORANGE, Markup, element

SMALL, LARGE = 128, 256  # pixels of the longer side on the page
_SMALLEST, _LARGEST_CELL = 20, 12  # pixels of a side at least, and of a number at most


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


_POSITIVE, _NEGATIVE, _NOT_FINITE = map(_rgb, (ORANGE, BLUE, MAGENTA))


class Heat(NamedTuple):
    """Colours of numbers, uint8 of shape (rows, columns, 4), and their legend."""

    colours: Any
    legend: str


def heat(values: Any) -> Heat:
    """Colours for real numbers or magnitudes of complex ones, of shape (rows, columns).

    The hue shows the sign, the opacity the magnitude. Numbers that are not finite have a hue of
    their own.
    """
    numbers = np.abs(values) if values.dtype.kind == "c" else values
    numbers = np.asarray(numbers, np.float64)
    finite = np.isfinite(numbers)
    some = numbers[finite]
    low, high = (some.min(), some.max()) if some.size else (0.0, 0.0)
    largest = max(abs(low), abs(high))
    least = min(abs(low), abs(high)) if low * high > 0 else 0.0
    # Numbers with a large offset and small differences would all look the same.
    start = least if least > largest / 2 and least < largest else 0.0
    size = np.zeros_like(numbers)
    if largest > start:
        size[finite] = (np.abs(some) - start) / (largest - start)
    colours = np.empty((*numbers.shape, 4), np.uint8)
    colours[..., :3] = np.where((numbers < 0)[..., None], _NEGATIVE, _POSITIVE)
    colours[..., 3] = np.rint(size * 255)
    colours[~finite] = (*_NOT_FINITE, 255)
    parts = [f"clear: {(-start if high < 0 else start):.3g}"]
    parts += [f"orange: {high:.3g}"] if high > 0 else []
    parts += [f"blue: {low:.3g}"] if low < 0 else []
    parts += [] if finite.all() else ["magenta: not finite"]
    return Heat(colours, ", ".join(parts))


def photograph(values: Any) -> Any:
    """Colours of an image of shape (rows, columns, channels) with 1, 3 or 4 channels.

    Bytes and floats from 0 to 1 are used as they are, other numbers are scaled to their range.
    """
    numbers = np.asarray(values, np.float64)
    finite = np.isfinite(numbers)
    if values.dtype == np.uint8:
        low, high = 0.0, 255.0
    else:
        some = numbers[finite]
        low, high = (some.min(), some.max()) if some.size else (0.0, 1.0)
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
    half = high / 2 - low / 2 or 1.0  # differences of large floats overflow
    scaled = np.where(finite, (numbers / 2 - low / 2) / half, 0.0)
    channels = numbers.shape[-1]
    colours = np.full((*numbers.shape[:2], 4), 255, np.uint8)
    colours[..., : max(channels, 3)] = np.rint(np.clip(scaled, 0.0, 1.0) * 255)
    colours[~finite.all(-1)] = (*_NOT_FINITE, 255)
    return colours


def png(colours: Any) -> bytes:
    """A PNG file of colours, uint8 of shape (rows, columns, 4).

    W3C, Portable Network Graphics Specification (third edition), 2025.
    """
    height, width, _ = colours.shape
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = colours.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    written = [b"\x89PNG\r\n\x1a\n"]
    for kind, content in chunks:
        check = zlib.crc32(kind + content)
        written += struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)
    return b"".join(written)


def image(colours: Any, alt: str, largest: int = LARGE) -> Markup:
    """Colours as an inline picture, with a text alternative."""
    height, width, _ = colours.shape
    cell = min(_LARGEST_CELL, max(1, largest // max(width, height)))
    sides = [max(n * cell, _SMALLEST) for n in (width, height)]
    return element(
        "img",
        src="data:image/png;base64," + base64.b64encode(png(colours)).decode("ascii"),
        alt=alt,
        title=alt,
        width=sides[0],
        height=sides[1],
        style="image-rendering:pixelated;border:1px solid rgba(128,128,128,.5);margin:2px",
    )
