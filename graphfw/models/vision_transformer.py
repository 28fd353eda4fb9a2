"""`VisionTransformer`: a transformer over patches of images."""

from __future__ import annotations

import math

from graphfw import nn
from graphfw.errors import ShapeError
from graphfw.hints.calls import explained
from graphfw.ir.dim import Dim
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.checks import checked_size
from graphfw.nn.convolution import check_rank
from graphfw.nn.parameters import parameter
from graphfw.nn.torch_rules import RenamedScopes, TorchRule
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand, demand_probability
from graphfw.ops.nn.spatial_arguments import Ints, each

_THEIRS = "encoder.layers.encoder_layer_{i}"
_OWN = "encoder.layers.{i}"

_TORCHVISION = RenamedScopes(
    {
        "encoder.pos_embedding": "pos_embedding",
        _THEIRS: _OWN,
        f"{_THEIRS}.ln_1": f"{_OWN}.norm1",
        f"{_THEIRS}.self_attention": f"{_OWN}.self_attn",
        f"{_THEIRS}.ln_2": f"{_OWN}.norm2",
        # The published files have these names, and torchvision renames them.
        f"{_THEIRS}.mlp.linear_1": f"{_OWN}.linear1",
        f"{_THEIRS}.mlp.linear_2": f"{_OWN}.linear2",
        f"{_THEIRS}.mlp.0": f"{_OWN}.linear1",
        f"{_THEIRS}.mlp.3": f"{_OWN}.linear2",
        "encoder.ln": "encoder.norm",
        "heads.head": "head",
    }
)


class VisionTransformer(nn.Module):
    """A transformer that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    Each patch of an image is mapped to a vector. The result is computed from one more vector, the
    class token. A. Dosovitskiy et al., "An image is worth 16x16 words", 2021. State dicts of
    torchvision's `VisionTransformer` can be loaded.

    Args:
        image_size: The height and width of the images: an int for both, or a pair.
        patch_size: The height and width of a patch; they divide those of the images.
        num_layers: The number of `TransformerEncoderLayer`.
        num_heads: The number of heads of each attention; it divides embed_dim.
        embed_dim: The size of the vectors.
        feedforward_dim: The hidden size of the feed-forward networks, 4 * embed_dim by default.
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        dropout: As `TransformerEncoderLayer`, and of the vectors of patches with positions.
        name: See `Module`.

    Attributes:
        conv_proj: The `Conv2d` that maps patches to vectors.
        class_token: [1, 1, embed_dim].
        pos_embedding: A vector for the class token and each patch, [1, 1 + patches, embed_dim].
        encoder: The `TransformerEncoder`.
        head: The `Linear` layer for logits.

    Raises:
        ArgumentError: A size is no int or below 1, patches do not fill the images, num_heads does
            not divide embed_dim, or dropout is outside [0, 1).
        ShapeError: In a call: x has other dims, channels, height or width.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.VisionTransformer(32, 8, 2, 4, 64, num_classes=10)
    ...     model(gf.placeholder(("batch", 3, 32, 32))).shape
    (batch, 10)
    """

    def __init__(
        self,
        image_size: Ints = 224,
        patch_size: Ints = 16,
        num_layers: int = 12,
        num_heads: int = 12,
        embed_dim: int = 768,
        feedforward_dim: int | None = None,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "VisionTransformer"
        self.image_size = each(layer, "image_size", image_size, 2)
        patch = each(layer, "patch_size", patch_size, 2)
        message = f"{layer}: image_size={image_size} is no multiple of patch_size={patch_size}"
        near = [max(p, s // p * p) for s, p in zip(self.image_size, patch, strict=True)]
        fix = f"use image_size={near[0] if near[0] == near[1] else tuple(near)}"
        demand(near == [*self.image_size], message, fix=fix)
        width = checked_size(layer, "embed_dim", embed_dim)
        classes = checked_size(layer, "num_classes", num_classes)
        demand_probability(layer, "dropout", dropout)
        count = math.prod(s // p for s, p in zip(self.image_size, patch, strict=True))
        self.conv_proj = nn.Conv2d(in_channels, width, patch, patch)
        self.class_token = parameter(nn.init.zeros, (1, 1, width))
        self.pos_embedding = parameter(nn.init.normal(std=0.02), (1, 1 + count, width))
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.TransformerEncoder(
            width,
            num_heads,
            num_layers,
            feedforward_dim,
            dropout,
            "gelu",
            norm_first=True,
            eps=1e-6,
        )
        self.head = nn.Linear(width, classes, weight_init=nn.init.truncated_normal(std=0.02))

    def forward(self, x: TensorLike) -> Tensor:
        """Compute logits.  x: [N, in_channels, H, W] -> [N, num_classes]"""
        patches = F.flatten(self.conv_proj(self._checked(x)), start=2)
        y = F.swapaxes(patches, 1, 2)
        token = F.broadcast_to(self.class_token, (y.shape[0], 1, y.shape[2]))
        y = F.concat([token, y], axis=1) + self.pos_embedding
        y = self.encoder(self.dropout(y))
        result: Tensor = self.head(y[:, 0])
        return result

    def _checked(self, x: TensorLike) -> Tensor:
        """Return images, which must have the size of the position embeddings."""
        tensor = as_tensor(x)
        layer = "VisionTransformer"
        check_rank(layer, 2, tensor)
        found, wanted = tensor.shape[2:], self.image_size
        sizes = " × ".join(map(str, found)), " × ".join(map(str, wanted))
        message = f"{layer}: images are {sizes[0]}, and there are positions for {sizes[1]}"
        fix = f"resize them by gf.resize(x, {wanted}), or use image_size={found}"
        if any(isinstance(size, Dim) for size in found):
            fix = f"say gf.assert_shape(x, {(None, None, *wanted)})"
        demand(found == wanted, message, {"x": tensor}, fix=fix, error=ShapeError)
        return tensor

    def _torch_rules(self) -> list[TorchRule]:
        """Return torchvision's names of the layers."""
        return [_TORCHVISION]


@explained
def vit_b_16(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: Ints = 224,
    *,
    name: str | None = None,
) -> VisionTransformer:
    """Return a `VisionTransformer` of the base size and patches of 16 × 16."""
    sizes = image_size, 16, 12, 12, 768, 3072
    return VisionTransformer(*sizes, num_classes, in_channels, name=name)


@explained
def vit_b_32(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: Ints = 224,
    *,
    name: str | None = None,
) -> VisionTransformer:
    """Return a `VisionTransformer` of the base size and patches of 32 × 32."""
    sizes = image_size, 32, 12, 12, 768, 3072
    return VisionTransformer(*sizes, num_classes, in_channels, name=name)


@explained
def vit_l_16(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: Ints = 224,
    *,
    name: str | None = None,
) -> VisionTransformer:
    """Return a `VisionTransformer` of the large size and patches of 16 × 16."""
    sizes = image_size, 16, 24, 16, 1024, 4096
    return VisionTransformer(*sizes, num_classes, in_channels, name=name)


@explained
def vit_l_32(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: Ints = 224,
    *,
    name: str | None = None,
) -> VisionTransformer:
    """Return a `VisionTransformer` of the large size and patches of 32 × 32."""
    sizes = image_size, 32, 24, 16, 1024, 4096
    return VisionTransformer(*sizes, num_classes, in_channels, name=name)


@explained
def vit_h_14(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: Ints = 224,
    *,
    name: str | None = None,
) -> VisionTransformer:
    """Return a `VisionTransformer` of the huge size and patches of 14 × 14."""
    sizes = image_size, 14, 32, 16, 1280, 5120
    return VisionTransformer(*sizes, num_classes, in_channels, name=name)
