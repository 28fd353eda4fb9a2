"""Reverse-mode differentiation: gradients are ordinary nodes, so they have gradients too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, overload

from graphfw.errors import ArgumentError, GradientError, ShapeError, a_type
from graphfw.ir import ambient, concrete
from graphfw.ir.body import BodyGraph
from graphfw.ir.build import admitted, emit_all
from graphfw.ir.functions import F, public
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.modes import interceptable, unintercepted
from graphfw.ir.op import RANDOM, SOURCE
from graphfw.ir.owners import owners
from graphfw.ir.shape import can_broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.walk import ancestors, users
from graphfw.loc import Loc
from graphfw.ops.control.region_op import Refusal
from graphfw.ops.nn.attention_pattern import ComposedAttention, composed_attentions
from graphfw.utils import nest
from graphfw.utils.collecting import without_collection

Missing = Literal["error", "zeros"]
Cotangent: TypeAlias = Tensor | Refusal
Nested: TypeAlias = Iterable[Any] | Mapping[Any, Any]
Key = TypeVar("Key")


@overload
def grad(y: Tensor, xs: Tensor, grad_y: Any = None, *, missing: Missing = "error") -> Tensor: ...
@overload
def grad(
    y: Tensor, xs: Sequence[Tensor], grad_y: Any = None, *, missing: Missing = "error"
) -> list[Tensor]: ...
@overload
def grad(
    y: Tensor, xs: Mapping[Key, Tensor], grad_y: Any = None, *, missing: Missing = "error"
) -> dict[Key, Tensor]: ...
@overload
def grad(y: Tensor, xs: Nested, grad_y: Any = None, *, missing: Missing = "error") -> Any: ...
@interceptable
def grad(
    y: Tensor,
    xs: Tensor | Nested,
    grad_y: Any = None,
    *,
    missing: Missing = "error",
) -> Any:
    """Return the gradients of `y` with respect to `xs`: tensors of the shapes of the `xs`.

    Gradients of complex tensors follow PyTorch: the conjugate of the derivative, so that a step
    against the gradient goes down.

    Args:
        y: What to differentiate: a scalar, unless `grad_y` is given.
        xs: With respect to what: one tensor, several, or a nested structure of dicts, lists,
            tuples and named tuples. The gradients are nested in the same way; those of tensors
            side by side, in a tuple or another iterable, are a list.
        grad_y: The cotangent of `y`, broadcast to its shape: the result is the vector-Jacobian
            product. 1 for a scalar.
        missing: What to do where `y` does not depend on an x: "error", or "zeros".

    Raises:
        ArgumentError: `y`, or a leaf of `xs`, is not a tensor.
        GradientError: `y` is not a scalar and there is no `grad_y`; it is not a float; an x has no
            path to `y` along which gradients flow.
        ShapeError: `grad_y` does not fit `y`.
        GraphError: `y` belongs to another graph than the one that is open.

    >>> import graphfw as gf
    >>> x = gf.asarray([1.0, 2.0, 3.0])
    >>> gf.grad(gf.sum(x * x), x)
    Tensor([2., 4., 6.], dtype=float32)
    >>> p = {"w": gf.asarray(2.0), "b": gf.asarray(1.0)}
    >>> gf.grad((p["w"] * 3 + p["b"]) ** 2, p)
    {'w': Tensor(42., dtype=float32), 'b': Tensor(14., dtype=float32)}
    """
    names, targets, pack = _targets(y, xs, missing)
    found = gradients(y, targets, grad_y, names)
    results = [
        gradient if gradient is not None else _missing(y, x, name, missing)
        for name, x, gradient in zip(names, targets, found, strict=True)
    ]
    return pack(iter(results))


def gradients(
    y: Tensor, xs: Sequence[Tensor], grad_y: Any = None, names: Sequence[str] = ()
) -> list[Tensor | None]:
    """Return the gradients of `grad`, for tensors; None for an x that no gradient reaches.

    For those who have another answer there than `grad` has: see `blocking`. `names` says what
    errors call the xs.
    """
    y, *targets = _standing_here(y, *xs)
    if any(t.graph.is_poisoned(t.node) for t in (y, *targets)):
        return [stand_in(x) for x in targets]
    _check_arguments(y, targets, names or ["x"] * len(targets))
    return _with_paths_around(y, targets, _seed(y, grad_y))


def _standing_here(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors of the graph around, where a body is open as what stands for them there."""
    graph = current_graph()
    if graph.root is graph:
        return tensors
    return tuple([admitted(t, graph, "grad") for t in tensors])


@interceptable
def value_and_grad(
    y: Tensor, xs: Any, grad_y: Any = None, *, missing: Missing = "error"
) -> tuple[Tensor, Any]:
    """Return `y` and its gradients, ready to be fetched together: see `grad`.

    Raises:
        GradientError, ShapeError, GraphError: As `grad`.

    >>> import graphfw as gf
    >>> x = gf.asarray(3.0)
    >>> [float(t) for t in gf.value_and_grad(x * x, x)]
    [9.0, 6.0]
    """
    return y, grad(y, xs, grad_y, missing=missing)


def _targets(
    y: Tensor, xs: Any, missing: str
) -> tuple[list[str], list[Tensor], Callable[[Iterator[Any]], Any]]:
    """Return the names of the xs, the xs, and what packs their gradients, if all is of its kind."""
    if not isinstance(y, Tensor):
        raise ArgumentError(
            f"grad: y is {a_type(y)}, not a tensor",
            fix="differentiate a tensor: gf.grad(loss, parameters)",
        )
    if not y.graph.is_ambient:
        admitted(y, current_graph(), "grad")
    if missing not in ("error", "zeros"):
        raise ArgumentError(
            f'grad: missing={missing!r} is neither "error" nor "zeros"', fix='use missing="error"'
        )
    fix = "pass placeholders, variables, or tensors that y is computed from"
    if isinstance(xs, Tensor):
        return ["x"], [xs], next
    is_model = hasattr(xs, "parameters")
    if is_model or not isinstance(xs, Iterable):
        fix = "write model.parameters()" if is_model else fix
        shown = a_type(xs) if is_model else repr(xs)
        raise ArgumentError(f"grad: xs={shown} is neither a tensor nor a list of them", fix=fix)
    structure = xs if isinstance(xs, (Mapping, list, tuple)) else list(xs)
    names, targets = [], []
    for name, x in nest.paths(structure, "xs"):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"grad: {name} is {a_type(x)}, not a tensor", fix=fix)
        names.append(name)
        targets.append(x)
    is_flat = isinstance(structure, tuple) and all([isinstance(x, Tensor) for x in structure])
    if is_flat and not hasattr(structure, "_fields"):
        structure = list(structure)
    return names, targets, nest.packer(structure)


def stand_in(x: Tensor) -> Tensor:
    """Return the stand-in of a gradient where `collect_errors` goes on after a mistake."""
    zeros = F.zeros(x.shape, dtype=x.dtype)
    zeros.graph.poison(zeros.node)
    return zeros


def _check_arguments(y: Tensor, xs: Sequence[Tensor], names: Sequence[str]) -> None:
    for name, x in zip(names, xs, strict=True):
        if not x.dtype.is_inexact:
            raise GradientError(
                f"grad: a gradient with respect to {x.dtype.name} values is not defined",
                operands=[concrete.describe(name, x)],
                fix="differentiate with respect to floating-point tensors",
            )
    if not y.dtype.is_inexact:
        raise GradientError(
            f"grad: y is {y.dtype.name}, which has no gradient",
            operands=[concrete.describe("y", y)],
            fix="make the loss a floating-point tensor",
        )


def _seed(y: Tensor, grad_y: Any) -> Tensor:
    """Return the cotangent to begin with."""
    if grad_y is None:
        if y.shape != ():
            raise GradientError(
                f"grad: y is {y.type}, and only a scalar has one gradient",
                operands=[concrete.describe("y", y)],
                fix="reduce it first, with gf.sum or gf.mean, or pass grad_y=",
            )
        return F.ones((), dtype=y.dtype)
    seed = F.astype(F.asarray(grad_y, like=y), y.dtype)
    if not can_broadcast(seed.shape, y.shape):
        raise ShapeError(
            f"grad: grad_y is {seed.type} and y is {y.type}",
            operands=[concrete.describe("y", y), concrete.describe("grad_y", seed)],
            fix="grad_y has the shape of y",
        )
    return F.broadcast_to(seed, y.shape)


def _with_paths_around(y: Tensor, xs: Sequence[Tensor], seed: Tensor) -> list[Tensor | None]:
    """Return the cotangents of the xs, also where a path to y leads around the body that is open.

    Of that path the body has only the end, a captured parameter. It is made again inside.
    """
    graph = current_graph()
    if not isinstance(graph, BodyGraph):
        return cotangents([y], xs, [seed])
    made = _made_again(graph, {x: x for x in xs}, [y])
    ends = [p for p in graph.captured.values() if p in made and p not in set(xs)]
    found = cotangents([y], [*xs, *ends], [seed])
    pairs = [(made[p], ct) for p, ct in zip(ends, found[len(xs) :], strict=True) if ct is not None]
    if not pairs:
        return found[: len(xs)]
    around = cotangents([new for new, _ in pairs], xs, [ct for _, ct in pairs])
    return [
        a if b is None else b if a is None else a + b
        for a, b in zip(found[: len(xs)], around, strict=True)
    ]


def _made_again(
    graph: Graph, xs: Mapping[Tensor, Tensor], ends: Sequence[Tensor]
) -> dict[Tensor, Tensor]:
    """Make what lies between some xs and the ends around a body again in the graph that is open.

    Args:
        graph: Where the xs and the ends are: that graph, or one around it.
        xs: With what stands for each in the open graph.
        ends: What is wanted of the graph.

    Returns:
        The xs, and the parameters of `graph` that depend on them through the graphs around it.
    """
    known = dict(xs)
    if not isinstance(graph, BodyGraph):
        return known
    taken = [(t, p) for t, p in graph.captured.items() if p in known]
    if not taken:
        return known
    nodes = set(ancestors(ends))
    sources = [(t, p) for t, p in graph.captured.items() if p.node in nodes]
    outside = {t: known[p] for t, p in taken}
    outside = _made_again(graph.outer, outside, [t for t, _ in sources])
    for node in _active(ancestors([t for t, _ in sources]), set(outside)):
        if RANDOM in node.op.traits:
            raise GradientError(
                f"grad: a path leads through {node.op.name}, which draws random numbers, around "
                "the function that is open",
                operands=[concrete.describe("through", node.outputs[0])],
                fix="compute it inside, from the same tensors, or pass it through gf.stop_gradient",
            )
        inputs = [outside.get(t, t) for t in node.inputs]
        with current_graph().located(node.loc):
            outputs = emit_all(node.op, *inputs)
        outside.update(zip(node.outputs, outputs, strict=True))
    for t, p in sources:
        if t in outside:
            known.setdefault(p, outside[t])
    return known


@public
@unintercepted
def cotangents(
    ys: Sequence[Tensor], xs: Sequence[Tensor], seeds: Sequence[Tensor], may_refuse: bool = False
) -> list[Any]:
    """Return the cotangents of the xs for those of the ys; None for an x that none reaches.

    For the gradient rules of ops that own bodies; users have `grad`.

    Args:
        ys: What is differentiated.
        xs: With respect to what.
        seeds: The cotangents of the ys.
        may_refuse: Return a `Refusal` for an x whose cotangent nobody says, rather than raise it.
    """
    with without_collection():
        found = _backward(ys, xs, seeds)
    for one in found:
        if isinstance(one, Refusal) and not may_refuse:
            one()
    return found


def _backward(
    ys: Sequence[Tensor], xs: Sequence[Tensor], seeds: Sequence[Tensor]
) -> list[Cotangent | None]:
    """Walk from the ys to the xs and add up cotangents on the way."""
    nodes = ancestors(ys)
    known = set(nodes)
    reached = {*xs}
    active = _active(nodes, reached)
    graph = current_graph()
    # In a body, what is emitted for an attention outside would hang on the body's parameters.
    is_here = bool(ys) and ys[0].node.graph is graph
    attentions = _attentions(nodes, {t.node for t in (*ys, *xs)}) if is_here else {}
    cotangents: dict[Tensor, Cotangent] = {}
    for y, seed in zip(ys, seeds, strict=True):
        _add(cotangents, y, seed)
    before = graph.provenance
    last: Loc | None = None
    try:
        for node in reversed(nodes):
            passed = [node]
            if node in active and node in attentions and node.outputs[0] in cotangents:
                graph.provenance = node.loc
                with ambient.override(ambient.grad_enabled, True):  # to be differentiated just now
                    result = attentions[node].emit()
                cotangents[result] = cotangents[node.outputs[0]]
                made = ancestors([result], stop=known.__contains__)
                passed = [node for node in made if node not in known]
                active |= _active(passed, reached)
            if node.loc is not last:  # what a line or a layer makes has one location
                last = node.loc
                location = last.as_gradient()
            graph.provenance = location
            for inner in reversed(passed):
                if inner in active and any([y in cotangents for y in inner.outputs]):
                    _through(inner, active, cotangents)
    finally:
        graph.provenance = before
    found = [cotangents.get(x) for x in xs]
    if not graph.is_ambient:
        graph.gradients.append((tuple([t for t in found if isinstance(t, Tensor)]), tuple(ys)))
    return found


def _active(nodes: Sequence[Node], reached: set[Tensor]) -> dict[Node, tuple[bool, ...]]:
    """Return the nodes that gradients pass, with for each input whether it leads to an x.

    `reached` holds the outputs that do, and is added to.
    """
    through: dict[Node, tuple[bool, ...]] = {}
    for node in nodes:
        if node.op.vjp is None:
            continue
        wanted = tuple([t in reached and t._type.dtype.is_inexact for t in node.inputs])
        if True in wanted:
            through[node] = wanted
            reached.update([t for t in node.outputs if t._type.dtype.is_inexact])
    return through


def _attentions(nodes: Sequence[Node], kept: Collection[Node]) -> dict[Node, ComposedAttention]:
    """Return the results of attention that is composed, and whose weights get no other cotangent.

    Its gradient is that of the op `attention`, which needs no tensor of queries by keys; the
    compiler makes the op of the composition, too. No tensor of `kept` lies inside of one.
    """
    # The op takes keys from where they were transposed: the transposed ones get no cotangent of it.
    return {
        node: one
        for node, one in composed_attentions(nodes, kept).items()
        if one.k.node not in kept or one.k.node.op.name != "permute_dims"
    }


def _through(
    node: Node,
    active: dict[Node, tuple[bool, ...]],
    cotangents: dict[Tensor, Cotangent],
) -> None:
    """Apply a node's gradient rule and add the results to its inputs' cotangents."""
    outputs = node.outputs
    are_wanted = active[node]
    for output in outputs:
        refusal = cotangents.get(output)
        if isinstance(refusal, Refusal):
            for x, wanted in zip(node.inputs, are_wanted, strict=True):
                if wanted:
                    _add(cotangents, x, refusal)
            return
    ct: Any
    y: Any
    if node.op.multiple:
        y = outputs
        ct = tuple(
            cotangents[t]
            if t in cotangents
            else F.zeros(t.shape, dtype=t.dtype)
            if t.dtype.is_inexact
            else None
            for t in outputs
        )
    else:
        y, ct = outputs[0], cotangents[outputs[0]]
    rule = node.op.vjp
    assert rule is not None
    entries = rule(ct, y, *node.inputs)
    for x, entry, wanted in zip(node.inputs, entries, are_wanted, strict=True):
        if not wanted or entry is None:
            continue
        if isinstance(entry, Refusal):
            _add(cotangents, x, entry)
            continue
        value = entry if isinstance(entry, Tensor) else entry()
        if value._type is not x._type:
            value = fitted(value, x._type, node)
        _add(cotangents, x, value)


def _add(cotangents: dict[Tensor, Cotangent], x: Tensor, value: Cotangent) -> None:
    """Add to the cotangent of a tensor; what is refused stays so."""
    before = cotangents.get(x)
    if before is None:
        cotangents[x] = value
    elif isinstance(before, Refusal):
        return
    elif isinstance(value, Refusal):
        cotangents[x] = value
    else:
        cotangents[x] = before + value


def fitted(value: Tensor, wanted: TensorType, node: Node) -> Tensor:
    """Give a cotangent its input's dtype; its shape must be right already."""
    if value.type == wanted:
        return value
    if value.shape != wanted.shape:
        raise GradientError(
            f"the gradient rule of {node.op.name} gives {value.type} for an input {wanted}",
            at=node.loc,
            fix="this is a mistake in the op's vjp rule",
        )
    result: Tensor = (
        F.real(value) if value.dtype.is_complex and not wanted.dtype.is_complex else value
    )
    return F.astype(result, wanted.dtype)


def _missing(y: Tensor, x: Tensor, name: str, missing: Missing) -> Tensor:
    """Answer for an x that no gradient reaches."""
    if missing == "zeros":
        return F.zeros(x.shape, dtype=x.dtype)
    operands = [concrete.describe("y", y), concrete.describe(name, x)]
    called = f'{name} "{x.name}"' if x.name else name
    if x.graph.root is not y.graph.root and not x.graph.is_ambient:
        raise GradientError(
            f"grad: {called} belongs to another graph than y",
            operands=operands,
            why=owners(x.graph.root, y.graph.root, "y's is"),
            fix="ask for the gradient with respect to tensors of y's graph"
            if not y.graph.is_ambient
            else "compute y and its gradient in a function with @gf.function above it",
        )
    block = blocking(y, x)
    if block is None:
        raise GradientError(
            f"grad: y does not depend on {called}",
            operands=operands,
            fix='pass missing="zeros" where that is meant',
        )
    operands.append(concrete.describe("stop", block.outputs[0]))
    raise GradientError(
        f"grad: y depends on {called} only through {block.op.name}, which no gradient passes",
        operands=operands,
        fix='use a differentiable function there, or pass missing="zeros"',
    )


def blocking(y: Tensor, x: Tensor) -> Node | None:
    """Return the first node from x to y that stops the gradient, or None if there is no path."""
    y, x = _standing_here(y, x)
    nodes = ancestors([y])
    if x.node not in set(nodes) or (x.node is y.node and x is not y):
        return None
    below = users(nodes)
    todo, seen = [x.node], {x.node}
    while todo:
        node = todo.pop(0)
        for user in below[node]:
            is_constant = not any(t.dtype.is_inexact for t in user.outputs)
            if SOURCE not in user.op.traits and (user.op.vjp is None or is_constant):
                return user
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return None
