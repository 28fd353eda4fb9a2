"""Models of images and of language, and their blocks: public as `graphfw.models`.

```python
model = gf.models.resnet18(num_classes=10)
logits = model(images, training=False)  # images: an array [N, 3, H, W]
```
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.models.bert import Bert, BertConfig
from graphfw.models.blocks import ConvNormActivation, InvertedResidual
from graphfw.models.convnext import (
    ConvNeXt,
    ConvNeXtBlock,
    LayerNorm2d,
    convnext_base,
    convnext_large,
    convnext_small,
    convnext_tiny,
)
from graphfw.models.efficientnet import (
    EfficientNet,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
)
from graphfw.models.gpt2 import GPT2, GPT2Config
from graphfw.models.llama import Llama, LlamaConfig
from graphfw.models.mobilenet import (
    MobileNetV2,
    MobileNetV3,
    mobilenet_v2,
    mobilenet_v3_large,
    mobilenet_v3_small,
)
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
from graphfw.models.rotations import LinearScaling, Llama3Scaling
from graphfw.models.unet import UNet, UNetBlock, UNetDown, UNetUp
from graphfw.models.vision_transformer import (
    VisionTransformer,
    vit_b_16,
    vit_b_32,
    vit_h_14,
    vit_l_16,
    vit_l_32,
)

__all__ = [
    "GPT2",
    "BasicBlock",
    "Bert",
    "BertConfig",
    "Bottleneck",
    "ConvNeXt",
    "ConvNeXtBlock",
    "ConvNormActivation",
    "EfficientNet",
    "GPT2Config",
    "InvertedResidual",
    "LayerNorm2d",
    "LinearScaling",
    "Llama",
    "Llama3Scaling",
    "LlamaConfig",
    "MobileNetV2",
    "MobileNetV3",
    "ResNet",
    "UNet",
    "UNetBlock",
    "UNetDown",
    "UNetUp",
    "VisionTransformer",
    "convnext_base",
    "convnext_large",
    "convnext_small",
    "convnext_tiny",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "efficientnet_b4",
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
    "from_pretrained",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "tokenizer",
    "vit_b_16",
    "vit_b_32",
    "vit_h_14",
    "vit_l_16",
    "vit_l_32",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.models", __name__, __all__)
