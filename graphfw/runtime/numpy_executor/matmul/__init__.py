"""Matrix products by generated micro-kernels: `matmul_steps` makes the steps of one product."""

from graphfw.runtime.numpy_executor.matmul.lowering import matmul_steps, supported

__all__ = ["matmul_steps", "supported"]
