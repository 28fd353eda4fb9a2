"""The GPU ladder's rungs, on the stand-ins: what each tries is right, and fails where it should."""

import sys

import pytest

from graphfw.runtime.cupy_executor import staging
from tests import gpu_ladder
from tests.support.fake_cudnn import FakeCudnn


@pytest.fixture(autouse=True)
def compiling(monkeypatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


LARGE = {"products", "mlp", "cudnn", "gpt"}


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else [])
        for name in gpu_ladder.RUNGS
    ],
)
def test_each_rung_holds(fake, name, monkeypatch, capsys):
    for variable, value in gpu_ladder.RUNGS[name].environment.items():
        monkeypatch.setenv(variable, value)
    if name == "cudnn":
        monkeypatch.setitem(sys.modules, "cudnn", FakeCudnn(fake.streams.perform))
        monkeypatch.setenv("GRAPHFW_CUDNN", "1")
    assert gpu_ladder.main([name]) == 0, capsys.readouterr().out


def test_a_rung_that_fails_says_what_to_look_at(fake, monkeypatch, capsys):
    fetch = staging.Staging.fetch
    monkeypatch.setattr(
        staging.Staging, "fetch", lambda *given: [array + 1 for array in fetch(*given)]
    )
    assert gpu_ladder.main(["context"]) == 1
    printed = capsys.readouterr()
    assert "the rung 'context' fails: a context on the GPU" in printed.out
    assert "look at: python -m graphfw doctor" in printed.out
    assert "Arrays are not equal" in printed.err


def test_a_gpu_that_fails_for_good_fails_the_rung(fake, capsys):
    fake.broken = "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert gpu_ladder.main(["elementwise"]) == 1
    assert "CUDA_LAUNCH_BLOCKING=1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["--look", "nonsense"]])
def test_a_rung_that_there_is_not_is_named(arguments, capsys):
    assert gpu_ladder.main(arguments) == 2
    assert capsys.readouterr().out.startswith("there is no rung 'nonsense': the rungs are context,")


def test_rungs_are_named_in_order(capsys):
    assert gpu_ladder.main([]) == 0
    names = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*gpu_ladder.RUNGS]
    assert len(names) == 11, "the twelfth rung is all the other parts of .ci/gpu"
