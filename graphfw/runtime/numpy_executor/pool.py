"""The number of threads that a run may use."""

from __future__ import annotations

import os


def default_threads() -> int:
    """Return the number of processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
