"""Control flow: branches and loops whose bodies are part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import ArgumentError, DTypeError, GraphError, ShapeError, a_type, counted
from graphfw.ir.body import Traced, closed, trace
from graphfw.ir.build import emit_all
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim, DimLike, dim_max
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.modes import as_called
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.ops.args import TensorLike, as_tensor, is_whole
from graphfw.ops.composed import callback, demand
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.checkpoint_ops import Checkpoint
from graphfw.ops.control.effects import TOKEN, carrying, happens, token_of
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.region_op import NUMBER
from graphfw.ops.control.scan_blocks import checkpointed, unrolled
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.control.variable_updates import carrying_on, settle, taking, updated, yielding
from graphfw.ops.structures import Structure, demand_equal, one_carry, one_shape

__all__ = ["checkpoint", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]


@public
def cond(
    pred: TensorLike,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Call one of two functions, by a condition, and return its result.

    Only that one is computed, unless both are a few elementwise operations: choosing afterwards is
    faster then.

    Both functions are called once, when the graph is built, and what they return must have equal
    structures, shapes and dtypes. They may use tensors from around them. Gradients flow through the
    branch that is taken.

    Args:
        pred: A bool scalar.
        true_fn: Called with the operands, for where `pred` is true.
        false_fn: For where it is false.
        operands: Tensors, or nested tuples, lists and dicts of tensors.

    Raises:
        ShapeError, DTypeError: The branches' results differ; `pred` is not a scalar.
        ArgumentError: The branches' results have different structures.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder((), name="x")
    ...     y = gf.cond(x > 0, gf.sqrt, lambda v: -v, x)
    >>> with gf.Session(g) as session:
    ...     float(session.run(y, {x: 9.0})), float(session.run(y, {x: -2.0}))
    (3.0, 2.0)
    """
    choice = as_tensor(pred)
    _demand_scalar("cond", "pred", choice, choice.dtype.is_bool, "bool")
    number = F.astype(choice, int64)
    names = ("true_fn", "false_fn")
    return _branch("cond", number, (false_fn, true_fn), operands, (names[1], names[0]))


@public
def switch(index: TensorLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Call the function of number `index`, and return its result; see `cond`.

    An index that is out of range counts as the nearest that is not.

    Args:
        index: An integer scalar.
        branches: The functions, one at least.
        operands: What each is called with.

    Raises:
        ShapeError, DTypeError: The branches' results differ; `index` is not a scalar.
        ArgumentError: There is no branch, or the results have different structures.

    >>> import graphfw as gf
    >>> i = gf.asarray(2)
    >>> float(gf.switch(i, [gf.sin, gf.cos, gf.exp], gf.asarray(0.0)))
    1.0
    """
    number = as_tensor(index)
    _demand_scalar("switch", "index", number, number.dtype.is_integer, "an integer")
    functions = tuple(branches)
    demand(bool(functions), "switch: there is no branch", fix="pass at least one function")
    names = tuple([f"branches[{i}]" for i in range(len(functions))])
    return _branch("switch", number, functions, operands, names)


def _branch(
    what: str,
    number: Tensor,
    functions: Sequence[Callable[..., Any]],
    operands: Any,
    names: Sequence[str],
) -> Any:
    operand_tree = Structure.of(operands)
    results: list[Structure] = []

    def called(function: Callable[..., Any]) -> Callable[..., Sequence[Tensor]]:
        def flat(*tensors: Tensor) -> Sequence[Tensor]:
            results.append(Structure.of(function(*operand_tree.pack(tensors))))
            return results[-1].tensors

        return flat

    traced = [
        trace(what, called(_callback(what, n, f, f"{n}(*operands)")), operand_tree.kinds)
        for f, n in zip(functions, names, strict=True)
    ]
    first = results[0]
    for name, other in zip(names[1:], results[1:], strict=True):
        demand_equal(what, (names[0], first), (name, other), one_shape)
    variables = updated(*traced)
    bodies, captures = closed(*carrying(*yielding(variables, *traced)))
    outputs = emit_all(Branch(bodies), number, *operand_tree.tensors, *captures)
    return _packed(first, outputs, variables, *traced)


@public
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Apply `body_fun` while `cond_fun` is true of its result.  -> the last value

    Both functions are called once, when the graph is built. The value may be any nested structure
    of tensors, and keeps its structure, shapes and dtypes from iteration to iteration. There may be
    no iteration at all. Gradients of any order flow, whatever the trip count; for these the
    iterations are repeated and the value that each began with is kept.

    Args:
        cond_fun: Takes the value and returns a bool scalar.
        body_fun: Takes the value and returns the next.
        init_val: The first value.

    Raises:
        ShapeError, DTypeError: The body returns other shapes or dtypes than it takes; the condition
            is not a bool scalar.
        ArgumentError: The body returns another structure than it takes.

    >>> import graphfw as gf
    >>> x, count = gf.while_loop(lambda v: v[0] < 100, lambda v: (v[0] * 3, v[1] + 1), (2, 0))
    >>> int(x), int(count)
    (162, 4)
    """
    cond_fun = _callback("while_loop", "cond_fun", cond_fun, "cond_fun(value)")
    body_fun = _callback("while_loop", "body_fun", body_fun, "body_fun(value)")
    return _while("while_loop", cond_fun, body_fun, init_val)


def _while(
    what: str,
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    own: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Describe a loop whose value has in it, as `own` says, the one that `what`'s user knows."""
    first = Structure.of(init_val)
    results: list[Any] = []

    def condition(*tensors: Tensor) -> Sequence[Tensor]:
        said = as_tensor(cond_fun(first.pack(tensors)))
        _demand_scalar(what, "what cond_fun returns", said, said.dtype.is_bool, "bool")
        return [said]

    def body(number: Tensor, *tensors: Tensor) -> Sequence[Tensor]:
        results.append(body_fun(first.pack(tensors)))
        return Structure.of(results[-1]).tensors

    ask = trace(what, condition, first.kinds)
    step = trace(what, body, [NUMBER, *first.kinds])
    before, after = Structure.of(own(init_val)), Structure.of(own(results[0]))
    demand_equal(what, ("init_val", before), ("body_fun", after), one_carry)
    if ask.graph.updates:
        raise GraphError(
            f'{what}: the condition updates "{updated(ask)[0].name}"',
            at=ask.graph.updates[0].loc,
            fix="update it in body_fun",
        )
    variables, count, traced = updated(step), len(first.tensors), step
    starts = [*first.tensors, *variables]
    ask = taking(variables, ask, count)
    step = carrying_on(variables, step, 1 + count, count)
    if ask.graph.effects or step.graph.effects:
        ask, step = _with_token(ask, step)
        starts = [*starts, as_tensor(True)]
    (asked, stepped), captures = closed(ask, step)
    loop = Loop(asked, (stepped,), (len(starts),), (False,))
    return _packed(first, emit_all(loop, *starts, *captures), variables, traced)


def _with_token(ask: Traced, step: Traced) -> tuple[Traced, Traced]:
    """Return the condition and the body of a loop whose effects have a token in the carry."""
    with ask.graph:
        unused = ask.graph.parameter(TOKEN)
        said = F.logical_and(ask.outputs[0], token_of(ask))  # a token is true
    with step.graph:
        before = step.graph.parameter(TOKEN)
        after = F.logical_and(before, token_of(step))
    return (
        ask._replace(parameters=(*ask.parameters, unused), outputs=(said,)),
        step._replace(parameters=(*step.parameters, before), outputs=(*step.outputs, after)),
    )


@public
def fori_loop(
    lower: TensorLike, upper: TensorLike, body_fun: Callable[[Tensor, Any], Any], init_val: Any
) -> Any:
    """Apply `body_fun(i, value)` for each i from `lower` to `upper` - 1.  -> the last value

    Where the bounds are ints or dims it is a `scan`, whose gradient costs least; where one is a
    tensor, a `while_loop`.

    Args:
        lower: The first number: an int, a dim or an integer scalar.
        upper: The number to stop before.
        body_fun: Takes the number, as an int64 scalar, and the value; returns the next value.
        init_val: The first value.

    Raises:
        ShapeError, DTypeError, ArgumentError: As `while_loop`.

    >>> import graphfw as gf
    >>> int(gf.fori_loop(1, 6, lambda i, product: product * i, gf.asarray(1)))
    120
    """
    body_fun = _callback("fori_loop", "body_fun", body_fun, "body_fun(i, value)")
    if isinstance(lower, (int, Dim)) and isinstance(upper, (int, Dim)):
        length = dim_max(upper - lower, 0)
        start = as_tensor(lower)
        return _scan(
            "fori_loop",
            lambda number, value, _: (body_fun(number + start, value), None),
            init_val,
            None,
            length,
            False,
        )[0]
    begin, end = as_tensor(lower), as_tensor(upper)
    for label, bound in (("lower", begin), ("upper", end)):
        _demand_scalar("fori_loop", label, bound, bound.dtype.is_integer, "an integer")
    begin, end = F.astype(begin, int64), F.astype(end, int64)
    return _while(
        "fori_loop",
        lambda state: state[0] < end,
        lambda state: (state[0] + 1, body_fun(state[0], state[1])),
        (begin, init_val),
        lambda state: state[1],
    )[1]


@public
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: DimLike | None = None,
    reverse: bool = False,
    unroll: int = 1,
    *,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """Apply `f(carry, x)` along axis 0 of `xs`, from carry to carry, and stack what it yields.

    `f` is called once, when the graph is built; it returns the next carry and what is stacked. The
    graph has one copy of it, whatever the length, which may be symbolic, or 0. Gradients of any
    order flow; of each iteration they keep what they need and can't make again cheaply.

    Args:
        f: Takes a carry and an element of each sequence; returns (carry, y).
        init: The first carry: tensors, or a nested structure of them.
        xs: Sequences, [length, *S] each: a structure of tensors, or None.
        length: The trip count, where `xs` is None.
        reverse: Go from the last element to the first; the stacks stay in the order of `xs`.
        unroll: How many iterations are made at once; more make a larger graph with fewer of them.
        checkpoint_every: For gradients keep the carry only before every k-th iteration, and
            repeat those between: less memory, one more forward computation.

    Returns:
        The last carry, and the stacks: [length, *S] for each y of shape S.

    Raises:
        ShapeError, DTypeError: The carry changes its shapes or dtypes; sequences have different
            lengths.
        ArgumentError: The carry changes its structure; there is neither `xs` nor `length`; a number
            is out of range.

    >>> import graphfw as gf
    >>> total, sums = gf.scan(lambda c, x: (c + x, c + x), gf.asarray(0), gf.asarray([1, 2, 3]))
    >>> sums
    Tensor([1, 3, 6], dtype=int64)
    """
    f = _callback("scan", "f", f, "f(carry, x)")
    for label, count in (("unroll", unroll), ("checkpoint_every", checkpoint_every)):
        is_count = count is None or (is_whole(count) and count >= 1)
        demand(is_count, f"scan: {label}={count!r} is no number of iterations", fix="use 1 or more")
    demand(
        unroll == 1 or checkpoint_every is None,
        "scan: unroll and checkpoint_every are two ways to make blocks of iterations",
        fix="leave one of them out",
    )
    whole = checkpoint_every or (unroll if unroll > 1 else None)
    in_blocks = checkpointed if checkpoint_every else unrolled

    def emitted(op: Scan, *inputs: Tensor) -> tuple[Tensor, ...]:
        # Iterations at once would draw the same numbers.
        if whole is None or (op.body.is_random and not checkpoint_every):
            return emit_all(op, *inputs)
        return in_blocks(op, inputs, whole)

    return _scan("scan", lambda _, carry, x: f(carry, x), init, xs, length, reverse, emitted)


def _scan(
    what: str,
    function: Callable[[Tensor, Any, Any], Any],
    init: Any,
    xs: Any,
    length: DimLike | None,
    backwards: bool,
    emitted: Callable[..., tuple[Tensor, ...]] = emit_all,
) -> tuple[Any, Any]:
    first, sequences = Structure.of(init), Structure.of(xs)
    iterations = _length(what, sequences.tensors, length)
    count = len(first.tensors)
    results: list[tuple[Structure, Structure]] = []

    def body(number: Tensor, *tensors: Tensor) -> Sequence[Tensor]:
        returned = function(number, first.pack(tensors[:count]), sequences.pack(tensors[count:]))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ArgumentError(
                f"{what}: the function returns {a_type(returned)}, not a pair",
                fix="return (carry, y); y may be None",
            )
        results.append((Structure.of(returned[0]), Structure.of(returned[1])))
        return [*results[-1][0].tensors, *results[-1][1].tensors]

    elements = [TensorType(t.dtype, t.shape[1:]) for t in sequences.tensors]
    traced = trace(what, body, [NUMBER, *first.kinds, *elements])
    carry, stacked = results[0]
    demand_equal(what, ("the first carry", first), ("the next", carry), one_carry)
    variables = updated(traced)
    (own,), captures = closed(*carrying(carrying_on(variables, traced, 1 + count, count)))
    carries = count + len(variables)
    op = Scan(own, iterations, carries, len(elements), backwards)
    outputs = emitted(op, *first.tensors, *variables, *sequences.tensors, *captures)
    settle(variables, outputs[:1], outputs[count:carries], traced)
    end = carries + len(stacked.tensors)
    happens(outputs[end:])
    return first.pack(outputs[:count]), stacked.pack(outputs[carries:end])


def _length(what: str, sequences: Sequence[Tensor], length: DimLike | None) -> DimLike:
    """Return the trip count, where all say the same."""
    said = length
    for t in sequences:
        if not t.shape:
            raise ShapeError(
                f"{what}: xs has a scalar, which has no elements",
                operands=[describe("xs", t)],
                fix="use it in the function as it is, or stack what differs between iterations",
            )
        if said is None:
            said = t.shape[0]
        if t.shape[0] != said:
            raise ShapeError(
                (
                    f"{what}: there are {counted(said, 'iteration')}, and a sequence has "
                    f"{counted(t.shape[0], 'element')}"
                ),
                operands=[describe("xs", t) for t in sequences[:2]],
                fix="give all sequences the same length, along axis 0",
            )
    if said is None:
        raise ArgumentError(
            f"{what}: nothing says how many iterations there are", fix="pass xs, or length="
        )
    if isinstance(said, int) and said < 0:
        raise ArgumentError(f"{what}: length={said} is negative", fix="use 0 or more")
    return said


@public
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Apply `f` to each element along axis 0, one after the other.  xs: [n, *S] -> [n, *T]

    `vmap` computes all elements at once, which is faster and takes more memory.

    Args:
        f: Takes an element, or a structure of elements; returns a structure of tensors.
        xs: Sequences of one length: a structure of tensors.

    Raises:
        ShapeError: The sequences have different lengths.

    >>> import graphfw as gf
    >>> gf.map(lambda row: gf.sum(row), gf.asarray([[1, 2], [3, 4]]))
    Tensor([3, 7], dtype=int64)
    """
    f = _callback("map", "f", f, "f(x)")
    return _scan("map", lambda number, carry, x: (carry, f(x)), (), xs, None, False)[1]


@public
def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose gradient computes what is inside again, instead of keeping it.

    Less memory between the forward and the backward graph, and one more forward computation.

    Args:
        f: Takes and returns tensors, or nested structures of them. What it uses from around it gets
            gradients too.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8), name="x")
    ...     y = gf.checkpoint(lambda v: gf.exp(gf.sin(v)))(x)
    ...     g = gf.grad(gf.sum(y), x)
    """
    f = callback("checkpoint", "f", f, "f(*args)")

    def checked(*args: Any) -> Any:
        operand_tree = Structure.of(args)
        results: list[Structure] = []

        def flat(*tensors: Tensor) -> Sequence[Tensor]:
            results.append(Structure.of(f(*operand_tree.pack(tensors))))
            return results[-1].tensors

        traced = trace("checkpoint", flat, operand_tree.kinds)
        variables = updated(traced)
        (body,), captures = closed(*carrying(*yielding(variables, traced)))
        outputs = emit_all(Checkpoint(body), *operand_tree.tensors, *captures)
        return _packed(results[0], outputs, variables, traced)

    return checked


def _packed(
    structure: Structure,
    outputs: Sequence[Tensor],
    variables: Sequence[Variable],
    *traced: Traced,
) -> Any:
    """Return a node's first outputs in their structure.

    After them are the new contents of variables that the bodies update, and at the end a token if
    there are effects: these are of the current graph.
    """
    count = len(structure.tensors)
    end = count + len(variables)
    settle(variables, outputs[:1], outputs[count:end], *traced)
    happens(outputs[end:])
    return structure.pack(outputs[:count])


def _callback(what: str, name: str, function: Any, call: str) -> Callable[..., Any]:
    return as_called(callback(what, name, function, call), what)


def _demand_scalar(what: str, label: str, x: Tensor, is_kind: bool, kind: str) -> None:
    demand(
        x.shape == (),
        f"{what}: {label} is {x.type}, not a scalar",
        {label if label.isidentifier() else "x": x},
        fix="reduce it, for example with gf.any or gf.all; gf.where chooses element by element",
        error=ShapeError,
    )
    demand(
        is_kind,
        f"{what}: {label} is {x.dtype.name}, not {kind}",
        {label if label.isidentifier() else "x": x},
        fix="compare, as in x > 0" if kind == "bool" else "use gf.astype(x, gf.int64)",
        error=DTypeError,
    )
