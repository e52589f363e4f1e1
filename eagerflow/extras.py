"""Optional packages: loaded when a feature needs them; one clear sentence if they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.errors import MissingExtraError


def load(module: str, extra: str, feature: str) -> Any:
    """The module, imported now; MissingExtraError with the pip line if it is not installed."""
    found = load_if_there(module)
    if found is None:
        raise MissingExtraError(
            f"{feature} needs the package {module.partition('.')[0]!r}, which is not installed",
            hint=f"pip install 'eagerflow[{extra}]'",
        )
    return found


def load_if_there(module: str) -> Any:
    """The module, or None if its package is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name.partition(".")[0]):
            raise  # the package is there, but one of its dependencies is not
        return None
