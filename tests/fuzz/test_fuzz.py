"""A few cases of each kind of fuzzer, and that they find what is wrong: `python -m tests.fuzz`."""

from __future__ import annotations

import pytest

import graphfw as gf
from tests.fuzz.__main__ import passes, run
from tests.fuzz.checks import KINDS, seen
from tests.fuzz.training import training

EXCHANGED = (
    ("sin", "tanh"), ("sigmoid", "erf"), ("tril", "triu"), ("max", "min"), ("floor", "ceil"),
    ("less", "greater"), ("cumulative_max", "cumulative_min"), ("equal", "not_equal"),
    ("isnan", "isfinite"), ("matmul", "vecdot"), ("add", "subtract"), ("argmax", "argmin"),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_cases(kind):
    before = seen["values"]
    KINDS[kind](1)
    assert seen["values"] > before


def test_a_few_trainings(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("tests.fuzz.training.STEPS", 4)
    for seed in (1, 2):
        training(seed)


@pytest.mark.parametrize("kind", ["values", "vmap"])
def test_a_wrong_function_is_found_and_can_be_replayed(kind, monkeypatch, capsys):
    for one, other in EXCHANGED:
        right, wrong = getattr(gf, one), getattr(gf, other)
        monkeypatch.setattr(gf, one, wrong)
        monkeypatch.setattr(gf, other, right)
    kinds = {kind: KINDS[kind]}
    failed = next(seed for seed in range(40) if run(kinds, range(seed, seed + 1), 1.0, None))
    printed = capsys.readouterr().out
    assert f"python -m tests.fuzz --replay {kind}:{failed}\n" in printed
    assert "x0: (" in printed, "the program is shown"
    assert not passes(KINDS[kind], kind, failed)
    monkeypatch.undo()
    assert passes(KINDS[kind], kind, failed)


def test_cases_take_turns(capsys):
    ran = []
    kinds = {name: lambda seed, name=name: ran.append((name, seed)) for name in "ab"}
    assert run(kinds, range(7, 100), 1.0, cases=3) == 0
    assert ran == [("a", 7), ("b", 8), ("a", 9)]
    ran.clear()
    assert run(kinds, range(7, 100), -1.0, None) == 0
    assert not ran
