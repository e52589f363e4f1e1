"""The error of objects that hold no numbers: texts, dates, tables, Python's objects."""

from __future__ import annotations

from itertools import islice
from numbers import Number
from typing import Any

from eagerflow.errors import DTypeError

__all__ = ["remedy", "unsupported"]

_TEXTS = (
    "ef.nn.StringLookup or ef.nn.TextVectorization make integers of texts, ef.one_hot vectors of "
    "those; by hand: [names.index(text) for text in texts]"
)
_DATES = "array.astype('int64') for dates and times as integers"
_OBJECTS = "array.astype('float32') for numbers that are Python's objects"
_TABLE = (
    "frame[columns].to_numpy('float32') for columns of numbers; ef.nn.StringLookup makes integers "
    "of texts"
)


def unsupported(obj: Any, dtype: Any = None) -> DTypeError:
    """The error of an object; ``dtype`` is that of NumPy's array of it, if there is one."""
    name = type(obj).__name__
    what = f"{'an' if name[0] in 'aeiou' else 'a'} {name}" if obj is not None else "None"
    hint = remedy(obj, dtype)
    if dtype is not None and hasattr(obj, "dtype"):
        what = f"an array of dtype {dtype}"
    elif hint is _TEXTS and not isinstance(obj, str | bytes):
        what += " of texts"
    return DTypeError(
        f"{what} is not a tensor, an array or a number",
        expected="Tensors, Variables, NumPy arrays, numbers, or nested lists of numbers",
        hint=hint,
    )


def remedy(obj: Any, dtype: Any = None) -> str | None:
    """What to do with an object that holds no numbers.

    >>> remedy("a")[:22], remedy(None)
    ('ef.nn.StringLookup or ', None)
    """
    kind = getattr(dtype, "kind", "")
    if hasattr(type(obj), "columns"):
        return _TABLE
    if isinstance(obj, str | bytes) or kind in ("U", "S", "T"):
        return _TEXTS
    if kind in ("M", "m"):
        return _DATES
    items = list(islice(getattr(obj, "flat", obj), 1000)) if _is_column(obj, kind) else []
    if any(isinstance(x, str | bytes) for x in items):
        return _TEXTS
    if None in items:
        return "np.asarray(x).astype('float32') has nan in place of None"
    return _OBJECTS if any(isinstance(x, Number) for x in items) else None


def _is_column(obj: Any, kind: str) -> bool:
    """Whether it is a list or an array of Python's objects."""
    named = hasattr(type(obj), "dtype") and hasattr(type(obj), "__iter__")
    return kind == "O" and (named or isinstance(obj, list | tuple))
