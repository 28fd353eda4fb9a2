"""The real cuDNN, where it is installed: its plans without a GPU, and its results on one."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.cupy_executor.convolution import cudnn
from tests.support.cudnn_plans import GPUS, PROGRAMS

needs_cudnn = pytest.mark.skipif(
    not importlib.util.find_spec("cudnn"), reason="needs nvidia-cudnn-frontend and cuDNN"
)


@pytest.fixture(scope="module")
def planned():
    """Return what is planned for a GPU."""
    known = {}

    def plan(gpu):
        if gpu not in known:
            command = [sys.executable, "-m", "tests.support.cudnn_plans", gpu]
            done = subprocess.run(
                command, env={**os.environ, "GRAPHFW_CUDNN": "1"}, capture_output=True, text=True
            )
            assert not done.returncode, done.stderr[-2000:]
            known[gpu] = json.loads(done.stdout)
        return known[gpu]

    return plan


@needs_cudnn
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_cudnn_plans(name, gpu, planned):
    """Each convolution of networks, and each gradient, as exact as it is asked for."""
    lines = planned(gpu)[name].splitlines()
    asked = next(line for line in lines if " convolutions by cuDNN" in line)
    count = int(asked.split(" convolutions")[0].rpartition(" ")[2])
    by_cudnn = [line for line in lines if " by cuDNN, " in line]
    assert len(by_cudnn) == count >= 2
    ends = [line.partition(" by cuDNN, ")[0].partition(": ")[2] for line in by_cudnn]
    if name.startswith("ended"):
        assert ends == ["conv bias", "conv residual bias"]


@needs_cudnn
@pytest.mark.parametrize("gpu", GPUS)
def test_what_runs_are_told_is_accepted(gpu, planned):
    """All but the handle, which needs a GPU."""
    (said,) = planned(gpu)["run"].splitlines()
    assert "handle is NULL" in said


@needs_cudnn
@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_cudnn_computes(name, rng):
    assert not cudnn.why_not()
    program, options = PROGRAMS[name]
    with gf.Graph() as g:
        tensors = [*program()]
    inputs = [t for t in tensors if t.node.op.name == "placeholder"]
    outputs = tensors[len(inputs) :]
    feeds = {t: rng.normal(size=t.shape).astype(t.dtype.dtype) * 0.1 for t in inputs}
    wanted = gf.Session(g).run(outputs, feeds)
    tolerance = 3e-2 if name.split()[-1] in ("tf32", "float16", "bfloat16") else 1e-4
    with gf.Session(g, executor="cupy", **options) as session:
        first = session.run(outputs, feeds, host=True)
        for _ in range(4):  # recorded ones, too
            for one, before, other in zip(
                session.run(outputs, feeds, host=True), first, wanted, strict=True
            ):
                np.testing.assert_array_equal(one, before)
                scale = np.abs(other.astype(np.float64)).max()
                np.testing.assert_allclose(
                    one.astype(np.float64), other.astype(np.float64), atol=tolerance * scale
                )
