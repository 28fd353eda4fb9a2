"""Kernels as CUDA C++ on the CPU, in the place of interpreting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.codegen import (
    CudaCode,
    GpuCode,
    HandwrittenCode,
    module,
    variants,
)
from graphfw.runtime.cupy_executor.codegen.launch import launch, takes_vectors
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.kernels.handwritten_cuda import Launch
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.planning.draws import Draws
from tests.support.cuda_machines import here
from tests.support.kernel_interpreter import Array, Failed, Interpreted, new_array

_GUARD = 64


class Cuda(Interpreted):
    """The target whose kernels are CUDA C++, and whose products are interpreted."""

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> Any:
        del sizes
        return CudaCode(kernel)

    def lower_node(
        self, node: Node, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Sequence[Step]:
        if node.op.name in ("matmul", "fused_product"):
            return ()  # products that the interpreter does not multiply
        return GpuTarget(Draws(()), "highest").lower_node(node, inputs, outputs)


class CudaTarget:
    """A target that runs kernels by hand: see `tests.support.kernels`."""

    name = "cuda"

    def run(self, kernel: Kernel, arrays: Sequence[Array], params: Sequence[int]) -> int:
        """Run a kernel in all its variants, over the arrays; return 1 where a check fails."""
        try:
            found = run_all(CudaCode(kernel), arrays, params)
        except Failed:
            return 1
        for array, new in zip(arrays, found, strict=True):
            array.reshape(-1)[:] = new
        return 0


CUDA = CudaTarget()


def execute(steps: Sequence[Step], **options: Any) -> Callable[..., None]:
    """Compile steps; return what runs one of them on a memory, in each variant of its kernel."""
    source = module([step.code for step in steps])

    def run(step: Step, memory: dict[Storage, Array], sizes: Mapping[str, int]) -> None:
        arrays = [
            new_array(storage, sizes) if written else np.ascontiguousarray(memory[storage])
            for storage, written in zip(step.operands, step.written, strict=True)
        ]
        params = [evaluate(p, sizes) for p in step.params]
        if isinstance(step.code, HandwrittenCode):
            found = run_by_hand(step.code, arrays, params, source)
        else:
            found = run_all(step.code, arrays, params, source, **options)
        triples = zip(step.operands, step.written, found, strict=True)
        memory.update({storage: array for storage, written, array in triples if written})

    return run


def run_all(
    code: CudaCode,
    arrays: Sequence[Array],
    params: Sequence[int],
    source: str = "",
    *,
    wide: bool = False,
    small: bool = True,
) -> list[Array]:
    """Run a kernel in all its variants, which must agree; return the buffers afterwards.

    Args:
        code: The kernel.
        arrays: The buffers.
        params: The run-time integers.
        source: The module that it is in; one of its own by default.
        wide: Whether indices are computed in 64 bits.
        small: Whether to run them with one block as well, whose threads go on to further
            positions.
    """
    source = source or module([code])
    best = launch(code.kernel, params)
    vectors = takes_vectors(code.kernel, params)
    names = [n for n in variants(code.kernel) if vectors or not n.endswith("vector")]
    launches = [launch(code.kernel, params, name) for name in names] if best.grid else [best]
    # Short rows too.
    launches += [launch(code.kernel, params, one.variant, 3) for one in launches if one.counters]
    if small:
        launches += [one._replace(grid=1) for one in launches if one.grid > 1 and not one.counters]
    results = [run_once(code, one, arrays, params, source, wide=wide) for one in launches]
    for other in results[1:]:
        for buffer, a, b in zip(code.kernel.buffers, results[0], other, strict=True):
            if not buffer.dtype.is_inexact:
                np.testing.assert_array_equal(a.view(f"V{a.itemsize}"), b.view(f"V{b.itemsize}"))
                continue
            rtol = {2: 2e-2, 4: 1e-5, 8: 1e-12}[a.real.dtype.itemsize]
            wider = np.complex128 if a.dtype.kind == "c" else np.float64
            with np.errstate(invalid="ignore"):  # casts of NaN
                a, b = a.astype(wider), b.astype(wider)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True)
    return results[0]


def run_by_hand(
    code: HandwrittenCode, arrays: Sequence[Array], params: Sequence[int], source: str = ""
) -> list[Array]:
    """Run a kernel that is written by hand as it is launched; return the buffers afterwards.

    Args:
        code: The kernel.
        arrays: The buffers; what is written of them may hold anything.
        params: The run-time integers.
        source: The module that it is in; one of its own by default.

    Raises:
        Failed: It sets the flag of a check that fails.
    """
    for array, buffer in zip(arrays, code.buffers, strict=True):
        assert array.dtype == buffer.dtype.dtype
    assert len(params) == code.params
    one = code.launch(params)
    return run_once(code, one, arrays, params, source or module([code]))


def run_once(
    code: GpuCode,
    one: Launch,
    arrays: Sequence[Array],
    params: Sequence[int],
    source: str,
    *,
    wide: bool = False,
) -> list[Array]:
    """Run a kernel once, on copies of the buffers; of those that are one array on one copy."""
    addresses = [array.ctypes.data if array.size else -n for n, array in enumerate(arrays)]
    copies = {
        address: _guarded(array.nbytes) for address, array in zip(addresses, arrays, strict=True)
    }
    wholes = [copies[address] for address in addresses]
    pairs = zip(wholes, arrays, strict=True)
    insides = [whole[_GUARD:-_GUARD].view(array.dtype) for whole, array in pairs]
    for inside, array in zip(insides, arrays, strict=True):
        inside[:] = array.reshape(-1)
    flags, scratch = np.zeros(1 + one.counters, np.int32), _guarded(one.scratch)
    if one.grid:
        machine = here()
        name = f"{code.symbol}_{one.variant}"
        function = machine.function(source, name, wide or one.is_wide, one.shared)
        buffers = code.kernel.buffers if isinstance(code, CudaCode) else code.buffers
        pairs = zip(addresses, buffers, strict=True)
        read = {address for address, buffer in pairs if not buffer.written}
        found = {
            address: machine.address(whole, _GUARD, is_fresh=address not in read)
            for address, whole in copies.items()
        }
        memory = machine.address(scratch, _GUARD, is_fresh=True) if one.scratch else 0
        args = [np.uint64(found[address]) for address in addresses] + [np.int64(p) for p in params]
        args += [np.uint64(machine.address(flags)), np.uint64(memory)]
        function((one.grid, one.pieces), one.block, args, shared_mem=one.shared)
        machine.bring_home()
    for whole in (*wholes, scratch):
        around = np.concatenate([whole[:_GUARD], whole[-_GUARD:]])
        assert (around == 0xA5).all(), "wrote beyond a buffer"
    assert not flags[1:].any(), "counters are left for the next launch as they were"
    if flags[0]:
        raise Failed
    return insides


def _guarded(nbytes: int) -> Array:
    """Return bytes, well aligned, with some more before and behind them."""
    room = np.full(nbytes + 3 * _GUARD, 0xA5, np.uint8)
    begin = -room.ctypes.data % _GUARD
    return room[begin : begin + nbytes + 2 * _GUARD]
