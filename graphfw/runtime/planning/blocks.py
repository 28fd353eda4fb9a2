"""The arena's blocks: which storages share one, and when each is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.planning.arena import Block
from graphfw.runtime.planning.schedule import Level, Lifetime
from graphfw.utils.records import record


@record(eq=False)
class Memory:
    """The blocks of an arena.

    Attributes:
        block_of: For each storage in the arena the number of its block.
        blocks: When each block is needed.
        nbytes: The blocks' bytes.
        homes: For storages that lie in the memory of an output, which is written over them, that
            output.
    """

    block_of: Mapping[Storage, int]
    blocks: Sequence[Block]
    nbytes: Sequence[DimLike]
    homes: Mapping[Storage, Storage]


def allocate(
    levels: Sequence[Level],
    lifetimes: Mapping[Storage, Lifetime],
    elsewhere: Container[Storage],
    storage_of: Callable[[Tensor], Storage],
    outputs: Container[Storage] = (),
) -> Memory:
    """Give each storage of the arena a block: its own, or that of an operand it may overwrite.

    What an output may overwrite is in the output's memory, not in the arena.

    Args:
        levels: The steps.
        lifetimes: When each storage that they write is needed.
        elsewhere: Those of them that are not in the arena.
        storage_of: The storage of an input of a node outside of native code.
        outputs: Those elsewhere in whose memory others may lie before.
    """
    heirs = _heirs(levels, lifetimes, elsewhere, storage_of, outputs)
    homes: dict[Storage, Storage] = {}
    for heir in [heir for heir in heirs if heir in outputs]:
        dead = heirs.get(heir)
        while dead is not None:
            homes[dead] = heir
            dead = heirs.get(dead)
    block_of: dict[Storage, int] = {}
    blocks: list[Block] = []
    sizes: list[DimLike] = []
    for storage, (first, last) in sorted(lifetimes.items(), key=lambda entry: entry[1].first):
        if storage in elsewhere or storage in homes:
            continue
        dead = heirs.get(storage)
        if dead is None:
            block_of[storage] = len(blocks)
            blocks.append(Block(first, last))
            sizes.append(nbytes(storage))
        else:
            number = block_of[storage] = block_of[dead]
            blocks[number] = Block(blocks[number].first, last)
    return Memory(block_of, blocks, sizes, homes)


def _heirs(
    levels: Sequence[Level],
    lifetimes: Mapping[Storage, Lifetime],
    elsewhere: Container[Storage],
    storage_of: Callable[[Tensor], Storage],
    outputs: Container[Storage],
) -> dict[Storage, Storage]:
    """Find what may be written over an operand that nobody else reads then or later."""
    heirs: dict[Storage, Storage] = {}
    for number, level in enumerate(levels):
        readers = Counter([s for step in level.steps for s in step.operands])
        readers.update([storage_of(t) for node in level.nodes for t in node.inputs])
        taken: set[Storage] = set()
        for step in level.steps:
            for new, old in step.in_place:
                heir, dead = step.operands[new], step.operands[old]
                if (
                    (heir in outputs or heir not in elsewhere)
                    and dead not in elsewhere
                    and dead in lifetimes
                    and lifetimes[dead].last == number
                    and lifetimes[heir].first == number
                    and readers[dead] == 1
                    and nbytes(heir) == nbytes(dead)
                    and (heir not in outputs or heir.dtype is dead.dtype)
                    and heir not in heirs
                    and dead not in taken
                ):
                    heirs[heir] = dead
                    taken.add(dead)
    return heirs


def nbytes(storage: Storage) -> DimLike:
    """Return how many bytes a storage takes."""
    return storage.size * storage.dtype.itemsize


def bytes_at(storage: Storage, sizes: Mapping[str, int]) -> int:
    """Return how many bytes a storage takes at known sizes."""
    return evaluate(storage.size, sizes) * storage.dtype.itemsize
