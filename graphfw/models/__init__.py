"""Models of images, and the blocks that they are made of: public as `graphfw.models`.

```python
import graphfw as gf

with gf.Graph() as g:
    images = gf.placeholder(("batch", 3, 224, 224), name="images")
    model = gf.models.resnet18(num_classes=10)
    logits = model(images)
```
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.models.blocks import ConvNormActivation
from graphfw.models.resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
)

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ConvNormActivation",
    "ResNet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.models", __name__, __all__)
