"""The signs and phases of vectors that are unique but for these."""

from __future__ import annotations

from typing import Any

LEADING = 0.62
"""The leading element of a vector is the first that is not smaller than this part of the largest:
so among elements that tie, rounding errors do not choose."""


def phases(xp: Any, vectors: Any) -> Any:
    """Return the number of size 1 that a column's leading element has as its phase.

    Eigenvectors are as good with another sign or phase, and libraries choose differently. Divided
    by this, their leading element is positive (`LEADING`).

    Args:
        xp: The array module.
        vectors: [*B, M, N], none of the columns 0.

    Returns:
        [*B, 1, N]
    """
    if vectors.size == 0:
        return xp.ones((*vectors.shape[:-2], 1, vectors.shape[-1]), dtype=vectors.dtype)
    sizes = xp.abs(vectors)
    position = xp.argmax(sizes >= LEADING * sizes.max(axis=-2, keepdims=True), axis=-2)
    leading = xp.take_along_axis(vectors, position[..., None, :], axis=-2)
    return leading / xp.abs(leading)
