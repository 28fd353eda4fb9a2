"""The attributes of a namespace that the Array API standard wants besides functions."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from graphfw.errors import ArgumentError
from graphfw.ir import ambient
from graphfw.ir.dtype import ALL, DType, as_dtype, int64
from graphfw.ir.functions import public
from graphfw.ops.elementwise.cast import isdtype

__all__ = ["__array_namespace_info__"]

API_VERSION = "2024.12"


@public
def array_namespace(api_version: str | None = None) -> ModuleType:
    """Return graphfw itself, as a tensor's `__array_namespace__()` does.

    Raises:
        ArgumentError: Another version of the standard is asked for.
    """
    if api_version not in (None, "2021.12", "2022.12", "2023.12", API_VERSION):
        raise ArgumentError(
            f"__array_namespace__: there is no version {api_version!r}", fix=f'use "{API_VERSION}"'
        )
    return sys.modules["graphfw"]


class _Info:
    """The result of `__array_namespace_info__()`: see the standard's inspection API."""

    def capabilities(self) -> dict[str, Any]:
        """Return the standard's optional capabilities, and whether each is there."""
        # Who asks for boolean indexing wants to write x[mask] = v as well.
        return {"boolean indexing": False, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the only device: where a tensor is computed is the session's business."""
        return "graph"

    def devices(self) -> list[str]:
        """Return the devices."""
        return ["graph"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the dtypes that are used where none is given."""
        real = ambient.get_default_dtype()
        double = real.name == "float64"
        return {
            "real floating": real,
            "complex floating": as_dtype("complex128" if double else "complex64"),
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the dtypes of the standard, of one kind or all."""
        names = [d for d in ALL if d.name not in ("float16", "bfloat16")]
        return {d.name: d for d in names if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """Return the namespace's own description, as the standard defines it.

    >>> import graphfw as gf
    >>> gf.__array_namespace_info__().default_dtypes()["real floating"]
    graphfw.float32
    """
    return _Info()
