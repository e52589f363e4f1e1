"""Fourier transforms under one name: ``ef.fft``, as NumPy and the Array API standard have it."""

from __future__ import annotations

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
from eagerflow.ops.fft.transforms import fft, ifft, irfft, rfft
from eagerflow.ops.other_names import members

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

__getattr__, __dir__ = members(__name__, __all__)
