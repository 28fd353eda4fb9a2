"""The base of collectives, and a collective that is connected to other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from graphfw.ir.dtype import DType
from graphfw.ir.op import COLLECTIVE, EFFECT, NONDIFF, Op, op
from graphfw.ir.types import Shape


class Collective(Op):
    """The base of operations in which all processes along an axis of a mesh take part.

    Its `eval` returns what the first process gets if the operands of all are equal: that is what
    passes and profiles compute with, since nothing is exchanged outside of runs. In a run a
    `Connected` stands in its place.

    Attributes:
        axis_name: The axis of the mesh.
        count: Its size.
    """

    axis_name: str
    count: int
    traits = frozenset({EFFECT, COLLECTIVE})
    linear: ClassVar[Literal["", "jointly", "each"]] = "jointly"

    def shape(self, x: Shape) -> Shape:
        return x

    def dtype(self, x: DType) -> DType:
        return x


class Link(ABC):
    """The connection of a session to the other processes."""

    @property
    @abstractmethod
    def is_live(self) -> bool:
        """Whether a run is under way, which all processes make together."""

    @abstractmethod
    def collect(self, op: Connected, *operands: Any) -> Any:
        """Return the result of a collective, given this process's operands as NumPy arrays."""


@op("connected")
class Connected(Op):
    """A collective of a compiled program.  operands, earlier results  ->  as `what` says

    Attributes:
        what: The collective.
        link: The connection of the session.
        serial: The number of the collective in its program. All processes do them in this order,
            because each has the result of the one before as an input.
    """

    what: Collective
    link: Link
    serial: int
    traits = frozenset({EFFECT, COLLECTIVE})
    vjp = NONDIFF  # passes make it, after all gradients

    @property
    def title(self) -> str:
        return self.what.title

    def shape(self, *inputs: Shape) -> Shape:
        found: Shape = self.what.shape(*self._operands(inputs))
        return found

    def dtype(self, *inputs: DType) -> DType:
        found: DType = self.what.dtype(*self._operands(inputs))
        return found

    def eval(self, xp: Any, *inputs: Any) -> Any:
        operands = self._operands(inputs)
        if not self.link.is_live:
            return self.what.eval(xp, *operands)
        hosts = [x if xp.__name__ == "numpy" else xp.asnumpy(x) for x in operands]
        return xp.asarray(self.link.collect(self, *hosts))

    def _operands(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[: len(self.what.labels)]
