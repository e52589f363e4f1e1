"""Signatures as users read them: without types, and with defaults that are names."""

from __future__ import annotations

import inspect
from typing import Any

from eagerflow.op import REQUIRED


class _Words:
    """A default that is shown as these words."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return self.words


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or value is REQUIRED:
        return inspect.Parameter.empty
    if isinstance(value, bool | int | float | complex | str | None | tuple | list | dict):
        return value
    return _Words(getattr(value, "__name__", None) or getattr(value, "name", None) or "...")


def shown_signature(value: Any, method: bool = False) -> str:
    """``(x, /, *, axis=None)``; empty where Python cannot tell."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(signature.parameters.values())
    if method and parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    shown = [p.replace(annotation=p.empty, default=_default(p.default)) for p in parameters]
    return str(inspect.Signature(shown, __validate_parameters__=False))
