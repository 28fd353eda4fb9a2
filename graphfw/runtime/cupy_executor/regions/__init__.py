"""Loops and branches: their bodies are compiled like programs, and Python makes the iterations."""

from graphfw.runtime.cupy_executor.regions.common import (
    BoundRegion,
    RefusedError,
    RegionCode,
    RegionSite,
)
from graphfw.runtime.cupy_executor.regions.steps import region_steps

__all__ = ["BoundRegion", "RefusedError", "RegionCode", "RegionSite", "region_steps"]
