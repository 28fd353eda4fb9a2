"""The arrays that a kernel reads and may write its results over."""

from __future__ import annotations

from collections.abc import Mapping

from graphfw.runtime.kernels.elements import (
    Element,
    ElementAddress,
)
from graphfw.runtime.kernels.lower_loops import Draft, Stored, draft_exprs, roots_of
from graphfw.runtime.kernels.steps import Storage


def in_place(
    draft: Draft, buffers: Mapping[tuple[Storage, bool], int]
) -> tuple[tuple[int, int], ...]:
    """Find what may be written over: read only where it is written, and not afterwards.

    Args:
        draft: Of the kernel.
        buffers: The numbers of the kernel's buffers, by storage and whether they are written.

    Returns:
        Pairs of a buffer that is written and one that is read; see `Step.in_place`.
    """
    passes = [draft.before, *draft.loops, draft.after]
    addresses: dict[Storage, set[ElementAddress]] = {}
    last: dict[Storage, int] = {}
    packed: set[Storage] = set()
    written: list[tuple[int, ElementAddress]] = []
    for number, statements in enumerate(passes):
        roots = [root for s in statements for root in roots_of(s)]
        for expr in draft_exprs(roots):
            if isinstance(expr, Element):
                addresses.setdefault(expr.address.storage, set()).add(expr.address)
                last[expr.address.storage] = number
                if expr.dtype is not expr.address.storage.dtype:
                    packed.add(expr.address.storage)
        written += [(number, s.address) for s in statements if isinstance(s, Stored)]
    # A row's values are stored after all passes: what they are written over is read in them.
    pairs = []
    for number, address in written:
        for storage, its in addresses.items():
            if len(its) > 1 or storage in packed or storage.dtype is not address.storage.dtype:
                continue
            if storage is address.storage:  # another section of it
                continue
            (only,) = its
            if last[storage] <= number and _same_element(only, address):
                pairs.append((buffers[address.storage, True], buffers[storage, False]))
    return tuple(pairs)


def _same_element(a: ElementAddress, b: ElementAddress) -> bool:
    """Return whether two addresses always agree; the second one has no two elements in one."""
    return (
        a.offset == b.offset == 0
        and dict(a.strides) == dict(b.strides)
        and a.storage.size == b.storage.size
    )
