"""Loggers: functions that are called with a step and its values; some write files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from graphfw.hints.calls import explained
from graphfw.utils.packages import package

Logger: TypeAlias = Callable[[int, Mapping[str, float]], object]
"""A function of a step and its values, as `lambda step, values: wandb.log(values, step=step)`.

A logger may have two methods, too. `begin(record)` is called before the first step of `fit`, with
the training's `run_record`; `close()` after its last one, however `fit` ends. The next `fit` calls
both again.
"""


@explained
class JsonLines:
    """A logger that appends a line of JSON for each call to a file.

    Args:
        path: The file; its folder is made where there is none.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = JsonLines(Path(folder.name) / "log.jsonl")
    >>> log(100, {"loss": 0.5})
    >>> print(log.path.read_text(), end="")
    {"step": 100, "loss": 0.5}
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


@explained
class Csv:
    """A logger that appends a row for each call to a file of comma-separated values.

    The first row has the names. Where a call brings a new one, the file is written again with a
    column more; where it leaves one out, the field is empty. A file that is there goes on.

    Args:
        path: The file; its folder is made where there is none.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = Csv(Path(folder.name) / "log.csv")
    >>> log(100, {"loss": 0.5})
    >>> log(200, {"loss": 0.25, "eval/loss": 0.75})
    >>> print(log.path.read_text(), end="")
    step,loss,eval/loss
    100,0.5,
    200,0.25,0.75
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row."""
        row = {"step": step, **values}
        names, rows = self._read()
        new = [name for name in row if name not in names]
        if not new:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                _writer(file, names).writerow(row)
            return
        made = self.path.with_name(f"{self.path.name}.new")
        with made.open("w", encoding="utf-8", newline="") as file:
            writer = _writer(file, [*names, *new])
            writer.writeheader()
            writer.writerows([*rows, row])
        made.replace(self.path)

    def _read(self) -> tuple[list[str], Iterable[Mapping[str, Any]]]:
        """Return the columns of the file, and its rows."""
        if not self.path.exists():
            return [], []
        with self.path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), list(reader)


def _writer(file: Any, names: list[str]) -> csv.DictWriter[str]:
    return csv.DictWriter(file, names, lineterminator="\n")


@explained
class TensorBoard:
    """A logger that writes values for TensorBoard, by the package tensorboardX.

    The record of the run is a text named "run". `close` ends the file of events; what comes later
    goes to another in the same folder.

    Args:
        folder: The folder of the run.

    Raises:
        ImportError: The package tensorboardX is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._package = package("tensorboardX", "gf.train.TensorBoard")
        self._open: Any = None

    def begin(self, record: Mapping[str, Any]) -> None:
        """Write the record of a run."""
        lines = [f"    {line}\n" for line in json.dumps(record, indent=2).splitlines()]
        self._writer().add_text("run", "".join(lines))

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Write each value under its name."""
        for name, value in values.items():
            self._writer().add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left, and close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _writer(self) -> Any:
        if self._open is None:
            self._open = self._package.SummaryWriter(os.fspath(self.folder), flush_secs=0)
        return self._open
