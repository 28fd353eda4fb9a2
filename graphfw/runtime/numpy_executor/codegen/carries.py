"""`CarryVariables`: what is handed from each position of a loop to the next, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.kernels.ir import Carry, Expr, InnerLoop, While
from graphfw.runtime.numpy_executor.codegen.addresses import Registers
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.registers import register, vector


class CarryVariables:
    """The variables of a loop's carries; LLVM keeps them in registers.

    Made where the loop is about to begin, it writes that they have the first values.

    Args:
        evaluator: Of the kernel.
        carries: What is carried.
    """

    def __init__(self, evaluator: Evaluator, carries: Sequence[Carry]) -> None:
        self._evaluator = evaluator
        self._slots: dict[Carry, Registers] = {}
        evaluator.evaluate([carry.begin for carry in carries])
        for carry in carries:
            values = self._registers(carry, carry.begin)
            kind = self._kind(carry)
            self._slots[carry] = tuple([evaluator.writer.slot(kind) for _ in values])
            self._set(carry, values)

    def take(self) -> None:
        """Write that they are read, here: at the begin of a position, or after the loop."""
        writer = self._evaluator.writer
        for carry, slots in self._slots.items():
            kind = self._kind(carry)
            values = [writer.load(kind, slot, writer.depth) for slot in slots]
            self._evaluator.set_result(carry.name, tuple(values))

    def give(self) -> None:
        """Write that they have their next values, at the end of a position."""
        for carry in self._slots:
            self._set(carry, self._registers(carry, carry.value))

    def _set(self, carry: Carry, values: Registers) -> None:
        writer = self._evaluator.writer
        for value, slot in zip(values, self._slots[carry], strict=True):
            writer.store(self._kind(carry), value, slot, writer.depth)

    def _registers(self, carry: Carry, expr: Expr) -> Registers:
        is_varying = self._evaluator.facts.differs(carry)
        return self._evaluator.vectors(expr) if is_varying else self._evaluator.value(expr)

    def _kind(self, carry: Carry) -> str:
        is_varying = self._evaluator.facts.differs(carry)
        lanes = self._evaluator.shape.lanes if is_varying else 1
        return vector(register(carry.value.dtype), lanes)


def leave_unless(evaluator: Evaluator, loop: InnerLoop) -> None:
    """Write that a loop, the innermost, ends here unless its condition holds, if it has one."""
    for statement in loop.body:
        if isinstance(statement, While):
            evaluator.evaluate([statement.value])
            (holds,) = evaluator.value(statement.value)
            evaluator.writer.leave_unless(holds)
