"""Dispatch from an object to its view, which never fails."""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.notebook.markup import element


def html(thing: Any, kind: str, *more: Any) -> str:
    """The view of an object by the module ``kind``; on failure, its ``repr`` and the reason.

    ``more`` are further arguments of that module's ``view``.

    >>> html(ef.tensor(True), "tensors")[:33]
    '<div><code>bool() on cpu:0</code>'
    >>> print(html(3, "tensors"))
    <pre title="no view: AttributeError: ...">3</pre>
    """
    try:
        shown: str = importlib.import_module(f"eagerflow.notebook.{kind}").view(thing, *more)
        return shown
    except Exception as error:  # a notebook would show a traceback in place of the object
        reason = f"no view: {type(error).__name__}: {error}"
    try:
        words = repr(thing)
    except Exception:
        words = object.__repr__(thing)
    return element("pre", words, title=reason)
