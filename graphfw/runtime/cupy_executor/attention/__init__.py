"""Attention and its gradient on a GPU, without a tensor of queries by keys."""

from graphfw.ops.nn.attention_backward import AttentionBackward
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.runtime.cupy_executor.attention.cudnn_choice import said, why_not
from graphfw.runtime.cupy_executor.attention.pass_result import PassAttentionResult
from graphfw.runtime.cupy_executor.attention.steps import (
    attention_backward_steps,
    attention_grad_steps,
    attention_steps,
)

ATTENTION = (Attention, AttentionBackward, AttentionGrad)
"""The ops of attention."""

__all__ = [
    "ATTENTION",
    "PassAttentionResult",
    "attention_backward_steps",
    "attention_grad_steps",
    "attention_steps",
    "said",
    "why_not",
]
