"""ONNX's backend test suite: the cases of `passing.txt` pass, the others have a reason.

To make the cases takes seconds, so that tests of them are slow. After a change that makes more of
them pass: `python -m tests.onnx.suite --update`.
"""

from __future__ import annotations

import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import graphfw as gf
from tests.onnx.suite import KINDS, PASSING, as_array, cases, outcome, reasons

PASSES = PASSING.read_text("utf-8").split()


# CuPy has none of these dtypes: an error says so.
LACKING = re.compile("float8|float4|_u?int[24](_|$)|e[45]m[23]", re.IGNORECASE)


@pytest.fixture(scope="module", params=range(16))
def share(request):
    """A sixteenth of the cases, so that several processes can share them."""
    found = {name: case for kind in KINDS if kind != "real" for name, case in cases(kind).items()}
    wanted = {name: found[name] for name in PASSES[request.param :: 16] if name in found}
    if not os.environ.get("GRAPHFW_EXECUTOR", "").startswith("cupy"):
        return wanted
    return {name: case for name, case in wanted.items() if not LACKING.search(name)}


@pytest.mark.slow
def test_cases_pass(share):
    check(share)


@pytest.mark.slow  # ResNet-50, VGG-19, DenseNet-121: some seconds
def test_networks_pass():
    found = dict(cases("real"))
    if os.environ.get("GRAPHFW_JIT") == "0":
        # Its weights are constants, so its thousand scores are equal, and so large (9.5e9) that
        # their last place is 1024. NumPy's BLAS adds up equal rows in an order that depends on
        # their place: eight scores come out one last place lower, and exp(-1024) is 0.
        del found["test_squeezenet"]
    check(found)


@pytest.mark.slow  # a minute
def test_cases_pass_when_each_pass_is_verified(share, monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")
    check(share)


@pytest.mark.slow  # half a minute
def test_cases_pass_on_the_cupy_executor(fake, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_EXECUTOR", "cupy")
    found = {name: case for kind in KINDS if kind != "real" for name, case in cases(kind).items()}
    check({name: found[name] for name in PASSES[::8] if name in found and not LACKING.search(name)})


def check(share):
    wrong = {name: text for name, case in share.items() if (text := outcome(case))}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


@pytest.mark.slow
def test_every_case_is_accounted_for():
    known = {*PASSES, *reasons()}
    assert not [name for kind in KINDS for name in cases(kind) if name not in known]


def test_no_case_that_passes_is_skipped():
    assert PASSES
    assert not set(PASSES) & set(reasons())


# What can be said of the cases that are skipped.

SIXTEEN = [name for name in reasons() if "attention" in name]
DRAWN = [name for name in reasons() if name not in SIXTEEN]


def given(case):
    """Return a case's feeds, by name, and its expected results."""
    inputs, outputs = case.data_sets[0]
    names = [info.name for info in case.model.graph.input]
    return dict(zip(names, map(as_array, inputs), strict=True)), [*map(as_array, outputs)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIXTEEN)
def test_numbers_of_16_bits_are_nearer_to_the_exact_ones(name):
    feeds, (wanted, *_) = given(cases()[name])
    made = next(iter(gf.onnx.run(cases()[name].model, feeds).values()))
    model = onnx.ModelProto()
    model.CopyFrom(cases()[name.removesuffix("_expanded")].model)
    for info in model.graph.input:
        if feeds[info.name].dtype == wanted.dtype:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
            feeds[info.name] = feeds[info.name].astype(np.float64)
    exact = next(iter(gf.onnx.run(model, feeds).values()))
    assert made.dtype == wanted.dtype
    assert abs(made - exact).max() < abs(wanted - exact).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_numbers_that_are_drawn(name):
    case = cases()[name]
    feeds, wanted = given(case)
    made = [*gf.onnx.run(case.model, feeds).values()]
    assert [(y.dtype, y.shape) for y in made] == [(y.dtype, y.shape) for y in wanted]
    y, x = made[0], feeds["x"]
    if "bernoulli" in name:
        assert set(y.ravel().tolist()) <= {0, 1}
        return
    kept = made[1] if len(made) > 1 else y != 0
    np.testing.assert_allclose(y, np.where(kept, x / (1 - feeds["r"]), 0), rtol=1e-6)
    assert abs(kept.mean() - (1 - feeds["r"])) < 5 * np.sqrt(0.25 / x.size)


@pytest.mark.slow
def test_a_bernoulli_s_rates(rng):
    model = onnx.ModelProto()
    model.CopyFrom(cases()["test_bernoulli"].model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 100_000
    x = rng.random(100_000).astype(np.float32)
    y = gf.onnx.run(model, {"x": x})["y"]
    for low in np.arange(0, 1, 0.1):
        in_bin = (x >= low) & (x < low + 0.1)
        assert abs(y[in_bin].mean() - x[in_bin].mean()) < 5 * np.sqrt(0.25 / in_bin.sum())
