"""Convolutions, their gradients, and pooling: by kernels written by hand, or by cuDNN."""

from graphfw.runtime.cupy_executor.convolution.cudnn import wanted
from graphfw.runtime.cupy_executor.convolution.cudnn_choice import with_cudnn
from graphfw.runtime.cupy_executor.convolution.cudnn_descriptor import CONVOLUTIONS, Numerics
from graphfw.runtime.cupy_executor.convolution.gradient import conv_weight_steps
from graphfw.runtime.cupy_executor.convolution.lowering import (
    conv_steps,
    fused_conv_steps,
    is_native,
)
from graphfw.runtime.cupy_executor.convolution.pooling import (
    choice_steps,
    fold_steps,
    pool_steps,
)

__all__ = [
    "CONVOLUTIONS",
    "Numerics",
    "choice_steps",
    "conv_steps",
    "conv_weight_steps",
    "fold_steps",
    "fused_conv_steps",
    "is_native",
    "pool_steps",
    "wanted",
    "with_cudnn",
]
