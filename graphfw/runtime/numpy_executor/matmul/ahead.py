"""Left operands that cells compute, some rows at a time, before they multiply them."""

from __future__ import annotations

from graphfw.ir.dim import DimLike
from graphfw.runtime.kernels.steps import Epilogue, Prologue, Storage
from graphfw.runtime.numpy_executor.matmul.code import Operands
from graphfw.runtime.numpy_executor.matmul.epilogue import Region
from graphfw.runtime.numpy_executor.matmul.plan import Cut

_MOST_BYTES = 1 << 20
"""What rows that are computed at a time may take: they stay in the L2 cache."""

LEAST_CELLS = 8
"""With fewer, threads would wait that could compute elements."""


def pays(how: Cut, members: DimLike, k: DimLike, itemsize: int) -> bool:
    """Whether cells had better compute the left operand: see `lowering.computes_left`."""
    if how.splits != 1 or how.column_blocks != 1 or not isinstance(k, int):
        return False
    cells = (members + how.group - 1) // how.group * how.row_blocks
    enough = isinstance(cells, int) and cells >= LEAST_CELLS
    return enough and how.chunk_rows * k * itemsize <= _MOST_BYTES


def scratch_of(how: Cut, k: DimLike, itemsize: int) -> DimLike:
    """Return how many bytes rows take that are computed at a time."""
    return (how.chunk_rows * k * itemsize + 63) // 64 * 64


def source_of(prologue: Prologue) -> Storage:
    """Return what stands for the left operand, which has no memory: the first that is read."""
    return next(storage for storage in prologue.operands if storage is not None)


def apart(epilogue: Epilogue | None, prologue: Prologue) -> Epilogue | None:
    """Return an epilogue that writes over nothing that a prologue reads."""
    if epilogue is None:
        return None
    read = {storage for storage in prologue.operands if storage is not None}
    pairs = [pair for pair in epilogue.in_place if epilogue.operands[pair[1]] not in read]
    return epilogue._replace(in_place=tuple(pairs))


def with_prologue(operands: Operands, prologue: Prologue) -> tuple[Operands, Region]:
    """Return the operands of a step with those of a prologue, and that for its cells."""
    storages, written, region, in_place = operands
    numbers = []
    for storage in prologue.operands:
        numbers.append(-1 if storage is None else len(storages))
        if storage is not None:
            storages, written = (*storages, storage), (*written, False)
    before = Region(prologue.kernel, tuple(numbers))
    return Operands(storages, written, region, in_place), before
