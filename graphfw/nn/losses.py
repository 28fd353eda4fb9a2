"""The loss functions of `graphfw.ops.losses`, where users of layers look for them."""

from graphfw.ops.losses import (
    bce,
    bce_with_logits,
    cosine_similarity,
    cross_entropy,
    huber,
    kl_div,
    l1,
    mse,
    nll,
    smooth_l1,
)

__all__ = [
    "bce",
    "bce_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "huber",
    "kl_div",
    "l1",
    "mse",
    "nll",
    "smooth_l1",
]
