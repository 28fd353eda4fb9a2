"""cuDNN graphs of a convolution and its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from graphfw.ir.dtype import DType
from graphfw.ir.graph import Graph
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.convolution.cudnn_descriptor import (
    CONVOLUTIONS,
    MADE,
    OPERANDS,
    CudnnConvDescriptor,
    CudnnConvKind,
    Numerics,
    OperandStrides,
    described,
)
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.steps import Step

_NEVER = (
    "FFT",  # its errors are those of the largest element
    "WINOGRAD_TILE_13x13",
)
_WINOGRAD = ("WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6")


def wanted(graph: Graph, options: Options) -> Numerics | None:
    """Return the numerics of convolutions; None if cuDNN is not asked for any."""
    if not any([isinstance(node.op, CONVOLUTIONS) for node in graph.nodes]) or cudnn.why_not():
        return None
    return Numerics(options.matmul_precision or "highest", options.may_use_winograd)


@dataclass(frozen=True)
class CudnnConv(cudnn.CudnnCode):
    """A convolution or a gradient of one, by cuDNN if it has a plan for the sizes.

    Operands: image, filter, response, then what `extras` read, then what else `epilogue` and
    `fallback` read and write. Params: of image, filter and response each the shape, the strides
    and the offset, in elements; then `before`.

    Attributes:
        kind: The output.
        dtype: The dtype of all operands; sums of 16-bit floats are made in float32.
        strides: See `cudnn_descriptor`.
        dilations: See there.
        numerics: The dtypes of the computation.
        by_pixel: Whether images and filters are channels-last.
        extras: The summands of a response, in this order: "residual", an array like it; "bias", a
            value for each channel.
        epilogue: See `CudnnCode`.
        fallback: See there.
    """

    kind: CudnnConvKind
    dtype: DType
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    numerics: Numerics
    by_pixel: bool = False
    extras: tuple[str, ...] = ()
    epilogue: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    fallback: tuple[Step, ...] = field(default=(), compare=False, repr=False)

    @property
    def title(self) -> str:
        name = {"fprop": "conv", "dgrad": "conv (dgrad)", "wgrad": "conv_weight"}[self.kind]
        return " ".join([name, *self.extras, *(["channels-last"] if self.by_pixel else [])])

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands, without those of `epilogue` and `fallback`."""
        return (*OPERANDS, *self.extras)

    def request(self, params: Sequence[int]) -> cudnn.CudnnRequest | str:
        item = self.dtype.itemsize
        window = self.strides, self.dilations
        descriptor = described(params, window, item, by_pixel=self.by_pixel)
        if isinstance(descriptor, str):
            return descriptor
        offsets = [
            one.offset * item for one in (descriptor.image, descriptor.filter, descriptor.response)
        ]
        return cudnn.CudnnRequest(
            partial(_graph, self, descriptor),
            (*offsets, *[0 for _ in self.extras]),
            tuple(_barred(self)),
        )


def _graph(
    code: CudnnConv, descriptor: CudnnConvDescriptor, library: Any, where: Mapping[str, Any]
) -> Any:
    """Describe a convolution; the numbers of its operands are those of the code's, from 1."""
    kinds = library.data_type
    kind = getattr(kinds, cudnn.KINDS[code.dtype.name])
    sums = kinds.DOUBLE if code.dtype.name == "float64" else kinds.FLOAT
    graph = library.pygraph(
        io_data_type=kind, intermediate_data_type=sums, compute_data_type=sums, **where
    )
    number = {name: n for n, name in enumerate(code.operands, 1)}
    lying = {
        "image": descriptor.image,
        "filter": descriptor.filter,
        "response": descriptor.response,
    }
    channels = descriptor.response.shape[1]
    each = (1, channels, *[1 for _ in descriptor.before])
    lying |= {"residual": descriptor.response}
    usual = channels if code.by_pixel else 1
    lying |= {"bias": OperandStrides(0, each, (channels, 1, *[usual for _ in each[2:]]))}

    def operand(name: str) -> Any:
        return graph.tensor(
            name=name,
            dim=list(lying[name].shape),
            stride=list(lying[name].strides),
            data_type=kind,
            uid=number[name],
        )

    window = {
        "pre_padding": descriptor.before,
        "post_padding": descriptor.after,
        "stride": descriptor.strides,
        "dilation": descriptor.dilations,
    }
    if code.kind == "fprop":
        made = graph.conv_fprop(image=operand("image"), weight=operand("filter"), **window)
    elif code.kind == "dgrad":
        made = graph.conv_dgrad(loss=operand("response"), filter=operand("filter"), **window)
    else:
        made = graph.conv_wgrad(image=operand("image"), loss=operand("response"), **window)
    for extra in code.extras:
        made = graph.add(a=made, b=operand(extra))
    name = MADE[code.kind]
    made.set_output(True).set_data_type(kind).set_uid(number[name])
    made.set_dim(list(lying[name].shape)).set_stride(list(lying[name].strides))
    return graph


def _barred(code: CudnnConv) -> list[str]:
    """Return the notes of engines that are not taken."""
    is_wide = not code.dtype.is_low_precision
    barred = [*_NEVER]
    if not (is_wide and code.numerics.winograd):
        barred += _WINOGRAD
    if code.dtype.name == "float32" and code.numerics.precision != "high":
        barred.append("TENSOR_CORE")  # they take TF32
    return barred
