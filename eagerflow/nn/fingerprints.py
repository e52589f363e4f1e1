"""Numbers of 64 bits from bytes: FarmHash's Fingerprint64, SipHash-2-4, and how two are joined.

Their results are the same on every machine and in every version, so that models trained on them
stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["farm", "joined", "sip"]

MASK = (1 << 64) - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
JOIN = 0xC6A4A7935BD1E995


def _rotated(x: int, right: int) -> int:
    x &= MASK
    return (x >> right | x << (64 - right)) & MASK


def _mixed(x: int) -> int:
    x &= MASK
    return x ^ (x >> 47)


def _pair(u: int, v: int, factor: int) -> int:
    a = _mixed((u ^ v) * factor)
    return (_mixed((v ^ a) * factor) * factor) & MASK


def farm(text: bytes) -> int:
    """FarmHash's Fingerprint64 of bytes. Source: farmhashna in FarmHash, Google, 2014.

    >>> from eagerflow.nn.fingerprints import farm
    >>> farm(b"") == 0x9AE16A3B2F90404F
    True
    """
    length = len(text)
    if length > 64:
        return _long(text)
    if length > 16:
        return _middle(text)
    factor = K2 + length * 2
    if length >= 8:
        a, b = _word(text, 0) + K2, _word(text, length - 8)
        return _pair(
            _rotated(b, 37) * factor + a & MASK, (_rotated(a, 25) + b) * factor & MASK, factor
        )
    if length >= 4:
        a, b = (int.from_bytes(text[i : i + 4], "little") for i in (0, length - 4))
        return _pair(length + (a << 3), b, factor)
    if length:
        y = text[0] + (text[length >> 1] << 8)
        z = length + (text[-1] << 2)
        return _mixed(y * K2 ^ z * K0) * K2 & MASK
    return K2


def _word(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 8], "little")


def _middle(text: bytes) -> int:
    """From 17 to 64 bytes."""
    length = len(text)
    factor = K2 + length * 2
    a = _word(text, 0) * (K1 if length <= 32 else K2)
    b, c = _word(text, 8), _word(text, length - 8) * factor
    d = _word(text, length - 16) * K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d & MASK
    z = _pair(y, a + _rotated(b + K2, 18) + c & MASK, factor)
    if length <= 32:
        return z
    e, f = _word(text, 16) * factor, _word(text, 24)
    g, h = (y + _word(text, length - 32)) * factor, (z + _word(text, length - 24)) * factor
    return _pair(
        _rotated(e + f, 43) + _rotated(g, 30) + h & MASK, e + _rotated(f + a, 18) + g & MASK, factor
    )


def _long(text: bytes) -> int:
    """More than 64 bytes: blocks of 64, and the last 64 once more."""
    rest = (len(text) - 1) & 63
    x, y = 81, 81 * K1 + 113 & MASK
    z = _mixed(y * K2 + 113) * K2 & MASK
    x = x * K2 + _word(text, 0) & MASK
    v, w = (0, 0), (0, 0)
    for start in range(0, len(text) - 1 - rest, 64):
        x, y, z, v, w = _block(text, start, x, y, z, v, w, K1, 1)
    factor = K1 + ((z & 0xFF) << 1)
    w = w[0] + rest, w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    x, y, z, v, w = _block(text, len(text) - 64, x, y, z, v, w, factor, 9)
    return _pair(
        _pair(v[0], w[0], factor) + _mixed(y) * K0 + z & MASK,
        _pair(v[1], w[1], factor) + x & MASK,
        factor,
    )


def _block(
    text: bytes,
    at: int,
    x: int,
    y: int,
    z: int,
    v: tuple[int, int],
    w: tuple[int, int],
    factor: int,
    weight: int,
) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:
    x = _rotated(x + y + v[0] + _word(text, at + 8), 37) * factor
    y = _rotated(y + v[1] + _word(text, at + 48), 42) * factor
    x = (x ^ w[1] * weight) & MASK
    y = y + v[0] * weight + _word(text, at + 40) & MASK
    z = _rotated(z + w[0], 33) * factor & MASK
    v = _quarter(text, at, v[1] * factor, x + w[0])
    w = _quarter(text, at + 32, z + w[1], y + _word(text, at + 16))
    return z, y, x, v, w


def _quarter(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    first, second, third, fourth = (_word(text, at + i) for i in (0, 8, 16, 24))
    a += first
    b = _rotated(b + a + fourth, 21)
    whole = a + second + third
    return whole + fourth & MASK, b + _rotated(whole, 44) + a & MASK


def sip(text: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 of bytes with a key of two words. Source: Aumasson and Bernstein, 2012.

    >>> from eagerflow.nn.fingerprints import sip
    >>> hex(sip(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)))
    '0xa129ca6149be45e5'
    """
    low, high = (word & MASK for word in key)
    a, b = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D
    c, d = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573
    for word in _words(text):
        d ^= word
        for _ in range(2):
            a, b, c, d = _round(a, b, c, d)
        a ^= word
    c ^= 0xFF
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


def _words(text: bytes) -> Iterator[int]:
    whole = len(text) & ~7
    for at in range(0, whole, 8):
        yield _word(text, at)
    yield int.from_bytes(text[whole:], "little") | (len(text) & 0xFF) << 56


def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a, c = a + b & MASK, c + d & MASK
    b, d = _rotated(b, 51) ^ a, _rotated(d, 48) ^ c
    a, c = _rotated(a, 32) + d & MASK, c + b & MASK
    b, d = _rotated(b, 47) ^ c, _rotated(d, 43) ^ a
    return a, b, _rotated(c, 32), d


def joined(a: int, b: int) -> int:
    """One number of 64 bits from two, as TensorFlow joins the fingerprints of crossed features."""
    found = a ^ JOIN
    found ^= _mixed(b * JOIN) * JOIN & MASK
    return _mixed(_mixed(found * JOIN) * JOIN)
