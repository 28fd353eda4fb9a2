"""The kinds of attention kernels: the arguments of their template, with the tiles."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import static
from graphfw.ir.dtype import DType, bfloat16, float16, float32, float64
from graphfw.ir.tensor import Node
from graphfw.ops.nn.attention_backward import AttentionBackward
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.runtime.cupy_executor.codegen import NOTHING, HandwrittenCode, Launch, Variant
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.limits import Precision

Role: TypeAlias = Literal["forward", "queries", "keys"]
"""The result of a kernel: attention's, the gradient of queries, or those of keys and values."""

WIDEST = 256
"""The greatest width of heads."""

_FOLDER = Path(__file__).parent
_TEXT = "\n".join(
    [
        path.read_text("utf-8")
        for path in (
            _FOLDER.parent / "tensor_cores.cuh",
            *[_FOLDER / f"{name}.cuh" for name in ("engines", "common", "forward", "backward")],
        )
    ]
)

_FUNCTIONS: dict[Role, str] = {
    "forward": "gf_attention",
    "queries": "gf_attention_grad_of_queries",
    "keys": "gf_attention_grad_of_keys",
}

_SHARED_PER_WARP = 20 << 10
"""With so many bytes 8 warps fit on a multiprocessor that has 164 KB, as that of an A100; while
those of one block wait others compute."""

_SHARED = 99 << 10
"""The shared memory of a block on any GPU of compute capability 8.0 or newer."""

_REGISTERS = 192
"""The most of a thread's 255 registers for sums; others are operands and addresses."""

_BUSY = 512
"""With so many warps a GPU is busy; where there are fewer, they have fewer rows, or share them."""

_PIECE = 256
"""The least keys of a block, where blocks share rows."""


def form_of(node: Node) -> tuple[bool, float]:
    """Return whether attention or its gradient is causal, and the factor of the scores."""
    assert isinstance(node.op, Attention | AttentionGrad | AttentionBackward)
    width, scale = static(node.inputs[0].shape[-1]), node.op.scale
    return node.op.causal, 1 / math.sqrt(width) if scale is None else scale


class BlockTiles(NamedTuple):
    """The tiles that a block computes at a time.

    Attributes:
        warps: The number of warps of a block.
        split: The number of warps that share rows; each has a slice of the results' columns.
        m: The rows of a warp, in units of 16.
        n: The columns of scores that are computed at a time, in units of 8.
    """

    warps: int
    split: int
    m: int
    n: int

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return 16 * self.m * self.warps // self.split

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps

    @property
    def name(self) -> str:
        """The name of the variant with these tiles."""
        return f"{self.rows}x{8 * self.n}"


_TILES = [
    BlockTiles(warps, split, m, n)
    for split, warps, m, n in (
        *((1, 4, 2, 8), (1, 4, 2, 4), (1, 4, 1, 8), (1, 4, 1, 4), (1, 4, 1, 2)),
        *((2, 8, 1, 4), (2, 8, 1, 2), (2, 4, 1, 4), (2, 4, 1, 2), (2, 2, 1, 2), (4, 4, 1, 2)),
    )
]
"""The best first: 32 rows a warp read operands half as often as 16 do, and many columns at a time
mean few waits."""

_OF_FEW = [
    *[BlockTiles(warps=1, split=1, m=1, n=n) for n in (8, 4, 2)],
    *[BlockTiles(warps=2, split=2, m=1, n=n) for n in (4, 2)],
]
"""Tiles for few queries, as a decoder has: no warp is without any."""


class Mask(NamedTuple):
    """The layout of a mask.

    Attributes:
        dtype: The dtype of its elements.
        has_rows: Whether queries may have rows of their own.
        in_rows: Whether rows are contiguous.
    """

    dtype: DType
    has_rows: bool
    in_rows: bool


@dataclass(frozen=True)
class KernelConfig:
    """The kind of a kernel.

    Attributes:
        role: The kernel's role.
        dtype: The dtype of the operands.
        precision: See `Options`.
        width: The width of queries and keys.
        value_width: The width of values.
        lead: The number of leading dims.
        causal: Whether query i sees keys 0 to i only.
        scale: The factor of the scores.
        mask: The mask, or None.
    """

    role: Role
    dtype: DType
    precision: Precision
    width: int
    value_width: int
    lead: int
    causal: bool
    scale: float
    mask: Mask | None

    @property
    def wide(self) -> DType:
        """The dtype of the computation."""
        return float64 if self.dtype is float64 else float32

    @property
    def views(self) -> int:
        """The number of operands."""
        return {"forward": 6, "queries": 8, "keys": 9}[self.role] + (self.mask is not None)

    @cached_property
    def tiles(self) -> tuple[BlockTiles, ...]:
        """The best tiles that fit, then those with fewer rows.

        The forward kernel's last ones are for few queries.
        """
        narrow = [tiles for tiles in _TILES if tiles.m == 1]
        few = _OF_FEW if self.role == "forward" else []
        found = [self._best(among) for among in (_TILES, narrow, few)]
        return tuple(dict.fromkeys([tiles for tiles in found if tiles is not None]))

    def _best(self, among: Sequence[BlockTiles]) -> BlockTiles | None:
        fitting = [tiles for tiles in among if self._fits(tiles)]
        beside_others = [t for t in fitting if self.shared(t) <= _SHARED_PER_WARP * min(t.warps, 4)]
        return next(iter(beside_others or fitting), None)

    def _fits(self, tiles: BlockTiles) -> bool:
        # A thread copies 16 bytes of a row, at most.
        widest = max(self._padded(tiles)) * self.dtype.itemsize
        has_room = self._registers(tiles) <= _REGISTERS and self.shared(tiles) <= _SHARED
        return has_room and widest <= 16 * tiles.threads

    def shared(self, tiles: BlockTiles) -> int:
        """Return the bytes of shared memory of a block with these tiles."""
        pad = 16 // self.dtype.itemsize
        one, other = [width + pad for width in self._padded(tiles)]
        columns = 8 * tiles.n
        if self.role == "forward":
            elements = tiles.rows * one + columns * (one + other)
        else:
            elements = (tiles.rows + 2 * columns) * (one + other)
        numbers = 6 * columns if self.role == "keys" else 0
        return elements * self.dtype.itemsize + numbers * self.wide.itemsize

    def code(self) -> HandwrittenCode:
        """Return the kernel; its operands and integers are those of `steps`."""
        return HandwrittenCode(
            name=f"attention_{self.role}",
            text=_TEXT,
            buffers=self._buffers,
            params=3 + self.lead + self.views * (2 + self.lead),
            functions=tuple([self._variant(tiles) for tiles in self.tiles]),
            launching=self.launch,
        )

    def _variant(self, tiles: BlockTiles) -> Variant:
        mask = ("gf_no_mask", 0, 0)
        if self.mask is not None:
            mask = (memory(self.mask.dtype), int(self.mask.has_rows), int(self.mask.in_rows))
        (scale,) = struct.unpack("<Q", struct.pack("<d", self.scale))
        arguments = (
            *(self._engine, self.width, self.value_width, self.lead, int(self.causal)),
            *(*mask, f"{scale:#x}ull", *tiles),
        )
        kind = f"gf_attention_kind<{', '.join(map(str, arguments))}>"
        # Each block has 1 KB that is CUDA's own.
        together = min(4 - tiles.m, (163 << 10) // (self.shared(tiles) + (1 << 10)))
        return Variant(tiles.name, f"{_FUNCTIONS[self.role]}<{kind}>", tiles.threads, together)

    def launch(self, params: Sequence[int]) -> Launch:
        """Return the launch of the kernel: a block, or several, for some rows of a head."""
        queries, keys = params[:2]
        heads = prod(params[2 : 2 + self.lead])
        rows = keys if self.role == "keys" else queries
        if heads * rows == 0:
            return NOTHING
        grid, tiles = self._chosen(heads, rows)
        pieces = 1
        if self.role == "forward" and tiles.m == 1:
            seen = min(queries, keys) if self.causal else keys
            pieces = max(1, min(-(-_BUSY // (grid * tiles.warps)), seen // _PIECE))
        numbers = (2 + 2 * self._padded(tiles)[1] // 8 // tiles.split) * 2 * tiles.m
        scratch = grid * pieces * tiles.threads * numbers * self.wide.itemsize
        return Launch(
            variant=tiles.name,
            grid=grid,
            pieces=pieces,
            block=(tiles.threads, 1),
            shared=self.shared(tiles),
            scratch=scratch if pieces > 1 else 0,
            counters=grid if pieces > 1 else 0,
            is_wide=False,
        )

    def _chosen(self, heads: int, rows: int) -> tuple[int, BlockTiles]:
        """Return the number of blocks with different rows, and their tiles."""
        grids = [(heads * -(-rows // tiles.rows), tiles) for tiles in self.tiles]
        if self.role == "forward":
            *grids, few = grids
            if rows <= few[1].rows:
                return few
        return next((pair for pair in grids if pair[0] * pair[1].warps >= _BUSY), grids[-1])

    @property
    def _engine(self) -> str:
        if self.dtype in (float16, bfloat16):
            return f"gf_by_tensor_cores<{memory(self.dtype)}>"
        if self.dtype is float32 and self.precision == "high":
            return "gf_by_tf32"
        return f"gf_by_cores<{memory(self.dtype)}>"

    @property
    def _buffers(self) -> tuple[Buffer, ...]:
        mask = () if self.mask is None else (Buffer(self.mask.dtype, False),)
        if self.role == "forward":
            found = [Buffer(self.dtype, i == 3) for i in range(4)]
            return (*found, *[Buffer(self.wide, True)] * 2, *mask)
        inputs = [Buffer(dtype, False) for dtype in [self.dtype] * 4 + [self.wide] * 3]
        outputs = [Buffer(self.dtype, True)] * (2 if self.role == "keys" else 1)
        return (*inputs, *outputs, *mask)

    def _padded(self, tiles: BlockTiles) -> list[int]:
        unit = 16 * tiles.split
        return [-(-width // unit) * unit for width in (self.width, self.value_width)]

    def _registers(self, tiles: BlockTiles) -> int:
        """Return the number of a thread's registers for sums and scores."""
        width, value_width = [padded // 8 // tiles.split for padded in self._padded(tiles)]
        numbers = {
            "forward": value_width + tiles.n,
            "queries": width + 2 * tiles.n,
            "keys": width + value_width + 2 * tiles.n,
        }[self.role]
        return 4 * tiles.m * numbers * self.wide.itemsize // 4
