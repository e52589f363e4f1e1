"""Signals under one name, ``ef.signal``: windows, and spectra that change with time."""

from __future__ import annotations

from eagerflow.ops.other_names import members
from eagerflow.ops.signal.short_time import istft, stft
from eagerflow.ops.signal.windows import bartlett, blackman, hamming, hann, kaiser

__all__ = ["bartlett", "blackman", "hamming", "hann", "istft", "kaiser", "stft"]

__getattr__, __dir__ = members(__name__, __all__)
