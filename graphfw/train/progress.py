"""A training's progress bar, and Ctrl-C during it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from graphfw.utils.packages import package


class _NoBar:
    """Stands for a progress bar where none is shown."""

    def update(self) -> None:
        """Do nothing."""

    def set_postfix(self, values: Mapping[str, str]) -> None:
        """Do nothing."""


class _RichBar:
    """A bar of the package rich, with tqdm's methods."""

    def __init__(self, progress: Any, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, values="")

    def update(self) -> None:
        """Count a step."""
        self._progress.advance(self._task)

    def set_postfix(self, values: Mapping[str, str]) -> None:
        """Show values after the number of steps a second."""
        text = ", ".join([f"{name}={value}" for name, value in values.items()])
        self._progress.update(self._task, values=text)


@contextmanager
def progress_bar(batches: Sized, shown: bool | None) -> Iterator[Any]:
    """Yield a progress bar over batches, or what stands for none.

    Args:
        batches: The batches; they may have no length.
        shown: Whether it is shown, by rich or else by tqdm; None shows it on a terminal, if one of
            them is installed, and not in CI, which sets the variable CI of the environment.

    Raises:
        ImportError: It is to be shown, and both packages are missing.
    """
    wanted = sys.stderr.isatty() and not os.environ.get("CI") if shown is None else shown
    try:
        total = len(batches)
    except TypeError:
        total = None
    made: AbstractContextManager[Any] = nullcontext(_NoBar())
    if wanted:
        try:
            made = _bar(total)
        except ImportError:
            if shown:
                raise
    with made as bar:
        yield bar


def _bar(total: int | None) -> AbstractContextManager[Any]:
    """Return the bar of the first of the packages that is installed.

    Raises:
        ImportError: None is.
    """
    try:
        rich = package("rich.progress", "a progress bar", "rich")
    except ImportError:
        tqdm = package("tqdm", "a progress bar")
        made: AbstractContextManager[Any] = tqdm.tqdm(total=total, unit="step")
        return made
    return _rich_bar(rich, total)


@contextmanager
def _rich_bar(rich: Any, total: int | None) -> Iterator[_RichBar]:
    class Speed(rich.ProgressColumn):  # type: ignore[misc]  # imported where it is used
        def render(self, task: Any) -> str:
            return f"{task.finished_speed or task.speed or 0:.1f} step/s"

    columns = [
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        Speed(),
        rich.TextColumn("{task.fields[values]}"),
    ]
    console = package("rich.console", "a progress bar", "rich").Console(stderr=True)
    with rich.Progress(*columns, console=console) as progress:
        yield _RichBar(progress, total)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets; a second Ctrl-C does what the first one did before."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def noted(number: int, frame: Any) -> None:
        if interrupted.is_set() and callable(before):
            before(number, frame)
        interrupted.set()

    signal.signal(signal.SIGINT, noted)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
