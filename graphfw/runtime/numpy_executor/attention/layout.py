"""The layout of the attention kernels' run-time integers."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.utils.records import record


@record
class AttentionParams:
    """Names of integers, in order.

    Attributes:
        sizes: Names of single integers.
        lead: The number of leading dims.
        views: Names of operands that are read or written with strides. Each has an `offset`, the
            strides of the leading dims, and those of its last two dims, `row` and `col`.
    """

    sizes: tuple[str, ...]
    lead: int
    views: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        axes = [f"lead{i}" for i in range(self.lead)]
        fields = ("offset", *axes, "row", "col")
        return (*self.sizes, *axes, *[f"{view}.{field}" for view in self.views for field in fields])

    def loaded(self, f: LlvmFunction) -> dict[str, str]:
        """Write the loads of all integers; return their values by name."""
        return f.read_sizes(self.names)

    def starts(
        self, f: LlvmFunction, n: dict[str, str], head: str, views: Sequence[str]
    ) -> dict[str, str]:
        """Return the offset of matrix number `head` of each view, in elements."""
        starts = {view: n[f"{view}.offset"] for view in views}
        for axis in reversed(range(self.lead)):
            index = head
            if axis:
                index = f.rem(head, n[f"lead{axis}"])
                head = f.div(head, n[f"lead{axis}"])
            for view in views:
                starts[view] = f.add(starts[view], f.mul(index, n[f"{view}.lead{axis}"]))
        return starts


def operands(f: LlvmFunction, names: Sequence[str]) -> dict[str, str]:
    """Write the loads of the operands' addresses; return them by name."""
    return {name: f.operand(i) for i, name in enumerate(names)}
