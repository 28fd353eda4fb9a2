"""The steps that are done once for many runs."""

from types import SimpleNamespace

import pytest

import graphfw as gf
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import float32
from graphfw.runtime.kernels.steps import ReferenceStep, Step, Temp
from graphfw.runtime.planning.hoist import hoisted

BIG = 1 << 20


@pytest.fixture
def variable():
    with gf.Graph():
        return gf.Variable(gf.nn.init.zeros, shape=(BIG,), name="v")


def temp(size=BIG):
    return Temp(float32, size, "")


def step(reads, writes, params=(), **facts):
    operands = (*reads, *writes)
    written = (*[False for _ in reads], *[True for _ in writes])
    return Step((), None, operands, written, params, 1, **facts)


def found(items, variable, wanted=()):
    return hoisted(items, lambda tensor: tensor, [variable], wanted, lambda step: True)


def test_what_depends_on_nothing_else(variable):
    a, b, fed, result = temp(), temp(), temp(), temp()
    first, second = step([variable], [a]), step([a], [b])
    last = step([b, fed], [result])
    assert found([first, second, last], variable) == ([first, second], [b], [last])


def test_what_may_not_wait(variable):
    for facts in (
        {"can_fail": True},
        {"nonzero": (3,)},
        {"after": (temp(),)},
        {"params": (symbol("n"),)},
    ):
        one = step([variable], [temp()], **facts)
        assert found([one], variable).rest == [one]
    a = temp()
    assert found([step([variable], [a])], variable, {a}).steps == []
    sized = step([variable], [temp(symbol("n"))])
    assert found([sized], variable).steps == []


def test_what_several_write_is_made_by_all_or_none(variable):
    a, b, fed = temp(), temp(), temp()
    mine, other, theirs = step([variable], [a]), step([variable], [a]), step([fed], [a])
    after = step([a], [b])
    last = step([b, fed], [temp()])
    assert found([mine, other, after, last], variable).steps == [mine, other, after]
    assert found([mine, theirs, after, last], variable).steps == []
    both = step([variable], [a, b])  # b is whole, and goes along
    assert found([both, theirs, step([b], [temp()])], variable).steps == []


def test_what_spreads_is_made_in_each_run(variable):
    for size, is_kept in ((2 * BIG, True), (2 * BIG + 1, False)):
        one = step([variable], [temp(size)])
        assert bool(found([one], variable).steps) is is_kept
    few = temp(BIG // 4)
    assert found([step([], [few])], variable).steps, "a megabyte always may"
    assert not found([step([], [temp(BIG // 4 + 1)])], variable).steps


def test_steps_come_when_they_are_needed(variable):
    casts, packs = [], []
    for _ in range(3):
        narrow = temp()
        casts.append(step([variable], [narrow]))
        packs.append(step([narrow], [temp()]))
    reader = step([s.operands[1] for s in packs] + [temp()], [temp()])
    order = found([*casts, *packs, reader], variable).steps
    assert order == [one for pair in zip(casts, packs, strict=True) for one in pair]


def test_what_nodes_outside_read_is_kept(variable):
    a = temp()
    node = SimpleNamespace(inputs=(a,), outputs=(temp(),))
    one = step([variable], [a])
    assert found([one, ReferenceStep(node)], variable).kept == [a]
