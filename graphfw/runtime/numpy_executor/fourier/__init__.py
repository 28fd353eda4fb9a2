"""Fourier transforms: `fft_steps`."""

from graphfw.runtime.numpy_executor.fourier.lowering import fft_steps, why_no_fft

__all__ = ["fft_steps", "why_no_fft"]
