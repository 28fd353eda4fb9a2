"""Warnings of losses that are given probabilities for scores, or scores for probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping

from graphfw.ir.concrete import value_to_check
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture
from graphfw.ops.control.region_op import Region
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.movement import Movement

_LIMITED = {"add", "clip", "maximum", "minimum", "subtract"}
"""Steps that leave probabilities almost what they are, where the other operands are constants."""
_UNBOUNDED = {"abs", "negative", "relu", "sum"}
"""Steps after which what has no bounds still has none."""
_PRODUCTS = {"matmul", "conv"}
_DEEP = 12
"""The depth to which two subgraphs are compared, to see whether they compute the same."""


def warn_of_probabilities(name: str, x: Tensor, fix: str) -> bool:
    """Warn where a loss takes scores, and x is made of a softmax or a sigmoid; say if it is."""
    for origin in _origins(x, _values_of):
        kind = "softmax" if _is_softmax(origin) else "sigmoid" if _is_sigmoid(origin) else ""
        if kind:
            warn(
                f"{name}: its input is the result of a {kind}, "
                f"made at {_location_of(origin)}: {fix}"
            )
            return True
    return False


def warn_of_no_logarithms(name: str, x: Tensor, fix: str) -> None:
    """Warn where a loss takes logarithms, and x is probabilities, or what a layer computes."""
    if not warn_of_probabilities(name, x, fix) and _is_layers(x):
        what = f"its input is no logarithm of probabilities, but what {_location_of(x)} computes"
        warn(f"{name}: {what}: {fix}")


def warn_of_scores(name: str, x: Tensor, fix: str) -> None:
    """Warn where a loss takes probabilities, and x may be anything: sums of products, or values."""
    found = next(filter(_is_product, _origins(x, _sums_of)), None)
    if found is not None:
        warn(f"{name}: its input is no probability, but what {_location_of(found)} computes: {fix}")
    else:
        _warn_of_values(f"{name}: its input", x, fix)


def warn_of_target(name: str, t: Tensor) -> None:
    """Warn where a target is known, and no probability."""
    _warn_of_values(f"{name}: its target", t, "the two classes are 0 and 1")


def warn_of_signs(name: str, t: Tensor) -> None:
    """Warn where a target is known, and has other values than -1 and 1."""
    values = value_to_check(t)
    if values is not None and not (abs(values) == 1).all():
        warn(f"{name}: its target has other values than -1 and 1: pass bools, or 2 * target - 1")


def _warn_of_values(what: str, x: Tensor, fix: str) -> None:
    values = value_to_check(x)
    if values is not None and values.size and not (values.min() >= 0 and values.max() <= 1):
        warn(f"{what} is outside of [0, 1]: from {values.min():.4g} to {values.max():.4g}: {fix}")


def _origins(x: Tensor, onward: Callable[[Tensor], tuple[Tensor, ...]]) -> Iterator[Tensor]:
    """Yield x and what it comes from, bodies included, as far as a function says to go on."""
    todo: list[tuple[Tensor, Mapping[Tensor, Tensor]]] = [(x, {})]
    seen: set[Tensor] = set()
    while todo:
        tensor, given = todo.pop()
        if tensor in given:  # the parameter of a body
            tensor, given = given[tensor], {}
        if tensor in seen:
            continue
        seen.add(tensor)
        yield tensor
        node = tensor.node
        if not isinstance(node.op, Region):
            todo += [(t, given) for t in reversed(onward(tensor))]
            continue
        for body in node.op.bodies:
            # Some take more than the node is given, such as an iteration's number, and that first.
            taken = dict(zip(reversed(body.parameters), reversed(node.inputs), strict=False))
            if tensor.index < len(body.outputs):  # else it is a loop's condition
                todo.append((body.outputs[tensor.index], taken))


def _values_of(x: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors whose values x moves, limits, shifts or masks."""
    op, inputs = x.node.op, x.node.inputs
    if op.name in ("astype", "gather") or isinstance(op, Movement):
        return inputs if isinstance(op, Concat) else inputs[:1]
    others = _not_constant(inputs[1:] if op.name == "where" else inputs)
    if op.name == "where" or (op.name in _LIMITED and len(others) == 1):
        return others
    return ()


def _sums_of(x: Tensor) -> tuple[Tensor, ...]:
    """Return the terms of the sum that x is, apart from factors and from ops that set no bound."""
    op, inputs = x.node.op, x.node.inputs
    if op.name in ("astype", "gather") or isinstance(op, Movement):
        return inputs if isinstance(op, Concat) else inputs[:1]
    if op.name in ("add", "subtract"):
        return inputs
    if op.name in ("multiply", "divide"):
        others = _not_constant(inputs)
        return others if len(others) == 1 else ()
    if op.name == "where":
        # A condition on the value itself may be there to limit it.
        asked = {node for node in ancestors(inputs[:1]) if node.op.name in _PRODUCTS}
        branches = _not_constant(inputs[1:])
        return tuple([t for t in branches if not asked or asked.isdisjoint(ancestors([t]))])
    return inputs[:1] if op.name in _UNBOUNDED else ()


def _not_constant(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple([t for t in tensors if _seen_through(t).node.op.name != "constant"])


def _seen_through(x: Tensor) -> Tensor:
    """Return the tensor that x is a view or a conversion of."""
    while x.node.op.name == "astype" or isinstance(x.node.op, Movement):
        x = x.node.inputs[0]
    return x


def _is_softmax(x: Tensor) -> bool:
    """Return whether x is exp(…) / sum(exp(…)), whatever guards the sum against 0."""
    node = x.node
    if node.op.name == "divide":
        terms, total = node.inputs
        return terms.node.op.name == "exp" and _is_total(total, terms)
    inner = node.inputs[0].node if node.op.name == "exp" else node
    if inner.op.name != "subtract" or inner is node:
        return False
    terms, log = inner.inputs  # the exponential of a log_softmax
    total = log.node.inputs[0] if log.node.op.name == "log" else log
    return total is not log and _is_total(total, terms, of_exp=True)


def _is_total(total: Tensor, terms: Tensor, *, of_exp: bool = False) -> bool:
    """Return whether a tensor is the sum of another one, or of its exponential, guarded or not."""
    while total.node.op.name in ("where", "add", "maximum") or isinstance(total.node.op, Movement):
        others = _not_constant(total.node.inputs)
        if not others:
            return False
        total = others[-1]
    summed = total.node.inputs[0] if total.node.op.name == "sum" else total
    if summed is total:
        return False
    if not of_exp:
        return _is_same(summed, terms)
    return summed.node.op.name == "exp" and _is_same(summed.node.inputs[0], terms)


def _is_sigmoid(x: Tensor) -> bool:
    """Return whether x is a sigmoid, or 1 / (1 + exp(…))."""
    op, inputs = x.node.op, x.node.inputs
    if op.name != "divide" or inputs[1].node.op.name != "add" or _not_constant(inputs[:1]):
        return op.name == "sigmoid"
    others = _not_constant(inputs[1].node.inputs)
    return len(others) == 1 and others[0].node.op.name == "exp"


def _is_same(a: Tensor, b: Tensor, deep: int = _DEEP) -> bool:
    """Return whether two tensors are computed in the same way from the same tensors."""
    if a is b:
        return True
    x, y = a.node, b.node
    if not deep or not x.inputs or len(x.inputs) != len(y.inputs):
        return x.op.name == "constant" and x.op == y.op
    alike = a.index == b.index and x.op == y.op
    return alike and all(map(_is_same, x.inputs, y.inputs, [deep - 1] * len(x.inputs)))


def _is_product(x: Tensor) -> bool:
    """Return whether x is a product that has no bounds.

    Those of probabilities have some, and those of vectors that were divided by their norms.
    """
    if x.node.op.name not in _PRODUCTS:
        return False
    operands = x.node.inputs[:2]
    are_divided = all(_seen_through(t).node.op.name == "divide" for t in operands)
    return not are_divided and any(map(_may_be_negative, operands))


def _may_be_negative(x: Tensor) -> bool:
    values = value_to_check(x)
    if values is not None:
        return bool((values < 0).any())
    source = _seen_through(x)
    return not (_is_softmax(source) or _is_sigmoid(source))


def _is_layers(x: Tensor) -> bool:
    """Return whether x is a product, with or without a bias."""
    x = _seen_through(x)
    if x.node.op.name != "add":
        return _is_product(x)
    a, b = map(_seen_through, x.node.inputs)
    return any(_is_product(p) and isinstance(q, Variable) for p, q in ((a, b), (b, a)))


def _location_of(x: Tensor) -> str:
    loc = _seen_through(x).node.loc
    return f"{loc.short()}, layer {loc.layer}" if loc.layer else loc.short()


def warn(message: str) -> None:
    """Warn at the user's line."""
    here = capture()
    warnings.warn_explicit(message, UserWarning, here.file, here.line)
