"""Keras 3 on eagerflow: imported before Keras, this puts the backend ``"eagerflow"`` in place.

    import eagerflow.keras
    import keras

``python -m eagerflow.keras program.py`` does it for a program as it stands. Raises ImportError if
Keras is missing or was imported before. What of Keras this relies on stands in ``hook.py``.
"""

from __future__ import annotations

from eagerflow.keras import hook
from eagerflow.keras.sparse import SparseTensor

__all__ = ["VERSIONS", "SparseTensor"]

VERSIONS = hook.VERSIONS
"""The first release of Keras that this is for, and the first one that it is not for."""

hook.install()
