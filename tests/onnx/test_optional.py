"""Operators outside of deep learning: their modules are imported when a model has one of them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from graphfw.onnx import optional, table

SCRIPT = """
import sys
import numpy as np
import onnx
import graphfw as gf

def load(text, **values):
    gf.onnx.load(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 21, '
                 '"ai.onnx.ml" : 3]> graph ' + text), values=values)
    prefix = "graphfw.onnx.optional."
    print(*sorted(m.removeprefix(prefix) for m in sys.modules if m.startswith(prefix)))

load("(float[n, 3] x) => (float[n, 3] y) { y = Exp(x) }")
load("(float[n, 3] x) => (float[n, 3] y) { y = ai.onnx.ml.Binarizer(x) }")
texts = np.asarray(["aa"])
load('(string[1] x) => (bool[1] y) { y = RegexFullMatch<pattern: string = "a+">(x) }', x=texts)
"""


def test_modules_are_imported_for_models_that_have_their_operators():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["", "features", "features regex strings"]


@pytest.mark.parametrize("name", optional.MODULES)
def test_modules_register_the_operators_they_are_imported_for(name, monkeypatch):
    module = importlib.import_module(f"{optional.__name__}.{name}")
    monkeypatch.setattr(table, "_READERS", {})
    importlib.reload(module)
    domain, names = optional.MODULES[name]
    assert set(table._READERS) == {(domain, name) for name in names.split()}
