"""Storages that share a block: a result that overwrites an operand has the operand's."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from graphfw.ir.dtype import float32
from graphfw.runtime.kernels.steps import Step, Temp
from graphfw.runtime.planning.blocks import allocate
from graphfw.runtime.planning.schedule import Level, Lifetime
from tests.runtime.numpy_executor.small_code import ADD


class Unwalked(Mapping[Any, int]):
    """A mapping that may be asked, but not walked."""

    def __init__(self, entries: dict[Any, int]) -> None:
        self.entries = entries

    def __getitem__(self, key: Any) -> int:
        return self.entries[key]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("all of it is walked")

    def __len__(self) -> int:
        return len(self.entries)


def step(read, made):
    return Step((), ADD, (read, made), (False, True), (), 1, in_place=((1, 0),))


def planned(chain, elsewhere):
    """Return the blocks of a chain of steps, each of which may write over what it reads."""
    levels = [Level([step(a, b)], []) for a, b in pairwise(chain)]
    lifetimes = {made: Lifetime(i, i + 1) for i, made in enumerate(chain[1:])}
    return allocate(levels, lifetimes, elsewhere, lambda tensor: tensor).block_of


def test_what_is_written_over_an_operand_shares_its_block():
    given, *made = [Temp(float32, 10, name) for name in "abcd"]
    assert set(planned([given, *made], {given: 0}).values()) == {0}


def test_what_lies_elsewhere_is_not_walked_for_each_step():
    """Else it costs the square of the number of variables, all of which lie elsewhere."""
    given, *made = [Temp(float32, 10, name) for name in "abcd"]
    block_of = planned([given, *made], Unwalked({given: 0, made[1]: 1}))
    assert block_of == {made[0]: 0, made[2]: 1}


def test_what_an_output_is_written_over_lies_in_its_memory():
    given, *made = [Temp(float32, 10, name) for name in "abcd"]
    chain = [given, *made]
    levels = [Level([step(a, b)], []) for a, b in pairwise(chain)]
    lifetimes = {one: Lifetime(i, i + 1) for i, one in enumerate(made)}
    memory = allocate(levels, lifetimes, {given, made[-1]}, lambda tensor: tensor, {made[-1]})
    assert memory.block_of == {}
    assert memory.homes == {made[0]: made[-1], made[1]: made[-1]}
