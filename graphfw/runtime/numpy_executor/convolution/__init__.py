"""Convolutions by the micro-kernels of matrix products, and pooling."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.convolution.gradient import (
        conv_weight_steps,
        why_not_weight,
    )
    from graphfw.runtime.numpy_executor.convolution.input_dilation import (
        input_dilation_steps,
        why_not_input_dilation,
    )
    from graphfw.runtime.numpy_executor.convolution.lowering import why_not
    from graphfw.runtime.numpy_executor.convolution.max_pool_gradient import (
        has_max_pool_gradient,
        max_pool_gradient_steps,
    )
    from graphfw.runtime.numpy_executor.convolution.pooled import (
        may_be_pooled,
        pooled_steps,
        pools_while_computed,
        reduced_while_computed,
        sums_first,
    )
    from graphfw.runtime.numpy_executor.convolution.pooling import pool_steps
    from graphfw.runtime.numpy_executor.convolution.strategies import conv_steps
    from graphfw.runtime.numpy_executor.convolution.window_argmax import window_argmax_steps

__all__ = [
    "conv_steps",
    "conv_weight_steps",
    "has_max_pool_gradient",
    "input_dilation_steps",
    "max_pool_gradient_steps",
    "may_be_pooled",
    "pool_steps",
    "pooled_steps",
    "pools_while_computed",
    "reduced_while_computed",
    "sums_first",
    "why_not",
    "why_not_input_dilation",
    "why_not_weight",
    "window_argmax_steps",
]

_MODULES = {
    "window_argmax_steps": "window_argmax",
    "conv_steps": "strategies",
    "conv_weight_steps": "gradient",
    "may_be_pooled": "pooled",
    "pool_steps": "pooling",
    "pooled_steps": "pooled",
    "pools_while_computed": "pooled",
    "reduced_while_computed": "pooled",
    "max_pool_gradient_steps": "max_pool_gradient",
    "has_max_pool_gradient": "max_pool_gradient",
    "input_dilation_steps": "input_dilation",
    "sums_first": "pooled",
    "why_not": "lowering",
    "why_not_input_dilation": "input_dilation",
    "why_not_weight": "gradient",
}


def __getattr__(name: str) -> Any:
    # Imported at first use: all files take long to import, and few programs use all.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
