"""Attention and its gradient on a GPU, without a tensor of queries by keys."""

from graphfw.runtime.cupy_executor.attention.cudnn_choice import said, why_not
from graphfw.runtime.cupy_executor.attention.pass_result import PassAttentionResult
from graphfw.runtime.cupy_executor.attention.steps import (
    attention_backward_steps,
    attention_grad_steps,
    attention_steps,
)

ASKED = {"attention": attention_steps, "attention_backward": attention_backward_steps}
"""The ops for which cuDNN may be asked, and what returns their steps."""

NAMES = (*ASKED, "attention_grad")
"""The ops of attention."""

__all__ = ["ASKED", "NAMES", "PassAttentionResult", "attention_grad_steps", "said", "why_not"]
