"""The errors of a server, each with its HTTP status."""

from __future__ import annotations

from eagerflow.errors import EagerflowError, MissingExtraError, OutOfMemoryError
from eagerflow.serving.access import ForbiddenError

__all__ = [
    "BusyError",
    "CrashedError",
    "LateError",
    "TooLargeError",
    "UnavailableError",
    "UnknownModelError",
    "UnknownSequenceError",
    "status_of",
]


class UnknownModelError(EagerflowError, LookupError):
    """The requested model, version or label does not exist.

    >>> raise ef.serving.UnknownModelError("there is no model 'digit'", expected="one of digits")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.UnknownModelError: there is no model 'digit'
      expected: one of digits
    """


class UnknownSequenceError(EagerflowError, LookupError):
    """The requested sequence does not exist: it was never begun, or has ended.

    >>> raise ef.serving.UnknownSequenceError("the sequence 7 has ended", received="it was idle")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.UnknownSequenceError: the sequence 7 has ended
      received: it was idle
    """


class UnavailableError(EagerflowError, RuntimeError):
    """The model or version is known, but cannot answer now: it is loading, broken or leaving.

    >>> raise ef.serving.UnavailableError("version 3 of 'digits' is loading")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.UnavailableError: version 3 of 'digits' is loading
    """


class BusyError(EagerflowError, RuntimeError):
    """The queue of a model is full; the request was not begun and may be sent again.

    >>> raise ef.serving.BusyError("the queue of 'digits' is full", received="256 requests")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.BusyError: the queue of 'digits' is full
      received: 256 requests
    """


class CrashedError(EagerflowError, RuntimeError):
    """The process that computed a request, or loaded a version, crashed repeatedly.

    >>> raise ef.serving.CrashedError("the process that computed the request ended")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.CrashedError: the process that computed the request ended
    """


class LateError(EagerflowError, TimeoutError):
    """A request's deadline passed before it was begun, so it was not computed.

    >>> raise ef.serving.LateError("the deadline of 20 ms has passed")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.LateError: the deadline of 20 ms has passed
    """


class TooLargeError(EagerflowError, ValueError):
    """A request is larger than the server's limits allow.

    >>> raise ef.serving.TooLargeError("the body is too large", expected="64 MiB at most")
    Traceback (most recent call last):
    ...
    eagerflow.serving.errors.TooLargeError: the body is too large
      expected: 64 MiB at most
    """


_STATUS = (
    (ForbiddenError, 401),
    ((UnknownModelError, UnknownSequenceError), 404),
    (TooLargeError, 413),
    (BusyError, 429),
    (UnavailableError, 503),
    (LateError, 504),
    (OutOfMemoryError, 507),
    (CrashedError, 500),
    (MissingExtraError, 501),
    (EagerflowError, 400),
)


def status_of(error: BaseException) -> int:
    """The HTTP status of an error: 4xx for errors of the client.

    >>> from eagerflow.serving.errors import status_of
    >>> status_of(ef.errors.ShapeError("the ranks differ")), status_of(ZeroDivisionError())
    (400, 500)
    """
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)
