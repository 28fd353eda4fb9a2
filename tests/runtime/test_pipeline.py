"""The stages of compilation, one by one, by either executor's backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphfw as gf
from graphfw.passes.pipelines import DEFAULT
from graphfw.runtime.cupy_executor.compiling import compilation
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.steps import ReferenceStep, Step, Temp
from graphfw.runtime.numpy_executor.backend import CpuBackend
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.pipeline_text import STAGES, text
from graphfw.runtime.planning.schedule import written
from graphfw.runtime.program import Program, lower

EXECUTORS: dict[str, Callable[[Program], Compilation]] = {
    "numpy": lambda program: Compilation(program, CpuBackend(program, Options())),
    "cupy": lambda program: compilation(program, Options(), "90"),
}

both = pytest.mark.parametrize("executor", EXECUTORS)


def compiled(executor, graph, fetches, feeds, updates=()):
    program = lower(fetches, updates, feeds, graph, "each", lambda: DEFAULT)
    return EXECUTORS[executor](program)


def small(executor):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.softmax(gf.tanh(x) * 2)
    return compiled(executor, g, [y], [x])


@both
@pytest.mark.parametrize("number", range(len(STAGES)))
def test_no_stage_is_run_that_is_not_asked_for(executor, number):
    stages = small(executor)
    assert text(stages, STAGES[number])
    results = ["partition", "lowered", "hoisted", "schedule", "memory"]
    assert [one in vars(stages) for one in results] == [i <= number for i in range(5)]


@both
def test_partition(executor):
    (group,) = small(executor).partition.groups
    assert group.kind == "kernel"
    assert {"tanh", "exp", "divide"} <= {node.op.name for node in group.nodes}


@both
def test_each_fetch_has_a_storage_of_its_own(executor):
    with gf.Graph() as g:
        x = gf.placeholder((4, 8), name="x")
        y = gf.tanh(x)
        fetches = [y, y, x, gf.permute_dims(y)]
    lowered = compiled(executor, g, fetches, [x]).lowered
    assert lowered.fetched[0] is y
    assert all(isinstance(storage, Temp) for storage in lowered.fetched[1:])
    assert len({*lowered.fetched}) == 4
    assert {*lowered.fetched} <= {s for item in lowered.items for s in written(item)}


@both
def test_new_contents_lie_as_variables_do(executor):
    with gf.Graph() as g:
        w = gf.Variable(np.ones((4, 4), np.float32), name="w")
        update = gf.update(w, gf.permute_dims(w))
    lowered = compiled(executor, g, [], [], [update]).lowered
    ((variable, storage),) = lowered.updates
    assert variable is w
    assert isinstance(storage, Temp)


def product(executor):
    with gf.Graph() as g:
        x = gf.placeholder((64, 256), name="x")
        w = gf.Variable(np.ones((256, 256), np.float32), name="w")
        y = x @ (w * 2)
    return compiled(executor, g, [y], [x])


def test_a_gpu_hoists_steps():
    hoisted = product("cupy").hoisted
    assert [[node.op.name for node in step.nodes] for step in hoisted.steps] == [["multiply"]]
    assert len(hoisted.kept) == len(hoisted.rest) == 1


def test_a_cpu_hoists_operands_that_are_laid_out_once():
    with gf.Graph() as g:
        x = gf.placeholder((64, 256), name="x")
        w = gf.Variable(np.ones((256, 256), np.float32), name="w")
        y = x @ w
    stages = compiled("numpy", g, [y], [x])
    (step,) = stages.hoisted.steps
    assert step.prepacks
    assert [*stages.hoisted.kept] == [step.operands[1]]
    assert [step, *stages.hoisted.rest] == [*stages.lowered.items]
    assert "keeps t0\n" in text(stages, "hoist")


@both
def test_what_is_handed_out_lies_outside_the_arena(executor):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        w = gf.Variable(np.ones(8, np.float32), name="w")
        rows = gf.sort(gf.tanh(x), axis=0)
        y = gf.sum(rows * 2, axis=0)
        z = gf.cumulative_sum(gf.sum(rows, axis=1))
        update = gf.update(w, w + y)
    stages = compiled(executor, g, [z], [x], [update])
    plan, memory = stages.schedule, stages.memory
    nodes = [node for level in plan.levels for node in level.nodes]
    assert [node.op.name for node in nodes][:1] == ["sort"]
    outside = {*nodes[0].outputs, *stages.lowered.fetched, *plan.updated}
    assert outside.isdisjoint(memory.block_of)
    assert {*plan.lifetimes} - {*memory.block_of} - {*memory.homes} == outside
    # The sum is written over by the running sums of it: it lies where these are handed out.
    (home,) = [*memory.homes.values()] or [None]
    assert home is (stages.lowered.fetched[0] if executor == "numpy" else None)
    assert len(memory.blocks) == len(memory.nbytes) == len({*memory.block_of.values()})


@both
def test_levels_keep_the_order_of_what_is_read(executor):
    stages = small(executor)
    items = [item for item in stages.lowered.items if isinstance(item, (Step, ReferenceStep))]
    levels = stages.schedule.levels
    assert sum(len(level.steps) + len(level.nodes) for level in levels) == len(items)
