"""A folder of checkpoints: the last ones, and the best one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphfw.errors import ArgumentError, CheckpointError
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.runtime.session import Session

_NAME = re.compile(r"step-(\d+)\.safetensors")


@explained
class Checkpoints(Answering):
    """The checkpoints of a training, in a folder: `step-00000100.safetensors` and so on.

    Args:
        folder: The folder; it is made where there is none.
        keep_last: The number of last checkpoints that stay.
        keep_best: Whether the best one stays, as `best.safetensors`.

    Raises:
        ArgumentError: `keep_last` is no integer of at least 1.

    >>> import tempfile
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable([1.0, 2.0], name="w")
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpoints = gf.train.Checkpoints(folder.name, keep_last=2)
    >>> with gf.Session(g) as session:
    ...     for step in (10, 20, 30):
    ...         checkpoints.save(session, step)
    >>> [path.name for path in checkpoints.paths()]
    ['step-00000020.safetensors', 'step-00000030.safetensors']
    >>> folder.cleanup()
    """

    _answers_as = "Checkpoints"

    def __init__(
        self, folder: str | os.PathLike[str], *, keep_last: int = 3, keep_best: bool = True
    ) -> None:
        if type(keep_last) is not int or keep_last < 1:
            raise ArgumentError(
                f"Checkpoints: keep_last={keep_last!r} is no integer of at least 1",
                fix="write keep_last=3",
            )
        self.folder = Path(folder)
        self.keep_last = keep_last
        self.keep_best = keep_best

    def save(
        self,
        session: Session,
        step: int,
        metadata: Mapping[str, Any] | None = None,
        *,
        is_best: bool = False,
    ) -> None:
        """Write a checkpoint, and remove those that are too many.

        Args:
            session: The session.
            step: The number of steps so far, which names the file.
            metadata: As for `Session.save`.
            is_best: Whether no earlier one was as good.

        Raises:
            CheckpointError: It can't be written; the earlier ones are as they were.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        session.save(self.folder / f"step-{step:08}.safetensors", metadata=metadata)
        if is_best and self.keep_best:
            session.save(self.best, metadata=metadata)
        for path in self.paths()[: -self.keep_last]:
            with suppress(FileNotFoundError):
                path.unlink()

    def add_run(self, record: Mapping[str, Any]) -> None:
        """Add the record of a run that writes checkpoints here: see `run_record`.

        Raises:
            OSError: It can't be written; the earlier ones are as they were.
            CheckpointError: The file that is there is something else; it stays as it is.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        before = _records_in(self.runs) if self.runs.exists() else []
        made = self.folder / "run.json.new"
        made.write_text(json.dumps([*before, record], indent=2) + "\n", "utf-8")
        made.replace(self.runs)

    def paths(self) -> list[Path]:
        """Return the checkpoints of steps, the latest last."""
        found = [(_NAME.fullmatch(path.name), path) for path in self.folder.glob("step-*")]
        return [path for _, path in sorted([(int(m[1]), path) for m, path in found if m])]

    @property
    def latest(self) -> Path | None:
        """The checkpoint with the most steps, or None."""
        paths = self.paths()
        return paths[-1] if paths else None

    @property
    def runs(self) -> Path:
        """The file with a list of the records of all runs that have written here."""
        return self.folder / "run.json"

    @property
    def best(self) -> Path:
        """The path of the best one, which may not have been written yet."""
        return self.folder / "best.safetensors"


def _records_in(path: Path) -> list[Any]:
    """Return the records in a file.

    Raises:
        CheckpointError: It has something else.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise CheckpointError(
            f"{os.fspath(path)!r} has no list of runs", fix="move it away, or use another folder"
        )
    return found
