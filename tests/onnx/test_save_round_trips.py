"""Models that are loaded, saved and loaded again compute the same as before."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from graphfw.onnx.reader import read_model
from graphfw.onnx.running import specialised
from tests.onnx.models import classifier
from tests.onnx.runtime import started
from tests.onnx.suite import _data, _path, as_array, cases
from tests.onnx.test_suite import PASSES

MODELS = [n for kind in ("simple", "pytorch-operator", "pytorch-converted") for n in cases(kind)]
LIGHT = ["test_resnet50", "test_squeezenet"]


def prepared(case):
    """Return a case's model as a graph, with what to feed and to fetch."""
    model = case.model if case.model is not None else onnx.load(_path(case))
    inputs, _ = next(iter(_data(case, model)))
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in weights]
    given = {n: as_array(v) for n, v in zip(names, inputs, strict=False) if v is not None}
    made = specialised(read_model(model), given)
    fetches = {f"out{i}": t for i, t in enumerate(made.graph.outputs)}
    return made.graph, {n: given[n] for n in made.inputs}, fetches


def values(graph, fetches, feeds):
    # Without the compiler, whose numbers are compared elsewhere.
    with gf.Session(graph, executor="numpy", debug=True) as session:
        return session.run(fetches, feeds)


def again(case, path, rtol=1e-4, atol=1e-5):
    """Save and load a case's model, and compare the values; return what to run it on."""
    graph, feeds, fetches = prepared(case)
    if not fetches:  # all its outputs are known when it is loaded
        return None
    gf.onnx.save(graph, fetches, path)
    wanted = values(graph, list(fetches.values()), feeds)
    loaded = gf.onnx.load(path)
    feeds = {t.name: feeds[t.name] for t in loaded.placeholders}
    for value, reference in zip(values(loaded, list(loaded.outputs), feeds), wanted, strict=True):
        assert value.dtype == reference.dtype, case.name
        if reference.dtype.kind == "V":  # of ml_dtypes
            value, reference = value.astype(np.float32), reference.astype(np.float32)
        scale = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        np.testing.assert_allclose(value, reference, rtol, atol * scale, err_msg=case.name)
    return feeds, wanted


@pytest.fixture(params=range(8))
def share(request):
    """An eighth of the cases, so that several processes can share them."""
    found = {name: case for kind in ("simple", "pytorch-operator", "pytorch-converted")
             for name, case in cases(kind).items()}  # fmt: skip
    return {n: found[n] for n in MODELS[request.param :: 8] if n in PASSES}


def test_models(share, tmp_path):
    for name, case in share.items():
        ran = again(case, tmp_path / "m.onnx")
        if ran is None:
            continue
        made = started(tmp_path / "m.onnx").run(None, {n: np.asarray(x) for n, x in ran[0].items()})
        for value, wanted in zip(made, ran[1], strict=True):
            np.testing.assert_allclose(value, wanted, 1e-3, 1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("remainder", range(8))
def test_single_operators(remainder, tmp_path):
    names = [n for n in cases("node") if n in set(PASSES)][remainder::8]
    refused = []
    for name in names:
        try:
            again(cases("node")[name], tmp_path / "m.onnx", 5e-3, 5e-3)
        except gf.onnx.OnnxError as error:
            refused.append(error.summary)
    assert all("ONNX has nothing for these operations" in text for text in refused)
    assert len(refused) < 0.06 * len(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_light_models(name, tmp_path):
    again(cases("real")[name], tmp_path / "m.onnx")


def test_symbolic_sizes_and_names_stay(rng, tmp_path):
    first = graph = gf.onnx.load(classifier(rng))
    for number in range(2):
        path = tmp_path / f"{number}.onnx"
        gf.onnx.save(graph, graph.outputs, path)
        graph = gf.onnx.load(path)
        assert str(graph.find("x").shape) == "(batch, 1, 6, 6)"
        assert str(graph.find("scores").shape) == "(batch, 5)"
    assert {n.name for n in onnx.load(path).graph.node} >= {"pool/MaxPool", "fc/MatMul"}
    feeds = {"x": rng.standard_normal((3, 1, 6, 6)).astype(np.float32)}
    np.testing.assert_allclose(
        values(graph, "scores", feeds), values(first, "scores", feeds), 1e-5, 1e-6
    )
