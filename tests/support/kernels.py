"""Kernels by hand: compiled and run, and the same computed by NumPy from the kernel's meaning."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    BoundsCheck,
    Buffer,
    Call,
    Carried,
    Carry,
    Const,
    Expr,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    Size,
    SizeValue,
    Store,
)
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.numpy_executor.codegen import (
    AVX2,
    AVX512,
    BASE,
    KernelCode,
    Processor,
    host,
    scratch_bytes,
)
from graphfw.runtime.numpy_executor.machine import machine
from tests.support.cuda_kernels import CudaTarget
from tests.support.work_items import WORK_ITEM, in_a_run

TARGETS = tuple([t for t in (AVX512, AVX2, BASE) if t.vector_bytes <= host().vector_bytes])
"""The targets of this machine: its vectors and narrower ones, the widest first."""

with_avx512 = pytest.mark.skipif(host() is not AVX512, reason="what is faster depends on vectors")
"""For tests of what is taken for faster, with AVX-512."""


def at(offset: Size = 0, /, **strides: Size) -> Access:
    """An access by strides."""
    return Access(offset, tuple(strides.items()))


ROWS, COLUMNS, PER_ITEM = Param(0), Param(1), Param(2)
"""The parameters of `matrix_kernel`, before others."""

MATRIX = at(i=COLUMNS, j=1)
"""Access to a matrix in such a kernel: row `i`, column `j`."""


def matrix_kernel(
    body: tuple[Any, ...],
    *buffers: tuple[DType, bool],
    form: str = "rows",
    outer: tuple[Axis, ...] | None = None,
    inner: tuple[Axis, ...] | None = None,
    split: Size | None = None,
    params: int = 3,
) -> Kernel:
    """Return a kernel over rows `i` and columns `j`, which are its axes by default.

    Args:
        body: Its statements.
        buffers: The dtype of each, and whether it is written.
        form: "rows" or "columns".
        outer: Other outer axes.
        inner: Other inner axes.
        split: The length of a chunk.
        params: How many parameters there are.
    """
    rows, columns = (Axis("i", ROWS),), (Axis("j", COLUMNS),)
    first, second = (rows, columns) if form == "rows" else (columns, rows)
    given = tuple([Buffer(*buffer) for buffer in buffers])
    outer, inner = first if outer is None else outer, second if inner is None else inner
    return Kernel(form, outer, inner, PER_ITEM, split, given, params, body)


def size(value: Size, params: Sequence[int]) -> int:
    return params[value.number] if isinstance(value, Param) else value


def extents(axes: tuple[Axis, ...], params: Sequence[int]) -> list[int]:
    return [size(axis.extent, params) for axis in axes]


def work_items(kernel: Kernel, params: Sequence[int]) -> int:
    per_item = size(kernel.per_item, params)
    outer = extents(kernel.outer, params)
    if kernel.form == "columns":
        return math.prod(outer[:-1]) * -(-outer[-1] // per_item)
    chunks = 1
    if kernel.split is not None:
        chunks = -(-size(kernel.inner[-1].extent, params) // size(kernel.split, params))
    return -(-math.prod(outer) // per_item) * chunks


@functools.cache
def _llvm() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=machine().cpu,
        features=machine().features,
        opt=2,
        jit=True,
    )
    empty = binding.parse_assembly("")
    return binding, target, binding.create_mcjit_compiler(empty, target)


_addresses: dict[str, int] = {}


def function(text: str, symbol: str) -> int:
    """Compile LLVM text, once in a process; return the address of a function."""
    own = f"{symbol}_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    if own not in _addresses:
        _addresses[own] = _compiled(text.replace(symbol, own), own)
    return _addresses[own]


def _compiled(text: str, symbol: str) -> int:
    binding, target, jit = _llvm()
    module = binding.parse_assembly(text)
    module.verify()
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_instruction_combine_pass()
    options = binding.create_pipeline_tuning_options(speed_level=1)
    passes.run(module, binding.create_pass_builder(target, options))
    jit.add_module(module)
    jit.finalize_object()
    return jit.get_function_address(symbol)


def run(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    params: Sequence[int],
    target: Processor | CudaTarget | None = None,
    threads: int = 1,
) -> int:
    """Run all work items of a kernel, the last first; return the sum of what they return."""
    target = target or host()
    if isinstance(target, CudaTarget):
        return target.run(kernel, arrays, params)
    call = WORK_ITEM(function(KernelCode(kernel, target).llvm("kernel"), "kernel"))
    pointers = (ctypes.c_void_p * (len(arrays) + 1))(*[x.ctypes.data for x in arrays])
    integers = (ctypes.c_int64 * (len(params) + 1))(*params)
    room = scratch_bytes(kernel, target)
    inner = math.prod(extents(kernel.inner, params))
    guard = 64
    scratch = np.full(room.per_inner * inner + room.constant + guard + 64, 0xA5, np.uint8)
    start = -scratch.ctypes.data % 64
    used = room.per_inner * inner + room.constant
    result = 0
    for work_item in reversed(range(work_items(kernel, params))):
        result += call(pointers, integers, work_item, scratch.ctypes.data + start, *in_a_run())
    assert (scratch[start + used :] == 0xA5).all(), "wrote beyond the scratch memory"
    return result


class Meaning:
    """The meaning of a kernel, computed by NumPy on whole grids of positions."""

    def __init__(self, kernel: Kernel, arrays: Sequence[np.ndarray], params: Sequence[int]) -> None:
        self.kernel = kernel
        self.arrays = [array.reshape(-1) for array in arrays]
        self.params = params
        self.axes = (*kernel.outer, *kernel.inner)
        grid = extents(self.axes, params)
        self.grid = tuple(grid)
        self.positions = {
            axis.name: np.arange(n).reshape([-1 if i == k else 1 for k in range(len(grid))])
            for i, (axis, n) in enumerate(zip(self.axes, grid, strict=True))
        }
        self.names: dict[str, np.ndarray] = {}
        self.inner = tuple(range(len(kernel.outer), len(grid)))

    def run(self) -> list[np.ndarray]:
        """Return the contents of all buffers afterwards."""
        for item in self.kernel.body:
            if isinstance(item, InnerLoop) and any(isinstance(s, Carry) for s in item.body):
                self.in_order(item)
                continue
            for statement in item.body if isinstance(item, InnerLoop) else (item,):
                self.statement(statement, isinstance(item, InnerLoop))
        return self.arrays

    def in_order(self, loop: InnerLoop) -> None:
        """Go through a loop in which each position is given what the one before has made."""
        (axis,) = self.kernel.inner
        every = self.positions[axis.name]
        carries = [s for s in loop.body if isinstance(s, Carry)]
        self.names.update({c.name: self.value(c.begin) for c in carries})
        for position in range(every.size):
            self.positions[axis.name] = every[..., position : position + 1]
            new = {c.name: self.value(c.value) for c in carries}
            for statement in loop.body:
                if not isinstance(statement, Carry):
                    self.statement(statement, in_loop=True)
            self.names.update(new)
        self.positions[axis.name] = every

    def statement(self, statement: Any, in_loop: bool) -> None:
        with np.errstate(all="ignore"):
            value = self.value(statement.value)
        if isinstance(statement, Reduce):
            full = np.broadcast_to(value, self.grid)
            self.names[statement.name] = reduced(statement.kind, full, self.inner)
        elif isinstance(statement, Keep):
            self.names[statement.name] = value
        elif isinstance(statement, BoundsCheck):
            bound = size(statement.bound, self.params)
            assert ((value >= 0) & (value < bound)).all(), "a check that fails"
        elif isinstance(statement, Store):
            offsets, value = np.broadcast_arrays(self.offsets(statement.access), value)
            self.arrays[statement.buffer][offsets.reshape(-1)] = value.reshape(-1)
        else:
            self.accumulate(statement, value, in_loop)

    def accumulate(self, statement: Accumulate, value: np.ndarray, in_loop: bool) -> None:
        outer = len(self.kernel.outer)
        rows = math.prod(self.grid[:outer])
        inner = self.grid[outer:] if in_loop else (1,) * len(self.inner)
        full = np.broadcast_to(value, (*self.grid[:outer], *inner)).reshape(rows, *inner)
        per_item = size(self.kernel.per_item, self.params)
        assert self.kernel.form == "rows" or outer == 1, "blocks of other axes: not written"
        line = math.prod(inner)
        for work_item, begin in enumerate(range(0, rows, per_item)):
            rows_of_item = full[begin : begin + per_item]
            if statement.inner:
                sums = reduced(statement.kind, rows_of_item, (0,))
                offset = size(statement.access.offset, self.params) + work_item * line
                offsets = self.offsets(statement.access).reshape(-1) + offset
                self.arrays[statement.buffer][offsets] = sums.reshape(-1)
            else:
                axes = tuple(range(rows_of_item.ndim))
                total = reduced(statement.kind, rows_of_item, axes).reshape(-1)
                self.arrays[statement.buffer][work_item] = total[0]

    def value(self, expr: Expr) -> np.ndarray:
        if isinstance(expr, Const):
            return np.asarray(expr.value, expr.dtype.dtype)
        if isinstance(expr, Position):
            return self.positions[expr.axis]
        if isinstance(expr, SizeValue):
            return np.asarray(size(expr.size, self.params), np.int64)
        if isinstance(expr, Ref | Carried):
            return self.names[expr.name]
        if isinstance(expr, Load):
            return self.arrays[expr.buffer][self.offsets(expr.access)]
        assert isinstance(expr, Call)
        args = [self.value(arg) for arg in expr.args]
        reference = PRIMITIVES[expr.function].reference
        if PRIMITIVES[expr.function].result == "cast":
            return reference(args[0], expr.dtype.dtype)
        return reference(*args)

    def offsets(self, access: Access) -> np.ndarray:
        total = np.asarray(size(access.offset, self.params))
        for axis, stride in access.strides:
            total = total + self.positions[axis] * size(stride, self.params)
        for term in access.terms:
            total = total + self.value(term.value).astype(np.int64) * size(term.stride, self.params)
        return total


def reduced(kind: str, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Reduce over axes, which are kept; in float64 where it matters."""
    if kind in ("argmax", "argmin"):
        return getattr(np, kind)(x, axis=axes[-1], keepdims=True)
    if kind in ("sum", "prod"):
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        with np.errstate(all="ignore"):
            return getattr(np, kind)(x, axis=axes, keepdims=True, dtype=wide).astype(x.dtype)
    return getattr(np, kind)(x, axis=axes, keepdims=True)


def random(rng: np.random.Generator, dtype: DType, n: int) -> np.ndarray:
    """Return elements at random, at an address that is a multiple of their size only."""
    room = np.empty(n + 3, dtype.dtype)
    array = room[1 : n + 1]
    if dtype.is_bool:
        array[:] = rng.integers(0, 2, n).astype(bool)
    elif dtype.is_integer:
        info = np.iinfo(dtype.dtype)
        array[:] = rng.integers(info.min, info.max, n, dtype=dtype.dtype, endpoint=True)
    else:
        array[:] = rng.standard_normal(n).astype(dtype.dtype)
    return array


def check(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    params: Sequence[int],
    *,
    rtol: float = 0,
    target: Processor | CudaTarget | None = None,
) -> list[np.ndarray]:
    """Run a kernel and compare all buffers with what it means; return them.

    Elements of written buffers that the kernel does not write must stay as they were.
    """
    wanted = Meaning(kernel, [x.copy() for x in arrays], params).run()
    got = [guarded(x) for x in arrays]
    assert run(kernel, [inside for _, inside in got], params, target) == 0
    for (whole, inside), right in zip(got, wanted, strict=True):
        around = np.concatenate([whole[:3], whole[3 + len(inside) :]])
        assert (around == 1).all(), "wrote beyond a buffer"
        if rtol and inside.dtype.kind not in "biu":
            a, b = inside.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True)
        else:
            np.testing.assert_array_equal(inside, right)
    return [inside for _, inside in got]


def guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a larger array of ones, and a copy of the array in the midst of it."""
    flat = array.reshape(-1)
    room = np.ones(len(flat) + 67, array.dtype)
    inside = room[3 : 3 + len(flat)]
    inside[:] = flat
    return room, inside
