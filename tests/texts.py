"""Comparisons of errors' texts, for tests."""

from __future__ import annotations


def said(error: BaseException) -> str:
    """Return an error's text without the line that says where: `at …` differs from run to run."""
    return "\n".join(line for line in str(error).splitlines() if not line.startswith("  at   "))
