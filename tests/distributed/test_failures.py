"""Failures in one process are errors in all of them, and nobody's variables change."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh
from graphfw.distributed.single import SingleProcess
from graphfw.errors import DistributedError
from tests.distributed.programs import failing

OTHERS = {
    "before": "process 2 of 3 failed: ExecutionError: host_call of",
    "between": "process 2 of 3 failed: ExecutionError: host_call of",
    "after": "process 2 of 3 failed: ExecutionError: host_call of",
    "feed": 'process 2 of 3 failed: FeedError: "x" is [n] and is fed [2, 2]',
    "fetch": 'process 2 of 3 failed: FetchError: nothing in this graph is named "nothing"',
    "nan": "process 2 of 3 failed: ExecutionError: log gives nan",
    "check": "process 2 of 3 failed: ExecutionError: now is true",
    "sizes": "the processes don't do the same",
    "plan": "the processes don't do the same",
}


@pytest.mark.parametrize("how", OTHERS)
def test_a_step_that_fails_in_one_process_changes_none(how: str):
    found = SimulatedMesh(data=3).run(lambda mesh: failing(mesh, how, how == "nan"))
    for steps, contents in found[:2]:
        assert [step == "ok" for step in steps] == [True, False, True, True], steps
        assert steps[1].startswith(f"DistributedError: {OTHERS[how]}"), steps[1]
        assert contents == [3 * 36.0] * 3
    steps, contents = found[2]
    assert [step == "ok" for step in steps] == [True, False, True, True], steps
    assert ("DistributedError" in steps[1]) == (how in ("sizes", "plan")), steps[1]
    assert contents == [3 * 36.0] * 3


def test_processes_that_describe_different_graphs():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((3,), name="x")
            y = gf.tanh(x) if mesh.rank else gf.sin(x)
            total = gf.distributed.all_reduce(y, "data")
        with gf.Session(g) as session:
            session.run(total, {x: [1, 2, 3]})

    with pytest.raises(DistributedError) as caught:
        SimulatedMesh(data=2).run(program)
    text = str(caught.value)
    assert "process 0 has %1 = sin(%0)" in text
    assert "process 1 has %1 = tanh(%0)" in text
    assert text.count("test_failures.py:") >= 2
    assert "axis_index" in text


@pytest.mark.parametrize("differs", ["seed", "reduction"])
def test_sessions_of_different_options(differs: str):
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((3,), name="x")
            total = gf.distributed.all_reduce(x, "data")
        values = {"seed": mesh.rank, "reduction": ("ordered", "fast")[mesh.rank]}
        with gf.Session(g, **{differs: values[differs]}) as session:
            session.run(total, {x: [1, 2, 3]})

    with pytest.raises(DistributedError, match=rf"process 0 has [\s\S]*{differs}"):
        SimulatedMesh(data=2).run(program)


def test_a_program_that_ends_too_early():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            total = gf.distributed.all_reduce(x, "data")
        with gf.Session(g) as session:
            for _ in range(3 + mesh.rank):
                session.run(total, {x: 1})

    with pytest.raises(DistributedError, match="process 0 of 2 failed: its program has ended"):
        SimulatedMesh(data=2).run(program)


def test_the_first_cause_is_raised():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            total = gf.distributed.all_reduce(x, "data")
        with gf.Session(g) as session:
            if mesh.rank == 1:
                raise ZeroDivisionError("mine")
            session.run(total, {x: 1})

    with pytest.raises(ZeroDivisionError, match="mine"):
        SimulatedMesh(data=3).run(program)


def test_too_many_rows_of_shards():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("k", 2), name="x")
            total = gf.distributed.all_reduce(x, "data", shards=4)
        with gf.Session(g) as session:
            session.run(total, {x: np.ones((2 + mesh.rank, 2), np.float32)})

    with pytest.raises(gf.ExecutionError, match="process 1 has 3 shards of 4, and should have 2"):
        SimulatedMesh(data=2).run(program)


def test_programs_without_collectives_need_no_other_process():
    def program(mesh: Mesh) -> float:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            y = x * 2
        with gf.Session(g) as session:
            return float(session.run(y, {x: 4})) if mesh.rank == 0 else 0.0

    assert SimulatedMesh(data=2).run(program) == [8.0, 0.0]


def test_looking_at_a_plan_exchanges_nothing(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # reports are of native code

    def program(mesh: Mesh) -> tuple[str, float]:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((3,), name="x")
            total = gf.sum(gf.distributed.all_reduce(x, "data"))
        with gf.Session(g, verify="values") as session:
            plan = session.compile(total, feeds=[x])
            if mesh.rank == 0:
                plan.profile([1, 2, 3]), plan.explain(), plan.cost(), plan.memory()
            return plan.explain(), float(plan([1, 2, 3]))

    texts = SimulatedMesh(data=2).run(program)
    assert [value for _, value in texts] == [12.0, 12.0]
    assert "all_reduce" in texts[0][0]


@pytest.mark.parametrize(("word", "wanted"), [(b"y", 1.0), (b"r", 0.0), (None, 0.0)])
def test_an_interrupt_in_the_vote_comes_after_the_commit(monkeypatch, word, wanted):
    """The other processes may have committed; before the vote, nobody has."""

    def interrupted(self: SingleProcess, message: bytes, is_final: bool = False) -> list[bytes]:
        if is_running and (message == word or (word is None and len(message) == 16)):
            signal.raise_signal(signal.SIGINT)
        return [message]

    monkeypatch.setattr(SingleProcess, "share", interrupted)
    is_running = False
    with gf.Graph(mesh=Mesh(data=1)) as g:
        w = gf.Variable([0.0], name="w")
        step = gf.update(w, w + gf.distributed.all_reduce(gf.ones(1), "data"))
    with gf.Session(g) as session:
        session.compile(step)
        is_running = True
        with pytest.raises(KeyboardInterrupt):
            session.run(step)
        is_running = False
        assert session["w"].tolist() == [wanted]
        session.run(step)
        assert session["w"].tolist() == [wanted + 1]


@pytest.mark.parametrize("where", ["between runs", "in a run"])
def test_a_process_that_hangs_ends_the_others_by_their_time_limit(where: str):
    """The error says in which collective they waited; the process that hangs learns of it."""
    over = threading.Event()

    def slow(x: np.ndarray, hangs: bool = True) -> np.ndarray:
        if hangs and not over.wait(60):
            raise TimeoutError
        return x

    def program(mesh: Mesh) -> list[str]:
        with gf.Graph(mesh=mesh) as g:
            hangs = gf.placeholder((), gf.bool, name="hangs")
            x = gf.host_call(slow, ((1,), gf.float32), gf.ones(1), hangs)
            w = gf.Variable([0.0], name="w")
            step = gf.update(w, w + gf.distributed.all_reduce(x, "data"))
        said = []
        with gf.Session(g, threads=1) as session:
            for number in range(3):
                is_slow = number == 1 and mesh.rank == 1
                if is_slow and where == "between runs":
                    slow(np.ones(1))
                try:
                    feeds = {hangs: is_slow and where == "in a run"}
                    session.run(step, feeds, timeout=0.3 if mesh.rank == 0 and number == 1 else 60)
                    said.append("ok")
                except gf.GraphfwError as error:
                    said.append(f"{type(error).__name__}: {error.summary}")
                    over.set()
            assert session["w"].tolist() == [4.0]
        return said

    first, second = SimulatedMesh(data=2).run(program)
    assert [first[0], first[2], second[0], second[2]] == ["ok"] * 4
    assert first[1].startswith("RunTimeoutError: the run has taken more than its timeout of 0.3 s")
    assert ("all_reduce" in first[1]) == (where == "in a run")
    assert second[1].startswith("DistributedError: process 0 of 2 failed: RunTimeoutError")


def test_a_run_inside_of_another_one():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            total = gf.distributed.all_reduce(x, "data")
            again = gf.host_call(lambda x: session.run(total, {"x": x}), x.type, total)
        with gf.Session(g) as session:
            session.run(again, {x: 1})

    with pytest.raises(gf.ExecutionError, match="begins inside of another one"):
        SimulatedMesh(data=2).run(program)
