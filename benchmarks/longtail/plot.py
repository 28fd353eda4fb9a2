"""The plot of the long tail: the ratio to the best peer by workload, sorted."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

if TYPE_CHECKING:
    from benchmarks.longtail.summary import Row


def plot(rows: Sequence[Row], heading: str, path: Path) -> None:
    """Draw a bar for each workload, the worst first, in the colour of its class."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ordered = sorted(rows, key=lambda row: -row.ratio)
    groups = list(dict.fromkeys(row.group for row in rows))
    colours = dict(zip(groups, mpl.colormaps["tab20"].colors, strict=False))
    mean = math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))
    figure, panel = plt.subplots(figsize=(max(8.0, 0.16 * len(rows) + 2), 7.5))
    for group in groups:
        own = [(i, row.ratio) for i, row in enumerate(ordered) if row.group == group]
        positions, ratios = zip(*own, strict=True)
        heights = [ratio - 1 for ratio in ratios]
        panel.bar(positions, heights, bottom=1, width=0.8, color=colours[group], label=group)
    panel.axhline(1, color="black", lw=1)
    panel.axhline(mean, color="black", lw=0.8, ls="--")
    panel.annotate(f"geometric mean {mean:.2f}", (len(rows) - 0.5, mean), fontsize=8, ha="right")
    panel.set_yscale("log")
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if _within(t, ordered)]
    panel.set_yticks(ticks, [f"{t:g}" for t in ticks])
    panel.minorticks_off()
    panel.set_xticks(range(len(ordered)), [row.name for row in ordered], rotation=90, fontsize=6)
    panel.set_xlim(-1, len(ordered))
    panel.set_ylabel("time of graphfw over time of the best peer")
    panel.grid(True, axis="y", alpha=0.3)
    panel.legend(fontsize=7, ncols=2)
    figure.suptitle("\n".join(textwrap.wrap(heading, 170)), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _within(tick: float, ordered: Sequence[Row]) -> bool:
    return tick == 1 or ordered[-1].ratio / 2 <= tick <= ordered[0].ratio * 2
