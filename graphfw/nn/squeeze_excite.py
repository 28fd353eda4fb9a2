"""`SqueezeExcite`: channels are scaled by what all positions say."""

from __future__ import annotations

from graphfw.errors import ShapeError, counted
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import (
    ActivationOption,
    activated,
    activation_text,
    checked_activation,
)
from graphfw.nn.checks import checked_size
from graphfw.nn.linear import Linear
from graphfw.nn.module import Module
from graphfw.nn.torch_rules import OfConvolutions, TorchRule
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand, floats
from graphfw.ops.nn.spatial_arguments import spatial_rank


class SqueezeExcite(Module):
    """Scale each channel by a number from the means of all.  x: [N, C, *S] -> [N, C, *S]

    The means over the positions go through two linear maps, a small one and one back. J. Hu et
    al., "Squeeze-and-excitation networks", 2018. Results equal those of torchvision's
    `SqueezeExcitation`, whose state dicts can be loaded.

    Args:
        channels: The number of channels, C.
        squeeze_channels: The size between the maps, such as channels // 16.
        activation: Between the maps: "relu", "silu", or a function or layer.
        gate: After the second map: "sigmoid", "hardsigmoid", or a function or layer.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        fc1, fc2: The `Linear` maps.

    Raises:
        ArgumentError: A size is no int or below 1, or activation or gate is no function.
        ShapeError: In a call: x has no spatial dim, or another number of channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.SqueezeExcite(32, 8, gate="hardsigmoid")
    ...     layer(gf.placeholder(("batch", 32, "h", "w"))).shape
    (batch, 32, h, w)
    """

    def __init__(
        self,
        channels: int,
        squeeze_channels: int,
        activation: ActivationOption = "relu",
        gate: ActivationOption = "sigmoid",
        *,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "SqueezeExcite"
        self.channels = checked_size(layer, "channels", channels)
        squeezed = checked_size(layer, "squeeze_channels", squeeze_channels)
        self.activation = checked_activation(layer, "activation", activation, ("relu", "silu"))
        self.gate = checked_activation(layer, "gate", gate, ("sigmoid", "hardsigmoid"))
        self.fc1 = Linear(self.channels, squeezed, dtype=dtype)
        self.fc2 = Linear(squeezed, self.channels, dtype=dtype)

    def forward(self, x: TensorLike) -> Tensor:
        """Scale.  x: [N, C, *S] -> [N, C, *S]"""
        tensor = floats("SqueezeExcite", x)
        rank = spatial_rank("SqueezeExcite", tensor)
        found = tensor.shape[1]
        message = f"SqueezeExcite: x has {counted(found, 'channel')}, not {self.channels}"
        fix = f"use channels={found}; they are dim 1"
        fits = found == self.channels
        demand(fits, message, {"x": tensor}, fix=fix, error=ShapeError)
        means = F.mean(tensor, axis=tuple(range(2, 2 + rank)))
        scale = activated(self.gate, self.fc2(activated(self.activation, self.fc1(means))))
        return tensor * F.reshape(scale, (*scale.shape, *[1] * rank))

    def _torch_rules(self) -> list[TorchRule]:
        """Say which maps are convolutions in torchvision."""
        return [OfConvolutions("fc?.weight")]

    def extra_repr(self) -> str:
        """Return the text of the options."""
        shown = activation_text(self.activation), activation_text(self.gate)
        return f"{self.channels}, activation={shown[0]}, gate={shown[1]}"
