"""The leaves of expressions, before a kernel's axes and parameters are settled."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.affine import Affine, LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.steps import Storage
from graphfw.utils.records import record


class ComputedIndex(LoopVariable):
    """A term of an index that is a value, known to lie below its extent."""

    __slots__ = ("value",)

    def __init__(self, value: Expr, extent: DimLike) -> None:
        super().__init__("value", extent)
        self.value = value


class ElementAddress(NamedTuple):
    """An element of a storage: `offset + sum(variable * stride)`.

    An element of a storage of complex numbers is one of their components.
    """

    storage: Storage
    offset: DimLike
    strides: tuple[tuple[LoopVariable, DimLike], ...]

    def components(self) -> tuple[ElementAddress, ElementAddress]:
        """Return the addresses of a complex number's components."""
        strides = tuple([(variable, stride * 2) for variable, stride in self.strides])
        real = self._replace(offset=self.offset * 2, strides=strides)
        return real, real._replace(offset=real.offset + 1)


@record(eq=False)
class Element(Expr):
    """An element of a storage, before the kernel's axes and parameters are settled."""

    address: ElementAddress


@record(eq=False)
class ResultElement(Element):
    """An element of a storage that the kernel itself writes, as earlier iterations left it."""


@record(eq=False)
class RandomValue(Expr):
    """An element of a node's random bits, which are not in memory, before the like is settled."""

    key: str
    address: ElementAddress


@record(eq=False)
class IndexValue(Expr):
    """An index as a value, int64, before the kernel's axes and parameters are settled."""

    index: Affine


@record(eq=False)
class RunTimeSize(Expr):
    """A size as a value, int64: a parameter of the kernel even where it is known before a run."""

    size: DimLike
