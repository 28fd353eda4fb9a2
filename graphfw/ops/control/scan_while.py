"""A scan that ends early: some iterations of a loop of unknown length."""

from __future__ import annotations

from graphfw.ops.control.scan_op import Scan


class ScanWhile(Scan):
    """A scan whose iterations end when its last carry, a scalar bool, is false.

    It stands in bodies that are about to be lowered only, and has no name in texts of graphs.
    """
