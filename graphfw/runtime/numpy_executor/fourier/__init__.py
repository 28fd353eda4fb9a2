"""Fourier transforms: `fourier_steps`."""

from graphfw.runtime.numpy_executor.fourier.lowering import fourier_steps, why_no_fourier

__all__ = ["fourier_steps", "why_no_fourier"]
