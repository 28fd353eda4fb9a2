"""The errors expected of mistakes: the list that `tests/test_mistakes.py` goes through.

Every mistake is a function whose faulty line is marked `# here`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """The error expected of one mistake."""

    make: Callable[..., object]
    error: type[Exception]
    text: str
    operands: tuple[str, ...]
    fix: str
    builtin: type[Exception]

    @property
    def file(self) -> str:
        """The file of the mistake."""
        return self.make.__code__.co_filename

    def marked(self, mark: str) -> int:
        """Return the number of the line that ends with `# mark`."""
        lines, first = inspect.getsourcelines(self.make)
        return first + next(
            i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")
        )


BUILD: list[Mistake] = []
RUN: list[Mistake] = []


def mistake(
    where: list[Mistake],
    error: type[Exception],
    text: str,
    *operands: str,
    fix: str,
    builtin: type[Exception] = ValueError,
):
    """Add a function to the matrix. `operands` are names; each is made on a line marked with it."""

    def add(make):
        where.append(Mistake(make, error, text, operands, fix, builtin))
        return make

    return add
