"""Reports: texts of several lines."""

from __future__ import annotations


class Report(str):
    r"""A text that Python's prompt and notebooks show in lines, and not in quotes.

    >>> Report("two\nlines")
    two
    lines
    """

    __slots__ = ()
    __repr__ = str.__str__
