"""The base of ops that own bodies: loops, branches, checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, NoReturn

from graphfw.errors import GraphfwError
from graphfw.ir.body import Body, BodyGraph
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F
from graphfw.ir.op import EFFECT, LOOSE, PURE, RANDOM, Op, nested
from graphfw.ir.scopes import Scoped, override
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ir.walk import ancestors

NUMBER = TensorType(int64, ())
"""The type of an iteration's number."""

_left: Scoped[list[int] | None] = Scoped("left", None)


class Region(Op):
    """An op that owns bodies. What it takes and yields are the bodies' parameters and outputs.

    Its traits are PURE where all inside is, RANDOM where a body draws, EFFECT where one has an
    effect, LOOSE where something inside has it.
    """

    multiple = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        effects = [EFFECT] if any(body.has_effect for body in self.bodies) else []
        draws = [RANDOM] if self.is_random else []
        pure = [PURE] if all(body.is_pure for body in self.bodies) else []
        loose = [LOOSE] if any(body.is_loose for body in self.bodies) else []
        self.__dict__["traits"] = frozenset([*pure, *effects, *draws, *loose])

    @property
    def is_random(self) -> bool:
        """Whether a body draws random numbers."""
        return any(body.is_random for body in self.bodies)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The bodies, in the order of the fields."""
        return tuple(nested(self.values))

    def with_bodies(self, bodies: Iterable[Body]) -> Op:
        """Return the op with other bodies, in the same order."""
        rest = iter(bodies)
        return type(self)(*[_replaced(value, rest) for value in self.values])


def _replaced(value: Any, bodies: Iterator[Body]) -> Any:
    if isinstance(value, Body):
        return next(bodies)
    if isinstance(value, tuple):
        return tuple([_replaced(item, bodies) for item in value])
    return value


def fits(condition: bool, message: str) -> None:
    """Require something of an op with bodies that the public functions see to."""
    require(condition, message, fix="make it with the public functions: gf.scan, gf.cond, …")


def require_shapes(body: Body, shapes: Sequence[Shape]) -> None:
    """Require that a body is given arguments of its parameters' shapes."""
    own = [t.shape for t in body.parameters]
    fits(own == list(shapes), f"the body takes {own}, and is given {list(shapes)}")


def require_dtypes(body: Body, dtypes: Sequence[DType]) -> None:
    """Require that a body is given arguments of its parameters' dtypes."""
    own = [t.dtype for t in body.parameters]
    fits(own == list(dtypes), f"the body takes {own}, and is given {list(dtypes)}")


def sizes_in_run(body: Body) -> list[tuple[int, ...]]:
    """Return the shapes of the outputs of a body whose dims are bound."""
    sizes = body.sizes or {}
    return [tuple([evaluate(dim, sizes) for dim in t.shape]) for t in body.outputs]


class OutOfIterations(BaseException):
    """An evaluation has made all the iterations that it may.

    No `Exception`: those are reported as failures of a node, and here nothing has failed.
    """


def at_most(iterations: int) -> override[list[int] | None]:
    """Let loops that are evaluated inside make so many iterations together.

    For those who evaluate a loop without being asked for its values: it may go on for ever.

    Raises:
        OutOfIterations: They would make more.
    """
    return override(_left, [iterations])


def count_iteration() -> None:
    """Take note that an iteration is about to be made."""
    left = _left.get()
    if left is None:
        return
    if not left[0]:
        raise OutOfIterations
    left[0] -= 1


def owned(xp: Any, results: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return results as arrays that are nobody else's: who gets them may write over them.

    What a body yields may be what it is given, a view, or the same array twice.
    """
    taken = {id(array) for array in inputs}
    found = []
    for result in results:
        array = xp.asarray(result)
        writeable = getattr(array.flags, "writeable", True)  # only NumPy has read-only arrays
        if array.base is not None or not writeable or id(array) in taken:
            array = xp.array(array, order="C")
        taken.add(id(array))
        found.append(array)
    return tuple(found)


class Refusal:
    """A stand-in for a cotangent that a rule does not give: called, it raises the error.

    Bodies are differentiated by all that they take, so it is an error only once it is asked for.
    """

    def __init__(self, error: GraphfwError) -> None:
        self.error = error

    def __call__(self) -> NoReturn:
        raise self.error


class Reverse(NamedTuple):
    """A body and its reverse, in one graph.

    Attributes:
        graph: The graph.
        parameters: The body's parameters.
        outputs: The body's outputs.
        seeds: The parameters for the outputs' cotangents; None for an output that is no float.
        gradients: The parameters' cotangents; None where there is none.
        refused: The parameters whose cotangent nobody says, by their indices.
        tokens: One token for all effects of gradient rules, or none.
    """

    graph: BodyGraph
    parameters: list[Tensor]
    outputs: tuple[Tensor, ...]
    seeds: list[Tensor | None]
    gradients: list[Tensor | None]
    refused: dict[int, Refusal]
    tokens: list[Tensor]

    def refusing(self, entries: Sequence[Any], first: int = 0) -> list[Any]:
        """Return the entries of a gradient rule, refused ones replaced.

        Args:
            entries: What the rule gives for its inputs.
            first: The number of the parameter that takes the first of these inputs.
        """
        return [self.refused.get(index, x) for index, x in enumerate(entries, first)]


def reverse(body: Body, what: str) -> Reverse:
    """Differentiate a body with respect to all parameters that are floats."""
    graph = BodyGraph(what)
    with graph:
        parameters = [graph.parameter(t.type, t.node.loc) for t in body.parameters]
        outputs = body.inline(*parameters)
        seeds = [graph.parameter(t.type) if t.dtype.is_inexact else None for t in outputs]
        xs = [t for t in parameters if t.dtype.is_inexact]
        ends = [(y, seed) for y, seed in zip(outputs, seeds, strict=True) if seed is not None]
        own = F.cotangents([y for y, _ in ends], xs, [ct for _, ct in ends], may_refuse=True)
        found = iter(own)
        entries = [next(found) if t.dtype.is_inexact else None for t in parameters]
        tokens = [joined(graph.effects)] if graph.effects else []
    refused = {index: x for index, x in enumerate(entries) if isinstance(x, Refusal)}
    gradients = [None if isinstance(x, Refusal) else x for x in entries]
    return Reverse(graph, parameters, outputs, seeds, gradients, refused, tokens)


def joined(tokens: Sequence[Tensor]) -> Tensor:
    """Return one token, a scalar, for several of any shapes."""
    scalars = [F.all(one) if one.ndim else one for one in tokens]
    return reduce(F.logical_and, scalars)


def frontier(both: Reverse | Forward, wanted: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a body that its derivatives, of which some are wanted, read; in order.

    Args:
        both: The body and its derivatives.
        wanted: Derivatives.
    """
    forward = {*[t.node for t in both.parameters], *ancestors(both.outputs)}
    seeds = {seed.node for seed in both.seeds if seed is not None}
    read = {t for t in wanted if t.node in forward}
    for node in ancestors(wanted, stop=forward.__contains__):
        if node not in forward:
            read.update([t for t in node.inputs if t.node in forward])
    return sorted([t for t in read if t.node not in seeds], key=_order)


def _order(tensor: Tensor) -> tuple[int, int]:
    return tensor.node.serial, tensor.index


def zeros_like(kind: TensorType) -> Tensor:
    """Return zeros of a type."""
    return F.zeros(kind.shape, dtype=kind.dtype)


class Forward(NamedTuple):
    """A body and what carries tangents through it, in one graph.

    Attributes:
        graph: The graph.
        parameters: The body's parameters.
        seeds: The parameters for their tangents; None for a parameter that has none.
        outputs: The body's outputs.
        tangents: The outputs' tangents; None where there is none.
    """

    graph: BodyGraph
    parameters: list[Tensor]
    seeds: list[Tensor | None]
    outputs: list[Tensor]
    tangents: list[Tensor | None]

    def body(self, counts: Sequence[int], sizes: Sequence[int], wanted: Sequence[bool]) -> Body:
        """Return a body of both: after each group of values their tangents.

        Args:
            counts: How many parameters there are in each group.
            sizes: How many outputs there are in each group.
            wanted: Which outputs yield a tangent, be it zeros.
        """
        with self.graph:
            tangents = filled(self.tangents, [t.type for t in self.outputs], wanted)
        return Body(
            with_tangents(self.parameters, self.seeds, counts),
            with_tangents(self.outputs, tangents, sizes),
        )


def forward(body: Body, moved: Sequence[bool], what: str, keeps: bool = False) -> Forward:
    """Carry tangents through a body; `moved` says which parameters have one.

    With `keeps` nothing in the body itself depends on a tangent, if loops in it can do so.
    """
    graph = BodyGraph(what)
    with graph:
        parameters = [graph.parameter(t.type, t.node.loc) for t in body.parameters]
        seeds = [
            graph.parameter(t.type) if flag else None
            for t, flag in zip(parameters, moved, strict=True)
        ]
        outputs, tangents = F.tangents(body.inline(*parameters), parameters, seeds, keeps)
    return Forward(graph, parameters, seeds, outputs, tangents)


def forward_loop_body(
    body: Body, carry: Sequence[bool], others: Sequence[bool], what: str, keeps: bool = False
) -> tuple[Forward, list[bool]]:
    """Carry tangents through the body of a loop: a carry that ever has a tangent always has one.

    Args:
        body: Takes the iteration's number, a carry and others; yields the next carry, and more.
        carry: Which of the first carry have a tangent.
        others: Which of the others have.
        what: The kind of op that owns the body.
        keeps: See `forward`.

    Returns:
        The body with its tangents, and which of the carry have one.
    """
    moved = list(carry)
    while True:
        both = forward(body, [False, *moved, *others], what, keeps)
        after = [
            flag or t is not None
            for flag, t in zip(moved, both.tangents[: len(moved)], strict=True)
        ]
        if after == moved:
            return both, moved
        moved = after


def filled(
    tangents: Sequence[Tensor | None], kinds: Sequence[TensorType], wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Return the tangents that are wanted, with zeros for those that there are none of."""
    return [
        (zeros_like(kind) if t is None else t) if want else None
        for t, kind, want in zip(tangents, kinds, wanted, strict=True)
    ]


def with_tangents(
    values: Sequence[Tensor], tangents: Sequence[Tensor | None], counts: Sequence[int]
) -> list[Tensor]:
    """Return groups of so many values each, after each group its tangents."""
    result: list[Tensor] = []
    start = 0
    for count in counts:
        result += values[start : start + count]
        result += [t for t in tangents[start : start + count] if t is not None]
        start += count
    return result


def without_tangents(
    found: Sequence[Tensor], wanted: Sequence[bool], counts: Sequence[int]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Take apart what `with_tangents` has put together: the values, and their tangents."""
    rest = iter(found)
    values: list[Tensor] = []
    tangents: list[Tensor | None] = []
    start = 0
    for count in counts:
        values += [next(rest) for _ in range(count)]
        tangents += [next(rest) if want else None for want in wanted[start : start + count]]
        start += count
    return values, tangents
