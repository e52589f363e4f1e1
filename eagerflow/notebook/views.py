"""The way from a thing to its view, which never fails."""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.notebook.markup import element


def html(thing: Any, kind: str, *more: Any) -> str:
    """The view of a thing by the module of that name; where that fails, its ``repr`` and why.

    ``more`` is what that module's ``view`` takes beside it.

    >>> html(ef.tensor(True), "tensors")[:33]
    '<div><code>bool() on cpu:0</code>'
    >>> print(html(3, "tensors"))
    <pre title="no view: AttributeError: ...">3</pre>
    """
    try:
        shown: str = importlib.import_module(f"eagerflow.notebook.{kind}").view(thing, *more)
        return shown
    except Exception as error:  # a notebook would show a traceback in place of the thing
        reason = f"no view: {type(error).__name__}: {error}"
    try:
        words = repr(thing)
    except Exception:
        words = object.__repr__(thing)
    return element("pre", words, title=reason)
