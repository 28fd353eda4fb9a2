"""The variables that an optimiser changes: its argument, or those that a loss depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from graphfw.errors import ArgumentError, GradientError, Operand, a_type
from graphfw.ir import concrete
from graphfw.ir.op import SOURCE
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.transforms.grad import blocking, gradients

ParameterGroup: TypeAlias = Mapping[str, Any]
"""Variables under the key "parameters", and options that hold for these only."""


_EMPTY_FIX = "pass model.parameters(), of a model that has some that are not frozen"
_INEXACT_FIX = "train variables of a floating-point dtype, such as float32"


def grouped(what: str, parameters: Any) -> list[tuple[list[Variable], dict[str, Any]]]:
    """Return variables, or groups of them, as groups with their options.

    `what` is the function that errors name.

    Raises:
        ArgumentError: Something is no trainable variable, or comes twice, or there is nothing.
        GradientError: A variable is of a dtype that has no gradient.
    """
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    if isinstance(parameters, Mapping) or not isinstance(parameters, Iterable):
        fix = "write model.parameters()"
        if isinstance(parameters, Mapping):
            fix = "pass a list of groups, [{…}], or of variables"
        raise ArgumentError(
            f"{what}: parameters is {a_type(parameters)}, not a list of variables", fix=fix
        )
    items = list(parameters)
    if not items:
        raise ArgumentError(f"{what}: the list of parameters is empty", fix=_EMPTY_FIX)
    if any(isinstance(item, Mapping) for item in items):
        groups = [_group(what, item) for item in items]
    else:
        groups = [(items, {})]
    seen: set[int] = set()
    for variables, _ in groups:
        for variable in variables:
            _check_variable(what, variable)
            if id(variable) in seen:
                raise ArgumentError(
                    f'{what}: "{variable.name}" is in the parameters twice',
                    operands=[concrete.describe("parameter", variable)],
                    fix="list each variable once: layers that share it list it both",
                )
            seen.add(id(variable))
    return groups


def _group(what: str, item: Any) -> tuple[list[Variable], dict[str, Any]]:
    if not isinstance(item, Mapping):
        raise ArgumentError(
            f"{what}: {item!r} stands among parameter groups and is none",
            fix='write {"parameters": […]}',
        )
    if "parameters" not in item:
        found = ", ".join(f'"{key}"' for key in item)
        raise ArgumentError(
            f'{what}: a parameter group has no entry "parameters"',
            fix=f"its entries are {found}: name that of the variables so",
        )
    options = {name: value for name, value in item.items() if name != "parameters"}
    given = item["parameters"]
    variables: list[Variable] = [given] if isinstance(given, Variable) else list(given)
    if not variables:
        raise ArgumentError(f"{what}: a parameter group is empty", fix=_EMPTY_FIX)
    return variables, options


def _check_variable(what: str, variable: Any) -> None:
    if not isinstance(variable, Variable):
        operands = [concrete.describe("found", variable)] if isinstance(variable, Tensor) else []
        shown = "a tensor" if isinstance(variable, Tensor) else repr(variable)
        raise ArgumentError(
            f"{what}: the parameters hold {shown}, and only variables are trained",
            operands=operands,
            fix="pass model.parameters() or gf.Variable objects",
        )
    if not variable.trainable:
        raise ArgumentError(
            f'{what}: "{variable.name}" is not trainable',
            operands=[concrete.describe("parameter", variable)],
            fix="make it with trainable=True, or leave it out",
        )
    if variable.is_frozen:
        raise ArgumentError(
            f'{what}: "{variable.name}" is frozen',
            operands=[concrete.describe("parameter", variable)],
            fix="write model.unfreeze() before, or leave it out",
        )
    if not variable.dtype.is_inexact:
        raise GradientError(
            f'{what}: "{variable.name}" is {variable.dtype.name}, which has no gradient',
            operands=[concrete.describe("parameter", variable)],
            fix=_INEXACT_FIX,
        )


def trained_by(loss: Tensor) -> list[Variable]:
    """Return the trainable variables that a gradient can reach from a loss, in order of making.

    Raises:
        GradientError: There are none; says what comes near.
    """
    reached, blocks = _reached(loss)
    graph = loss.graph
    variables = [v for v in graph.root.variables if v.dtype.is_inexact]
    wanted = [v for v in variables if v.is_trained]

    def among(some: Iterable[Variable], nodes: Collection[Node]) -> list[Variable]:
        """Return the variables that are among nodes, or for which one stands in a loop's body."""
        here = [(v, graph.standing_for(v)) for v in some]
        return [v for v, t in here if t is not None and t.node in nodes]

    found = among(wanted, reached)
    if found:
        return found
    above = set(ancestors([loss]))
    operands = [concrete.describe("loss", loss)]
    blocked = among(wanted, above)
    if blocked:
        node = next(n for n in blocks if among(blocked[:1], set(ancestors(n.outputs))))
        raise _stopped(blocked, node, operands, "use a differentiable function there")
    fixed = among(variables, reached)
    if fixed:
        is_frozen = any(v.is_frozen for v in fixed)
        why = "frozen" if is_frozen else "not trainable"
        fix = "make what is to be trained with trainable=True"
        raise GradientError(
            f"minimize: the loss depends on {_named(fixed)} alone, {why}",
            operands=operands,
            fix="write model.unfreeze() before" if is_frozen else fix,
        )
    others = among([v for v in graph.root.variables if not v.dtype.is_inexact], above)
    if others and not wanted:
        dtypes = ", ".join(dict.fromkeys([v.dtype.name for v in others]))
        raise GradientError(
            f"minimize: the loss depends on {_named(others)} alone, and {dtypes} has no gradient",
            operands=operands,
            fix=_INEXACT_FIX,
        )
    raise GradientError(
        "minimize: the loss depends on no trainable variable",
        operands=operands,
        why=f"the graph has {_named(wanted)}, which the loss does not use" if wanted else "",
        fix="compute the loss from the model's output" if wanted else "make a gf.Variable",
    )


def gradients_of(loss: Tensor, variables: Sequence[Variable]) -> list[Tensor]:
    """Return a loss's gradients with respect to variables that it depends on.

    Raises:
        GradientError: No gradient reaches one of them.
    """
    found = gradients(loss, variables)
    return [
        _unreached(loss, variable) if gradient is None else gradient
        for gradient, variable in zip(found, variables, strict=True)
    ]


def _unreached(loss: Tensor, variable: Variable) -> NoReturn:
    """Refuse a parameter that no gradient reaches from the loss."""
    leave = "leave it out of `parameters`"
    operands = [concrete.describe("loss", loss), concrete.describe("parameter", variable)]
    if variable.graph is not loss.graph.root:
        raise GradientError(
            f"minimize: {_named([variable])} belongs to another graph than the loss",
            operands=operands,
            why=owners(variable.graph, loss.graph.root, "the loss's is"),
            fix=f"train the variables of the loss's graph: {leave}",
        )
    block = blocking(loss, variable)
    if block is not None:
        fix = f"use a differentiable function there, or {leave}"
        raise _stopped([variable], block, operands, fix)
    raise GradientError(
        f"minimize: the loss does not depend on {_named([variable])}",
        operands=operands,
        fix=f"compute the loss from it, or {leave}",
    )


def _stopped(
    variables: list[Variable], node: Node, operands: list[Operand], fix: str
) -> GradientError:
    """Return the error for variables whose gradients all stop at a node."""
    return GradientError(
        f"minimize: the loss depends on {_named(variables)} only through {node.op.name}, "
        "which no gradient passes",
        operands=[*operands, concrete.describe("stop", node.outputs[0])],
        fix=fix,
    )


def _reached(loss: Tensor) -> tuple[set[Node], list[Node]]:
    """Return the nodes that gradients get to from a loss, and those that stop them."""
    found: set[Node] = set()
    blocks: list[Node] = []
    todo = [loss.node]
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found.add(node)
        if node.op.vjp is None and SOURCE not in node.op.traits:
            blocks.append(node)
            continue
        for tensor in node.inputs:
            if tensor.dtype.is_inexact:
                todo.append(tensor.node)
            elif SOURCE not in tensor.node.op.traits:
                blocks.append(tensor.node)
    return found, blocks


def _named(variables: list[Variable]) -> str:
    names = ", ".join(f'"{v.name}"' for v in variables[:4])
    return names + (f" and {len(variables) - 4} more" if len(variables) > 4 else "")
