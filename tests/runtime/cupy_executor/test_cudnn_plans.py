"""The real cuDNN, where it is installed: its plans without a GPU, and its results on one."""

import ctypes.util
import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.cupy_executor import cudnn
from tests.support.cudnn_plans import ATTENTION, GPUS, LONG, PROGRAMS


def _is_there():
    """Whether both NVIDIA's package and the library itself are installed."""
    own = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cudnn")
    is_installed = own or ctypes.util.find_library("cudnn")
    return bool(importlib.util.find_spec("cudnn") and is_installed)


needs_cudnn = pytest.mark.skipif(not _is_there(), reason="needs nvidia-cudnn-frontend and cuDNN")


@pytest.fixture(scope="module")
def planned():
    """Return a function that plans for a GPU."""
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
    if name.startswith("pixels"):
        assert all([end.endswith(" channels-last") for end in ends])


@needs_cudnn
@pytest.mark.parametrize("name", [*ATTENTION, *LONG])
def test_how_it_plans_attention(name, planned):
    """On a GPU that is asked for it, forward and backward."""
    assert "it is asked from 9.0 on" in planned("A100")[name]
    lines = planned("H100")[name].splitlines()
    by_cudnn = [line.partition(" by cuDNN")[0] for line in lines if " of scratch memory" in line]
    found = [line.partition(": ")[2] for line in by_cudnn]
    assert found == ["attention", "attention (backward)"]


@needs_cudnn
def test_plans_of_attention_are_kept_on_disk(planned):
    """It takes a small part of the time to read them, and they take as much scratch memory."""
    lines = planned("H100")["kept"].splitlines()
    assert len(lines) == 2 * len(ATTENTION | LONG)
    for line in lines:
        first, again, workspace, same = line.split()
        assert float(again) < float(first) / 10
        assert workspace == same


@needs_cudnn
@pytest.mark.parametrize("gpu", GPUS)
def test_what_runs_are_told_is_accepted(gpu, planned):
    """All but the handle, which needs a GPU."""
    (said,) = planned(gpu)["run"].splitlines()
    assert re.search("handle (is NULL|== __null)", said)


@needs_cudnn
@pytest.mark.gpu
@pytest.mark.parametrize("name", [*PROGRAMS, *ATTENTION])
def test_what_cudnn_computes(name, rng, monkeypatch, tmp_path):
    assert not cudnn.why_not()
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    program, options = (PROGRAMS | ATTENTION)[name]
    with gf.Graph() as g:
        tensors = [*program()]
    inputs = [t for t in tensors if t.node.op.name == "placeholder"]
    outputs = tensors[len(inputs) :]
    feeds = {t: rng.normal(size=t.shape).astype(t.dtype.dtype) * 0.1 for t in inputs}
    wanted = gf.Session(g).run(outputs, feeds)
    tolerance = 3e-2 if name.split()[-1] in ("tf32", "float16", "bfloat16") else 1e-4
    found = []
    for _ in range(2):  # the second session finds plans on disk
        with gf.Session(g, executor="cupy", **options) as session:
            found += [session.run(outputs, feeds, host=True) for _ in range(5)]  # recorded, too
    for results in found:
        for one, before, other in zip(results, found[0], wanted, strict=True):
            np.testing.assert_array_equal(one, before)
            scale = np.abs(other.astype(np.float64)).max()
            np.testing.assert_allclose(
                one.astype(np.float64), other.astype(np.float64), atol=tolerance * scale
            )
