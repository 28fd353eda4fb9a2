"""Numbers of dtypes for storage."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfw.ir.dtype import DType


def numbers(rng: np.random.Generator, dtype: DType, *shape: int) -> np.ndarray[Any, Any]:
    """Draw from all that there are, NaNs included."""
    return rng.integers(0, 2**dtype.bits, shape).astype(np.uint8).view(dtype.dtype)
