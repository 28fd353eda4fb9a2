"""ONNX's backend test suite: the cases of `passing.txt` pass, the others have a reason.

After a change that makes more of them pass: `python -m tests.onnx.suite --update`.
"""

from __future__ import annotations

import pytest

from tests.onnx.suite import KINDS, PASSING, cases, outcome, reasons

PASSES = PASSING.read_text("utf-8").split()


SHARES = [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 8))]


@pytest.fixture(scope="module", params=SHARES)
def share(request):
    """An eighth of the cases, so that several processes can share them; a plain run has one."""
    found = {name: case for kind in KINDS if kind != "real" for name, case in cases(kind).items()}
    return {name: found[name] for name in PASSES[request.param :: 8] if name in found}


def test_cases_pass(share):
    check(share)


@pytest.mark.slow  # ResNet-50, VGG-19, DenseNet-121: some seconds
def test_networks_pass():
    check(cases("real"))


@pytest.mark.slow  # a minute
def test_cases_pass_when_each_pass_is_verified(share, monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")
    check(share)


def check(share):
    wrong = {name: text for name, case in share.items() if (text := outcome(case))}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


def test_every_case_is_accounted_for():
    known = {*PASSES, *reasons()}
    assert not [name for kind in KINDS for name in cases(kind) if name not in known]
    assert not set(PASSES) & set(reasons())
