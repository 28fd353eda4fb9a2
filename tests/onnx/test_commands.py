"""`python -m graphfw onnx`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphfw as gf
from graphfw.cli import main
from graphfw.onnx import commands
from tests.onnx.models import classifier, model


@pytest.fixture
def path(rng, tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(classifier(rng), path)
    return str(path)


def test_info(path, capsys):
    assert main(["onnx", "info", path, "--dim", "batch=2"]) == 0
    text = capsys.readouterr().out
    for piece in ("input  x  float32[batch, 1, 6, 6]", "scores", "conv", "220", "memory"):
        assert piece in text


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
    assert "graphfw loads it: 12 nodes" in capsys.readouterr().out
    assert main(["onnx", "bench", path, "--seconds", "0.05"]) == 0
    assert "median ms" in capsys.readouterr().out


def test_info_of_each_node(path, capsys):
    assert main(["onnx", "info", path, "--nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("pool")] == [
        ["pool", "window_max", "float32[batch,", "4,", "3,", "3]", "0.0"]
    ]


@pytest.fixture
def files(path, tmp_path, monkeypatch):
    """Arrays beside the model, which the tests name by their file names."""
    monkeypatch.chdir(tmp_path)
    x = np.ones((2, 1, 6, 6), np.float32)
    for name, array in (("x", x), ("wide", x.astype(float)), ("bad", x[:, :, 1:])):
        np.save(f"{name}.npy", array)
    np.savez("x.npz", x=x)
    np.savez("y.npz", y=x)
    (tmp_path / "text.npy").write_text("numbers")


@pytest.mark.parametrize("given", ["x=x.npy", "x.npy", "x.npz"])
def test_arrays_for_the_only_input(path, files, given, capsys):
    assert main(["onnx", "run", path, "--inputs", given]) == 0
    assert "scores: float32[2, 5]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--inputs", "y=none.npy"], "none.npy can't be read: No such file"),
        (["--inputs", "x=text.npy"], "text.npy can't be read: it has no numbers"),
        (["--inputs", "y.npz"], "its inputs are x"),
        (["--inputs", "X=x.npy"], 'did you mean "x"'),
        (["--inputs", "x=x.npz"], "its arrays are x"),
        (["--inputs", "x=wide.npy"], "is fed float64"),
        (["--inputs", "x=bad.npy"], "dim 2 is 5, not 6"),
        (["--dim", "batch=many"], "that is no size"),
        (["--dim", "bach=2"], 'did you mean "batch"'),
        (["--dim", "n=2"], "they have batch"),
        (["--dim", "batch=9000000000000"], "MemoryError"),
        (["--output", "out.txt"], "--output out.txt.npz"),
        (["--output", "nowhere/out.npz"], "there is no folder nowhere"),
        (["--executor", "abacus"], "there are: cupy"),
    ],
)
def test_mistakes_are_told(path, files, capsys, arguments, text):
    assert main(["onnx", "run", path, *arguments]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error
    assert ".py:" not in error  # a line of code: who runs this has written none


def test_a_dim_that_there_is_not(path, capsys):
    assert main(["onnx", "info", path, "--dim", "n=2"]) == 1
    assert "they have batch" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["info", "check", "run", "bench"])
@pytest.mark.parametrize(
    ("content", "text"), [(None, "No such file"), (b"", "no graph"), (b"x" * 99, "no ONNX model")]
)
def test_files_that_are_no_models(tmp_path, capsys, command, content, text):
    file = tmp_path / "none.onnx"
    if content is not None:
        file.write_bytes(content)
    assert main(["onnx", command, str(file)]) == 1
    assert text in capsys.readouterr().err


def test_what_the_checker_refuses(tmp_path, capsys):
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n",)}, {"y": ("n", 3)})
    onnx.save(made, tmp_path / "wrong.onnx")
    assert main(["onnx", "check", str(tmp_path / "wrong.onnx")]) == 1
    shown = capsys.readouterr()
    assert "graphfw loads it" in shown.out
    assert "ONNX's checker: " in shown.err


def test_values_that_decide_about_shapes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = model([helper.make_node("Reshape", ["x", "to"], ["y"])], {"x": ("n", 4)}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("to", TensorProto.INT64, (2,)))
    onnx.save(made, "small.onnx")
    np.save("to.npy", [2, 2])
    for command in ("run", "info"):
        assert main(["onnx", command, "small.onnx"]) == 1
        assert "random numbers stand for x, to" in capsys.readouterr().err
        assert main(["onnx", command, "small.onnx", "--inputs", "to=to.npy"]) == 0
        assert "float32[2, 2]" in capsys.readouterr().out
    assert main(["onnx", "run", "small.onnx", "--inputs", "to.npy"]) == 1
    assert "the inputs are x, to" in capsys.readouterr().err


def test_strings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    node = helper.make_node("StringConcat", ["x", "x"], ["y"])
    onnx.save(model([node], {"x": ("n",)}, ["y"], dtype=TensorProto.STRING), "small.onnx")
    np.save("x.npy", ["a", "b"])
    assert main(["onnx", "info", "small.onnx"]) == 1
    assert "--inputs x=FILE.npy" in capsys.readouterr().err
    assert main(["onnx", "run", "small.onnx", "--inputs", "x.npy"]) == 0
    assert "y: strings[2]" in capsys.readouterr().out
    assert main(["onnx", "run", "small.onnx", "--inputs", "x.npy", "--output", "y.npz"]) == 0
    assert np.load("y.npz")["y"].tolist() == ["aa", "bb"]


def test_maps_and_what_they_are_saved_as(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keys = {"domain": "ai.onnx.ml", "classlabels_int64s": [4, 5]}
    made = model([helper.make_node("ZipMap", ["x"], ["y"], **keys)], {"x": ("n", 2)}, [])
    made.graph.output.append(onnx.ValueInfoProto(name="y"))
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    onnx.save(made, "small.onnx")
    np.save("x.npy", np.ones((5, 2), np.float32))
    assert main(["onnx", "run", "small.onnx", "--inputs", "x.npy"]) == 0
    assert capsys.readouterr().out == "y: a sequence of 5\n" + "{4: 1.0, 5: 1.0}\n" * 3 + "…\n"
    assert main(["onnx", "info", "small.onnx"]) == 0
    assert "the values of maps with 2 keys" in capsys.readouterr().out
    assert main(["onnx", "run", "small.onnx", "--inputs", "x.npy", "--output", "y.npz"]) == 1
    assert "'y' is no array" in capsys.readouterr().err


def test_dims_whose_names_no_symbol_can_have(tmp_path, capsys):
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (None, "2 * n")}, ["y"])
    file = tmp_path / "small.onnx"
    onnx.save(made, file)
    assert main(["onnx", "run", str(file), "--dim", "x_0=3", "--dim", "2 * n=6"]) == 0
    assert "float32[3, 6]" in capsys.readouterr().out


def test_what_is_saved_is_whole(path, files, monkeypatch, tmp_path):
    def savez(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "out.npz").write_bytes(b"before")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(np, "savez", savez)
    assert main(["onnx", "run", path, "--inputs", "x.npy", "--output", "out.npz"]) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "out.npz").read_bytes() == b"before"


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_times_that_are_none(path, capsys, seconds):
    with pytest.raises(SystemExit):
        main(["onnx", "bench", path, "--seconds", seconds])
    assert "no time that can be measured for" in capsys.readouterr().err


def test_ctrl_c(path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "read_model", interrupted)
    assert main(["onnx", "info", path]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.slow
def test_who_reads_may_stop(path):
    command = [sys.executable, "-m", "graphfw", "onnx", "info", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
