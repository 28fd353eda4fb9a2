"""`python -m graphfw doctor`."""

import importlib.util
import os
import sys

import pytest

from graphfw.cli import main
from graphfw.runtime import doctor
from tests.support.fake_cudnn import FakeCudnn
from tests.support.fake_cupy import FakeCupy


@pytest.fixture
def fake(monkeypatch) -> FakeCupy:
    made = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr("graphfw.runtime.cupy_executor.doctor._distributions", lambda: iter(()))
    return made


def found():
    return {one.name: one for one in doctor.findings()}


def test_what_is_there(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path / "kept"))
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "good     Python" in text
    assert "good     numpy" in text
    assert str(tmp_path / "kept") in text
    assert "NVIDIA driver" in text


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy(capsys):
    assert main(["doctor"]) == 0
    assert 'pip install "cupy-cuda12x[ctk]"' in capsys.readouterr().out


def test_a_gpu(fake, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    fake.cuda.runtime.getDeviceProperties = lambda number: {
        "name": b"A GPU",
        "major": 9,
        "minor": 0,
        "totalGlobalMem": 8 << 30,
    }
    one = found()["GPU 0"]
    assert (one.state, one.detail) == ("good", "A GPU, sm_90, 8.00 GiB, runs kernels")
    assert len(fake.launches) == 1
    assert found()["CUDA graphs"].state == "good"
    fake.cuda.runtime.driverGetVersion = lambda: 11020
    assert found()["CUDA graphs"].detail == "the driver knows CUDA 11.2, they need 11.4"


def test_a_gpu_that_runs_no_kernel(fake, monkeypatch, capsys):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    fake.cuda.runtime.getDeviceProperties = lambda number: {
        "name": b"A GPU",
        "major": 9,
        "minor": 0,
        "totalGlobalMem": 8 << 30,
    }
    fake.broken = "CUDA_ERROR_ECC_UNCORRECTABLE"
    one = found()["GPU 0"]
    assert one.state == "broken"
    assert "it runs no kernel: the GPU has failed: CUDA_ERROR_ECC_UNCORRECTABLE" in one.detail
    assert main(["doctor"]) == 1
    fake.broken = ""
    fake.cuda.runtime.memcpyAsync = lambda *_: None  # nothing arrives
    assert "in the place of [1.0, 3.0, 5.0]" in found()["GPU 0"].detail
    fake.devices = 1
    monkeypatch.setattr(type(fake.cuda.Device()), "compute_capability", "75")
    one = found()["GPU 0"]
    assert (one.state, "8.0 or newer" in one.detail) == ("missing", True)


def test_what_is_missing_on_the_way_to_a_gpu(fake):
    fake.devices = -100
    fake.cuda.runtime.runtimeGetVersion = lambda: 99000
    assert found()["GPU"].state == "missing"
    assert "[ctk]" in found()["cuBLASLt"].advice
    fake.compiler_log = "CuPy failed to load libnvrtc.so.12"
    assert "[ctk]" in found()["NVRTC"].advice


def test_cudnn(fake, monkeypatch):
    fake.devices = 0
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")
    assert found()["cuDNN"].detail.startswith(
        "GRAPHFW_CUDNN=0: convolutions and attention are computed by"
    )
    library = FakeCudnn(fake.streams.perform)
    monkeypatch.setenv("GRAPHFW_CUDNN", "1")
    monkeypatch.setitem(sys.modules, "cudnn", library)
    assert (found()["cuDNN"].state, found()["cuDNN"].detail) == ("good", "9.15.0")
    library.version = 0
    assert found()["cuDNN"].state == "missing"
    assert "nvidia-cudnn-cu12>=9.1" in found()["cuDNN"].advice
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert found()["cuDNN"].detail.startswith("nvidia-cudnn-frontend is not installed: ")


def test_two_cupys(fake, monkeypatch, capsys):
    installed = ["cupy-cuda12x", "numpy", "cupy-cuda13x"]
    monkeypatch.setattr(
        "graphfw.runtime.cupy_executor.doctor._distributions", lambda: iter(installed)
    )
    assert main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert "pip uninstall cupy-cuda12x cupy-cuda13x" in printed.out
    assert "CuPy: broken" in printed.err


def test_packages_that_are_broken(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert main(["doctor"]) == 1
    assert "broken   networkx" in capsys.readouterr().out


def test_nothing_is_kept(monkeypatch):
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    assert found()["cache"].advice == "unset GRAPHFW_CACHE"
    monkeypatch.setenv("GRAPHFW_CACHE", "~nobody-of-that-name")
    assert found()["cache"].state == "broken"
    assert "GRAPHFW_CACHE" in found()["cache"].detail


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX modes")
def test_a_folder_of_compiled_code_that_others_may_write_to(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    finding = found()["cache"]
    assert finding.state == "missing"
    assert finding.detail == f"{tmp_path} is not used, since others may write to it (mode 0777)"
    assert finding.advice.startswith(f"Delete it ('rm -r {tmp_path}')")
