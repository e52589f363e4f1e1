"""einops on tensors: the backend is registered when and if einops is imported; and its layers.

einops asks each subclass of its AbstractBackend whether an array is one of its own. Such a class
can be defined only after einops was imported, which may be before or after eagerflow, or never; so
a finder of modules waits for the module that has the base class.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

__all__ = ["wait_for_einops"]

BACKENDS = "einops._backends"
OURS = "eagerflow.einops.backend"


class _Loader(SourceFileLoader):
    """Loads the module of einops, and then ours with the subclass."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, "AbstractBackend"):
            sys.modules.pop(OURS, None)  # a subclass of what was loaded before
            importlib.import_module(OURS)


class Finder:
    """Finds one module of einops, and no others."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the module of einops, with our loader in place of Python's."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == BACKENDS else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def wait_for_einops() -> None:
    """Register the backend now if einops was imported, else as soon as it is."""
    if BACKENDS in sys.modules:
        importlib.import_module(OURS)
    else:
        sys.meta_path.insert(0, Finder)
