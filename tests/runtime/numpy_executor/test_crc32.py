"""Generated checksums are zlib's: all sizes, places in memory, and kinds of processors."""

import zlib

import numpy as np
import pytest

import graphfw as gf
from graphfw.io import crc32 as in_files
from graphfw.runtime.kernels.steps import LlvmCode
from graphfw.runtime.numpy_executor.crc32 import FoldCode, crc32_by, lanes_of, power
from graphfw.runtime.numpy_executor.machine import Machine, machine


class Emulated(FoldCode):
    """The code for an ARM processor with its multiplication in ordinary instructions."""

    @property
    def key(self):
        return f"emulated {super().key}"

    def llvm(self, symbol):
        text = super().llvm(symbol)
        name = "llvm.aarch64.neon.pmull64"
        assert text.count(f"declare <16 x i8> @{name}(i64, i64)") == 1
        return text.replace(f"declare <16 x i8> @{name}(i64, i64)", _MULTIPLIED).replace(
            f"@{name}", "@multiplied"
        )


_MULTIPLIED = """
define internal <16 x i8> @multiplied(i64 %a, i64 %b) {
entry:
  %wide = zext i64 %a to i128
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i128 [ 0, %entry ], [ %more, %loop ]
  %moved = lshr i64 %b, %i
  %bit = trunc i64 %moved to i1
  %by = zext i64 %i to i128
  %term = shl i128 %wide, %by
  %added = select i1 %bit, i128 %term, i128 0
  %more = xor i128 %sum, %added
  %next = add i64 %i, 1
  %goes_on = icmp ult i64 %next, 64
  br i1 %goes_on, label %loop, label %end
end:
  %result = bitcast i128 %more to <16 x i8>
  ret <16 x i8> %result
}
"""


def codes():
    most = lanes_of(machine())
    found = [FoldCode(machine().architecture, n) for n in (1, 2, 4) if n <= most]
    return [*found, Emulated("aarch64", 1)]


def test_powers_are_those_of_the_paper_as_linux_has_them():
    """The constants of `crc32-pclmul_asm.S`, for 64 and for 16 bytes."""
    assert [power(512 + 32), power(512 - 32)] == [0x154442BD4, 0x1C6E41596]
    assert [power(128 + 32), power(128 - 32)] == [0x1751997D0, 0x0CCAA009E]


@pytest.mark.parametrize("code", codes(), ids=lambda code: code.key)
def test_every_size_and_alignment(rng, code):
    crc32 = crc32_by(code)
    memory = rng.integers(0, 256, 5100, np.uint8)
    for size in range(5001):
        first = int(rng.integers(0, 64))
        block = memory[first : first + size]
        assert crc32(block) == zlib.crc32(block), (size, first)
    for first in range(64):
        block = memory[first : first + 1024]
        assert crc32(block) == zlib.crc32(block), first


@pytest.mark.exhaustive
@pytest.mark.parametrize("code", codes(), ids=lambda code: code.key)
@pytest.mark.parametrize("content", ["random", "zeros", "ones", "one bit"])
def test_millions_of_bytes(rng, code, content):
    size = (3 << 20) + int(rng.integers(0, 5000))
    memory = {
        "random": rng.integers(0, 256, size, np.uint8),
        "zeros": np.zeros(size, np.uint8),
        "ones": np.full(size, 255, np.uint8),
        "one bit": np.zeros(size, np.uint8),
    }[content]
    if content == "one bit":
        memory[rng.integers(0, size)] = 1 << rng.integers(0, 8)
    assert crc32_by(code)(memory) == zlib.crc32(memory)


def test_which_machines_have_it():
    def lanes(triple, features):
        return lanes_of(Machine(f"{triple}-unknown-linux-gnu", "any", features, "any"))

    wide = "+avx512f,+avx512bw,+avx512dq,+avx512vl"
    assert lanes("x86_64", "+avx2,+fma") == 0
    assert lanes("x86_64", "+pclmul") == 1
    assert lanes("x86_64", f"+pclmul,+avx2,+fma,{wide}") == 1
    assert lanes("x86_64", "+pclmul,+vpclmulqdq,+avx2,+fma") == 2
    assert lanes("x86_64", f"+pclmul,+vpclmulqdq,+avx2,+fma,{wide}") == 4
    assert lanes("aarch64", "+neon,+crc") == 0
    assert lanes("arm64", "+neon,+aes") == 1
    assert lanes("riscv64", "+v") == 0


def test_it_is_code():
    assert isinstance(FoldCode("x86_64", 1), LlvmCode)


def test_sessions_use_it_for_much(tmp_path, monkeypatch):
    """Without generated code, and for little, zlib's function is used."""
    gf.Session(gf.Graph())  # whose executor offers it
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    few, many = in_files.crc32_for(1000), in_files.crc32_for(1 << 20)
    assert few is in_files._zlib
    expected = lanes_of(machine()) > 0
    assert (many is not few) == expected
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    assert in_files.crc32_for(1 << 20) is few
