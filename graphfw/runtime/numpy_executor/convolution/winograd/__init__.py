"""Convolutions with 3 x 3 windows by Winograd's algorithms."""

from graphfw.runtime.numpy_executor.convolution.winograd.steps import winograd_strategies

__all__ = ["winograd_strategies"]
