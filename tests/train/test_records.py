"""The record of a run: its fields, the digest of a plan, and git that is missing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.train import records
from tests.support.trainings import Model, data

ROOT = Path(gf.__file__).parents[1]
FIELDS = {
    "plan", "seed", "executor", "graphfw", "numpy", "python", "machine", "command", "begun",
    "commit", "dirty",
}  # fmt: skip


def record_of(model):
    plan = model.session.compile([model.step, model.loss], [model.x, model.y])
    return gf.train.run_record(model.session, plan)


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_it_says(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--name", "a b"])
    found = record_of(Model(seed=5))
    assert set(found) == FIELDS
    assert found["command"].endswith(" train.py --name 'a b'")
    assert (found["seed"], found["executor"]) == (5, "numpy")
    assert (found["numpy"], found["graphfw"]) == (np.__version__, gf.__version__)
    assert json.loads(json.dumps(found)) == found


def test_the_commit_and_what_has_changed_since(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_program_folder", lambda: tmp_path)
    assert record_of(Model())["commit"] is None  # no repository
    git(tmp_path, "init", "--quiet")
    assert record_of(Model())["commit"] is None  # no commit
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    (tmp_path / "log.txt").write_text("of no matter")
    found = record_of(Model())
    assert (found["commit"], found["dirty"]) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "train.py").write_text("2")
    assert record_of(Model())["dirty"] is True


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("git"), PermissionError("git"), subprocess.TimeoutExpired("git", 10)],
)
def test_a_training_goes_on_without_git(monkeypatch, tmp_path, error):
    def fails(*args, **options):
        raise error

    monkeypatch.setattr(subprocess, "run", fails)
    checkpoints = gf.train.Checkpoints(tmp_path)
    assert Model().trainer(checkpoints=checkpoints).fit(data()).step == 36
    (found,) = json.loads(checkpoints.runs.read_text())
    assert (found["commit"], found["dirty"]) == (None, None)


def test_each_run_is_in_the_folder_and_in_its_checkpoints(tmp_path):
    checkpoints = gf.train.Checkpoints(tmp_path)
    Model(seed=3).trainer(checkpoints=checkpoints).fit(data(epochs=1))
    model = Model(seed=9)
    model.trainer(checkpoints=checkpoints).fit(data(), resume=True)
    runs = json.loads(checkpoints.runs.read_text())
    assert [run["seed"] for run in runs] == [3, 3]  # the seed goes on, too
    for path, run in zip(checkpoints.paths(), runs, strict=True):
        assert model.session.restore(path).metadata["run"] == run


@pytest.mark.parametrize("text", ["{", '{"learning_rate": 0.1}'])
def test_a_file_of_somebody_else_stays(tmp_path, text):
    checkpoints = gf.train.Checkpoints(tmp_path)
    checkpoints.runs.write_text(text)
    with pytest.warns(UserWarning, match=r"no record of this run in .*has no list of runs"):
        assert Model().trainer(checkpoints=checkpoints).fit(data()).step == 36
    assert checkpoints.runs.read_text() == text


def test_a_record_that_can_not_be_written_is_a_warning(tmp_path):
    checkpoints = gf.train.Checkpoints(tmp_path)
    (tmp_path / "run.json.new").mkdir()
    with pytest.warns(UserWarning, match="no record of this run in .*run.json"):
        assert Model().trainer(checkpoints=checkpoints).fit(data()).step == 36


class TestDigests:
    def digest(self, model):
        return model.session.compile([model.step, model.loss], [model.x, model.y]).digest()

    def test_equal_plans_have_equal_ones(self):
        assert self.digest(Model()) == self.digest(Model(seed=7))

    def test_constants_and_updates_count(self):
        model = Model()
        other = model.session.compile(model.loss, [model.x, model.y]).digest()
        assert len({self.digest(model), self.digest(Model(learning_rate=2e-2)), other}) == 3

    def test_names_of_updated_variables_count(self):
        with gf.Graph() as g:
            a, b = gf.Variable(1.0, name="a"), gf.Variable(1.0, name="b")
            updates = [gf.update(a, 2.0), gf.update(b, 2.0)]
        with gf.Session(g) as session:
            first, second = [session.compile(one).digest() for one in updates]
        assert first != second

    @pytest.mark.slow
    def test_another_process_finds_the_same(self):
        script = (
            "from tests.support.trainings import Model\n"
            "m = Model()\n"
            "print(m.session.compile([m.step, m.loss], [m.x, m.y]).digest())"
        )
        command = [sys.executable, "-c", script]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == self.digest(Model())
