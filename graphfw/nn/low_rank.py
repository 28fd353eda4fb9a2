"""`LowRankUpdate`: the product of two small matrices, which is added to a layer's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.nn import init
from graphfw.nn.convolution import Conv1d, Conv2d, Conv3d
from graphfw.nn.embedding import Embedding
from graphfw.nn.linear import Linear
from graphfw.nn.module import Module
from graphfw.nn.torch_rules import Renamed, TorchRule, Transposed
from graphfw.ops.composed import wide_dtype
from graphfw.ops.nn.activations import dropout

Adaptable: TypeAlias = Linear | Embedding | Conv1d | Conv2d | Conv3d

_KINDS = (Linear, Embedding, Conv1d, Conv2d, Conv3d)


def takes_update(layer: Module) -> bool:
    """Return whether a low-rank update can be added to a layer."""
    kind = next((kind for kind in _KINDS if isinstance(layer, kind)), None)
    if kind is None or type(layer).forward is not kind.forward:
        return False
    return not isinstance(layer, (Conv1d, Conv2d, Conv3d)) or layer.facts["groups"] == 1


def largest_rank(layer: Adaptable) -> int:
    """Return the largest rank that a layer's weight can have."""
    shape = [int(size) for size in layer.weight.shape]
    count = int(np.prod(shape))
    rows = shape[0]
    return min(rows, count // rows)


class LowRankUpdate(Module):
    """A forward hook of a layer that adds lora_B(scale * lora_A(x)) to its output.

    The layer keeps its weight under its name. The update has no bias, and begins as 0.

    Args:
        layer: The layer.
        rank: The number of features between `lora_A` and `lora_B`.
        scale: The factor.
        dropout: In training, the probability of leaving out a feature of x; indices stay.

    Attributes:
        lora_A, lora_B: A layer of the layer's kind from its input to `rank` features, and a layer
            from these to its output.
        layer: The layer, which belongs to the model.
    """

    is_removed = False
    layer: Adaptable
    lora_A: Linear | Embedding | Conv1d | Conv2d | Conv3d
    lora_B: Linear | Conv1d | Conv2d | Conv3d

    def __init__(self, layer: Adaptable, rank: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale, self.dropout = scale, dropout
        vars(self)["layer"] = layer  # which is no submodule: its variables stay the model's
        self.lora_A, self.lora_B = _factors(layer, rank)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the update of the layer's output.  x: the layer's input"""
        update: Tensor = self.lora_B(self.lora_A(x) * self.scale)
        return update

    def changed(self, module: Module, args: Sequence[Any], output: Any) -> Any:
        """Return the layer's output with the update."""
        x = args[0]
        if self.dropout and self.training and module.training:
            x = x if isinstance(module, Embedding) else dropout(x, self.dropout)
        return output + self(x)

    @property
    def factors(self) -> tuple[Variable, Variable]:
        """The weights of `lora_A` and `lora_B`."""
        return self.lora_A.weight, self.lora_B.weight

    def merged(self, weight: Array, a: Array, b: Array) -> Array:
        """Return the weight with which the layer computes the same without the update.

        It is summed in float32, or in float64 if that is the weight's dtype.

        Args:
            weight: The contents of the layer's weight.
            a: The contents of the weight of `lora_A`.
            b: The contents of the weight of `lora_B`.
        """
        dtype = wide_dtype(self.layer.weight.dtype).dtype
        a, b = a.astype(dtype), b.astype(dtype)
        is_conv = isinstance(self.layer, (Conv1d, Conv2d, Conv3d))
        update = np.tensordot(b.reshape(b.shape[:2]), a, 1) if is_conv else a @ b
        merged: Array = weight.astype(dtype) + dtype.type(self.scale) * update
        return merged.astype(weight.dtype)

    def _torch_rules(self) -> list[TorchRule]:
        if not isinstance(self.layer, Embedding):
            return []
        renamed = [Renamed(f"lora_embedding_{n}", f"lora_{n}.weight") for n in "AB"]
        return [*renamed, Transposed("lora_A.weight")]

    def extra_repr(self) -> str:
        """Return the text of the scale."""
        return f"scale={self.scale:g}"


class Adapters(Module):
    """The updates of a model, by the paths of their layers; or one scope of these paths."""

    def attach(self, path: str, update: LowRankUpdate) -> None:
        """Add the update of a layer, whose variables get the path as their name."""
        scope: Module = self
        *outer, last = path.split(".")
        for name in outer:
            if name not in scope._children:
                scope.add_module(name, Adapters())
            scope = scope._children[name]
        scope.add_module(last, update)


def _factors(layer: Adaptable, rank: int) -> tuple[Any, Any]:
    """Make the layers `lora_A` and `lora_B`, one of which begins with zeros."""
    dtype = layer.weight.dtype
    if isinstance(layer, Linear):
        assert layer.in_features is not None
        first = Linear(layer.in_features, rank, False, dtype)
        return first, Linear(rank, layer.out_features, False, dtype, weight_init=init.zeros)
    if isinstance(layer, Embedding):
        sizes = layer.num_embeddings, rank, layer.padding_idx
        table = Embedding(*sizes, dtype, weight_init=init.zeros)
        return table, Linear(rank, layer.embedding_dim, False, dtype, weight_init=init.normal)
    kind: Any = next(kind for kind in (Conv1d, Conv2d, Conv3d) if isinstance(layer, kind))
    options = {**layer.facts, "bias": False, "dtype": dtype}
    first = kind(layer.in_channels, rank, layer.kernel_size, **options)
    second = kind(rank, layer.out_channels, 1, bias=False, dtype=dtype, weight_init=init.zeros)
    return first, second
