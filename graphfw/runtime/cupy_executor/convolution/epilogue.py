"""The epilogue of a convolution: C++ from its kernel."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.cupy_executor.codegen.values import CudaValues
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer, Kernel, Load, Store
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.walk import postorder, roots, statements


class CudaEpilogue(NamedTuple):
    """The function of the elements of a result.

    Attributes:
        dtype: The dtype of the result.
        keeps: Whether the result itself is written, too.
        by_pixel: Whether the result is channels-last.
        kernel: The epilogue's kernel, see `Epilogue`; None if there is none.
        product: The index of the kernel's buffer that is the result.
    """

    dtype: DType
    keeps: bool = True
    by_pixel: bool = False
    kernel: Kernel | None = None
    product: int = 0

    @property
    def name(self) -> str:
        """The name, which is unique for the function."""
        if self.kernel is None:
            return f"_{self.dtype}{'_by_pixel' if self.by_pixel else ''}"
        text = f"{self.dtype} {self.keeps} {self.by_pixel} {self.product} {show(self.kernel)}"
        return f"_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def buffers(self) -> list[Buffer]:
        """The result, if it is written, and the kernel's other buffers."""
        own = [Buffer(self.dtype, True)] if self.keeps else []
        return [*own, *[buffer for _, buffer in self._others]]

    @property
    def params(self) -> int:
        """The number of the kernel's run-time integers."""
        return 0 if self.kernel is None else self.kernel.params

    @property
    def parameters(self) -> str:
        """The function's parameters for the buffers."""
        kinds = [(f"b{n}", buffer) for n, buffer in self._others]
        if self.keeps:
            kinds.insert(0, ("y", Buffer(self.dtype, True)))
        found = [f"{'' if b.written else 'const '}{memory(b.dtype)}* {n}" for n, b in kinds]
        return ", ".join(found)

    @property
    def numbers(self) -> str:
        """The function's parameters for the kernel's run-time integers, each after a comma."""
        return "".join([f", gf_i64 w{number}" for number in range(self.params)])

    @property
    def _others(self) -> list[tuple[int, Buffer]]:
        if self.kernel is None:
            return []
        return [(n, b) for n, b in enumerate(self.kernel.buffers) if n != self.product]

    def lines(self) -> list[str]:
        """Return the code for `sum`, the value at a `place` of an `output` of an `image`.

        An image has `total` outputs, and these have `size` positions.
        """
        kind = memory(self.dtype)
        lines = [f"    const {kind} result = gf_memory<{kind}>::made(sum);"]
        row, column, length = ("output", "place", "size")
        if self.by_pixel:
            row, column, length = ("place", "output", "total")
        of_image = "size" if self.by_pixel else "total"
        lines.append(f"    const gf_index row = image * {of_image} + {row};")
        if self.keeps:
            lines.append(f"    y[row * {length} + {column}] = result;")
        if self.kernel is None:
            return lines
        values = CudaValues(self.kernel)
        for axis in (*self.kernel.outer, *self.kernel.inner):
            values.index[axis.name] = "0"
        outer = [axis for axis in self.kernel.outer if axis.extent != 1]
        names = ["image", row] if len(outer) > 1 else ["row"]
        values.index.update({axis.name: n for axis, n in zip(outer, names, strict=False)})
        values.index.update({axis.name: column for axis in self.kernel.inner})
        stores = [s for s in statements(self.kernel) if isinstance(s, Store)]
        wanted = [root for s in stores for root in roots(s)]
        for expr in postorder(wanted):
            if isinstance(expr, Load) and expr.buffer == self.product:
                values.packs[expr] = "result"
        # All that is read first: an output may lie over an input.
        values.evaluate(wanted)
        for store in stores:
            values.store(store)
        sizes = [f"    const gf_index p{n} = (gf_index)w{n};" for n in range(self.params)]
        return [*lines, *sizes, *values.lines]
