"""The collectives: what each makes of the arrays of all processes along an axis of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from graphfw.errors import DTypeError, GradientError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, int32
from graphfw.ir.functions import F
from graphfw.ir.op import NONDIFF, Case, Op, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.batching import MappedAxis
from graphfw.ops.collectives.collective import Collective

How: TypeAlias = Literal["sum", "max", "min"]


def along_axis_1(op: Op, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
    """The batch rule of collectives along axis 0: the examples become axis 1 meanwhile."""
    return F.moveaxis(emit(op, F.moveaxis(x, 0, 1)), 1, 0)


@op("all_reduce")
class AllReduce(Collective):
    """The sum, the largest or the smallest of all processes' elements.  x: [*A]  ->  [*A]

    Attributes:
        how: Which of these.
        shards: The number of shards of all processes together, which x has along axis 0 then:
            [shards of this process, *A] -> [*A]; 0 where x is one operand.
    """

    how: How
    shards: int

    def shape(self, x: Shape) -> Shape:
        require(
            not self.shards or len(x) > 0,
            "x has no axis of shards",
            fix="pass the shards of this process, one after the other along axis 0",
        )
        return x[1:] if self.shards else x

    def dtype(self, x: DType) -> DType:
        _require_reducible(x, self.how)
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        if self.how != "sum":
            join = xp.max if self.how == "max" else xp.min
            return xp.asarray(join(x, axis=0)) if self.shards else x.copy()
        one = xp.sum(x, axis=0, dtype=x.dtype) if self.shards else x
        return xp.asarray(one * xp.asarray(self.count, dtype=x.dtype), dtype=x.dtype)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def cotangent() -> Tensor:
            if self.how != "sum":
                raise GradientError(
                    f'grad: all_reduce with op="{self.how}" has no gradient',
                    fix="stop there: gf.stop_gradient(x)",
                )
            total = emit(AllReduce(self.axis_name, self.count, how="sum", shards=0), ct)
            return F.broadcast_to(total, x.shape) if self.shards else total

        return (cotangent,)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        return emit(self, F.moveaxis(x, 0, 1) if self.shards else x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", axis_name="data", count=4, how="sum", shards=0)
        yield ok("float32[3, n]", axis_name="data", count=2, how="sum", shards=6)
        yield ok("int32[]", axis_name="data", count=3, how="max", shards=0)
        two: dict[str, Any] = {"axis_name": "data", "count": 2}
        yield bad("float32[]", how="sum", shards=2, match="no axis of shards", **two)
        yield bad("bool[3]", how="sum", shards=0, match="no sum of bool", error=DTypeError, **two)
        yield bad(
            "complex64[3]", how="max", shards=0, match="no max of complex", error=DTypeError, **two
        )


@op("reduce_scatter")
class ReduceScatter(Collective):
    """The sum over processes of one block for each.  x: [count * b, *A]  ->  [b, *A]"""

    batch = along_axis_1

    def shape(self, x: Shape) -> Shape:
        return (_divided(x, self.count), *x[1:])

    def dtype(self, x: DType) -> DType:
        _require_reducible(x, "sum")
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        block = x[: x.shape[0] // self.count]
        return xp.asarray(block * xp.asarray(self.count, dtype=x.dtype), dtype=x.dtype)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(AllGather(self.axis_name, self.count), ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        # The gradient is of all processes' results, and `eval` has only the first one's.
        yield ok("float32[6, n]", axis_name="data", count=3, smooth=False)
        yield bad("float32[5]", axis_name="data", count=2, match="does not divide")
        yield bad("float32[]", axis_name="data", count=2, match="x has no axis")
        yield bad("bool[4]", axis_name="data", count=2, match="no sum of bool", error=DTypeError)


@op("all_gather")
class AllGather(Collective):
    """The blocks of all processes, one after the other.  x: [b, *A]  ->  [count * b, *A]"""

    batch = along_axis_1

    def shape(self, x: Shape) -> Shape:
        _require_axis(x)
        return (x[0] * self.count, *x[1:])

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.concatenate([x] * self.count)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(ReduceScatter(self.axis_name, self.count), ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, n]", axis_name="data", count=3, smooth=False)
        yield ok("bool[n]", axis_name="data", count=2)
        yield bad("float32[]", axis_name="data", count=2, match="x has no axis")


@op("all_to_all")
class AllToAll(Collective):
    """Block i of every process, one after the other, in process i.  x: [count * b, *A] -> same"""

    batch = along_axis_1

    def shape(self, x: Shape) -> Shape:
        _divided(x, self.count)
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.concatenate([x[: x.shape[0] // self.count]] * self.count)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(self, ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[4, n]", axis_name="data", count=2, smooth=False)
        yield bad("float32[5]", axis_name="data", count=2, match="does not divide")


@op("broadcast")
class Broadcast(Collective):
    """The array of one process.  x: [*A]  ->  [*A]

    Attributes:
        root: The index of that process along the axis.
    """

    root: int

    def eval(self, xp: Any, x: Any) -> Any:
        return x.copy()

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def cotangent() -> Tensor:
            total = emit(AllReduce(self.axis_name, self.count, how="sum", shards=0), ct)
            here = emit(AxisIndex(self.axis_name, self.count)) == self.root
            return F.where(here, total, F.zeros_like(total))

        return (cotangent,)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        return emit(self, x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", axis_name="data", count=2, root=1, smooth=False)
        yield ok("int8[]", axis_name="data", count=2, root=0)


@op("axis_index")
class AxisIndex(Collective):
    """The index of the process along an axis.  -> int32[]"""

    vjp = NONDIFF

    def shape(self) -> Shape:  # type: ignore[override]  # it has no operand
        return ()

    def dtype(self) -> DType:  # type: ignore[override]  # likewise
        return int32

    def eval(self, xp: Any) -> Any:
        return xp.asarray(0, dtype="int32")

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok(axis_name="data", count=2)


def _divided(x: Shape, count: int) -> DimLike:
    """Return the size of a block of axis 0."""
    _require_axis(x)
    require(
        not isinstance(x[0], int) or x[0] % count == 0,
        f"{count}, the number of processes, does not divide {x[0]}",
        at=[(0, 0)],
        fix="pad the axis, or start another number of processes",
    )
    return x[0] // count


def _require_axis(x: Shape) -> None:
    require(len(x) > 0, "x has no axis", fix="give it one: gf.reshape(x, (1,))")


def _require_reducible(x: DType, how: How) -> None:
    require(
        not x.is_bool and (how == "sum" or not x.is_complex),
        f"there is no {how} of {x.name}",
        fix="convert it, as by gf.astype(x, gf.int32), or take gf.abs of complex numbers",
        error=DTypeError,
    )
