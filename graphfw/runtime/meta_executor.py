"""The executor `"meta"`: runs nothing, takes shapes and answers types, for models of any size."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError, FeedError
from graphfw.ir.dim import substitute
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.runtime import feeding
from graphfw.runtime.executor import Claim, Executable, Executor, Options
from graphfw.runtime.program import Program


class MetaExecutor(Executor):
    """Takes a shape (or an array, for its shape) for each feed; results are `TensorType`s.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 64), name="x")
    ...     y = gf.sum(x, axis=1)
    >>> with gf.Session(g, executor="meta") as session:
    ...     session.run(y, {x: (32, 64)})
    float32[32]
    """

    name = "meta"
    holds_values = False
    keeps_time_limits = True  # nothing is computed

    def __init__(self, device: str = "") -> None:
        if device:
            raise ExecutorError(
                f'"meta:{device}": the meta executor has no devices', fix='write "meta"'
            )

    def load(self, program: Program, options: Options) -> Executable:
        options.require_no_limit("the meta executor")
        return _MetaExecutable(program)

    def feed(self, placeholder: Tensor, value: Any) -> TensorType:
        shape = getattr(value, "shape", value)
        if isinstance(shape, (int, np.integer)):
            shape = (shape,)
        if not isinstance(shape, (tuple, list)) or not all(map(_is_size, shape)):
            raise FeedError(
                f"{feeding.label(placeholder)}: the meta executor takes a shape, not "
                f"{reprlib.repr(value)}",
                fix="feed a tuple of ints, or an array for its shape",
            )
        dtype = getattr(value, "dtype", placeholder.dtype)
        if dtype != placeholder.dtype:
            raise FeedError(
                f"{feeding.label(placeholder)} is {placeholder.dtype.name} and is fed {dtype}"
            )
        return TensorType(placeholder.dtype, tuple(map(int, shape)))

    def from_host(self, array: Any) -> Any:
        raise ExecutorError("the meta executor has no arrays")

    def to_host(self, array: Any) -> Any:
        raise ExecutorError(
            "the meta executor has no values, only shapes",
            fix='make the session with executor="numpy" to have variables and results',
        )


def _is_size(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and int(value) >= 0


class _MetaExecutable(Executable):
    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        env = dict(zip(self._program.symbols, sizes, strict=True))
        return [
            TensorType(t.dtype, tuple(substitute(dim, env) for dim in t.shape))
            for t in self._program.graph.outputs
        ]

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        raise AssertionError("there are no values to be finite")
