"""`UNet`: a convolutional network from images to images, with skip connections."""

from __future__ import annotations

from graphfw import nn
from graphfw.errors import ShapeError, counted
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.models.blocks import ConvNormActivation, NormLayer
from graphfw.nn.activations import ActivationOption, activated
from graphfw.nn.checks import checked_size
from graphfw.nn.convolution import check_rank
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand

_MOST_HALVINGS = 16
"""More are a mistake: each doubles the channels."""


class UNetBlock(nn.Module):
    """Two convolutions of 3 × 3 with norms and activations.  x: [N, C, H, W] -> [N, O, H, W]

    Args:
        in_channels: The number of channels of x, C.
        out_channels: The number of channels of the result, O.
        embedding_dim: The size of a vector for each image, which is mapped to the channels and
            added between the convolutions, such as that of the time in a diffusion model; None for
            none.
        activation: As `ConvNormActivation`.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        conv1, conv2: The `ConvNormActivation` layers.
        projection: The `Linear` map of the vector, or None.

    Raises:
        ArgumentError: A size is no int or below 1, or activation or norm_layer is no function; in a
            call: there is a vector and no embedding_dim, or the other way round.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     gf.models.UNetBlock(8, 16)(gf.placeholder(("batch", 8, 32, 32))).shape
    (batch, 16, 32, 32)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        embedding_dim: int | None = None,
        activation: ActivationOption = "relu",
        norm_layer: NormLayer = nn.BatchNorm2d,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.activation = activation
        self.conv1 = ConvNormActivation(
            in_channels, out_channels, activation=activation, norm_layer=norm_layer
        )
        self.projection = None
        if embedding_dim is not None:
            self._embedding_dim = checked_size("UNetBlock", "embedding_dim", embedding_dim)
            self.projection = nn.Linear(self._embedding_dim, out_channels)
        self.conv2 = ConvNormActivation(
            out_channels, out_channels, activation=activation, norm_layer=norm_layer
        )

    projection: nn.Linear | None

    def forward(self, x: TensorLike, embedding: TensorLike | None = None) -> Tensor:
        """Convolve twice.  x: [N, C, H, W] -> [N, O, H, W]

        Args:
            x: Images.
            embedding: A vector for each image, [N, embedding_dim].
        """
        y: Tensor = self.conv1(x)
        check_embedding("UNetBlock", self.projection is not None, embedding)
        if self.projection is not None and embedding is not None:
            vectors = self._checked(as_tensor(embedding))
            shift = self.projection(activated(self.activation, vectors))
            y = y + F.expand_dims(shift, axis=(2, 3))
        result: Tensor = self.conv2(y)
        return result

    def _checked(self, embedding: Tensor) -> Tensor:
        """Return vectors of the size that the projection takes, one for each image."""
        shape, size = embedding.shape, self._embedding_dim
        message = f"UNetBlock: embedding is {shape_text(shape)}, and must be [N, {size}]"
        fix = "reshape it: gf.reshape(embedding, (N, -1))"
        if embedding.ndim == 1:
            fix = "embedding[None] is one vector for all images"
        elif embedding.ndim == 2:
            fix = f"use embedding_dim={shape[1]}"
        fits = embedding.ndim == 2 and shape[1] == size
        demand(fits, message, {"embedding": embedding}, fix=fix, error=ShapeError)
        return embedding


def check_embedding(layer: str, has_size: bool, embedding: TensorLike | None) -> None:
    """Demand an embedding if and only if a layer has an embedding_dim."""
    message = f"{layer}: there is an embedding, and no embedding_dim"
    fix = "make the layer with embedding_dim=64, or the size that it has"
    if has_size:
        message = f"{layer}: it has an embedding_dim, and there is no embedding"
        fix = "call it with embedding=e, of shape [N, embedding_dim]"
    demand((embedding is not None) == has_size, message, fix=fix)


class UNetDown(nn.Module):
    """Max pooling over 2 × 2 elements, and a `UNetBlock`.  x: [N, C, H, W] -> [N, O, H/2, W/2]

    Args:
        in_channels, out_channels, embedding_dim, activation, norm_layer, name: As `UNetBlock`.

    Attributes:
        pool: The `MaxPool2d`.
        block: The `UNetBlock`.

    Raises:
        ArgumentError, ShapeError: As `UNetBlock`.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     gf.models.UNetDown(8, 16)(gf.placeholder(("batch", 8, 32, 32))).shape
    (batch, 16, 16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        embedding_dim: int | None = None,
        activation: ActivationOption = "relu",
        norm_layer: NormLayer = nn.BatchNorm2d,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.pool = nn.MaxPool2d(2)
        self.block = UNetBlock(in_channels, out_channels, embedding_dim, activation, norm_layer)

    def forward(self, x: TensorLike, embedding: TensorLike | None = None) -> Tensor:
        """Halve images and convolve.  x: [N, C, H, W] -> [N, O, H/2, W/2]

        Args:
            x: Images.
            embedding: A vector for each image, [N, embedding_dim].
        """
        result: Tensor = self.block(self.pool(x), embedding)
        return result


class UNetUp(nn.Module):
    """Upsampling to the size of a skip connection, concatenation, and a `UNetBlock`.

    x: [N, C, h, w] and skip: [N, O, H, W] -> [N, O, H, W]. Nearest-neighbour upsampling is
    followed by a convolution: A. Odena et al., "Deconvolution and checkerboard artifacts",
    2016. So H and W need not be even.

    Args:
        in_channels: The number of channels of x, C.
        out_channels: The number of channels of skip and of the result, O.
        embedding_dim, activation, norm_layer, name: As `UNetBlock`.

    Attributes:
        conv: The `Conv2d` after upsampling.
        block: The `UNetBlock`.

    Raises:
        ArgumentError, ShapeError: As `UNetBlock`.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x, skip = gf.placeholder(("batch", 16, 15, 20)), gf.placeholder(("batch", 8, 31, 40))
    ...     gf.models.UNetUp(16, 8)(x, skip).shape
    (batch, 8, 31, 40)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        embedding_dim: int | None = None,
        activation: ActivationOption = "relu",
        norm_layer: NormLayer = nn.BatchNorm2d,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self._in_channels, self._out_channels = in_channels, out_channels
        sizes = 2 * out_channels, out_channels, embedding_dim
        self.block = UNetBlock(*sizes, activation, norm_layer)

    def forward(
        self, x: TensorLike, skip: TensorLike, embedding: TensorLike | None = None
    ) -> Tensor:
        """Enlarge, concatenate and convolve.  [N, C, h, w], [N, O, H, W] -> [N, O, H, W]

        Args:
            x: The images to enlarge.
            skip: The images of the skip connection.
            embedding: A vector for each image, [N, embedding_dim].
        """
        small, large = as_tensor(x), as_tensor(skip)
        check_rank("UNetUp", 2, small)
        check_rank("UNetUp", 2, large)
        found, wanted = large.shape[1], self._out_channels
        message = f"UNetUp: skip has {counted(found, 'channel')}, not {wanted}"
        fix = f"use UNetUp({self._in_channels}, {found})"
        demand(found == wanted, message, {"skip": large}, fix=fix, error=ShapeError)
        enlarged = F.resize(
            small,
            large.shape[2:],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        result: Tensor = self.block(F.concat([large, self.conv(enlarged)], axis=1), embedding)
        return result


class UNet(nn.Module):
    """A network from images to images.  x: [N, in_channels, H, W] -> [N, out_channels, H, W]

    `UNetDown` blocks halve images and double their channels; `UNetUp` blocks do the reverse, with a
    skip connection from the block of the same size. For segmentation the result is logits of each
    position. With `embedding_dim` the model denoises images of a diffusion model. O. Ronneberger et
    al., "U-Net: convolutional networks for biomedical image segmentation", 2015; here images are
    padded, so that they keep their sizes.

    Args:
        in_channels: The number of channels of x.
        out_channels: The number of channels of the result, such as the number of classes.
        depth: The number of times that images are halved.
        base_channels: The number of channels at full size; each halving doubles them.
        embedding_dim, activation, norm_layer: As `UNetBlock`.
        name: See `Module`.

    Attributes:
        first: The `UNetBlock` at full size.
        down: The `UNetDown` blocks, a `ModuleList`.
        up: The `UNetUp` blocks, a `ModuleList`.
        last: The `Conv2d` of 1 × 1 that makes the result.

    Raises:
        ArgumentError: A size is no int or below 1, or activation or norm_layer is no function; in a
            call: there is a vector and no embedding_dim, or the other way round.
        ShapeError: In a call: x has other dims or channels, or is too small to be halved so often.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.UNet(3, 2, depth=2, base_channels=8)
    ...     model(gf.placeholder(("batch", 3, "height", "width"))).shape
    (batch, 2, height, width)
    """

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 1,
        depth: int = 4,
        base_channels: int = 64,
        *,
        embedding_dim: int | None = None,
        activation: ActivationOption = "relu",
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        levels = checked_size("UNet", "depth", depth)
        message = f"UNet: depth={levels} would halve images more than {_MOST_HALVINGS} times"
        demand(levels <= _MOST_HALVINGS, message, fix="use depth=4")
        width = checked_size("UNet", "base_channels", base_channels)
        classes = checked_size("UNet", "out_channels", out_channels)
        options = embedding_dim, activation, norm_layer
        self.first = UNetBlock(in_channels, width, *options)
        self.down = nn.ModuleList(
            UNetDown(width << level, width << level + 1, *options) for level in range(levels)
        )
        self.up = nn.ModuleList(
            UNetUp(width << level + 1, width << level, *options)
            for level in reversed(range(levels))
        )
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: TensorLike, embedding: TensorLike | None = None) -> Tensor:
        """Compute images.  x: [N, in_channels, H, W] -> [N, out_channels, H, W]

        Args:
            x: Images.
            embedding: A vector for each image, [N, embedding_dim].
        """
        tensor = as_tensor(x)
        self._check_size(tensor)
        check_embedding("UNet", self.first.projection is not None, embedding)
        levels = [self.first(tensor, embedding)]
        for down in self.down:
            levels.append(down(levels[-1], embedding))
        y = levels.pop()
        for up in self.up:
            y = up(y, levels.pop(), embedding)
        result: Tensor = self.last(y)
        return result

    def _check_size(self, x: Tensor) -> None:
        """Demand that something is left of images after all halvings."""
        check_rank("UNet", 2, x)
        smallest = min([size for size in x.shape[2:] if isinstance(size, int)], default=None)
        least = 1 << len(self.down)
        if smallest is not None:
            message = f"UNet: x has a side of {counted(smallest, 'element')}, and depth="
            message += f"{len(self.down)} needs {least}"
            fix = f"use depth={max(1, smallest.bit_length() - 1)}"
            demand(smallest >= least, message, {"x": x}, fix=fix, error=ShapeError)
