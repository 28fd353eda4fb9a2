"""The opset: the version of what the public functions mean."""

from __future__ import annotations

from graphfw.errors import ArgumentError

OPSET = 2
"""The newest opset: the version of what the public functions mean, which each graph states.

An op never changes what it computes. Where a function comes to mean something else, it makes other
nodes in graphs of the newer opset, and the old ones in those of the older. So a node says all about
itself, and nothing that handles nodes needs the opset: passes, gradients, executors, copies.
"""


def checked_opset(opset: object) -> int:
    """Return the opset of a new graph.

    Raises:
        ArgumentError: There is none of that number.
    """
    if type(opset) is int and 1 <= opset <= OPSET:
        return opset
    raise ArgumentError(
        f"Graph: opset={opset!r} is not an int from 1 to {OPSET}",
        fix=f"leave it out for the newest, {OPSET}",
    )
