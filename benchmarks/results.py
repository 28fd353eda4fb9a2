"""Comparing what contenders computed, without sending whole arrays between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLES = 4096


@dataclass(frozen=True)
class Fingerprint:
    """An array in short: its shape, elements at even distances, and the largest magnitude."""

    shape: tuple[int, ...]
    sample: np.ndarray[Any, Any]
    largest: float


def fingerprints(value: Any) -> list[Fingerprint]:
    """Return the fingerprints of the arrays in a nest of lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [f for item in value for f in fingerprints(item)]
    return [_fingerprint(array_of(value))]


def _fingerprint(array: np.ndarray[Any, Any]) -> Fingerprint:
    shape = array.shape
    if np.iscomplexobj(array):  # its parts are two elements
        array = np.stack([array.real, array.imag], axis=-1)
    flat = array.reshape(-1).astype(np.float64)
    step = max(1, flat.size // SAMPLES)
    largest = float(np.abs(flat).max()) if flat.size else 0.0
    return Fingerprint(shape, flat[::step].copy(), largest)


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Return an array of any library as NumPy's."""
    if hasattr(value, "detach"):  # PyTorch, whose bfloat16 NumPy does not know
        value = value.detach().cpu()
        return np.asarray(value.float() if str(value.dtype) == "torch.bfloat16" else value)
    if hasattr(value, "get"):  # CuPy
        value = value.get()
    return np.asarray(value)


def difference(
    own: Sequence[Fingerprint], other: Sequence[Fingerprint], rtol: float, atol: float
) -> str:
    """Return in words how two results differ by more than is allowed, or "".

    Args:
        own: What is looked at.
        other: What it should be.
        rtol: The relative error allowed in each element.
        atol: The error allowed beside, relative to the array's largest magnitude.
    """
    if len(own) != len(other):
        return f"{len(own)} results for {len(other)}"
    for number, (a, b) in enumerate(zip(own, other, strict=True)):
        if a.shape != b.shape:
            return f"result {number} has the shape {a.shape} for {b.shape}"
        if not a.sample.size:
            continue
        error = np.abs(a.sample - b.sample) / (atol * b.largest + rtol * np.abs(b.sample) + 1e-300)
        worst = float(np.max(np.where(np.isnan(error), np.inf, error)))
        if worst > 1:
            return f"result {number} is off by {worst:.3g} × the tolerance"
    return ""
