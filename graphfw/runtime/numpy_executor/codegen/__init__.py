"""The translation of kernels to LLVM IR for CPUs: explicit vectors, invariants outside of loops.

`KernelCode` is the code of a kernel. `region`, `module` and `scratch_bytes` serve generators that
have a kernel's elements computed inside of their own loops.
"""

from graphfw.runtime.numpy_executor.codegen.kernel_code import (
    FunctionText,
    KernelCode,
    ScratchBytes,
    module,
    region,
    scratch_bytes,
)
from graphfw.runtime.numpy_executor.codegen.record_code import RecordCode
from graphfw.runtime.numpy_executor.codegen.target import (
    AVX2,
    AVX512,
    BASE,
    Processor,
    host,
    with_stores,
)

__all__ = [
    "AVX2",
    "AVX512",
    "BASE",
    "FunctionText",
    "KernelCode",
    "Processor",
    "RecordCode",
    "ScratchBytes",
    "host",
    "module",
    "region",
    "scratch_bytes",
    "with_stores",
]
