"""`Optimizer`: from a loss to the update that makes it smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.hints.kinds import is_own
from graphfw.hints.names import Unchanging
from graphfw.ir import ambient, concrete
from graphfw.ir.build import admitted
from graphfw.ir.dtype import float64
from graphfw.ir.graph import current_graph, open_graph
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Update, Variable
from graphfw.loc import capture
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import callback, demand, wide_dtype
from graphfw.optim.carried import carried_pairs
from graphfw.optim.clip import clip_by_global_norm, clip_by_value
from graphfw.optim.mistakes import (
    check_loss,
    checked_pair,
    differentiated,
    returned_pair,
    warn_of_mistakes,
)
from graphfw.optim.parameters import ParameterGroup, gradients_of, grouped, trained_by
from graphfw.optim.schedules import Schedule
from graphfw.optim.slots import Initial, OptimizerSlots, checked_slots, state_in
from graphfw.utils.collecting import without_collection

Rate: TypeAlias = float | Tensor | Schedule
"""A learning rate: a number, a scalar tensor, or a function of the number of updates made."""

Scalar: TypeAlias = float | Tensor
"""A value that all parameters of a group share in an update: a number, or a 0-d float64 tensor."""

Slots: TypeAlias = Mapping[str, Tensor]

Moves: TypeAlias = list[tuple[Variable, Tensor]]
"""Variables with their new values."""

Gradients: TypeAlias = Sequence[tuple[Tensor, Variable]]
"""Gradients with their variables."""

Differentiate: TypeAlias = Callable[[Tensor, list[Variable]], Sequence[Tensor]]
"""A function that returns the gradients of a loss with respect to variables."""

Groups: TypeAlias = "Sequence[tuple[Optimizer, list[Variable]]]"
"""Variables with the optimisers whose rules are theirs."""


@dataclass(frozen=True, eq=False)
class Optimizer(Unchanging):
    """The base of optimisers: finds the parameters, differentiates, and collects the updates.

    An optimiser belongs to the first graph that it is used in. There it keeps the number of updates
    made (`adam.step`) and, for each parameter, what its rule remembers (`adam.m.<parameter>`);
    these are variables, saved and restored with all others. For float16 and bfloat16 parameters the
    rule computes and remembers in float32.

    Args:
        lr: The learning rate: a number from 0 up, a scalar tensor, or one of `schedules`.
        weight_decay: The strength of weight decay: the gradient of an L2 penalty, or, in `AdamW`,
            `Lion`, `Muon`, `Adafactor` and others, decoupled from the gradient.
        clip_norm: The largest norm of all gradients together; larger ones are scaled down.
        clip_value: The largest size of an element of the gradients; larger ones are cut off,
            before clip_norm.
        name: The prefix of its variables' names; the class by default.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1e-3
    weight_decay: float = field(default=0.0, kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)
    clip_value: float | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    _states: list[OptimizerSlots] = field(default_factory=list, init=False, repr=False)

    _answers_as = "Optimizer"
    decoupled: ClassVar[bool] = False
    """Whether weight decay acts on the parameter itself, and not on the gradient."""
    decays_in_rule: ClassVar[bool] = False
    """Whether weight decay is left to the rule, which computes with the parameter as it was."""
    takes_complex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        given: Any = self.lr
        # A model could be called, too, as a schedule is.
        if isinstance(given, (list, tuple)) or hasattr(given, "parameters"):
            raise ArgumentError(
                f"{type(self).__name__}: lr is {a_type(given)}, and not a learning rate",
                fix="parameters go to the step: optimizer.minimize(loss, parameters)",
            )
        if not callable(self.lr):
            self._check_rate(self.lr)
        self._check("weight_decay", self.weight_decay, least=0)
        for limit in ("clip_norm", "clip_value"):
            if getattr(self, limit) is not None:
                self._check(limit, getattr(self, limit), above=0)

    # What subclasses say.

    def slots(self) -> Mapping[str, Initial]:
        """Return the names of each parameter's state variables, with their initial values.

        One whose shape is not the parameter's stands with its shape: `{"norm": (0.0, ())}`.
        """
        return {}

    def slots_for(self, shape: Shape) -> Mapping[str, Initial]:
        """Return the slots of a parameter of a shape, where they depend on it: `slots()` if not."""
        return self.slots()

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        """Return the numbers that parameters share; `count` is 1 in the first update, a float64."""
        return (lr,)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the step, subtracted from a parameter, and its slots' new values."""
        raise ArgumentError(
            f"{type(self).__name__}: it has no rule",
            fix="define direction(self, p, g, slots, shared), as docs/adding-an-optimiser.md says",
        )

    def rule(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a parameter's new value and its slots', where that is no subtraction."""
        name = type(self).__name__
        call = "direction(p, g, slots, shared)"
        made = callback(name, "direction", self.direction, call)(p, g, slots, shared)
        step, remembered = returned_pair(f"{name}: direction()", made)
        return p - step, dict(remembered)

    # What users call.

    @explained
    def minimize(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None = None,
    ) -> Update:
        """Return the update that makes one step towards a smaller loss; fetch it to make the step.

        Updates that layers carry along with their results, such as `BatchNorm`'s running
        statistics, are part of it.

        Args:
            loss: A floating-point scalar.
            parameters: The variables to change; by default all trainable ones that a gradient
                reaches from the loss. Or groups with options of their own, which this optimiser's
                options fill up: `[{"parameters": head, "lr": 1e-3}, {"parameters": body}]`. A group
                may have another rule: `{"parameters": table, "optimizer": gf.optim.SGD(0.1)}`.

        Raises:
            GradientError: The loss is no floating-point scalar; no trainable variable, or not all
                `parameters`, have a gradient.
            ArgumentError: `parameters` holds something else than trainable variables, or one twice,
                or a group has unknown options.
            GraphError: No graph is open, or it is another than the loss's or the optimiser's.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     w = gf.Variable(4.0, name="w")
        ...     train = gf.optim.SGD(0.25).minimize(w * w)
        >>> with gf.Session(g) as session:
        ...     session.run(train)
        ...     float(session[w])
        2.0
        """
        return self._update(self._minimizing(loss, parameters, gradients_of))

    @explained
    def apply_gradients(
        self, pairs: Iterable[tuple[Tensor, Variable]], *, loss: Tensor | None = None
    ) -> Update:
        """Return the update of one step along gradients that were computed elsewhere.

        Args:
            pairs: Gradients with their variables: `zip(gradients, parameters)`.
            loss: The loss, if updates that its layers carry along are to be part of this one, as in
                `minimize`. If the gradients are sums over several batches, see `layer_updates`.

        Raises:
            ArgumentError: A pair is no tensor with a trainable variable of its shape, or a variable
                comes twice.
            GradientError: A variable is of a dtype that has no gradient.
            GraphError: As in `minimize`.
        """
        return self._update(self._applying(pairs, loss, lambda gradients: gradients))

    @explained
    def learning_rate(self) -> Tensor:
        """Return the rate that the next update will use, a 0-d float64 tensor, to fetch and log.

        Raises:
            GraphError: No graph is open, or another one than that of the steps.
        """
        state = self._open("learning_rate")
        rate = self._rate(state)
        return as_tensor(rate, float64)

    @property
    def variables(self) -> list[Variable]:
        """The variables it keeps in its graph: the number of updates made, and the slots."""
        return [variable for state in self._states for variable in state.variables]

    # How it works.

    def _open(self, what: str) -> OptimizerSlots:
        graph = open_graph("a learning rate" if what == "learning_rate" else "a training step")
        name = self.name or type(self).__name__.lower()
        now = self._states[0] if self._states else None
        state = state_in(graph, now, lambda: OptimizerSlots(graph, name))
        self._states[:] = [state]
        if state.graph is not graph:
            raise GraphError(
                f"{what}: this {type(self).__name__} belongs to another graph",
                why=owners(state.graph, graph),
                fix="an optimiser belongs to the graph it is first used in: make another",
            )
        return state

    def _with(self, options: Mapping[str, Any]) -> Optimizer:
        """Return the rule of a parameter group: its optimiser, or this one with its options."""
        if "optimizer" in options:
            rest = {name: value for name, value in options.items() if name != "optimizer"}
            return self._checked_rule(options["optimizer"], "a group's optimizer")._with(rest)
        if not options:
            return self
        shared = ("clip_norm", "clip_value", "name")
        known = [f.name for f in fields(self) if f.init and f.name not in shared]
        for option in options:
            if option not in known:
                raise ArgumentError(
                    f"{type(self).__name__}: a parameter group has no option {option!r}",
                    fix=f"it has: parameters, {', '.join(known)}; or optimizer",
                )
        return replace(self, **options)

    def _minimizing(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None,
        differentiate: Differentiate,
    ) -> Moves:
        """Return the new values of a step towards a smaller loss."""
        graph = open_graph("a training step")
        check_loss(loss)
        if current_graph() is graph:
            admitted(loss, graph, "minimize")
        if parameters is None:
            groups: Groups = [(self, trained_by(loss))]
        else:
            groups = [(self._with(o), found) for found, o in grouped("minimize", parameters)]
        self._open("minimize")
        warn_of_mistakes([loss], [variable for _, found in groups for variable in found])
        return self._descended(loss, groups, differentiate)

    def _descended(self, loss: Tensor, groups: Groups, differentiate: Differentiate) -> Moves:
        """Return the new values of a step along a loss's gradients, which a function finds."""
        variables = [variable for _, found in groups for variable in found]
        gradients = iter(differentiate(loss, variables))
        rules = [(rule, [(next(gradients), v) for v in found]) for rule, found in groups]
        return self._moved(rules, carried_pairs(loss))

    def _applying(
        self,
        pairs: Iterable[tuple[Tensor, Variable]],
        loss: Tensor | None,
        changed: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> Moves:
        """Return the new values of a step along given gradients, which `changed` may change."""
        open_graph("a training step")
        given = [checked_pair(pair) for pair in pairs]
        ((variables, _),) = grouped("apply_gradients", [variable for _, variable in given])
        self._open("apply_gradients")
        gradients = changed([gradient for gradient, _ in given])
        rules = [(self, [*zip(gradients, variables, strict=True)])]
        losses = differentiated([g for g, _ in given]) if loss is None else [loss]
        warn_of_mistakes(losses, variables)
        return self._moved(rules, [] if loss is None else carried_pairs(loss))

    def _moved(
        self,
        rules: Sequence[tuple[Optimizer, Gradients]],
        carried: Moves,
    ) -> Moves:
        state = self._states[0]
        pairs: Moves = [(state.step, state.next_step), *carried]
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            clipped = iter(self._clipped([g for _, found in rules for g, _ in found]))
            for rule, found in rules:
                made = [(next(clipped), variable) for _, variable in found]
                for own, members in rule._subgroups(made):
                    pairs += own._moves(members, state)
        return pairs

    def _subgroups(self, pairs: Gradients) -> Sequence[tuple[Optimizer, Gradients]]:
        """Return gradients with their variables, with the optimiser whose rule is theirs."""
        return [(self, pairs)]

    def _checked_rule(self, optimizer: Any, what: str) -> Optimizer:
        """Return an optimiser for some of the parameters.

        Raises:
            ArgumentError: It is none, or clips: all gradients are clipped together.
        """
        message = f"{type(self).__name__}: {what} is {a_type(optimizer)}, no optimiser"
        demand(isinstance(optimizer, Optimizer), message, fix="write gf.optim.AdamW(1e-3)")
        rule: Optimizer = optimizer
        for option in ("clip_norm", "clip_value"):
            message = f"{type(self).__name__}: {what} has {option}, and gradients clip together"
            fix = f"set {option} of {type(self).__name__} alone"
            demand(getattr(rule, option) is None, message, fix=fix)
        return rule

    def _update(self, pairs: Moves) -> Update:
        graph = current_graph()
        loc = graph.provenance or capture()
        graph.check_update(self._states[0].step, loc)
        return Update(pairs, graph, loc)

    def _clipped(self, gradients: list[Tensor]) -> list[Tensor]:
        if self.clip_value is not None:
            gradients = clip_by_value(gradients, self.clip_value)
        if self.clip_norm is not None:
            gradients, _ = clip_by_global_norm(gradients, self.clip_norm)
        return gradients

    def _moves(self, pairs: Gradients, state: OptimizerSlots) -> Moves:
        """Return the new values of a group's parameters and of their slots."""
        result: Moves = []
        for variable, moved, remembered in self._applied("rule", pairs, state):
            result += [(variable, converted(moved, variable.dtype)), *remembered]
        return result

    def _applied(
        self, method: str, pairs: Gradients, state: OptimizerSlots, prefix: str = ""
    ) -> list[tuple[Variable, Tensor, Moves]]:
        """Call a method as `rule` is called, for each parameter of a group.

        Args:
            method: Its name.
            pairs: The gradients with the parameters.
            state: The slots of all parameters.
            prefix: The beginning of the names of this optimiser's slots.

        Returns:
            The parameters, what the method returns for them, and the new values of their slots.
        """
        lr = self._rate(state)
        decoupled = self._is_decoupled()
        decay = 1 - lr * self.weight_decay if decoupled else self.weight_decay
        name = type(self).__name__
        share = callback(name, "shared", self.shared, "shared(lr, count)")
        call = f"{method}(p, g, slots, shared)"
        rule = callback(name, method, getattr(self, method), call)
        shared = (decay, *share(lr, converted(state.next_step, float64)))
        initial: dict[Shape, Mapping[str, Initial]] = {}
        result = []
        in_dtype: dict[str, list[Scalar]] = {}
        graph = current_graph()
        # A rule of graphfw's own makes nodes for the line that calls the optimiser.
        loc = graph.provenance or (capture(state.name) if is_own(type(self)) else None)
        with graph.located(loc):
            for gradient, variable in pairs:
                self._check_dtype(variable)
                dtype = wide_dtype(variable.dtype)
                if dtype.name not in in_dtype:
                    in_dtype[dtype.name] = [
                        converted(s, dtype) if isinstance(s, Tensor) else s for s in shared
                    ]
                amount, *scalars = in_dtype[dtype.name]
                p, g = converted(variable, dtype), converted(gradient, dtype)
                if self.weight_decay and not self.decays_in_rule:
                    p, g = (p * amount, g) if decoupled else (p, g + p * amount)
                shape = variable.shape
                if shape not in initial:
                    initial[shape] = checked_slots(name, self.slots_for(shape))
                slots = state.slots_of(variable, initial[shape], dtype, prefix)
                made = rule(p, g, slots, scalars)
                moved, remembered = self._checked(f"{method}()", variable, slots, made)
                result.append((variable, moved, [(slots[n], v) for n, v in remembered.items()]))
        return result

    def _checked(
        self, method: str, variable: Variable, slots: Mapping[str, Variable], made: Any
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """See that a rule has returned new values for the parameter and its slots.

        Raises:
            ArgumentError: It has returned something else.
        """
        if not slots and type(made) is tuple and len(made) == 2 and made[1] == {}:  # most quickly
            moved = made[0]
            if isinstance(moved, Tensor) and moved.shape == variable.shape:
                return moved, {}
        what = f"{type(self).__name__}: {method}"
        moved, remembered = returned_pair(what, made)
        kinds = {f'"{variable.name}"': (moved, variable.shape)}
        for name, value in remembered.items():
            fix = f"slots() has: {', '.join(slots) or 'none'}"
            demand(name in slots, f"{what} returns a slot {name!r}", fix=fix)
            kinds[f"the slot {name!r}"] = value, slots[name].shape
        left = ", ".join([f'"{name}": slots["{name}"]' for name in slots if name not in remembered])
        message = f"{what} returns no value for some of the slots that slots() has"
        demand(not left, message, fix=f"return those that stay as well: {{{left}}}")
        for label, (value, shape) in kinds.items():
            found = value.shape if isinstance(value, Tensor) else a_type(value)
            message = f"{what} returns {found} for {label}, which has the shape {shape}"
            demand(found == shape, message, fix="return a tensor of that shape")
        return moved, {n: converted(value, slots[n].dtype) for n, value in remembered.items()}

    def _is_decoupled(self) -> bool:
        """Whether weight decay acts on the parameter: for some optimisers an option says so."""
        return self.decoupled

    def _rate(self, state: OptimizerSlots) -> Scalar:
        """Return the learning rate of the next update."""
        rate: Scalar = self.lr(converted(state.step, float64)) if callable(self.lr) else self.lr
        self._check_rate(rate)
        return converted(rate, float64) if isinstance(rate, Tensor) else rate

    def _check_rate(self, rate: Any) -> None:
        if not isinstance(rate, Tensor):
            self._check("lr", rate, least=0)
            return
        fits = rate.shape == () and not rate.dtype.is_complex
        message = f"{type(self).__name__}: the learning rate must be a real scalar, not {rate.type}"
        demand(fits, message, fix="give a number, a 0-d tensor, or one of gf.optim.schedules")

    def _check_dtype(self, variable: Variable) -> None:
        if variable.dtype.is_complex and not self.takes_complex:
            raise ArgumentError(
                f'{type(self).__name__}: it trains real variables, and "{variable.name}" is '
                f"{variable.dtype.name}",
                operands=[concrete.describe("parameter", variable)],
                fix="use SGD, or two real variables",
            )

    def _check(
        self,
        option: str,
        value: Any,
        *,
        above: float | None = None,
        least: float | None = None,
        below: float | None = None,
    ) -> None:
        """See that an option is a number within bounds.

        Raises:
            ArgumentError: It is not.
        """
        text = f"{type(self).__name__}: {option}={value!r}"
        is_scalar = hasattr(value, "__float__") and not getattr(value, "shape", ())
        is_other = isinstance(value, (bool, Tensor, np.datetime64, np.timedelta64))
        is_number = is_scalar and not is_other
        default = next((f.default for f in fields(self) if f.name == option), 0.9)
        fix = f"use {option}={default if isinstance(default, (int, float)) else 1.0}"
        demand(is_number, f"{text} is no number", fix=fix)
        bounds = []
        if above is not None:
            bounds.append((value > above, f"above {above:g}"))
        if least is not None:
            bounds.append((value >= least, f"at least {least:g}"))
        if below is not None:
            bounds.append((value < below, f"below {below:g}"))
        wanted = " and ".join(words for _, words in bounds)
        demand(all(holds for holds, _ in bounds), f"{text} must be {wanted}", fix=fix)

    def _check_betas(self, betas: Any) -> None:
        """See that `betas` are two numbers in [0, 1).

        Raises:
            ArgumentError: They are not.
        """
        is_pair = isinstance(betas, (tuple, list)) and len(betas) == 2
        message = f"{type(self).__name__}: betas={betas!r} is no pair of numbers"
        demand(is_pair, message, fix="use betas=(0.9, 0.999)")
        for index, beta in enumerate(betas):
            self._check(f"betas[{index}]", beta, least=0, below=1)
