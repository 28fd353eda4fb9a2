"""Elementwise kernels tile by tile: what lies across is read along its rows, and turned in between.

A block has a square of positions, along the last axis and along the one in which neighbours of what
lies across are neighbours in memory. So all that is read and written is in a row.
"""

from __future__ import annotations

from graphfw.runtime.cupy_executor.codegen.forms import TILE, TransposedLoads
from graphfw.runtime.cupy_executor.codegen.values import CudaValues
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import BoundsCheck, InnerLoop, Kernel, Load, Store
from graphfw.runtime.kernels.walk import postorder, roots


def tile_lines(kernel: Kernel, tiled: TransposedLoads) -> list[str]:
    """Return the lines of a kernel's body, for blocks of `TILE` by some threads."""
    values = CudaValues(kernel)
    (loop,) = kernel.body
    assert isinstance(loop, InnerLoop)
    last = kernel.inner[-1]
    others = [axis for axis in (*kernel.outer, *kernel.inner) if axis not in (last, tiled.axis)]
    values.write(f"const gf_index along = {values.size(last.extent)};")
    values.write(f"const gf_index across = {values.size(tiled.axis.extent)};")
    values.write(f"const gf_index wide = (along + {TILE - 1}) / {TILE};")
    values.write(f"const gf_index high = (across + {TILE - 1}) / {TILE};")
    values.write(f"const gf_index all = ({values.product(others)}) * wide * high;")
    names = {}
    for number, (buffer, access) in enumerate(tiled.loads):
        # A column more: so the elements of a column lie in different banks.
        kind, name = memory(kernel.buffers[buffer].dtype), f"tile{number}"
        values.write(f"__shared__ {kind} {name}[{TILE}][{TILE + 1}];")
        names[buffer, access] = name
    x, y = "(gf_index)threadIdx.x", "(gf_index)threadIdx.y"
    each = f"for (gf_index k = {y}; k < {TILE}; k += (gf_index)blockDim.y)"
    head = "for (gf_index n = (gf_index)blockIdx.x; n < all; n += (gf_index)gridDim.x)"
    with values.block(head):
        values.write(f"const gf_index left = n % wide * {TILE}, rest = n / wide;")
        values.write(f"const gf_index top = rest % high * {TILE}, others = rest / high;")
        values.stand("others", others)
        values.index[last.name], values.index[tiled.axis.name] = "j", "i"
        values.write("__syncthreads();  // until all have read the tiles before")
        with values.block(each):
            values.write(f"const gf_index i = top + {x}, j = left + k;")
            with values.block("if (i < across && j < along)"):
                for (buffer, access), name in names.items():
                    offset, _ = values.offset(access)
                    values.write(f"{name}[k][threadIdx.x] = b{buffer}[{offset}];")
        values.write("__syncthreads();")
        with values.block(each):
            values.write(f"const gf_index i = top + k, j = left + {x};")
            with values.block("if (i < across && j < along)"):
                wanted = [root for s in loop.body for root in roots(s)]
                for expr in postorder(wanted):
                    if isinstance(expr, Load) and (expr.buffer, expr.access) in names:
                        name = names[expr.buffer, expr.access]
                        values.packs[expr] = f"{name}[threadIdx.x][k]"
                values.evaluate(wanted)
                for s in loop.body:
                    if isinstance(s, BoundsCheck):
                        values.checked(s.value, s.bound)
                    elif isinstance(s, Store):
                        values.store(s)
    return values.lines
