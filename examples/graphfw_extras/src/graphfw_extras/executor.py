"""An executor that computes with NumPy, node by node, and counts how often each op has run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.extend import ArrayExecutable, Executable, Executor, Options, Program, host_array


class CountingExecutor(Executor):
    """Computes with NumPy and counts.

    Args:
        device: What stands behind the colon in `"counting:…"`: nothing, since there is one only.

    Attributes:
        counts: How often each op has run, in all sessions of this executor.
    """

    name = "counting"

    def __init__(self, device: str = "") -> None:
        if device:
            raise gf.ExecutorError(
                f'there is no device "{device}" to count on', fix='use executor="counting"'
            )
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def load(self, program: Program, options: Options) -> Executable:
        """Make a program ready; threads=… is as good as met, a memory limit is not."""
        options.require_no_limit(self.name)
        return _Counting(program, self)

    def feed(self, placeholder: gf.Tensor, value: Any) -> np.ndarray:
        """Return a fed value as a NumPy array of the placeholder's dtype."""
        return host_array(placeholder, value)

    def from_host(self, array: np.ndarray) -> np.ndarray:
        """Return a copy: the session keeps it."""
        return np.array(array)

    def to_host(self, array: np.ndarray) -> np.ndarray:
        """Return a copy: the caller keeps it."""
        return np.array(array)

    def count(self, ops: Counter[str]) -> None:
        """Add to the counts; runs come from many threads."""
        with self._lock:
            self.counts += ops


class _Counting(ArrayExecutable):
    """A program whose runs are counted."""

    def __init__(self, program: Program, executor: CountingExecutor) -> None:
        super().__init__(program, np)
        self._executor = executor
        self._ops = Counter(node.op.name for node in program.graph.nodes)

    def __call__(self, inputs: Sequence[Any], *facts: Any) -> list[Any]:
        """Run, and count what has run."""
        outputs = super().__call__(inputs, *facts)
        self._executor.count(self._ops)
        return outputs
