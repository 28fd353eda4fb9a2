"""The plot of a sweep."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from benchmarks.machine import FLOORS

if TYPE_CHECKING:
    from benchmarks.sweep import Point

COLOURS = {"graphfw": "#c2185b", "numpy": "#4dabcf", "torch": "#ee8434", "copy": "#777777"}


def plot(points: Sequence[Point], heading: str, path: Path) -> None:
    """Draw a panel for each function and dtype: a line for each contender and number of threads.

    The limits: copying the first argument (grey), and for matrix products the time at the best rate
    that anyone reached with so many threads (black).
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    functions = list(dict.fromkeys(p.function for p in points))
    dtypes = list(dict.fromkeys(p.dtype for p in points))
    threads = sorted({p.threads for p in points})
    styles = dict(
        zip(threads, ("--", "-", "-.", ":") if len(threads) > 1 else ("-",), strict=False)
    )
    size = (4.5 * len(dtypes), 3.6 * len(functions) + 0.8)
    figure, panels = plt.subplots(len(functions), len(dtypes), figsize=size, squeeze=False)
    for row, function in enumerate(functions):
        for column, dtype in enumerate(dtypes):
            panel = panels[row][column]
            for count, style in styles.items():
                chosen = [
                    p
                    for p in points
                    if (p.function, p.dtype, p.threads) == (function, dtype, count)
                ]
                _lines(panel, chosen, style)
            panel.set(title=f"{function}, {dtype}", xscale="log", yscale="log")
            panel.set(xlabel="elements", ylabel="seconds" if column == 0 else "")
            panel.grid(True, alpha=0.3)
            panel.legend(fontsize=7)
    said = ", ".join(f"{style} {count} threads" for count, style in styles.items())
    figure.suptitle("\n".join([*textwrap.wrap(heading, 80 * len(dtypes)), said]), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(panel: Any, points: Sequence[Point], style: str) -> None:
    for name, colour in COLOURS.items():
        drawn = [(p.elements, p.seconds[name]) for p in points if name in p.seconds]
        if drawn:
            label = name if style == "-" else None
            panel.plot(
                *zip(*drawn, strict=True), style, color=colour, label=label, marker=".", ms=3
            )
    rates = [p.work / s for p in points if p.work for n, s in p.seconds.items() if n not in FLOORS]
    if rates:
        limit = [(p.elements, p.work / max(rates)) for p in points]
        label = f"{max(rates) / 1e9:.0f} GF/s"
        panel.plot(*zip(*limit, strict=True), style, color="black", lw=0.8, label=label)
