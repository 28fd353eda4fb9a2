"""`chain`: an optimiser that is made of others, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphfw.errors import a_type
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ops.args import converted
from graphfw.ops.composed import demand, wide_dtype
from graphfw.optim.base import Gradients, Moves, Optimizer, Rate
from graphfw.optim.sgd import SGD
from graphfw.optim.slots import OptimizerSlots


@dataclass(frozen=True, eq=False)
class Chain(Optimizer):
    """The optimiser that `chain` returns.

    Args:
        lr: The learning rate.
        members: The optimisers, in order.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`; these come before the members.

    Raises:
        ArgumentError: A member is no optimiser, or can't be one in a chain.
    """

    lr: Rate = 1.0
    members: Sequence[Optimizer] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(len(self.members) > 0, "chain: it has no members", fix="chain(gf.optim.Adam(1e-3))")
        for member in self.members:
            message = f"chain: a member is {a_type(member)}, no optimiser"
            fix = "members are optimisers, and what functions of gf.optim.transforms return"
            if isinstance(member, type) and issubclass(member, Optimizer):
                fix = f"make one: {member.__name__}(1.0)"
            demand(isinstance(member, Optimizer), message, fix=fix)
            has_rule = type(member).rule is not Optimizer.rule
            message = f"chain: {type(member).__name__} has a rule() for new values of parameters"
            fix = "define direction(), which returns what is subtracted, in its place"
            demand(not has_rule, message, fix=fix)

    def _moves(self, pairs: Gradients, state: OptimizerSlots) -> Moves:
        steps, moves = self._directions(pairs, state, "")
        for step, (_, variable) in zip(steps, pairs, strict=True):
            moved = converted(variable, step.dtype) - step
            moves.append((variable, converted(moved, variable.dtype)))
        return moves

    def _directions(
        self, pairs: Gradients, state: OptimizerSlots, prefix: str
    ) -> tuple[list[Tensor], Moves]:
        """Return the steps, subtracted from parameters, and the slots' new values.

        Args:
            pairs: The gradients with the parameters.
            state: The slots of all parameters.
            prefix: The beginning of the names of its members' slots.
        """
        given = [(converted(g, wide_dtype(v.dtype)), v) for g, v in pairs]
        moves: Moves = []
        names: list[str] = []
        decay = SGD(1.0, weight_decay=self.weight_decay)
        for member in (decay, *self.members, SGD(self.lr)):
            name = member.name or type(member).__name__.lower()
            names.append(name)
            count = names.count(name) - 1
            inner = f"{prefix}{name}_{count}." if count else f"{prefix}{name}."
            steps, remembered = _directions(member, given, state, inner)
            given = [(step, v) for step, (_, v) in zip(steps, given, strict=True)]
            moves += remembered
        return [step for step, _ in given], moves


def _directions(
    member: Optimizer, pairs: Gradients, state: OptimizerSlots, prefix: str
) -> tuple[Sequence[Tensor], Moves]:
    """Return the steps that a member subtracts from parameters, and the new values of its slots."""
    clipped = member._clipped([gradient for gradient, _ in pairs])
    given = [(g, variable) for g, (_, variable) in zip(clipped, pairs, strict=True)]
    if isinstance(member, Chain):
        return member._directions(given, state, prefix)
    found: dict[Variable, Tensor] = {}
    moves: Moves = []
    for own, some in member._subgroups(given):
        is_decayed = own.weight_decay and own._is_decoupled()
        decay: Any = own._rate(state) * own.weight_decay
        for variable, step, remembered in own._applied("direction", some, state, prefix):
            if is_decayed:
                amount = converted(decay, step.dtype) if isinstance(decay, Tensor) else decay
                step = step + converted(variable, step.dtype) * amount
            found[variable] = step
            moves += remembered
    return [found[variable] for _, variable in pairs], moves


@explained
def chain(
    *members: Optimizer,
    lr: Rate = 1.0,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    name: str = "chain",
) -> Optimizer:
    """Return an optimiser that is made of others: each takes what the one before it returns.

    The first takes the gradients, and what the last returns is subtracted from the parameters. A
    member is an optimiser, whose rate is part of it, or what a function of `gf.optim.transforms`
    returns. It is `optax.chain`, but for the sign: optax adds, so that chains end with `scale(-lr)`
    there, and with `lr=` here.

    Args:
        *members: The optimisers, in order.
        lr: The learning rate, by which the result is multiplied.
        weight_decay: The fraction of the parameters that is added to the gradients, before the
            members.
        clip_norm: The largest norm of all gradients together; they are scaled before the members.
        clip_value: The largest size of an element of the gradients, cut off before the members.
        name: The prefix of its variables' names: `chain.adam.m.<parameter>`.

    Raises:
        ArgumentError: A member is no optimiser, or one whose `rule` returns new values of
            parameters, or there is none.

    >>> import graphfw as gf
    >>> t = gf.optim.transforms
    >>> optimizer = gf.optim.chain(
    ...     t.clip_by_value(1.0), t.trace(0.5), t.add_decayed_weights(0.25), lr=0.5
    ... )
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(4.0, name="w")
    ...     train = optimizer.minimize(w * w)
    >>> with gf.Session(g) as session:
    ...     session.run(train)
    ...     float(session[w])
    3.0
    """
    return Chain(
        lr,
        members=members,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        clip_value=clip_value,
        name=name,
    )
