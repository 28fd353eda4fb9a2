"""The steps of a run at given sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.addresses import StorageAddress
from graphfw.runtime.cupy_executor.codegen import Launch
from graphfw.runtime.cupy_executor.cublaslt import BoundGemm
from graphfw.runtime.cupy_executor.cudnn import CudnnPlan


class BoundKernel(NamedTuple):
    """A kernel at known sizes.

    Attributes:
        function: What is launched.
        launch: How.
        operands: Where its buffers are.
        params: Its run-time integers.
    """

    function: Any
    launch: Launch
    operands: list[StorageAddress]
    params: list[np.int64]


class BoundProduct(NamedTuple):
    """A matrix product at known sizes.

    Attributes:
        product: What is run; None where there is nothing to add up.
        operands: Where a, b, the result and the others lie: see `ProductCode`.
        nbytes: The bytes of the result.
    """

    product: BoundGemm | None
    operands: list[StorageAddress]
    nbytes: int


class BoundCudnn(NamedTuple):
    """A step of cuDNN at known sizes.

    Attributes:
        plan: What is run.
        operands: Where its operands are: see `CudnnCode`.
    """

    plan: CudnnPlan
    operands: list[StorageAddress]


class Cleared(NamedTuple):
    """A piece of the arena that becomes zeros.

    Attributes:
        offset: Where it begins, in bytes.
        nbytes: Its size.
    """

    offset: int
    nbytes: int


class Evaluated(NamedTuple):
    """A node at known sizes that CuPy computes, or NumPy: see `runs_on_host`.

    Attributes:
        node: The node.
        call: What computes it.
    """

    node: Node
    call: Any
