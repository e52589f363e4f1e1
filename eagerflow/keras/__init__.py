"""Keras 3 on eagerflow: imported before Keras, this installs the backend ``"eagerflow"``.

    import eagerflow.keras
    import keras

``python -m eagerflow.keras program.py`` does it for an unmodified program. Raises ImportError if
Keras is missing or was imported before. The dependencies on Keras's internals are in ``hook.py``.
"""

from __future__ import annotations

from eagerflow.keras import hook
from eagerflow.keras.sparse import SparseTensor

__all__ = ["VERSIONS", "SparseTensor"]

VERSIONS = hook.VERSIONS
"""The first supported release of Keras, and the first unsupported one."""

hook.install()
