"""Models of images and of language, and their blocks: public as `graphfw.models`.

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
from graphfw.models.bert import Bert, BertConfig
from graphfw.models.blocks import ConvNormActivation
from graphfw.models.gpt2 import GPT2, GPT2Config
from graphfw.models.llama import Llama, LlamaConfig
from graphfw.models.pretrained import from_pretrained, tokenizer
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
    "GPT2",
    "BasicBlock",
    "Bert",
    "BertConfig",
    "Bottleneck",
    "ConvNormActivation",
    "GPT2Config",
    "Llama",
    "LlamaConfig",
    "ResNet",
    "from_pretrained",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "tokenizer",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.models", __name__, __all__)
