"""What every layer is besides Keras's: nothing."""

from __future__ import annotations


class Layer:
    """The mixin of layers; variables are ours, and all else of a layer is Keras's."""
