"""Stand-ins for CuPy, whose kernels run on the CPU, and for cuBLASLt."""

import sys

import pytest

from tests.support.cuda_host import compiler
from tests.support.fake_cublaslt import FakeCublasLt
from tests.support.fake_cupy import FakeCupy


@pytest.fixture(autouse=True)
def compiling(monkeypatch) -> None:
    """Compile, also where the other tests run node by node."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def cublaslt(monkeypatch) -> FakeCublasLt:
    made = FakeCublasLt()
    monkeypatch.setattr("graphfw.runtime.cupy_executor.device.load", lambda cuda: made)
    return made


@pytest.fixture
def fake(monkeypatch, cublaslt) -> FakeCupy:
    compiler()
    made = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def anywhere(request) -> None:
    """Run a test on the stand-ins, and with `-m gpu` on a GPU."""
    if request.param == "stand-in":
        request.getfixturevalue("fake")
