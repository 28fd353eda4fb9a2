"""Every op's samples and random graphs as CUDA C++: run on the CPU, and compiled for GPUs."""

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphfw as gf
from graphfw.ir.build import emit, emit_all
from graphfw.ir.op import RANDOM, SOURCE
from graphfw.ir.rebuild import derive
from graphfw.passes.values import SampleInputs, evaluated
from graphfw.runtime.cupy_executor.codegen import CudaCode, HandwrittenCode, module
from tests.runtime.kernels.test_lower_random import graph_of
from tests.support import kernel_interpreter
from tests.support.cuda_compilers import compiled
from tests.support.cuda_kernels import Cuda, execute
from tests.support.lowering import TOLERANCE, assert_lowered
from tests.support.samples import declared

CASES = list(
    declared(
        lambda cls, case: not case.match and SOURCE not in cls.traits and RANDOM not in cls.traits
    )
)
SHARDS = 8


@functools.cache
def programs(shard):
    """Some of the samples, each alone and with neighbours that it is fused with, lowered."""
    found = []
    for sample in CASES[shard::SHARDS]:
        types = sample.types
        with gf.Graph() as g:
            xs = [gf.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
            ys = emit_all(sample.op, *xs) if sample.op.multiple else (emit(sample.op, *xs),)
            near = [x + x if x.dtype.is_floating else x for x in xs]
            zs = emit_all(sample.op, *near) if sample.op.multiple else (emit(sample.op, *near),)
            zs = [z * z if z.dtype.is_floating else z for z in zs]
        for outputs in (ys, zs):
            graph = derive(g, list(outputs))
            found.append((sample, xs, graph, *kernel_interpreter.compiled(graph, Cuda())))
    return found


def kernels(shard):
    steps = [step for _, _, _, _, items in programs(shard) for step in items]
    return [s for s in steps if isinstance(getattr(s, "code", None), CudaCode | HandwrittenCode)]


@pytest.mark.parametrize(
    "shard", [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, SHARDS))]
)
def test_values(shard):
    run = execute(kernels(shard))
    for sample, xs, graph, groups, items in programs(shard):
        arrays = sample.bound().draw(np.random.default_rng(3))
        feeds = {x.node: a for x, a in zip(xs, arrays, strict=True) if x.node in graph.nodes}
        found = kernel_interpreter.run(graph, groups, items, feeds, sample.sizes, run)
        wanted = evaluated(graph, SampleInputs(feeds, sample.sizes))
        for a, b in zip(found, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.kind in "biu":
                np.testing.assert_array_equal(a, b, err_msg=str(sample))
                continue
            tolerance = TOLERANCE.get(str(b.real.dtype), 1e-5)
            kind = complex if a.dtype.kind == "c" else float
            np.testing.assert_allclose(
                *(a.astype(kind), b.astype(kind)),
                rtol=tolerance,
                atol=tolerance,
                err_msg=str(sample),
            )


def test_what_runs_on_a_gpu_with_GRAPHFW_TEST_GPU(fake, monkeypatch):
    monkeypatch.setenv("GRAPHFW_TEST_GPU", "1")
    with gf.Graph() as g:
        x = gf.placeholder(("n", 9), name="x")
        outputs = [gf.softmax(x, axis=1), gf.sum(x, axis=0)]
    assert_lowered(g, outputs, {"n": 5}, how="cuda")
    assert len(fake.compiled) == 1
    assert len(fake.launches) > 3


@pytest.mark.parametrize(
    ("architecture", "wide", "every"),
    [
        pytest.param("sm_80", False, 2, marks=pytest.mark.slow),
        pytest.param("sm_80", True, 2, marks=pytest.mark.slow),
        ("sm_90", False, 24),
        pytest.param("sm_90", True, 2, marks=pytest.mark.slow),
    ],
)
def test_gpus_compilers_take_them(architecture, wide, every):
    some = kernels(1 if wide else 0)[(architecture == "sm_80") :: every]
    assert compiled(module([step.code for step in some]), architecture, wide=wide)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_gpus_compilers_take_all(architecture):
    for shard in range(SHARDS):
        assert compiled(module([step.code for step in kernels(shard)]), architecture)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_graphs(data):
    g, _, outputs = graph_of(data)
    for n in (3, 1):
        assert_lowered(g, outputs, {"n": n}, how="cuda")


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_random_graphs(data):
    g, _, outputs = graph_of(data)
    assert_lowered(g, outputs, {"n": 3}, how="cuda")
