"""`python -m graphfw opt` and its like: what they print of the graphs in `tests/graphs`.

Each `NAME.gir` begins with lines `# $ command`; `NAME.out` has what these commands print of it,
which `pytest --update-graphs` writes anew.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.cli import main
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE

GRAPHS = Path(__file__).parent / "graphs"
SCALE = str(GRAPHS / "scale.gir")


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.gir")), ids=lambda path: path.stem)
def test_commands_print_what_is_recorded(path, capsys, monkeypatch, request):
    monkeypatch.delenv("GRAPHFW_JIT", raising=False)
    commands = [
        line.removeprefix("# $ ").split()
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("# $ ")
    ]
    assert commands
    printed = ""
    for name, *options in commands:
        assert main([name, str(path), *options]) == 0
        printed += f"$ {' '.join([name, *options])}\n{capsys.readouterr().out}"
    recorded = path.with_suffix(".out")
    if request.config.getoption("--update-graphs"):
        recorded.write_text(printed, "utf-8")
    assert printed == recorded.read_text("utf-8"), "`pytest --update-graphs` if that is meant"


def test_what_opt_prints_can_be_read_again(capsys, monkeypatch):
    assert main(["opt", SCALE, "-p", "fold-constants"]) == 0
    text = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["opt", "-", "-p", "cse"]) == 0
    assert capsys.readouterr().out.count("multiply") == 1


def test_large_constants_come_from_a_file(tmp_path, capsys):
    with gf.Graph("table") as g:
        x = gf.placeholder((64,), name="x")
        g.outputs = (x * gf.constant(np.arange(64, dtype=np.float32)),)
    graph, arrays = tmp_path / "table.gir", tmp_path / "table.npz"
    graph.write_text(str(g), "utf-8")
    np.savez(arrays, **g.constants())
    assert main(["opt", str(graph), "-p", "cse", "--constants", str(arrays)]) == 0
    assert "constant(@" in capsys.readouterr().out
    assert main(["opt", str(graph), "-p", "cse"]) == 1
    assert "is not among the constants\n  at   line 3" in capsys.readouterr().err
    assert main(["opt", str(graph), "--constants", str(graph)]) == 1
    assert "can't read constants" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "ParseError: the text has no graph in it\n  at   line 1"),
        ('graph "g" opset 2 {\n}\n', "has neither outputs nor updates"),
        ('graph "g" opset 2 {\n  output %0\n}', "%0 is not defined above this line\n  at   line 2"),
        (
            'graph "g" opset 2 {\n  %0 = dim_value(dim=n, to=dtype.int32) : int32[]\noutput %0\n}',
            "the size of the dim `n` is needed",
        ),
    ],
)
def test_texts_that_are_no_programs(text, error, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["opt", "-"]) == 1
    assert error in capsys.readouterr().err


def test_files_that_are_no_texts(tmp_path, capsys):
    assert main(["opt", str(tmp_path / "none.gir")]) == 1
    assert "none.gir': No such file" in capsys.readouterr().err
    (tmp_path / "bytes.gir").write_bytes(b"\xff\xfe")
    assert main(["opt", str(tmp_path / "bytes.gir")]) == 1
    assert "is no text: invalid start byte at byte 0" in capsys.readouterr().err


def test_passes_that_there_are_not(capsys):
    assert main(["opt", SCALE, "-p", "fold,cse"]) == 1
    error = capsys.readouterr().err
    assert 'there is no pass named "fold"\n  fix  did you mean "fold-constants"? there' in error
    assert main(["opt", SCALE, "-p", ","]) == 1
    assert "-p names no pass" in capsys.readouterr().err


def test_passes_of_installed_packages(capsys, monkeypatch):
    def load(group: str, name: str, *_: object) -> type[Pass]:
        assert (group, name) == ("graphfw.passes", "mine")
        return CSE

    monkeypatch.setattr("graphfw.runtime.entry_points.load", load)
    assert main(["opt", SCALE, "-p", "mine", "--print-between"]) == 0
    assert "# after cse: merged 1\n" in capsys.readouterr().out


def test_a_pass_that_fails_is_named(capsys, monkeypatch):
    def run(self: CSE, graph: object, hits: object) -> None:
        raise KeyError("nothing")

    monkeypatch.setattr(CSE, "run", run)
    assert main(["opt", SCALE, "-p", "fold-constants,cse"]) == 1
    assert "the pass cse failed (after fold-constants): KeyError" in capsys.readouterr().err
