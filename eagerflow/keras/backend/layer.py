"""The backend's mixin of layers, which adds nothing."""

from __future__ import annotations


class Layer:
    """The mixin of layers; only variables are ours."""
