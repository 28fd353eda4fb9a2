"""The larger or the smaller of what a tensor has and values, where indices point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from graphfw.errors import DTypeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.op import Case, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ops.dtypes import compute_dtype, require_ordered
from graphfw.ops.shape.gather_scatter import Gather, IndexAdd, Putting


class IndexExtreme(Putting):
    """The base of index_max and index_min.

    x: [*A, *N, *B]  values: [*A, *I, *B]  indices: [*I] …  ->  [*A, *N, *B]
    """

    better: ClassVar[str]
    worse: ClassVar[str]
    linear = ""

    def dtype(self, x: DType, values: DType, *indices: DType) -> DType:
        return require_ordered(super().dtype(x, values, *indices))

    def eval(self, xp: Any, x: Any, values: Any, *indices: Any) -> Any:
        made = xp.array(x, dtype=compute_dtype(xp, x.dtype), order="C")
        matrix, joined = self.flat(xp, made, indices)
        before, size, after = matrix.shape
        rows = xp.arange(before)[:, None, None] * size + joined[:, None]
        positions = (rows * after + xp.arange(after)).reshape(-1)
        flat, put = matrix.reshape(-1), values.reshape(-1).astype(made.dtype)
        choose = getattr(xp, self.better)
        if xp is np:
            choose.at(flat, positions, put)
        elif positions.size:  # CuPy's `at` is for few dtypes: the best of each index stands last
            order = xp.lexsort(xp.stack([self._rank(xp, put), positions]))
            put, positions = put[order], positions[order]
            is_last = xp.concatenate([positions[1:] != positions[:-1], xp.ones(1, dtype=bool)])
            put, positions = put[is_last], positions[is_last]
            flat[positions] = choose(flat[positions], put)
        return made.astype(x.dtype, copy=False)

    def _rank(self, xp: Any, put: Any) -> Any:
        """Return how many of the values are not better than each; a NaN is better than all."""
        values = put if self.better == "maximum" else ~put if put.dtype.kind in "iu" else -put
        return xp.argsort(xp.argsort(values, kind="stable"), kind="stable")

    def vjp(
        self, ct: Tensor, y: Tensor, x: Tensor, values: Tensor, *indices: Tensor
    ) -> tuple[Any, ...]:
        worse: Callable[[Tensor, Tensor], Tensor] = getattr(F, self.worse)
        gather = Gather(*self.values)

        def lost() -> Tensor:
            """Return which elements of x are not the result; NaN is found as "not worse"."""
            return worse(x, y)

        def not_put() -> Tensor:
            return worse(values, emit(gather, y, *indices))

        def share() -> Tensor:
            """Return the cotangent divided by the number of those that tie."""
            one = F.ones((), dtype=x.dtype)
            own, given = F.where(lost(), 0, one), F.where(not_put(), 0, one)
            return ct / emit(IndexAdd(*self.values), own, given, *indices)

        return (
            lambda: F.where(lost(), 0, share()),
            lambda: F.where(not_put(), 0, emit(gather, share(), *indices)),
            *[None] * len(indices),
        )

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Putting.cases()
        yield ok("uint8[4]", "uint8[]", "int64[]", axis=0)
        yield bad("bool[4]", "bool[2]", "int32[2]", axis=0, match="not bool", error=DTypeError)


@op("index_max")
class IndexMax(IndexExtreme):
    """x with the larger of its elements and the values that indices give them."""

    better = "maximum"
    worse = "less"


@op("index_min")
class IndexMin(IndexExtreme):
    """x with the smaller of its elements and the values that indices give them."""

    better = "minimum"
    worse = "greater"
