"""Inputs drawn for the ops' declared cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphfw.ops.collectives.kinds  # registers ops that come with `gf.distributed`
import graphfw.ops.elementwise.packed_bits
import graphfw.ops.linalg.fused_matmul  # registers an op that only the CuPy executor makes
import graphfw.ops.nn.attention_backward
import graphfw.ops.nn.channels_last
import graphfw.ops.sorting.partial_sort  # noqa: F401  so do these; a pass makes the last
from graphfw.ir.dim import symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, complex64, complex128, float32, float64
from graphfw.ir.op import RANDOM, REGISTRY, Case, Op, Rng
from graphfw.ir.types import TensorType, parse_type

Array = np.ndarray[Any, np.dtype[Any]]

OWN = {n: c for n, c in REGISTRY.items() if c.__module__.startswith("graphfw.")}
"""The registered ops without those that other tests have made."""

RNG = Rng(seed=7, step=3)

DEFAULT_SIZE = 3
"""The size of a named dim when its case does not say."""


@dataclass(frozen=True)
class Declared:
    """One case of one op."""

    op_class: type[Op]
    index: int
    case: Case

    def __str__(self) -> str:
        return f"{self.op_class.name}-{self.index}"

    @property
    def op(self) -> Op:
        """The op, with symbolic dims in its fields if the case has some."""
        return self.op_class(**self.case.fields)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The inputs' types, symbolic where the case names dims."""
        return tuple(map(parse_type, self.case.types))

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the dims."""
        dims = [dim for type_ in self.types for dim in type_.shape]
        return self.op.symbols.union(*map(symbols_of, dims))

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the named dims."""
        return {name: self.case.sizes.get(name, DEFAULT_SIZE) for name in self.symbols}

    def bound(self, sizes: dict[str, int] | None = None) -> Sample:
        """Return the case with numbers for the named dims."""
        sizes = self.sizes if sizes is None else sizes
        types = tuple(bound_type(t, sizes) for t in self.types)
        return Sample(self.op.bind(sizes), types, self.case)


@dataclass(frozen=True)
class Sample:
    """An op with static input types."""

    op: Op
    types: tuple[TensorType, ...]
    case: Case

    def inferred(self) -> tuple[TensorType, ...]:
        """Return the outputs' types."""
        return self.op.infer(*self.types)

    def draw(self, rng: np.random.Generator) -> list[Array]:
        """Draw inputs."""
        return [draw(t, self.case, rng) for t in self.types]

    def with_dtypes(self, change: Callable[[DType], DType], *, fields: bool = False) -> Sample:
        """Return the sample with other dtypes for its inputs, and for its fields if asked."""
        types = tuple(TensorType(change(t.dtype), t.shape) for t in self.types)
        op = self.op
        if fields:
            op = type(op)(*[_changed(value, change) for value in op.values])
        return Sample(op, types, self.case)

    def evaluate(self, xp: Any, *inputs: Any, rng: Rng = RNG) -> tuple[Any, ...]:
        """Return the outputs of `eval`."""
        random = {"rng": rng} if RANDOM in self.op.traits else {}
        with np.errstate(all="ignore"):
            result = self.op.eval(xp, *inputs, **random)
        return result if self.op.multiple else (result,)


def bound_type(type_: TensorType, sizes: dict[str, int]) -> TensorType:
    """Replace symbolic dims by numbers."""
    return TensorType(type_.dtype, tuple(evaluate(dim, sizes) for dim in type_.shape))


def doubled(dtype: DType) -> DType:
    """Return the float64 or complex128 for the single precision dtypes."""
    return {float32: float64, complex64: complex128}.get(dtype, dtype)


def draw(type_: TensorType, case: Case, rng: np.random.Generator) -> Array:
    """Draw an array from a case's intervals."""
    shape, dtype = type_.shape, type_.dtype
    if dtype.is_bool:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        return np.asarray(rng.integers(*case.ints, size=shape)).astype(dtype.dtype)
    values = rng.uniform(*case.domain, size=shape)
    if dtype.is_complex:
        values = values + 1j * rng.uniform(*case.domain, size=shape)
    if case.diagonal and len(shape) >= 2:
        values = values + case.diagonal * np.eye(*shape[-2:])
    return np.asarray(values).astype(dtype.dtype)


def declared(accept: Callable[[type[Op], Case], bool]) -> Iterator[Declared]:
    """Yield the registered ops' cases that `accept` lets pass."""
    for name, op_class in sorted(OWN.items()):
        assert op_class.name == name
        for index, case in enumerate(op_class.cases()):
            if accept(op_class, case):
                yield Declared(op_class, index, case)


def _changed(value: Any, change: Callable[[DType], DType]) -> Any:
    if isinstance(value, DType):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(item, change) for item in value)
    return value
