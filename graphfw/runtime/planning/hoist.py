"""Values made once for many runs: of constants, and of variables that keep their contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from graphfw.ir.constants import constant_array
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Item, ReferenceStep, Step, Storage
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.planning.schedule import written

_SMALL = 1 << 20
"""The number of bytes that may always be kept."""

_GROWS = 2
"""More may be kept if it is at most so many times as large as what it is made of: it takes memory
for good, and what spreads out a few numbers is made anew in less time than it is read. Of numbers
in dtypes for storage it may not be larger: who chooses these wants them to stay small."""


class HoistedSteps(NamedTuple):
    """Steps, divided.

    Attributes:
        steps: What is done once, in order; each as late as those allow that need it.
        kept: What the rest reads of it.
        rest: What is done in each run.
    """

    steps: Sequence[Step]
    kept: Sequence[Storage]
    rest: Sequence[Item]


def hoisted(
    items: Sequence[Item],
    storage_of: Callable[[Tensor], Storage],
    fixed: Collection[Tensor],
    wanted: Collection[Storage],
    may_hoist: Callable[[Step], bool],
) -> HoistedSteps:
    """Find the steps that make the same in each run.

    Args:
        items: The steps, each after those whose results it reads.
        storage_of: Where the inputs of a node outside of native code lie.
        fixed: The variables whose contents runs don't change.
        wanted: What each run makes for itself, since it is handed out.
        may_hoist: Whether the executor can hoist a step.
    """
    candidates = [one for one in items if isinstance(one, Step) and may_hoist(one)]
    steps = [one for one in candidates if _can_wait_for(one, wanted)]
    makers = Counter([storage for item in items for storage in written(item)])
    while True:
        known: set[Storage] = {*fixed}
        missing = Counter(makers)
        found: list[Step] = []
        for step in steps:
            reads = _read_by(step)
            is_known = all([s in known or _is_constant(s) for s in reads])
            if is_known and (step.prepacks or is_worth_hoisting(reads, written(step))):
                found.append(step)
                missing.subtract(written(step))
                known.update([s for s in written(step) if not missing[s]])
        # Where several write ranges of one storage, all of them or none.
        halves = {step for step in found if any([missing[s] for s in written(step)])}
        if not halves:
            break
        steps = [step for step in steps if step not in halves]
    rest = [item for item in items if item not in {*found}]
    read = {s for item in rest if isinstance(item, Step) for s in item.operands}
    nodes = [item.node for item in rest if isinstance(item, ReferenceStep)]
    read |= {storage_of(tensor) for node in nodes for tensor in node.inputs}
    made = dict.fromkeys([storage for step in found for storage in written(step)])
    return HoistedSteps(_late(found), [storage for storage in made if storage in read], rest)


def _can_wait_for(step: Step, wanted: Collection[Storage]) -> bool:
    """Return whether a step is the same whenever it is done, but for what it reads."""
    is_free = not (step.can_fail or step.nonzero or step.after)
    sizes = [*step.params, *[storage.size for storage in step.operands]]
    are_known = all([isinstance(size, int) for size in sizes])
    return is_free and are_known and not any([s in wanted for s in written(step)])


def _read_by(step: Step) -> list[Storage]:
    pairs = zip(step.operands, step.written, strict=True)
    return [storage for storage, is_new in pairs if not is_new]


def _is_constant(storage: Storage) -> bool:
    return isinstance(storage, Tensor) and constant_array(storage) is not None


def is_worth_hoisting(reads: Iterable[Storage], writes: Iterable[Storage]) -> bool:
    """Return whether a constant result is kept: it is small beside the operands.

    Args:
        reads: What it is made of, of known sizes.
        writes: What it is, likewise.
    """
    sources, results = {*reads}, {*writes}
    read, made = [sum([known_bytes(s) for s in some]) for some in (sources, results)]
    grows = 1 if any([s.dtype.is_storage for s in sources]) else _GROWS
    return made <= max(_SMALL, grows * read)


def known_bytes(storage: Storage) -> int:
    """Return the bytes of a storage whose size is known."""
    return bytes_at(storage, {})


def _late(steps: Sequence[Step]) -> list[Step]:
    """Return steps in an order in which what they leave to others is soon used up."""
    makers: dict[Storage, list[Step]] = {}
    for step in steps:
        for storage in written(step):
            makers.setdefault(storage, []).append(step)
    index_of = {step: number for number, step in enumerate(steps)}
    needed: dict[Step, int] = {}
    for step in reversed(steps):
        needed.setdefault(step, index_of[step])
        for storage in _read_by(step):
            for maker in makers.get(storage, ()):
                needed[maker] = min(needed.get(maker, len(steps)), needed[step])
    return sorted(steps, key=lambda step: (needed[step], index_of[step]))
