"""The texts of reports that executors share: names of steps, why they are not larger, memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphfw.ir.sources import ConstantOp, Placeholder, VariableOp
from graphfw.ir.tensor import Node
from graphfw.ops.control.region_op import Region
from graphfw.passes.fuse import Partition
from graphfw.runtime.kernels.steps import Step, Storage, Temp
from graphfw.runtime.locations import location_of
from graphfw.runtime.memory import Kind, MemoryEntry
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.planning.blocks import bytes_at


def label_of(step: Step, most: int | None = None) -> str:
    """Return the name of a step: the ops inside, at most so many of them by name."""
    if not step.nodes:
        why = next((one.why for one in step.operands if isinstance(one, Temp)), "")
        return why or ("copy" if step.operands else "nothing")
    (node, *others) = step.nodes
    if isinstance(node.op, Region) and not others:
        return f"{node.op.name} (its iterations are one kernel)"
    if not (others or node.inputs) and isinstance(node.op, ConstantOp | Placeholder | VariableOp):
        return f"copy of a {node.op.name}"
    return ops_of(step.nodes, most)


def ops_of(nodes: Sequence[Node], most: int | None = None) -> str:
    """Return the ops of some nodes with how often each is there, at most so many by name."""
    names = [node.op.name for node in nodes]
    found = [
        f"{name}×{names.count(name)}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    ]
    left = found[most:] if most is not None else []
    return " ".join(found[:most]) + (f" +{len(left)}" if left else "")


class Reasons:
    """The reasons why steps do not compute what they read.

    Args:
        partition: The groups that they are made of.
    """

    def __init__(self, partition: Partition) -> None:
        self._group_of = {node: group for group in partition.groups for node in group.nodes}

    def of(self, nodes: Sequence[Node]) -> Iterator[str]:
        """Yield a line for each tensor that a step reads, for which there is a reason."""
        group = self._group_of.get(nodes[-1]) if nodes else None
        for tensor, reason in group.reasons.items() if group else ():
            if tensor.node not in nodes:  # a product computes some of what it multiplies
                yield f"reads {tensor.node.op.name} {tensor.type}: {reason}"


def entry(
    storage: Storage, kind: Kind, sizes: Mapping[str, int], first: int, last: int
) -> MemoryEntry:
    """Return the line of a storage in a report of memory."""
    if isinstance(storage, Temp):
        name, location = storage.why, ""
    else:
        shown = f'"{storage.name}" ' if storage.name else ""
        name, location = f"{shown}{storage.node.op.name} {storage.type}", location_of(storage.node)
    return MemoryEntry(name, kind, bytes_at(storage, sizes), first, last, location)


def entries(
    stages: Compilation,
    sizes: Mapping[str, int],
    constants: Iterable[Storage],
    levels: int,
    *,
    in_place: bool = True,
) -> list[MemoryEntry]:
    """Return the arrays of a run.

    Args:
        stages: What has been compiled.
        sizes: The sizes of the symbols.
        constants: The constants that are read.
        levels: How many levels a run has.
        in_place: Whether new contents of variables are written over the old ones.
    """
    plan, block_of = stages.schedule, stages.memory.block_of
    homes = stages.memory.homes
    end = max(levels - 1, 0)
    found: list[MemoryEntry] = []

    def add(storages: Iterable[Storage], kind: Kind) -> None:
        found.extend([entry(storage, kind, sizes, 0, end) for storage in storages])

    add(stages.program.variables, "variable")
    add(constants, "constant")
    add(stages.hoisted.kept, "prepared")
    outputs = {*stages.lowered.fetched, *(() if in_place else plan.updated)}
    updated = {*plan.updated}
    begun = {(block_of[s], first) for s, (first, _) in plan.lifetimes.items() if s in block_of}
    for storage, (first, last) in plan.lifetimes.items():
        if storage in outputs:
            found.append(entry(storage, "output", sizes, first, end))
        elif storage in block_of:
            # What is written over its dead operand is counted once.
            over = last > first and (block_of[storage], last) in begun
            found.append(entry(storage, "arena", sizes, first, min(last, end) - over))
        elif storage not in updated and storage not in homes:
            # Only `eval` makes what lies nowhere else.
            found.append(entry(storage, "outside", sizes, first, end))
    return found
