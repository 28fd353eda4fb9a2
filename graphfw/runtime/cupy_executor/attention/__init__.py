"""Attention and its gradient on a GPU, without a tensor of queries by keys."""

from graphfw.runtime.cupy_executor.attention.steps import attention_grad_steps, attention_steps

__all__ = ["attention_grad_steps", "attention_steps"]
