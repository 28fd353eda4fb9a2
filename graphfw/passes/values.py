"""The check that a pass keeps all numbers: evaluate the graph before and after it on samples."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from graphfw.errors import PassError, counted
from graphfw.ir import concrete
from graphfw.ir.dim import Dim, DimLike, is_symbol, substitute, symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS, LOOSE, PURE, RANDOM, SOURCE, Rng, nested
from graphfw.ir.rebuild import derive, live_nodes
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.effects import quiet
from graphfw.ops.control.region_op import OutOfIterations, at_most
from graphfw.ops.creation.inputs import AssertShape
from graphfw.ops.data_dependent.measuring_ops import Measuring
from graphfw.ops.elementwise.cast import finfo
from graphfw.passes.base import Pass
from graphfw.passes.rules import RuleSet
from graphfw.utils.records import record
from graphfw.utils.signal_handlers import is_of_handler

_TOLERANCE = {"bfloat16": 4e-2, "float16": 5e-3, "float32": 1e-4, "float64": 1e-9}
"""The most by which a pass may change a number, relative to the largest one of the tensor."""

_UNIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
"""The distance from 1 to the next number."""

_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e4, 1e-7)
_SIZES = (None, 4, 12, 60, 1)  # None: each symbol its own; the others suit graphs that divide dims
_INTS = ((-3, 8), (0, 2), (0, 1))  # the narrower ones suit graphs that use integers as indices
_DRAWN = 99_991
"""The number of values that are drawn for an array, which repeats them. A prime: no two rows are
alike."""
_RNG = Rng(0, 0)


@record
class SampleInputs:
    """Inputs of a graph.

    Attributes:
        feeds: Values for placeholders and variables.
        sizes: What the symbolic dims stand for.
        rng: What random ops draw from.
        jitter: Where it is given, all floats that are no whole numbers are moved by up to two units
            in the last place, wherever they appear; at random, from this seed.
        iterations: How many iterations each loop may make, with those inside of it: it may never
        end.
    """

    feeds: Mapping[Node, Array]
    sizes: Mapping[str, int]
    rng: Rng = _RNG
    jitter: int | None = None
    iterations: int = 10_000


class Unknown(NamedTuple):
    """A mark in the place of a tensor's value that can't be computed with so many iterations.

    Attributes:
        loop: What would make more.
        iterations: How many it may make.
    """

    loop: Node
    iterations: int

    def __str__(self) -> str:
        name, location = self.loop.op.name, self.loop.loc.short()
        return (
            f"the {name} made at {location} makes more than {counted(self.iterations, 'iteration')}"
        )


Value: TypeAlias = Array | Unknown


class Sample:
    """Sample inputs of a graph, with the outputs that it gives for them.

    Outputs of loops that do not end for these inputs are left out; if so for all inputs, a
    `RuntimeWarning` says it.
    """

    def __init__(self, graph: Graph) -> None:
        self.draws, values = _draws(graph)
        self.least = least_tolerance(graph.nodes)
        outputs = range(len(graph.outputs))
        self.known = [[k for k in outputs if not isinstance(own[k], Unknown)] for own in values]
        self.expected = [[x for x in own if not isinstance(x, Unknown)] for own in values]
        compared = set().union(*self.known)
        warn_of_unknown(values[0][k] for k in outputs if k not in compared)

    def compare(self, one: Pass, before: Graph, after: Graph) -> None:
        """See that a pass has kept the outputs' values.

        Raises:
            PassError: It has not. The output and, for a rule set, the rule are named.
        """
        if all([a is b for a, b in zip(before.outputs, after.outputs, strict=True)]):
            return  # nodes never change, so that nothing is to be computed again
        try:
            found = self._outputs(after)
        except Exception as error:
            if is_of_handler(error):
                raise
            what = f"it makes a graph that can't be evaluated: {type(error).__name__}: {error}"
            raise PassError(what) from error
        position = _first_difference(self.expected, found, self.least)
        if position is not None:
            draw, number = position
            output = self.known[draw][number]
            tensor = before.outputs[output]
            raise PassError(
                f"it changes the value of output {output}{self._culprit(one, before)}",
                operands=[concrete.describe("was", tensor)],
                why=_why(self.expected[draw][number], found[draw][number], self.least),
                at=tensor.node.loc,
            )
        self.expected = cast(list[list[Array]], found)  # equal to what is known

    def _outputs(self, graph: Graph) -> list[list[Value]]:
        """Return for each draw the outputs that are compared."""
        return [
            evaluated(derive(graph, [graph.outputs[k] for k in known]), draw)
            for draw, known in zip(self.draws, self.known, strict=True)
        ]

    def _culprit(self, one: Pass, before: Graph) -> str:
        """Return which rule of a rule set changes the values; nothing for other passes."""
        if not isinstance(one, RuleSet):
            return ""

        def differs(graph: Graph) -> bool:
            found = self._outputs(graph)
            return _first_difference(self.expected, found, self.least) is not None

        number = first_rule(one, before, differs)
        return "" if number is None else f" by the rule {one.rules[number].name}"


def first_rule(one: RuleSet, before: Graph, differs: Callable[[Graph], bool]) -> int | None:
    """Return the number of the first rule with which a rule set makes a graph that differs."""
    for number, rule in enumerate(one.rules):
        hits: Counter[str] = Counter()
        graph = replace(one, rules=one.rules[: number + 1]).run(before, hits)
        if hits[rule.name] and differs(graph):
            return number
    return None


def evaluated(graph: Graph, draw: SampleInputs) -> list[Value]:
    """Return the outputs' values by each op's reference `eval`; drop values after use."""
    nodes = live_nodes(graph)
    uses = Counter(t.node for node in nodes for t in node.inputs)
    uses.update(t.node for t in graph.outputs)
    values: dict[Node, tuple[Any, ...] | Unknown] = {}
    noise = None if draw.jitter is None else np.random.default_rng(draw.jitter)
    with np.errstate(all="ignore"), quiet():
        for node in nodes:
            op = node.op
            if SOURCE in op.traits and PURE not in op.traits:
                results: tuple[Any, ...] | Unknown = (draw.feeds[node],)
            else:
                results = _results(node, [_value(values, t) for t in node.inputs], draw)
            if isinstance(op, Measuring) and not isinstance(results, Unknown):
                sizes = zip(op.names, op.measured(*results), strict=True)
                draw = replace(draw, sizes={**draw.sizes, **dict(sizes)})
            if noise is not None and ALIAS not in op.traits and not isinstance(results, Unknown):
                results = tuple([_moved(np.asarray(array), noise) for array in results])
            values[node] = results
            for tensor in node.inputs:
                uses[tensor.node] -= 1
                if not uses[tensor.node]:
                    del values[tensor.node]
    found = [_value(values, t) for t in graph.outputs]
    return [x if isinstance(x, Unknown) else np.asarray(x) for x in found]


def _value(values: Mapping[Node, tuple[Any, ...] | Unknown], tensor: Tensor) -> Any:
    own = values[tensor.node]
    return own if isinstance(own, Unknown) else own[tensor.index]


def _results(node: Node, inputs: Sequence[Any], draw: SampleInputs) -> tuple[Any, ...] | Unknown:
    """Return a node's outputs; what is not known of its inputs is not known of them."""
    for x in inputs:
        if isinstance(x, Unknown):
            return x
    op = node.op
    random = {"rng": draw.rng} if RANDOM in op.traits else {}
    try:
        with at_most(draw.iterations):
            result = op.bind(draw.sizes).eval(np, *inputs, **random)
    except OutOfIterations:
        return Unknown(node, draw.iterations)
    return tuple(result) if op.multiple else (result,)


def warn_of_unknown(values: Iterable[Value]) -> None:
    """Say of which loops nothing could be compared, since they make too many iterations."""
    for one in dict.fromkeys(x for x in values if isinstance(x, Unknown)):
        warnings.warn(
            f"verify: {one} with these values: what depends on it has not been compared",
            RuntimeWarning,
            stacklevel=2,
        )


def _moved(array: Array, noise: np.random.Generator) -> Array:
    """Return floats moved by up to two units in the last place, but for whole numbers."""
    if np.iscomplexobj(array):
        moved = np.empty_like(array)
        moved.real, moved.imag = _moved(array.real, noise), _moved(array.imag, noise)
        return moved
    unit = _UNIT.get(array.dtype.name)
    if unit is None:
        return array
    factors = 1 + unit * noise.choice((-2.0, -1.0, 1.0, 2.0), array.shape)
    moved = (array.astype(np.float64) * factors).astype(array.dtype)
    return np.where(np.trunc(array) == array, array, moved)


def _draws(graph: Graph) -> tuple[list[SampleInputs], list[list[Value]]]:
    """Return inputs that the graph accepts, ordinary ones and special floats, with its outputs."""
    failure: Exception | None = None
    is_loose = any([LOOSE in node.op.traits for node in graph.nodes])
    for size in _SIZES:
        for ints in _INTS:
            try:
                plain = _draw(graph, size, ints, special=False)
                outputs = evaluated(graph, plain)
            except Exception as error:
                if is_of_handler(error):
                    raise
                failure = failure or error
                continue
            if is_loose:  # where NaN goes is not said
                return [plain], [outputs]
            special = _draw(graph, size, ints, special=True)
            try:
                return [plain, special], [outputs, evaluated(graph, special)]
            except Exception as error:
                if is_of_handler(error):
                    raise
                # The graph refuses such floats: then no pass has to keep them.
                return [plain], [outputs]
    raise PassError(
        f"verify='values' found no inputs on which the graph can be evaluated: {failure}",
        fix="check at the level 'each'",
    ) from failure


def _draw(graph: Graph, size: int | None, ints: tuple[int, int], special: bool) -> SampleInputs:
    rng = np.random.default_rng(len(graph.nodes))
    sizes = _sizes(graph, size)
    feeds = {
        node: _array(node.types[0].dtype, _shape(node, sizes), ints, special, rng)
        for node in live_nodes(graph)
        if SOURCE in node.op.traits and PURE not in node.op.traits
    }
    return SampleInputs(feeds, sizes)


def _shape(node: Node, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([evaluate(dim, sizes) for dim in node.types[0].shape])


def _array(
    dtype: DType,
    shape: tuple[int, ...],
    ints: tuple[int, int],
    special: bool,
    rng: np.random.Generator,
) -> Array:
    drawn = _numbers(dtype, min(math.prod(shape), _DRAWN), ints, special, rng)
    return np.resize(drawn.astype(dtype.dtype), shape)


def _numbers(
    dtype: DType, count: int, ints: tuple[int, int], special: bool, rng: np.random.Generator
) -> Array:
    if dtype.is_bool:
        return np.asarray(rng.random(count) < 0.5)
    if dtype.is_integer:
        low = max(ints[0], 0) if dtype.kind == "uint" else ints[0]
        return rng.integers(low, ints[1], count)
    values = rng.standard_normal(count)
    if special:
        values = np.where(rng.random(count) < 0.7, rng.choice(_SPECIAL, count), values)
    return values + 1j * rng.standard_normal(count) if dtype.is_complex else values


def _sizes(graph: Graph, size: int | None) -> dict[str, int]:
    """Choose a size for each symbol, such that the graph's `assert_shape`s hold where possible."""
    known: dict[str, DimLike] = {}
    names: dict[str, None] = {}
    for node in live_nodes(graph):
        for kind in node.types:
            names.update(dict.fromkeys(sorted(frozenset().union(*map(symbols_of, kind.shape)))))
        names.update(dict.fromkeys(sorted(node.op.symbols)))  # as an op that gives a size has it
    for node in _promises(live_nodes(graph)):
        for pair in zip(node.inputs[0].shape, node.types[0].shape, strict=True):
            actual, wanted = (_resolved(dim, known) for dim in pair)
            symbol, other = (is_symbol(actual), wanted)
            if symbol is None:
                symbol, other = (is_symbol(wanted), actual)
            if symbol is not None and symbol not in symbols_of(other):
                known[symbol] = other
    free = [name for name in names if name not in known]
    chosen = {name: size or 2 + index for index, name in enumerate(free)}
    bound = {name: evaluate(_resolved(dim, known), chosen) for name, dim in known.items()}
    return {**chosen, **bound}


def _promises(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the `assert_shape`s, those in bodies among them."""
    for node in nodes:
        if isinstance(node.op, AssertShape):
            yield node
        for body in nested(node.op.values):
            yield from _promises(body.nodes)


def _resolved(dim: DimLike, known: Mapping[str, DimLike]) -> DimLike:
    while isinstance(dim, Dim) and not symbols_of(dim).isdisjoint(known):
        dim = substitute(dim, known)
    return dim


def least_tolerance(nodes: Sequence[Node]) -> float:
    """Return the tolerance of results of any dtype with 16-bit numbers inside a graph: else 0."""
    least = 0.0
    for node in nodes:
        own = [_TOLERANCE[t.dtype.name] for t in node.types if t.dtype.is_low_precision]
        inside = [least_tolerance(body.nodes) for body in nested(node.op.values)]
        least = max([least, *own, *inside])
    return least


def _first_difference(
    expected: Sequence[Sequence[Value]], found: Sequence[Sequence[Value]], least: float
) -> tuple[int, int] | None:
    """Return the draw and the output where the values differ."""
    for draw, (old, new) in enumerate(zip(expected, found, strict=True)):
        for output, (a, b) in enumerate(zip(old, new, strict=True)):
            if not same_values(a, b, least):
                return draw, output
    return None


def same_values(a: Value, b: Value, least: float = 0.0) -> bool:
    """Return whether two arrays are equal: exactly, or for floats up to what rounding explains.

    Args:
        a: An array.
        b: Another one.
        least: How far floats may be apart in any case, relative to the largest.
    """
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return isinstance(a, Unknown) and isinstance(b, Unknown)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if np.iscomplexobj(a):
        # What an infinite factor makes of either component of a product is up to the library.
        is_number = np.isfinite(a) | np.isfinite(b)
        a, b = np.where(is_number, a, 0), np.where(is_number, b, 0)
        return same_values(a.real, b.real, least) and same_values(a.imag, b.imag, least)
    if a.dtype.name not in _TOLERANCE:
        if not as_dtype(a.dtype).holds_floats:
            return bool(np.array_equal(a, b))
        # What was rounded otherwise before may become the next number.
        wide, other, info = a.astype(np.float32), b.astype(np.float32), finfo(a.dtype)
        small = info.smallest_normal * info.eps
        return bool(np.allclose(wide, other, info.eps, small, equal_nan=True))
    tolerance = max(_TOLERANCE[a.dtype.name], least)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.abs(wide_a[np.isfinite(wide_a)])
    scale = float(finite.max()) if finite.size else 1.0
    return bool(np.allclose(wide_a, wide_b, tolerance, tolerance * scale, equal_nan=True))


def _why(a: Array, b: Value, least: float) -> str:
    if isinstance(b, Unknown):
        return str(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype.name}{list(a.shape)} became {b.dtype.name}{list(b.shape)}"
    different = [i for i in np.ndindex(a.shape) if not same_values(a[i], b[i], least)]
    at = different[0] if different else (0,) * a.ndim
    return f"on sample inputs the element {list(at)} was {a[at]} and is {b[at]}"
