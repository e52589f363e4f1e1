"""Every exception class of eagerflow, and the one form of their messages.

A message says what went wrong, what came, what was expected and what to try:

    ShapeError: matmul: the inner dimensions of x1 and x2 differ
      received: x1 float32(3, 4) on cpu:0, x2 float32(5, 2) on cpu:0
      expected: x2 with 4 rows
      try: ...
"""

from __future__ import annotations

from reprlib import Repr

__all__ = [
    "ArgumentError",
    "AxisError",
    "CaptureError",
    "DTypeError",
    "DeviceError",
    "EagerflowError",
    "FileFormatError",
    "GradientError",
    "IndexRangeError",
    "KeywordError",
    "MissingExtraError",
    "OutOfMemoryError",
    "PlacementError",
    "ProfileError",
    "SessionError",
    "ShapeError",
]


class EagerflowError(Exception):
    """Base of all errors that eagerflow raises on purpose.

    ``problem`` is one sentence; ``op`` and ``argument`` name the place; ``received``,
    ``expected`` and ``hint`` complete the message, and ``at`` is the user's file and line where
    a traceback would not show it: in captured code. All of them stay readable as attributes.

    >>> raise ef.errors.ShapeError("the ranks differ", op="stack", expected="equal ranks")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ShapeError: stack: the ranks differ
      expected: equal ranks
    """

    def __init__(
        self,
        problem: str,
        *,
        op: str | None = None,
        argument: str | None = None,
        received: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
        at: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.op = op
        self.argument = argument
        self.received = received
        self.expected = expected
        self.hint = hint
        self.at = at

    def __str__(self) -> str:
        parts = [printable(part) for part in (self.op, self.argument) if part]
        lines = [": ".join([*parts, _lines(self.problem)])]
        for title, words in (
            ("at", self.at),
            ("received", self.received),
            ("expected", self.expected),
            ("try", self.hint),
        ):
            if words:
                lines.append(f"  {title}: {_lines(words)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only state does not survive the default pickling of exceptions.
        return _rebuild, (type(self), self.__dict__.copy())


def printable(text: str, kept: str = "") -> str:
    r"""Text from a user or a file as it may be shown: unprintable characters are escaped.

    That is all that controls a terminal, breaks a line, or turns the direction of reading;
    ``kept`` are letters of these that stay.

    >>> from eagerflow.errors import printable
    >>> print(printable("a\x1b[2Jb\n"))
    a\x1b[2Jb\n
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def _lines(words: str) -> str:
    """Part of a message; further lines of it are indented, so that no name can look like one."""
    return "\n    ".join(map(printable, words.split("\n    ")))


_bounded = Repr()
_bounded.maxlevel, _bounded.maxstring, _bounded.maxother = 3, 40, 60
short_repr = _bounded.repr
"""The repr of anything, short, for messages; a list that holds itself does no harm."""


def _rebuild(cls: type[EagerflowError], state: dict[str, object]) -> EagerflowError:
    error = cls(str(state["problem"]))
    error.__dict__.update(state)
    return error


class ArgumentError(EagerflowError, ValueError):
    """A value that is not among the choices, such as a name or a rate that does not exist.

    >>> ef.nn.optimizers.get("adamm")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ArgumentError: optimizer: there is no 'adamm'
    ...
    """


class KeywordError(ArgumentError, TypeError):
    """An argument that a function does not have, or a value of one that it cannot do with.

    >>> ef.sum(ef.ones(3), out=ef.ones(()))
    Traceback (most recent call last):
    ...
    eagerflow.errors.KeywordError: sum: out: a Tensor is not taken
      expected: sum(x, axis, keepdims, dtype)
      try: y = sum(...): tensors do not change
    """


class ShapeError(EagerflowError, ValueError):
    """Shapes, axes or sizes that do not fit together.

    ``unlike`` are sizes known by name alone that would have to be equal, where that is all.

    >>> ef.add(ef.zeros((2, 3)), ef.zeros((4,)))
    Traceback (most recent call last):
    ...
    eagerflow.errors.ShapeError: add: the shapes do not broadcast: (2, 3) and (4,)
    ...
    """

    unlike: tuple[object, ...] = ()


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have; an IndexError too, as the Array API asks.

    >>> ef.expand_dims(ef.ones(3), axis=5)
    Traceback (most recent call last):
    ...
    eagerflow.errors.AxisError: expand_dims: axis: axis 5 does not exist
    ...
    """


class DTypeError(EagerflowError, TypeError):
    """A dtype, or a kind of Python object, that an op does not take.

    >>> ef.sin("a")
    Traceback (most recent call last):
    ...
    eagerflow.errors.DTypeError: sin: x: a str is not a tensor, an array or a number
    ...
    """


class DeviceError(EagerflowError, ValueError):
    """A device that does not exist, or operands that live on different devices.

    >>> ef.device("cpu:9")
    Traceback (most recent call last):
    ...
    eagerflow.errors.DeviceError: there is no device 'cpu:9'
    ...
    """


class IndexRangeError(EagerflowError, IndexError):
    """An index outside of the axis that it selects from.

    >>> ef.tensor([1.0, 2.0])[5]
    Traceback (most recent call last):
    ...
    eagerflow.errors.IndexRangeError: getitem: index 5 is out of range for axis 0 of length 2
    ...
    """


class GradientError(EagerflowError, ValueError):
    """A gradient that was asked for and does not exist, with the reason.

    >>> ef.grad(lambda x: ef.zeros(()))(ef.tensor(1.0))
    Traceback (most recent call last):
    ...
    eagerflow.errors.GradientError: ...
    """


class CaptureError(EagerflowError, TypeError):
    """Python code that needs a value which is not known while tracing.

    >>> issubclass(ef.errors.CaptureError, TypeError)
    True
    """


class PlacementError(EagerflowError, ValueError):
    """A graph that cannot be placed on the given devices.

    >>> issubclass(ef.errors.PlacementError, ValueError)
    True
    """


class ProfileError(EagerflowError, RuntimeError):
    """A profile is asked for what it has only when it is closed, or begun or ended twice.

    >>> ef.profile().by("op")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ProfileError: parts: there is nothing to show before the profile has ended
      try: leave the with statement first, or call stop()
    """


class FileFormatError(EagerflowError, ValueError):
    """A file that is damaged, of another format, or from a newer version.

    >>> issubclass(ef.errors.FileFormatError, ValueError)
    True
    """


class MissingExtraError(EagerflowError, ImportError):
    """An optional package that a feature needs and that is not installed.

    >>> issubclass(ef.errors.MissingExtraError, ImportError)
    True
    """


class OutOfMemoryError(EagerflowError, MemoryError):
    """Memory that a device does not have, or that its limit forbids.

    >>> issubclass(ef.errors.OutOfMemoryError, MemoryError)
    True
    """


class SessionError(EagerflowError, RuntimeError):
    """A session that is used wrongly: closed, or fed with what its graph does not hold.

    >>> issubclass(ef.errors.SessionError, RuntimeError)
    True
    """
