"""Access control: tokens in requests, and TLS certificates of servers."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, EagerflowError, FileFormatError

__all__ = ["Access", "ForbiddenError"]

MIN_TOKEN_LENGTH = 16


class ForbiddenError(EagerflowError, PermissionError):
    """A request does not carry the token that the server requires.

    >>> raise ef.serving.ForbiddenError("the token is missing", hint="Authorization: Bearer TOKEN")
    Traceback (most recent call last):
    ...
    eagerflow.serving.access.ForbiddenError: the token is missing
      try: Authorization: Bearer TOKEN
    """


class Access(NamedTuple):
    """The tokens that requests must carry, and the TLS settings of connections.

    ``tokens`` are texts of 16 letters at least, one of which is expected after ``Bearer`` in the
    header ``Authorization``, or as the password of any user after ``Basic``; with none, any client
    may send requests. ``certificate`` and ``key`` are files in the PEM format, for TLS.

    >>> access = ef.serving.Access(tokens=("a long secret text",))
    >>> access.check("Bearer a long secret text")
    """

    tokens: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None

    def checked(self) -> Access:
        """These settings, validated; ArgumentError or FileFormatError for unusable ones."""
        if not all(isinstance(t, str) and len(t) >= MIN_TOKEN_LENGTH for t in self.tokens):
            raise ArgumentError(
                "a token is too short to be a secret",
                op="serve",
                argument="tokens",
                expected=f"texts of {MIN_TOKEN_LENGTH} letters at least",
                hint="python -c 'import secrets; print(secrets.token_urlsafe(24))'",
            )
        if (self.certificate is None) != (self.key is None):
            raise ArgumentError("a certificate and its key come together", op="serve")
        for path in filter(None, (self.certificate, self.key)):
            if not Path(path).is_file():
                raise FileFormatError("there is no such file", op="serve", argument=str(path))
        return self

    def check(self, header: str | None) -> None:
        """Raise ForbiddenError unless an Authorization header has one of the tokens."""
        if not self.tokens:
            return
        given = _secret(header or "").encode()
        # Compare all tokens in constant time.
        if not sum(hmac.compare_digest(given, token.encode()) for token in self.tokens):
            raise ForbiddenError(
                "the token is missing" if not header else "the token is not valid",
                hint="Authorization: Bearer TOKEN",
            )

    def transport(self) -> dict[str, Any]:
        """The options of a web server for TLS."""
        if self.certificate is None:
            return {}
        return {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}


def _secret(header: str) -> str:
    """The token in a header: the Bearer token, or the password of Basic authentication."""
    kind, _, given = header.partition(" ")
    if kind.lower() == "bearer":
        return given
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def tokens_of(path: Path) -> tuple[str, ...]:
    """The tokens in a file, one a line; blank lines and comments (#) are skipped."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"the tokens cannot be read: {error}", op="serve", argument=str(path)
        ) from None
    found = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not found:
        raise FileFormatError("the file has no tokens", op="serve", argument=str(path))
    return found
