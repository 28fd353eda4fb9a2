"""Attention and its gradient by cuDNN.

Operands are [B, H, T, D] with any strides; several heads of queries may share one of keys or
values. cuDNN's `stats` are the `lse` of `attention`: the natural log of the sum of exp(score).
Masks that are operands stay with graphfw's own kernels. They make scores of about -1e9, whose log
one float32 does not hold, and cuDNN has no output for `rest`, which holds the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, permutations
from math import gcd, prod
from typing import Any, NamedTuple

from graphfw.ir.dtype import DType, float32
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.attention.axes import joined
from graphfw.runtime.kernels.steps import Step

FORWARD = ("q", "k", "v", "out", "lse")
BACKWARD = ("q", "k", "v", "out", "lse", "d_out", "d_q", "d_k", "d_v")
"""The operands, in order."""

_OF_KEYS = frozenset(["k", "v", "d_k", "d_v"])
_OF_VALUES = frozenset(["v", "out", "d_out", "d_v"])

_SINCE = 91501
"""cuDNN 9.15.1; before, in CUDA graphs gradients read beyond their operands where the number of
keys is no multiple of 128: release notes of nvidia-cudnn-frontend 1.16."""

_UNIT = 8
"""The unit of strides and widths, in elements: 16 bytes are copied at a time."""

_TILE = 64
"""See `CudnnAttention._smaller`."""

_MOST = 65535
"""The most heads, and batches of heads: the blocks along the second axis of a grid."""


@dataclass(frozen=True)
class CudnnAttention(cudnn.CudnnCode):
    """Attention or its gradient, by cuDNN if that has a way at given sizes.

    Operands: see `FORWARD` and `BACKWARD`. Params: the numbers of queries and of keys, the leading
    dims; then of each operand its offset, the distance between rows, and the strides along the
    leading dims.

    Attributes:
        is_gradient: Whether it is the gradient.
        dtype: The dtype of the operands except lse, which is float32.
        width: The width of queries and keys.
        value_width: The width of values.
        lead: The number of leading dims.
        causal: Whether query i sees keys 0 to i only.
        scale: The factor of the scores.
        epilogue: See `CudnnCode`.
        fallback: See there.
    """

    is_gradient: bool
    dtype: DType
    width: int
    value_width: int
    lead: int
    causal: bool
    scale: float
    epilogue: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    fallback: tuple[Step, ...] = field(default=(), compare=False, repr=False)

    @property
    def title(self) -> str:
        return "attention (backward)" if self.is_gradient else "attention"

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return BACKWARD if self.is_gradient else FORWARD

    @property
    def made(self) -> tuple[str, ...]:
        """The names of the outputs, in the order in which cuDNN returns them."""
        return BACKWARD[-3:] if self.is_gradient else FORWARD[-2:]

    def dtype_of(self, name: str) -> DType:
        """Return the dtype of an operand."""
        return float32 if name == "lse" else self.dtype

    def request(self, params: Sequence[int]) -> cudnn.CudnnRequest | str:
        operands = _operand_descriptors(self, iter(params))
        if isinstance(operands, str):
            return operands
        return self._asked(operands, (1, 1))._replace(smaller=tuple(self._smaller(operands)))

    def _asked(
        self, operands: Mapping[str, _OperandStrides], slices: tuple[int, int]
    ) -> cudnn.CudnnRequest:
        """Return the cuDNN request for one slice of the batches and of the heads."""
        offsets, begins, slice_views = [], [], {}
        for name, one in operands.items():
            item, (batch, head, row, _) = self.dtype_of(name).itemsize, one.strides
            batches, heads, count, width = one.shape
            sizes = batches // slices[0], heads // slices[1]
            axes = _AttentionAxis(sizes[0], batch), _AttentionAxis(sizes[1], head), count
            slice_views[name] = _lying(0, axes, row, width)
            offsets.append(one.offset * item)
            begins.append(
                [
                    (i * sizes[0] * batch + j * sizes[1] * head) * item
                    for i in range(slices[0])
                    for j in range(slices[1])
                ]
            )
        return cudnn.CudnnRequest(
            graph=partial(_graph, self, slice_views),
            offsets=tuple(offsets),
            since=_SINCE,
            slices=tuple(zip(*begins, strict=True)) if slices != (1, 1) else (),
            kept=f"{self.key} {slice_views}",
        )

    def _smaller(self, operands: Mapping[str, _OperandStrides]) -> Iterator[cudnn.CudnnRequest]:
        """Yield requests for the case that all takes too much memory: as few slices as possible.

        On a Hopper GPU a gradient that is the same in each run keeps those of the scores, in 16
        bits, for keys and queries in tiles of 64; besides, for each head those of keys and values
        that it shares.
        """
        if not self.is_gradient:
            return
        (batches, heads, queries, _), keys = operands["q"].shape, operands["k"].shape[2]
        scores = prod([-(-count // _TILE) * _TILE for count in (queries, keys)])
        each = 2 * (scores + keys * (self.width + self.value_width))
        most = gcd(operands["k"].shape[1], operands["v"].shape[1])
        pairs = [(n, 1) for n in range(2, batches + 1) if batches % n == 0]
        pairs += [(batches, n) for n in range(2, most + 1) if most % n == 0]
        for pair in pairs:
            if batches * heads // prod(pair) * each < cudnn.WORKSPACE:
                asked = self._asked(operands, pair)
                begins = [begin for offsets in asked.slices for begin in offsets]
                if not any([begin % cudnn.ALIGNED for begin in begins]):
                    yield asked
                    return


class _OperandStrides(NamedTuple):
    """The layout of an operand, in elements: [B, H, T, D], of lse [B, H, T, 1]."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _operand_descriptors(
    code: CudnnAttention, params: Iterator[int]
) -> dict[str, _OperandStrides] | str:
    """Return the strides of each operand, or why cuDNN does not take them."""
    queries, keys = next(params), next(params)
    lead = [next(params) for _ in range(code.lead)]
    if 0 in (queries, keys, *lead):
        return "there is nothing to attend to"
    if queries == 1:
        return "there is one query a head"
    if code.width % _UNIT or code.value_width % _UNIT:
        return f"the heads' width is no multiple of {_UNIT}"
    numbers = {name: [next(params) for _ in range(2 + code.lead)] for name in code.operands}
    split = _split(lead, {name: own[2:] for name, own in numbers.items()})
    if split is None:
        return "the heads do not lie in an order that cuDNN takes"
    operands = {}
    for name, (offset, row, *_) in numbers.items():
        count = keys if name in _OF_KEYS else queries
        width = code.value_width if name in _OF_VALUES else code.width
        one = _lying(offset, (*split[name], count), row, 1 if name == "lse" else width)
        if one.offset * code.dtype_of(name).itemsize % cudnn.ALIGNED:
            return f"{name} begins where no {cudnn.ALIGNED} bytes begin"
        unit = 1 if name == "lse" else _UNIT
        if any([stride <= 0 or stride % unit for stride in one.strides[:3]]):
            return f"the rows of {name} do not lie as cuDNN takes them"
        operands[name] = one
    return operands


class _AttentionAxis(NamedTuple):
    """Batches or heads of an operand."""

    size: int
    stride: int


def _lying(
    offset: int, axes: tuple[_AttentionAxis, _AttentionAxis, int], row: int, width: int
) -> _OperandStrides:
    """Return the layout of an operand; dims of one element get contiguous strides."""
    batches, heads, count = axes
    row = row if count > 1 else width
    head = heads.stride if heads.size > 1 else count * row
    batch = batches.stride if batches.size > 1 else heads.size * head
    shape = (batches.size, heads.size, count, width)
    return _OperandStrides(offset, shape, (batch, head, row, 1))


def _split(
    lead: Sequence[int], along: Mapping[str, Sequence[int]]
) -> dict[str, tuple[_AttentionAxis, _AttentionAxis]] | None:
    """Return the batches and the heads of each operand; None if strides can't describe them.

    Heads of keys or values may be fewer: neighbours share one, and its gradient is the sum.

    Args:
        lead: The leading dims.
        along: The strides of each operand along them.
    """
    wide = [number for number, dim in enumerate(lead) if dim != 1]
    dims = [lead[number] for number in wide]
    strides = [[own[number] for number in wide] for own in along.values()]
    if len(dims) > 2:
        dims, strides = joined(dims, strides)
    if len(dims) > 4:
        return None
    for order in permutations(range(len(dims))):
        for cut in (1, 0, *range(2, len(dims) + 1)):
            found: dict[str, tuple[_AttentionAxis, _AttentionAxis]] = {}
            for name, own in zip(along, strides, strict=True):
                batches, heads = [
                    [_AttentionAxis(dims[axis], own[axis]) for axis in axes]
                    for axes in (order[:cut], order[cut:])
                ]
                pair = _one(batches), _shared(heads) if name in _OF_KEYS else _one(heads)
                if pair[0] is None or pair[1] is None or max(pair[0].size, pair[1].size) > _MOST:
                    break
                found[name] = pair[0], pair[1]
            else:
                pairs = [(found[name], found.get(f"d_{name}", found[name])) for name in ("k", "v")]
                if all([x[1].size == gradient[1].size for x, gradient in pairs]):
                    return found
    return None


def _one(axes: Sequence[_AttentionAxis]) -> _AttentionAxis | None:
    """Return several axes joined, if the result has one stride other than 0."""
    if not axes:
        return _AttentionAxis(1, 1)
    apart = [a.stride != b.stride * b.size for a, b in pairwise(axes)]
    if axes[-1].stride == 0 or any(apart):
        return None
    return _AttentionAxis(prod([axis.size for axis in axes]), axes[-1].stride)


def _shared(axes: Sequence[_AttentionAxis]) -> _AttentionAxis | None:
    """Return axes of heads joined, where neighbours may share one."""
    different = [*axes]
    while different and different[-1].stride == 0:
        different.pop()
    return _one(different)


def _graph(
    code: CudnnAttention,
    operands: Mapping[str, _OperandStrides],
    library: Any,
    where: Mapping[str, Any],
) -> Any:
    """Describe attention or its gradient."""
    kinds = library.data_type
    kind_of = {name: getattr(kinds, cudnn.KINDS[code.dtype_of(name).name]) for name in operands}
    graph = library.pygraph(
        io_data_type=kind_of["q"],
        intermediate_data_type=kinds.FLOAT,
        compute_data_type=kinds.FLOAT,
        **where,
    )
    number = {name: n for n, name in enumerate(code.operands, 1)}
    tensors = {
        name: graph.tensor(
            name=name,
            dim=list(one.shape),
            stride=list(one.strides),
            data_type=kind_of[name],
            uid=number[name],
        )
        for name, one in operands.items()
        if name not in code.made
    }
    options = {"attn_scale": code.scale}
    if code.causal:
        options["diagonal_alignment"] = library.diagonal_alignment.TOP_LEFT
        options["diagonal_band_right_bound"] = 0
    if code.is_gradient:
        q, k, v, out, lse, d_out = tensors.values()
        made = graph.sdpa_backward(
            q=q,
            k=k,
            v=v,
            o=out,
            dO=d_out,
            stats=lse,
            use_deterministic_algorithm=True,
            **options,
        )
    else:
        made = graph.sdpa(**tensors, generate_stats=True, **options)
    for name, tensor in zip(code.made, made, strict=True):
        tensor.set_output(True).set_data_type(kind_of[name]).set_uid(number[name])
        tensor.set_dim(list(operands[name].shape)).set_stride(list(operands[name].strides))
    return graph
