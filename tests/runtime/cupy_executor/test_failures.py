"""What the CuPy executor says where something is missing or fails."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError, ExecutorError, FeedError
from tests.strict_xp import strict_array


@pytest.fixture
def graph():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 1000), name="x")
        gf.identity(gf.sin(gf.sort(gf.exp(x), axis=1) * 2.0), name="y")
    return g


@pytest.mark.parametrize(
    ("status", "driver", "match"),
    [
        (35, 0, r"there is no NVIDIA driver(.|\n)*install the NVIDIA driver"),
        (35, 11080, r"driver knows CUDA 11\.8 and CuPy needs 12\.9(.|\n)*update the driver"),
        (100, 12040, r"finds no GPU(.|\n)*CUDA_VISIBLE_DEVICES"),
        (999, 12040, r"CUDA says: cudaErrorThatThisIs"),
    ],
)
def test_no_device(fake, graph, status, driver, match):
    fake.devices = -status
    fake.cuda.runtime.driverGetVersion = lambda: driver
    with pytest.raises(ExecutorError, match=match):
        gf.Session(graph, "cupy")


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ("cupy:2", r'there is no GPU 2: this machine has 2(.|\n)*"cupy:0" to "cupy:1"'),
        ("cupy:x", '"cupy:x" names no device'),
    ],
)
def test_wrong_devices(fake, graph, choice, match):
    fake.devices = 2
    with pytest.raises(ExecutorError, match=match):
        gf.Session(graph, choice)


def test_an_array_of_another_device(fake, graph):
    fake.devices = 2
    with gf.Session(graph, "cupy:1") as session:
        fed = strict_array(np.zeros((2, 1000), np.float32))
        with pytest.raises(FeedError, match=r"GPU 0, and the session runs on GPU 1(.|\n)*cupy:0"):
            session.run("y", {"x": fed})


def test_a_missing_library(fake, graph):
    def missing():
        raise RuntimeError("CuPy failed to load libnvrtc.so.12: OSError: no such file")

    fake.cuda.nvrtc.getVersion = missing
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutorError, match=r"libnvrtc(.|\n)*cupy-cuda12x\[ctk\]"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_a_kernel_that_is_refused(fake, graph, monkeypatch):
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    with gf.Session(graph, "cupy") as session:
        plan = session.compile("y", graph.placeholders)
        symbol = plan._run.build.codes[1].symbol
        fake.compiler_log = f"graphfw.cu(7): error in {symbol}_elements: nonsense"
        with pytest.raises(ExecutorError) as caught, gf.Session(graph, "cupy") as session:
            session.compile("y", graph.placeholders)
    text = str(caught.value)
    assert "CUDA refuses a kernel that was generated for sm_90" in text
    assert "nonsense" in text
    assert "kernel rows" in text
    assert "sin made at test_failures.py" in text
    assert "exp made at" not in text


def test_a_gpu_that_is_too_new(fake, graph):
    fake.compiler_log = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
    with gf.Session(graph, "cupy") as session, pytest.raises(ExecutorError, match="too old"):
        session.compile("y", graph.placeholders)


def test_too_little_memory(fake, graph):
    with gf.Session(graph, "cupy") as session:
        fake.limit = 10_000
        with pytest.raises(ExecutionError) as caught:
            session.run("y", {"x": np.zeros((100, 1000), np.float32)})
    text = str(caught.value)
    assert "too little memory: a run at n = 100 takes" in text
    assert "3.00 GiB of 8.00 GiB are free" in text
    assert "made at test_failures.py" in text
    assert "smaller n" in text


def test_a_gpu_that_has_failed(fake, graph):
    with gf.Session(graph, "cupy") as session:
        fake.broken = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
        with pytest.raises(ExecutionError, match=r"illegal memory(.|\n)*session is lost"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_a_gpu_that_fails_in_an_operation_of_cupy(fake, graph, monkeypatch):
    def broken(*_, **__):
        raise fake.cuda.runtime.CUDARuntimeError(700, "cudaErrorIllegalAddress")

    monkeypatch.setattr(fake, "sort", broken, raising=False)
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutionError, match=r"IllegalAddress(.|\n)*session is lost"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_a_session_with_a_limit(fake, graph, monkeypatch):
    with gf.Session(graph, "cupy", memory_limit="1MB") as session:
        plan = session.compile("y", graph.placeholders)
        plan(np.zeros((20, 1000), np.float32))
        with pytest.raises(gf.MemoryLimitError, match="memory_limit is 1,000,000"):
            plan(np.zeros((200, 1000), np.float32))
        most = plan.max_dim("n", "1MB")
        assert plan.memory((most, 1000)).peak <= 1e6 < plan.memory((most + 1, 1000)).peak
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with pytest.raises(ExecutorError, match="GRAPHFW_JIT=0 does not plan its memory"):
        gf.Session(graph, "cupy", memory_limit="1GB").compile("y", graph.placeholders)
