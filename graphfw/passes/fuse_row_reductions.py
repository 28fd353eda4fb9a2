"""Products whose epilogues reduce their rows: a mean over all positions after a convolution.

Rows of a convolution are its outputs, columns its positions. Where work items have whole rows, what
follows may go through each as any kernel does; what leaves it are few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.tensor import Node
from graphfw.passes.fuse_loops import Axes, GroupReduction
from graphfw.passes.fuse_nodes import FusionFacts


def takes_up(
    facts: FusionFacts,
    product: Node | None,
    order: Sequence[int],
    rows: Axes | None,
    reductions: Sequence[GroupReduction],
) -> bool:
    """Return whether a product, if there is one in a group, can take up what the group does.

    Args:
        facts: What the nodes are.
        product: The product.
        order: The axes of the group, which are the product's.
        rows: The axes of its row values, if it has some.
        reductions: What it reduces.
    """
    if product is None or (rows is None and not reductions):
        return True
    lines = lines_of(product, order)
    is_whole = all([is_along(one, order, lines) for one in reductions])
    is_fit = bool(reductions) and is_whole and rows in (None, lines)
    return is_fit and facts.natives.keeps_rows(product)


def lines_of(product: Node, order: Sequence[int]) -> Axes:
    """Return those of a product's axes that tell its rows apart."""
    columns = [dim for dim in product.types[0].shape[2:] if dim != 1]
    return frozenset(order[: len(order) - len(columns)])


def is_along(one: GroupReduction, order: Sequence[int], lines: Axes) -> bool:
    """Return whether a reduction is one over whole rows, of which there are several."""
    is_of_rows = one.source == frozenset(order) and one.result == lines
    return is_of_rows and bool(lines) and not one.is_index
