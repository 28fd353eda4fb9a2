"""Programs for feeds of some layouts: which feeds kernels read in place, and which are copied.

A program gives the same bits for all layouts of its feeds. So a feed is read where it is only by
kernels that add in the same order as those for C-contiguous feeds, and that read it about as fast.
All other feeds are copied by a step of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.runtime.executor import Options
from graphfw.runtime.feed_layouts import FeedLayout
from graphfw.runtime.kernels.ir import (
    Accumulate,
    Axis,
    Carry,
    InnerLoop,
    Kernel,
    Load,
    Param,
    Reduce,
    Size,
)
from graphfw.runtime.kernels.steps import Item, ReferenceStep, Step, Storage
from graphfw.runtime.kernels.walk import statements
from graphfw.runtime.numpy_executor.backend import CpuBackend
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.across import loads_across
from graphfw.runtime.numpy_executor.codegen.across_columns import loads_across_columns
from graphfw.runtime.numpy_executor.codegen.across_rows import loads_across_rows
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts, lanes_of, vectors_of
from graphfw.runtime.numpy_executor.codegen.strided import is_near
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.program import Program, with_layouts


def for_layouts(
    program: Program, layouts: Sequence[FeedLayout | None], options: Options
) -> Program:
    """Return a program for feeds of some layouts.

    Args:
        program: The program for C-contiguous feeds.
        layouts: For each feed its layout, or None where it is C-contiguous.
        options: What the session asks for.
    """
    usual = Compilation(program, CpuBackend(program, options))
    items = usual.lowered.items
    strange = [x for x, layout in zip(program.feeds, layouts, strict=True) if layout is not None]
    read = set(strange) - _needed_whole(usual, items)
    while True:
        made = with_layouts(
            program,
            [
                layout and layout._replace(is_copied=x not in read)
                for x, layout in zip(program.feeds, layouts, strict=True)
            ],
        )
        if not read:
            return made
        stages = Compilation(made, CpuBackend(made, options))
        unfit = _unfit(items, stages.lowered.items[len(strange) - len(read) :], read)
        if not unfit:
            return made
        read -= unfit


def _needed_whole(stages: Compilation, items: Sequence[Item]) -> set[Storage]:
    """Return the storages that anything but kernels read."""
    found: set[Storage] = set()
    for item in items:
        if isinstance(item, ReferenceStep):
            found |= {stages.storage_of(tensor) for tensor in item.node.inputs}
        elif not isinstance(item.code, KernelCode) or any(
            map(item.code.kernel.is_packed, _loads(item))
        ):
            found.update(item.operands)
    return found


def _unfit(
    usual: Sequence[Item], items: Sequence[Item], read: AbstractSet[Tensor]
) -> AbstractSet[Tensor]:
    """Return the feeds that have to be copied: none where all steps do what they usually do.

    Args:
        usual: The steps for C-contiguous feeds.
        items: The steps for feeds that are read where they are.
        read: These feeds.
    """
    if len(usual) != len(items):
        return read
    unfit: set[Tensor] = set()
    across: Counter[Tensor] = Counter()
    for before, after in zip(usual, items, strict=True):
        if isinstance(before, ReferenceStep) or isinstance(after, ReferenceStep):
            if type(before) is not type(after):
                return read
            continue
        own = {x for x in after.operands if isinstance(x, Tensor) and x in read}
        if not own:
            if name_of(before.code) != name_of(after.code) or before.params != after.params:
                return read
        elif _order(before) != _order(after):
            unfit.update(own)
        else:
            slow, tiles = _read_across(after, own)
            unfit |= slow
            across.update(tiles)
    # To read an array across twice takes as long as to copy it.
    return unfit | {x for x, count in across.items() if count > 1}


def _read_across(step: Step, feeds: Collection[Tensor]) -> tuple[set[Tensor], set[Tensor]]:
    """Return the feeds whose elements vectors of a step gather, and those that tiles transpose."""
    kernel = _kernel(step)
    facts = KernelFacts(kernel)
    ways = (loads_across, loads_across_columns, loads_across_rows)
    operands = [loads for way in ways for loads in way(kernel, facts)]
    tiles = {load for loads in operands for load in loads}
    slow: set[Tensor] = set()
    transposed: set[Tensor] = set()
    for load in _loads(step):
        tensor = step.operands[load.buffer]
        if not isinstance(tensor, Tensor) or tensor not in feeds:
            continue
        stride = dict(load.access.strides).get(facts.vector_axis, 0)
        if load in tiles:
            transposed.add(tensor)
        elif stride != 0 and not (isinstance(stride, int) and is_near(str(stride))):
            slow.add(tensor)
    return slow, transposed


def _order(step: Step) -> tuple[object, ...] | None:
    """Return the order in which a step adds: equal for steps of the same nodes with one order.

    None where no order changes the result.
    """
    if not isinstance(step.code, KernelCode):
        return (name_of(step.code), step.params)
    kernel = step.code.kernel
    found = [one for one in statements(kernel) if isinstance(one, Reduce | Carry | Accumulate)]
    if not found:
        return None

    def sizes(axes: Sequence[Axis]) -> list[DimLike]:
        return [_known(axis.extent, step) for axis in axes]

    facts = KernelFacts(kernel)
    loops = [loop for loop in kernel.body if isinstance(loop, InnerLoop)]
    order: list[object] = [kernel.form, [type(one) for one in statements(kernel)]]
    order += [sizes(kernel.inner), lanes_of(facts, step.code.target)]
    order += [vectors_of(facts, loop.body) for loop in loops]
    if any([isinstance(one, Accumulate) for one in found]):
        order += [sizes(kernel.outer), _known(kernel.per_item, step), step.work_items]
        order.append(None if kernel.split is None else _known(kernel.split, step))
    return tuple(order)


def _known(size: Size, step: Step) -> DimLike:
    return step.params[size.number] if isinstance(size, Param) else size


def _kernel(step: Step) -> Kernel:
    assert isinstance(step.code, KernelCode)
    return step.code.kernel


def _loads(step: Step) -> Iterator[Load]:
    return (expr for expr in KernelFacts(_kernel(step)).exprs if isinstance(expr, Load))
