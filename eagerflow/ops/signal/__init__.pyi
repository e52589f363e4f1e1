# Written by tests/structure/stubs.py: do not edit.

from eagerflow.ops.signal.short_time import istft, stft
from eagerflow.ops.signal.windows import bartlett, blackman, hamming, hann, kaiser

__all__ = [
    "bartlett",
    "blackman",
    "hamming",
    "hann",
    "istft",
    "kaiser",
    "stft",
]
