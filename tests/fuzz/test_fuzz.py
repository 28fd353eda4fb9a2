"""A few cases of each kind of fuzzer, and that they find what is wrong: `python -m tests.fuzz`."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import graphfw as gf
from tests.fuzz.__main__ import passes, run, watch
from tests.fuzz.checks import KINDS, seen
from tests.fuzz.libraries import Recording
from tests.fuzz.noise import Noise
from tests.fuzz.routes import laid_out, parsed
from tests.fuzz.training import training

EXCHANGED = (
    ("sin", "tanh"), ("sigmoid", "erf"), ("tril", "triu"), ("max", "min"), ("floor", "ceil"),
    ("less", "greater"), ("cumulative_max", "cumulative_min"), ("equal", "not_equal"),
    ("isnan", "isfinite"), ("matmul", "vecdot"), ("add", "subtract"), ("argmax", "argmin"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _as_on_the_command_line(monkeypatch):
    """Passes are checked alike; "values" asks for inputs of its own, which programs may refuse."""
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")


@pytest.mark.exhaustive(every=4)
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
    failed = next(seed for seed in range(1, 40) if run(kinds, range(seed, seed + 1), 1.0, None))
    printed = capsys.readouterr().out
    assert f"python -m tests.fuzz --replay {kind}:{failed}\n" in printed
    assert "x0: (" in printed, "the program is shown"
    assert not passes(KINDS[kind], kind, failed)
    monkeypatch.undo()
    assert passes(KINDS[kind], kind, failed)


def test_values_beyond_the_range_of_a_dtype_are_not_compared():
    KINDS["plain"](31001982)


@pytest.mark.slow
def test_what_is_as_large_as_noise_inside_of_a_function_is_not_compared():
    pytest.importorskip("torch")
    # The second gradient of attention to one key, which is 0 but for rounding.
    KINDS["plain"](1416199653000064)


def test_noise_moves_gradients_by_what_enters_a_function():
    torch = pytest.importorskip("torch")
    x = torch.tensor([9.0], dtype=torch.float64, requires_grad=True)
    exact = 1 - np.tanh(9.0) ** 2
    moved = []
    for seed in range(8):
        noise = Noise(1e-6, np.random.default_rng(seed))
        (gradient,) = torch.autograd.grad(noise.called(torch.tanh, [x]).sum(), x)
        moved.append(abs(float(gradient[0]) - exact))
    assert 1e-7 < max(moved) < 1e-5
    assert exact < 1e-7


def test_numbers_inside_of_a_function_are_recorded():
    recording = Recording()
    x = np.full((2, 3), 100.0)
    recording.scaled_dot_product_attention(x, x, x, np.ones((2, 2), bool))
    assert recording.largest == 3e4


def test_cases_take_turns(capsys):
    ran = []
    kinds = {name: lambda seed, name=name: ran.append((name, seed)) for name in "ab"}
    assert run(kinds, range(7, 100), 1.0, cases=3) == 0
    assert ran == [("a", 7), ("b", 8), ("a", 9)]
    ran.clear()
    assert run(kinds, range(7, 100), -1.0, None) == 0
    assert not ran


def test_each_case_is_noted_before_it_runs():
    order = []
    kinds = {name: lambda seed, name=name: order.append((name, seed)) for name in "ab"}
    run(kinds, range(7, 100), 1.0, cases=2, begin=order.append)
    lines = [f"python -m tests.fuzz --replay {case}" for case in ("a:7", "b:8")]
    assert order == [lines[0], ("a", 7), lines[1], ("b", 8)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_worker_that_a_signal_ends_is_reported(capfd):
    worker = """if True:
        import os, signal, sys
        from pathlib import Path
        from tests.fuzz.__main__ import run
        ended = {"vmap": lambda seed: seed == 8 and os.kill(os.getpid(), signal.SIGSEGV)}
        run(ended, range(7, 100), 1.0, 2, Path(sys.argv[2]).write_text)
    """
    command = [sys.executable, "-c", worker]
    fine = [sys.executable, "-c", ""]
    assert watch([fine, command]) == 1
    assert capfd.readouterr().out == "ENDED by SIGSEGV: python -m tests.fuzz --replay vmap:8\n\n"
    assert watch([[sys.executable, "-c", "import os; os.abort()"]]) == 1
    assert capfd.readouterr().out == "ENDED by SIGABRT: before its first case\n\n"
    assert watch([fine, fine]) == 0
    assert not capfd.readouterr().out


def test_numbers_are_the_same_in_other_layouts():
    rng = np.random.default_rng(0)
    for shape in ((), (3,), (2, 5), (0, 4), (2, 1, 3)):
        x = rng.standard_normal(shape).astype(rng.choice(["float64", "int8", "complex64"]))
        kept = x.copy()
        found = [laid_out(rng, x) for _ in range(20)]
        assert all([y.dtype == x.dtype and y.tobytes() == kept.tobytes() for y in found])
        if x.size > 3:
            assert len({y.strides for y in found}) > 1
    assert any([not laid_out(rng, np.ones((3, 4))).flags.aligned for _ in range(40)])


def test_a_text_that_is_read_otherwise_is_found(monkeypatch):
    with gf.Graph() as g:
        y = gf.placeholder((3,), "float64", name="x") * 2.0
    again, (z,) = parsed(g, [y])
    assert again is not g
    assert z.node.op.name == "multiply"
    right = gf.parse
    monkeypatch.setattr(gf, "parse", lambda text, **given: right(text.replace("2.0", "3.0")))
    with pytest.raises(AssertionError, match="is another"):
        parsed(g, [y])
