"""`python -m graphfw onnx`."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from graphfw.cli import main
from tests.onnx.models import classifier


@pytest.fixture
def path(rng, tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(classifier(rng), path)
    return str(path)


def test_info(path, capsys):
    assert main(["onnx", "info", path, "--dim", "batch=2"]) == 0
    text = capsys.readouterr().out
    for part in ("input  x  float32[batch, 1, 6, 6]", "scores", "conv", "220", "memory"):
        assert part in text


def test_run_saves_what_a_session_computes(path, tmp_path, capsys):
    x = np.ones((3, 1, 6, 6), np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    given = ["--inputs", f"x={tmp_path / 'x.npy'}", "--output", str(out)]
    assert main(["onnx", "run", path, *given]) == 0
    np.testing.assert_array_equal(np.load(out)["scores"], gf.onnx.run(path, {"x": x})["scores"])
    assert main(["onnx", "run", path, "--dim", "batch=2"]) == 0
    assert "scores: float32[2, 5]" in capsys.readouterr().out


def test_check_and_bench(path, capsys):
    assert main(["onnx", "check", path]) == 0
    assert "is right" in capsys.readouterr().out
    assert main(["onnx", "bench", path, "--seconds", "0.05"]) == 0
    assert "median ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--inputs", "y=none.npy"], "none.npy can't be read"),
        (["--dim", "batch=many"], "that is no size"),
    ],
)
def test_mistakes_are_told(path, capsys, arguments, text):
    assert main(["onnx", "run", path, *arguments]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_a_dim_that_there_is_not(path, capsys):
    assert main(["onnx", "info", path, "--dim", "n=2"]) == 1
    assert "they have batch" in capsys.readouterr().err
