"""The progress bar of `gf.train.Trainer`, by rich, by tqdm, and without either."""

import re
import sys
from types import SimpleNamespace

import pytest

from graphfw.train.progress import progress_bar
from tests.support.trainings import Model, data

MISSING = {
    "rich": ["rich", "rich.progress", "rich.console"],
    "tqdm": ["tqdm"],
}


def hide(monkeypatch, *packages):
    for package in packages:
        for module in MISSING[package]:
            monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture(params=["rich", "tqdm"])
def bars(request, monkeypatch):
    """Show bars by one package."""
    pytest.importorskip(request.param)
    monkeypatch.setenv("COLUMNS", "150")
    if request.param == "tqdm":
        hide(monkeypatch, "rich")


@pytest.mark.usefixtures("bars")
def test_a_progress_bar(capsys):
    Model().trainer(progress=True).fit(data(), every=12)
    shown = capsys.readouterr().err
    assert "36/36" in shown
    assert "step/s" in shown
    assert re.search(r"loss=[\d.e-]+, .*waiting=\d+%", shown)
    Model().trainer().fit(data())
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("bars")
@pytest.mark.parametrize(("ci", "shown"), [("", True), ("true", False)])
def test_a_progress_bar_on_terminals_and_not_in_ci(capsys, monkeypatch, ci, shown):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Model().trainer().fit(data())
    assert ("36/36" in capsys.readouterr().err) == shown


@pytest.mark.usefixtures("bars")
def test_batches_without_a_length(capsys):
    with progress_bar(iter(()), True) as bar:
        bar.update()
        bar.set_postfix({"loss": "0.5"})
    assert "loss=0.5" in capsys.readouterr().err


class FakeProgress:
    """Stands for `rich.progress.Progress`."""

    def __init__(self, *columns, console):
        assert console.stderr
        self.columns = columns
        self.calls = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.calls.append("closed")

    def add_task(self, description, total, values):
        self.calls.append((description, total, values))
        return 7

    def advance(self, task):
        self.calls.append(task)

    def update(self, task, values):
        self.calls.append((task, values))


def test_rich_is_called_as_it_documents(monkeypatch):
    made = []

    def progress(*columns, console):
        made.append(FakeProgress(*columns, console=console))
        return made[0]

    names = ["BarColumn", "MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn"]
    fake = {name: object for name in names}
    fake |= {"ProgressColumn": object, "TextColumn": str, "Progress": progress}
    monkeypatch.setitem(sys.modules, "rich.progress", SimpleNamespace(**fake))
    console = SimpleNamespace(Console=lambda stderr: SimpleNamespace(stderr=stderr))
    monkeypatch.setitem(sys.modules, "rich.console", console)
    hide(monkeypatch, "tqdm")
    with progress_bar([1, 2, 3], True) as bar:
        bar.update()
        bar.set_postfix({"loss": "0.5", "waiting": "3%"})
    assert made[0].calls == [("", 3, ""), 7, (7, "loss=0.5, waiting=3%"), "closed"]
    (speed,) = [c for c in made[0].columns if hasattr(c, "render")]
    task = SimpleNamespace(finished_speed=None, speed=None)
    assert speed.render(task) == "0.0 step/s"


def test_without_the_packages(capsys, monkeypatch):
    hide(monkeypatch, "rich", "tqdm")
    with pytest.raises(ImportError, match="a progress bar needs the package tqdm"):
        Model().trainer(progress=True).fit(data())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("CI", "")
    Model().trainer().fit(data())
    assert not capsys.readouterr().err
