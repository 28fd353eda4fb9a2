"""Augmentations: random changes of images in training, as part of the graph.

They are drawn for each example of a batch of its own, by the session's seed, the step and the name
of the stream; see `graphfw.random`. Images are channels first, [*B, C, H, W], as `gf.nn.Conv2d`
takes them. In evaluation, that is under `gf.training(False)` or in a model that is called with
training=False, images stay as they are, and crops are from the middle. `Augment` makes a layer of a
function, which `Module.eval` reaches as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.nn.augment.affine import random_affine
from graphfw.nn.augment.colours import color_jitter, random_grayscale
from graphfw.nn.augment.layer import Augment
from graphfw.nn.augment.mixing import cutmix, mixup
from graphfw.nn.augment.windows import random_crop, random_erasing, random_flip

__all__ = [
    "Augment",
    "color_jitter",
    "cutmix",
    "mixup",
    "random_affine",
    "random_crop",
    "random_erasing",
    "random_flip",
    "random_grayscale",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.nn.augment", __name__, __all__)
