"""The translation of kernels to CUDA C++.

`CudaCode` is the code of a kernel: its source, and how it is launched; `HandwrittenCode` that of
one that is written by hand. All sources share `PRELUDE`.
"""

from graphfw.runtime.cupy_executor.codegen.code import PRELUDE, CudaCode, GpuCode, module
from graphfw.runtime.cupy_executor.codegen.launch import variants
from graphfw.runtime.kernels.handwritten_cuda import NOTHING, HandwrittenCode, Launch, Variant

__all__ = [
    "NOTHING",
    "PRELUDE",
    "CudaCode",
    "GpuCode",
    "HandwrittenCode",
    "Launch",
    "Variant",
    "module",
    "variants",
]
