"""Fourier transforms: the extension `fft` of the Python Array API standard.

Besides: the short-time transform `stft`, its inverse `istft`, and windows for them.
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.ops.signal.fft import (
    fft,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfftn,
    rfft,
    rfftfreq,
    rfftn,
)
from graphfw.ops.signal.stft import hamming_window, hann_window, istft, stft

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hamming_window",
    "hann_window",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "istft",
    "rfft",
    "rfftfreq",
    "rfftn",
    "stft",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.fft", __name__, __all__)
