"""Inputs of a graph: placeholders, constants, names, and statements about shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphfw.errors import ExecutionError, ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.affine import Index
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike, symbol, symbols_of
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import F, public
from graphfw.ir.graph import Graph, open_graph
from graphfw.ir.modes import interceptable
from graphfw.ir.op import ALIAS, EFFECT, NONDIFF, PURE, TRANSPARENT, Case, Op, bad, ok, op
from graphfw.ir.shape import int_or_none, normalize_axis, require, shape_text
from graphfw.ir.shared_ops import shared
from graphfw.ir.sources import Placeholder
from graphfw.ir.splits import checked_split
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, dtype_or, ruled
from graphfw.ops.batching import MappedAxis, leading
from graphfw.ops.composed import demand
from graphfw.ops.shape.movement import Movement

__all__ = ["assert_shape", "constant", "dim_size", "identity", "placeholder", "stop_gradient"]


@interceptable
def placeholder(
    shape: Sequence[DimLike | str | None],
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    split: Mapping[str, str] | None = None,
) -> Tensor:
    """Make a value that each run is fed.  -> shape

    Args:
        shape: A dim is an int, a name (`"batch"`: equal wherever the name stands in this graph), an
            expression of such dims, or None (a size of its own).
        dtype: The elements' type; the default dtype when there is none.
        name: What to call it in feeds and errors.
        split: The dims that the processes of the graph's mesh share out, by name, each with an axis
            of the mesh: `{"batch": "data"}`. Wherever the dim stands in the graph it is the size of
            all processes together, and each process feeds and fetches its own rows.

    Raises:
        GraphError: No graph is open, the name is taken, or a graph without a mesh has `split`.
        ShapeError: A dim is negative or no valid name.
        ArgumentError: `name` is no string, or `split` names a dim or an axis that there is not.
        ShardingError: `split` contradicts another placeholder, or a dim in it is two axes.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     gf.placeholder(("batch", 28, 28, None), gf.float32, name="image").shape
    (batch, 28, 28, _image_3)
    """
    graph = open_graph("a placeholder")
    _check_sequence("placeholder", shape)
    hint = name if name and ambient.as_name(name).isidentifier() else ""
    dims = tuple(
        graph.fresh_symbol(f"{hint}_{axis}" if hint else "dim") if dim is None else _dim(dim)
        for axis, dim in enumerate(shape)
    )
    if graph.measured:
        _check_not_measured(graph, dims)
    resolved = dtype_or(dtype, ambient.get_default_dtype())
    pairs = () if split is None else checked_split(graph, dims, split)
    return emit(Placeholder(dims, resolved, pairs), name=name or "")


def _check_not_measured(graph: Graph, dims: Iterable[DimLike]) -> None:
    """Refuse a placeholder whose size a run finds out only after it has been fed."""
    measured = {name for found in graph.measured.values() for name in found[0].node.op.symbols}
    for name in sorted(measured & {name for dim in dims for name in symbols_of(dim)}):
        raise ShapeError(
            f"placeholder: a run finds out `{name}`, and what it is fed comes before",
            why=graph.symbol_origin(name),
            fix="use None, and gf.assert_shape where both meet",
        )


def _check_sequence(name: str, shape: object) -> None:
    is_many = isinstance(shape, Iterable) and not isinstance(shape, str)
    message = f"{name}: shape={shape!r} is not a sequence of dims"
    demand(is_many, message, fix=f"write ({shape!r},)", error=ShapeError)


def _dim(dim: DimLike | str) -> DimLike:
    if isinstance(dim, Dim):
        return dim
    if isinstance(dim, str):
        try:
            made = symbol(dim)
        except ValueError:
            made = None
        if made is None or dim.startswith("_"):  # names of fresh dims begin with one
            raise ShapeError(
                f"placeholder: {dim!r} can't name a dim",
                fix="use letters, digits and underscores, not an underscore first, and no keyword",
            )
        return made
    size = int_or_none(dim)
    if size is None:
        raise ShapeError(f"placeholder: {dim!r} is no dim", fix="use an int, a name, or None")
    if size < 0:
        raise ShapeError(f"placeholder: a dim can't be {size}", fix="use None for any size")
    return size


@interceptable
def constant(value: Any, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Make a value that is part of the graph, of a scalar, a list or an array.

    Without a dtype, arrays keep their own; Python's floats get the default dtype, its ints int64.

    Raises:
        DTypeError: The values are no numbers, or don't fit the dtype.
        ArgumentError: A nested list is ragged.
        GraphError: The name is taken.

    >>> import graphfw as gf
    >>> gf.constant([[1.0, 2.0]]).shape
    (1, 2)
    """
    tensor = F.asarray(value, dtype=dtype)
    return identity(tensor, name=name) if name else tensor


@op("identity")
class IdentityOp(Movement):
    """The input itself.  x: [*A]  ->  [*A]"""

    traits = Movement.traits | {TRANSPARENT}
    batch = leading

    def shape(self, x: Shape) -> Shape:
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        return x

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return index

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (ct,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]")
        yield ok("bool[]")


@public
def identity(x: TensorLike, /, *, name: str | None = None) -> Tensor:
    """Return the same value, under a name by which it can be fetched and is shown in errors.

    x: [*A] -> [*A]

    Raises:
        GraphError: The name is taken.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     h = gf.identity(gf.placeholder((3,)) * 2, name="hidden")
    >>> g.find("hidden") is h
    True
    """
    return emit(shared(IdentityOp), as_tensor(x), name=name or "")


@op("stop_gradient")
class StopGradient(Movement):
    """The input itself, which no gradient passes.  x: [*A]  ->  [*A]"""

    traits = Movement.traits | {TRANSPARENT}
    vjp = NONDIFF
    batch = leading

    def shape(self, x: Shape) -> Shape:
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        return x

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return index

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]")


@public
def stop_gradient(x: TensorLike, /, *, name: str | None = None) -> Tensor:
    """Return the same value, taken as a constant by differentiation.  x: [*A] -> [*A]"""
    return emit(shared(StopGradient), as_tensor(x), name=name or "")


@op("assert_shape")
class AssertShape(Op):
    """The input, known from here on to be of a shape that each run checks.  x: [*A]  ->  dims"""

    dims: Shape
    traits = frozenset({PURE, ALIAS, EFFECT})
    mixed_precision = "follows"

    def shape(self, x: Shape) -> Shape:
        fits = len(x) == len(self.dims)
        require(
            fits,
            f"{shape_text(x)} has {counted(len(x), 'dim')}, not {len(self.dims)}",
            (),
            "give each dim",
        )
        for axis, (actual, wanted) in enumerate(zip(x, self.dims, strict=True)):
            differ = isinstance(actual, int) and isinstance(wanted, int) and actual != wanted
            fix = f"its size is known: write {actual}, or None"
            require(not differ, f"the dim can't be {wanted}", [(0, axis)], fix)
        return self.dims

    def dtype(self, x: DType) -> DType:
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        if x.shape != self.dims:
            raise ExecutionError(
                f"assert_shape: the shape is {shape_text(x.shape)}, not {shape_text(self.dims)}",
                fix="feed arrays of the shapes that the graph relies on",
            )
        return x

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return index

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: assert_shape(ct, x.shape),)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        return emit(AssertShape((mapped.size, *self.dims)), x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 4]", dims=(3, 4))
        yield bad("float32[3, 4]", dims=(3, 5), match="the dim can't be 5")
        yield bad("float32[3, 4]", dims=(3,), match="has 2 dims, not 1")


@public
def assert_shape(x: TensorLike, shape: Sequence[DimLike | str | None], /) -> Tensor:
    """Say what is known of a shape: checked when the graph runs, relied on from here on.

    x: [*A] -> shape. A None keeps the dim as it is; a name or an int replaces it.

    Raises:
        ShapeError: The shape can't be that.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder((None, 4), name="x")
    ...     y = gf.placeholder(("batch", 4), name="y")
    ...     (gf.assert_shape(x, ("batch", 4)) + y).shape
    (batch, 4)
    """
    tensor = as_tensor(x)
    _check_sequence("assert_shape", shape)
    message = f"{shape_text(tensor.shape)} has {counted(tensor.ndim, 'dim')}, not {len(shape)}"
    demand(
        len(shape) == tensor.ndim,
        f"assert_shape: {message}",
        {"x": tensor},
        fix="write None for a dim that nothing new is known of",
        error=ShapeError,
    )
    dims = tuple(
        old if new is None else _dim(new) for old, new in zip(tensor.shape, shape, strict=True)
    )
    return emit(AssertShape(dims), tensor)


@public
def dim_size(x: TensorLike, axis: int, /) -> Tensor:
    """Return the size of a dim as a 0-d int64 tensor: for arithmetic with values.  x: [*A] -> []

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch",), name="x")
    ...     mean = gf.sum(x) / gf.dim_size(x, 0)
    >>> with gf.Session(g) as session:
    ...     float(session.run(mean, {x: [1.0, 2.0]}))
    1.5
    """
    tensor = as_tensor(x)
    return as_tensor(tensor.shape[ruled("dim_size", tensor, normalize_axis, axis, tensor.ndim)])
