"""`MultiSteps`: one step of an optimiser from the gradients of several batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from graphfw.errors import ArgumentError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.body import all_rewired
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.ops.args import converted, is_whole
from graphfw.ops.composed import demand, wide_dtype
from graphfw.optim.base import Differentiate, Moves, Optimizer
from graphfw.optim.parameters import ParameterGroup
from graphfw.optim.slots import OptimizerSlots
from graphfw.optim.wrapper import StatefulWrapper, Wrapper
from graphfw.utils.collecting import without_collection

_MANY = 64
"""Operations per element: elementwise functions take fewer, products of large matrices more."""


class _Gathered(NamedTuple):
    """The gradients of a parameter so far.

    Attributes:
        variable: The parameter.
        slot: The variable that keeps them.
        total: Its new value: their share of the mean of k batches.
    """

    variable: Variable
    slot: Variable
    total: Tensor


@explained
class MultiSteps(StatefulWrapper[OptimizerSlots]):
    """An optimiser that makes one step from the mean of the gradients of k batches.

    Each run adds the gradients of its batch, divided by k, to a sum. Every k-th run makes the step
    of `optimizer` with the sum, and sets it to 0. If the loss is a mean over examples, and the
    batches have one size, that is the step of a batch k times as large. `clip_norm`, weight decay
    and schedules of `optimizer` see k batches as one step. Updates that layers carry along, such as
    `BatchNorm`'s statistics, are made for each batch: such layers see smaller batches.

    Values that take products of large matrices, as `Muon`'s, are computed only in each k-th run;
    others in each run, which takes less time than a branch.

    It is `optax.MultiSteps`. Put it around other optimisers, so that they see steps and not
    batches, but inside of `SAM` and `LossScale`; `LossScale` then skips single batches.

    Args:
        optimizer: The optimiser that makes the steps.
        k: The number of batches for each step.
        name: The prefix of its variables' names.

    Raises:
        ArgumentError: `optimizer` is no optimiser, or k is no int of at least 1. In `minimize`:
            `optimizer` differentiates more than once, as `SAM` does.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x, w = gf.placeholder((), name="x"), gf.Variable(8.0, name="w")
    ...     train = gf.optim.MultiSteps(gf.optim.SGD(0.5), k=2).minimize(w * x)
    >>> with gf.Session(g) as session:
    ...     for slope in (2.0, 6.0, 1.0):
    ...         session.run(train, {x: slope})
    ...         print(float(session[w]))
    8.0
    6.0
    6.0
    """

    def __init__(
        self, optimizer: Optimizer | Wrapper, k: int, *, name: str = "multi_steps"
    ) -> None:
        super().__init__(optimizer, name)
        fits = is_whole(k) and k >= 1
        demand(fits, f"MultiSteps: k={k!r} must be an int of at least 1", fix="use k=4")
        self.k = int(k)

    def _made(self, graph: Graph) -> OptimizerSlots:
        return OptimizerSlots(graph, self._name)

    def _minimizing(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None,
        differentiate: Differentiate,
    ) -> Moves:
        gathered: list[_Gathered] = []

        def means(loss: Tensor, variables: list[Variable]) -> Sequence[Tensor]:
            if gathered:
                raise ArgumentError(
                    f"MultiSteps: {type(self.optimizer).__name__} differentiates more than once in "
                    "a step, and gradients of one batch are added once",
                    fix="put it inside: gf.optim.SAM(gf.optim.MultiSteps(optimizer, k))",
                )
            gathered.extend(self._gathered(differentiate(loss, variables), variables))
            return [one.total for one in gathered]

        return self._held(gathered, self.optimizer._minimizing(loss, parameters, means))

    def _applying(
        self,
        pairs: Iterable[tuple[Tensor, Variable]],
        loss: Tensor | None,
        changed: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> Moves:
        gathered: list[_Gathered] = []
        given = list(pairs)

        def means(gradients: list[Tensor]) -> Sequence[Tensor]:
            variables = [variable for _, variable in given]
            gathered.extend(self._gathered(changed(gradients), variables))
            return [one.total for one in gathered]

        return self._held(gathered, self.optimizer._applying(given, loss, means))

    def _gathered(
        self, gradients: Sequence[Tensor], variables: Sequence[Variable]
    ) -> list[_Gathered]:
        """Return the gradients so far, with those of a batch."""
        state = self._open()
        made = []
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            for gradient, variable in zip(gradients, variables, strict=True):
                dtype = wide_dtype(variable.dtype)
                slot = state.slots_of(variable, {"gradient": 0.0}, dtype)["gradient"]
                made.append(_Gathered(variable, slot, slot + converted(gradient, dtype) / self.k))
        return made

    def _held(self, gathered: Sequence[_Gathered], moves: Moves) -> Moves:
        """Return the new values of a step that only each k-th batch makes, and of the gradients."""
        state = self._open()
        waiting = {*[one.variable for one in gathered], *self.optimizer.variables}
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            is_last = state.next_step % self.k == 0
            branched = dict(_branched(is_last, gathered, [m for m in moves if m[0] in waiting]))
            held: Moves = []
            for variable, new in moves:
                if variable in branched:
                    new = branched[variable]
                elif variable in waiting:
                    new = F.where(is_last, new, variable)
                held.append((variable, new))
            kept = [(one.slot, F.where(is_last, 0, one.total)) for one in gathered]
        return [*held, *kept, (state.step, state.next_step)]


def _branched(is_last: Tensor, gathered: Sequence[_Gathered], moves: Moves) -> Moves:
    """Return the new values that a branch computes: those that depend on matrix products.

    For others choosing takes less time than a branch, which copies what stays.
    """
    totals = [one.total for one in gathered]
    above = {total.node for total in totals}
    dear = [(v, new) for v, new in moves if any(map(_is_product, _between(above, new)))]
    if not dear:
        return []
    variables, values = zip(*dear, strict=True)

    def made(totals_: Sequence[Tensor], contents: Sequence[Tensor]) -> list[Tensor]:
        inside = zip([*totals, *variables], [*totals_, *contents], strict=True)
        return all_rewired(values, dict(inside))

    found = F.cond(is_last, made, lambda _, contents: list(contents), totals, list(variables))
    return [*zip(variables, found, strict=True)]


def _between(above: Set[Node], value: Tensor) -> Iterator[Node]:
    """Yield the nodes from the sums of gradients to a new value."""
    return (node for node in ancestors([value], stop=above.__contains__) if node not in above)


def _is_product(node: Node) -> bool:
    """Return whether a node takes many more operations than it has elements, as products do."""
    kinds = [*node.types, *[t.type for t in node.inputs]]
    flops = node.op.cost(node.types, *[t.type for t in node.inputs]).flops
    sizes = [flops, *[kind.size for kind in kinds]]
    return all([isinstance(n, int) for n in sizes]) and flops > _MANY * sum(sizes[1:])
