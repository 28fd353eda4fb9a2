"""Sorts of many lines at once, each in a lane of vectors: `sort_steps`."""

from graphfw.runtime.numpy_executor.sorting.steps import sort_steps

__all__ = ["sort_steps"]
