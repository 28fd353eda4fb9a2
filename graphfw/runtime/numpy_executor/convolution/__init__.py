"""Convolutions by the micro-kernels of matrix products, and pooling."""

from graphfw.runtime.numpy_executor.convolution.choosing import choosing_steps
from graphfw.runtime.numpy_executor.convolution.gradient import conv_weight_steps, why_not_weight
from graphfw.runtime.numpy_executor.convolution.lowering import why_not
from graphfw.runtime.numpy_executor.convolution.pooled import pooled_steps, pools_while_computed
from graphfw.runtime.numpy_executor.convolution.pooling import pool_steps
from graphfw.runtime.numpy_executor.convolution.spreading import spread_steps, why_not_spread
from graphfw.runtime.numpy_executor.convolution.strategies import conv_steps

__all__ = [
    "choosing_steps",
    "conv_steps",
    "conv_weight_steps",
    "pool_steps",
    "pooled_steps",
    "pools_while_computed",
    "spread_steps",
    "why_not",
    "why_not_spread",
    "why_not_weight",
]
