"""float16 and bfloat16 in scalar instructions: conversions of their bits from and to float32."""

from __future__ import annotations

from typing import Any

__all__ = ["NARROWED", "WIDENED"]


def bfloat16_to_float(s: Any, x: Any) -> Any:
    """A float from its upper half."""
    return s.bitcast(s.bitwise_left_shift(s.convert(x, "uint32"), 16), "float32")


def bfloat16_bits(s: Any, x: Any) -> Any:
    """The upper half of a float, rounded to even; the processor's instruction flushes denormals."""
    bits = s.bitcast(x, "uint32")
    odd = s.bitwise_and(s.bitwise_right_shift(bits, 16), 1)
    rounded = s.add(s.add(bits, 0x7FFF), odd)
    quiet = s.bitwise_or(bits, 0x400000)
    return s.convert(
        s.bitwise_right_shift(s.select(s.not_equal(x, x), quiet, rounded), 16), "uint16"
    )


def float16_to_float(s: Any, x: Any) -> Any:
    """A float from half precision: its exponent is adjusted by a product."""
    bits = s.convert(x, "uint32")
    sign = s.bitwise_left_shift(s.bitwise_and(bits, 0x8000), 16)
    shifted = s.bitcast(s.bitwise_left_shift(s.bitwise_and(bits, 0x7FFF), 13), "float32")
    scaled = s.bitcast(s.multiply(shifted, 2.0**112), "uint32")
    # An exponent of all ones means infinity or NaN, and stays so.
    endless = s.greater_equal(s.bitwise_and(bits, 0x7FFF), 0x7C00)
    special = s.bitwise_or(scaled, 0x7F800000)
    return s.bitcast(s.bitwise_or(s.select(endless, special, scaled), sign), "float32")


def float16_bits(s: Any, x: Any) -> Any:
    """The bits of the nearest number of half precision, ties to even."""
    bits = s.bitcast(x, "uint32")
    sign = s.bitwise_and(s.bitwise_right_shift(bits, 16), 0x8000)
    size = s.bitwise_and(bits, 0x7FFFFFFF)
    odd = s.bitwise_and(s.bitwise_right_shift(size, 13), 1)
    normal = s.bitwise_right_shift(s.add(s.add(size, 0xC8000FFF), odd), 13)  # bias 15, not 127
    # Below 2^-14 the sum with 0.5 rounds to multiples of 2^-24, the steps there.
    small = s.subtract(s.bitcast(s.add(s.bitcast(size, "float32"), 0.5), "uint32"), 0x3F000000)
    found = s.select(s.less(size, 0x38800000), small, normal)
    found = s.select(s.greater_equal(size, 0x47800000), 0x7C00, found)
    nan = s.bitwise_or(s.bitwise_and(s.bitwise_right_shift(size, 13), 0x3FF), 0x7E00)
    found = s.select(s.greater(size, 0x7F800000), nan, found)
    return s.convert(s.bitwise_or(found, sign), "uint16")


WIDENED = {"float16": float16_to_float, "bfloat16": bfloat16_to_float}
"""From types in memory to ``function(s, bits)``, which returns the value."""

NARROWED = {"float16": float16_bits, "bfloat16": bfloat16_bits}
"""From types in memory to ``function(s, value)``, which returns the bits of the nearest number."""
