"""The order of steps: after what they read, and over variables only when nobody reads or fails."""

import itertools
from dataclasses import replace

import pytest

import graphfw as gf
from graphfw.ir.dtype import float32
from graphfw.runtime.kernels.steps import ReferenceStep, Step, Temp
from graphfw.runtime.numpy_executor.layout import stretches
from graphfw.runtime.planning.overwriting import CarriedPair, overwritten, waiting
from graphfw.runtime.planning.schedule import Lifetime, schedule
from tests.runtime.numpy_executor.small_code import ADD


def temp(name):
    return Temp(float32, 10, name)


def step(reads, writes, in_place=False, can_fail=False):
    pairs = ((len(reads), 0),) if in_place else ()
    return Step(
        nodes=(),
        code=ADD,
        operands=(*reads, *writes),
        written=(*[False] * len(reads), *[True] * len(writes)),
        params=(),
        work_items=1,
        in_place=pairs,
        can_fail=can_fail,
    )


@pytest.fixture
def variables():
    with gf.Graph():
        return [gf.Variable([0.0], name=name) for name in "uvw"]


def copying():
    made = []

    def copy(storage):
        target = temp(f"copy of {getattr(storage, 'why', '')}")
        made.append(step([storage], [target]))
        return made[-1], target

    return made, copy


def planned(items, updates=(), fetched=()):
    made, copy = copying()
    plan = schedule(items, lambda tensor: tensor, updates, fetched, copy)
    return plan, made


def level_of(plan, item):
    (number,) = [
        n
        for n, level in enumerate(plan.levels)
        if item in level.steps or (isinstance(item, ReferenceStep) and item.node in level.nodes)
    ]
    return number


def test_steps_run_as_early_as_what_they_read_allows(variables):
    v, *_ = variables
    a, b, c, d = map(temp, "abcd")
    first, other, both, last = (
        step([v], [a]),
        step([v], [b]),
        step([a, b], [c]),
        step([c, a], [d]),
    )
    plan, _ = planned([first, other, both, last], fetched=[d])
    assert [level.steps for level in plan.levels] == [[first, other], [both], [last]]
    assert plan.lifetimes == {
        a: Lifetime(0, 2),
        b: Lifetime(0, 1),
        c: Lifetime(1, 2),
        d: Lifetime(2, 3),
    }


def test_what_waits_for_something_it_does_not_read_keeps_nothing_alive(variables):
    v, *_ = variables
    a, b, c, d = map(temp, "abcd")
    chain = [step([v], [a]), step([a], [b])]
    late = replace(step([v], [c]), after=(b,))
    last = step([c], [d])
    plan, _ = planned([*chain, late, last], fetched=[d])
    assert [level_of(plan, item) for item in (*chain, late, last)] == [0, 1, 2, 3]
    assert plan.lifetimes[b] == Lifetime(1, 1)


def test_nothing_to_do():
    plan, _ = planned([])
    assert plan.levels == []
    assert plan.lifetimes == {}
    assert stretches(plan.levels) == ()


def test_an_update_is_written_when_all_readers_are_done(variables):
    v, *_ = variables
    a, b, c, new = map(temp, ("a", "b", "c", "new"))
    update = step([v], [new], in_place=True)
    chain = [step([], [a]), step([a], [b]), step([b, v], [c])]
    for order in itertools.permutations([update, *chain]):
        if [s for s in order if s in chain] != chain:
            continue
        plan, made = planned(list(order), [(v, new)], [c])
        assert made == []
        assert plan.updated == [new]
        assert level_of(plan, update) == level_of(plan, chain[-1]) + 1


def test_an_update_that_reads_other_elements_of_its_variable_is_copied(variables):
    v, *_ = variables
    new = temp("new")
    update = step([v], [new])  # not element by element
    plan, (copy,) = planned([update], [(v, new)])
    assert level_of(plan, copy) == level_of(plan, update) + 1
    assert plan.updated == [copy.operands[1]]


def test_an_update_that_one_of_two_steps_makes_is_copied(variables):
    """Only the run knows which of the two makes it."""
    v, *_ = variables
    new = temp("new")
    few, many = step([v], [new], in_place=True), step([v], [new], in_place=True)
    plan, (copy,) = planned([few, many], [(v, new)])
    assert level_of(plan, copy) > level_of(plan, few) == level_of(plan, many)


def test_an_update_that_is_fetched_or_read_later_is_copied(variables):
    v, *_ = variables
    new, other = temp("new"), temp("other")
    update = step([v], [new], in_place=True)
    plan, (copy,) = planned([update], [(v, new)], [new])
    assert plan.updated == [copy.operands[1]]
    reader = step([new], [other])
    plan, (copy,) = planned([update, reader], [(v, new)], [other])
    assert level_of(plan, copy) > level_of(plan, update)


def test_a_swap_goes_through_copies(variables):
    u, v, _ = variables
    plan, made = planned([], [(u, v), (v, u)])
    assert len(made) == 4
    saving = [s for s in made if isinstance(s.operands[0], gf.Variable)]
    writing = [s for s in made if s not in saving]
    assert len(saving) == 2
    assert max(level_of(plan, s) for s in saving) < min(level_of(plan, s) for s in writing)
    assert {s.operands[1] for s in writing} == set(plan.updated)


def test_a_value_that_goes_to_two_variables_is_copied_to_one_of_them_at_least(variables):
    u, v, w = variables
    new = temp("new")
    update = step([w], [new])
    plan, made = planned([update], [(u, new), (v, new)])
    assert len(set(plan.updated)) == 2
    assert made
    for copy in made:
        assert level_of(plan, copy) > level_of(plan, update)


def test_one_step_that_updates_several_variables(variables):
    u, v, w = variables
    a, b, c = map(temp, "abc")
    together = Step((), ADD, (u, v, a, b), (False, False, True, True), (), 1, 0, ((2, 0), (3, 1)))
    reader = step([v], [c])
    slow = step([c], [temp("d")])
    plan, made = planned([together, reader, slow], [(u, a), (v, b)], [c])
    assert made == []
    assert level_of(plan, together) > level_of(plan, reader)
    # It reads v for u: where they are crossed, v would be read after it was overwritten.
    crossed = Step((), ADD, (u, v, a, b), (False, False, True, True), (), 1, 0, ((2, 1), (3, 0)))
    _, made = planned([crossed], [(u, a), (v, b)])
    assert len(made) == 2


def test_what_can_fail_comes_before_anything_is_overwritten(variables):
    u, v, _ = variables
    a, b, new = map(temp, ("a", "b", "new"))
    update = step([v], [new], in_place=True)
    slow = step([], [a])
    risky = step([a], [b], can_fail=True)
    plan, _ = planned([update, slow, risky], [(v, new)], [b])
    assert level_of(plan, update) > level_of(plan, risky)
    failing = step([v], [new], in_place=True, can_fail=True)
    plan, (copy,) = planned([failing], [(v, new)])
    assert level_of(plan, copy) > level_of(plan, failing)


def test_nodes_outside_of_native_code_come_before_anything_is_overwritten(variables):
    _, v, _ = variables
    with v.node.graph:
        node = gf.sort(v + 1).node
    new = temp("new")
    update = step([v], [new], in_place=True)
    outside = ReferenceStep(node)
    shifted = step([v], [node.inputs[0]])
    plan, _ = planned([update, shifted, outside], [(v, new)], [node.outputs[0]])
    assert level_of(plan, outside) > level_of(plan, shifted)
    assert level_of(plan, update) > level_of(plan, outside)
    cut = stretches(plan.levels)
    assert [s.nodes for s in cut] == [(node,), ()]
    assert sum(s.waves for s in cut) == sum(bool(level.steps) for level in plan.levels)


def test_stretches_end_where_python_has_something_to_do(variables):
    _, v, _ = variables
    with v.node.graph:
        first = gf.sort(v).node
        second = gf.sort(first.outputs[0]).node
    plan, _ = planned([ReferenceStep(first), ReferenceStep(second), step([v], [temp("a")])])
    cut = stretches(plan.levels)
    assert [(s.first, s.waves, s.nodes) for s in cut] == [(0, 1, (first,)), (1, 0, (second,))]


def test_long_work_items_come_first():
    with gf.Graph():
        x = gf.placeholder(("n", 100), float32)
        w = gf.placeholder((100, 50), float32)
        nodes = [(gf.sin(x)).node, (x @ w).node, (x + 1).node]
    steps = [
        replace(step([], [temp(str(k))]), nodes=(node,), work_items=work_items)
        for k, (node, work_items) in enumerate(zip(nodes, (4, 4, 400), strict=True))
    ]
    (level,) = schedule(steps, None, [], [], None).levels
    assert level.steps == [steps[1], steps[0], steps[2]]


def test_what_changes_a_carry_in_place_waits_for_those_that_read_it():
    old, new, a, b = map(temp, ("old", "new", "a", "b"))
    change = replace(step([old, a], [new], in_place=True), leaves_rest=True)
    # Only the first is read by the change; the other would be at its level.
    items = [step([], [a]), change, step([a, old], [b])]
    pairs = [CarriedPair(old, new)]
    found = waiting(items, lambda tensor: tensor, pairs)
    assert found == {change: {items[2]}}
    plan = schedule(items, lambda tensor: tensor, (), [new, b], copying()[1], waits=found)
    assert [level_of(plan, item) for item in items] == [0, 2, 1]
    assert overwritten(plan.levels, lambda tensor: tensor, pairs, {}, lambda step: True) == {0}


def test_carries_that_would_wait_in_a_circle_do_not():
    (a, b), (c, d) = map(temp, "ab"), map(temp, "cd")
    one = replace(step([a, b], [c], in_place=True), leaves_rest=True)
    other = replace(step([b, a], [d], in_place=True), leaves_rest=True)
    pairs = [CarriedPair(a, c), CarriedPair(b, d)]
    found = waiting([one, other], lambda tensor: tensor, pairs)
    assert found == {one: {other}}
    plan = schedule([one, other], lambda tensor: tensor, (), [c, d], copying()[1], waits=found)
    assert overwritten(plan.levels, lambda tensor: tensor, pairs, {}, lambda step: True) == {0}


def test_a_change_of_what_is_read_with_its_result_does_not_wait():
    old, new, both = map(temp, ("old", "new", "both"))
    change = replace(step([old], [new], in_place=True), leaves_rest=True)
    items = [change, step([new, old], [both])]
    pairs = [CarriedPair(old, new)]
    assert waiting(items, lambda tensor: tensor, pairs) == {}
    plan, _ = planned(items, fetched=[new, both])
    assert not overwritten(plan.levels, lambda tensor: tensor, pairs, {}, lambda step: True)
