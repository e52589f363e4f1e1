"""Every exception class of eagerflow, and the common form of their messages.

A message has the problem, the values received, the values expected, and a suggestion:

    ShapeError: matmul: the inner dimensions of x1 and x2 differ
      received: x1 float32(3, 4) on cpu:0, x2 float32(5, 2) on cpu:0
      expected: x2 with 4 rows
      try: ...
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import Repr
from typing import ClassVar

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
    "TaskLostError",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class EagerflowError(Exception):
    """Base of all errors that eagerflow raises on purpose.

    ``problem`` is one sentence; ``op`` and ``argument`` name the place; ``received``,
    ``expected`` and ``hint`` complete the message, and ``at`` is the user's file and line if
    a traceback would not show it: in captured code. All of them are available as attributes.
    What to do: read its last line, which suggests a fix; ``except ef.errors.EagerflowError``
    catches all of them, and each is also a subclass of the fitting built-in error.

    >>> raise ef.errors.ShapeError("the ranks differ", op="stack", expected="equal ranks")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ShapeError: stack: the ranks differ
      expected: equal ranks
    """

    # The lines that IPython shows; set by the package, as the code for it is in a higher layer.
    _render_traceback_: ClassVar[Callable[[EagerflowError], list[str]]]

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
    r"""Text from a user or a file in displayable form: unprintable characters are escaped.

    These are characters that control a terminal, break a line, or change the reading direction;
    ``kept`` are characters to leave unchanged.

    >>> from eagerflow.errors import printable
    >>> print(printable("a\x1b[2Jb\n"))
    a\x1b[2Jb\n
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def _lines(words: str) -> str:
    """Part of a message; further lines of it are indented, so that no name can look like one."""
    return "\n    ".join([printable(x) for x in words.split("\n    ")])


_bounded = Repr()
_bounded.maxlevel, _bounded.maxstring, _bounded.maxother = 3, 40, 60
short_repr = _bounded.repr
"""A short repr of any object for messages; recursive lists are safe."""


def _rebuild(cls: type[EagerflowError], state: dict[str, object]) -> EagerflowError:
    error = cls(str(state["problem"]))
    error.__dict__.update(state)
    return error


class ArgumentError(EagerflowError, ValueError):
    """A value that is not among the choices, such as a name or a rate that does not exist.

    Raised for a text, a number or an object of the right kind that the function does not support:
    names of losses and optimizers, rates outside of their range, options that exclude each
    other. What to do: use one of the values that the message lists as expected.

    >>> ef.nn.optimizers.get("adamm")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ArgumentError: optimizer: there is no 'adamm'
    ...
    """


class KeywordError(ArgumentError, TypeError):
    """An argument that a function does not have, or an unsupported value of one.

    Raised for arguments that are missing, repeated or unknown, and for those that other
    libraries have and that have no meaning here, such as ``out``. What to do: compare the call with
    the function that the message shows; ``help`` explains each argument.

    >>> ef.sum(ef.ones(3), out=ef.ones(()))
    Traceback (most recent call last):
    ...
    eagerflow.errors.KeywordError: sum: out: a Tensor is not taken
      expected: sum(x, axis, keepdims, dtype)
      try: y = sum(...): tensors do not change
    """


class ShapeError(EagerflowError, ValueError):
    """Shapes, axes or sizes that do not fit together.

    Raised by ops with arguments that do not broadcast, by products of different inner sizes, by
    layers built for another number of features, and by captured functions with sizes other
    than those of their signature. What to do: the message shows the shapes of all arguments and the
    expected ones; ``reshape``, ``expand_dims`` or ``mT`` is the most common fix. ``unlike`` are
    sizes known by name only that would have to be equal, if that is the only problem.

    >>> ef.add(ef.zeros((2, 3)), ef.zeros((4,)))
    Traceback (most recent call last):
    ...
    eagerflow.errors.ShapeError: add: the shapes do not broadcast: (2, 3) and (4,)
    ...
    """

    unlike: tuple[object, ...] = ()


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have; an IndexError too, as the Array API requires.

    Raised for axes below ``-ndim`` or from ``ndim`` on, often since an earlier op removed an axis.
    What to do: look at the shape in the message; ``keepdims=True`` keeps the axes of a reduction.

    >>> ef.expand_dims(ef.ones(3), axis=5)
    Traceback (most recent call last):
    ...
    eagerflow.errors.AxisError: expand_dims: axis: axis 5 does not exist
    ...
    """


class NoAxesError(ShapeError, TypeError):
    """A tensor without axes where items are needed; a TypeError too, as in NumPy.

    Raised by ``iter`` and ``len``, so that ``np.iterable`` and other libraries treat the tensor as
    the number that it is. What to do: ``x[None]`` or ``ef.reshape(x, (-1,))`` gives it an axis.

    >>> len(ef.tensor(5.0))
    Traceback (most recent call last):
    ...
    eagerflow.errors.NoAxesError: len: a tensor without axes has no length
    """


class DTypeError(EagerflowError, TypeError):
    """A dtype, or a kind of Python object, that an op does not accept.

    Raised for integers where only floats have a result, for objects that are no numbers, and for
    ``x[i] = value``. What to do: ``x.astype("float32")``, ``ef.tensor(values)``, or
    ``x.at[i].set(value)``, as the message says.

    >>> ef.sin("a")
    Traceback (most recent call last):
    ...
    eagerflow.errors.DTypeError: sin: x: a str is not a tensor, an array or a number
    ...
    """


class DeviceError(EagerflowError, ValueError):
    """A device that does not exist, or operands on different devices.

    Raised for names that ``ef.devices()`` does not list, and by ops with tensors on several
    devices, since nothing is moved silently. What to do: ``x.to(device)`` for one of them, or
    ``ef.set_logical_devices`` for more parts of the CPU.

    >>> ef.device("cpu:9")
    Traceback (most recent call last):
    ...
    eagerflow.errors.DeviceError: there is no device 'cpu:9'
    ...
    """


class IndexRangeError(EagerflowError, IndexError):
    """An index outside of the axis that it selects from.

    Raised by indexing, ``take`` and ``gather``, including for indices in tensors.
    What to do: check how the index is computed; ``ef.clip`` brings indices into the range if that
    is intended.

    >>> ef.tensor([1.0, 2.0])[5]
    Traceback (most recent call last):
    ...
    eagerflow.errors.IndexRangeError: getitem: index 5 is out of range for axis 0 of length 2
    ...
    """


class GradientError(EagerflowError, ValueError):
    """A gradient that does not exist, with the reason.

    Raised if the target does not depend on a source, if it does so through an operation without
    a gradient, such as integers or ``numpy()``, and if a used-up tape is asked again.
    What to do: the message names the line where the path breaks; use ``unconnected="zero"``
    if that is intended, ``persistent=True`` for a tape that gives several gradients.

    >>> w = ef.Variable([1.0, 3.0], name="w")
    >>> with ef.GradientTape() as tape:
    ...     best = ef.argmax(w).astype("float32")
    >>> tape.gradient(best, w)
    Traceback (most recent call last):
    ...
    eagerflow.errors.GradientError: w: the target does not depend on a source
      received: source float32(2,) on cpu:0
      expected: the path breaks at argmax (...): the result is an index, which does not change ...
      try: unconnected='zero' or 'none' where this is meant
    """


class CaptureError(EagerflowError, TypeError):
    """Python code that needs a value which is not known while tracing.

    Raised by ``if``, ``while``, ``float()`` and ``numpy()`` on tensors in captured functions, by
    values that cannot be compared between calls, and by functions that change what they read.
    What to do: ``ef.cond``, ``ef.where`` or ``ef.while_loop`` in place of Python statements,
    ``static`` arguments, state in an ``ef.Variable``; or leave that part out of the function.

    >>> ef.function(lambda x: x if x > 0 else -x)(ef.tensor(1.0))
    Traceback (most recent call last):
    ...
    eagerflow.errors.CaptureError: bool() needs a number that is not ...
    ...
      try: ef.cond(value, true_fn, false_fn) in place of if, ...
    """


class PlacementError(EagerflowError, ValueError):
    """A graph that cannot be placed on the given devices.

    Raised if a node is pinned to a device that is not listed, and if pins contradict each
    other. What to do: list that device, or remove the pin; the message names the node and its
    line.

    >>> ef.set_logical_devices("cpu", 2)
    >>> def f(x):
    ...     with ef.device("cpu:1"):
    ...         return ef.sin(x)
    >>> graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
    >>> ef.capture.partition(graph, ["cpu:0"])
    Traceback (most recent call last):
    ...
    eagerflow.errors.PlacementError: f: sin is pinned to cpu:1 (pinned by ef.device), ...
      at: ...
      expected: one of cpu:0
      try: partition(graph, ['cpu:0', 'cpu:1']), or another pin
    """


class ProfileError(EagerflowError, RuntimeError):
    """A profile is read before it is closed, or started or ended twice.

    Raised by ``by``, ``save`` and other queries inside of the ``with`` statement, and by ``stop``
    without a ``start``. What to do: query it after the ``with`` statement; a profile runs once, so
    take a new ``ef.profile()`` for the next run.

    >>> ef.profile().by("op")
    Traceback (most recent call last):
    ...
    eagerflow.errors.ProfileError: parts: there is nothing to show before the profile has ended
      try: leave the with statement first, or call stop()
    """


class FileFormatError(EagerflowError, ValueError):
    """A file that is damaged, of another format, or from a newer version.

    Raised before anything of the file is used; a file never runs code. What to do: check that it is
    the intended file, write it again, or update eagerflow if the version is newer.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ef.capture.load(file.name)
    Traceback (most recent call last):
    ...
    eagerflow.errors.FileFormatError: load: ...: the file ends after 0 bytes
      expected: a file that graph.save or model.save wrote
    """


class MissingExtraError(EagerflowError, ImportError):
    """An optional package that a feature needs and that is not installed.

    Raised when the feature is used, not when eagerflow is imported. What to do: run the pip command
    in the message.

    >>> from eagerflow import extras
    >>> extras.load("a_package_that_is_not_there", "plot", "the picture")
    Traceback (most recent call last):
    ...
    eagerflow.errors.MissingExtraError: the picture needs the package ..., which is not installed
      try: pip install 'eagerflow[plot]'
    """


class OutOfMemoryError(EagerflowError, MemoryError):
    """Memory that a device does not have, or that its limit forbids.

    Raised before anything is computed; Variables are as they were. What to do: smaller batches,
    ``ef.checkpoint`` for values kept by a tape, ``tape.memory()`` to list them, or a higher
    ``ef.set_memory_limit``.

    >>> ef.set_memory_limit("cpu", 1_000_000)
    >>> ef.tensor(np.ones((1000, 1000)))
    Traceback (most recent call last):
    ...
    eagerflow.errors.OutOfMemoryError: an array of 8,000,000 bytes exceeds the limit ...
    ...
    >>> ef.set_memory_limit("cpu", None)
    """


class SessionError(EagerflowError, RuntimeError):
    """A session that is used wrongly: closed, or fed with values its graph does not have.

    Raised for names that no graph has or that several have, for inputs that are needed and not fed,
    and after ``close``. What to do: the message lists the available names, or the missing feeds.

    >>> graph = ef.capture.trace(lambda x: {"y": x + 1}, ef.TensorSpec((2,), "float32"))
    >>> ef.capture.Session(graph).run("y")
    Traceback (most recent call last):
    ...
    eagerflow.errors.SessionError: Session.run: feeds: the input 'x' is needed and not fed
    ...
    """


class TaskLostError(SessionError):
    """A task of a cluster that was lost, together with data that only it had.

    Raised by the run that it was part of, whose changes are undone in the other tasks, and by
    later runs that need a Variable with a newest value that was lost. What to do: run again, as
    another process replaces the task automatically; assign a lost Variable first, for example
    from a checkpoint, which ``fit`` does by itself with ``ef.nn.callbacks.BackupAndRestore``.

    >>> raise ef.errors.TaskLostError("/job:ps/task:0 has gone", received="pid 4711 was killed")
    Traceback (most recent call last):
    ...
    eagerflow.errors.TaskLostError: /job:ps/task:0 has gone
      received: pid 4711 was killed
    """
