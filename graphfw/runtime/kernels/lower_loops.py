"""The loops over a row, and the values that each of them reduces, keeps and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from graphfw.ir.affine import LoopVariable
from graphfw.ir.tensor import Tensor
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.runtime.kernels.complex_numbers import Pair
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    ElementAddress,
    IndexValue,
    RandomValue,
)
from graphfw.runtime.kernels.ir import Call, Expr, Ref
from graphfw.runtime.kernels.lower_values import (
    Bound,
    CrossRowReduction,
    ExpressionBuilder,
    RowReduction,
)
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.walk import postorder


class Kept(NamedTuple):
    """A value that later loops over the row read again: `Ref(name)`."""

    name: str
    value: Expr


class LoopCarry(NamedTuple):
    """A value that each position of the loop hands to the next: see `ir.Carry`."""

    name: str
    begin: Expr
    value: Expr


class Going(NamedTuple):
    """The value of a loop's condition: see `ir.While`."""

    value: Expr


class Stored(NamedTuple):
    """A value that is written."""

    address: ElementAddress
    value: Expr


class Partial(NamedTuple):
    """A value that is reduced over the rows of a work item into the work item's line of a buffer.

    Attributes:
        across: The reduction that it belongs to.
        value: Of what.
    """

    across: CrossRowReduction
    value: Expr


Statement: TypeAlias = "RowReduction | LoopCarry | Going | Kept | Stored | Partial | Bound"


@dataclass
class Draft:
    """A kernel before its axes and parameters are settled.

    Attributes:
        form: See `ir.Kernel`.
        outer: Its outer variables; all of them where there are no rows.
        inner: Its inner variables; None where the last of the outer ones is to be it.
        before: What is done once a row, first.
        loops: The statements of each loop over a row.
        after: What is done once a row, last.
    """

    form: str
    outer: Sequence[LoopVariable]
    inner: Sequence[LoopVariable] | None
    before: list[Statement] = field(default_factory=list)
    loops: list[list[Statement]] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)

    def statements(self) -> Iterator[Statement]:
        """Yield all statements, in order."""
        yield from self.before
        for loop in self.loops:
            yield from loop
        yield from self.after


class _Placement(NamedTuple):
    """The facts that decide where an expression is computed.

    Attributes:
        depth: The number of reductions, one after the other, that it needs.
        inner: Whether it differs along a row.
        expensive: Whether computing it anew along a row costs more than keeping it.
    """

    depth: int
    inner: bool
    expensive: bool


_PLAIN = _Placement(0, False, False)


class Placements:
    """The placements of expressions, each found once."""

    def __init__(self, inner: Iterable[LoopVariable], *, all_inner: bool) -> None:
        self._inner = frozenset(inner)
        self._all_inner = all_inner
        self._found: dict[Expr, _Placement] = {}
        self._depths: dict[str, int] = {}

    def reduced(self, one: RowReduction) -> int:
        """Take note of a reduction; return the number of the loop that makes it."""
        depth = self.of(one.value).depth
        self._depths[one.name] = depth + 1
        return depth

    def of(self, root: Expr) -> _Placement:
        """Return the placement of an expression."""
        for expr in draft_exprs([root], self._found.__contains__):
            self._found[expr] = self._placed(expr)
        return self._found[root]

    def _placed(self, expr: Expr) -> _Placement:
        if isinstance(expr, Ref):
            return _Placement(self._depths[expr.name], False, False)
        children = [self._found[child] for child in draft_children(expr)]
        depth = max([one.depth for one in children], default=0)
        inner = any([one.inner for one in children])
        expensive = any([one.expensive for one in children])
        if isinstance(expr, LEAVES):
            variables = variables_of(expr)
            inner = inner or self._all_inner or any([v in self._inner for v in variables])
            is_picked = any([isinstance(v, ComputedIndex) for v in variables])
            expensive = expensive or (inner and (is_picked or isinstance(expr, RandomValue)))
        elif isinstance(expr, Call) and inner:
            expensive = expensive or not is_cheap_call(expr)
        return _Placement(depth, inner, expensive)


def drafted(
    values: ExpressionBuilder, stores: Sequence[Tensor], across: Sequence[CrossRowReduction]
) -> Draft:
    """Distribute the values that a group computes over loops along its rows."""
    group = values.group
    if group.rows is None:
        draft = Draft("rows", values.axes, None)
        placements = Placements((), all_inner=True)
    else:
        inner = [axis for axis in values.axes if axis not in values.rows]
        draft = Draft(group.form, values.rows, inner)
        placements = Placements(inner, all_inner=False)

    def loop(depth: int) -> list[Statement]:
        while len(draft.loops) <= depth:
            draft.loops.append([])
        return draft.loops[depth]

    for one in values.reduced:
        loop(placements.reduced(one)).append(one)
    for bound in values.bounds:
        placement = placements.of(bound.value)
        if placement.inner or group.rows is None:
            loop(placement.depth).insert(0, bound)
        else:
            (draft.after if placement.depth else draft.before).append(bound)
    for whole in across:
        placement = placements.of(whole.value)
        is_row = group.rows is not None and not whole.inner and whole.of_rows
        statement = Partial(whole, whole.value)
        (draft.after if is_row else loop(placement.depth)).append(statement)
    for tensor in stores:
        wide = sum([dim != 1 for dim in tensor.shape])
        is_row = group.rows is not None and wide < len(values.axes)
        for stored in [Stored(*one) for one in values.stores(tensor)]:
            placement = placements.of(stored.value)
            (draft.after if is_row else loop(placement.depth)).append(stored)
    if group.rows is not None:
        _keep(draft, placements)
    return draft


def _keep(draft: Draft, placements: Placements) -> None:
    """Keep values that a later loop needs again, if computing them anew is expensive."""
    names: dict[Expr, str] = {}
    computed: dict[Expr, int] = {}
    swaps: list[Swap] = []  # for each loop: the values that it takes from the loops before
    for depth, loop in enumerate(draft.loops):
        roots = [root for statement in loop for root in roots_of(statement)]
        seen: set[Expr] = set()
        todo = list(roots)
        again: dict[Expr, None] = {}
        while todo:
            expr = todo.pop()
            if expr in seen:
                continue
            seen.add(expr)
            placement = placements.of(expr)
            if placement.expensive and placement.inner and computed.get(expr, depth) < depth:
                again[expr] = None
                continue
            todo.extend(draft_children(expr))
        for expr in again:
            if expr not in names:
                names[expr] = f"k{len(names)}"
                earlier = computed[expr]
                draft.loops[earlier].append(Kept(names[expr], swaps[earlier](expr)))
        refs: dict[Expr, Expr] = {expr: Ref(expr.dtype, names[expr]) for expr in again}
        swap = Swap(refs.get)
        swaps.append(swap)
        draft.loops[depth] = [with_value(s, swap(s.value)) for s in loop]
        for expr in seen:
            computed.setdefault(expr, depth)


class Swap:
    """Replaces subexpressions."""

    def __init__(self, replacement: Callable[[Expr], Expr | None]) -> None:
        self._replacement = replacement
        self._done: dict[Expr, Expr] = {}

    def __call__(self, root: Expr) -> Expr:
        done = self._done
        for expr in draft_exprs([root], done.__contains__):
            new = self._replacement(expr)
            done[expr] = new if new is not None else self._rebuilt(expr)
        return done[root]

    def _rebuilt(self, expr: Expr) -> Expr:
        if isinstance(expr, Call):
            args = tuple([self._done[arg] for arg in expr.args])
            same = all([a is b for a, b in zip(args, expr.args, strict=True)])
            return expr if same else Call(expr.dtype, expr.function, args)
        return expr


def with_value(statement: Statement, value: Expr) -> Statement:
    """Return a statement of another value."""
    return statement if value is statement.value else statement._replace(value=value)


def roots_of(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement needs."""
    if isinstance(statement, LoopCarry):
        return (statement.begin, statement.value)
    if isinstance(statement, Stored):
        variables = [variable for variable, _ in statement.address.strides]
        named = [variable.value for variable in variables if isinstance(variable, ComputedIndex)]
        return (statement.value, *named)
    return (statement.value,)


def variables_of(expr: Element | RandomValue | IndexValue) -> tuple[LoopVariable, ...]:
    """Return the variables that an index depends on."""
    if isinstance(expr, IndexValue):
        return tuple(expr.index.terms)
    return tuple([variable for variable, _ in expr.address.strides])


LEAVES = (Element, RandomValue, IndexValue)
"""The leaves of expressions that have an address or an index.

A union of the three types is slow to ask for.
"""


def draft_children(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that one of a draft is made of, those of its index included."""
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Pair):
        return expr.real, expr.imag
    if isinstance(expr, LEAVES):
        return tuple([v.value for v in variables_of(expr) if isinstance(v, ComputedIndex)])
    return ()


def draft_exprs(
    wanted: Iterable[Expr], is_known: Callable[[Expr], bool] = lambda expr: False
) -> Iterator[Expr]:
    """Yield the expressions of a draft, arguments first, each once: see `walk.postorder`."""
    return postorder(wanted, is_known, draft_children)


_EXPENSIVE = frozenset({"div", "sqrt"})


def is_cheap_call(expr: Call | RandomValue) -> bool:
    """Return whether a function takes no longer than reading its result from memory."""
    if isinstance(expr, RandomValue):
        return False
    return PRIMITIVES[expr.function].source == "instruction" and expr.function not in _EXPENSIVE


_COSTS = {
    "div": 0.1,
    "sqrt": 0.1,
    "exp": 0.2,
    "log": 0.25,
    "expm1": 0.35,
    "log1p": 0.35,
    "erfinv": 1,
} | dict.fromkeys(FUNCTIONS, 30.0)
"""Nanoseconds an element, of vectors of float32 on one thread."""


_WORD = 0.25
"""The same of 32 random bits."""


def cost_of(expr: Call | RandomValue) -> float:
    """Return in how many nanoseconds, about, a thread computes an element of a call."""
    if isinstance(expr, RandomValue):
        return _WORD * expr.dtype.itemsize / 4
    is_short = PRIMITIVES[expr.function].source == "instruction"
    return _COSTS.get(expr.function, 0.02 if is_short else 0.5)
