"""Fixtures of every test: strict checking of passes, fresh random numbers, skips without a GPU."""

import functools
import importlib.util
import signal
import sys
import zlib

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.kernels import lower
from graphfw.runtime.numpy_executor import cache_key
from tests.support import exhaustive, smoke
from tests.support.cuda_host import compiler
from tests.support.fake_cublaslt import FakeCublasLt
from tests.support.fake_cupy import FakeCupy

# What is tested is compiled, and not recalled from the last time.
cache_key.enabled = False

# A shell starts its background jobs with Ctrl-C ignored, which tests would wait for.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "smoke" and not any(["::" in path for path in config.args]):
        config.pluginmanager.register(smoke.OnlyChosen())


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in exhaustive.surplus(items):
        item.add_marker("slow")
    for item in smoke.chosen(items):
        item.add_marker("smoke")


@functools.cache
def cuda_device_count() -> int:
    if importlib.util.find_spec("cupy") is None:
        return 0
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:  # no driver, or no device
        return 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and cuda_device_count() == 0:
        pytest.skip("needs a CUDA device and CuPy")


@pytest.fixture(autouse=True)
def first_seed() -> None:
    """Layers that a test makes outside of graphs have the weights they have in a new process."""
    gf.set_seed(0)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of the test's own: no test shares a stream, and a rerun repeats it."""
    seed = zlib.crc32(request.node.nodeid.encode())
    # pytest shows captured output only when the test fails.
    print(f"rng: np.random.default_rng({seed})")  # noqa: T201  pytest shows it where a test fails
    return np.random.default_rng(seed)


@pytest.fixture
def cublaslt(monkeypatch: pytest.MonkeyPatch) -> FakeCublasLt:
    """A stand-in for cuBLASLt."""
    made = FakeCublasLt()
    monkeypatch.setattr("graphfw.runtime.cupy_executor.device.load", lambda cuda: made)
    return made


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, cublaslt: FakeCublasLt) -> FakeCupy:
    """A stand-in for CuPy: `executor="cupy"` works, with kernels that run on the CPU."""
    compiler()
    made = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")  # one that is installed finds no GPU
    cublaslt.perform = made.streams.perform
    return made


@pytest.fixture
def bodies_have_steps(monkeypatch):
    """Run loops iteration by iteration, as those are whose iterations are no kernel."""
    monkeypatch.setattr(lower, "iteration_steps", lambda *_: [])
