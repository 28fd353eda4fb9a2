"""The text of a module: its children, indented, each with the number of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def module_text(
    name: str, inside: str, children: Sequence[tuple[str, str]], sizes: Sequence[tuple[bool, Any]]
) -> str:
    """Return a module's text.

    Args:
        name: The class.
        inside: Its sizes and options.
        children: The names and the texts of its children.
        sizes: For each variable of it and its children, whether it is trainable and its size.
    """
    count = _count_text(sizes)
    if not children:
        return f"{name}({inside}){count}"
    lines = [f"{name}("]
    if inside:
        lines.append(f"  {inside}")
    for child, text in children:
        first, *more = text.split("\n")
        lines += [f"  ({child}): {first}", *[f"  {line}" for line in more]]
    return "\n".join([*lines, f"){count}"])


def _count_text(sizes: Sequence[tuple[bool, Any]]) -> str:
    trained = sum(size for trainable, size in sizes if trainable)
    fixed = sum(size for trainable, size in sizes if not trainable)
    facts = [f"{trained:,} parameter{'s' if trained != 1 else ''}"] if trained else []
    if fixed:
        facts.append(f"{fixed:,} not trained")
    return f"  # {', '.join(facts)}" if facts else ""
