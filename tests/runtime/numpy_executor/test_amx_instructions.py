"""AMX's instructions themselves: of the processor, or of the handler of `support.amx_traps`.

What they are given is what LLVM's assembler writes.
"""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest

from graphfw.ir.dtype import as_dtype
from graphfw.runtime.numpy_executor.codegen import AVX512
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.runtime.numpy_executor.matmul_runs import product, random
from tests.runtime.numpy_executor.small_code import SmallCode
from tests.support.amx_traps import FORM

pytestmark = pytest.mark.skipif(FORM != "amx", reason="no AMX here: test_amx_traps runs these")

_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_void_p
)


def config(*tiles: tuple[int, int], start_row: int = 0):
    """Return a configuration; each tile has a number of rows, and of bytes in a row."""
    memory = np.zeros(64, np.uint8)
    memory[:2] = 1, start_row
    for number, (rows, row_bytes) in enumerate(tiles):
        memory[16 + 2 * number], memory[48 + number] = row_bytes, rows
    return memory


def execute(lines, *arrays, stride=64):
    """Run instructions.

    Args:
        lines: Each with the register that an address is in, and the array that it is of, or "".
        arrays: Their memory.
        stride: What is in r14.
    """
    body = ["%stride = load i64, ptr %p"]
    for number in range(len(arrays)):
        body.append(f"%at{number} = getelementptr ptr, ptr %b, i64 {number}")
        body.append(f"%a{number} = load ptr, ptr %at{number}")
    for text, register, number in lines:
        given = f'"{{r14}},{{{register}}}"(i64 %stride, ptr %a{number})' if register else '""()'
        body.append(f'call void asm sideeffect "{text}", {given}')
    llvm.initialize_native_asmparser()
    code = SmallCode("amx", "\n".join([*body, "ret i32 0"]))
    buffers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    _FUNCTION(compile_codes([code])[0])(buffers, (ctypes.c_int64 * 1)(stride), 0, None)


@pytest.mark.parametrize(
    ("address", "register", "scale", "offset"),
    [
        ("(%rax,%r14,1)", "rax", 1, 0),
        ("(%r8,%r14,2)", "r8", 2, 0),
        ("-64(%r13,%r14,1)", "r13", 1, -64),
        ("(%r12,%r14,4)", "r12", 4, 0),
        ("512(%rsi,%r14,1)", "rsi", 1, 512),
        ("64(%rbx)", "rbx", 0, 64),
    ],
)
@pytest.mark.parametrize("load", ["tileloadd", "tileloaddt1"])
def test_addresses(load, address, register, scale, offset, rng):
    memory = rng.integers(0, 256, 8192, np.uint8)
    here, got = memory[2048:], np.full((16, 64), 7, np.uint8)
    lines = [
        ("ldtilecfg 64(%rdx)", "rdx", 0),
        (f"{load} {address}, %tmm5", register, 1),
        ("tilestored %tmm5, (%r15,%r14,1)", "r15", 2),
        ("tilerelease", "", 0),
    ]
    settings = np.concatenate([np.zeros(64, np.uint8), config(*[(9, 44)] * 8)])
    execute(lines, settings, here, got)
    rows = [memory[2048 + offset + 64 * scale * row :][:44] for row in range(9)]
    np.testing.assert_array_equal(got[:9, :44], rows)
    got[:9, :44] = 7
    assert (got == 7).all()


def test_places_of_configurations(rng):
    tiles = [
        tuple(map(int, pair)) for pair in zip(rng.integers(1, 17, 8), range(8, 72, 8), strict=True)
    ]
    given, got = config(*tiles), np.full((3, 64), 7, np.uint8)
    lines = [
        ("ldtilecfg (%r11)", "r11", 0),
        ("sttilecfg (%r11)", "r11", 1),
        ("tilerelease", "", 0),
        ("sttilecfg 128(%rdi)", "rdi", 1),
    ]
    execute(lines, given, got)
    np.testing.assert_array_equal(got, [given, np.full(64, 7), np.zeros(64)])


def test_loads_begin_at_a_row(rng):
    """A load that a fault has interrupted goes on at the row that it has come to."""
    memory, got = rng.integers(1, 256, (16, 64), np.uint8), np.zeros((2, 16, 64), np.uint8)
    store = "tilestored %tmm0, (%rcx,%r14,1)"
    lines = [
        ("ldtilecfg (%rax)", "rax", 0),
        ("tileloadd (%rbx,%r14,1), %tmm0", "rbx", 1),
        (store, "rcx", 2),
        ("tilezero %tmm0", "", 0),
        (store, "rcx", 3),
        ("tilerelease", "", 0),
    ]
    execute(lines, config((16, 64), start_row=5), memory, *got)
    np.testing.assert_array_equal(got[0, 5:], memory[5:])
    assert not got[0, :5].any()
    assert not got[1].any()


def dot(a, b, c):
    """c [m, n], a [m, 2 k] and b [k, 2 n] as bits of bfloat16, as the instruction adds them up."""
    total = c.copy()
    settings = config((len(c), 4 * c.shape[1]), (len(a), 2 * a.shape[1]), (len(b), 2 * b.shape[1]))
    names = ("rax", "rbx", "rcx")
    padded = [np.zeros((16, 64), np.uint8) for _ in names]
    for memory, array in zip(padded, (c, a, b), strict=True):
        view = np.ascontiguousarray(array).view(np.uint8)
        memory[: len(view), : view.shape[1]] = view
    lines = [("ldtilecfg (%r10)", "r10", 0)]
    for number, name in enumerate(names):
        lines.append((f"tileloadd (%{name},%r14,1), %tmm{number}", name, 1 + number))
    lines += [
        ("tdpbf16ps %tmm2, %tmm1, %tmm0", "", 0),
        ("tilestored %tmm0, (%rax,%r14,1)", "rax", 1),
        ("tilerelease", "", 0),
    ]
    execute(lines, settings, *padded)
    total[:] = padded[0].view(np.float32)[: len(c), : c.shape[1]]
    return total


def bits(values):
    """Return float32 as bits of bfloat16, cut off."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (1, 1, 1), (5, 7, 3), (16, 2, 11)])
def test_sums_of_products(m, n, k, rng):
    x, y = rng.integers(-9, 10, (m, 2 * k)), rng.integers(-9, 10, (2 * k, n))
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    b = bits(y).reshape(k, 2, n).transpose(0, 2, 1).reshape(k, 2 * n)
    np.testing.assert_array_equal(dot(bits(x), b, c), c + x @ y)


@pytest.mark.parametrize(
    ("x", "y", "c", "expected"),
    [
        # Even and odd places have sums of their own, and what was there comes last.
        ([2.0**24, 1, 1, 1, -(2.0**24), 1], [1] * 6, 0, 3 + 1 - 1),
        ([1, 1], [1, 1], 2.0**24, 2.0**24 + 2),
        # Rounded to nearest even: a half of the last place, and three halves of it.
        ([2.0**24, 0, 1, 0], [1] * 4, 0, 2.0**24),
        ([2.0**24, 0, 3, 0], [1] * 4, 0, 2.0**24 + 4),
        # Subnormal operands, products, sums, and what was there, are zeros.
        ([2.0**-130, 0], [2.0**100, 0], 0, 0),
        ([2.0**-70, 0], [2.0**-70, 0], 0, 0),
        ([1.5 * 2.0**-126, 0, -(2.0**-126), 0], [1] * 4, 0, 0),
        ([0, 0], [0, 0], 2.0**-130, 0),
        # A product has no range of its own: it is added before it is rounded.
        ([-(2.0**127), 0, 2.0**127, 0], [1, 0, 1.5, 0], 0, 2.0**126),
        ([2.0**127, 2.0**127], [2, 1], 0, np.inf),
        ([np.inf, -np.inf], [1, 1], 0, np.nan),
    ],
)
def test_rounding(x, y, c, expected):
    b = bits(y).reshape(-1, 2)
    got = dot(bits([x]), b, np.full((1, 1), c, np.float32))
    np.testing.assert_array_equal(got, np.float32([[expected]]))


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_emulated_tiles_give_the_same_bits(dtype, precision, rng):
    for m, n, k in itertools.product((17, 64), (33,), (31, 300)):
        a, b = (random(rng, shape, as_dtype(dtype).dtype) for shape in ((m, k), (k, n)))
        real, emulated = (
            product(a, b, target=AVX512, tiles=form, precision=precision)
            for form in ("amx", "emulated")
        )
        np.testing.assert_array_equal(real, emulated)
