"""Writing LLVM functions that have branches of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphfw.runtime.numpy_executor.attention.text import AttentionBody


class BranchWriter(AttentionBody):
    """The lines of a function, with labels."""

    def label(self, name: str) -> None:
        """Begin a block."""
        self.do(f"{name}:")
        self._block = name

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End a block with a branch to one of two labels."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def read(self, base: str, index: int) -> str:
        """Load an i64 from an array of such."""
        return self.let(f"load i64, ptr {self.at('i64', base, str(index))}")

    def operand(self, index: int) -> str:
        """Load the address of an operand of a kernel."""
        return self.let(f"load ptr, ptr {self.at('ptr', '%buffers', str(index))}")

    @contextmanager
    def unless(self, failed: str) -> Iterator[None]:
        """End a kernel: return 1 if a condition holds, else 0 after the code written inside."""
        self.branch(failed, "refused", "accepted")
        self.label("accepted")
        yield
        self.do("ret i32 0")
        self.label("refused")
        self.do("ret i32 1")
