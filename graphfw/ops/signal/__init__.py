"""Signals: Fourier transforms, sampled functions, polynomials.

- `fft`: the public functions of `graphfw.fft`; `fft_ops`: their op classes
- `stft`: the short-time Fourier transform and its inverse, windows
- `sampled_functions`: interpolation, slopes and integrals of functions known at points
- `polynomials`: polynomials by their coefficients, convolution of vectors
"""
