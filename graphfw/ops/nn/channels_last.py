"""Convolutions of images that are channels-last: the channels of a position side by side.

Nobody writes these ops, and nothing differentiates them: the CuPy executor makes them of `conv` and
`conv_weight`, after all other passes (`runtime/cupy_executor/convolution/channels_last.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from graphfw.ir.op import NONDIFF, Case, Cost, bad, ok, op
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.fusible import FusibleProduct
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight, Correlation

_PLAIN: dict[str, Any] = {
    "before": (1,),
    "strides": (2,),
    "dilations": (1,),
    "input_dilations": (1,),
}
_FLAT: dict[str, Any] = {"before": (1, 1), "strides": (2, 1), "dilations": (2, 1)}


def pixels_last(rank: int) -> tuple[int, ...]:
    """Return by which axes images of a rank are channels-last: [N, C, *S] -> [N, *S, C].

    >>> pixels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def channels_second(rank: int) -> tuple[int, ...]:
    """Return by which axes they are channels-first again: [N, *S, C] -> [N, C, *S].

    >>> channels_second(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


class PixelCorrelation(Correlation):
    """The base of both: the channels are the last dim of all operands and of the result.

    Attributes:
        plain: The op that is the same of images [N, C, *S].
    """

    plain: ClassVar[type[Correlation]]
    vjp = NONDIFF

    @property
    def by_channel(self) -> Correlation:
        """The same of images [N, C, *S]."""
        return self.plain(*self.values)

    def shape(self, *shapes: Shape) -> Shape:
        made: Shape = self.by_channel.shape(*[_second(shape) for shape in shapes])
        return _last(made)

    def eval(self, xp: Any, *arrays: Any) -> Any:
        made = self.by_channel.eval(xp, *[xp.moveaxis(x, -1, 1) for x in arrays])
        return xp.moveaxis(made, 1, -1)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        made, *given = [TensorType(x.dtype, _second(x.shape)) for x in (*outputs, *inputs)]
        return self.by_channel.cost((made,), *given)


@op("pixel_conv")
class PixelConv(PixelCorrelation, FusibleProduct):
    """`conv` channels-last.  x: [N, *S, C]  weight: [O, *K, C/G]  ->  [N, *positions, O]"""

    plain = Conv
    labels = Conv.labels

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 7, 3]", "float32[4, 3, 3]", output_sizes=(3,), **_PLAIN)
        fields = {"output_sizes": (3, 4), "input_dilations": (1, 2), "groups": 2, **_FLAT}
        yield ok("float32[2, 6, s, 4]", "float32[6, 2, 3, 2]", **fields)
        fields |= {"output_sizes": (2, 1), "input_dilations": (1, 1), "groups": 3}
        yield ok("bfloat16[1, 3, 2, 3]", "bfloat16[6, 2, 3, 1]", **fields)
        yield bad(
            "float32[2, 5]", "float32[4, 3, 3]", output_sizes=(3,), **_PLAIN, match="3 dims, not 2"
        )


@op("pixel_conv_weight")
class PixelConvWeight(PixelCorrelation):
    """`conv_weight` channels-last.  x: [N, *S, C]  y: [N, *P, O]  ->  [O, *positions, C/G]"""

    plain = ConvWeight
    labels = ConvWeight.labels

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 7, 3]", "float32[n, 3, 4]", output_sizes=(3,), **_PLAIN)
        fields = {"output_sizes": (2, 3), "input_dilations": (1, 2), "groups": 2, **_FLAT}
        yield ok("float32[2, 6, 5, 4]", "float32[2, 3, 4, 6]", **fields)


def _last(shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1])


def _second(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])
