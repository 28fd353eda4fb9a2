"""Going through the statements of a kernel and the expressions that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TypeAlias, cast

from graphfw.runtime.kernels.ir import (
    Accumulate,
    BoundsCheck,
    Call,
    Carry,
    Draw,
    Expr,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Reduce,
    Store,
    While,
)

Statement: TypeAlias = "Reduce | Carry | While | Keep | Store | Accumulate | BoundsCheck"


def statements(kernel: Kernel) -> Iterator[Statement]:
    """Yield all statements of a kernel, in order."""
    for item in kernel.body:
        if isinstance(item, InnerLoop):
            yield from item.body
        else:
            yield item


def in_turn(kernel: Kernel) -> Iterator[InnerLoop | tuple[Statement, ...]]:
    """Yield the loops of a kernel's body, and what is done once a row between two of them.

    That is computed at once, all values first: an output may lie where an input does.
    """
    for is_loop, items in groupby(kernel.body, lambda item: isinstance(item, InnerLoop)):
        if is_loop:
            yield from cast("Iterator[InnerLoop]", items)
        else:
            yield tuple(cast("Iterator[Statement]", items))


def roots(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement needs: its value, and the terms of its access."""
    if isinstance(statement, Carry):
        return (statement.begin, statement.value)
    if isinstance(statement, Store | Accumulate):
        return (statement.value, *[term.value for term in statement.access.terms])
    return (statement.value,)


def copied_buffers(kernel: Kernel) -> tuple[int, int] | None:
    """Return the buffers, written and read, of a kernel that only copies, each element to its own.

    Such a kernel has nothing to do where both are one array. Return None for any other kernel.
    """
    match [*statements(kernel)]:
        case [Store(buffer=written, access=access, value=Load(buffer=read) as load)]:
            is_own = load.access == access and not access.terms
            return (written, read) if is_own and not kernel.is_packed(load) else None
    return None


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that one is made of."""
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Draw | Load):
        return tuple([term.value for term in expr.access.terms])
    return ()


def postorder(
    wanted: Iterable[Expr],
    is_known: Callable[[Expr], bool] = lambda expr: False,
    children: Callable[[Expr], tuple[Expr, ...]] = children,
) -> Iterator[Expr]:
    """Yield expressions and all that they are made of, arguments first, each once.

    Without recursion: expressions can be deep.

    Args:
        wanted: The expressions.
        is_known: Whether an expression is left out, with all that only it is made of.
        children: The expressions that one is made of; those of a draft have others.
    """
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(list(wanted))]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in seen and not is_known(expr):
            seen.add(expr)
            if found := children(expr):
                stack.append((expr, True))
                stack += [(child, False) for child in reversed(found)]
            else:
                yield expr
