"""Scans whose bodies don't yield what is stacked of their carries: the carry is in the stack."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from graphfw.ir.body import Body
from graphfw.ops.control.scan_op import Scan


class StackedCarry(NamedTuple):
    """A stack of all values of a carry.

    Attributes:
        stack: Its number among the scan's.
        carry: The number of the carry.
        is_new: Whether its rows are what iterations yield, rather than what they begin with.
    """

    stack: int
    carry: int
    is_new: bool


def stacked_carries(scan: Scan) -> list[StackedCarry]:
    """Find the stacks whose rows are values of a carry."""
    first = scan.carries
    outputs = scan.body.outputs
    index_of = {t: (i, False) for i, t in enumerate(scan.body.parameters[1 : 1 + first])}
    index_of.update({t: (i, True) for i, t in enumerate(outputs[:first])})
    stacked = enumerate(outputs[first:])
    return [StackedCarry(number, *index_of[t]) for number, t in stacked if t in index_of]


class ScanBody(NamedTuple):
    """The body of a scan without some of its stacks.

    Attributes:
        body: Yields the carry, then the rows of the other stacks.
        rest: The numbers of these.
        captures: How many of its last parameters are captures.
    """

    body: Body
    rest: tuple[int, ...]
    captures: int


def body_without(scan: Scan, stacks: Collection[int]) -> ScanBody:
    """Return the body of a scan that does not yield rows of some stacks, by their numbers."""
    body, first = scan.body, scan.carries
    rest = [n for n in range(len(body.outputs) - first) if n not in stacks]
    outputs = [*body.outputs[:first], *[body.outputs[first + n] for n in rest]]
    captures = len(body.parameters) - 1 - first - scan.sequences
    return ScanBody(Body(body.parameters, outputs), tuple(rest), captures)
