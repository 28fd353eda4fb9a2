"""Groups of equal structure are lowered once, to what each would be lowered to by itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit, emit_all
from graphfw.ir.functions import F
from graphfw.ir.op import REGISTRY
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Tensor
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.passes.fuse import partition
from graphfw.runtime.kernels import lower_shared
from graphfw.runtime.kernels.lower import CanCompile, lower
from graphfw.runtime.kernels.lower_shared import Structures
from graphfw.runtime.kernels.steps import ReferenceStep, Table
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.planning.draws import Draws
from graphfw.transforms.grad import grad
from tests.runtime.kernels import test_lower as builders


def given(*shape, dtype="float32"):
    return gf.placeholder(shape, dtype)


def filled(*values, dtype="float32"):
    return gf.constant(np.array(values, dtype))


def product(*, fixed=False, transposed=False, after=lambda y: y):
    w = gf.Variable(np.ones((24, 24), np.float32), trainable=False) if fixed else given(24, 24)
    return [after(given(40, 24) @ (w.T if transposed else w))]


# Pairs of graphs that differ in one thing each, which lowering finds outside of the structure.
UNSHARED = {
    "what a sum that is written out computes": lambda one: [
        F.sum((F.abs if one else F.negative)(given(9, 1, 3) - given(1, 9, 3)), axis=2)
    ],
    "axis of a gather": lambda one: [F.take(given(9, 9), given(9, dtype="int64"), axis=int(one))],
    "random bits": lambda one: [gf.random.uniform((40,)) * given(40)],
    "place that a row's index names": lambda one: builders.picks()[:1],
}

# Pairs of graphs that differ in one thing each.
PAIRS = {
    "op": lambda one: [(F.sin if one else F.cos)(given("n", 7))],
    "field of an op": lambda one: [emit(REGISTRY["polygamma"](1 if one else 2), given("n"))],
    "axes of a reduction": lambda one: [F.sum(given(70, 70), axis=int(one))],
    "dtype read": lambda one: [given("n", dtype="float32" if one else "float64") > 0],
    "dtype written": lambda one: [gf.astype(given("n"), "float16" if one else "float64")],
    "dtype between": lambda one: [
        F.exp(gf.astype(given("n"), "float16" if one else "float64")) > 0.5
    ],
    "shape": lambda one: [F.exp(given("n", 7 if one else 8).T)],
    "symbol": lambda one: [F.exp(given("n" if one else "m", 7))],
    "equal symbols": lambda one: [F.exp(given("n", 3, "n" if one else "m").mT)],
    "view or none": lambda one: [F.exp(given(9, 9).T if one else given(9, 9)) + given(9, 9)],
    "part of a view": lambda one: [F.exp(given(9, 9)[:, 1:4] if one else given(9, 9)[:, 2:5])],
    "output of a view": lambda one: [F.exp(gf.split(given(6, 9), 2)[int(one)])],
    "tensor viewed": lambda one: _with_flipped(given("n"), given("n"), one),
    "same tensor twice": lambda one: _differences(given("n"), given("n"), one),
    "order of operands": lambda one: _ordered(given("n"), given("n"), one),
    "node read": lambda one: _of_nodes(given("n"), one),
    "constant": lambda one: [given("n") * filled(2.0 if one else 3.0)],
    "sign of a constant's zero": lambda one: [given("n") * filled(0.0 if one else -0.0)],
    "constant or array": lambda one: [given(2) + filled(2, 2 if one else 3)],
    "constant or given": lambda one: [given(3) * (filled(2, 2, 2) if one else given(3))],
    "range": lambda one: [given(9) * gf.astype(gf.arange(9) * (2 if one else 3), "float32")],
    "operand of a range": lambda one: [
        given(9) * gf.astype(gf.arange(0, 9) if one else gf.arange(1, 10), "float32")
    ],
    "range read": lambda one: _of_ranges(given(9), one),
    "kind of a reduction": lambda one: [(F.sum if one else F.max)(given("n", 70), axis=1)],
    "axes behind a reshape": lambda one: [
        F.sum(given(40, 40).reshape(40 * 40 if one else (20, 80)), axis=0) * 2.0
    ],
    "output more": lambda one: _outputs(given("n"), more=one),
    "order of outputs": lambda one: _two_sums(given("n", 70), one),
    "kind of joined lines": lambda one: [(F.sum if one else F.max)(given("n", 70), axis=0)],
    "dtype of joined lines": lambda one: [
        F.sum(given("n", 70, dtype="float32" if one else "float64"), axis=0)
    ],
    "joined dtype": lambda one: [F.sum(given("n", 70, dtype="float16" if one else "float32"))],
    "work items of joined lines": lambda one: [F.sum(given("n" if one else "m", 70), axis=0)],
    "whether lines are of rows": lambda one: [F.sum(given("n", 70), axis=0 if one else (0, 1))],
    "what is done to a sum": lambda one: [(F.sin if one else F.cos)(F.sum(given("n", 70), axis=0))],
    "stored sum": lambda one: _sum_and_function(given("n", 70), stored=one),
    "lines that are read": lambda one: _update(given("n", 70), given(70), given(70), one),
    "epilogue": lambda one: product(after=F.relu if one else F.tanh),
    "stored product": lambda one: _product_and_function(stored=one),
    "fixed factor": lambda one: product(fixed=one),
    "transposed factor": lambda one: product(transposed=one),
    "written over": lambda one: _over(given("n", 8), one),
}


def _with_flipped(x, y, one):
    return [F.exp(x) + F.exp(y) + F.flip(x if one else y, axis=0)]


def _differences(x, y, one):
    return [F.exp(x) - F.sin(x if one else y)]


def _ordered(x, y, one):
    return [F.exp(x) * F.exp(y) - (x if one else y)]


def _of_nodes(x, one):
    a, b = F.sin(x), F.cos(x)
    return [a - b if one else b - a]


def _of_ranges(x, one):
    a, b = [gf.astype(gf.arange(first, first + 9), "float32") for first in (0, 1)]
    return [F.exp(x) * a - F.sin(x) * b + (-a if one else -b)]


def _outputs(x, *, more):
    y = F.exp(x)
    return [F.sin(y), y] if more else [F.sin(y)]


def _two_sums(x, one):
    a, b = F.sum(F.sin(x), axis=1), F.max(F.sin(x), axis=1)
    return [a, b] if one else [a]


def _sum_and_function(x, *, stored):
    y = F.sum(x, axis=0)
    return [y * 2.0, y] if stored else [y * 2.0]


def _update(x, w, v, one):
    total, most = F.sum(x, axis=0), F.max(x, axis=0)
    return [w - (total if one else most) * 0.1, v + (most if one else total)]


def _product_and_function(*, stored):
    y = given(40, 24) @ given(24, 24)
    return [F.relu(y), y] if stored else [F.relu(y)]


def _over(x, one):
    return [x[:, :4] * x[:, 4:]] if one else [x[:, :4] * x[:, :4]]


class Described:
    """Describes steps so that those of two lowerings of one graph can be compared."""

    def __init__(self) -> None:
        self._temps: dict[Any, int] = {}

    def step(self, item: Any) -> Any:
        """Return a description that is equal for equal steps."""
        if isinstance(item, ReferenceStep):
            return item.node, self._storages(item.after)
        return (
            item.nodes,
            item.code.key,
            self._storages(item.operands),
            (item.written, item.params, item.work_items, item.scratch, item.in_place),
            (item.can_fail, item.nonzero),
            self._storages(item.after),
        )

    def _storages(self, storages: Any) -> list[Any]:
        return [self._storage(one) for one in storages]

    def _storage(self, one: Any) -> Any:
        if isinstance(one, Tensor):
            return one
        described = (type(one), one.dtype, one.size, one.why)
        if isinstance(one, Table):
            return (*described, one.literal)
        return (*described, self._temps.setdefault(one, len(self._temps)))


def lowered(graph, *, shares):
    """Return the steps of a graph, and how many groups took those of another."""
    streams = [node.op.key for node in graph.nodes if node.op.name == "random_bits"]
    fixed = [n.outputs[0] for n in graph.nodes if n.op.name == "variable"]
    target, renamed, taken = CpuTarget(Draws(streams)), lower_shared._renamed, []

    def counted(*args):
        taken.append(args)
        return renamed(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuTarget, "most_numbers", 2)
        patch.setattr(lower_shared, "_renamed", counted)
        if not shares:
            patch.setattr(Structures, "lowered", lambda self, what, structure, make: make())
        items = lower(graph, partition(graph, CanCompile(target)), target, fixed=fixed)
    return items, len(taken)


def assert_same_steps(outputs):
    """See that sharing makes the steps that lowering each group makes; return how many took."""
    graph = derive(outputs[0].graph, list(outputs))
    (alone, _), (shared, taken) = [lowered(graph, shares=shares) for shares in (False, True)]
    a, b = Described(), Described()
    assert [a.step(item) for item in alone] == [b.step(item) for item in shared]
    return taken


@pytest.mark.parametrize("what", PAIRS)
def test_a_group_takes_the_steps_of_its_like_alone(what):
    """Of two that differ in one thing each comes twice, in turns."""
    with gf.Graph():
        outputs = [t for one in (True, False) * 2 for t in PAIRS[what](one)]
        assert assert_same_steps(outputs) >= 2
    with gf.Graph():
        outputs = [t for one in (False, True) * 2 for t in PAIRS[what](one)]
        assert_same_steps(outputs)


@pytest.mark.parametrize("what", UNSHARED)
def test_what_a_structure_does_not_say_is_not_shared(what):
    with gf.Graph() as g:
        outputs = []
        for number in range(4):
            with gf.name_scope(f"s{number}"):
                outputs.extend(UNSHARED[what](number % 2 == 0))
        assert_same_steps(outputs)
        found = partition(derive(g, outputs), CanCompile(CpuTarget(Draws(()))))
    structures = Structures(found.facts, ())
    assert any(structures.of(group) is None for group in found.groups if group.kind == "kernel")


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("build", [*builders.CASES, *builders.NOT_EMPTY])
def test_gradients_are_lowered_as_each_by_itself(build):
    with gf.Graph() as g:
        outputs = []
        for scope in "ab":
            with gf.name_scope(scope):
                outputs.extend(build())
        floats = [t for t in outputs if t.dtype.is_inexact]
        wanted = [t for t in g.placeholders if t.dtype.is_inexact]
        total = sum(F.sum(F.tanh(F.abs(t))) for t in floats)
        assert_same_steps([*outputs, *(grad(total, wanted) if floats and wanted else ())])


@pytest.mark.parametrize(
    "other", [{"kind": "matmul"}, {"sizes": (7,)}, {"rows": (0,)}, {"form": "columns"}, {}]
)
def test_groups_that_differ_in_a_field_are_unlike(other):
    with gf.Graph():
        y = F.exp(given("n", 7))
        graph = derive(y.graph, [y, F.sin(y)])
    found = partition(graph, CanCompile(CpuTarget(Draws(()))))
    (group,) = found.groups
    other = other or {"outputs": group.outputs[::-1]}
    structures = Structures(found.facts, ())
    same, unlike = structures.of(replace(group)), structures.of(replace(group, **other))
    assert structures.of(group).key == same.key != unlike.key


def test_values_that_are_equal_and_not_alike_make_unlike_ops():
    with gf.Graph():
        found = partition(F.exp(given(3)).graph, CanCompile(CpuTarget(Draws(()))))
    number, op = Structures(found.facts, ())._op, REGISTRY["polygamma"]
    values = [0.0, -0.0, 0, False, np.float32(0), (0.0,), (-0.0,)]
    assert len({number(op(value)) for value in values}) == len(values)
    assert number(op(0.0)) == number(op(0.0))


def test_a_group_that_only_waits_for_a_sum():
    """It reads no lines of the sum, though it comes after it."""
    with gf.Graph():
        outputs = []
        for _ in range(2):
            x = given(70)
            total = F.sum(given("n", 70), axis=0)
            (late,) = emit_all(Barrier(1), x, total)
            outputs.append(F.sin(late))
        assert_same_steps(outputs)


def test_layers_are_lowered_once():
    """However many there are, those after the first few take the steps of others."""
    with gf.Graph() as g:
        x = gf.placeholder(("b", 16))
        model = gf.nn.Sequential(*[gf.nn.Linear(16, 16) for _ in range(12)])
        graph = derive(g, grad(F.mean(model(x) ** 2), model.parameters()))
    items, taken = lowered(graph, shares=True)
    assert taken > len(items) / 2
