"""Loggers: functions that are called with a step and its values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from graphfw.hints.calls import explained

Logger: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""A function of a step and its values, as `lambda step, values: wandb.log(values, step=step)`."""


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
class TensorBoard:
    """A logger that writes values for TensorBoard, by the package tensorboardX.

    Args:
        folder: The folder of the run.

    Raises:
        ImportError: The package tensorboardX is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            writer = import_module("tensorboardX").SummaryWriter
        except ModuleNotFoundError as error:
            raise ImportError(
                "gf.train.TensorBoard needs the package tensorboardX: pip install tensorboardX"
            ) from error
        self._writer: Any = writer(os.fspath(folder), flush_secs=0)

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Write each value under its name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
