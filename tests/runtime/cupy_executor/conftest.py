"""The machines of the CuPy executor's tests: on the stand-ins (`fake`), some also on a GPU."""

import sys

import pytest

import graphfw as gf
from tests.support.fake_cudnn import FakeCudnn


@pytest.fixture(autouse=True)
def compiling(monkeypatch) -> None:
    """Compile, also where the other tests run node by node."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def anywhere(request) -> None:
    """Run a test on the stand-ins, and with `-m gpu` on a GPU."""
    if request.param == "stand-in":
        request.getfixturevalue("fake")


@pytest.fixture
def library(fake, monkeypatch):
    """A stand-in for NVIDIA's package for cuDNN."""
    made = FakeCudnn(fake.streams.perform)
    monkeypatch.setitem(sys.modules, "cudnn", made)
    monkeypatch.setenv("GRAPHFW_CUDNN", "1")
    return made


@pytest.fixture
def session(fake):
    """Return a function that makes sessions on the stand-in; they are closed at the end."""
    made = []

    def make(g, **options):
        made.append(gf.Session(g, executor="cupy", seed=3, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
