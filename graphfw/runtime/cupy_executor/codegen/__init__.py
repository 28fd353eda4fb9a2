"""From kernels to CUDA C++.

`CudaCode` is the code of a kernel: its source, and how it is launched; `HandCode` that of one that
is written by hand. `PRELUDE` is what all sources share.
"""

from graphfw.runtime.cupy_executor.codegen.code import PRELUDE, CudaCode, GpuCode, module
from graphfw.runtime.cupy_executor.codegen.handwritten import HandCode, Variant
from graphfw.runtime.cupy_executor.codegen.launch import NOTHING, Launch, variants

__all__ = [
    "NOTHING",
    "PRELUDE",
    "CudaCode",
    "GpuCode",
    "HandCode",
    "Launch",
    "Variant",
    "module",
    "variants",
]
