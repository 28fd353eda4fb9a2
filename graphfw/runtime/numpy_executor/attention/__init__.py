"""Attention without a matrix of queries by keys: the generated kernels and their steps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.attention.steps import (
        attention_grad_steps,
        attention_steps,
        is_native,
    )

__all__ = ["attention_grad_steps", "attention_steps", "is_native"]


def __getattr__(name: str) -> Any:
    # When it is first used, for the sake of programs without attention.
    if name in __all__:
        return getattr(import_module(f"{__name__}.steps"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
