"""Stacks of what scans carry, and bodies without them."""

from graphfw.ir.body import body_of
from graphfw.ir.dtype import float64
from graphfw.ir.types import TensorType
from graphfw.ops.control.region_op import NUMBER
from graphfw.ops.control.scan_op import Scan
from graphfw.runtime.planning.scans import StackedCarry, body_without, stacked_carries

ROW = TensorType(float64, (2,))


def scan():
    """A scan of two carries that stacks a product, what it begins with, and what it yields."""

    def step(number, a, b, x, w):
        new = a * w + x
        return [new, b, a * b, a, new, b]

    return Scan(body_of("scan", step, NUMBER, ROW, ROW, ROW, ROW), 3, 2, 1)


def test_rows_are_what_iterations_begin_with_or_yield():
    assert stacked_carries(scan()) == [
        StackedCarry(stack=1, carry=0, is_new=False),
        StackedCarry(stack=2, carry=0, is_new=True),
        StackedCarry(stack=3, carry=1, is_new=True),
    ]


def test_a_body_yields_the_carry_and_the_other_stacks():
    op = scan()
    body, rest, captures = body_without(op, [1, 3])
    assert rest == (0, 2)
    assert captures == 1
    assert body.parameters == op.body.parameters
    assert body.outputs == tuple([op.body.outputs[n] for n in (0, 1, 2, 4)])
