# Written by tests/structure/stubs.py: do not edit.

from typing import Any

from eagerflow.ops.fft.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from eagerflow.ops.fft.several_axes import (
    fft2,
    fftn,
    hfft,
    ifft2,
    ifftn,
    ihfft,
    irfft2,
    irfftn,
    rfft2,
    rfftn,
)
from eagerflow.tensor import Tensor

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

def fft(x: Any, /, n: Any = None, axis: int = -1, norm: Any = "backward") -> Tensor: ...
def ifft(x: Any, /, n: Any = None, axis: int = -1, norm: Any = "backward") -> Tensor: ...
def irfft(x: Any, /, n: Any = None, axis: int = -1, norm: Any = "backward") -> Tensor: ...
def rfft(x: Any, /, n: Any = None, axis: int = -1, norm: Any = "backward") -> Tensor: ...
