"""`custom_gradient`: a gradient rule of the user's own around a part of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from graphfw.errors import GradientError, counted
from graphfw.hints.calls import explained
from graphfw.ir.body import Body, Traced, closed, trace
from graphfw.ir.build import admitted, emit_all
from graphfw.ir.concrete import describe
from graphfw.ir.graph import current_graph
from graphfw.ir.op import TRANSPARENT, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.unset import next_serial
from graphfw.ops.batching import MappedAxis
from graphfw.ops.composed import callback
from graphfw.ops.control.checkpoint_ops import FirstInputs
from graphfw.ops.control.effects import carrying, happens
from graphfw.ops.control.region_op import Refusal


@op("custom_gradient")
class CustomGradient(FirstInputs):
    """The first `count` inputs, whose gradient is that of a rule instead.

    ys: count tensors, xs: one for each of `differentiated`, captures of the rule, others -> the ys

    Attributes:
        count: How many results there are.
        rule: Takes the cotangents of the ys that are floats, and the captures; yields those of xs.
        differentiated: For which of the xs it yields one.
        others: How many tensors the function takes from around it: no rule says their gradients.
    """

    rule: Body
    differentiated: tuple[bool, ...] = ()
    others: int = 0
    earlier_fields: ClassVar[dict[str, str]] = {"given": "differentiated"}
    traits = FirstInputs.traits | {TRANSPARENT}

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Any, ...]:
        before = self.count + len(self.differentiated)
        captures = inputs[before : len(inputs) - self.others]
        found = iter(self.rule.inline(*[t for t in ct if t is not None], *captures))
        gradients = [
            next(found) if is_differentiated else None for is_differentiated in self.differentiated
        ]
        happens(list(found))
        refusals = [_refusal(y[0], t) for t in inputs[before + len(captures) :]]
        return (*[None] * self.count, *gradients, *[None] * len(captures), *refusals)

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        before, end = self.count + len(self.differentiated), len(inputs) - self.others
        cotangents = len(self.rule.parameters) - (end - before)
        flags = [*[True] * cotangents, *batched[before:end]]
        rule, _ = mapped.body("custom_gradient", self.rule, flags)
        own = mapped.all(inputs[:before], batched[:before])
        op = CustomGradient(self.count, rule, self.differentiated, self.others)
        return emit_all(op, *own, *inputs[before:])


def _refusal(y: Tensor, other: Tensor) -> Refusal:
    """Say that a tensor which a function takes from around it has no gradient."""
    return Refusal(
        GradientError(
            "custom_gradient: the function uses a tensor from around it, and its rule gives that "
            "no gradient",
            operands=[describe("used", other)],
            at=y.node.loc,
            fix="pass it as an argument, or use it as a constant: gf.stop_gradient(…)",
        )
    )


@explained
def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function of tensors a gradient rule of its own.

    The function returns its result and the rule: a function that takes the result's cotangent (one
    for each tensor of a tuple) and returns the cotangents of the tensors that the function was
    called with, in order. Tensors that the function takes from around it have no gradient: pass
    them as arguments, or use them as constants, by `gf.stop_gradient`. The rule is called once,
    with the function.

    Raises:
        GradientError: The function returns no such pair, or the rule a wrong number of gradients.
            In `gf.grad`: the gradient of a tensor from around the function is wanted.

    >>> import graphfw as gf
    >>> @gf.custom_gradient
    ... def clipped(x):
    ...     return x, lambda ct: gf.clip(ct, -1.0, 1.0)
    >>> x = gf.asarray([1.0, 2.0])
    >>> gf.grad(gf.sum(clipped(x) * 5.0), x)
    Tensor([1., 1.], dtype=float32)
    """
    called = callback("custom_gradient", "function", function, "function(*args, **kwargs)")

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        graph = current_graph()
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        xs = [admitted(x, graph, "custom_gradient") for x in tensors]
        before = next_serial()
        returned = called(*args, **kwargs)
        if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
            raise GradientError(
                f"custom_gradient: {function.__name__} must return its result and a gradient rule",
                fix="return y, rule  with  def rule(ct): …",
            )
        result, rule = returned
        ys = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not all(isinstance(y, Tensor) for y in ys):
            raise GradientError(
                f"custom_gradient: {function.__name__} returns a result that is not a tensor, "
                "nor several",
                fix="return y, rule  with y a tensor or a tuple of tensors",
            )
        others = _others(ys, xs, before)
        differentiated: list[bool] = []
        (body,), captures = closed(*carrying(_traced(rule, ys, len(xs), differentiated)))
        op = CustomGradient(len(ys), body, tuple(differentiated), len(others))
        outputs = emit_all(op, *ys, *xs, *captures, *others)
        return outputs[0] if isinstance(result, Tensor) else outputs

    return wrapped


def _others(ys: Sequence[Tensor], xs: Sequence[Tensor], before: int) -> list[Tensor]:
    """Return the tensors besides the xs from which a gradient could flow to the ys.

    `before` is from where on nodes are those of the function; in a body, what stands for a tensor
    from around it may be one of these.
    """
    arguments = set(xs)

    def is_outside(tensor: Tensor) -> bool:
        return tensor.node.serial < before or tensor.node.op.name == "placeholder"

    found: dict[Tensor, None] = {}
    todo, seen = list(ys), set(ys)
    while todo:
        tensor = todo.pop()
        if tensor in arguments or not tensor.dtype.is_inexact:
            continue
        if is_outside(tensor):
            found[tensor] = None
        elif tensor.node.op.vjp is not None:
            todo += [t for t in tensor.node.inputs if t not in seen]
            seen.update(tensor.node.inputs)
    return list(found)


def _traced(
    rule: Callable[..., Any], ys: Sequence[Tensor], wanted: int, differentiated: list[bool]
) -> Traced:
    """Call a rule for its body; `differentiated` takes for which tensors it yields a gradient."""

    def flat(*seeds: Tensor) -> list[Tensor]:
        rest = iter(seeds)
        returned = rule(*[next(rest) if y.dtype.is_inexact else None for y in ys])
        gradients = returned if isinstance(returned, (tuple, list)) else (returned,)
        if len(gradients) != wanted:
            raise GradientError(
                f"custom_gradient: the rule returns {counted(len(gradients), 'gradient')} for "
                f"{counted(wanted, 'tensor')}",
                fix="return one gradient, or None, for each tensor that the function takes",
            )
        for gradient in gradients:
            if not isinstance(gradient, Tensor) and gradient is not None:
                raise GradientError(
                    f"custom_gradient: the rule returns a {type(gradient).__name__}, not a tensor",
                    fix="make it of the cotangent, with graphfw's functions, or by gf.asarray",
                )
            differentiated.append(gradient is not None)
        return [gradient for gradient in gradients if gradient is not None]

    return trace("custom_gradient", flat, [y.type for y in ys if y.dtype.is_inexact])
