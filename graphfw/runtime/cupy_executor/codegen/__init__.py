"""From kernels to CUDA C++.

`CudaCode` is the code of a kernel: its source, and how it is launched. `PRELUDE` is what all
sources share.
"""

from graphfw.runtime.cupy_executor.codegen.code import PRELUDE, CudaCode, module
from graphfw.runtime.cupy_executor.codegen.launch import Launch, variants

__all__ = ["PRELUDE", "CudaCode", "Launch", "module", "variants"]
