"""Compressed request bodies: decoded by the header ``content-encoding``, within the limit.

Source: RFC 9110, 8.4.1.
"""

from __future__ import annotations

import zlib

from eagerflow.errors import ArgumentError
from eagerflow.serving.errors import TooLargeError

__all__ = ["decoded"]

_EITHER = 32 + zlib.MAX_WBITS  # zlib's format ("deflate") or gzip's, detected by the header


def decoded(body: bytes, encoding: str | None, most: int) -> bytes:
    """The body, decompressed from ``gzip`` or ``deflate``, of ``most`` bytes at most.

    TooLargeError for a larger body, ArgumentError for an unsupported encoding or corrupt data.

    >>> import zlib
    >>> from eagerflow.serving.protocols.encodings import decoded
    >>> decoded(zlib.compress(b"{}" * 9), "deflate", 18) == b"{}" * 9
    True
    """
    kind = (encoding or "identity").strip().lower()
    if kind == "identity":
        return body
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise ArgumentError(
            "the body has an encoding that is not read",
            argument="content-encoding",
            received=kind[:80],
            expected="gzip or deflate",
        )
    reader = zlib.decompressobj(_EITHER)
    try:
        found = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise _damaged(kind, str(error)) from None
    if len(found) > most:
        raise TooLargeError("the body is too large", expected=f"{most:,} bytes at most")
    if not reader.eof or reader.unused_data:
        raise _damaged(kind, "it is cut off" if not reader.eof else "more comes behind its end")
    return found


def _damaged(kind: str, why: str) -> ArgumentError:
    return ArgumentError(f"the body is no {kind}", argument="content-encoding", received=why[:200])
