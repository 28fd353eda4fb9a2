"""Kernels that are written by hand: their modules, launches, and runs among others."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import float32
from graphfw.ops.sorting.sort_search import Sort
from graphfw.runtime.cupy_executor.codegen import NOTHING, HandwrittenCode, Launch, Variant, module
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.lowerings import Lowering, _nodes
from graphfw.runtime.kernels.steps import Step
from tests.strict_xp import plain_array
from tests.support.cuda_compilers import compiled
from tests.support.cuda_kernels import Failed, run_by_hand

BACKWARDS = """
// The rows of x from last to first, by a block each; fails where an element is negative.
template <int TIMES> GF void gf_backwards(
    const float* x, float* y, gf_i64 rows, gf_i64 columns, int* failed, char*
) {
    float* row = (float*)gf_dynamic();
    for (gf_index i = gf_block::first(); i < (gf_index)rows; i += gf_block::step()) {
        __syncthreads();
        for (gf_index j = gf_block::lane(); j < (gf_index)columns; j += gf_block::lanes())
            row[j] = x[i * (gf_index)columns + j];
        __syncthreads();
        for (gf_index j = gf_block::lane(); j < (gf_index)columns; j += gf_block::lanes()) {
            if (row[j] < 0) *failed = 1;
            y[i * (gf_index)columns + j] = TIMES * row[(gf_index)columns - 1 - j];
        }
    }
}
"""


def launching(params):
    rows, columns = params
    if rows * columns == 0:
        return NOTHING
    name = "twice" if rows > 5 else "once"
    return Launch(name, min(rows, 4), 1, (64, 1), 4 * columns, 0, 0, False)


CODE = HandwrittenCode(
    name="backwards",
    text=BACKWARDS,
    buffers=(Buffer(float32, False), Buffer(float32, True)),
    params=2,
    functions=(Variant("once", "gf_backwards<1>", 64), Variant("twice", "gf_backwards<2>", 64)),
    launching=launching,
)


def backwards(node, inputs, outputs, settings):
    (x,), (y,) = inputs, outputs
    return [Step((node,), CODE, (x.storage, y.storage), (False, True), x.shape, 1, can_fail=True)]


@pytest.mark.parametrize(("shape", "times"), [((3, 100), 1), ((6, 7), 2), ((0, 4), 1)])
def test_a_kernel_alone(shape, times, rng):
    x = rng.uniform(size=shape).astype(np.float32)
    found = run_by_hand(CODE, [x, np.full(shape, np.nan, np.float32)], shape)
    if x.size:
        np.testing.assert_array_equal(found[1].reshape(shape), times * x[:, ::-1])
        with pytest.raises(Failed):
            run_by_hand(CODE, [x - 2, x], shape)


def test_a_kernel_among_others(anywhere, monkeypatch, rng):
    monkeypatch.setitem(_nodes, Sort, {"cupy": Lowering(backwards)})
    with gf.Graph() as g:
        x = gf.placeholder(("n", 5), name="x")
        y = gf.sort(gf.abs(x), axis=1) + 1.0
        z = gf.sort(y, axis=1)
    data = rng.normal(size=(4, 5)).astype(np.float32)
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(z, [x])
        home = session.executor.to_host
        np.testing.assert_array_equal(home(plan(data)), np.abs(data) + 1)
        assert home(plan(np.zeros((0, 5), np.float32))).shape == (0, 5)
        text = plan.explain((4, 5))
        assert plan.source().count(BACKWARDS) == 1
    assert text.count("sort: once, 4 blocks of 64 threads") == 2


def test_what_machine_code_is_made_of():
    assert CODE.variants == ("once", "twice")
    source = module([CODE, CODE], {CODE.symbol: {"twice"}})
    assert f"{CODE.symbol}_twice(" in source
    assert f"{CODE.symbol}_once(" not in source
    other = HandwrittenCode(
        "backwards", BACKWARDS + " ", CODE.buffers, 2, CODE.functions, launching
    )
    assert len({CODE.symbol, other.symbol}) == len({CODE.key, other.key}) == 2


@pytest.mark.slow
def test_gpus_compilers_take_it():
    assert compiled(module([CODE]), "sm_80")


def test_a_block_may_be_given_much_memory(fake, monkeypatch):
    columns = 20_000
    monkeypatch.setitem(_nodes, Sort, {"cupy": Lowering(backwards)})
    with gf.Graph() as g:
        x = gf.placeholder(("n", columns), name="x")
        y = gf.sort(x, axis=1)
    data = np.arange(2 * columns, dtype=np.float32).reshape(2, columns)
    with gf.Session(g, executor="cupy") as session:
        np.testing.assert_array_equal(plain_array(session.run(y, {x: data})), data[:, ::-1])
    assert fake.launches[-1][-1] == 4 * columns
