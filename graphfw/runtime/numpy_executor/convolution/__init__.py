"""Convolutions by the micro-kernels of matrix products, and pooling."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.convolution.choosing import choosing_steps
    from graphfw.runtime.numpy_executor.convolution.gradient import (
        conv_weight_steps,
        why_not_weight,
    )
    from graphfw.runtime.numpy_executor.convolution.lowering import why_not
    from graphfw.runtime.numpy_executor.convolution.pooled import (
        may_be_pooled,
        pooled_steps,
        pools_while_computed,
        reduced_while_computed,
        sums_first,
    )
    from graphfw.runtime.numpy_executor.convolution.pooling import pool_steps
    from graphfw.runtime.numpy_executor.convolution.routing import route_steps, routes
    from graphfw.runtime.numpy_executor.convolution.spreading import spread_steps, why_not_spread
    from graphfw.runtime.numpy_executor.convolution.strategies import conv_steps

__all__ = [
    "choosing_steps",
    "conv_steps",
    "conv_weight_steps",
    "may_be_pooled",
    "pool_steps",
    "pooled_steps",
    "pools_while_computed",
    "reduced_while_computed",
    "route_steps",
    "routes",
    "spread_steps",
    "sums_first",
    "why_not",
    "why_not_spread",
    "why_not_weight",
]

_MODULES = {
    "choosing_steps": "choosing",
    "conv_steps": "strategies",
    "conv_weight_steps": "gradient",
    "may_be_pooled": "pooled",
    "pool_steps": "pooling",
    "pooled_steps": "pooled",
    "pools_while_computed": "pooled",
    "reduced_while_computed": "pooled",
    "route_steps": "routing",
    "routes": "routing",
    "spread_steps": "spreading",
    "sums_first": "pooled",
    "why_not": "lowering",
    "why_not_spread": "spreading",
    "why_not_weight": "gradient",
}


def __getattr__(name: str) -> Any:
    # When it is first used: all together takes long to import, and few programs use all.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
