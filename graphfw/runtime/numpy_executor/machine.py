"""The name and features of this processor, as LLVM names them."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib import import_module
from typing import Literal

from graphfw.errors import ArgumentError
from graphfw.utils.records import record

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
"""Linux's names for asking that this process may use AMX tiles."""


_VARIABLE = "GRAPHFW_VECTOR_BITS"
_CPUS = {128: "x86-64-v2", 256: "x86-64-v3"}
"""LLVM's names of x86 processors whose vectors have so many bits."""
_BEYOND_256 = ("avx512", "avx10", "amx", "evex512")
_BEYOND_128 = (
    *_BEYOND_256,
    "avx",
    "fma",
    "f16c",
    "xop",
    "vaes",
    "vpclmulqdq",
    "sha512",
    "sm3",
    "sm4",
)
"""The prefixes of features that processors with narrower vectors lack."""


@record
class Machine:
    """The machine that code is generated for: this one, or this one with narrower vectors.

    Attributes:
        triple: Architecture, vendor and system, such as "x86_64-unknown-linux-gnu".
        cpu: LLVM's name of the processor.
        features: What it has, as LLVM takes it: "+avx2,-amx-tile,...".
        version: Of llvmlite and of LLVM.
    """

    triple: str
    cpu: str
    features: str
    version: str

    @property
    def key(self) -> str:
        """All of it in one text: machine code is valid where this is equal."""
        return f"{self.triple} {self.cpu} {self.features} {self.version}"

    @property
    def architecture(self) -> str:
        """The architecture: "x86_64", "aarch64" (also where the triple says arm64)."""
        name = self.triple.split("-")[0]
        return "aarch64" if name == "arm64" else name

    def has(self, *features: str) -> bool:
        """Return whether it has all of some features, as LLVM names them."""
        return {f"+{name}" for name in features} <= set(self.features.split(","))

    @property
    def vector_bits(self) -> int:
        """The size of a vector register: 512 with AVX-512, 256 with AVX2 and FMA, else 128."""
        if self.architecture == "x86_64":
            if self.has(*[f"avx512{subset}" for subset in ("f", "bw", "dq", "vl")]):
                return 512
            if self.has("avx2", "fma"):
                return 256
        return 128

    @property
    def converts_float16(self) -> bool:
        """Whether there are instructions that convert float16: on x86 with F16C, elsewhere always.

        Without them LLVM calls a function of the compiler's library, which a process has not.
        """
        return self.architecture != "x86_64" or self.has("f16c")

    def narrowed(self, bits: int) -> Machine:
        """Return the machine without the instructions of vectors with more bits.

        Args:
            bits: 128, 256 or 512.

        Raises:
            ArgumentError: The machine's own vectors have fewer bits.
        """
        if bits > self.vector_bits:
            raise ArgumentError(
                f"{_VARIABLE}={bits}: this machine's vectors have {self.vector_bits} bits",
                fix=f"set {_VARIABLE} to at most {self.vector_bits}, or not at all",
            )
        if bits == self.vector_bits:
            return self
        lacks = _BEYOND_128 if bits == 128 else _BEYOND_256
        signed = self.features.split(",")
        features = [f"-{name[1:]}" if name[1:].startswith(lacks) else name for name in signed]
        return Machine(self.triple, _CPUS[bits], ",".join(features), self.version)


@functools.cache
def machine() -> Machine:
    """Return the machine that code is generated for. The first call imports llvmlite.

    The environment variable `GRAPHFW_VECTOR_BITS` makes it one with narrower vectors.

    Raises:
        ArgumentError: The variable is none of 128, 256 and 512, or more than the machine has.
    """
    here = _native()
    bits = os.environ.get(_VARIABLE, "")
    if not bits:
        return here
    if bits not in ("128", "256", "512"):
        raise ArgumentError(
            f"{_VARIABLE} is 128, 256 or 512, got {bits!r}", fix=f"unset {_VARIABLE}"
        )
    return here.narrowed(int(bits))


def _native() -> Machine:
    """Return the machine of this process."""
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    features: dict[str, bool] = llvm.get_host_cpu_features()
    return Machine(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=",".join(f"{'+' if has else '-'}{name}" for name, has in sorted(features.items())),
        version=f"llvmlite {llvmlite.__version__} LLVM {version}",
    )


@functools.cache
def matrix_unit_here() -> Literal["amx"] | None:
    """Return the unit that multiplies matrix tiles on this machine; None where there is none."""
    if _may_use_amx():
        # Not at the top: it generates code, and what runs on other machines does without.
        trust = import_module("graphfw.runtime.numpy_executor.matmul.amx_self_test")
        if trust.passes_self_test("amx"):
            return "amx"
    return None


def pairs_here() -> bool:
    """Return whether vectors make dot products of pairs of bfloat16 on this machine."""
    here = machine()
    return here.architecture == "x86_64" and here.has("avx512bf16")


def _may_use_amx() -> bool:
    """Return whether there are AMX tiles, after asking the system for them.

    Linux gives a process the permission for all of its threads, those to come included.
    """
    here = machine()
    if here.architecture != "x86_64" or not here.has("amx-tile", "amx-bf16"):
        return False
    if not sys.platform.startswith("linux"):
        return False
    ask = ctypes.CDLL(None).syscall
    numbers = _ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA
    return bool(ask(*map(ctypes.c_long, numbers)) == 0)
