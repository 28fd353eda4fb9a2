"""`Lookahead`."""

from __future__ import annotations

from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph
from graphfw.ops.args import converted
from graphfw.ops.composed import demand, wide_dtype
from graphfw.optim.base import Moves, Optimizer
from graphfw.optim.slots import OptimizerSlots
from graphfw.optim.wrapper import StatefulWrapper, Wrapper
from graphfw.utils.collecting import without_collection


@explained
class Lookahead(StatefulWrapper[OptimizerSlots]):
    """An optimiser that goes back, after every k steps, to between where it was and where it is.

    It remembers slow parameters s, at first the parameters p. After every k steps of `optimizer`,
    s = s + alpha (p - s), and p = s. M. R. Zhang et al., "Lookahead optimizer: k steps forward, 1
    step back", 2019.

    Args:
        optimizer: The optimiser that makes the steps.
        k: The number of steps after which it goes back.
        alpha: The fraction of the way from the slow parameters to the new ones, in (0, 1].
        name: The prefix of its variables' names.

    Raises:
        ArgumentError: `optimizer` is no optimiser, or a number makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(8.0, name="w")
    ...     train = gf.optim.Lookahead(gf.optim.SGD(0.25), k=2).minimize(w * w)
    >>> with gf.Session(g) as session:
    ...     for _ in range(3):
    ...         session.run(train)
    ...         print(float(session[w]))
    4.0
    5.0
    2.5
    """

    def __init__(
        self,
        optimizer: Optimizer | Wrapper,
        k: int = 5,
        alpha: float = 0.5,
        *,
        name: str = "lookahead",
    ) -> None:
        super().__init__(optimizer, name)
        demand(k >= 1, f"Lookahead: k={k} must be at least 1", fix="use k=5")
        fits = 0 < alpha <= 1
        demand(fits, f"Lookahead: alpha={alpha} must be above 0, up to 1", fix="use alpha=0.5")
        self.k = k
        self.alpha = alpha

    def _made(self, graph: Graph) -> OptimizerSlots:
        return OptimizerSlots(graph, self._name)

    def _changed(self, moves: Moves) -> Moves:
        state = self._open()
        changed: Moves = []
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            is_first, goes_back = state.step == 0, state.next_step % self.k == 0
            for variable, new in moves:
                if not variable.trainable:
                    changed.append((variable, new))
                    continue
                dtype = wide_dtype(variable.dtype)
                slow = state.slots_of(variable, {"slow": 0.0}, dtype)["slow"]
                before = F.where(is_first, converted(variable, dtype), slow)
                between = before + (converted(new, dtype) - before) * self.alpha
                back = converted(between, variable.dtype)
                changed.append((variable, F.where(goes_back, back, new)))
                changed.append((slow, F.where(goes_back, between, before)))
            changed.append((state.step, state.next_step))
        return changed
