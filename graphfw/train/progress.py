"""A training's progress bar, and Ctrl-C during it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

from graphfw.utils.packages import package


class _NoBar:
    """Stands for a progress bar where none is shown."""

    def update(self) -> None:
        """Do nothing."""

    def set_postfix(self, values: Mapping[str, str]) -> None:
        """Do nothing."""


@contextmanager
def progress_bar(batches: Sized, shown: bool | None) -> Iterator[Any]:
    """Yield a progress bar over batches, or what stands for none.

    Args:
        batches: The batches; they may have no length.
        shown: Whether it is shown; None shows it on a terminal, if tqdm is installed, and not in
            CI, which sets the variable CI of the environment.

    Raises:
        ImportError: It is to be shown, and tqdm is missing.
    """
    wanted = sys.stderr.isatty() and not os.environ.get("CI") if shown is None else shown
    tqdm = None
    if wanted:
        try:
            tqdm = package("tqdm", "a progress bar").tqdm
        except ImportError:
            if shown:
                raise
    if tqdm is None:
        yield _NoBar()
        return
    try:
        total = len(batches)
    except TypeError:
        total = None
    with tqdm(total=total, unit="step") as bar:
        yield bar


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
