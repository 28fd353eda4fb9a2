"""`LBFGS`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, NamedTuple, NoReturn

from graphfw.errors import ArgumentError
from graphfw.ir import ambient, concrete
from graphfw.ir.body import rewired
from graphfw.ir.dtype import DType, int64, promote_all
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import current_graph
from graphfw.ir.op import RANDOM
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture
from graphfw.ops.args import as_tensor, converted, is_whole
from graphfw.ops.composed import demand, wide_dtype
from graphfw.optim.base import Differentiate, Groups, Moves, Optimizer, Rate, Scalar, Slots
from graphfw.optim.carried import carried_pairs
from graphfw.optim.line_search import Point, fixed_step, strong_wolfe
from graphfw.optim.parameters import gradients_of
from graphfw.optim.slots import Initial
from graphfw.transforms.grad import grad
from graphfw.utils.collecting import without_collection

_LEAST_CURVATURE = 1e-10
"""The least s·y of a pair that is remembered."""


class _Iterate(NamedTuple):
    """The state of the iterations of one step.

    Attributes:
        number: The number of iterations so far.
        ends: Whether there are no more.
        x: All parameters, a vector.
        value: The loss.
        gradient: Its gradient.
        moved: The last change of x.
        before: The gradient before it.
        s: The changes of x that are remembered, the newest last.
        y: The changes of the gradient.
    """

    number: Tensor
    ends: Tensor
    x: Tensor
    value: Tensor
    gradient: Tensor
    moved: Tensor
    before: Tensor
    s: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class LBFGS(Optimizer):
    """A quasi-Newton method for losses without noise: steps along -H g, with an estimate H.

    H estimates the inverse Hessian from the last `history_size` changes s of the parameters and y
    of the gradients. A step of the optimiser makes up to `max_iterations` iterations. Each computes
    the loss and its gradients again, in the graph, once or more often: the line search begins at lr
    and ends at a point that satisfies the strong Wolfe conditions. J. Nocedal, "Updating
    quasi-Newton matrices with limited storage", 1980; the numbers are those of PyTorch's.

    All evaluations of a step see the same feeds, and the same random numbers, such as `Dropout`'s.
    Updates that layers carry along are those of the first. If the loss is not finite at the
    parameters, a step changes nothing; in the line search such a value counts as infinite.

    Args:
        lr: The first distance along -H g that the line search tries; without one, the distance.
        history_size: The number of changes that are remembered.
        line_search: `"strong_wolfe"`, or None.
        max_iterations: The largest number of iterations of a step.
        tolerance_grad: A step ends if no element of the gradient is larger.
        tolerance_change: A step ends if the loss, or all parameters, change by less.
        name: See `Optimizer`.
        weight_decay, clip_norm, clip_value: Not for this optimiser: an error.

    Raises:
        ArgumentError: A number makes no sense. In `minimize`: there are parameter groups with
            options, or the loss draws random numbers that depend on parameters.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable([-1.2, 1.0], name="w", dtype="float64")
    ...     loss = 100 * (w[1] - w[0] ** 2) ** 2 + (1 - w[0]) ** 2
    ...     train = gf.optim.LBFGS(max_iterations=100).minimize(loss)
    >>> with gf.Session(g) as session:
    ...     session.run(train)
    ...     session[w].round(4).tolist()
    [1.0, 1.0]
    """

    lr: Rate = 1.0
    history_size: int = field(default=10, kw_only=True)
    line_search: Literal["strong_wolfe"] | None = field(default="strong_wolfe", kw_only=True)
    max_iterations: int = field(default=20, kw_only=True)
    tolerance_grad: float = field(default=1e-7, kw_only=True)
    tolerance_change: float = field(default=1e-9, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("history_size", "max_iterations"):
            value = getattr(self, option)
            message = f"LBFGS: {option}={value!r} must be an int of at least 1"
            demand(is_whole(value) and value >= 1, message, fix=f"use {option}=10")
        for option in ("tolerance_grad", "tolerance_change"):
            self._check(option, getattr(self, option), least=0)
        message = f"LBFGS: line_search={self.line_search!r}"
        fits = self.line_search in ("strong_wolfe", None)
        demand(fits, message, fix='write line_search="strong_wolfe", or None')
        message = "LBFGS: weight_decay would be no part of the loss that the line search sees"
        demand(not self.weight_decay, message, fix="add the penalty to the loss")
        message = "LBFGS: it can't clip gradients: a line search needs those of the loss"
        fits = self.clip_norm is None and self.clip_value is None
        demand(fits, message, fix="leave clip_norm and clip_value out")

    def slots_for(self, shape: Shape) -> Mapping[str, Initial]:
        rows = (0.0, (self.history_size, *shape))
        return {"gradient": 0.0, "moved": 0.0, "s": rows, "y": rows}

    def direction(self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]) -> NoReturn:
        raise ArgumentError(
            "LBFGS: it computes the loss itself, at several points, for all parameters together",
            fix="write gf.optim.LBFGS().minimize(loss): not in a chain, as the optimizer of a "
            "group, or with apply_gradients()",
        )

    def _descended(self, loss: Tensor, groups: Groups, differentiate: Differentiate) -> Moves:
        message = "LBFGS: parameter groups have options, and all parameters make one step"
        fix = "pass a list of variables: minimize(loss, model.parameters())"
        demand(len(groups) == 1 and groups[0][0] is self, message, fix=fix)
        message = "LBFGS: it is within an optimiser that changes gradients"
        fix = "of the optimisers around others, write EMA, SWA or Lookahead around it"
        demand(differentiate is gradients_of, message, fix=fix)
        state, variables = self._states[0], groups[0][1]
        for variable in variables:
            self._check_dtype(variable)
        moves = [(state.step, state.next_step), *carried_pairs(loss)]
        graph = current_graph()
        with (
            without_collection(),
            ambient.override(ambient.current_scope, state.name),
            graph.located(graph.provenance or capture(state.name)),
        ):
            return [*moves, *self._iterated(loss, _Flat(variables))]

    def _iterated(self, loss: Tensor, flat: _Flat) -> Moves:
        """Return the new values of the parameters and of the slots, after the iterations."""
        state = self._states[0]
        dtype, size = flat.dtype, self.history_size
        lr = converted(as_tensor(self._rate(state)), dtype)
        slots = [
            state.slots_of(v, self.slots_for(v.shape), wide_dtype(v.dtype)) for v in flat.variables
        ]
        here = [loss.graph.standing_for(v) for v in flat.variables]

        def objective(x: Tensor) -> tuple[Tensor, Tensor]:
            values = flat.apart(x)
            moved = dict(zip(here, values, strict=True))
            there = rewired(loss, {t: value for t, value in moved.items() if t is not None})
            _check_draws(there, loss)
            return converted(there, dtype), flat.together(grad(there, values))

        gradient = flat.together(gradients_of(loss, flat.variables))
        is_finite = F.logical_and(F.isfinite(loss), F.all(F.isfinite(gradient)))
        is_found = F.max(F.abs(gradient)) <= self.tolerance_grad
        first = _Iterate(
            as_tensor(0, int64),
            F.logical_or(F.logical_not(is_finite), is_found),
            flat.together(flat.variables),
            converted(loss, dtype),
            gradient,
            *[flat.together([slot[n] for slot in slots]) for n in ("moved", "gradient")],
            *[flat.together([slot[n] for slot in slots], size) for n in ("s", "y")],
        )

        def goes_on(at: _Iterate) -> Tensor:
            running: Tensor = F.logical_not(at.ends) & (at.number < self.max_iterations)
            return running

        last: _Iterate = F.while_loop(goes_on, lambda at: self._next(at, objective, lr), first)
        result: Moves = [*zip(flat.variables, flat.apart(last.x), strict=True)]
        kept = {"moved": last.moved, "gradient": last.before, "s": last.s, "y": last.y}
        for name, value in kept.items():
            rows = (size,) if name in ("s", "y") else ()
            sections = flat.apart(value, *rows, is_wide=True)
            result += [(slot[name], x) for slot, x in zip(slots, sections, strict=True)]
        return result

    def _next(self, at: _Iterate, objective: Any, lr: Tensor) -> _Iterate:
        """Return the state after one more iteration."""
        change = at.gradient - at.before
        is_kept = F.sum(change * at.moved) > _LEAST_CURVATURE
        s, y = [
            F.where(is_kept, F.concat([rows[1:], new[None]], axis=0), rows)
            for rows, new in ((at.s, at.moved), (at.y, change))
        ]
        direction, is_new = _quasi_newton(at.gradient, s, y)
        start = Point(lr * 0, at.value, F.sum(at.gradient * direction), at.gradient)
        short = lr * F.minimum(1 / F.sum(F.abs(at.gradient)), 1)
        distance = F.where(is_new, short, lr)
        is_flat = start.slope > -self.tolerance_change
        if self.line_search is None:
            found = fixed_step(objective, at.x, direction, start, F.where(is_flat, 0, distance))
        else:
            tolerance = self.tolerance_change
            found = strong_wolfe(objective, at.x, direction, start, distance, is_flat, tolerance)
        moved = direction * found.t
        ends = reduce(
            F.logical_or,
            [
                is_flat,
                F.max(F.abs(found.gradient)) <= self.tolerance_grad,
                F.max(F.abs(moved)) <= self.tolerance_change,
                F.abs(found.value - at.value) < self.tolerance_change,
            ],
        )
        return _Iterate(
            at.number + 1, ends, at.x + moved, found.value, found.gradient, moved, at.gradient, s, y
        )


def _quasi_newton(gradient: Tensor, s: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return -H g, by the two-loop recursion, and whether there is no pair yet, so that H is 1.

    Rows without a pair are 0, and change nothing.
    """
    products = F.sum(s * y, axis=1)
    inverses = F.where(products > 0, 1 / products, 0)
    newest = F.sum(y[-1] * y[-1])
    scale = F.where(newest > 0, products[-1] / newest, 1)

    def later(q: Tensor, row: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        s, y, inverse = row
        weight = inverse * F.sum(s * q)
        return q - y * weight, weight

    def earlier(r: Tensor, row: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Any]:
        s, y, inverse, weight = row
        return r + s * (weight - inverse * F.sum(y * r)), ()

    q, weights = F.scan(later, gradient, (s, y, inverses), reverse=True)
    r, _ = F.scan(earlier, q * scale, (s, y, inverses, weights))
    return -r, newest == 0


class _Flat:
    """Variables as one vector."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = list(variables)
        self.dtype: DType = promote_all(tuple(wide_dtype(v.dtype) for v in variables))
        self._sizes = [math.prod(int(dim) for dim in v.shape) for v in variables]

    def together(self, tensors: Sequence[Tensor], *rows: int) -> Tensor:
        """Return tensors of the variables' shapes, or so many rows of these, as one vector each."""
        flat = [
            F.reshape(converted(t, self.dtype), (*rows, size))
            for t, size in zip(tensors, self._sizes, strict=True)
        ]
        found: Tensor = F.concat(flat, axis=-1)
        return found

    def apart(self, x: Tensor, *rows: int, is_wide: bool = False) -> list[Tensor]:
        """Return a vector as tensors of the variables' shapes and dtypes, or wider ones."""
        found, start = [], 0
        for variable, size in zip(self.variables, self._sizes, strict=True):
            dtype = wide_dtype(variable.dtype) if is_wide else variable.dtype
            section = F.reshape(x[..., start : start + size], (*rows, *variable.shape))
            found.append(converted(section, dtype))
            start += size
        return found


def _check_draws(there: Tensor, loss: Tensor) -> None:
    """Check that a loss at other parameters draws no random numbers of its own.

    Raises:
        ArgumentError: It does.
    """
    for node in ancestors([there]):
        if RANDOM in node.op.traits:
            raise ArgumentError(
                f"LBFGS: the loss draws random numbers in {node.op.name}, which depends on "
                "parameters: each of its evaluations would see others",
                operands=[concrete.describe("loss", loss)],
                fix="draw them outside of loops, or call the model with training=False; or use "
                "gf.optim.Adam",
            )
