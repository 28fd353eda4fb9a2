"""Layers that rearrange or resize positions: each calls a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import Activation
from graphfw.nn.module import Module
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.nn.resize import resize, scaled_sizes
from graphfw.ops.nn.spatial_arguments import Ints, Padding, spatial_rank


class Unfold(Activation):
    """Lay out what windows see; see `gf.unfold`.  x: [N, C, *S] -> [N, C * K, P]"""

    function = "unfold"

    def __init__(
        self,
        kernel_size: Ints,
        dilation: Ints = 1,
        padding: Padding = 0,
        stride: Ints = 1,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
        )


class Fold(Activation):
    """Add up windows where they are; see `gf.fold`.  x: [N, C * K, P] -> [N, C, *output_size]

    One int for output_size is the height and the width of images.
    """

    function = "fold"

    def __init__(
        self,
        output_size: DimLike | Sequence[DimLike],
        kernel_size: Ints,
        dilation: Ints = 1,
        padding: Padding = 0,
        stride: Ints = 1,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            output_size=output_size if isinstance(output_size, Sequence) else (output_size,) * 2,
            kernel_size=kernel_size,
            dilation=dilation,
            padding=padding,
            stride=stride,
        )


class PixelShuffle(Activation):
    """Exchange channels for positions; see `gf.pixel_shuffle`."""

    function = "pixel_shuffle"

    def __init__(self, upscale_factor: int, *, name: str | None = None) -> None:
        super().__init__(name=name, upscale_factor=upscale_factor)


class PixelUnshuffle(Activation):
    """Exchange positions for channels; see `gf.pixel_unshuffle`."""

    function = "pixel_unshuffle"

    def __init__(self, downscale_factor: int, *, name: str | None = None) -> None:
        super().__init__(name=name, downscale_factor=downscale_factor)


class LocalResponseNorm(Activation):
    """Divide by what the neighbouring channels have; see `gf.local_response_norm`."""

    function = "local_response_norm"

    def __init__(
        self,
        size: int,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, size=size, alpha=alpha, beta=beta, k=k)


_NEAREST: dict[str, dict[str, Any]] = {
    "nearest": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest-exact": {"nearest_mode": "round_prefer_ceil"},
}
_RANKS = {"linear": (1, 2, 3), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}


class Upsample(Module):
    """Resize the spatial dims, as PyTorch's `interpolate` does; see `gf.resize`.

    x: [N, C, *S] -> [N, C, *size]

    Args:
        size: The new size: one, or one for each spatial dim.
        scale_factor: Factors instead: the new sizes are the products, rounded down.
        mode: "nearest", "nearest-exact" (that is what others call nearest), "linear" (or
            "bilinear", "trilinear"), or "bicubic", for images.
        align_corners: Whether the outer elements meet, not their outer edges; for linear and cubic.
        recompute_scale_factor: Whether elements lie where the new sizes say, which are rounded down
            from the products, and not where the factors do.
        antialias: Whether weights spread over all elements that one of the result covers, where it
            becomes smaller; for linear and cubic. The cubic coefficient is -0.5 then, else -0.75.
        name: See `Module`.

    Raises:
        ArgumentError: Not one of size and scale_factor is given, or an option does not fit the
            mode.
        ShapeError: In a call: x has no spatial dim, or not as many as the mode is for.
    """

    def __init__(
        self,
        size: DimLike | Sequence[DimLike] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = False,
        recompute_scale_factor: bool = False,
        antialias: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        one = (size is None) != (scale_factor is None)
        demand(one, "Upsample: give either size or scale_factor", fix="use scale_factor=2")
        demand(
            scale_factor is not None or not recompute_scale_factor,
            "Upsample: recompute_scale_factor is for a scale_factor, and there is none",
            fix="leave it out: sizes alone say where elements lie",
        )
        demand_one_of("Upsample", "mode", mode, (*_NEAREST, *_RANKS))
        plain = not (mode in _NEAREST and (align_corners or antialias))
        message = f"Upsample: align_corners and antialias are not for mode={mode!r}"
        demand(plain, message, fix='use mode="linear"')
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.antialias = align_corners, antialias
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: TensorLike) -> Tensor:
        """Resize.  x: [N, C, *S] -> [N, C, *size]"""
        tensor = as_tensor(x)
        rank = spatial_rank("Upsample", tensor)
        size, scales = self.size, self.scale_factor
        for what, option in (("size", size), ("scale_factor", scales)):
            message = f"Upsample: {what}={option} is not for {rank} spatial dims"
            fits = not isinstance(option, Sequence) or len(option) == rank
            demand(fits, message, {"x": tensor}, fix="give one for each", error=ShapeError)
        if scales is not None and (self.align_corners or self.recompute_scale_factor):
            size, scales = scaled_sizes(tensor, scales), None
        options: dict[str, Any] = {"scales": scales}
        if self.mode in _NEAREST:
            return resize(tensor, size, mode="nearest", **options, **_NEAREST[self.mode])
        fits = rank in _RANKS[self.mode]
        message = f"Upsample: {self.mode} is not for {rank} spatial dims"
        demand(fits, message, {"x": tensor}, fix='use mode="linear"', error=ShapeError)
        if self.align_corners:
            options["coordinate_transformation_mode"] = "align_corners"
        if self.antialias:
            options |= {"antialias": True, "exclude_outside": True, "cubic_coeff_a": -0.5}
        kind = "cubic" if self.mode == "bicubic" else "linear"
        return resize(tensor, size, mode=kind, **options)

    def extra_repr(self) -> str:
        """Return the text of the options."""
        size = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        options = ("align_corners", "recompute_scale_factor", "antialias")
        said = [f", {option}=True" for option in options if getattr(self, option)]
        return f"{size}, mode={self.mode!r}{''.join(said)}"
